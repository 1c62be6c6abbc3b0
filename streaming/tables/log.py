"""The log `generations`: its batches, what a batch that comes (again) means, and the state it adds up to.

The commit protocol in short (docs/adr/0004): one append a batch is the commit point; a
batch that the log already holds is not computed again; the state of a group is the latest
of its row in the snapshot `groups` and its rows in the log behind that snapshot, the tail.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from streaming.events.patterns import ChangedTopics
from streaming.events.stretches import ReadBefore
from streaming.model import WEIGHTED, TopicState
from streaming.tables.delta import LOG, JobError, Tables
from streaming.tables.schemas import GENERATIONS, TOPICS

LOG_APP = "counterpoise-log"
SNAPSHOT_APP = "counterpoise-snapshot"

ORDINAL_BITS = 24
"""log_seq = batch_seq * 2^24 + the row's number in its batch: 16 million rows a batch, 2^39 batches."""

GROUP_KINDS = ("rebalance", "state", "held", "baseline", "gap", "deleted")

RECENT_STATE_BYTES = 64 * 1024 * 1024
"""How much state stays in memory after a snapshot, to spare reading it back for groups that change often."""

_TAIL_COLUMNS = [
    name
    for name in GENERATIONS.names
    if name not in ("events", "checks", "check_inputs", "deltas", "certificate")
]

GroupKey = tuple[str, str]
"""(cluster, group_id)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchIdentity:
    """What tells one micro-batch from every other: whose, which, and what was in it."""

    checkpoint_id: str
    batch_id: int
    digest: str


class Log:
    """The log's batches, as the driver knows them."""

    def __init__(self, tables: Tables) -> None:
        """Find the last batch."""
        self._tables = tables
        self.last_batch_seq = tables.transaction_version(LOG, LOG_APP)
        self._by_checkpoint: dict[str, BatchIdentity] = {}
        self.sources: dict[str, Any] = {}
        self._adopted_after = 0
        if self.last_batch_seq:
            end = orjson.loads(
                self._batches(self.last_batch_seq, self.last_batch_seq)[-1]["batch"]["source_end"]
            )
            self.sources, self._adopted_after = end["sources"], end["adopted_after"]

    def _batches(self, first: int, last: int) -> list[dict[str, Any]]:
        columns = ["batch_seq", "kind", "batch"]
        rows = self._tables.read(LOG, columns, pc.field("kind") == "batch", batches=(first, last))
        return sorted(rows.to_pylist(), key=lambda row: int(row["batch_seq"]))

    def last_of(self, checkpoint_id: str) -> BatchIdentity | None:
        """Give the last batch that this checkpoint wrote, None when the log knows nothing of it."""
        if checkpoint_id not in self._by_checkpoint:
            # The last batches almost always answer; only a foreign checkpoint reads the whole log.
            for first in (max(self.last_batch_seq - 50, 1), 1):
                for row in self._batches(first, self.last_batch_seq):
                    batch = row["batch"]
                    self._by_checkpoint[batch["checkpoint_id"]] = BatchIdentity(
                        checkpoint_id=batch["checkpoint_id"],
                        batch_id=batch["batch_id"],
                        digest=batch["input_digest"],
                    )
                if checkpoint_id in self._by_checkpoint:
                    break
        return self._by_checkpoint.get(checkpoint_id)

    def place_of(self, batch: BatchIdentity, *, adopt: bool) -> Literal["new", "replay", "adopted"]:
        """Say whether this batch comes for the first time, is in the log already, or begins anew over it.

        Args:
            batch: the batch that Spark hands over.
            adopt: take a checkpoint that does not fit the log as a new beginning.

        Raises:
            JobError: checkpoint and log do not belong together, and `adopt` is False.
        """
        if not self.last_batch_seq and batch.batch_id == 0:
            return "new"
        last = self.last_of(batch.checkpoint_id)
        if last is not None and batch == last:
            return "replay"
        if last is not None and batch.batch_id == last.batch_id + 1:
            return "new"
        if adopt:
            return "adopted"
        raise JobError(self.misfit(batch, last))

    def misfit(self, batch: BatchIdentity, last: BatchIdentity | None) -> str:
        """Say what does not fit between a batch and the last that the log has of its checkpoint."""
        where = f"log {self._tables.location(LOG)}"
        here = f"checkpoint {batch.checkpoint_id} is at batch {batch.batch_id}"
        if last is None:
            found = f"{here}, and the log ({self.last_batch_seq} batches) has never seen that checkpoint"
            cause = "the checkpoint was deleted or belongs to other tables, or the tables were deleted"
        elif batch.batch_id > last.batch_id:
            found = f"{here}, the log has it only up to batch {last.batch_id}"
            cause = "the tables were restored to an older state, or another job shares the checkpoint"
        elif batch.batch_id == last.batch_id:
            found = f"{here} with digest {batch.digest}, the log holds that batch with digest {last.digest}"
            cause = "files of the batch were changed or removed after they were read"
        else:
            found = f"{here}, the log has it up to batch {last.batch_id}; at most one batch may be ahead"
            cause = "the checkpoint was restored to an older state"
        return (
            f"{where}: {found}; likely {cause}; put back what belongs together, or run once with "
            "--adopt to go on from the log as it is (what it holds already counts as duplicate)"
        )

    def adopt(self) -> None:
        """Let all that the log holds so far count as read by an earlier checkpoint."""
        self._adopted_after = self.last_batch_seq
        self.sources = {
            name: {what: known for what, known in end.items() if what != "records"}
            for name, end in self.sources.items()
        }

    def read_before(self, counted: Iterable[str]) -> ReadBefore:
        """Say how many records of each of these sources, counted one by one, the log's batches have read."""
        records = {name: self.sources.get(name, {}).get("records", {}) for name in counted}
        return ReadBefore(adopted_after=self._adopted_after, records=records)

    def source_end(self, sources: Mapping[str, Any]) -> str:
        """Write where the sources stand, as the batch row keeps it.

        Where an earlier checkpoint's part of the log ends is carried along, because the
        new one may need many batches, and restarts, to come past the same input.
        """
        return orjson.dumps({"adopted_after": self._adopted_after, "sources": sources}).decode()

    def note(self, batch: BatchIdentity, batch_seq: int, sources: dict[str, Any]) -> None:
        """Remember a batch that has just been committed."""
        self._by_checkpoint[batch.checkpoint_id] = batch
        self.last_batch_seq = batch_seq
        self.sources = sources

    def lines_read(self) -> dict[str, dict[str, int]]:
        """List what an earlier checkpoint has read: source -> stream -> how far (see Position.ordinal).

        {} when none was adopted.
        """
        read: dict[str, dict[str, int]] = {}
        for row in self._batches(1, self._adopted_after) if self._adopted_after else ():
            for source, end in orjson.loads(row["batch"]["source_end"])["sources"].items():
                known = read.setdefault(source, {})
                for stream, ordinal in {**end.get("files", {}), **end.get("partitions", {})}.items():
                    known[stream] = max(known.get(stream, 0), ordinal)
        return read

    def rows_after(self, batch_seq: int) -> pa.Table:
        """Read the group and topic rows of all later batches, without what only the outbox needs."""
        kinds = pc.field("kind").isin([*GROUP_KINDS, "topic"])
        return self._tables.read(LOG, _TAIL_COLUMNS, kinds, batches=(batch_seq + 1, self.last_batch_seq))

    def rows_of(self, batch_seq: int) -> pa.Table:
        """Read all rows of one batch, in order."""
        rows = self._tables.read(LOG, GENERATIONS.names, batches=(batch_seq, batch_seq))
        return rows.sort_by("log_seq")


class Tail:
    """The rows behind the snapshots, in the driver's memory, and the state that they add up to.

    Bounded: the job refreshes the snapshots when it holds more rows than a setting says.
    """

    def __init__(self, tables: Tables, log: Log) -> None:
        """Read what the log holds behind the oldest snapshot table."""
        self._tables = tables
        self._rows: list[pa.Table] = []
        self._latest: dict[GroupKey, dict[str, Any]] = {}
        self._recent: dict[GroupKey, str | None] = {}
        self._recent_bytes = 0
        self.topics: dict[str, dict[str, TopicState]] = {}
        self._load_topics()
        oldest = min(
            tables.transaction_version(name, SNAPSHOT_APP)
            for name in ("groups", "topics", "alerts", "assignments")
        )
        if log.last_batch_seq > oldest:
            self.add(log.rows_after(oldest).sort_by("log_seq"))

    def _load_topics(self) -> None:
        for row in self._tables.read("topics", _TOPIC_COLUMNS).to_pylist():
            self.topics.setdefault(row["cluster"], {})[row["topic"]] = topic_state_of(row, row["event_time"])

    def add(self, rows: pa.Table) -> None:
        """Take in the rows of a committed batch, in the order of `log_seq`."""
        wanted = pc.is_in(rows["kind"], pa.array([*GROUP_KINDS, "topic"]))
        kept = rows.select(_TAIL_COLUMNS).filter(wanted)
        if not kept.num_rows:
            return
        self._rows.append(kept)
        for row in kept.filter(pc.equal(kept["kind"], "topic")).to_pylist():
            states = self.topics.setdefault(row["cluster"], {})
            states[row["topic_state"]["topic"]] = topic_state_of(row["topic_state"], row["event_time"])
        groups = kept.select(_STATE_COLUMNS).filter(pc.not_equal(kept["kind"], "topic"))
        keys = zip(groups["cluster"].to_pylist(), groups["group_id"].to_pylist(), strict=True)
        last = {key: place for place, key in enumerate(keys)}
        for row in _with_epoch_times(groups.take(pa.array(last.values(), pa.int64()))).to_pylist():
            self._latest[(row["cluster"], row["group_id"])] = row

    def clusters(self) -> set[str]:
        """Name the clusters with a group or a topic."""
        snapshot = self._tables.read("groups", ["cluster"])["cluster"].unique().to_pylist()
        return {*snapshot, *self.topics, *(cluster for cluster, _ in self._latest)}

    def groups_of_type(self, protocol_type: str) -> set[GroupKey]:
        """Name the observed groups of a protocol type, by what the snapshot and the tail say of them."""
        columns = ["cluster", "group_id", "group_kind", "protocol_type"]
        return groups_of_type(self._tables.read("groups", columns), protocol_type).union(
            *(groups_of_type(rows, protocol_type) for rows in self._rows)
        )

    @property
    def row_count(self) -> int:
        """Count the rows held."""
        return sum(rows.num_rows for rows in self._rows)

    @property
    def byte_count(self) -> int:
        """Count the bytes of the rows held, and of the states kept at hand."""
        return self._recent_bytes + sum(int(rows.nbytes) for rows in self._rows)

    def rows_after(self, batch_seq: int) -> pa.Table:
        """Give the held rows of later batches."""
        empty = pa.schema([GENERATIONS.field(name) for name in _TAIL_COLUMNS]).empty_table()
        rows = pa.concat_tables([empty, *self._rows])
        is_later = pc.greater(rows["batch_seq"], batch_seq)
        # Mostly all are; a filter would copy every state.
        return rows if pc.all(is_later, min_count=0).as_py() else rows.filter(is_later)

    def drop(self) -> None:
        """Forget the rows, which every snapshot table holds now; part of the states stays at hand."""
        for key, row in self._latest.items():
            self._recent_bytes -= len(self._recent.pop(key, None) or "")
            self._recent[key] = row["state"]
            self._recent_bytes += len(row["state"] or "")
        while self._recent_bytes > RECENT_STATE_BYTES:
            self._recent_bytes -= len(self._recent.pop(next(iter(self._recent))) or "")
        self._rows.clear()
        self._latest.clear()

    def states_of(self, keys: Collection[GroupKey]) -> dict[GroupKey, str | None]:
        """Look up the logged state of groups; a group never seen is absent."""
        found: dict[GroupKey, str | None] = {}
        elsewhere: dict[str, list[str]] = {}
        for key in keys:
            if key in self._latest:
                found[key] = self._latest[key]["state"]
            elif key in self._recent:
                found[key] = self._recent[key]
            else:
                elsewhere.setdefault(key[0], []).append(key[1])
        for cluster, group_ids in sorted(elsewhere.items()):
            for group_id, state in self._tables.states_of(cluster, sorted(group_ids)).items():
                found[(cluster, group_id)] = state
        return found

    def touched_groups(
        self,
        changed_topics: Mapping[str, Collection[str]],
        ticks_us: Mapping[str, int],
        waiting: Collection[str],
        told_loads: Mapping[str, Collection[str]] = MappingProxyType({}),
    ) -> set[GroupKey]:
        """Find the groups that something other than their own events may advance.

        Args:
            changed_topics: cluster -> topics that changed: groups subscribed to them, or by a pattern
                that takes one of them in, or that is not known.
            ticks_us: cluster -> what time it has become: groups whose next timer is due.
            waiting: clusters with records of `__consumer_offsets` in this batch: observed
                groups that wait for their partition to go on.
            told_loads: cluster -> topics whose partitions' loads were told: groups that go by weight
                and read them, and those that are set aside, which hear everything.
        """
        clusters = {*changed_topics, *ticks_us, *waiting, *told_loads}
        if not clusters:
            return set()
        where = pc.field("cluster").isin(sorted(clusters))
        if not changed_topics:
            where = where & (pc.field("next_timer").is_valid() | (pc.field("protocol") == WEIGHTED))
        rows = _with_epoch_times(self._tables.read("groups", _TOUCH_COLUMNS, where))
        candidates: Iterable[dict[str, Any]] = [
            row for row in rows.to_pylist() if (row["cluster"], row["group_id"]) not in self._latest
        ]
        topic_sets = {cluster: frozenset(topics) for cluster, topics in changed_topics.items()}
        by_pattern = {cluster: ChangedTopics(topics) for cluster, topics in changed_topics.items()}
        load_sets = {cluster: frozenset(topics) for cluster, topics in told_loads.items()}
        touched = set()
        for row in (*candidates, *self._latest.values()):
            cluster, timer = row["cluster"], row["next_timer"]
            changed = topic_sets.get(cluster)
            if (
                (changed and not changed.isdisjoint(row["subscribed_topics"] or ()))
                or (changed and row["has_pattern"] and by_pattern[cluster].match_any(row["topics_patterns"]))
                or (timer is not None and cluster in ticks_us and timer <= ticks_us[cluster])
                or (timer is not None and cluster in waiting and row["group_kind"] == "observed")
                or (cluster in load_sets and _hears_loads(row, load_sets[cluster]))
            ):
                touched.add((cluster, row["group_id"]))
        return touched


def groups_of_type(rows: pa.Table, protocol_type: str) -> set[GroupKey]:
    """Name the observed groups of a protocol type in rows of the log or of the snapshot."""
    is_wanted = pc.and_(
        pc.equal(rows["protocol_type"], protocol_type), pc.equal(rows["group_kind"], "observed")
    )
    wanted = rows.filter(is_wanted)
    return set(zip(wanted["cluster"].to_pylist(), wanted["group_id"].to_pylist(), strict=True))


_TOUCH_COLUMNS = [
    *("cluster", "group_id", "group_kind", "subscribed_topics", "has_pattern", "topics_patterns"),
    *("next_timer", "protocol"),
]
_STATE_COLUMNS = [*_TOUCH_COLUMNS, "log_seq", "state"]
_TOPIC_COLUMNS = [name for name in TOPICS.names if name != "log_seq"]


def _hears_loads(row: Mapping[str, Any], told: frozenset[str]) -> bool:
    if row["protocol"] == WEIGHTED and not told.isdisjoint(row["subscribed_topics"] or ()):
        return True
    return bool(row["has_pattern"]) and row["topics_patterns"] is None


def _with_epoch_times(rows: pa.Table) -> pa.Table:
    """Turn top-level times into integers: a datetime object a row costs more than all the rest."""
    for index, field in enumerate(rows.schema):
        if pa.types.is_timestamp(field.type):
            rows = rows.set_column(index, field.name, rows.column(index).cast(pa.int64()))
    return rows


def topic_state_of(row: Mapping[str, Any], event_time: Any) -> TopicState:
    """Read a topic's state from its row in the log or in the snapshot."""
    return TopicState(
        topic=row["topic"],
        partition_count=row["partition_count"],
        topic_id=row["topic_id"],
        racks=tuple(tuple(racks) for racks in row["partition_racks"] or ()),
        event_time_ms=_milliseconds(event_time),
        history=tuple((_milliseconds(old["until"]), old["partition_count"]) for old in row["history"] or ()),
        recent_ids={seen["event_id"]: _milliseconds(seen["event_time"]) for seen in row["recent_ids"] or ()},
        loads=tuple(row["partition_loads"] or ()),
        loads_ms=None if row["loads_time"] is None else _milliseconds(row["loads_time"]),
    )


def _milliseconds(time: Any) -> int:
    return 0 if time is None else int(pa.scalar(time, type=pa.timestamp("us", tz="UTC")).value) // 1000


def topic_struct(state: TopicState) -> dict[str, Any]:
    """Write a topic's state as the column `topic_state` holds it."""
    return {
        "topic": state.topic,
        "topic_id": state.topic_id,
        "partition_count": state.partition_count,
        "partition_racks": [list(racks) for racks in state.racks],
        "history": [
            {"until": until_ms * 1000, "partition_count": count} for until_ms, count in state.history
        ],
        "recent_ids": [
            {"event_id": event_id, "event_time": seen_ms * 1000}
            for event_id, seen_ms in state.recent_ids.items()
        ],
        "partition_loads": list(state.loads),
        "loads_time": None if state.loads_ms is None else state.loads_ms * 1000,
    }
