"""What runs on the executors: functions over Arrow batches, the same steps as in the driver's process.

`DataFrame.mapInArrow` calls them; each is made with what it must know (names of files,
topics, rules), all of it picklable. A group lies whole in one shard, mmh3 of (cluster,
group_id), and is advanced from its latest state and its events.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from enum import IntEnum
from itertools import groupby
from typing import TYPE_CHECKING, Any

import mmh3
import pyarrow as pa

from streaming.batches.batch import Hold, rejected_rows
from streaming.events.parsing import Rejection
from streaming.events.patterns import ChangedTopics
from streaming.events.stretches import Stretches
from streaming.garbage import look_for_cycles_rarely
from streaming.groups.advance import GroupWork, advance_groups
from streaming.groups.broadcast import BatchBroadcast, order_broadcast
from streaming.sources.streams import Block, digest_of, number_records, parse_raw
from streaming.tables.schemas import GENERATIONS

if TYPE_CHECKING:
    from streaming.events.stretches import ReadBefore
    from streaming.groups.rules import GroupRules
    from streaming.model import Input, TopicState
    from streaming.sources.records import ParseRules


class Tag(IntEnum):
    """What a row between the steps is; a group's state sorts before its events."""

    STATE = 0
    EVENT = 1
    SHARED = 2
    REJECTED = 3
    ALREADY_READ = 4


PARSED = pa.schema(
    [
        ("tag", pa.int8()),
        ("shard", pa.int32()),
        ("cluster", pa.string()),
        ("group_id", pa.string()),
        ("source", pa.string()),
        ("path", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("record_time_ms", pa.int64()),
        ("digest_high", pa.int64()),
        ("digest_low", pa.int64()),
        ("payload", pa.binary()),
    ]
)
"""One row per record: `tag` says what it is; `payload` is the pickled Input or Rejection, or, where
the tag says state, the text of a group's logged state. `record_time_ms` only for `__consumer_offsets`."""

COMPUTED = GENERATIONS.append(pa.field("ordinal", pa.int64()))
KEY = ["cluster", "group_id"]
TOUCHED = pa.schema([PARSED.field(name) for name in ("shard", *KEY)])

Batches = Iterable[pa.RecordBatch]


def shard_of(cluster: str, group_id: str, shards: int) -> int:
    """Say in which shard a group is computed."""
    return int(mmh3.hash(f"{cluster}\0{group_id}".encode(), signed=False)) % shards


def parser(
    rules: ParseRules,
    names: Mapping[tuple[str, str], str],
    before: Mapping[Block, int],
    lines_read: Mapping[str, Mapping[str, int]],
    read_before: ReadBefore,
    shards: int,
) -> Callable[[Batches], Batches]:
    """Make the step that numbers and parses raw records; rows of PARSED.

    Args:
        rules: sources and limits.
        names: (source, path) -> name, from `file_names`.
        before: lines that stand before each block, from `lines_before`.
        lines_read: what an earlier checkpoint has read: source -> stream -> how far.
        read_before: what earlier batches have read.
        shards: how many there are.
    """

    def parse(batches: Batches) -> Batches:
        look_for_cycles_rarely()
        next_line, stretches = dict(before), Stretches(read_before)
        for batch in batches:
            rows = []
            for record in number_records(batch, names, next_line):
                digest, at = digest_of(record), record.position
                row = {"digest_high": digest >> 32, "digest_low": digest & 0xFFFF_FFFF, "source": at.source}
                if at.ordinal <= lines_read.get(at.source, {}).get(at.stream, 0):
                    rows.append({**row, "tag": Tag.ALREADY_READ})
                    continue
                parsed = parse_raw(record, rules, stretches)
                place = parsed.position
                row |= {"path": place.path, "partition": place.partition, "offset": place.offset}
                if isinstance(parsed, Rejection):
                    row["tag"] = Tag.REJECTED
                else:
                    _describe(row, parsed, rules, shards)
                rows.append({**row, "payload": pickle.dumps(parsed, protocol=5)})
            yield pa.RecordBatch.from_pylist(rows, schema=PARSED)

    return parse


def _describe(row: dict[str, Any], event: Input, rules: ParseRules, shards: int) -> None:
    row["cluster"] = event.cluster
    if event.group_id is None:
        row["tag"] = Tag.SHARED
    else:
        row |= {
            "tag": Tag.EVENT,
            "group_id": event.group_id,
            "shard": shard_of(event.cluster, event.group_id, shards),
        }
    if rules.sources[event.position.source].format == "offsets":
        row["record_time_ms"] = event.event_time_ms


def toucher(changed_topics: Mapping[str, Collection[str]], shards: int) -> Callable[[Batches], Batches]:
    """Make the step that finds the groups that a batch touches beside its own; columns shard and KEY.

    Its input has KEY, is_touched, which says so of a group whose patterns need not be asked, and
    topics_patterns.

    Args:
        changed_topics: cluster -> topics that changed.
        shards: how many there are.
    """

    def touch(batches: Batches) -> Batches:
        by_pattern = {cluster: ChangedTopics(topics) for cluster, topics in changed_topics.items()}
        for batch in batches:
            columns = (batch.column(name).to_pylist() for name in (*KEY, "is_touched", "topics_patterns"))
            touched = [
                {"shard": shard_of(cluster, group_id, shards), "cluster": cluster, "group_id": group_id}
                for cluster, group_id, is_touched, patterns in zip(*columns, strict=True)
                if is_touched or by_pattern[cluster].match_any(patterns)
            ]
            yield pa.RecordBatch.from_pylist(touched, schema=TOUCHED)

    return touch


def computer(
    topics: Mapping[str, Mapping[str, TopicState]],
    rules: GroupRules,
    broadcast: BatchBroadcast,
    holds: frozenset[Hold],
) -> Callable[[Batches], Batches]:
    """Make the step that advances groups; rows of COMPUTED.

    Its input has KEY, tag and payload, each group's rows together, its state first.

    Args:
        topics: cluster -> topic -> state before the batch.
        rules: the settings that decide.
        broadcast: the batch's topic changes and ticks.
        holds: versions that a critical check refused.
    """

    def works(batches: Batches) -> Iterator[GroupWork]:
        rows = (
            row
            for batch in batches
            for row in zip(
                *(batch.column(name).to_pylist() for name in (*KEY, "tag", "payload")), strict=True
            )
        )
        for (cluster, group_id), group in groupby(rows, key=lambda row: row[:2]):
            state: str | None = None
            inputs: list[Input] = []
            for *_, tag, payload in group:
                if tag == Tag.STATE:
                    state = None if payload is None else payload.decode()
                else:
                    inputs.append(pickle.loads(payload))  # noqa: S301 - our own parse step wrote it
            yield GroupWork(cluster, group_id, state, order_broadcast(inputs), broadcast)

    def compute(batches: Batches) -> Batches:
        look_for_cycles_rarely()
        chunk: list[dict[str, Any]] = []
        for row in advance_groups(works(batches), topics, rules, holds):
            chunk.append(row)
            if len(chunk) == 500:
                yield pa.RecordBatch.from_pylist(chunk, schema=COMPUTED)
                chunk = []
        if chunk:
            yield pa.RecordBatch.from_pylist(chunk, schema=COMPUTED)

    return compute


def rejecter(raw_bytes: int) -> Callable[[Batches], Batches]:
    """Make the step that turns rejections, in the order of their positions, into rows of the log."""

    def reject(batches: Batches) -> Batches:
        rejections = (
            pickle.loads(payload)  # noqa: S301 - our own parse step wrote it
            for batch in batches
            for payload in batch.column("payload").to_pylist()
        )
        for row in rejected_rows(rejections, raw_bytes):
            yield pa.RecordBatch.from_pylist([row], schema=GENERATIONS)

    return reject
