"""Observed Connect groups: what their leader should have given out, read from what its workers said."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from assignors.connect_eager import assign_connect_eager
from streaming.groups.observed.expected import same_owners
from streaming.groups.observed.group import ObservedGroup
from streaming.model import Input, Version
from tests.connect_records import DELAY_MS, START_MS, Cluster, Sent, assignment, lists_of, record
from tests.observed_inputs import advance_all, captured_versions, classic, versions, view


def observe(records: Iterable[Input], *, saved_after_each: bool = True) -> list[Version]:
    """Read the records; the versions they make."""
    return versions(advance_all(records, view(), saved_after_each=saved_after_each)[0]["g"])


def judged(records: Iterable[Input]) -> list[str]:
    """List the statuses of the generations that have members."""
    return [v.expected_status for v in observe(records) if v.members]


def two_workers() -> Cluster:
    """Make a cluster of two workers that rests with a connector of four tasks."""
    cluster = Cluster()
    cluster.configure("c", 4)
    cluster.join("w0")
    cluster.join("w1")
    cluster.settle()
    return cluster


@st.composite
def clusters(draw: st.DrawFn, delays: Sequence[int] = (DELAY_MS,)) -> Cluster:
    """Draw a history: workers come and go, connectors too, time passes and delays end."""
    cluster = Cluster(draw(st.sampled_from(delays)))
    jitter_ms = draw(st.integers(0, 40))
    names = iter(f"w{n}" for n in range(100))
    for _ in range(draw(st.integers(2, 9))):
        for _ in range(draw(st.integers(1, 2))):
            step = draw(
                st.sampled_from(["join", "join", "leave", "configure", "configure", "delete", "wait"])
            )
            if step == "join":
                cluster.join(next(names))
            elif step == "leave" and cluster.running:
                cluster.leave(draw(st.sampled_from(sorted(cluster.running))))
            elif step == "configure":
                cluster.configure(draw(st.sampled_from("abc")), draw(st.integers(0, 4)))
            elif step == "delete" and cluster.config:
                cluster.configure(draw(st.sampled_from(sorted(cluster.config))), None)
        after_ms = draw(st.sampled_from([500, 30_000]))
        if draw(st.booleans()) and cluster.ends_ms:
            after_ms = cluster.ends_ms + 3 * jitter_ms + 1
        follows = cluster.rebalance(after_ms, jitter_ms=jitter_ms)
        while follows and draw(st.booleans()):
            follows = cluster.rebalance(200, jitter_ms=jitter_ms)
    return cluster


OPEN = {
    "what the leader remembers of earlier generations is not known, and it matters here",
    "whether this leader waits for lost workers is not known yet, and it matters here",
    "the configuration changed in more ways than the record can tell apart",
}


def test_captured_generations_are_all_as_expected() -> None:
    """All ten generations of the captured Connect group are equal: none unknown, none different."""
    seen = [v for v in captured_versions("connect-wb") if v.members]
    assert [v.expected_status for v in seen] == ["equal"] * 10
    assert seen[6].topic_counts == {"c-mid": 2, "c-one": 1}  # revoked for balance
    assert seen[8].topic_counts == {"c-one": 1}  # revoked because deleted


@settings(max_examples=100, deadline=None)
@given(clusters())
def test_what_an_incremental_leader_does_is_expected(cluster: Cluster) -> None:
    """However workers and connectors come and go, what Kafka's algorithm gives is never called different."""
    for version, owners in zip(observe(cluster.records), cluster.owners, strict=True):
        assert same_owners(version.assignment, owners)
        if version.members and version.expected_status != "equal":
            assert version.expected_status == "unknown"
            assert version.expected_note in OPEN


@settings(max_examples=100, deadline=None)
@given(clusters((0, DELAY_MS)), st.data())
def test_what_was_not_seen_is_never_guessed(cluster: Cluster, data: st.DataObject) -> None:
    """Read from anywhere, or with a record missing, a right generation is equal or unknown."""
    records = cluster.records
    at = data.draw(st.integers(1, len(records) - 1))
    records = records[at:] if data.draw(st.booleans()) else records[:at] + records[at + 1 :]
    assert set(judged(records)) <= {"equal", "unknown"}


@settings(max_examples=100, deadline=None)
@given(clusters(), st.data())
def test_what_a_leader_should_not_have_done_is_different(cluster: Cluster, data: st.DataObject) -> None:
    """What is given to another worker or to nobody, or taken for no reason, shows; what was right is said."""
    statuses = {v.generation_id: v.expected_status for v in observe(cluster.records) if v.members}
    same_config = [
        g
        for g in range(2, len(cluster.told))
        if cluster.told[g].get("offset") == cluster.told[g - 1].get("offset")
        and all(statuses.get(before) == "equal" for before in (g - 1, g))
    ]
    assume(same_config)
    generation_id = data.draw(st.sampled_from(same_config))
    workers: dict[str, Sent] = cluster.told[generation_id]["workers"]
    choices = [
        (w, c, n, "give") for w, sent in workers.items() for c, ns in sent.assigned.items() for n in ns
    ]
    choices += [
        (w, c, n, "keep")
        for w, sent in workers.items()
        for c, ns in (sent.report or {}).items()
        for n in ns
        if n not in sent.revoked.get(c, ())
    ]
    assume(choices)
    worker, connector, number, kind = data.draw(st.sampled_from(choices))
    if kind == "keep":
        workers[worker].revoked.setdefault(connector, []).append(number)
    else:
        workers[worker].assigned[connector].remove(number)
        other = data.draw(st.sampled_from([w for w in workers if w != worker] or [None]))
        if other is not None and data.draw(st.booleans()):
            workers[other].assigned.setdefault(connector, []).append(number)
    version = observe(cluster.records[: generation_id + 1])[-1]
    assert version.expected_status == "different"
    assert version.expected is not None
    assert same_owners(version.expected, cluster.owners[generation_id])
    assert "no cause found in the record" in (version.expected_note or "")


def test_a_lost_workers_tasks_wait_and_are_then_dealt() -> None:
    """Holding them back is expected while the delay runs and not final; so is giving them out after it."""
    cluster = two_workers()
    cluster.leave("w1")
    cluster.rebalance()
    cluster.rebalance(100_000)
    cluster.rebalance(DELAY_MS - 100_000)
    *_, first, again, last = observe(cluster.records)
    assert [v.expected_status for v in (first, again, last)] == ["equal"] * 3
    assert [v.is_final for v in (first, again, last)] == [False, False, True]
    assert first.topic_counts == again.topic_counts == {"c": 4}
    assert last.assignment.keys() == {"w0"}


def test_giving_lost_tasks_out_too_early_is_different() -> None:
    """A leader that does not wait until its delay is over is found out by the records' times."""
    cluster = two_workers()
    cluster.leave("w1")
    cluster.rebalance()
    cluster.rebalance(DELAY_MS)
    cluster.told[-1].update(time_ms=cluster.now_ms - 60_000, began_ms=cluster.now_ms - 60_010)
    version = observe(cluster.records)[-1]
    assert version.expected_status == "different"
    assert version.expected == observe(cluster.records)[-2].assignment


@pytest.mark.parametrize("after_ms", [DELAY_MS - 5, DELAY_MS + 5])
def test_a_delay_that_ends_as_the_leader_decides_is_unknown_and_then_settled(after_ms: int) -> None:
    """Where the clocks leave open whether it was over nothing is judged; the record then shows how it was."""
    cluster = two_workers()
    cluster.leave("w1")
    cluster.rebalance(jitter_ms=20)
    cluster.rebalance(after_ms, jitter_ms=20)
    cluster.rebalance(max(cluster.ends_ms, 1000) + 100)
    *_, open_, settled = observe(cluster.records)
    assert open_.expected_status == "unknown"
    assert "within its clock's uncertainty" in (open_.expected_note or "")
    assert (settled.expected_status, settled.is_final) == ("equal", True)
    assert len(settled.assignment["w0"]["c"]) == 5


def test_a_leader_that_failed_to_sync_is_named_as_the_cause() -> None:
    """It forgets what it gave out, so it deals a lost worker's tasks at once; then it is followed on."""
    cluster = two_workers()
    cluster.join("w2")
    cluster.settle()
    cluster.leave("w2")
    cluster.rebalance()
    cluster.rebalance(DELAY_MS)
    cluster.settle()
    cluster.leave("w1")
    cluster.rebalance(leader_forgets=True)
    cluster.rebalance()
    *_, different, after = observe(cluster.records)
    assert different.expected_status == "different"
    assert "forgotten generation" in (different.expected_note or "")
    assert "sync of it must have failed" in (different.expected_note or "")
    assert different.expected is not None
    assert sum(map(len, different.expected["w0"].values())) == 3
    assert after.expected_status == "equal"


def test_first_sight_is_unknown_where_memory_matters_and_then_known() -> None:
    """What a leader gives to two workers may be lost or new; once all runs its memory is known."""
    cluster = two_workers()
    cluster.configure("d", 2)
    cluster.rebalance()
    cluster.leave("w1")
    cluster.rebalance()
    first, second = observe(cluster.records[-2:])
    assert (first.kind, first.expected_status, first.expected_note in OPEN) == ("baseline", "unknown", True)
    assert (second.expected_status, second.is_final) == ("equal", False)


def test_first_sight_is_known_where_every_memory_gives_the_same() -> None:
    """A group at rest is as expected whatever its leader remembers."""
    cluster = two_workers()
    cluster.rebalance()
    (version,) = observe(cluster.records[-1:])
    assert (version.kind, version.expected_status) == ("baseline", "equal")


def test_a_leader_who_was_there_before_us_is_judged_by_what_it_cannot_know() -> None:
    """Another led the generation before, so it believes in nothing lost: what is missing it deals at once."""
    cluster = two_workers()
    cluster.join("w2")
    cluster.settle()
    cluster.rebalance()
    cluster.leave("w0")
    cluster.rebalance()
    cluster.rebalance()
    _, after, last = observe(cluster.records[-3:])
    assert (after.leader_id, after.expected_status, after.is_final) == ("w1", "equal", True)
    assert last.expected_status == "equal"


def test_a_gap_makes_the_leader_unknown() -> None:
    """What happened in a generation that was not seen may matter to the next."""
    cluster = two_workers()
    cluster.leave("w1")
    cluster.rebalance()
    cluster.join("w2")
    cluster.rebalance()
    cluster.rebalance(DELAY_MS)
    cluster.rebalance()
    records = cluster.records
    gap, known = observe(records[:-3] + records[-2:])[-2:]
    assert (gap.kind, gap.expected_status) == ("gap", "unknown")
    assert known.expected_status == "equal"


def test_a_leader_without_delay_is_learned() -> None:
    """With a greatest delay of 0 lost tasks are dealt at once: first it is unknown whether it waits."""
    cluster = Cluster(max_delay_ms=0)
    cluster.configure("c", 4)
    for worker in ("w0", "w1", "w2"):
        cluster.join(worker)
    cluster.settle()
    cluster.leave("w1")
    cluster.rebalance()
    cluster.leave("w2")
    cluster.rebalance()
    *_, first, second = observe(cluster.records)
    assert first.expected_status == "unknown"
    assert "whether this leader waits" in (first.expected_note or "")
    assert second.expected_status == "equal"


def test_created_and_deleted_connectors_are_seen_in_what_is_handed_out() -> None:
    """What appears was created; what vanishes from everything without a delay was deleted."""
    cluster = two_workers()
    cluster.configure("d", 1)
    cluster.rebalance()
    cluster.configure("c", None)
    cluster.rebalance()
    cluster.rebalance()
    *_, created, deleted, after = observe(cluster.records)
    assert [v.expected_status for v in (created, deleted, after)] == ["equal"] * 3
    assert created.topic_counts == {"c": 4, "d": 1}
    assert deleted.topic_counts == after.topic_counts == {"d": 1}


def test_fewer_tasks_are_seen_too() -> None:
    """A connector that is configured with fewer tasks loses its last ones."""
    cluster = two_workers()
    cluster.configure("c", 2)
    cluster.rebalance()
    version = observe(cluster.records)[-1]
    assert (version.expected_status, version.topic_counts) == ("equal", {"c": 2})


def test_configuration_that_changes_while_tasks_wait_costs_no_false_alarm() -> None:
    """Whether what is held back was deleted shows at the delay's end: what was not is still dealt."""
    cluster = two_workers()
    cluster.configure("d", 0)
    cluster.leave("w1")
    cluster.rebalance()
    cluster.join("w2")
    cluster.rebalance()
    cluster.configure("c", 2)
    cluster.rebalance()
    cluster.rebalance(DELAY_MS)
    cluster.settle()
    *_, last = seen = observe(cluster.records)
    assert [v.expected_status for v in seen if v.members] == ["equal"] * len(cluster.told[1:])
    assert (last.is_final, last.topic_counts) == (True, {"c": 2, "d": 0})


def test_what_a_new_leader_leaves_running_though_deleted_costs_no_false_alarm() -> None:
    """It does not know of the deletion; when a worker with such a task goes too, nothing is different."""
    cluster = two_workers()
    cluster.configure("d", 3)
    cluster.join("w2")
    cluster.settle()
    cluster.configure("c", None)
    cluster.leave("w0")
    cluster.rebalance()
    cluster.leave("w2")
    cluster.rebalance()
    cluster.rebalance(DELAY_MS)
    cluster.rebalance()
    *_, after, waiting, dealt, last = observe(cluster.records)
    assert any("c" in owned for owned in after.assignment.values())
    assert not waiting.is_final
    statuses = [v.expected_status for v in (after, waiting, dealt, last)]
    assert "different" not in statuses
    assert (last.expected_status, last.topic_counts) == ("equal", {"d": 3})


def test_too_many_possible_configurations_are_not_guessed() -> None:
    """Where more could have been deleted than is tried, what fits none of those tried is unknown."""
    cluster = two_workers()
    for n in range(30):
        cluster.configure(f"d{n}", 1)
    cluster.settle()
    for n in range(0, 30, 2):
        cluster.configure(f"d{n}", None)
    for worker in ("w2", "w3"):
        cluster.join(worker)
    cluster.rebalance()
    version = observe(cluster.records)[-1]
    assert version.expected_status == "unknown"
    assert version.expected_note == "the configuration changed in more ways than the record can tell apart"


def test_configuration_that_the_leader_has_not_read_is_a_transition() -> None:
    """Its error sends all workers back to join again; nothing is final, and nothing is said of the leader."""
    cluster = two_workers()
    running = {w: lists_of(load.as_sent()) for w, load in cluster.running.items() if load is not None}
    sent = {w: Sent(report=lists) for w, lists in running.items()}
    told = {"workers": sent, "time_ms": cluster.now_ms + 5, "leader": "w0", "offset": 7, "error": 1}
    cluster.told.append(told)
    version = observe(cluster.records)[-1]
    assert (version.expected_status, version.is_final) == ("in_transition", False)
    assert "offset 7" in (version.expected_note or "")
    assert same_owners(version.assignment, cluster.owners[-1])


def eager(generation_id: int, assigned: Mapping[str, Mapping[str, list[int]]], *, offset: int = 1) -> Input:
    """Make the record of an eager generation."""
    sent = {w: Sent(report=None, assigned=dict(lists)) for w, lists in assigned.items()}
    return record(generation_id, sent, time_ms=START_MS + generation_id, offset=offset, protocol="default")


@settings(max_examples=50, deadline=None)
@given(
    config=st.dictionaries(st.sampled_from("abcd"), st.integers(0, 5), min_size=1),
    workers=st.lists(st.sampled_from(["w0", "w1", "w2"]), min_size=1, unique=True),
)
def test_eager_leaders_are_judged_from_first_sight(config: dict[str, int], workers: list[str]) -> None:
    """An eager assignor remembers nothing: what it gives follows from workers and configuration."""
    dealt = {w: lists_of(load) for w, load in assign_connect_eager(config, workers).items()}
    (version,) = observe([eager(5, dealt)])
    assert (version.kind, version.expected_status, version.rebalance_protocol) == (
        "baseline",
        "equal",
        "EAGER",
    )
    assert version.topic_counts == config


def test_eager_leader_that_leaves_a_task_out_is_different() -> None:
    """A number that is missing in between shows at once, the last one where the configuration is the same."""
    right = {"w0": {"c": [-1, 1]}, "w1": {"c": [0, 2]}}
    (between,) = observe([eager(5, {"w0": {"c": [-1, 1]}, "w1": {"c": [2]}})])
    _, last = observe([eager(5, right), eager(6, {"w0": {"c": [-1, 1]}, "w1": {"c": [0]}})])
    _, changed = observe([eager(5, right), eager(6, {"w0": {"c": [-1, 1]}, "w1": {"c": [0]}}, offset=2)])
    assert (between.expected_status, between.expected) == ("different", right)
    assert (last.expected_status, last.expected) == ("different", right)
    assert (changed.expected_status, changed.topic_counts) == ("equal", {"c": 2})


def as_event(protocol: str, assigned: Mapping[str, Mapping[str, list[int]]]) -> Input:
    """Make a generation_observed event of a Connect group."""
    members = [
        {"member_id": w, "client_id": w, "client_host": "h", "assigned": a} for w, a in assigned.items()
    ]
    body = {"generation_id": 3, "protocol_type": "connect", "protocol": protocol, "state": "Stable"}
    made = eager(3, {})
    return Input(
        type="generation_observed",
        cluster="c",
        event_time_ms=START_MS,
        event_id="e",
        position=made.position,
        body={**body, "members": members},
        raw=b"",
        group_id="g",
    )


def test_events_tell_enough_of_eager_leaders_only() -> None:
    """A generation_observed event holds what runs, which is all of an eager generation."""
    dealt = {"w0": {"c": [-1, 1]}, "w1": {"c": [0]}}
    (judged_,) = observe([as_event("default", dealt)])
    (unknown,) = observe([as_event("sessioned", dealt)])
    assert judged_.expected_status == "equal"
    assert (unknown.expected_status, unknown.topic_counts) == ("unknown", {})
    assert "does not say what the workers reported" in (unknown.expected_note or "")


@pytest.mark.parametrize(
    ("lists", "protocol", "note"),
    [
        ({"c": [-1, 2147483647]}, "sessioned", "more than 100000 tasks"),
        ({"c": [-7]}, "sessioned", "negative number"),
        ({"c": [-1]}, "later", "protocol 'later' of Connect is not known here"),
    ],
)
def test_strange_records_are_unknown(lists: dict[str, list[int]], protocol: str, note: str) -> None:
    """What cannot be Connect's is neither computed nor called different."""
    sent = {"w0": Sent(report={}, assigned=lists)}
    (version,) = observe([record(3, sent, time_ms=START_MS, protocol=protocol)])
    assert version.expected_status == "unknown"
    assert note in (version.expected_note or "")


@pytest.mark.parametrize(
    ("changed", "note"),
    [
        ({"leader": "w1"}, "names another leader than w0"),
        ({}, "got no assignment at all"),
    ],
)
def test_likely_causes_are_named(changed: dict[str, Any], note: str) -> None:
    """A worker with another leader's assignment, or with none, is named as the cause."""
    cluster = two_workers()
    cluster.leave("w1")
    cluster.join("w2")
    cluster.configure("c", None)
    cluster.configure("d", 2)
    cluster.rebalance()
    right = cluster.records[-1]
    assert right.body["value"]["leader"] == "w0"
    members = [dict(m) for m in right.body["value"]["members"]]
    raw = assignment("w1", cluster.offset, {}, {}, 0) if changed else b""
    members[0]["assignment"] = base64.b64encode(raw).decode()
    body = {**right.body, "value": {**right.body["value"], "members": members}}
    wrong = classic("g", right.position.offset, right.event_time_ms, body["value"])
    version = observe([*cluster.records[:-1], wrong])[-1]
    assert version.expected_status == "different"
    assert note in (version.expected_note or "")


def test_state_rows_keep_the_configuration() -> None:
    """Between generations the group is shown with the configuration that was last read off."""
    cluster = two_workers()
    _, groups = advance_all(cluster.records, view())
    group = groups["g"]
    assert group.describe(view()).topic_counts == {"c": 4}
    assert ObservedGroup.load(group.dump(), "c", "g").dump() == group.dump()
