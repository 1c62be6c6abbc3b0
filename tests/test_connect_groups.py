"""Connect groups that Counterpoise leads: KIP-415's stories as events, on event time."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st

import streaming.groups.computed.connect_group
from assignors.connect_lines import run_connect_case
from streaming.groups.deltas import apply_deltas
from streaming.groups.rules import AlertRule, GroupRules
from streaming.model import owned_pairs
from tests.playing import Player, at, event, join, moves, owned, tick, topic

if TYPE_CHECKING:
    import pytest

EAGER = GroupRules(connect_assignor="connect-eager")


def joined(worker: str, seconds: float, **more: Any) -> dict[str, Any]:
    """Make a worker_joined event."""
    return event("worker_joined", seconds, worker_id=worker, url=f"http://{worker}:8083", **more)


def left(worker: str, seconds: float) -> dict[str, Any]:
    """Make a worker_left event."""
    return event("worker_left", seconds, worker_id=worker)


def configured(connector: str, tasks: int, seconds: float) -> dict[str, Any]:
    """Make a connector_configured event."""
    return event("connector_configured", seconds, connector=connector, tasks=tasks)


def deleted(connector: str, seconds: float) -> dict[str, Any]:
    """Make a connector_deleted event."""
    return event("connector_deleted", seconds, connector=connector)


def stopped(worker: str, generation_id: int, seconds: float) -> dict[str, Any]:
    """Make the event by which a worker confirms that it has stopped what it gave up."""
    return event("partitions_revoked", seconds, worker, generation_id=generation_id)


def two_workers(rules: GroupRules | None = None) -> Player:
    """Two workers that have settled, at 3 s, on connector c with four tasks: generation 3."""
    player = Player(rules)
    player.play([configured("c", 4, 0), joined("w0", 1), joined("w1", 2), stopped("w0", 2, 3)])
    return player


def loads(row: dict[str, Any]) -> dict[str, list[str]]:
    """Show who runs what: "c" is the connector itself, "c-0" its first task."""
    return {
        worker: [thing.replace("p-1", "").replace("p", "-") for thing in things]
        for worker, things in owned(row).items()
    }


def owners(row: dict[str, Any]) -> dict[str, dict[str, list[int]]]:
    """Read a row's assignment as the model has it."""
    found: dict[str, dict[str, list[int]]] = {}
    for entry in row["assignment"]:
        found.setdefault(entry["member_id"], {})[entry["topic"]] = entry["partitions"]
    return found


def test_the_first_worker_runs_everything() -> None:
    """One worker, one generation; the row says it is a Connect group and where the worker is."""
    player = Player()
    player.play([configured("c", 2, 0), joined("w0", 1)])
    (row,) = player.versions()
    assert loads(row) == {"w0": ["c", "c-0", "c-1"]}
    assert (row["protocol_type"], row["protocol"], row["rebalance_protocol"]) == (
        "connect",
        "sessioned",
        "sessioned",
    )
    assert (row["generation_id"], row["phase"], row["is_final"], row["group_state"]) == (1, 0, True, "Stable")
    assert [m["client_host"] for m in row["members"]] == ["http://w0:8083"]
    assert [d["resource_type"] for d in row["deltas"]] == ["connector", "task", "task"]


def test_a_joining_worker_waits_until_others_have_stopped() -> None:
    """The first generation revokes, the second hands out, and each names giver and receiver."""
    first, middle, final = two_workers().versions()
    assert loads(first) == {"w0": ["c", "c-0", "c-1", "c-2", "c-3"]}
    assert moves(middle) == ["w0 -cp0", "w0 -cp1"]
    assert (middle["generation_id"], middle["phase"], middle["is_final"]) == (2, 1, False)
    assert (middle["group_state"], middle["expected_status"]) == ("PreparingRebalance", "in_transition")
    assert moves(final) == ["w1 +cp0", "w1 +cp1"]
    assert (final["generation_id"], final["phase"], final["is_final"]) == (3, 2, True)
    for row in (middle, final):
        assert {(d["from_member_id"], d["to_member_id"]) for d in row["deltas"]} == {("w0", "w1")}
    assert (final["balance"]["moved"], final["balance"]["kept"]) == (2, 3)


def test_who_never_confirms_is_not_waited_for_for_ever() -> None:
    """The second generation comes when revocation_timeout_ms is over, by event time."""
    player = Player(GroupRules(revocation_timeout_ms=30_000))
    player.play([configured("c", 2, 0), joined("w0", 1), joined("w1", 2), tick(100)])
    final = player.versions()[-1]
    assert (final["event_time"], final["is_final"]) == (at(32) * 1000, True)
    assert loads(final) == {"w0": ["c", "c-1"], "w1": ["c-0"]}


def test_a_worker_that_never_confirms_can_be_removed() -> None:
    """With the action "remove" it is gone, as in Kafka, and what it ran waits for it."""
    player = Player(GroupRules(revocation_timeout_action="remove"))
    player.play([configured("c", 2, 0), joined("w0", 1), joined("w1", 2), tick(100)])
    waiting = player.versions()[-1]
    assert loads(waiting) == {"w1": ["c-0"]}
    assert {d["change"] for d in waiting["deltas"] if d["member_id"] == "w0"} == {"lost"}
    player.play([tick(400)])
    assert loads(player.versions()[-1]) == {"w1": ["c", "c-0", "c-1"]}


def test_a_lost_workers_tasks_wait_and_then_go_to_others() -> None:
    """Nobody runs them for scheduled_rebalance_max_delay_ms of event time; then all are dealt."""
    player = two_workers()
    player.play([left("w1", 10), tick(309)])
    waiting = player.versions()[-1]
    assert moves(waiting) == ["w1 xcp0", "w1 xcp1"]
    assert loads(waiting) == {"w0": ["c", "c-2", "c-3"]}
    assert (waiting["is_final"], waiting["group_state"], waiting["balance"]["unowned"]) == (
        False,
        "Stable",
        2,
    )
    assert {d["to_member_id"] for d in waiting["deltas"]} == {"w0"}
    player.play([tick(311)])
    final = player.versions()[-1]
    assert (final["event_time"], final["reason"]) == (at(310) * 1000, "the scheduled rebalance is due")
    assert loads(final) == {"w0": ["c", "c-0", "c-1", "c-2", "c-3"]}
    assert (final["generation_id"], final["is_final"], final["balance"]["unowned"]) == (5, True, 0)


def test_a_worker_that_returns_in_time_gets_its_own_back() -> None:
    """Coming back makes a generation and moves nothing; the end of the wait gives it what it ran."""
    player = two_workers()
    before = player.versions()[-1]
    player.play([left("w1", 10), joined("w1", 100), tick(400)])
    _, waiting, final = player.versions()[-3:]
    assert (waiting["generation_id"], moves(waiting), loads(waiting)["w1"]) == (5, [], [])
    assert loads(final) == loads(before)
    assert (final["balance"]["moved"], final["balance"]["kept"]) == (0, 5)


def test_a_worker_that_returns_too_late_gets_a_fair_share() -> None:
    """Its tasks run elsewhere by then: it is a newcomer like any other."""
    player = two_workers()
    player.play([left("w1", 10), joined("w1", 320), stopped("w0", 6, 321)])
    scheduled, revoking, final = player.versions()[-3:]
    assert scheduled["event_time"] == at(310) * 1000
    assert all(move.startswith("w0 -") for move in moves(revoking))
    assert sorted(map(len, loads(final).values())) == [2, 3]


def test_rolling_restart_moves_nothing() -> None:
    """Each worker bounced in turn, within the delay, ends with exactly what it had."""
    player = Player()
    player.play([configured("c", 9, 0), joined("w0", 1), joined("w1", 2), tick(200), joined("w2", 201)])
    player.play([tick(1000)])
    before = player.versions()[-1]
    bounces = []
    for i, worker in enumerate(("w0", "w1", "w2")):
        start = 2000 + 400 * i
        bounces += [left(worker, start), joined(worker, start + 20), tick(start + 350)]
    player.play(bounces)
    after = player.versions()[-1]
    assert loads(after) == loads(before)
    of_bounces = [row for row in player.versions() if row["version"] > before["version"]]
    assert not [move for row in of_bounces for move in moves(row) if " -" in move]


def test_without_a_delay_lost_tasks_move_at_once() -> None:
    """A greatest delay of 0 switches the wait off."""
    player = two_workers(GroupRules(scheduled_rebalance_max_delay_ms=0))
    player.play([left("w1", 10)])
    row = player.versions()[-1]
    assert (row["is_final"], loads(row)) == (True, {"w0": ["c", "c-0", "c-1", "c-2", "c-3"]})


def test_a_wait_that_is_switched_off_ends_with_one_generation() -> None:
    """A greatest delay of 0, set while a delay runs, leaves no delay behind when it is over."""
    player = two_workers()
    player.play([left("w1", 10)])
    player.rules = GroupRules(scheduled_rebalance_max_delay_ms=0)
    player.play([tick(400)])
    (*_, waiting, final) = player.versions()
    assert (waiting["generation_id"], final["generation_id"]) == (4, 5)
    assert (final["is_final"], final["next_timer"]) == (True, None)


def test_the_leaders_clock_never_goes_back() -> None:
    """A loss told late is waited for from the latest time that the group has seen."""
    player = two_workers()
    player.play([configured("d", 1, 1000), left("w1", 10)])
    assert player.versions()[-1]["event_time"] == at(10) * 1000
    assert player.versions()[-1]["next_timer"] == at(1300) * 1000


def test_the_last_worker_takes_the_leaders_memory_with_it() -> None:
    """When everybody has gone, whoever comes first starts everything without a wait."""
    player = two_workers()
    player.play([left("w1", 10), left("w0", 20), joined("w1", 30)])
    empty, fresh = player.versions()[-2:]
    assert (empty["group_state"], empty["generation_id"], empty["members"]) == ("Empty", 5, [])
    assert (fresh["generation_id"], fresh["is_final"]) == (6, True)
    assert len(loads(fresh)["w1"]) == 5


def test_who_comes_first_after_all_have_gone_waits_for_nobody() -> None:
    """Not even when they went, as one, in the middle of a move."""
    player = Player(GroupRules(rebalance_delay_ms=1000))
    player.play([configured("c", 2, 0), joined("w0", 1), joined("w1", 3), left("w0", 5), left("w1", 5.5)])
    player.play([joined("w1", 7), tick(9)])
    empty, fresh = player.versions()[-2:]
    assert empty["group_state"] == "Empty"
    assert (fresh["is_final"], fresh["phase"], loads(fresh)) == (True, 0, {"w1": ["c", "c-0", "c-1"]})


def test_configuration_changes() -> None:
    """New tasks start at once; those taken out of the configuration are revoked, in two generations."""
    player = two_workers()
    player.play([configured("d", 2, 10)])
    grown = player.versions()[-1]
    assert (grown["is_final"], grown["phase"]) == (True, 0)
    assert {move.split()[1][0] for move in moves(grown)} == {"+"}
    player.play([configured("d", 2, 11)])
    assert player.latest()["events"][0]["reason"] == "the connector has that many tasks already"
    player.play([configured("c", 3, 12)])
    shrunk = player.versions()[-1]
    assert [(d["change"], d["topic"], d["partition"]) for d in shrunk["deltas"]] == [("revoked", "c", 3)]
    assert not shrunk["is_final"]
    player.play([deleted("c", 13), deleted("c", 14), tick(200)])
    final = player.versions()[-1]
    assert final["is_final"]
    assert sorted(thing for things in loads(final).values() for thing in things) == ["d", "d-0", "d-1"]
    outcomes = [e for row in player.rows for e in row["events"] if e["type"] == "connector_deleted"]
    assert [e["outcome"] for e in outcomes] == ["applied", "ignored"]
    assert outcomes[1]["reason"] == "connector 'c' is not configured"


def test_what_comes_while_workers_stop_joins_the_rebalance_under_way() -> None:
    """It makes a version but no generation, and nothing is given out before all have stopped."""
    player = Player()
    player.play([configured("c", 6, 0), joined("w0", 1), joined("w1", 2), joined("w2", 3)])
    asked, waiting = player.versions()[-2:]
    assert (waiting["generation_id"], waiting["version"]) == (asked["generation_id"], asked["version"] + 1)
    assert (moves(waiting), waiting["is_final"]) == ([], False)
    player.play([stopped("w0", 2, 4)])
    assert loads(player.versions()[-1])["w2"]


def test_consecutive_revocations_back_off() -> None:
    """The second rebalance in a row that would revoke is put off by 40 ms, as Kafka does."""
    player = Player()
    player.play([configured("c", 12, 0), joined("w0", 1), joined("w1", 2), joined("w2", 2.5)])
    player.play([stopped("w0", 2, 3)])
    put_off = player.versions()[-1]
    assert (put_off["is_final"], put_off["group_state"]) == (False, "Stable")
    assert put_off["next_timer"] == (at(3) + 40) * 1000
    player.play([tick(4)])
    revoking = player.versions()[-1]
    assert revoking["event_time"] == (at(3) + 40) * 1000
    assert {d["change"] for d in revoking["deltas"]} == {"revoked"}


def test_only_the_open_revocation_can_be_confirmed() -> None:
    """A confirmation of another generation, of nothing or by a stranger is ignored, with the reason."""
    player = Player()
    player.play([configured("c", 4, 0), joined("w0", 1), joined("w1", 2)])
    player.play([stopped("w0", 1, 3), stopped("w1", 2, 3), stopped("w9", 2, 3)])
    assert [(e["outcome"], e["reason"]) for e in player.latest()["events"]] == [
        ("ignored", "generation_id is 1; the open revocation is of 2"),
        ("ignored", "worker 'w1' has no open revocation"),
        ("ignored", "worker 'w9' is not in the group"),
    ]


def test_eager_stops_everything_and_then_deals() -> None:
    """Every change takes all from all; only the second phase has a new generation."""
    player = Player(EAGER)
    player.play([configured("c", 3, 0), joined("w0", 1), joined("w1", 2), stopped("w0", 1, 3)])
    first, middle, final = player.versions()
    assert (first["protocol"], first["rebalance_protocol"]) == ("default", "EAGER")
    assert (middle["generation_id"], middle["phase"], loads(middle)) == (1, 1, {"w0": [], "w1": []})
    assert (final["generation_id"], final["phase"], final["is_final"]) == (2, 2, True)
    assert loads(final) == {"w0": ["c", "c-1"], "w1": ["c-0", "c-2"]}
    player.play([configured("d", 0, 4)])
    assert len(moves(player.versions()[-1])) == 4
    player.play([stopped("w0", 2, 5)])
    assert player.latest()["events"][0]["reason"] == "waiting for w1"
    player.play([stopped("w1", 2, 6)])
    assert loads(player.versions()[-1]) == {"w0": ["c", "c-0", "c-2"], "w1": ["c-1", "d"]}


def test_settings_pin_an_assignor() -> None:
    """group_settings overrides the setting, also before the first worker; others' names are refused."""
    player = Player()
    player.play([event("group_settings", 0, assignor="connect-eager"), joined("w0", 1)])
    assert player.versions()[-1]["protocol"] == "default"
    player.play([event("group_settings", 2, assignor="range")])
    assert player.latest()["events"][0]["reason"] == (
        "unknown assignor 'range' of a Connect group; known: 'connect-eager', 'connect-incremental'"
    )
    player.play([event("group_settings", 3, assignor="connect-incremental")])
    assert player.versions()[-1]["protocol"] == "sessioned"
    player.play([event("group_settings", 4)])
    assert player.latest()["kind"] == "state"


def test_the_first_event_that_applies_decides_what_a_group_is() -> None:
    """Settings and events that did not apply leave it open; after that the other kind's are ignored."""
    player = Player()
    player.play([topic("t0", 2), event("group_settings", 0, assignor="range"), event("member_left", 0, "C0")])
    player.play([joined("w0", 1), join("C0", 2, "t0")])
    assert player.versions()[-1]["protocol_type"] == "connect"
    reasons = [e["reason"] for e in player.latest()["events"]]
    assert reasons == ["member_joined does not apply to a computed Connect group"]
    player.play([join("C0", 3, "t0", group_id="h"), joined("w0", 4, group_id="h")])
    assert player.latest("h")["events"][0]["outcome"] == "ignored"
    assert player.versions("h")[-1]["protocol_type"] == "consumer"


def test_a_worker_that_is_there_already_changes_only_its_url() -> None:
    """No generation; the members show the new address."""
    player = two_workers()
    again = {**joined("w1", 10), "url": "http://elsewhere:8083"}
    player.play([again])
    row = player.latest()
    assert (row["kind"], row["events"][0]["outcome"]) == ("state", "applied")
    assert [m["client_host"] for m in row["members"]] == ["http://w0:8083", "http://elsewhere:8083"]


def test_an_event_id_is_applied_once() -> None:
    """A repeated event is a duplicate, as in any computed group."""
    player = two_workers()
    player.play([left("w1", 10), joined("w1", 11), left("w1", 10)])
    assert [e["outcome"] for e in player.latest()["events"]] == ["duplicate"]
    assert list(loads(player.latest())) == ["w0", "w1"]


def test_deleted_group_starts_anew() -> None:
    """group_deleted forgets workers and connectors; the same name is then another incarnation."""
    player = two_workers()
    player.play([event("group_deleted", 10), joined("w9", 11), event("group_deleted", 12)])
    gone, fresh = player.versions()[-3:-1]
    assert (gone["kind"], gone["group_state"], {d["change"] for d in gone["deltas"]}) == (
        "deleted",
        "Dead",
        {"lost"},
    )
    assert (fresh["incarnation"], fresh["generation_id"], loads(fresh)) == (2, 1, {"w9": []})
    player.play([event("group_deleted", 13)])
    assert player.latest()["events"][0]["outcome"] == "ignored"


def test_delay_folds_events_close_together() -> None:
    """rebalance_delay_ms makes one generation of joins that lie close in event time."""
    player = Player(GroupRules(rebalance_delay_ms=3000))
    player.play([configured("c", 2, 0), joined("w0", 1), joined("w1", 2), joined("w2", 3), tick(10)])
    (row,) = player.versions()
    assert row["event_time"] == at(4) * 1000
    assert loads(row) == {"w0": ["c", "c-0"], "w1": ["c-1"], "w2": []}


def test_held_generation_keeps_the_old_one_and_the_next_event_computes_again() -> None:
    """What a critical check refuses is not emitted, the leader's memory included."""
    rules = GroupRules(alerts={"GenerationHeld": AlertRule(alertname="GenerationHeld", severity="critical")})
    player, free = two_workers(rules), two_workers(rules)
    before = player.versions()[-1]
    player.play([left("w1", 10)], holds=[4])
    held = player.versions()[-1]
    assert (held["kind"], held["generation_id"], held["deltas"]) == ("held", 3, [])
    assert held["assignment"] == before["assignment"]
    assert held["next_timer"] is None
    player.play([configured("c", 4, 10)])
    free.play([left("w1", 10)])
    assert loads(player.versions()[-1]) == loads(free.versions()[-1])
    assert player.versions()[-1]["next_timer"] == free.versions()[-1]["next_timer"]
    assert player.alerts() == [("GenerationHeld", "firing"), ("GenerationHeld", "resolved")]


def test_a_scheduled_rebalance_that_is_held_does_not_fire_for_ever() -> None:
    """The wait is over once; after a refusal the next event computes again."""
    player = two_workers()
    player.play([left("w1", 10)])
    player.play([tick(400)], holds=[5])
    assert [row["kind"] for row in player.versions()[4:]] == ["held"]
    player.play([joined("w2", 401)])
    assert len(loads(player.versions()[-1])) == 2


def test_an_assignor_that_fails_costs_only_a_held_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its error becomes a held row and an alert, never an end of the stream."""

    def fail(*_: Any) -> dict[str, Any]:
        raise KeyError("w7")

    rules = GroupRules(alerts={"AssignorFailed": AlertRule(alertname="AssignorFailed", severity="critical")})
    player = two_workers(rules)
    with monkeypatch.context() as patch:
        patch.setattr(streaming.groups.computed.connect_group, "plan_round", fail)
        player.play([left("w1", 10)])
    row = player.versions()[-1]
    assert row["kind"] == "held"
    assert "assignor 'connect-incremental' raised KeyError: 'w7'" in row["alerts"][0]["description"]
    player.play([joined("w2", 11)])
    assert player.versions()[-1]["kind"] == "rebalance"


def test_the_published_comparison() -> None:
    """900 tasks of 90 connectors: eager stops all when a worker comes, incremental only its share."""
    connectors = [configured(f"c{i:02d}", 10, 0) for i in range(90)]
    changed = {}
    for rules in (EAGER, GroupRules()):
        player = Player(rules)
        player.play([*connectors, joined("w0", 1), joined("w1", 2), tick(100), joined("w2", 101), tick(200)])
        changed[rules.connect_assignor] = sum(
            row["balance"]["revoked"] for row in player.versions() if row["event_time"] >= at(101) * 1000
        )
        assert sorted(map(len, loads(player.versions()[-1]).values())) == [330, 330, 330]
    assert changed == {"connect-eager": 990, "connect-incremental": 330}


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32))
def test_generations_are_those_of_the_assignor_alone(seed: int) -> None:
    """What the assignor answers, called round by round at the times of the generations, is what they hold."""
    rng = random.Random(seed)
    counts = {f"{rng.choice(['c', 'sink-', 'é'])}{i}": rng.randint(0, 5) for i in range(rng.randint(1, 5))}
    story = [configured(connector, tasks, 0) for connector, tasks in counts.items()]
    workers: list[str] = []
    for i in range(1, 12):
        worker = f"w{rng.randint(0, 4)}"
        if worker not in workers:
            workers.append(worker)
            story.append(joined(worker, 20 * i))
        elif len(workers) > 1:
            workers.remove(worker)
            story.append(left(worker, 20 * i))
    # Nobody confirms: what is revoked is given on ten seconds later, before the next event.
    player = Player(GroupRules(revocation_timeout_ms=10_000, scheduled_rebalance_max_delay_ms=45_000))
    player.play([*story, tick(1000)])
    versions = player.versions()
    rounds = [
        {
            "time": row["event_time"] // 1000,
            "connectors": counts,
            "workers": [m["member_id"] for m in row["members"]],
        }
        for row in versions
    ]
    case = {"assignor": "connect-incremental", "max_delay": 45_000, "rounds": rounds}
    for row, answer in zip(versions, run_connect_case(case)["rounds"], strict=True):
        for worker in owned(row):
            told = {(c, -1) for c in answer[worker]["all_connectors"]}
            told |= {(c, n) for c, n in answer[worker]["all_tasks"]}
            assert {(t, p) for m, t, p in owned_pairs(owners(row)) if m == worker} == told
        assert row["generation_id"] == answer["generation"]


@st.composite
def stories(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Draw a story of one Connect group: workers come and go, connectors change, some confirm."""
    rng = random.Random(draw(st.integers(0, 2**32)))
    story: list[dict[str, Any]] = [configured("c", rng.randint(0, 6), 0), joined("w0", 1)]
    now, generation = 1.0, 1
    for _ in range(draw(st.integers(1, 14))):
        now += rng.choice([-1, 0.02, 0.5, 5, 40, 90, 200])
        worker, connector = f"w{rng.randint(0, 3)}", rng.choice("cde")
        story.append(
            rng.choice(
                [
                    joined(worker, now),
                    joined(worker, now),
                    left(worker, now),
                    configured(connector, rng.randint(0, 6), now),
                    deleted(connector, now),
                    stopped(worker, generation, now),
                    stopped(worker, generation, now),
                    tick(now),
                    topic("c", rng.randint(0, 7), now),
                    event(
                        "group_settings", now, assignor=rng.choice(["connect-eager", "connect-incremental"])
                    ),
                    event("group_deleted", now),
                ]
            )
        )
        generation = rng.randint(generation, generation + 2)
    return story


rules_drawn = st.sampled_from(
    [
        GroupRules(),
        EAGER,
        GroupRules(revocation_timeout_action="remove", scheduled_rebalance_max_delay_ms=60_000),
        GroupRules(rebalance_delay_ms=3000, scheduled_rebalance_max_delay_ms=0),
    ]
)


@settings(max_examples=60, deadline=None)
@given(stories(), rules_drawn, st.integers(1, 5))
def test_versions_do_not_depend_on_how_the_source_is_cut(
    story: list[dict[str, Any]], rules: GroupRules, size: int
) -> None:
    """One ordered source gives the same versions a line at a time, in lumps, and all at once."""
    whole, cut = Player(rules), Player(rules)
    whole.play(story)
    for start in range(0, len(story), size):
        cut.play(story[start : start + size])
    plain = [[{k: v for k, v in row.items() if k != "ordinal"} for row in p.versions()] for p in (whole, cut)]
    assert plain[0] == plain[1]


@settings(max_examples=100, deadline=None)
@given(stories(), rules_drawn)
def test_nothing_runs_twice_and_nothing_is_lost_for_good(
    story: list[dict[str, Any]], rules: GroupRules
) -> None:
    """Deltas lead from each version to the next; when all waits are over, everything configured runs once."""
    player = Player(rules)
    player.play([*story, tick(100_000)])
    before: dict[str, dict[str, list[int]]] = {}
    earlier: dict[str, Any] | None = None
    for row in player.versions():
        after = set(owned_pairs(owners(row)))
        assert len({(t, p) for _, t, p in after}) == len(after), row["reason"]
        assert apply_deltas(before, row["deltas"]) == after
        if row["is_final"] and row["members"]:
            assert row["balance"]["unowned"] == 0, row["reason"]
        if earlier is not None and earlier["incarnation"] == row["incarnation"]:
            assert 0 <= row["generation_id"] - earlier["generation_id"] <= 1
            if earlier["generation_id"] == row["generation_id"]:
                assert "assigned" not in {d["change"] for d in row["deltas"]}
        before, earlier = owners(row), row
    last = player.latest()
    assert (last["is_final"], last["next_timer"]) == (True, None)


@settings(max_examples=40, deadline=None)
@given(stories())
def test_every_event_is_accounted_for_once(story: list[dict[str, Any]]) -> None:
    """Applied, duplicate and ignored events together are the events of the group that were read."""
    player = Player()
    player.play(story)
    told = [e["event_id"] for row in player.rows for e in row["events"]]
    assert len(told) == len([e for e in story if "group_id" in e])
