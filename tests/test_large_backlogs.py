"""Large groups and many of them: nothing is lost, and nothing grows with more than what is there."""

from __future__ import annotations

import gc
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from bench.offsets_topic import commit_records, partition_of, records_of_groups
from streaming.batches.executors import computer
from streaming.events.offsets_records import decode_record
from streaming.events.parsing import Rejection, parse_record
from streaming.groups.broadcast import BatchBroadcast
from streaming.groups.rules import GroupRules
from streaming.model import Input, Position
from streaming.tables.publish import flatten
from streaming.tables.schemas import GENERATIONS
from tests.playing import Player

TOPICS = {"topic-0": "A" * 21 + "g", "topic-1": "A" * 21 + "w"}
PARTITIONS = 4


def inputs_of(numbers: range, generations: int, **more: Any) -> list[Input]:
    """Read generated records as the Kafka source hands them on."""
    inputs = []
    for offset, record in enumerate(records_of_groups(numbers, generations, TOPICS, PARTITIONS, **more)):
        parsed = parse_record(
            record.value,
            position=Position("offsets", "__consumer_offsets", record.partition, offset),
            format="offsets",
            default_cluster="default",
            max_record_bytes=4_194_304,
            kafka_key=record.key,
            kafka_timestamp_ms=1_795_225_200_000 + offset // 10_000,
        )
        assert not isinstance(parsed, Rejection), parsed.reason
        inputs.append(parsed)
    return inputs


@pytest.mark.parametrize("is_classic", [True, False], ids=["classic", "KIP-848"])
@pytest.mark.parametrize(("groups", "members"), [(30, 5), (1, 5_000)])
def test_every_record_and_generation_is_accounted_for(groups: int, members: int, *, is_classic: bool) -> None:
    """Small groups or a very large one: each record has one outcome, each generation one version."""
    inputs = inputs_of(range(groups), 3, is_classic=is_classic, members=members, topic_partitions=2 * members)
    player = Player()
    rows = player.play_inputs(inputs)
    outcomes = Counter(event["outcome"] for row in rows for event in row["events"])
    assert outcomes == {"applied": len(inputs)}
    generations = Counter(
        (row["group_id"], row["generation_id"]) for row in rows if row["kind"] in ("baseline", "rebalance")
    )
    assert {generation for _, generation in generations} == {1, 2, 3}
    assert len({group_id for group_id, _ in generations}) == groups
    for group_id in {row["group_id"] for row in rows}:
        latest = player.latest(group_id)
        owned = [p for entry in latest["assignment"] for p in entry["partitions"]]
        assert (len(latest["members"]), sorted(owned)) == (members, list(range(2 * members)))


def test_a_worker_does_not_look_for_cycles_at_every_turn() -> None:
    """What a batch makes lives to its end: looking through it again and again takes a quarter of the time."""
    before = gc.get_threshold()
    try:
        gc.set_threshold(700, 10, 10)
        assert list(computer({}, GroupRules(), BatchBroadcast(), frozenset())([])) == []
        assert gc.get_threshold()[0] >= 10_000
    finally:
        gc.set_threshold(*before)


def test_generated_commits_are_commits_of_the_same_groups() -> None:
    """A backlog's commits name groups and partitions that its groups' records have."""
    group_records = list(records_of_groups(range(4), 1, TOPICS, PARTITIONS, is_classic=True))
    groups = {(decode_record(r.key, r.value).group_id, r.partition) for r in group_records}
    commits = list(commit_records(40, 4, TOPICS, PARTITIONS))
    decoded = [decode_record(r.key, r.value) for r in commits]
    assert all(d.is_offset_commit and d.problem is None for d in decoded)
    assert {(d.group_id, r.partition) for d, r in zip(decoded, commits, strict=True)} == groups
    # "a".hashCode() is 97 in Java.
    assert partition_of("a", 50) == 97 % 50


def test_a_large_group_s_state_is_not_copied_for_its_deltas() -> None:
    """Three thousand deltas of a row with a megabyte of state are published, in the memory of the deltas."""
    deltas = [
        {"member_id": f"m{n}", "topic": "t", "partition": n, "change": "assigned"} for n in range(3_000)
    ]
    row = {
        "kind": "rebalance",
        "cluster": "c",
        "group_id": "g",
        "version": 7,
        "state": "x" * (1 << 20),
        "deltas": deltas,
    }
    rows = pa.Table.from_pylist([row], schema=GENERATIONS)
    before = pa.total_allocated_bytes()
    flat = flatten(rows, "assignment_deltas")
    assert pa.total_allocated_bytes() - before < 4 << 20
    assert flat.num_rows == 3_000
    assert flat["partition"].to_pylist() == list(range(3_000))
    assert set(flat["version"].to_pylist()) == {7}
