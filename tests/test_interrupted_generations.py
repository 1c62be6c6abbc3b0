"""A generation that never completed is told from one that was compacted away, and never guessed.

The coordinator counts a generation when all have joined and records it when its leader has sent the
assignment. Who joins in between makes it begin again: the number in between is in no record.
"""

from __future__ import annotations

import json
import pickle
import socket
import struct
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from console.tables import read_table
from streaming.batches.batch import Intake, rows_to_log
from streaming.batches.executors import Tag, parser
from streaming.events.parsing import Rejection
from streaming.events.stretches import ReadBefore, Stretches
from streaming.groups.observed.group import ObservedGroup
from streaming.model import Input, TopicState, Version
from streaming.sources.kafka import count_and_filter, records_read
from streaming.sources.records import ParseRules, Source
from streaming.sources.streams import number_records, parse_raw
from streaming.tables.delta import LOG, Tables
from streaming.tables.log import LOG_APP, BatchIdentity, Log
from tests.kafka_cluster import wait_until
from tests.live_jobs import OFFSETS_TOPIC, LiveJob
from tests.observed_inputs import (
    classic,
    classic_value,
    consumer_bytes,
    current,
    given_bytes,
    new_member,
    observed,
    raw_record,
    record_input,
    target,
    versions,
    view,
)
from tests.offsets_encoder import encode_key, encode_value

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.kafka_cluster import KafkaBroker

T4 = TopicState(topic="t", partition_count=4)
CREATED = classic_value(0, [], ())
SOURCE = Source(name="k", format="offsets", kind="kafka", location=OFFSETS_TOPIC, root="", cluster="c")
RULES = ParseRules(sources={"k": SOURCE}, max_record_bytes=10_000, rejected_raw_bytes=10)


def generation(number: int, *members: str, **more: Any) -> dict[str, Any]:
    """Write the value of a generation whose members share four partitions as range gives them out."""
    size = 4 // len(members)
    given = [(m, {"t": list(range(i * size, (i + 1) * size))}) for i, m in enumerate(members)]
    return classic_value(number, given, {"t"}, **more)


def shown(inputs: Sequence[Input]) -> list[Version]:
    """Play one group's records, its state saved and loaded after each."""
    group = ObservedGroup("c", "g")
    found: list[Version] = []
    for event in inputs:
        found += versions(group.advance(event, view(T4)))
        group = ObservedGroup.load(group.dump(), "c", "g")
    return found


def kinds(found: Sequence[Version]) -> list[tuple[str, int]]:
    """Say of each version its kind and generation."""
    return [(version.kind, version.generation_id) for version in found]


def in_stretches(*records: tuple[Mapping[str, Any] | None, str | None]) -> list[Input]:
    """Make the records of a group, one after the other, each in the stretch that is named."""
    return [
        replace(classic("g", place, place * 1000 + 1000, value), stretch=stretch)
        for place, (value, stretch) in enumerate(records)
    ]


def test_a_jump_in_one_stretch_is_a_rebalance_that_names_what_never_completed() -> None:
    """Deltas are counted over it, the leader is judged, and the reason says what is missing and why."""
    found = shown(in_stretches((CREATED, "s"), (generation(1, "a"), "s"), (generation(4, "a", "b"), "s")))
    assert kinds(found) == [("rebalance", 0), ("rebalance", 1), ("rebalance", 4)]
    assert found[2].reason == "member_joined b; generations 2 to 3 never completed"
    assert found[2].expected_status == "equal"


@pytest.mark.parametrize(("before", "now"), [("s", "other"), (None, None), ("s", None), (None, "s")])
def test_a_jump_over_a_missing_offset_is_a_gap(before: str | None, now: str | None) -> None:
    """Nor is anything claimed where a source, or a release before, does not say what is missing."""
    found = shown(in_stretches((CREATED, before), (generation(2, "a"), now)))
    assert kinds(found) == [("rebalance", 0), ("gap", 2)]
    assert found[1].reason == "gap: generation 1 not seen (compacted, or never completed)"


def test_what_is_missing_before_a_generation_is_told_again_does_not_count() -> None:
    """A second record of the same generation shows that nothing newer was written before it."""
    one, three = generation(1, "a"), generation(3, "a", "b")
    found = shown(in_stretches((CREATED, "s"), (one, "s"), (one, "later"), (three, "later")))
    assert kinds(found)[-1] == ("rebalance", 3)


def test_a_record_that_is_not_understood_may_have_been_the_generation() -> None:
    """A value of a version that is not known here, of the group itself: then the jump is a gap."""
    created, jump = in_stretches((CREATED, "s"), (generation(2, "a"), "s"))
    strange = replace(record_input("g", 5, 1500, 2, {"group": "g"}, None), type="unknown_record", stretch="s")
    moved = replace(jump, position=replace(jump.position, offset=9))
    assert kinds(shown([created, strange, moved])) == [("rebalance", 0), ("gap", 2)]


def test_what_another_source_told_starts_no_stretch() -> None:
    """A generation from an event says nothing of what the topic holds behind it."""
    created, jump = in_stretches((CREATED, "s"), (generation(3, "a"), "s"))
    told = observed(1, 1, {"a": {"t": [0, 1, 2, 3]}})
    assert kinds(shown([created, told, jump])) == [("rebalance", 0), ("rebalance", 1), ("gap", 3)]
    commit = replace(told, type="offset_commit", body={"group": "g", "topic": "t"})
    assert kinds(shown([created, commit, jump])) == [("rebalance", 0), ("gap", 3)]


def after_one_in_vain(first: str, third: str, *, since: int) -> Version:
    """Show generation 3 of a group that began the second in vain: each claims what it gets, as of `since`."""

    def claiming(number: int, members: str, since: int) -> dict[str, Any]:
        claims = {m: ({"t": [i * 2, i * 2 + 1]}, since) for i, m in enumerate(members)}
        return generation(number, *members, claims=claims)

    one, three = claiming(1, first, 0), claiming(3, third, since)
    return shown(in_stretches((CREATED, "s"), (one, "s"), (three, "s")))[-1]


@pytest.mark.usefixtures("_remembering")
@pytest.mark.parametrize(
    ("third", "since", "status"),
    [
        ("ab", 1, "equal"),
        # Nobody left, so what the leader may have been told in vain it is told again.
        ("ab", 0, "equal"),
        # Who claims the last completed generation claims the latest that there can be.
        ("bc", 1, "equal"),
        # Member a may have told the leader of generation 1, or not.
        ("bc", 0, "unknown"),
    ],
)
def test_a_leader_remembers_nothing_of_what_never_completed(third: str, since: int, status: str) -> None:
    """The leader is judged over the jump, but where somebody left nothing is guessed of what it was told."""
    version = after_one_in_vain("ab", third, since=since)
    assert (version.kind, version.expected_status) == ("rebalance", status)


def test_a_jump_of_epochs_in_one_stretch_lost_nothing_either() -> None:
    """An upgrade goes on from a classic generation, and epochs are told apart by the same rule."""

    def told(stretch_of_jump: str) -> list[tuple[str, int]]:
        records = [
            raw_record(0, 5, new_member(), "m"),
            raw_record(1, 3, {"epoch": 1}),
            raw_record(2, 7, target([0]), "m"),
            raw_record(3, 6, {"assignmentEpoch": 1}),
            raw_record(4, 8, current(1, 0, [0]), "m"),
            raw_record(100, 3, {"epoch": 4}),
            raw_record(101, 7, target([0, 1]), "m"),
            raw_record(102, 6, {"assignmentEpoch": 4}),
            raw_record(103, 8, current(4, 1, [0, 1]), "m"),
        ]
        return kinds(
            shown([replace(r, stretch="s" if r.position.offset < 100 else stretch_of_jump) for r in records])
        )

    assert ("rebalance", 4) in told("s")
    assert "gap" not in dict(told("s"))
    assert ("gap", 4) in told("other")


# What a partition of __consumer_offsets holds, as values, and how the job reads it

COMMIT, MISSING, REJECTED, GENERATION, SKIP = "commit", "missing", "rejected", "generation", "skip"
PLACES = st.lists(
    st.tuples(
        st.sampled_from((COMMIT, COMMIT, MISSING, REJECTED, GENERATION, GENERATION, SKIP)),
        st.sampled_from(("g", "h")),
    ),
    max_size=40,
)
"""Offset by offset what stands there and of which group; "skip" is a generation that follows one in vain."""


def log_of(
    places: Sequence[tuple[str, str]], first: int
) -> tuple[list[dict[str, Any]], dict[str, list[str]]]:
    """Write a partition: its raw rows, and for each group what kind each of its generations must be."""
    rows: list[dict[str, Any]] = []
    wanted: dict[str, list[str]] = {"g": [], "h": []}
    last: dict[str, int] = {}
    unread: dict[str, bool] = {}
    for offset, (what, group_id) in enumerate(places, start=first):
        if what in (MISSING, REJECTED):
            unread = dict.fromkeys("gh", True)
        if what == MISSING:
            continue
        key, value = encode_key(2, {"group": group_id}), b"\x00\x03broken"
        if what == COMMIT:
            key = encode_key(1, {"group": group_id, "topic": "t", "partition": 0})
        if what in (GENERATION, SKIP):
            number = last.get(group_id, -1) + 1 + (what == SKIP)
            is_first = group_id not in last
            last[group_id] = number
            members = [f"m{n}" for n in range(number % 2 + 1)] if number else []
            value = encode_value(2, 3, generation(number, *members) if members else CREATED)
            wanted[group_id].append(
                ("rebalance" if number == 0 else "baseline")
                if is_first
                else ("gap" if what == SKIP and unread.get(group_id) else "rebalance")
            )
            unread[group_id] = False
        rows.append({"offset": offset, "key": key, "value": value, "is_filtered": what == COMMIT})
    return rows, wanted


def arrow_of(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Make what Spark hands over of one task's rows: those that are only counted have left their number."""
    return pa.Table.from_pylist(
        [
            {
                "source": "k",
                "path": OFFSETS_TOPIC,
                "block": -1,
                "partition": 0,
                "offset": row["offset"],
                "timestamp_ms": 1000 + row["offset"],
                "key": row["key"],
                "value": row["value"],
                "bytes": len(row["key"]) + len(row["value"]),
                "row": number,
            }
            for number, row in enumerate(rows)
            if not row["is_filtered"]
        ],
        schema=RAW,
    )


RAW = pa.schema(
    {
        "source": pa.string(),
        "path": pa.string(),
        "block": pa.int64(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp_ms": pa.int64(),
        "key": pa.binary(),
        "value": pa.binary(),
        "bytes": pa.int64(),
        "row": pa.int64(),
    }
)
NAMES = {("k", OFFSETS_TOPIC): OFFSETS_TOPIC}


def parse_here(table: pa.Table, before: ReadBefore) -> tuple[list[Input], int]:
    """Parse as the driver's process does: the events, and how many records were rejected."""
    stretches = Stretches(before)
    parsed = [parse_raw(record, RULES, stretches) for record in number_records(table, NAMES, {})]
    assert sum(isinstance(p, Rejection) for p in parsed) == sum(stretches.rejected.get("k", {}).values())
    return [p for p in parsed if isinstance(p, Input)], sum(stretches.rejected.get("k", {}).values())


def parse_on_executor(table: pa.Table, before: ReadBefore, chunk: int) -> tuple[list[Input], int]:
    """Parse as an executor does, a few rows of Arrow at a time."""
    parse = parser(RULES, NAMES, {}, {}, before, 2)
    rows = [row for batch in parse(table.to_batches(max_chunksize=chunk)) for row in batch.to_pylist()]
    events = [pickle.loads(row["payload"]) for row in rows if row["tag"] == Tag.EVENT]
    return events, sum(row["tag"] == Tag.REJECTED for row in rows)


@settings(max_examples=200)
@example([(GENERATION, "g"), (REJECTED, "g"), (SKIP, "g")], 0, {2}, 1)
@example([(GENERATION, "g"), (COMMIT, "h"), (MISSING, "h"), (SKIP, "g"), (SKIP, "g")], 7, {1, 2, 3}, 1)
@given(PLACES, st.integers(0, 50), st.sets(st.integers(1, 39), max_size=8), st.integers(1, 5))
def test_the_kind_follows_from_the_offsets_and_not_from_the_cuts(
    places: list[tuple[str, str]], first: int, cuts: set[int], chunk: int
) -> None:
    """Wherever batches end, and wherever they are parsed, a jump is a gap just if an offset is unread.

    A partition may be read from any offset on, and what a batch has read is carried in the log's JSON.
    """
    rows, wanted = log_of(places, first)
    groups = {group_id: ObservedGroup("c", group_id) for group_id in wanted}
    found: dict[str, list[str]] = {group_id: [] for group_id in wanted}
    ends: dict[str, Any] = {}
    begin = 0
    for end in (*sorted(cut for cut in cuts if cut < len(places)), len(places)):
        batch = [row for row in rows if begin <= row["offset"] - first < end]
        begin = end
        before = ReadBefore(records={"k": ends.get("k", {}).get("records", {})})
        table = arrow_of(batch)
        events, rejected = parse_here(table, before)
        assert parse_on_executor(table, before, chunk) == (events, rejected)
        stream = f"{OFFSETS_TOPIC}-0"
        intake = Intake(records=before.and_now({"k": {stream: len(batch)}}, {"k": {stream: rejected}}))
        ends = orjson.loads(orjson.dumps(intake.source_end(ends)[0]))
        for event in events:
            group_id = event.group_id or ""
            found[group_id] += [v.kind for v in versions(groups[group_id].advance(event, view(T4)))]
        groups = {name: ObservedGroup.load(group.dump(), "c", name) for name, group in groups.items()}
    assert found == wanted


class TestWhatIsCarried:
    """The numbers that the log keeps from batch to batch."""

    STREAM = f"{OFFSETS_TOPIC}-0"

    def stretch(self, before: ReadBefore, offset: int, row: int = 0) -> str | None:
        """Name the stretch of a record."""
        table = arrow_of([{"offset": offset, "key": b"k", "value": b"v", "is_filtered": False}])
        table = table.set_column(table.schema.names.index("row"), "row", pa.array([row], pa.int64()))
        (record,) = number_records(table, NAMES, {})
        return Stretches(before).name(record)

    def commit(self, tables: Tables, end: str) -> None:
        """Log a batch that holds nothing but where the sources stand."""
        seq = tables.transaction_version(LOG, LOG_APP) + 1
        batch = {"batch_id": seq, "checkpoint_id": "one", "source_end": end, "input_digest": "d"}
        row = {"kind": "batch", "batch": batch}
        tables.append(LOG, rows_to_log([row], seq, observed_at_us=seq), app_id=LOG_APP, version=seq)

    def test_a_restart_counts_on(self, tmp_path: Path) -> None:
        """What the last batch row says is where the next batch goes on."""
        tables = Tables(str(tmp_path))
        log = Log(tables)
        assert log.read_before(["k"]) == ReadBefore(records={"k": {}})
        intake = Intake(records={"k": {self.STREAM: 7}}, partitions={"k": {self.STREAM: 9}})
        self.commit(tables, log.source_end(intake.source_end({})[0]))
        assert Log(tables).read_before(["k"]) == ReadBefore(records={"k": {self.STREAM: 7}})

    def test_an_adopted_checkpoint_counts_anew(self, tmp_path: Path) -> None:
        """It may begin anywhere, so none of its stretches is one of before, nor after a restart."""
        tables = Tables(str(tmp_path))
        end = {"k": {"partitions": {self.STREAM: 9}, "records": {self.STREAM: 7}}}
        self.commit(tables, Log(tables).source_end(end))
        log = Log(tables)
        old = log.read_before(["k"])
        log.adopt()
        new = log.read_before(["k"])
        assert new == ReadBefore(adopted_after=1, records={"k": {}})
        assert log.sources["k"] == {"partitions": {self.STREAM: 9}}
        assert self.stretch(old, 9) != self.stretch(new, 9)
        same_missing = ReadBefore(adopted_after=1, records={"k": {self.STREAM: 7}})
        assert self.stretch(old, 9) != self.stretch(same_missing, 9)
        identity = BatchIdentity(checkpoint_id="two", batch_id=0, digest="d")
        intake = Intake(records=new.and_now({"k": {self.STREAM: 3}}, {}))
        sources = intake.source_end(log.sources)[0]
        self.commit(tables, log.source_end(sources))
        log.note(identity, 2, sources)
        assert log.read_before(["k"]) == Log(tables).read_before(["k"])
        assert Log(tables).read_before(["k"]) == ReadBefore(adopted_after=1, records={"k": {self.STREAM: 3}})

    def test_what_an_earlier_release_has_read_it_did_not_count(self) -> None:
        """The count begins behind it, above every number that there was, should it have counted once."""
        end = {"k": {"partitions": {self.STREAM: 500}}}
        before = ReadBefore(records={"k": end["k"].get("records", {})})
        once = ReadBefore(records={"k": {self.STREAM: 0}})
        assert self.stretch(before, 500) == self.stretch(before, 503, row=3)
        assert self.stretch(before, 500) not in {self.stretch(once, offset) for offset in range(500)}

    def test_a_state_of_an_earlier_release_loads(self) -> None:
        """It has no stretch: the first jump is a gap, as it was, and the next is known."""
        group = ObservedGroup("c", "g")
        first, second, third = in_stretches(
            (CREATED, "s"), (generation(2, "a"), "s"), (generation(4, "a", "b"), "s")
        )
        group.advance(first, view(T4))
        state = json.loads(group.dump())
        del state["history"]["stretch"]
        old = ObservedGroup.load(json.dumps(state), "c", "g")
        assert kinds(versions([*old.advance(second, view(T4)), *old.advance(third, view(T4))])) == [
            ("gap", 2),
            ("rebalance", 4),
        ]

    def test_sources_that_are_not_counted_have_no_stretches(self) -> None:
        """Files, captured records and topics of events say nothing of what they left out."""
        assert self.stretch(ReadBefore(records={"other": {}}), 9) is None
        table = arrow_of([{"offset": 9, "key": b"k", "value": b"v", "is_filtered": False}])
        (record,) = number_records(table.drop_columns(["row"]), NAMES, {})
        assert Stretches(ReadBefore(records={"k": {}})).name(record) is None


@pytest.mark.spark
def test_spark_numbers_and_counts_what_it_leaves_out(spark: SparkSession) -> None:
    """Each row keeps its number among all of its task, and each partition is counted whole, by source."""
    rows = [
        (source, partition, 100 + n, n % 3 == 0)
        for source, partition, count in (("k", 0, 7), ("k", 3, 1), ("j", 0, 4), ("files", -1, 5))
        for n in range(count)
    ]
    # As in a batch of the job, every partition of every source is a task of its own.
    schema = "source string, partition int, offset bigint, is_filtered boolean"
    tasks = [[r for r in rows if r[:2] == task] for task in dict.fromkeys(r[:2] for r in rows)]
    frames = [spark.createDataFrame(task, schema).coalesce(1) for task in tasks]
    frame = frames[0]
    for other in frames[1:]:
        frame = frame.union(other)
    sources = [SOURCE, replace(SOURCE, name="j", location="copy")]
    kept, observation = count_and_filter(frame, sources)
    found = {(r["source"], r["partition"], r["offset"], r["row"]) for r in kept.collect()}
    assert found == {(s, p, o, o - 100) for s, p, o, is_filtered in rows if not is_filtered}
    filtered, read = records_read(observation.get, sources)
    assert filtered == sum(is_filtered for *_, is_filtered in rows)
    assert read == {"k": {f"{OFFSETS_TOPIC}-0": 7, f"{OFFSETS_TOPIC}-3": 1}, "j": {"copy-0": 4}}


@pytest.mark.spark
def test_spark_counts_more_partitions_than_a_histogram_has_by_default(spark: SparkSession) -> None:
    """Each partition's count is its own and exact; of an empty batch there is none."""
    columns = ("'k' AS source", "CAST(id % 999 AS int) AS partition", "false AS is_filtered")
    for first in (0, 99_900):
        rows = spark.range(99_900).where(F.col("id") >= first).selectExpr(*columns)
        kept, observation = count_and_filter(rows, [SOURCE])
        kept.write.format("noop").mode("overwrite").save()
        each = {"k": {} if first else {f"{OFFSETS_TOPIC}-{n}": 100 for n in range(999)}}
        assert records_read(observation.get, [SOURCE]) == (0, each)


# Against a broker: members that do exactly what is wanted, over the wire

_JOIN, _HEARTBEAT, _SYNC = 11, 12, 14
_REBALANCE_IN_PROGRESS = 27
_NOT_YET = {14, 15, 16}
"""The coordinator loads, is not available, is not this one: what a broker says for a moment at first."""


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def _sized(raw: bytes) -> bytes:
    return struct.pack(">i", len(raw)) + raw


class _Answer:
    """Reads an answer field by field."""

    def __init__(self, raw: bytes) -> None:
        self._raw, self._at = raw, 0

    def number(self, code: str) -> int:
        (value,) = struct.unpack_from(f">{code}", self._raw, self._at)
        self._at += struct.calcsize(code)
        return int(value)

    def _cut(self, size: int) -> bytes:
        self._at += size
        return self._raw[self._at - size : self._at]

    def text(self) -> str:
        return self._cut(self.number("h")).decode()

    def sized(self) -> bytes:
        return self._cut(self.number("i"))


class Member:
    """One classic member that joins and syncs when it is told to; a context manager.

    Source: JoinGroupRequest and SyncGroupRequest of Kafka's protocol, versions 2 and 1.
    """

    def __init__(self, broker: KafkaBroker, group_id: str) -> None:
        host, port = broker.bootstrap_servers.split(":")
        self._group_id = group_id
        self._socket = socket.create_connection((host, int(port)), timeout=30)
        self.member_id, self.generation_id = "", -1
        self.members: list[str] = []

    def __enter__(self) -> Member:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def _send(self, api: int, version: int, body: bytes) -> None:
        self._socket.sendall(_sized(struct.pack(">hhi", api, version, 1) + _text("interrupted") + body))

    def _receive(self) -> _Answer:
        def exactly(size: int) -> bytes:
            raw = b""
            while len(raw) < size:
                more = self._socket.recv(size - len(raw))
                assert more, "the broker hung up"
                raw += more
            return raw

        answer = _Answer(exactly(struct.unpack(">i", exactly(4))[0]))
        answer.number("i")  # correlation id
        answer.number("i")  # throttled for
        return answer

    def ask_to_join(self) -> None:
        """Send a JoinGroup; the answer comes when everybody has."""
        body = _text(self._group_id) + struct.pack(">ii", 60_000, 60_000) + _text(self.member_id)
        subscription = b64decode(consumer_bytes(["orders-interrupted"], {}, -1))
        protocols = struct.pack(">i", 1) + _text("range") + _sized(subscription)
        self._send(_JOIN, 2, body + _text("consumer") + protocols)

    def joined(self) -> None:
        """Take the answer."""
        answer = self._receive()
        error = answer.number("h")
        if error in _NOT_YET:
            self.ask_to_join()
            return self.joined()
        assert error == 0
        self.generation_id = answer.number("i")
        answer.text()  # the protocol
        answer.text()  # the leader
        self.member_id = answer.text()
        self.members = []
        for _ in range(answer.number("i")):
            self.members.append(answer.text())
            answer.sized()
        return None

    def hears_of_rebalance(self) -> bool:
        """Send a heartbeat: whether the group prepares its next generation."""
        body = _text(self._group_id) + struct.pack(">i", self.generation_id) + _text(self.member_id)
        self._send(_HEARTBEAT, 1, body)
        return self._receive().number("h") == _REBALANCE_IN_PROGRESS

    def sync(self) -> None:
        """Send a SyncGroup; the leader's has range's assignment of twelve partitions."""
        size = 12 // max(len(self.members), 1)
        given = b"".join(
            _text(member)
            + _sized(b64decode(given_bytes({"orders-interrupted": range(i * size, (i + 1) * size)})))
            for i, member in enumerate(sorted(self.members))
        )
        where = _text(self._group_id) + struct.pack(">i", self.generation_id) + _text(self.member_id)
        self._send(_SYNC, 1, where + struct.pack(">i", len(self.members)) + given)

    def synced(self) -> None:
        """Take the answer."""
        assert self._receive().number("h") == 0


def join(present: list[Member], newcomer: Member) -> None:
    """Let one more member join, and the present ones again: a generation begins, nobody has synced yet."""
    newcomer.ask_to_join()
    for member in present:
        wait_until(member.hears_of_rebalance, 20, "the group does not rebalance")
    for member in present:
        member.ask_to_join()
    present.append(newcomer)
    for member in present:
        member.joined()


def settle(present: Sequence[Member]) -> None:
    """Let all sync: the generation completes, and its record is written."""
    for member in present:
        member.sync()
    for member in present:
        member.synced()


@dataclass(frozen=True, slots=True)
class Seen:
    """The rows of one job's tables about the group, versions in order."""

    versions: list[dict[str, Any]]
    deltas: list[dict[str, Any]]
    filtered: int

    @property
    def told(self) -> list[tuple[str, int, str]]:
        """Say of each version what must not depend on how the topic was read; members are told by order."""
        return [(row["kind"], row["generation_id"], row["reason"]) for row in self.versions]


def rows_of(job: LiveJob, group_id: str) -> Seen:
    """Read what a job's tables say of the group."""
    log = read_table(job.tables, "generations").to_pylist()
    found = [row for row in log if row["group_id"] == group_id and row["kind"] != "state"]
    deltas = read_table(job.tables, "assignment_deltas").to_pylist()
    return Seen(
        sorted(found, key=lambda row: row["version"]),
        [row for row in deltas if row["group_id"] == group_id],
        sum(row["batch"]["filtered"] for row in log if row["kind"] == "batch"),
    )


GROUP = "interrupted"


def neighbour_of(group_id: str) -> str:
    """Name a group that lives in the same of four partitions of `__consumer_offsets`."""

    def partition_of(text: str) -> int:
        value = 0
        for character in text:
            value = (31 * value + ord(character)) & 0xFFFFFFFF
        return abs(value - (1 << 32) if value >= 1 << 31 else value) % 4

    return next(n for i in range(99) if partition_of(n := f"next-door-{i}") == partition_of(group_id))


def commit(broker: KafkaBroker, *, in_transaction: bool) -> None:
    """Commit an offset next door; in a transaction its end leaves a control record, which nobody is given."""
    offsets = [TopicPartition("orders-interrupted", 0, 1)]
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": neighbour_of(GROUP)})
    try:
        if not in_transaction:
            consumer.commit(offsets=offsets, asynchronous=False)
            return
        producer = Producer(
            {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "interrupted", "log_level": 0}
        )
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 30)
        producer.commit_transaction(30)
    finally:
        consumer.close()


@pytest.fixture(scope="module")
def jobs(
    spark: SparkSession, kafka: KafkaBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Seen]]:
    """Interrupt generations under a job that watches, is away, and then let another read it all at once."""
    folder = tmp_path_factory.mktemp("interrupted")
    kafka.create_topic("orders-interrupted", 12)
    with ExitStack() as running:
        members = iter([running.enter_context(Member(kafka, GROUP)) for _ in range(6)])
        watching = running.enter_context(LiveJob(spark, folder / "watching", kafka, starting="earliest"))
        present: list[Member] = []
        join(present, next(members))
        join(present, next(members))
        settle(present)
        watching.catch_up()
        commit(kafka, in_transaction=False)
        watching.stop()
        join(present, next(members))
        commit(kafka, in_transaction=False)
        join(present, next(members))
        settle(present)
        watching.start()
        watching.catch_up()
        commit(kafka, in_transaction=True)
        join(present, next(members))
        watching.catch_up()
        join(present, next(members))
        settle(present)
        watching.catch_up()
        watching.stop()
        seen = [rows_of(watching, GROUP)]
        at_once = running.enter_context(
            LiveJob(spark, folder / "at-once", kafka, starting="earliest", batch__local_max_records="0")
        )
        at_once.catch_up()
        at_once.stop()
        yield [*seen, rows_of(at_once, GROUP)]


@pytest.mark.live
@pytest.mark.spark
def test_a_broker_s_interrupted_generations_are_rebalances(jobs: list[Seen]) -> None:
    """Across commits, batches and a restart; but a gap where a transaction ended between the records."""
    watching, _ = jobs
    created, two, four, six = watching.versions
    assert (created["kind"], created["generation_id"]) == ("rebalance", 0)
    for version, unfinished in ((two, 1), (four, 3)):
        assert (version["kind"], version["generation_id"]) == ("rebalance", unfinished + 1)
        assert version["reason"].endswith(f"; generation {unfinished} never completed")
        assert version["expected_status"] == "equal"
        assert [row for row in watching.deltas if row["version"] == version["version"]]
    assert (six["kind"], six["reason"].split(" not")[0]) == ("gap", "gap: generation 5")
    assert not [row for row in watching.deltas if row["version"] == six["version"]]
    assert watching.filtered >= 2


@pytest.mark.live
@pytest.mark.spark
def test_executors_in_one_batch_say_the_same(jobs: list[Seen]) -> None:
    """A job that comes later, and takes the whole topic through the executors, tells the same story."""
    watching, at_once = jobs
    assert at_once.told == watching.told
    assert at_once.filtered >= watching.filtered
