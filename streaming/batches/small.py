"""A small micro-batch: brought into the driver's process, computed there, committed by delta-rs.

The steps and results are those of large.py, without a shuffle and without a commit of Spark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from streaming.batches.batch import (
    Hold,
    Intake,
    SharedEvents,
    apply_shared,
    compute_and_check,
    count_outcomes,
    make_batch_row,
    note_partition_end,
    rejected_rows,
    rows_to_log,
)
from streaming.crash_points import reach
from streaming.events.stretches import Stretches
from streaming.groups.advance import GroupWork, advance_groups
from streaming.groups.broadcast import order_broadcast
from streaming.model import Input
from streaming.sources.row_numbers import row_in_task
from streaming.sources.streams import (
    add_digests,
    count_blocks,
    digest_of,
    file_names,
    lines_before,
    number_records,
    parse_raw,
)
from streaming.tables.delta import LOG, Tables
from streaming.tables.log import LOG_APP, BatchIdentity, GroupKey, Tail

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from checkpoints.run import CheckSuite
    from streaming.events.parsing import Rejection
    from streaming.events.stretches import ReadBefore
    from streaming.groups.log_rows import Row
    from streaming.groups.rules import GroupRules
    from streaming.model import TopicState
    from streaming.sources.records import ParseRules, RawRecord

_MOST_TASKS = 64
"""A batch cut into more tasks than this goes to the executors unasked: it is large."""


class SmallBatch:
    """Takes one batch at a time through this process: `fetch`, `read`, `compute`, `commit`, `release`."""

    def __init__(
        self,
        spark: SparkSession,
        tables: Tables,
        tail: Tail,
        parse_rules: ParseRules,
        rules: GroupRules,
        suite: CheckSuite | None,
        most_records: int,
    ) -> None:
        """Keep what every batch needs; a batch of more than `most_records` is not small."""
        self._spark = spark
        self._tables = tables
        self._tail = tail
        self._parse_rules = parse_rules
        self._rules = rules
        self._suite = suite
        self._most_records = most_records
        self.release()

    def release(self) -> None:
        """Let go of the batch."""
        self._records: list[RawRecord] = []
        self._intake = Intake()
        self._inputs: list[Input] = []
        self._rejections: list[Rejection] = []
        self._rows: list[Row] = []
        self._shared: SharedEvents | None = None
        self._table_checks: list[Row] = []
        self.group_count = 0

    def fetch(self, frame: DataFrame) -> bool:
        """Bring the batch here; False when it is a large one.

        Each task hands over at most one row more than the limit: no count beforehand, no shuffle.
        """
        self.release()
        most = self._most_records
        if most <= 0 or frame.rdd.getNumPartitions() > _MOST_TASKS:
            return False
        raw = frame.where(row_in_task() <= most).toArrow()
        if raw.num_rows > most:
            return False
        blocks = count_blocks(raw)
        names = file_names(self._spark, self._parse_rules.sources, sorted({block[:2] for block in blocks}))
        self._records = list(number_records(raw, names, lines_before(blocks)))
        return True

    def read(self, lines_read: Mapping[str, Mapping[str, int]], before: ReadBefore) -> Intake:
        """Parse every record that was fetched.

        Args:
            lines_read: what an earlier checkpoint has read: source -> stream -> how far.
            before: what earlier batches have read.
        """
        intake = Intake(records_read=len(self._records))
        intake.digest = add_digests(digest_of(record) for record in self._records)
        self._inputs, self._rejections = [], []
        stretches = Stretches(before)
        for record in self._records:
            at = record.position
            intake.reach(at)
            if at.ordinal <= lines_read.get(at.source, {}).get(at.stream, 0):
                intake.already_read += 1
                continue
            parsed = parse_raw(record, self._parse_rules, stretches)
            if isinstance(parsed, Input):
                self._inputs.append(parsed)
            else:
                self._rejections.append(parsed)
        self._rejections.sort(key=lambda rejection: rejection.position)
        intake.rejected_in = stretches.rejected
        self._intake = intake
        return intake

    def add_inputs(self, inputs: Sequence[Input]) -> None:
        """Take events in that came with no source: they are logged with the batch, and read as its own."""
        self._inputs += inputs
        self._intake.records_read += len(inputs)
        self._intake.added += len(inputs)

    def compute(self, topics: Mapping[str, Mapping[str, TopicState]], dedupe_window_ms: int) -> None:
        """Advance every group that the batch touches, check the result, hold what a critical check refuses.

        Args:
            topics: cluster -> topic -> state before the batch.
            dedupe_window_ms: for topic events.
        """
        by_group: dict[GroupKey, list[Input]] = {}
        shared_events: list[Input] = []
        ends: dict[tuple[str, str, int], int] = {}
        for event in self._inputs:
            source = self._parse_rules.sources.get(event.position.source)
            if source is not None and source.format == "offsets":
                note_partition_end(ends, event)
            if event.group_id is None:
                shared_events.append(event)
            else:
                by_group.setdefault((event.cluster, event.group_id), []).append(event)
        shared = apply_shared(shared_events, ends, topics, dedupe_window_ms)
        keys = {
            *by_group,
            *self._tail.touched_groups(
                shared.changed_topics, shared.ticks_us, shared.waiting, shared.told_loads
            ),
        }
        known = self._tail.states_of(keys)

        def advance(these: Sequence[GroupKey], holds: frozenset[Hold]) -> list[Row]:
            work = (
                GroupWork(
                    cluster=key[0],
                    group_id=key[1],
                    state=known.get(key),
                    inputs=order_broadcast(by_group.get(key, [])),
                    broadcast=shared.broadcast,
                )
                for key in these
            )
            return list(advance_groups(work, topics, self._rules, holds))

        self._shared = shared
        self._rows, self._table_checks = compute_and_check(sorted(keys), advance, self._suite)
        self.group_count = len(keys)

    def commit(
        self, identity: BatchIdentity, source_end: str, late_files: int, batch_seq: int, observed_at_us: int
    ) -> pa.Table:
        """Number the rows and append them to the log in one commit; gives them back."""
        if self._shared is None:
            raise RuntimeError("commit before compute")
        rejected = rejected_rows(self._rejections, self._parse_rules.rejected_raw_bytes)
        rows = [*self._shared.topic_rows, *self._rows, *rejected]
        counts = count_outcomes(rows)
        loose = self._shared.loose
        rows.append(
            make_batch_row(identity, self._intake, counts, loose, self._table_checks, source_end, late_files)
        )
        table = rows_to_log(rows, batch_seq, observed_at_us)
        reach("before_log")
        reach("log_files_written", lambda: self._tables.leave_orphan(LOG, table))
        self._tables.append(LOG, table, app_id=LOG_APP, version=batch_seq)
        reach("after_log")
        return table

    def unheard_topics(self, topics: Mapping[str, Mapping[str, TopicState]]) -> dict[str, set[str]]:
        """Name the topics, by cluster, that observed groups of the batch read and nobody has heard of."""
        changed = {} if self._shared is None else self._shared.changed_topics
        unheard: dict[str, set[str]] = {}
        for row in self._rows:
            if row["group_kind"] == "observed":
                known = topics.get(row["cluster"], {})
                new = {t for t in row["subscribed_topics"] or () if t not in known}
                if new := new - changed.get(row["cluster"], set()):
                    unheard.setdefault(row["cluster"], set()).update(new)
        return unheard
