"""Each alert rule opens, stays and resolves on event time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from streaming.groups.alerts import GroupAlerts
from streaming.groups.rules import AlertRule, GroupRules
from tests.connect_records import START_MS, Cluster, Sent, record
from tests.observed_inputs import captured_versions
from tests.playing import Player, at, event, join, tick, topic

IMBALANCE = {"max_over_mean": 1.1, "min_spread": 2.0}


def rules_with(alertname: str, for_s: float = 0, keep_s: float = 0, **more: Any) -> GroupRules:
    """Make rules with one alert only."""
    numbers = more.pop("numbers", {})
    rule = AlertRule(
        alertname=alertname,
        severity="warning",
        for_ms=int(for_s * 1000),
        keep_firing_for_ms=int(keep_s * 1000),
        numbers=numbers,
    )
    return GroupRules(alerts={alertname: rule}, **more)


def observed(
    generation_id: int, seconds: float, assigned: dict[str, dict[str, list[int]]], **more: Any
) -> dict[str, Any]:
    """Make a generation_observed event under range, of members that subscribe to t0."""
    members = [
        {"member_id": m, "client_id": m, "client_host": "/h", "topics": ["t0"], "assigned": topics}
        for m, topics in assigned.items()
    ]
    return event(
        "generation_observed", seconds, generation_id=generation_id, protocol_type="consumer",
        protocol="range" if members else None, state="Stable" if members else "Empty", members=members,
        **more,
    )  # fmt: skip


def changes(player: Player) -> list[tuple[str, int]]:
    """List the alert changes as (status, seconds after the start)."""
    rows = [a for row in player.rows for a in row["alerts"]]
    return [(a["status"], (a["event_time"] - at(0) * 1000) // 1_000_000) for a in rows]


def test_unassigned_partitions_fire_after_their_time() -> None:
    """Partitions of a topic that grew have no owner until its clients notice."""
    player = Player(rules_with("UnassignedPartitions", for_s=360))
    player.play([topic("t0", 2), observed(1, 1, {"C0": {"t0": [0, 1]}}), topic("t0", 3, 10)])
    assert changes(player) == [("pending", 10)]
    player.play([tick(369)])
    assert changes(player) == [("pending", 10)]
    player.play([tick(371)])
    assert changes(player) == [("pending", 10), ("firing", 370)]
    player.play([observed(2, 400, {"C0": {"t0": [0, 1, 2]}})])
    assert changes(player)[-1] == ("resolved", 400)
    incidents = {a["incident_id"] for row in player.rows for a in row["alerts"]}
    assert len(incidents) == 1


def test_unassigned_partitions_that_find_an_owner_in_time_never_fire() -> None:
    """A pending alert whose condition goes is resolved without having fired."""
    player = Player(rules_with("UnassignedPartitions", for_s=360))
    player.play(
        [
            topic("t0", 2),
            observed(1, 1, {"C0": {"t0": [0]}}),
            observed(2, 5, {"C0": {"t0": [0, 1]}}),
            tick(999),
        ]
    )
    assert changes(player) == [("pending", 1), ("resolved", 5)]
    assert "before the alert fired" in [a for r in player.rows for a in r["alerts"]][-1]["description"]


def test_the_middle_of_a_cooperative_move_is_not_unassigned() -> None:
    """What a cooperative move withholds for its second generation raises nothing."""
    player = Player(rules_with("UnassignedPartitions"))
    player.play([topic("t0", 4), join("C0", 1, "t0"), join("C1", 2, "t0"), tick(300)])
    assert any(not row["is_final"] for row in player.versions())
    assert changes(player) == []


def running(generation_id: int, seconds: float, **lists: dict[str, list[int]]) -> Any:
    """Make the record of a generation in which each worker keeps what it runs."""
    sent = {worker: Sent(report=report) for worker, report in lists.items()}
    return record(generation_id, sent, time_ms=START_MS + int(seconds * 1000))


def test_connect_tasks_that_nobody_runs_are_unassigned() -> None:
    """What must be configured, because a later task runs, and runs nowhere is named in Connect's words."""
    player = Player(rules_with("UnassignedPartitions", for_s=360))
    player.play_inputs([running(5, 1, w0={"c": [0, 2], "d": [-1]}, w1={})])
    player.play([{**tick(400), "cluster": "c"}])
    assert changes(player) == [("pending", 1), ("firing", 361)]
    alert = [a for row in player.rows for a in row["alerts"]][-1]
    assert alert["summary"] == "g: 1 connector and 1 task that nobody runs"
    assert alert["description"] == "No worker runs connector c, 1 task of c."
    assert alert["value"] == 2
    player.play_inputs([running(6, 500, w0={"c": [0, 2], "d": [-1]}, w1={"c": [-1, 1]})])
    assert changes(player)[-1] == ("resolved", 500)


def test_connect_tasks_that_wait_are_not_unassigned() -> None:
    """Neither a lost worker's tasks while Kafka's delay runs, nor what is revoked to be given on."""
    cluster = Cluster()
    cluster.configure("c", 4)
    cluster.join("w0")
    cluster.settle()
    cluster.join("w1")
    cluster.rebalance()
    cluster.rebalance()
    cluster.leave("w1")
    cluster.rebalance()
    player = Player(rules_with("UnassignedPartitions"))
    player.play_inputs(cluster.records)
    assert [row["is_final"] for row in player.versions()[-3:]] == [False, True, False]
    assert [row["balance"]["unowned"] for row in player.versions()[-3:]] == [2, 0, 2]
    player.play([{**tick(3000), "cluster": "c"}])
    assert changes(player) == []


def test_computed_connect_tasks_that_wait_are_not_unassigned() -> None:
    """A computed group that waits for a worker raises nothing either."""
    player = Player(rules_with("UnassignedPartitions"))
    workers = [event("worker_joined", n, worker_id=f"w{n}", url="") for n in (1, 2)]
    stop = event("partitions_revoked", 3, "w1", generation_id=2)
    player.play([event("connector_configured", 0, connector="c", tasks=4), *workers, stop])
    player.play([event("worker_left", 10, worker_id="w2"), tick(200)])
    assert (player.versions()[-1]["is_final"], player.versions()[-1]["balance"]["unowned"]) == (False, 2)
    assert changes(player) == []


def test_connect_workers_are_uneven_by_kind() -> None:
    """One connector and one task more than another worker is how Connect deals; two tasks more is not."""
    player = Player(rules_with("AssignmentImbalanced", numbers=IMBALANCE))
    player.play_inputs([running(5, 1, w0={"c": [-1, 0]}, w1={})])
    assert changes(player) == []
    player.play_inputs([running(6, 2, w0={"c": [-1, 0, 1]}, w1={})])
    assert changes(player) == [("firing", 2)]
    alert = [a for row in player.rows for a in row["alerts"]][-1]
    assert alert["summary"] == "g: worker with the most tasks at 2.00 of the mean"
    assert alert["description"] == "w0 runs 2 tasks, the least loaded worker 0; no delay is running."
    player.play_inputs([running(7, 3, w0={"c": [-1, 0], "d": [-1]}, w1={"c": [1]})])
    assert [a["summary"] for row in player.rows for a in row["alerts"]] == [alert["summary"]]
    player.play_inputs([running(8, 4, w0={"c": [-1, 0]}, w1={"c": [1], "d": [-1]})])
    assert changes(player)[-1] == ("resolved", 4)


def test_imbalance_needs_a_better_legal_assignment() -> None:
    """Uneven loads raise the alert only where subscriptions would allow evener ones."""
    player = Player(
        rules_with("AssignmentImbalanced", for_s=900, numbers=IMBALANCE, default_protocols=("range",))
    )
    topics = [f"t{i}" for i in range(4)]
    story = [topic(name, 3) for name in topics]
    player.play([*story, join("C0", 1, *topics), join("C1", 2, *topics), tick(62), tick(2000)])
    assert changes(player) == [("pending", 62), ("firing", 962)]
    forced = Player(rules_with("AssignmentImbalanced", numbers=IMBALANCE))
    forced.play([topic("big", 8), topic("small", 1), join("C0", 1, "big"), join("C1", 2, "small")])
    assert changes(forced) == []


def test_unexpected_assignment_fires_at_the_second_generation_in_a_row() -> None:
    """One strange generation may be a hiccup; two are a finding, and an expected one ends it."""
    player = Player(rules_with("UnexpectedAssignment", numbers={"generations": 2}))
    strange = {"C0": {"t0": [1, 3]}, "C1": {"t0": [0, 2]}}
    player.play([topic("t0", 4), observed(1, 1, strange)])
    assert changes(player) == []
    player.play([observed(2, 2, {"C0": {"t0": [3, 2]}, "C1": {"t0": [0, 1]}})])
    assert changes(player) == [("firing", 2)]
    player.play([observed(3, 3, {"C0": {"t0": [0, 1]}, "C1": {"t0": [2, 3]}})])
    assert changes(player) == [("firing", 2), ("resolved", 3)]


@pytest.mark.parametrize(
    ("status", "fires"), [("different", True), ("other_algorithm", False), ("stale_metadata", False)]
)
def test_a_difference_that_is_explained_is_no_unexpected_assignment(status: str, fires: bool) -> None:
    """A librdkafka leader decides otherwise in every generation: that is its way and wakes nobody."""
    rule = AlertRule(alertname="UnexpectedAssignment", severity="warning", for_ms=0, keep_firing_for_ms=0)
    alerts = GroupAlerts("main", "cg-ck-coop", {"UnexpectedAssignment": rule})
    run = [v for v in captured_versions("cg-ck-coop") if v.kind == "rebalance" and v.members][:3]
    for number, version in enumerate(run):
        judged = replace(version, generation_id=number, expected_status=status)
        told = alerts.observe(judged, number)
        assert bool(told) == (fires and number == 1), (status, number)


def test_group_empty_needs_members_before() -> None:
    """A group that never had members is not empty in this sense; one that lost them is."""
    player = Player(rules_with("GroupEmpty", for_s=600))
    player.play([topic("t0", 1), observed(1, 1, {}), tick(5000)])
    assert changes(player) == []
    player.play([observed(2, 5001, {"C0": {"t0": [0]}}), observed(3, 5002, {}), tick(6000)])
    assert changes(player) == [("pending", 5002), ("firing", 5602)]
    player.play([observed(4, 6001, {"C0": {"t0": [0]}})])
    assert changes(player)[-1] == ("resolved", 6001)


def test_keep_firing_for_bridges_a_short_gap() -> None:
    """With keep_firing_for an alert survives a moment without its condition under one incident."""
    player = Player(rules_with("GroupEmpty", keep_s=60))
    there, gone = {"C0": {"t0": [0]}}, {}
    player.play(
        [
            topic("t0", 1),
            observed(1, 1, there),
            observed(2, 2, gone),
            observed(3, 10, there),
            observed(4, 20, gone),
        ]
    )
    assert changes(player) == [("firing", 2)]
    player.play([observed(5, 30, there), tick(200)])
    assert changes(player) == [("firing", 2), ("resolved", 90)]


def test_deletion_resolves_whatever_was_open() -> None:
    """A deleted group has no alerts left."""
    player = Player(rules_with("GroupEmpty"))
    player.play(
        [topic("t0", 1), observed(1, 1, {"C0": {"t0": [0]}}), observed(2, 2, {}), event("group_deleted", 3)]
    )
    assert changes(player) == [("firing", 2), ("resolved", 3)]


def test_a_rule_that_is_switched_off_resolves_its_alert() -> None:
    """An alert whose rule is gone from the settings ends with the group's next version."""
    player = Player(rules_with("GroupEmpty"))
    player.play([topic("t0", 1), observed(1, 1, {"C0": {"t0": [0]}}), observed(2, 2, {})])
    player.rules = GroupRules()
    player.play([observed(3, 3, {"C0": {"t0": [0]}})])
    assert changes(player) == [("firing", 2), ("resolved", 3)]


def test_changes_are_numbered_in_the_order_in_which_they_came() -> None:
    """A state row stands last in a batch; the number tells what came first all the same."""
    player = Player(rules_with("UnassignedPartitions", for_s=360))
    player.play(
        [
            topic("t0", 2),
            observed(1, 1, {"C0": {"t0": [0, 1]}}),
            topic("t0", 3, 10),
            observed(2, 11, {"C0": {"t0": [0, 1, 2]}}),
        ]
    )
    numbered = {a["status"]: a["change_number"] for row in player.rows for a in row["alerts"]}
    assert numbered == {"pending": 1, "resolved": 2}
