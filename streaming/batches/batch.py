"""One micro-batch as values: events sorted out, groups advanced, checked, and made into rows of the log.

Nothing here knows Spark; the driver's process runs all of it for a small batch,
and executors.py runs the same steps over shards of a large one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from checkpoints.run import CHECK_COLUMNS, CheckResult, CheckSuite, run_checks
from streaming.groups.broadcast import BatchBroadcast, advance_topics, order_broadcast
from streaming.groups.log_rows import WAITED, WENT_BACK, Row, event_row
from streaming.model import EventOutcome, Input, Position, TopicState
from streaming.tables.delta import JobError
from streaming.tables.log import ORDINAL_BITS, BatchIdentity, GroupKey, topic_struct
from streaming.tables.schemas import GENERATIONS

if TYPE_CHECKING:
    from streaming.events.parsing import Rejection
    from streaming.events.stretches import Records

REJECTED_PER_ROW = 256

Hold = tuple[str, str, int]
"""(cluster, group_id, version) of a generation that a critical check refused."""


@dataclass(kw_only=True)
class Intake:
    """What was read, before anything is decided.

    `records_read` counts every record; `filtered` those of them that were only
    counted, `already_read` those that the log holds from an earlier checkpoint (only
    under --adopt), and `added` events that the job itself put in, with no source.
    `files` maps source -> file -> lines read from it in this batch, `partitions`
    source -> topic-partition -> the offset behind the last record. `rejected_in` are the rejected
    records of Kafka partitions, `records` those read so far (see ReadBefore).
    """

    records_read: int = 0
    filtered: int = 0
    already_read: int = 0
    rejected: int = 0
    added: int = 0
    digest: int = 0
    files: dict[str, dict[str, int]] = field(default_factory=dict)
    partitions: dict[str, dict[str, int]] = field(default_factory=dict)
    rejected_in: Records = field(default_factory=dict)
    records: Records = field(default_factory=dict)

    def reach(self, at: Position) -> None:
        """Note that the record at this position was read."""
        ends = (self.files if at.partition < 0 else self.partitions).setdefault(at.source, {})
        ends[at.stream] = max(at.ordinal, ends.get(at.stream, 0))

    def identity(self, checkpoint_id: str, batch_id: int) -> BatchIdentity:
        """Name the batch; the digest covers every record and its place."""
        kept = self.records_read - self.filtered - self.added
        return BatchIdentity(
            checkpoint_id=checkpoint_id, batch_id=batch_id, digest=f"{kept}:{self.digest:016x}"
        )

    def source_end(self, before: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
        """Say where each source stands after this batch, and how many files came late.

        A file is late when its name sorts before one that an earlier batch has
        read: it is applied when it comes, and counted.

        Args:
            before: the same of the batch before.

        Returns:
            (source -> {"files": file -> lines of this batch, "last": the highest name
            so far} or, of a Kafka topic, {"partitions": topic-partition -> offset, "records":
            topic-partition -> number, where they are counted}, late files).
        """
        end: dict[str, Any] = {
            name: dict(known) if "partitions" in known else {"files": {}, "last": known["last"]}
            for name, known in before.items()
        }
        for what, by_source in (("partitions", self.partitions), ("records", self.records)):
            for name, numbers in by_source.items():
                known = end.setdefault(name, {"partitions": {}})
                known[what] = dict(sorted({**known.get(what, {}), **numbers}.items()))
        late = 0
        for name, files in self.files.items():
            last = end[name]["last"] if name in end else ""
            late += sum(file < last for file in files)
            end[name] = {"files": dict(sorted(files.items())), "last": max([last, *files])}
        return dict(sorted(end.items())), late


@dataclass(kw_only=True)
class SharedEvents:
    """A batch's topic changes, loads and ticks, applied: what groups must hear, and the rows they make."""

    broadcast: BatchBroadcast
    topic_rows: list[Row] = field(default_factory=list)
    loose: list[EventOutcome] = field(default_factory=list)
    changed_topics: dict[str, set[str]] = field(default_factory=dict)
    told_loads: dict[str, set[str]] = field(default_factory=dict)
    ticks_us: dict[str, int] = field(default_factory=dict)

    @property
    def waiting(self) -> set[str]:
        """Name the clusters whose `__consumer_offsets` went on in this batch."""
        return {cluster for cluster, _, _ in self.broadcast.partition_ends}


def apply_shared(
    events: Sequence[Input],
    partition_ends: Mapping[tuple[str, str, int], int],
    topics: Mapping[str, Mapping[str, TopicState]],
    dedupe_window_ms: int,
) -> SharedEvents:
    """Apply topic changes and ticks, cluster by cluster.

    Args:
        events: the batch's topic_changed, partition_load and time_advanced events, in any order, and
            records of `__consumer_offsets` that belong to no group.
        partition_ends: as BatchBroadcast has it.
        topics: cluster -> topic -> state before the batch.
        dedupe_window_ms: as advance_topics has it.
    """
    by_cluster: dict[str, list[Input]] = {}
    for event in events:
        by_cluster.setdefault(event.cluster, []).append(event)
    changes: dict[str, tuple[tuple[Input, TopicState | None], ...]] = {}
    shared = SharedEvents(broadcast=BatchBroadcast(changes, dict(partition_ends)))
    for cluster, unordered in sorted(by_cluster.items()):
        ordered = order_broadcast(unordered)
        results = iter(
            advance_topics(
                topics.get(cluster, {}),
                [event for event in ordered if event.topic is not None],
                dedupe_window_ms=dedupe_window_ms,
            )
        )
        heard: list[tuple[Input, TopicState | None]] = []
        outcomes: dict[str, list[EventOutcome]] = {}
        latest: dict[str, TopicState] = {}
        for event in ordered:
            if event.type == "unknown_record":
                # A record of a type that nobody knows names no group; it is counted and kept.
                reason = f"a record of key type {event.body['key_type']}, which is not known here"
                shared.loose.append(EventOutcome(event=event, outcome="ignored", reason=reason))
                continue
            if event.topic is None:
                heard.append((event, None))
                shared.loose.append(EventOutcome(event=event, outcome="applied"))
                time_us = event.event_time_ms * 1000
                shared.ticks_us[cluster] = max(time_us, shared.ticks_us.get(cluster, time_us))
                continue
            state, outcome = next(results)
            if outcome.outcome == "applied":
                heard.append((event, state))
                latest[event.topic] = state
                heard_of = shared.told_loads if event.type == "partition_load" else shared.changed_topics
                heard_of.setdefault(cluster, set()).add(event.topic)
                outcomes.setdefault(event.topic, []).append(outcome)
            else:
                shared.loose.append(outcome)
        changes[cluster] = tuple(heard)
        shared.topic_rows += [
            {
                "kind": "topic",
                "cluster": cluster,
                "event_time": state.event_time_ms * 1000,
                "topic_state": topic_struct(state),
                "events": [event_row(outcome) for outcome in outcomes[topic]],
            }
            for topic, state in sorted(latest.items())
        ]
    return shared


def note_partition_end(ends: dict[tuple[str, str, int], int], event: Input) -> None:
    """Keep the highest record timestamp of the event's partition of `__consumer_offsets`."""
    key = (event.cluster, event.position.path, event.position.partition)
    ends[key] = max(event.event_time_ms, ends.get(key, event.event_time_ms))


def rejected_rows(rejections: Iterable[Rejection], raw_bytes: int) -> Iterator[Row]:
    """Make the rows of rejected records, up to 256 in each.

    Args:
        rejections: in the order of their positions.
        raw_bytes: how much of each record is kept.
    """
    chunk: list[Row] = []
    for rejection in rejections:
        place = rejection.position
        chunk.append(
            {
                "source": place.source,
                "path": place.path,
                "partition": place.partition,
                "offset": place.offset,
                "outcome": "rejected",
                "reason": rejection.reason,
                "raw": rejection.raw[:raw_bytes],
                "raw_bytes": rejection.raw_bytes,
            }
        )
        if len(chunk) == REJECTED_PER_ROW:
            yield {"kind": "rejected", "events": chunk}
            chunk = []
    if chunk:
        yield {"kind": "rejected", "events": chunk}


def count_outcomes(rows: Iterable[Row]) -> Counter[str]:
    """Count events by outcome (one kept counts as applied, and not again), and times that went back."""
    counts: Counter[str] = Counter()
    for row in rows:
        for event in row["events"] or ():
            reason = event["reason"] or ""
            counts["went_back"] += WENT_BACK in reason
            if not reason.startswith(WAITED):
                counts["applied" if event["outcome"] == "kept" else event["outcome"]] += 1
    return counts


def make_batch_row(
    identity: BatchIdentity,
    intake: Intake,
    counts: Counter[str],
    loose: Sequence[EventOutcome],
    table_checks: Sequence[Row],
    source_end: str,
    late_files: int,
) -> Row:
    """Make the batch's own row, whose counts must account for every record read.

    Args:
        identity: the batch.
        intake: what was read.
        counts: the outcomes of all other rows' events.
        loose: ticks, and topic events that changed nothing: they stand in this row.
        table_checks: results of checks of the whole batch.
        source_end: from Log.source_end.
        late_files: from Intake.source_end.

    Raises:
        JobError: a record is missing or counted twice, which is a fault of this program.
    """
    counts = counts + count_outcomes([{"events": [event_row(outcome) for outcome in loose]}])
    duplicates = counts["duplicate"] + intake.already_read
    accounted = counts["applied"] + duplicates + counts["ignored"] + counts["rejected"] + intake.filtered
    if accounted != intake.records_read:
        raise JobError(
            f"batch {identity.batch_id}: {intake.records_read} records were read, but applied "
            f"{counts['applied']} + duplicate {duplicates} + ignored {counts['ignored']} + rejected "
            f"{counts['rejected']} + filtered {intake.filtered} = {accounted}; nothing was written; "
            "a fault of the program"
        )
    return {
        "kind": "batch",
        "checks": list(table_checks),
        "events": [event_row(outcome) for outcome in loose],
        "batch": {
            "batch_id": identity.batch_id,
            "checkpoint_id": identity.checkpoint_id,
            "source_end": source_end,
            "input_digest": identity.digest,
            "records_read": intake.records_read,
            "applied": counts["applied"],
            "duplicate": duplicates,
            "ignored": counts["ignored"],
            "rejected": counts["rejected"],
            "event_time_went_back": counts["went_back"],
            "late_files": late_files,
            "filtered": intake.filtered,
        },
    }


def rows_to_log(rows: Sequence[Row], batch_seq: int, observed_at_us: int, first: int = 0) -> pa.Table:
    """Number the rows and make them a table with the log's schema."""
    base = (batch_seq << ORDINAL_BITS) + first
    numbered = [
        {**row, "log_seq": base + place, "batch_seq": batch_seq, "observed_at": observed_at_us}
        for place, row in enumerate(rows)
    ]
    return pa.Table.from_pylist(numbered, schema=GENERATIONS)


@dataclass(kw_only=True)
class Verdict:
    """What the checks said of a batch: by version, of the batch as a whole, and what must be held."""

    by_version: dict[Hold, list[Row]] = field(default_factory=dict)
    of_table: list[Row] = field(default_factory=list)
    holds: set[Hold] = field(default_factory=set)


CHECK_INPUT_SCHEMA = pa.schema(
    [
        *(GENERATIONS.field(name) for name in CHECK_COLUMNS if name in GENERATIONS.names),
        *(f for f in GENERATIONS.field("check_inputs").type if f.name in CHECK_COLUMNS),
    ]
)


def check_frame(rows: Iterable[Row]) -> pa.Table:
    """Take what the checks look at out of rows of the log; one row per version that has check inputs."""
    wanted = [{**row, **row["check_inputs"]} for row in rows if row["check_inputs"] is not None]
    return pa.Table.from_pylist(wanted, schema=CHECK_INPUT_SCHEMA)


def judge(frame: Any, suite: CheckSuite | None, may_hold: Callable[[Hold], bool]) -> Verdict:
    """Run the suite and sort its results.

    Args:
        frame: a pandas or Spark frame with CHECK_COLUMNS.
        suite: None when checks are switched off.
        may_hold: says whether a version is a computed group's rebalance, which a
            critical check may refuse.
    """
    verdict = Verdict()
    first: dict[GroupKey, int] = {}
    for result in run_checks(frame, suite) if suite is not None else ():
        row = _check_row(result)
        if result.cluster is None or result.group_id is None or result.version is None:
            verdict.of_table.append(row)
            continue
        version = (result.cluster, result.group_id, result.version)
        verdict.by_version.setdefault(version, []).append(row)
        if not result.success and result.severity == "critical" and may_hold(version):
            key = version[:2]
            first[key] = min(result.version, first.get(key, result.version))
    verdict.holds = {(*key, version) for key, version in first.items()}
    return verdict


def _check_row(result: CheckResult) -> Row:
    return {
        "check": result.check,
        "severity": result.severity,
        "expectation": result.expectation,
        "success": result.success,
        "observed": result.observed,
        "expected": result.expected,
    }


def compute_and_check(
    keys: Sequence[GroupKey],
    advance: Callable[[Sequence[GroupKey], frozenset[Hold]], list[Row]],
    suite: CheckSuite | None,
) -> tuple[list[Row], list[Row]]:
    """Advance groups, check what came out, and advance those again whose generation was refused.

    A group is computed again with its first refused version held; what follows
    that version may be refused in turn, so this goes on until nothing new is.

    Args:
        keys: the groups.
        advance: (groups, holds) -> their rows.
        suite: the checks, None for none.

    Returns:
        (rows with their checks, by group; results about the batch as a whole).
    """
    rows_by_group: dict[GroupKey, list[Row]] = {}
    holds: frozenset[Hold] = frozenset()
    again: Sequence[GroupKey] = sorted(keys)
    while True:
        rows_by_group.update({key: [] for key in again})
        for row in advance(again, holds):
            rows_by_group[(row["cluster"], row["group_id"])].append(row)
        rows = [row for key in sorted(rows_by_group) for row in rows_by_group[key]]
        frame = check_frame(rows)
        refusable = {
            (row["cluster"], row["group_id"], row["version"])
            for row in rows
            if row["kind"] == "rebalance" and row["group_kind"] == "computed"
        }
        verdict = judge(frame.to_pandas(), suite if frame.num_rows else None, refusable.__contains__)
        if not verdict.holds:
            break
        if verdict.holds <= holds:
            raise JobError(f"versions {sorted(verdict.holds)} were refused and come again as rebalances")
        holds |= verdict.holds
        again = sorted({hold[:2] for hold in verdict.holds})
    for row in rows:
        if row["check_inputs"] is not None:
            row["checks"] = verdict.by_version.get((row["cluster"], row["group_id"], row["version"]), [])
    return rows, verdict.of_table
