"""The stream's plumbing without Spark: positions, the log's protocol, the outbox, the snapshots."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.batches.batch import (
    Intake,
    apply_shared,
    compute_and_check,
    make_batch_row,
    rejected_rows,
    rows_to_log,
)
from streaming.batches.executors import shard_of
from streaming.events.parsing import Rejection
from streaming.model import Input, Position, TopicState
from streaming.sources.streams import add_digests, count_blocks, digest_of, lines_before, number_records
from streaming.tables.delta import LOG, PUBLISHED, SNAPSHOTS, JobError, Tables
from streaming.tables.log import LOG_APP, SNAPSHOT_APP, BatchIdentity, Log, Tail, topic_state_of, topic_struct
from streaming.tables.publish import PUBLISH_APP, Outbox, flatten
from streaming.tables.schemas import SCHEMA_BY_TABLE
from streaming.tables.snapshots import Snapshots, _latest_rows, assignment_rows

Row = dict[str, Any]
SECOND_US = 1_000_000


def batch_row(batch_seq: int, checkpoint_id: str = "one", **more: Any) -> Row:
    """Make the row of a batch whose number in its checkpoint is one less than in the log."""
    identity = BatchIdentity(checkpoint_id=checkpoint_id, batch_id=batch_seq - 1, digest=f"d{batch_seq}")
    end = more.pop("source_end", '{"adopted_after":0,"sources":{}}')
    return {**make_batch_row(identity, Intake(), Counter(), [], [], end, 0), **more}


def group_row(group_id: str, version: int, **more: Any) -> Row:
    """Make a rebalance of a group with one member that owns partition 0 of `orders`, expected so."""
    owned = {"member_id": "m1", "topic": "orders", "partitions": [0]}
    return {
        "kind": "rebalance",
        "cluster": "default",
        "group_id": group_id,
        "event_time": version * SECOND_US,
        "version": version,
        "generation_id": version,
        "group_kind": "computed",
        "protocol_type": "consumer",
        "members": [{"member_id": "m1", "client_id": "client"}],
        "assignment": [{**owned, "since_generation_ids": [1], "since_times": [SECOND_US]}],
        "expected": [owned],
        "subscribed_topics": ["orders"],
        "has_pattern": False,
        "state": f"{group_id}@{version}",
        "balance": {"members": 1, "partitions": 1},
        "deltas": [{"delta_id": f"{group_id}-{version}", "change": "assigned", "topic": "orders"}],
        "events": [{"event_id": f"{group_id}-{version}", "outcome": "applied"}],
        "checks": [{"check": "duplicate_owners", "success": True}],
        "alerts": [],
        **more,
    }


def topic_row(topic: str, partitions: int) -> Row:
    """Make the row of a topic that changed."""
    state = TopicState(topic=topic, partition_count=partitions)
    return {
        "kind": "topic",
        "cluster": "default",
        "event_time": SECOND_US,
        "topic_state": topic_struct(state),
        "events": [{"event_id": f"{topic}-{partitions}", "topic": topic, "outcome": "applied"}],
    }


class Deployment:
    """Tables in a directory, opened anew as a restart would."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.restart()

    def restart(self) -> None:
        """Open everything as the job does at its start."""
        self.tables = Tables(str(self.root))
        self.log = Log(self.tables)
        self.outbox = Outbox(self.tables, self.log)
        self.tail = Tail(self.tables, self.log)
        self.snapshots = Snapshots(self.tables, self.log, self.tail)

    def commit(self, *rows: Row, checkpoint_id: str = "one", **more: Any) -> pa.Table:
        """Log one batch."""
        batch_seq = self.log.last_batch_seq + 1
        end = batch_row(batch_seq, checkpoint_id, **more)
        table = rows_to_log([*rows, end], batch_seq, observed_at_us=batch_seq * SECOND_US)
        self.tables.append(LOG, table, app_id=LOG_APP, version=batch_seq)
        batch = end["batch"]
        self.log.note(
            BatchIdentity(
                checkpoint_id=checkpoint_id, batch_id=batch["batch_id"], digest=batch["input_digest"]
            ),
            batch_seq,
            {},
        )
        self.tail.add(table)
        return table

    def contents(self) -> dict[str, list[Row]]:
        """Read every table, sorted."""
        return {
            name: sorted(self.tables.read(name, schema.names).to_pylist(), key=repr)
            for name, schema in SCHEMA_BY_TABLE.items()
        }


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    """Give empty tables."""
    return Deployment(tmp_path / "tables")


_NOT_FROM_KAFKA = {"partition": -1, "offset": -1, "timestamp_ms": None, "key": None}


class TestPositions:
    """Line numbers and digests."""

    @given(sizes=st.lists(st.integers(1, 5), min_size=1, max_size=6), chunk=st.integers(1, 7))
    @settings(max_examples=50, deadline=None)
    def test_lines_of_a_split_file_count_on_however_it_is_cut(self, sizes: list[int], chunk: int) -> None:
        """A file's lines are 1..n, in whatever blocks and Arrow batches they arrive, last block first."""
        blocks = [(place * 100, size) for place, size in enumerate(sizes)]
        rows = [
            {
                "source": "s",
                "path": "file:/in/a",
                "block": start,
                **_NOT_FROM_KAFKA,
                "value": f"{start}:{i}".encode(),
                "bytes": 1,
            }
            for start, size in reversed(blocks)
            for i in range(size)
        ]
        table = pa.Table.from_pylist(rows)
        next_line = lines_before(count_blocks(table))
        found = {}
        for batch in table.to_batches(max_chunksize=chunk):
            for record in number_records(batch, {("s", "file:/in/a"): "a"}, next_line):
                found[record.position.offset] = record.value
        in_file_order = [f"{start}:{i}".encode() for start, size in blocks for i in range(size)]
        assert [found[line] for line in sorted(found)] == in_file_order
        assert sorted(found) == list(range(1, sum(sizes) + 1))

    def test_a_digest_sees_content_and_place_but_not_order(self) -> None:
        """Two records swapped by the reading order give one digest; exchanged places another."""
        rows = [
            {"source": "s", "path": path, "block": 0, **_NOT_FROM_KAFKA, "value": value, "bytes": 1}
            for path, value in (("a", b"x"), ("b", b"y"))
        ]
        names = {("s", "a"): "a", ("s", "b"): "b"}

        def digest(these: list[Row]) -> int:
            return add_digests(map(digest_of, number_records(pa.Table.from_pylist(these), names, {})))

        exchanged = [{**rows[0], "value": b"y"}, {**rows[1], "value": b"x"}]
        assert digest(rows) == digest(rows[::-1]) != digest(exchanged)

    def test_shards_are_a_function_of_cluster_and_group(self) -> None:
        """The separator keeps (a, bc) and (ab, c) apart, and the shard stays what it was."""
        assert [shard_of("a", "bc", 1 << 30), shard_of("ab", "c", 1 << 30)] == [352082640, 942798780]


class TestTables:
    """Appending, and what stands in the way."""

    def test_the_same_version_is_appended_once(self, deployment: Deployment) -> None:
        """A repeated append adds nothing, which delta-rs alone would not see to."""
        table = deployment.commit()
        deployment.tables.append(LOG, table, app_id=LOG_APP, version=1)
        assert len(deployment.contents()[LOG]) == 1

    def test_a_lower_version_says_that_somebody_else_writes(self, deployment: Deployment) -> None:
        """Two jobs on the same tables are told so, not mixed."""
        deployment.commit()
        table = deployment.commit()
        with pytest.raises(JobError, match="holds version 2 of 'counterpoise-log'"):
            deployment.tables.append(LOG, table, app_id=LOG_APP, version=1)

    def test_a_table_of_another_schema_is_named(self, tmp_path: Path) -> None:
        """The message names table, column and both types."""
        wrong = SCHEMA_BY_TABLE["groups"].set(2, pa.field("log_seq", pa.string()))
        DeltaTable.create(tmp_path / "groups", wrong)
        with pytest.raises(
            JobError, match=r"table groups at .*'log_seq' is string, this release writes int64"
        ):
            Tables(str(tmp_path))

    def test_tables_need_no_feature_that_other_readers_lack(self, deployment: Deployment) -> None:
        """Every table stays at the protocol that delta-rs, DuckDB and Polars read."""
        for name in SCHEMA_BY_TABLE:
            protocol = deployment.tables.delta_table(name).protocol()
            assert (protocol.min_reader_version, protocol.min_writer_version) == (1, 2), name


class TestProtocol:
    """What a batch means that comes for the first time, again, or not at all as expected."""

    @pytest.mark.parametrize(
        ("batch", "place"),
        [
            (BatchIdentity(checkpoint_id="one", batch_id=1, digest="d2"), "replay"),
            (BatchIdentity(checkpoint_id="one", batch_id=2, digest="any"), "new"),
        ],
    )
    def test_the_normal_pictures(self, deployment: Deployment, batch: BatchIdentity, place: str) -> None:
        """The last batch again is a replay, also after a restart; the next one is new."""
        deployment.commit()
        deployment.commit()
        deployment.restart()
        assert deployment.log.place_of(batch, adopt=False) == place

    @pytest.mark.parametrize(
        ("batch", "words"),
        [
            (
                BatchIdentity(checkpoint_id="one", batch_id=1, digest="x"),
                "digest x, the log holds that batch",
            ),
            (BatchIdentity(checkpoint_id="one", batch_id=3, digest="x"), "only up to batch 1"),
            (BatchIdentity(checkpoint_id="one", batch_id=0, digest="d1"), "at most one batch may be ahead"),
            (BatchIdentity(checkpoint_id="two", batch_id=0, digest="x"), "never seen that checkpoint"),
        ],
    )
    def test_a_misfit_stops_with_advice_unless_adopted(
        self, deployment: Deployment, batch: BatchIdentity, words: str
    ) -> None:
        """Each misfit of checkpoint and log is an error that names --adopt, and --adopt lets it in."""
        deployment.commit()
        deployment.commit()
        with pytest.raises(JobError, match=f"{words}.*--adopt"):
            deployment.log.place_of(batch, adopt=False)
        assert deployment.log.place_of(batch, adopt=True) == "adopted"

    def test_a_checkpoint_ahead_of_an_empty_log_is_a_misfit(self, deployment: Deployment) -> None:
        """Tables that were deleted under a checkpoint are noticed."""
        late = BatchIdentity(checkpoint_id="one", batch_id=5, digest="x")
        with pytest.raises(JobError, match="the log \\(0 batches\\) has never seen"):
            deployment.log.place_of(late, adopt=False)

    def test_what_an_adopted_checkpoint_had_read_survives_restarts(self, deployment: Deployment) -> None:
        """Lines of the old checkpoint's files stay known; those of the new one do not join them."""
        old = '{"adopted_after":0,"sources":{"s":{"files":{"a":3},"last":"a"}}}'
        deployment.commit(source_end=old)
        assert deployment.log.lines_read() == {}
        deployment.log.adopt()
        new = deployment.log.source_end({"s": {"files": {"a": 9}, "last": "a"}})
        deployment.commit(checkpoint_id="two", source_end=new)
        deployment.restart()
        assert deployment.log.lines_read() == {"s": {"a": 3}}

    def test_every_record_is_accounted_for(self) -> None:
        """A record that no row mentions stops the batch before anything is written."""
        identity = BatchIdentity(checkpoint_id="one", batch_id=0, digest="d")
        with pytest.raises(JobError, match=r"2 records were read, but applied 1 .* = 1; nothing was written"):
            make_batch_row(identity, Intake(records_read=2), Counter(applied=1), [], [], "{}", 0)

    def test_late_files_are_counted(self) -> None:
        """A file whose name sorts before one already read is late, one behind it is not."""
        intake = Intake(files={"s": {"a": 1, "c": 2}})
        end, late = intake.source_end(
            {"s": {"files": {"b": 1}, "last": "b"}, "t": {"files": {"x": 1}, "last": "x"}}
        )
        assert late == 1
        assert end == {"s": {"files": {"a": 1, "c": 2}, "last": "c"}, "t": {"files": {}, "last": "x"}}

    def test_rejections_are_packed_in_order(self) -> None:
        """Up to 256 rejected records share a row, cut to the bytes that the setting keeps."""
        rejections = [
            Rejection(position=Position("s", "a", -1, line), reason="r", raw=b"12345", raw_bytes=9)
            for line in range(1, 301)
        ]
        rows = list(rejected_rows(rejections, raw_bytes=3))
        assert [len(row["events"]) for row in rows] == [256, 44]
        assert [event["offset"] for row in rows for event in row["events"]] == list(range(1, 301))
        assert rows[0]["events"][0]["raw"] == b"123"
        assert rows[0]["events"][0]["raw_bytes"] == 9

    def test_a_refused_generation_is_computed_again_as_held(self) -> None:
        """A group's first refused version is held, then the next; groups beside it stay."""
        from checkpoints.run import load_suite

        calls: list[tuple[Any, Any]] = []

        def advance(keys: Any, holds: Any) -> list[Row]:
            calls.append((list(keys), set(holds)))
            return [
                {
                    **group_row(group_id, version),
                    "kind": "held" if (cluster, group_id, version) in holds else "rebalance",
                    "is_final": True,
                    "check_inputs": {"duplicate_owners": int(group_id == "bad" and version < 3)},
                }
                for cluster, group_id in keys
                for version in (1, 2, 3)
            ]

        keys = [("default", "bad"), ("default", "good")]
        rows, of_table = compute_and_check(keys, advance, load_suite("balance"))
        kinds = {(row["group_id"], row["version"]): row["kind"] for row in rows}
        assert [kinds["bad", version] for version in (1, 2, 3)] == ["held", "held", "rebalance"]
        assert {kinds["good", version] for version in (1, 2, 3)} == {"rebalance"}
        assert calls[1:] == [
            ([("default", "bad")], {("default", "bad", 1)}),
            ([("default", "bad")], {("default", "bad", 1), ("default", "bad", 2)}),
        ]
        failed = [check["check"] for row in rows for check in row["checks"] if not check["success"]]
        assert failed == ["duplicate_owners"] * 2
        assert of_table


class TestOutbox:
    """Flat tables from the log."""

    def test_flat_rows_carry_where_they_come_from(self, deployment: Deployment) -> None:
        """Nested fields come from the nested value, the rest from the log's row around it."""
        table = deployment.commit(group_row("g", 7), topic_row("orders", 3))
        [delta] = flatten(table, "assignment_deltas").to_pylist()
        assert (delta["group_id"], delta["version"], delta["delta_id"], delta["batch_seq"]) == (
            "g",
            7,
            "g-7",
            1,
        )
        events = flatten(table, "events").to_pylist()
        assert [(event["event_id"], event["version"]) for event in events] == [("g-7", 7), ("orders-3", None)]

    def test_a_batch_is_published_once_whatever_was_lost(self, deployment: Deployment) -> None:
        """After a crash between any two tables the next start publishes the rest and repeats nothing."""
        whole = [deployment.commit(group_row("g", version)) for version in (1, 2)]
        for count, name in enumerate(PUBLISHED):
            part = flatten(whole[0], name)
            if count % 2 and part.num_rows:
                deployment.tables.append(name, part, app_id=PUBLISH_APP, version=1)
        for _ in range(2):
            deployment.restart()
            deployment.outbox.catch_up()
        contents = deployment.contents()
        assert [len(contents[name]) for name in PUBLISHED] == [2, 0, 2, 2, 2, 0]

    def test_a_table_with_nothing_to_say_still_notes_how_far_it_got(self, deployment: Deployment) -> None:
        """Else every start would read the log from its beginning for it."""
        deployment.commit(group_row("g", 1))
        deployment.outbox.catch_up()
        deployment.outbox.mark()
        assert {deployment.tables.transaction_version(name, PUBLISH_APP) for name in PUBLISHED} == {1}


class TestSnapshots:
    """The latest of everything, and the tail behind it."""

    def test_state_is_the_same_before_and_after_a_snapshot(self, deployment: Deployment) -> None:
        """The tail, what it leaves in memory, and the snapshot itself answer alike."""
        deployment.commit(group_row("g1", 1), group_row("o'brien", 1))
        deployment.commit(group_row("g1", 2, kind="state"))
        keys = [("default", "g1"), ("default", "o'brien"), ("default", "unknown")]
        answers = [deployment.tail.states_of(keys)]
        deployment.snapshots.refresh()
        answers.append(deployment.tail.states_of(keys))
        deployment.restart()
        answers.append(deployment.tail.states_of(keys))
        assert deployment.tail.row_count == 0
        assert answers == [{keys[0]: "g1@2", keys[1]: "o'brien@1"}] * 3

    def test_tables_that_lag_catch_up(self, deployment: Deployment) -> None:
        """A crash between two snapshot tables leaves each at its own batch; then a refresh evens them out."""
        alert = {"alertname": "GroupEmpty", "status": "firing", "alert_event_id": "1"}
        first = [group_row("g1", 1, alerts=[alert]), topic_row("orders", 2)]
        deployment.commit(*first)
        deployment.snapshots._merge("groups", latest(deployment, "groups"), 1)
        deployment.restart()
        deployment.commit(
            group_row("g1", 2, alerts=[{**alert, "status": "resolved"}]), topic_row("orders", 4)
        )
        deployment.restart()
        deployment.snapshots.refresh()
        contents = deployment.contents()
        assert [row["version"] for row in contents["groups"]] == [2]
        assert [row["partition_count"] for row in contents["topics"]] == [4]
        assert [(row["topic"], row["status"]) for row in contents["alerts"]] == [(None, "resolved")]
        assert {deployment.tables.transaction_version(name, SNAPSHOT_APP) for name in SNAPSHOTS} == {2}

    def test_a_group_replaces_its_own_assignments_only(self, deployment: Deployment) -> None:
        """What a group no longer owns goes, what others own stays, and a deleted group owns nothing."""
        deployment.commit(
            topic_row("orders", 2), *(group_row(group_id, 1) for group_id in ("g1", "g2", "g3"))
        )
        deployment.snapshots.refresh()
        deployment.commit(
            group_row("g1", 2, assignment=[], expected=None, members=[]),
            group_row("g2", 2, kind="deleted", group_state="Dead", assignment=[]),
        )
        deployment.snapshots.refresh()
        owners = [
            (row["group_id"], row["partition"], row["member_id"], row["expected_member_id"], row["version"])
            for row in deployment.contents()["assignments"]
        ]
        assert sorted(owners, key=repr) == [
            ("g1", 0, None, None, 2),
            ("g1", 1, None, None, 2),
            ("g3", 0, "m1", "m1", 1),
            ("g3", 1, None, None, 1),
        ]

    def test_connectors_and_tasks_are_told_apart(self, deployment: Deployment) -> None:
        """In a Connect group partition -1 is the connector; a topic of that name has no say."""
        owned = {"member_id": "w", "topic": "sink", "partitions": [-1, 0]}
        since = {"since_generation_ids": [1, 1], "since_times": [SECOND_US, SECOND_US]}
        table = deployment.commit(
            group_row("c", 1, protocol_type="connect", assignment=[{**owned, **since}], expected=None,
                      subscribed_topics=["sink"])
        )  # fmt: skip
        rows = assignment_rows(
            table.slice(0, 1), {"default": {"sink": TopicState(topic="sink", partition_count=9)}}
        )
        assert rows.select(["resource_type", "partition"]).to_pylist() == [
            {"resource_type": "connector", "partition": -1},
            {"resource_type": "task", "partition": 0},
        ]

    @pytest.mark.parametrize("refreshed", [False, True])
    def test_groups_touched_by_others_are_found(self, deployment: Deployment, refreshed: bool) -> None:
        """A topic, a pattern, a due timer or a partition that went on touches a group."""
        deployment.commit(
            group_row("reads", 1),
            group_row("pattern", 1, subscribed_topics=[], has_pattern=True),
            group_row("timer", 1, subscribed_topics=["other"], next_timer=5 * SECOND_US),
            group_row("waits", 1, subscribed_topics=[], next_timer=9 * SECOND_US, group_kind="observed"),
            group_row("elsewhere", 1, cluster="second", next_timer=1),
        )
        if refreshed:
            deployment.snapshots.refresh()
        touched = deployment.tail.touched_groups

        def names(*arguments: Any) -> set[str]:
            return {group_id for _, group_id in touched(*arguments)}

        assert names({}, {}, set()) == set()
        assert names({"default": {"orders"}}, {}, set()) == {"reads", "pattern"}
        assert names({}, {"default": 5 * SECOND_US}, set()) == {"timer"}
        assert names({}, {"default": 5 * SECOND_US - 1}, set()) == set()
        assert names({}, {}, {"default"}) == {"waits"}

    def test_a_topic_state_survives_the_tables(self) -> None:
        """Racks, history, remembered ids and loads come back as they went."""
        state = TopicState(
            topic="t",
            partition_count=2,
            topic_id="id",
            racks=(("a", None), ("b",)),
            event_time_ms=5,
            history=((4, 1),),
            recent_ids={"x": 3},
            loads=(0.0, 0.1),
            loads_ms=7,
        )
        row = pa.Table.from_pylist([topic_struct(state)], schema=TOPIC_STRUCT).to_pylist()[0]
        assert topic_state_of(row, pa.scalar(5000, pa.timestamp("us", tz="UTC")).as_py()) == state


TOPIC_STRUCT = pa.schema(list(SCHEMA_BY_TABLE[LOG].field("topic_state").type))


def latest(deployment: Deployment, name: str) -> pa.Table:
    """Give the rows of the tail as a snapshot table holds them."""
    return _latest_rows(name, deployment.tail.rows_after(0))


class TestSharedEvents:
    """Topic changes and ticks."""

    def test_what_changed_nothing_goes_to_the_batch(self) -> None:
        """A repeated topic event makes no topic row; a tick sets the cluster's time."""

        def event(line: int, **more: Any) -> Input:
            position = Position("s", "a", -1, line)
            body = {"partitions": 3}
            return Input(
                **{"cluster": "c", "event_time_ms": line, "position": position, "body": body, "raw": b""}
                | more
            )

        change = {"type": "topic_changed", "topic": "t", "event_id": "same"}
        events = [event(2, **change), event(1, **change), event(3, type="time_advanced", event_id="tick")]
        shared = apply_shared(events, {}, {}, dedupe_window_ms=1000)
        assert [row["events"][0]["offset"] for row in shared.topic_rows] == [1]
        assert [(loose.event.event_id, loose.outcome) for loose in shared.loose] == [
            ("same", "duplicate"),
            ("tick", "applied"),
        ]
        assert (shared.changed_topics, shared.ticks_us) == ({"c": {"t"}}, {"c": 3000})


@pytest.mark.parametrize(("crash_at", "code"), [("", 0), ("after_log", 0), ("after_log:2", -signal.SIGKILL)])
def test_a_crash_point_kills_at_its_count_and_only_there(crash_at: str, code: int) -> None:
    """The hook does nothing unless the environment names the point, and then only at its count."""
    if crash_at == "after_log":
        crash_at = "before_log"
    script = "from streaming.crash_points import reach\nfor _ in range(3): reach('after_log')"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "COUNTERPOISE_CRASH_AT": crash_at},
        cwd=Path(__file__).parent.parent,
        check=False,
        timeout=60,
    )
    assert done.returncode == code
