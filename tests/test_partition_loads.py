"""Loads told by events reach the groups that go by them, and nobody else; a restart changes nothing."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from console.description import describe_groups, lay_out_description
from streaming.batches.batch import apply_shared, rows_to_log
from streaming.groups.rules import AlertRule, GroupRules
from streaming.groups.weights import weights_of
from streaming.job import Job
from streaming.model import Input, TopicState, TopicView
from streaming.tables.delta import LOG, Tables
from streaming.tables.schemas import SCHEMA_BY_TABLE
from tests.deployments import contents, make_settings
from tests.deployments import event as line
from tests.event_parsing import accepted
from tests.kill_harness import write_in_order
from tests.playing import Player, event, join, load, owned, tick, topic
from tests.test_advice import confirmations
from tests.test_set_aside import Fault
from tests.test_stream_plumbing import Deployment, group_row
from tests.test_touched_groups import spy_on_large

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streaming.tables.log import Tail

Row = dict[str, Any]
WEIGHTED = "optimal-weighted"
PIN = event("group_settings", 0.5, assignor=WEIGHTED)
LOADS = ("load_highest", "load_bound", "load_distance")


def settle(player: Player, seconds: float, group_id: str = "g") -> Row:
    """Let members confirm what they were told to give up until the move is over; the last version."""
    while not (last := player.versions(group_id)[-1])["is_final"]:
        told = [{**one, "group_id": group_id} for one in confirmations(last, seconds)]
        player.play(told)
        assert player.versions(group_id)[-1]["version"] > last["version"]
    return last


def led_by_weight(partitions: int = 4, members: str = "ab", **rules: Any) -> Player:
    """Play a group that goes by weight, settled, nothing told of loads yet."""
    player = Player(GroupRules(**rules))
    player.play([topic("t", partitions), PIN])
    for number, member in enumerate(members):
        player.play([join(member, 1 + number, "t")])
        settle(player, 1.5 + number)
    return player


def loads_of(row: Row) -> list[float]:
    """Give what the row says of loads."""
    return [row["balance"][name] for name in LOADS]


def test_what_is_too_heavy_moves_and_is_measured() -> None:
    """Two heavy partitions of one member part, in two generations; the numbers stand beside what moved."""
    player = led_by_weight()
    assert owned(player.latest()) == {"a": ["tp2", "tp3"], "b": ["tp0", "tp1"]}
    first, *more = player.play([load("t", 10, 5, 5, 1, 1)])
    assert (first["kind"], first["reason"], first["phase"], more) == ("rebalance", "partition_load t", 1, [])
    assert loads_of(first) == [None] * 3
    last = settle(player, 11)
    assert owned(last) == {"a": ["tp0", "tp3"], "b": ["tp1", "tp2"]}
    assert loads_of(last) == [6.0, pytest.approx(6), 0.0]
    assert (last["balance"]["moved"], last["balance"]["optimal_moves"]) == (2, None)
    assert (last["check_inputs"]["excess_spread"], last["check_inputs"]["excess_moves"]) == (None, None)


def test_little_moves_nothing_and_makes_no_version() -> None:
    """Within the hysteresis a load is only known: the group's row says how far it is from its bound now."""
    player = led_by_weight()
    versions = len(player.versions())
    (row,) = player.play([load("t", 10, 1.0, 1.1, 1.0, 1.0)])
    assert (row["kind"], row["deltas"], len(player.versions())) == ("state", [], versions)
    assert loads_of(row) == pytest.approx([2.1, 2.05, 0.02439])
    player.play([load("t", 20, 1.3, 1.2, 1.0, 1.0)])
    assert player.versions()[-1]["reason"] == "partition_load t"


def test_what_loads_come_to_counts_for_the_next_event() -> None:
    """Loads that moved nothing are not forgotten: who joins gets of the weight, not of the number."""
    player = led_by_weight(partitions=3, members="a")
    player.play([load("t", 10, 10, 1, 1)])
    assert len(player.versions()) == 1
    player.play([join("b", 20, "t")])
    assert sorted(map(len, owned(settle(player, 21)).values())) == [1, 2]


@pytest.mark.parametrize("most_moves", [1, 2, None])
def test_no_rebalance_takes_more_than_its_budget(most_moves: int | None) -> None:
    """With one move a load event takes one partition, in both generations; the next may take another."""
    player = led_by_weight(partitions=8)
    player.rules = replace(player.rules, weighted_most_moves=most_moves)
    heavy = owned(player.latest())["a"]
    moved = []
    for seconds in (10, 20, 30):
        told = [9.0 + seconds / 1000 if f"tp{p}" in heavy else 1.0 for p in range(8)]
        (row,) = player.play([load("t", seconds, *told)])
        last = settle(player, seconds + 5)
        moved.append(0 if row["kind"] == "state" else last["balance"]["moved"])
    assert moved == {1: [1, 1, 0], 2: [2, 0, 0], None: [2, 0, 0]}[most_moves]
    assert player.latest()["balance"]["load_distance"] <= 0.1


def test_a_load_told_in_the_middle_of_a_move_counts_when_it_ends() -> None:
    """Nobody is asked to give up more while others still do; the second phase goes by the new load."""
    player = led_by_weight()
    player.play([load("t", 10, 5, 5, 1, 1)])
    (row,) = player.play([load("t", 11, 1, 9, 9, 1)])
    assert (row["kind"], row["is_final"]) == ("state", False)
    last = settle(player, 12)
    assert loads_of(last)[0] == 10.0
    assert {"tp1", "tp2"} not in map(set, owned(last).values())


def test_a_held_group_is_not_tried_again_at_each_load() -> None:
    """Members that have no assignor in common wait for one of them, however often loads are told."""
    player = led_by_weight(members="a")
    player.play([event("group_settings", 5), join("a", 6, "t", protocols=["range"])])
    player.play([event("group_settings", 7, assignor=WEIGHTED)])
    player.play([event("group_settings", 8), join("b", 9, "t", protocols=["sticky"])])
    held = len(player.versions())
    player.play([load("t", 10, 5, 5, 1, 1)])
    assert (player.versions()[-1]["kind"], len(player.versions())) == ("held", held)


def test_members_can_choose_it_themselves() -> None:
    """A group whose members list it goes by loads without being pinned; static members take over as ever."""
    player = Player()
    more = {"protocols": [WEIGHTED, "range"]}
    player.play([topic("t", 4), load("t", 1, 6, 2, 2, 2)])
    player.play([join("a", 2, "t", group_instance_id="i", **more), join("b", 2, "t", **more)])
    assert settle(player, 3)["protocol"] == WEIGHTED
    before = owned(player.latest())
    player.play([join("c", 4, "t", group_instance_id="i", **more)])
    assert owned(player.latest()) == {"b": before["b"], "c": before["a"]}
    assert (player.latest()["balance"]["moved"], loads_of(player.latest())[0]) == (0, 6.0)


def test_the_newest_load_stands() -> None:
    """A repeat is a duplicate; what is older, or of a topic that is not there, is ignored, and says why."""
    player = led_by_weight()
    of_topics = len(player.topic_outcomes)
    player.play([load("t", 10, 1, 1), load("t", 10, 1, 1), load("t", 9, 5, 5), load("u", 10, 1)])
    player.play([load("t", 10, 1, 1), load("t", 10, 1, 2), topic("t", 0, 20), load("t", 30, 1)])
    assert [(o.outcome, o.reason) for o in player.topic_outcomes[of_topics:]] == [
        ("applied", None),
        ("duplicate", "this load of that time was applied before"),
        ("ignored", "a load told 1000 ms later is known"),
        ("ignored", "topic 'u' is not known to have partitions"),
        ("duplicate", "this load of that time was applied before"),
        ("applied", None),
        ("applied", None),
        ("ignored", "topic 't' is not known to have partitions"),
    ]


@pytest.mark.parametrize(
    ("loads", "weights"),
    [((1.0, 3.0), (1.0, 3.0, 2.0)), ((4.0, 2.0, 0.0, 9.0), (4.0, 2.0, 0.0)), ((), None)],
    ids=["grown", "shrunk", "untold"],
)
def test_a_partition_that_was_not_told_weighs_the_mean(
    loads: tuple[float, ...], weights: tuple[float, ...] | None
) -> None:
    """A load of a partition that is gone is left out; of a topic that nobody told each weighs one."""
    view = TopicView({"t": TopicState(topic="t", partition_count=3, loads=loads)})
    assert weights_of(view, ["t", "u"]) == ({} if weights is None else {"t": weights})


def test_a_topic_made_anew_weighs_nothing_known() -> None:
    """Growing keeps the loads; a topic that was gone, or has another id, is another topic."""
    ids = ("Hf_N4lx3QQOy1qprBqwfHw", "1MwqcC84Ttm2Smko8BixEg")
    player = led_by_weight()
    highest = []
    for change in ([load("t", 10, 9, 9, 9, 9)], [topic("t", 5, 20, topic_id=ids[0])],
                   [topic("t", 5, 30, topic_id=ids[1])], [load("t", 40, 9, 9, 9, 9, 9)],
                   [topic("t", 0, 50), topic("t", 4, 51)]):  # fmt: skip
        player.play(change)
        settle(player, change[0]["event_time"] / 1000)
        highest.append(player.latest()["balance"]["load_highest"])
    assert highest == [18.0, 27.0, 3.0, 27.0, 2.0]


def test_only_what_could_be_better_is_called_uneven() -> None:
    """One partition against five is no alarm where they weigh as much; what a budget leaves undone is."""
    numbers = {"max_over_mean": 1.1, "min_spread": 2, "max_over_best": 1.25}
    rule = AlertRule(alertname="AssignmentImbalanced", severity="warning", numbers=numbers)
    player = led_by_weight(6, alerts={rule.alertname: rule})
    player.play([load("t", 10, 5, 1, 1, 1, 1, 1)])
    settle(player, 11)
    by_member = sorted(owned(player.latest()).values(), key=len)
    assert (list(map(len, by_member)), player.alerts()) == ([1, 5], [])
    player.rules = replace(player.rules, weighted_most_moves=1)
    player.play([load("t", 20, *[50.0 if f"tp{p}" in by_member[1] else 1.0 for p in range(6)])])
    settle(player, 21)
    assert player.alerts() == [("AssignmentImbalanced", "firing")]
    alert = next(a for row in player.rows for a in row["alerts"])
    assert alert["value"] > 1.25
    assert "can be had" in alert["description"]


TOPICS = st.sampled_from(["t", "u"])
SECONDS = st.integers(3, 90)
EVENTS = st.one_of(
    st.builds(lambda m, s, t: join(m, s, *t), st.sampled_from("abc"), SECONDS, st.sets(TOPICS, min_size=1)),
    st.builds(lambda m, s: join(m, s, topics_pattern="[tu]"), st.sampled_from("abc"), SECONDS),
    st.builds(lambda m, s: event("member_left", s, m), st.sampled_from("abc"), SECONDS),
    st.builds(topic, TOPICS, st.integers(0, 5), SECONDS),
    st.builds(lambda t, s, ls: load(t, s, *ls), TOPICS, SECONDS, st.lists(st.integers(0, 9), max_size=5)),
    st.builds(lambda t, s, ls: load(t, s, *ls), TOPICS, SECONDS, st.lists(st.floats(0, 9), max_size=5)),
    st.builds(tick, SECONDS),
)
STORIES = st.lists(EVENTS, min_size=1, max_size=12)


def in_order(events: Iterable[Row]) -> list[Row]:
    """Order events by time."""
    return sorted(events, key=lambda item: item["event_time"])


@given(story=STORIES, other=st.sampled_from(["cooperative-sticky", "optimal", "range"]))
def test_other_groups_do_not_notice(story: list[Row], other: str) -> None:
    """With loads or without: the same rows, to the last byte, of every group that does not go by them."""
    told = []
    for skips in (False, True):
        player = Player()
        player.play([topic("t", 3), topic("u", 2), event("group_settings", 0.5, assignor=other)])
        for item in in_order(story):
            if not (skips and item["type"] == "partition_load"):
                player._line = item["event_time"]
                player.play([item])
        told.append(player.rows)
    assert told[0] == told[1]


@given(story=STORIES, cuts=st.sets(st.integers(1, 11)), delay_ms=st.sampled_from([0, 7000]))
def test_it_does_not_matter_how_input_is_cut(story: list[Row], cuts: set[int], delay_ms: int) -> None:
    """In one batch, one by one, or anyhow: the same versions, and the same state in the end."""
    ordered = [topic("t", 3), topic("u", 2), PIN, *in_order(story), tick(200)]
    found = []
    for ends in (range(len(ordered) + 1), [0, len(ordered)], sorted({0, *cuts, len(ordered)})):
        player = Player(GroupRules(rebalance_delay_ms=delay_ms, weighted_most_moves=2))
        for first, end in pairwise(ends):
            player.play(ordered[first:end])
        columns = ("version", "kind", "reason", "assignment", "deltas", "balance", "fingerprint", "state")
        found.append(
            ([[row[name] for name in columns] for row in player.versions()], player._states, player._topics)
        )
    assert found[0] == found[1] == found[2]


@given(seed=st.integers(0, 10**6), most_moves=st.integers(1, 3), hysteresis=st.sampled_from([0.0, 0.2]))
def test_a_move_keeps_to_its_plan(seed: int, most_moves: int, hysteresis: float) -> None:
    """Whatever loads are told, at most the budget moves, and the second phase gives what the first said."""
    rng = random.Random(seed)
    player = led_by_weight(8, "abc", weighted_most_moves=most_moves, weighted_hysteresis=hysteresis)
    for number in range(4):
        before = player.versions()[-1]
        (row,) = player.play([load("t", 10 * (number + 1), *[rng.choice((0, 1, 5, 20)) for _ in range(8)])])
        if row["kind"] == "state":
            assert player.versions()[-1] is before
            continue
        last = settle(player, 10 * (number + 1) + 5)
        assert last["version"] <= before["version"] + 2
        assert 0 < last["balance"]["moved"] <= most_moves
        targets = {(o["member_id"], o["topic"], p) for o in row["expected"] for p in o["partitions"]}
        assert {
            (o["member_id"], o["topic"], p) for o in last["assignment"] for p in o["partitions"]
        } == targets
        assert player._states["default", "g"] == last["state"] or player.latest()["kind"] == "state"


def test_a_group_that_was_set_aside_ends_where_it_would_have_been() -> None:
    """It hears loads while it waits, also those behind events of its own."""
    story = [
        load("t", 10, 5, 5, 1, 1),
        join("c", 11, "t"),
        load("t", 12, 9, 9, 1, 1),
        load("t", 13, 1, 9, 1, 9),
    ]
    ends = []
    for fails in (False, True):
        player = led_by_weight()
        for item in story:
            if fails and item["type"] == "member_joined":
                with Fault("g"):
                    player.play([item])
                assert orjson.loads(player.latest()["state"])["kind"] == "set_aside"
            else:
                player.play([item])
        player.play([tick(500)])
        settle(player, 501)
        ends.append([(r["version"], r["assignment"], r["fingerprint"]) for r in player.versions()])
    assert ends[0] == ends[1]


@pytest.mark.parametrize("refreshed", [False, True])
def test_only_groups_that_go_by_them_are_taken_up(tmp_path: Path, refreshed: bool) -> None:
    """A load touches readers that go by weight, and who is set aside, in the snapshot and behind it."""
    deployment = Deployment(tmp_path / "tables")
    deployment.commit(
        group_row("weighs", 1, protocol=WEIGHTED),
        group_row("weighs-others", 1, protocol=WEIGHTED, subscribed_topics=["carts"]),
        group_row("by-number", 1, protocol="optimal", next_timer=5),
        group_row("aside", 1, subscribed_topics=[], has_pattern=True, next_timer=0),
        group_row("pattern", 1, subscribed_topics=[], has_pattern=True, topics_patterns=["orders"]),
        group_row("elsewhere", 1, cluster="second", protocol=WEIGHTED),
    )
    if refreshed:
        deployment.snapshots.refresh()
    touched = deployment.tail.touched_groups({}, {}, (), {"default": {"orders"}})
    assert {group_id for _, group_id in touched} == {"weighs", "aside"}


@pytest.fixture
def tail(tmp_path: Path) -> Tail:
    """Give the tail of empty tables."""
    return Deployment(tmp_path / "tables").tail


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    batches=st.lists(st.lists(EVENTS, min_size=1, max_size=4), min_size=2, max_size=6),
    faulty=st.sets(st.integers(0, 5), max_size=2),
    delay_ms=st.sampled_from([0, 20_000]),
)
def test_whoever_has_something_to_say_was_taken_up(
    tail: Tail, batches: list[list[Row]], faulty: set[int], delay_ms: int
) -> None:
    """Set aside or not: of the groups that make a row though no event of theirs came, none is missing."""
    tail.drop()
    player, latest = Player(GroupRules(rebalance_delay_ms=delay_ms)), dict[str, Row]()
    batches = [
        [topic("t", 3), topic("u", 2), PIN, join("a", 1, "t"), join("b", 1, "t", group_id="h")],
        *batches,
    ]
    for number, batch in enumerate(batches):
        known = len(player.topic_outcomes)
        with Fault("g", "h") if number in faulty else nullcontext():
            rows = player.play(batch)
        applied = [o.event for o in player.topic_outcomes[known:] if o.outcome == "applied"]
        changed = {e.topic for e in applied if e.type == "topic_changed"}
        told = {e.topic for e in applied if e.type == "partition_load"}
        ticks = [item["event_time"] * 1000 for item in batch if item["type"] == "time_advanced"]
        touched = tail.touched_groups(
            {"default": changed} if changed else {},
            {"default": max(ticks)} if ticks else {},
            (),
            {"default": told} if told else {},
        )
        own = {item["group_id"] for item in batch if "group_id" in item}
        assert {row["group_id"] for row in rows} - own <= {group_id for _, group_id in touched}
        if not changed and not ticks:
            may_hear = {
                name
                for name, row in latest.items()
                if row["protocol"] == WEIGHTED or orjson.loads(row["state"])["kind"] == "set_aside"
            }
            assert {group_id for _, group_id in touched} <= may_hear
        latest |= {row["group_id"]: row for row in rows}
        tail.add(rows_to_log(rows, number + 1, 0))


def test_a_batch_tells_loads_from_changes() -> None:
    """What is ignored or comes again touches nobody; a topic has one row, whatever was told of it."""

    def told(number: int, item: Row) -> Input:
        parsed = accepted(item)
        return replace(parsed, position=replace(parsed.position, offset=number))

    events = [topic("t", 2), load("t", 1, 1, 2), load("t", 1, 1, 2), load("u", 1, 1), topic("v", 1)]
    shared = apply_shared([told(n, e) for n, e in enumerate(events, 1)], {}, {}, dedupe_window_ms=1000)
    (cluster,) = shared.changed_topics
    assert (shared.changed_topics[cluster], shared.told_loads[cluster]) == ({"t", "v"}, {"t"})
    assert [len(row["events"]) for row in shared.topic_rows] == [2, 1]
    assert shared.topic_rows[0]["topic_state"]["partition_loads"] == [1.0, 2.0]
    assert [loose.outcome for loose in shared.loose] == ["duplicate", "ignored"]


def without(type_: pa.DataType, names: Sequence[str]) -> pa.DataType:
    """Take fields out of a type, at any depth."""
    if pa.types.is_struct(type_):
        return pa.struct(
            [field.with_type(without(field.type, names)) for field in type_ if field.name not in names]
        )
    return pa.list_(without(type_.value_type, names)) if pa.types.is_list(type_) else type_


def test_tables_of_an_earlier_release_grow_the_columns(tmp_path: Path) -> None:
    """What they hold stays, and reads as not known; what is written from then on is all there."""
    new = (*LOADS, "partition_loads", "loads_time")
    for name, schema in SCHEMA_BY_TABLE.items():
        old = pa.schema(without(pa.struct(schema), new))
        rows = [{"topic": "t", "cluster": "default", "partition_count": 4}] if name == "topics" else []
        write_deltalake(str(tmp_path / name), pa.Table.from_pylist(rows, schema=old))
    deployment = Deployment(tmp_path)
    assert deployment.tail.topics["default"]["t"] == TopicState(topic="t", partition_count=4)
    deployment.commit(group_row("g", 1, balance=dict.fromkeys(LOADS, 1.5)))
    deployment.outbox.catch_up()
    (row,) = deployment.tables.read("balance", list(LOADS)).to_pylist()
    assert row == dict.fromkeys(LOADS, 1.5)


def test_people_read_how_far_a_group_is_from_its_bound(tmp_path: Path) -> None:
    """`describe` of one group says it in a line; of a group that goes by number, nothing."""
    deployment = Deployment(tmp_path / "tables")
    loads = dict(zip(LOADS, (6.3, 6.0, 0.05), strict=True))
    deployment.commit(group_row("weighs", 1, balance=loads), group_row("counts", 1))
    lines = {}
    for group_id in ("weighs", "counts"):
        description = describe_groups([str(tmp_path / "tables")], group_id, None)
        lines[group_id] = [
            part for part in lay_out_description(description, with_members=True) if part == str(part)
        ]
    assert lines == {"weighs": ["Highest load: 6.3, 5.0% above its bound"], "counts": []}


def stream_story() -> list[list[str]]:
    """Tell of groups by weight and by number, then of loads: even, uneven, again, of an unknown topic."""
    first = [line("topic_changed", 0, topic=name, partitions=4) for name in ("orders", "carts")]
    for group_id, topics, assignor in (
        ("heavy", ["orders"], WEIGHTED),
        ("carts", ["carts"], WEIGHTED),
        ("both", ["orders", "carts"], WEIGHTED),
        ("number", ["orders"], "optimal"),
        ("kafka", ["orders"], "cooperative-sticky"),
    ):
        first.append(line("group_settings", 0, group_id=group_id, assignor=assignor))
        first += [
            line("member_joined", 1 + n, group_id=group_id, member_id=f"m{n}", topics=topics)
            for n in range(2)
        ]

    def told(second: int, name: str, *loads: float) -> str:
        return line("partition_load", second, topic=name, loads=loads)

    uneven = told(120, "orders", 5.5, 5, 1, 1)
    return [
        first,
        [line("time_advanced", 90)],
        [told(110, "orders", 1, 1.01, 1, 1)],
        [uneven],
        [uneven, told(130, "gone", 1)],
        [line("time_advanced", 290)],
        [told(340, "carts", 1e-3, 2, 3, 4)],
        [told(350, "orders"), line("time_advanced", 600)],
    ]


@pytest.mark.spark
def test_both_paths_and_a_restart_end_alike(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loads survive a restart in the middle; driver and executors take up the same, and write the same."""
    taken = spy_on_large(monkeypatch)
    files = {f"{number}.jsonl": lines for number, lines in enumerate(stream_story())}
    found, groups = [], list[int]()
    for way, most, stops_at in (("driver", "5000", 4), ("executors", "0", 4), ("at-once", "5000", 0)):
        more = {"batch__local_max_records": most, "sources.events.max_files_per_trigger": "1"}
        job_settings = make_settings(tmp_path / way / "job", **more)
        for part in (list(files)[:stops_at], list(files)[stops_at:]):
            if part:
                write_in_order(tmp_path / way / "in", {name: files[name] for name in part})
                job = Job(spark, job_settings)
                job.run(once=True)
                groups += [timing["groups"] for timing in job.timings] if way == "driver" else []
        found.append(contents(job_settings))
    assert found[0] == found[1] == found[2]
    of_orders, of_carts = {"heavy", "both"}, {"carts", "both"}
    loads = {2: of_orders, 3: of_orders, 4: set(), 6: of_carts, 7: of_orders | of_carts}
    assert {number: taken[number] for number in loads} == loads
    assert groups[1:] == [len(names) for names in taken[1:]]
    tables = Tables(f"{tmp_path}/driver/job/tables")
    rows = tables.read(LOG, ["group_id", "kind", "reason", "balance"]).to_pylist()
    moved = {row["group_id"] for row in rows if (row["reason"] or "").startswith("partition_load")}
    assert moved == {"heavy", "both", "carts"}
    told = [
        (row["group_id"], [row["balance"][name] for name in LOADS]) for row in rows if row["kind"] == "state"
    ]
    assert all(None in numbers for group_id, numbers in told if group_id in ("number", "kafka"))
    balance = tables.read("balance", ["group_id", *LOADS]).to_pylist()
    assert {row["group_id"] for row in balance if row["load_bound"]} == {"heavy", "carts", "both"}
    (state,) = [row for row in tables.read("topics", ["topic", "partition_loads"]).to_pylist()
                if row["topic"] == "carts"]  # fmt: skip
    assert state["partition_loads"] == [1e-3, 2.0, 3.0, 4.0]
