"""A topic event takes up the groups that hear of it, by name or by a pattern that matches, and no others."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa
import pytest
import re2
from deltalake import DeltaTable, write_deltalake
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from streaming.batches.batch import rows_to_log
from streaming.batches.executors import TOUCHED, shard_of, toucher
from streaming.batches.large import LargeBatch
from streaming.events.patterns import ChangedTopics, compiled, matches
from streaming.groups.computed.group import ComputedGroup
from streaming.groups.observed.group import ObservedGroup
from streaming.groups.rules import GroupRules
from streaming.job import Job
from streaming.tables.delta import LOG, Tables
from tests.deployments import contents, event, make_settings, write_lines
from tests.observed_inputs import captured_inputs, record_input
from tests.playing import Player, join, tick, topic
from tests.playing import event as group_event
from tests.test_observed_server_groups import JOINED, new_member, raw_record, replace_offset
from tests.test_set_aside import Fault
from tests.test_stream_plumbing import Deployment, group_row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark.sql import DataFrame, SparkSession

    from streaming.tables.log import Tail

Row = dict[str, Any]
NAMES = ["orders", "orders-eu", "order", "old-orders", "a", "aa", "ab", "b", "A", "ä", "{", "a{"]
PIECES = st.sampled_from(["orders", "-eu", "old-", "a", "b", "ä", ".", "*", "?", "+", "|", "^", "$", "(?i)",
                          "(", ")", "[ab]", "\\.", "\\Qa\\E", "{", "{0}", "{1,2}", ".*"])  # fmt: skip


@settings(max_examples=500, deadline=None)
@example(pattern="a*{", name="{")
@example(pattern="ab{0}", name="a")
@example(pattern="ab(?i)?", name="a")
@example(pattern="ab\\Q\\E*", name="a")
@example(pattern="a|b-.*", name="a")
@given(pattern=st.lists(PIECES, min_size=1, max_size=6).map("".join), name=st.sampled_from(NAMES))
def test_a_pattern_that_is_not_compiled_would_not_have_matched(pattern: str, name: str) -> None:
    """What is said by its literal text alone is what RE2 says of the whole name."""
    options = re2.Options()
    options.log_errors = False
    try:
        whole = re2.compile(pattern, options=options)
    except re2.error:
        assume(False)
    assert matches(pattern, name) == (whole.fullmatch(name) is not None)


def test_a_pattern_is_compiled_once_and_only_where_needed() -> None:
    """Many groups with one pattern cost one; a pattern whose text the names do not have costs none."""
    compiled.cache_clear()
    changed = ChangedTopics(["orders-eu", "orders-us"])
    assert [changed.match_any(["orders-.*"]) for _ in range(9)] == [True] * 9
    assert not any(changed.match_any([f".*-{number}.*"]) for number in range(9))
    assert compiled.cache_info().misses == 1
    assert compiled.cache_info().maxsize is not None


def test_a_pattern_that_cannot_be_compiled_is_heard_and_stops_nothing() -> None:
    """The group that has it fails by itself, and is set aside; finding the others goes on."""
    assert ChangedTopics(["orders"]).match_any(["(?=orders)"])


class TestTail:
    """What the driver finds in the snapshot and behind it."""

    @pytest.mark.parametrize("refreshed", [False, True])
    def test_patterns_are_matched(self, tmp_path: Path, refreshed: bool) -> None:
        """One that matches, one that does not, several, none, and those that are not known."""
        deployment = Deployment(tmp_path / "tables")
        none_by_name = {"subscribed_topics": [], "has_pattern": True}
        deployment.commit(
            group_row("by-name", 1, topics_patterns=[]),
            group_row("matches", 1, **none_by_name, topics_patterns=["order.*"]),
            group_row("in-part", 1, **none_by_name, topics_patterns=["order", "rders"]),
            group_row("one-of-two", 1, **none_by_name, topics_patterns=["logs", "orders|carts"]),
            group_row("observed", 1, **none_by_name, topics_patterns=[], group_kind="observed"),
            group_row("not-known", 1, **none_by_name),
            group_row("no-pattern", 1, subscribed_topics=["carts"]),
            group_row("elsewhere", 1, cluster="second", **none_by_name, topics_patterns=["orders"]),
        )
        if refreshed:
            deployment.snapshots.refresh()

        def found(**changed: set[str]) -> set[str]:
            return {group_id for _, group_id in deployment.tail.touched_groups(changed, {}, ())}

        assert found(default={"orders"}) == {"by-name", "matches", "one-of-two", "not-known"}
        assert found(default={"carts", "x"}) == {"one-of-two", "not-known", "no-pattern"}
        assert found(default={"x"}, second={"orders"}) == {"not-known", "elsewhere"}

    def test_tables_of_an_earlier_release_are_heard_of_until_they_tell(self, tmp_path: Path) -> None:
        """Where the column is missing each pattern counts; a group's next row makes it precise."""
        root = tmp_path / "tables"
        old = Deployment(root)
        groups = ("a", "b", "c")
        old.commit(*(group_row(name, 1, subscribed_topics=[], has_pattern=True) for name in groups))
        old.snapshots.refresh()
        for name in (LOG, "groups"):
            forget_column(root / name)
        deployment = Deployment(root)

        def found() -> set[str]:
            touched = deployment.tail.touched_groups({"default": {"orders"}}, {}, ())
            return {group_id for _, group_id in touched}

        assert found() == {"a", "b", "c"}
        again = {"subscribed_topics": [], "has_pattern": True}
        deployment.commit(
            group_row("a", 2, **again, topics_patterns=["logs-.*"]),
            group_row("b", 2, **again, topics_patterns=["o.*"]),
        )
        assert found() == {"b", "c"}
        deployment.snapshots.refresh()
        assert found() == {"b", "c"}
        deployment.restart()
        assert found() == {"b", "c"}


def forget_column(table: Path) -> None:
    """Make of a table what a release before `topics_patterns` wrote; its transactions stay."""
    handle = DeltaTable(table)
    rows = pa.table(handle.to_pyarrow_table())
    # What stands behind it came later still.
    rows = rows.select(rows.column_names[: rows.column_names.index("topics_patterns")])
    write_deltalake(handle, rows, mode="overwrite", schema_mode="overwrite")
    assert "topics_patterns" not in DeltaTable(table).schema().to_arrow().names


GROUPS, MEMBERS = st.sampled_from(["g", "h", "k"]), st.sampled_from(["m", "n"])
TOPICS = st.sampled_from(["t", "tt", "u", "v"])
PATTERNS = st.sampled_from(["t+", "t", "u|v", "[^t]", ".*", "w.*"])
SECONDS = st.integers(0, 90)
EVENTS = st.one_of(
    st.builds(lambda m, s, g, t: join(m, s, t, group_id=g), MEMBERS, SECONDS, GROUPS, TOPICS),
    st.builds(
        lambda m, s, g, p: join(m, s, group_id=g, topics_pattern=p), MEMBERS, SECONDS, GROUPS, PATTERNS
    ),
    st.builds(
        lambda m, s, g, p: group_event("subscription_changed", s, m, g, topics_pattern=p),
        *(MEMBERS, SECONDS, GROUPS, PATTERNS),
    ),
    st.builds(lambda m, s, g: group_event("member_left", s, m, g), MEMBERS, SECONDS, GROUPS),
    st.builds(lambda s, g: group_event("group_deleted", s, group_id=g), SECONDS, GROUPS),
    st.builds(topic, TOPICS, st.integers(0, 3), SECONDS),
    st.builds(tick, SECONDS),
)


def hears(row: Row, changed: Iterable[str]) -> bool:
    """Say by a group's own state whether it hears of one of these topics; one that waits hears of all."""
    state = orjson.loads(row["state"])
    rules = GroupRules()
    where = (row["cluster"], row["group_id"])
    if state["kind"] == "set_aside":
        return True
    if state["kind"] == "observed":
        return any(map(ObservedGroup.load(state["group"], *where).watches, changed))
    return any(map(ComputedGroup.load(state["group"], *where, rules, frozenset()).watches, changed))


@pytest.fixture
def tail(tmp_path: Path) -> Tail:
    """Give the tail of empty tables."""
    return Deployment(tmp_path / "tables").tail


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    batches=st.lists(st.lists(EVENTS, min_size=1, max_size=5), min_size=2, max_size=7),
    faulty=st.sets(st.integers(0, 6), max_size=2),
    delay_ms=st.sampled_from([0, 20_000]),
)
def test_touched_are_those_that_hear(
    tail: Tail, batches: list[list[Row]], faulty: set[int], delay_ms: int
) -> None:
    """Whatever was before, set aside or waiting too: all whose own state reads a topic, and nobody else.

    Of the groups that make a row though no event of theirs came, none is missing.
    """
    tail.drop()
    player, latest = Player(GroupRules(rebalance_delay_ms=delay_ms)), dict[str, Row]()
    for number, batch in enumerate(batches):
        changed = {item["topic"] for item in batch if item["type"] == "topic_changed"}
        ticks = [item["event_time"] * 1000 for item in batch if item["type"] == "time_advanced"]
        by_topic = tail.touched_groups({"default": changed} if changed else {}, {}, ())
        expected = {name for name, row in latest.items() if changed and hears(row, changed)}
        assert {group_id for _, group_id in by_topic} == expected
        by_time = tail.touched_groups({}, {"default": max(ticks)} if ticks else {}, ())
        if number in faulty:
            with Fault("g", "h"):
                rows = player.play(batch)
        else:
            rows = player.play(batch)
        own = {item["group_id"] for item in batch if "group_id" in item}
        made = {row["group_id"] for row in rows} - own
        assert made <= {group_id for _, group_id in by_topic | by_time}
        tail.add(rows_to_log(rows, number + 1, 0))
        latest |= {row["group_id"]: row for row in rows}


def test_observed_groups_hear_by_what_their_broker_resolved(tail: Tail) -> None:
    """By name all of them: those of a real run, and one whose pattern the broker reads and RE2 does not."""
    pattern = "(?=orders)o.*"
    member = new_member() | {"subscribedTopicNames": [], "subscribedTopicRegex": pattern}
    key, value = {"groupId": "k", "regularExpression": pattern}, {"topics": ["orders"], "version": 1}
    player = Player()
    player.play_inputs(captured_inputs()[:200])
    player.play_inputs([raw_record(0, 5, member, "m1"), record_input("k", 1, 1000, 16, key, value)])
    player.play_inputs([replace_offset(record, 1) for record in JOINED[1:]])
    tail.add(rows_to_log(player.rows, 1, 0))
    latest = {row["group_id"]: row for row in player.rows}
    assert {row["group_kind"] for row in latest.values()} == {"observed"}
    assert latest["k"]["has_pattern"]
    assert len(latest) > 5
    for name, has_k in (("orders", True), ("clicks", False), ("payments", False), ("none", False)):
        touched = {group_id for _, group_id in tail.touched_groups({"c": {name}}, {}, ())}
        assert touched == {group_id for group_id, row in latest.items() if hears(row, [name])}
        assert ("k" in touched) == has_k


def test_executors_ask_the_patterns_of_those_that_need_it() -> None:
    """The step drops whom no pattern of its own cluster's topics takes in, and shards the others."""
    rows = [
        {"cluster": "c", "group_id": "certain", "is_touched": True, "topics_patterns": ["logs"]},
        {"cluster": "c", "group_id": "matches", "is_touched": False, "topics_patterns": ["o.*", "x"]},
        {"cluster": "c", "group_id": "does-not", "is_touched": None, "topics_patterns": ["x"]},
        {"cluster": "other", "group_id": "due", "is_touched": True, "topics_patterns": None},
    ]
    schema = pa.schema(
        [*TOUCHED.remove(0), ("is_touched", pa.bool_()), ("topics_patterns", pa.list_(pa.string()))]
    )
    (found,) = toucher({"c": {"orders"}}, 4)([pa.RecordBatch.from_pylist(rows, schema=schema)])
    assert found.to_pylist() == [
        {"shard": shard_of(cluster, group_id, 4), "cluster": cluster, "group_id": group_id}
        for cluster, group_id in (("c", "certain"), ("c", "matches"), ("other", "due"))
    ]


TOPIC_STORY = (3, 5, 1, 0)
"""How many partitions `logs-a` has, from event to event."""
HEARING = {"by-name", "logs", "both-1", "both-2", "mixed"}


def pattern_story() -> list[list[str]]:
    """Tell of groups by name and by pattern, then of topics alone: new, grown, shrunk, gone; a tick."""
    wants: dict[str, list[Row]] = {
        "by-name": [{"topics": ["logs-a"]}],
        "carts": [{"topics": ["carts"]}],
        "logs": [{"topics_pattern": "logs-.*"}],
        "both-1": [{"topics_pattern": "logs-a|carts"}],
        "both-2": [{"topics_pattern": "logs-a|carts"}],
        "mixed": [{"topics": ["carts"]}, {"topics_pattern": ".*s-a"}],
        "never": [{"topics_pattern": "logs"}],
        **{f"own-{number}": [{"topics_pattern": f"own-{number}-.*"}] for number in range(4)},
    }
    first = [event("topic_changed", 0, topic=name, partitions=2) for name in ("carts", "own-1-x")]
    for group_id, members in wants.items():
        for number, wanted in enumerate(members):
            more = {"member_id": f"m{number}", "protocols": ["range"], **wanted}
            first.append(event("member_joined", 1 + number, group_id=group_id, **more))
    later = [
        event("topic_changed", 60 + number, topic="logs-a", partitions=count)
        for number, count in enumerate(TOPIC_STORY)
    ]
    return [first, *([line] for line in later), [event("time_advanced", 400)]]


@pytest.mark.spark
@pytest.mark.parametrize(
    ("snapshot_every_rows", "is_older"),
    [
        # Laws above hold tables of an earlier release to the same, without Spark.
        pytest.param("20000", False, id="from-tail"),
        pytest.param("1", True, id="older-snapshot", marks=pytest.mark.slow),
    ],
)
def test_both_paths_take_up_the_same_groups(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    snapshot_every_rows: str,
    is_older: bool,
) -> None:
    """A topic that comes, grows, shrinks and goes: equal tables, and nobody computed who does not hear of it.

    Over tables of an earlier release each group with a pattern is heard of until its next row tells.
    """
    taken = spy_on_large(monkeypatch)
    first, *later = pattern_story()
    counts, found = list[int](), dict[str, dict[str, list[str]]]()
    for path, most in (("driver", "5000"), ("executors", "0")):
        more = {"batch__local_max_records": most, "batch__snapshot_every_rows": snapshot_every_rows}
        more |= {"sources.events.max_files_per_trigger": "1"}
        write_lines(tmp_path / path / "in", {"0.jsonl": first})
        job_settings = make_settings(tmp_path / path / "job", **more)
        Job(spark, job_settings).run(once=True)
        taken.clear()
        if is_older:
            for name in (LOG, "groups"):
                forget_column(Path(job_settings.job.tables) / name)
        write_lines(tmp_path / path / "in", {f"{n}.jsonl": lines for n, lines in enumerate(later, start=1)})
        job = Job(spark, job_settings)
        job.run(once=True)
        if path == "driver":
            counts = [timing["groups"] for timing in job.timings]
        found[path] = contents(job_settings)
    untold = {"never", *(f"own-{number}" for number in range(4))} if is_older else set()
    assert taken[:-1] == [HEARING | untold] * len(TOPIC_STORY)
    assert counts == [len(groups) for groups in taken]
    assert found["driver"] == found["executors"]
    log = Tables(f"{tmp_path}/driver/job/tables").read(LOG, ["group_id", "kind"]).to_pylist()
    rebalances = Counter(row["group_id"] for row in log if row["kind"] == "rebalance")
    assert min(rebalances[group_id] for group_id in HEARING) > len(TOPIC_STORY)
    assert rebalances["never"] == 1


def spy_on_large(monkeypatch: pytest.MonkeyPatch) -> list[set[str]]:
    """List the groups whose states the executors are given, batch by batch."""
    taken: list[set[str]] = []
    work: Callable[..., DataFrame] = LargeBatch._work

    def look(*arguments: Any) -> DataFrame:
        rows = work(*arguments)
        taken.append({row["group_id"] for row in rows.where("tag = 0").select("group_id").collect()})
        return rows

    monkeypatch.setattr(LargeBatch, "_work", look)
    return taken
