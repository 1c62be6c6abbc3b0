"""The streaming job: the only place that joins the stations.

One query over all sources, one `foreachBatch`, one commit point a batch:

    raw records -> events or rejections -> group state -> rows of the log, checked
        -> the log (commit) -> flat tables -> now and then the snapshots
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from checkpoints.run import load_suite
from streaming.assignment import GroupWork, advance_groups
from streaming.batch import (
    Hold,
    Intake,
    apply_shared,
    compute_and_check,
    count_outcomes,
    make_batch_row,
    note_partition_end,
    rejected_rows,
    rows_to_log,
)
from streaming.broadcast import order_broadcast
from streaming.crash_points import reach
from streaming.large_batch import LargeBatch
from streaming.log import LOG_APP, BatchIdentity, GroupKey, Log, Tail
from streaming.model import Input
from streaming.publish import Outbox
from streaming.rules import GroupRules
from streaming.session import start_session
from streaming.snapshots import Snapshots
from streaming.sources import (
    TICKS,
    ParseRules,
    add_digests,
    count_blocks,
    digest_of,
    file_names,
    lines_before,
    number_records,
    parse_raw,
    raw_stream,
    sources_of,
)
from streaming.tables import LOG, JobError, Tables, absolute_location
from streaming.ticks import TickWriter

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from conf.settings import Settings
    from streaming.events import Rejection
    from streaming.log_rows import Row

_logger = logging.getLogger(__name__)

_ROW_IN_TASK = (1 << 33) - 1
"""The lower bits of Spark's monotonically_increasing_id: a row's number in its task."""

_TIMINGS_KEPT = 1000
_MOST_LOCAL_TASKS = 64
"""A batch cut into more tasks than this goes to the executors unasked: it is large."""


class Job:
    """One deployment's stream over one session: state between batches, and what a batch does."""

    def __init__(self, spark: SparkSession, settings: Settings, *, adopt: bool = False) -> None:
        """Open or make the tables, publish what a crash left unpublished, and load the tail.

        Args:
            spark: the session.
            settings: all settings.
            adopt: take a checkpoint that does not fit the log as a new beginning.
        """
        self._spark = spark
        self._settings = settings
        self._adopt = adopt
        self.tables = Tables(settings.job.tables)
        self._log = Log(self.tables)
        self._outbox = Outbox(self.tables, self._log)
        self._outbox.catch_up()
        self._tail = Tail(self.tables, self._log)
        self._snapshots = Snapshots(self.tables, self._log, self._tail)
        sources = sources_of(spark, settings, self.tables.root)
        self._parse_rules = ParseRules(
            sources={source.name: source for source in sources},
            max_record_bytes=settings.source.max_record_bytes,
            rejected_raw_bytes=settings.source.rejected_raw_bytes,
        )
        self._rules = GroupRules.from_settings(settings)
        self._suite = load_suite(settings.checks.suite) if settings.checks.enabled else None
        self._lines_read = self._log.lines_read()
        self._clusters = {source.cluster for source in sources} | self._tail.clusters()
        self._large = LargeBatch(
            spark, self.tables, self._parse_rules, self._rules, self._suite, settings.batch.shards
        )
        self._batches_since_snapshot = 0
        self._snapshot_due_at = time.monotonic() + settings.batch.snapshot_every_s
        self._lock = threading.Lock()
        self._is_stopping = False
        self._failure: BaseException | None = None
        self.timings: deque[dict[str, Any]] = deque(maxlen=_TIMINGS_KEPT)
        """Of each of the last batches: batch_id, records, groups, path, and the seconds of each stage."""
        self._stages: dict[str, Any] = {}

    def run(self, *, once: bool, stop: threading.Event | None = None) -> None:
        """Run the query: until the input is at its end, or until `stop` is set.

        Raises:
            JobError: a batch found something that its operator must decide.
        """
        settings = self._settings.job
        ticks = TickWriter(f"{self.tables.root}/{TICKS}")
        frame = raw_stream(
            self._spark, list(self._parse_rules.sources.values()), self._parse_rules.max_record_bytes
        )
        writer = frame.writeStream.foreachBatch(self._take_batch).option(
            "checkpointLocation", absolute_location(settings.checkpoint_location)
        )
        if once:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(
                processingTime=f"{round(settings.trigger_interval_s * 1000)} milliseconds"
            )
        query = writer.start()
        try:
            next_tick = time.monotonic() + settings.tick_interval_s
            while not query.awaitTermination(1):
                if stop is not None and stop.is_set():
                    break
                if not once and settings.tick_interval_s and time.monotonic() >= next_tick:
                    ticks.write(sorted(self._clusters))
                    next_tick += settings.tick_interval_s
        except Exception:
            # Spark wraps what a batch raised in layers of its own; the first cause is what helps.
            if self._failure is not None:
                raise self._failure from None
            raise
        finally:
            # Not under the lock: a batch that waits for it must be let in to be turned away.
            with self._lock:
                self._is_stopping = True
            query.stop()
        self.refresh_snapshots()

    def _take_batch(self, frame: DataFrame, batch_id: int) -> None:
        with self._lock:
            if self._is_stopping:
                # Returning would let Spark note the batch as done, with nothing in the log.
                raise JobError("the job is stopping; this batch comes again at the next start")
            try:
                self._process(frame, batch_id)
            except BaseException as error:
                self._failure = error
                raise

    def _process(self, frame: DataFrame, batch_id: int) -> None:
        began = time.perf_counter()
        self._stages = {"batch_id": batch_id}
        checkpoint_id = str(self._spark.sparkContext.getLocalProperty("sql.streaming.queryId"))
        with self._timed("read"):
            raw = self._read_small(frame)
        if raw is not None:
            rows = self._process_small(raw, checkpoint_id, batch_id)
        else:
            rows = self._process_large(frame, checkpoint_id, batch_id)
        if rows is not None:
            with self._timed("tail"):
                self._tail.add(rows)
                self._clusters.update(rows["cluster"].drop_null().unique().to_pylist())
        with self._timed("publish"):
            self._outbox.catch_up((self._log.last_batch_seq, rows) if rows is not None else None)
        self._adopt = False
        self._batches_since_snapshot += 1
        if self._is_snapshot_due():
            with self._timed("snapshot"):
                self.refresh_snapshots()
        self._stages["total"] = time.perf_counter() - began
        self.timings.append(self._stages)
        told = (f"{k} {v:.3f} s" if isinstance(v, float) else f"{k} {v}" for k, v in self._stages.items())
        _logger.info("%s", ", ".join(told))
        reach("before_spark_commit")

    def _read_small(self, frame: DataFrame) -> pa.Table | None:
        """Bring a small batch here; None when it is a large one.

        Each task hands over at most one row more than the limit: no count beforehand, no shuffle.
        """
        most = self._settings.batch.local_max_records
        if most <= 0 or frame.rdd.getNumPartitions() > _MOST_LOCAL_TASKS:
            return None
        row_in_task = F.monotonically_increasing_id().bitwiseAND(F.lit(_ROW_IN_TASK))
        raw = frame.where(row_in_task <= most).toArrow()
        return raw if raw.num_rows <= most else None

    def _process_small(self, raw: pa.Table, checkpoint_id: str, batch_id: int) -> pa.Table | None:
        """Take a batch through in this process; None when the log holds it already."""
        with self._timed("parse"):
            intake = Intake(records_read=raw.num_rows)
            blocks = count_blocks(raw)
            names = file_names(self._spark, self._parse_rules.sources, sorted({b[:2] for b in blocks}))
            for (source, path, _), lines in blocks.items():
                files = intake.files.setdefault(source, {})
                name = names[(source, path)]
                files[name] = files.get(name, 0) + lines
            records = list(number_records(raw, names, lines_before(blocks)))
            intake.digest = add_digests(digest_of(record) for record in records)
        identity = intake.identity(checkpoint_id, batch_id)
        if not self._is_new(identity):
            return None
        with self._timed("parse"):
            inputs: list[Input] = []
            rejections: list[Rejection] = []
            for record in records:
                at = record.position
                if at.offset <= self._lines_read.get(at.source, {}).get(at.path, 0):
                    intake.already_read += 1
                    continue
                parsed = parse_raw(record, self._parse_rules)
                if isinstance(parsed, Input):
                    inputs.append(parsed)
                else:
                    rejections.append(parsed)
            rejections.sort(key=lambda rejection: rejection.position)
        with self._timed("state"):
            by_group: dict[GroupKey, list[Input]] = {}
            shared_events: list[Input] = []
            ends: dict[tuple[str, str, int], int] = {}
            for event in inputs:
                if self._parse_rules.sources[event.position.source].format == "offsets":
                    note_partition_end(ends, event)
                if event.group_id is None:
                    shared_events.append(event)
                else:
                    by_group.setdefault((event.cluster, event.group_id), []).append(event)
            topics = self._tail.topics
            shared = apply_shared(shared_events, ends, topics, self._rules.dedupe_window_ms)
            keys = {
                *by_group,
                *self._tail.touched_groups(shared.changed_topics, shared.ticks_us, shared.waiting),
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

        with self._timed("compute"):
            group_rows, table_checks = compute_and_check(sorted(keys), advance, self._suite)
        with self._timed("rows"):
            rejected = list(rejected_rows(rejections, self._parse_rules.rejected_raw_bytes))
            rows = [*shared.topic_rows, *group_rows, *rejected]
            sources, late = intake.source_end(self._log.sources)
            end = self._log.source_end(sources)
            counts = count_outcomes(rows)
            rows.append(make_batch_row(identity, intake, counts, shared.loose, table_checks, end, late))
            batch_seq = self._log.last_batch_seq + 1
            table = rows_to_log(rows, batch_seq, time.time_ns() // 1000)
        with self._timed("commit"):
            reach("before_log")
            reach("log_files_written", lambda: self.tables.leave_orphan(LOG, table))
            self.tables.append(LOG, table, app_id=LOG_APP, version=batch_seq)
            reach("after_log")
        self._log.note(identity, batch_seq, sources)
        self._stages.update(path="driver", records=intake.records_read, groups=len(keys))
        return table

    def _process_large(self, frame: DataFrame, checkpoint_id: str, batch_id: int) -> pa.Table | None:
        """Take a batch through on the executors; None when the log holds it already."""
        intake_lines = self._lines_read
        with self._timed("parse"):
            intake = self._large.read(frame, intake_lines)
        try:
            identity = intake.identity(checkpoint_id, batch_id)
            if not self._is_new(identity):
                return None
            if self._lines_read is not intake_lines:
                with self._timed("parse"):
                    intake = self._large.read(frame, self._lines_read)
            sources, late = intake.source_end(self._log.sources)
            batch_seq = self._log.last_batch_seq + 1
            with self._timed("compute"):
                self._large.compute(self._tail.topics, self._rules.dedupe_window_ms)
            with self._timed("commit"):
                end = self._log.source_end(sources)
                self._large.commit(identity, intake, end, late, batch_seq, time.time_ns() // 1000)
            self._log.note(identity, batch_seq, sources)
            self._stages.update(path="executors", records=intake.records_read)
            with self._timed("read_back"):
                return self._log.rows_of(batch_seq)
        finally:
            self._large.release()

    def _is_new(self, identity: BatchIdentity) -> bool:
        """Say whether the batch has still to be computed; notice where the log is adopted."""
        place = self._log.place_of(identity, adopt=self._adopt)
        if place == "adopted":
            self._log.adopt()
            self._lines_read = self._log.lines_read()
        return place != "replay"

    def _is_snapshot_due(self) -> bool:
        batch = self._settings.batch
        return (
            self._batches_since_snapshot >= batch.snapshot_every_batches
            or time.monotonic() >= self._snapshot_due_at
            or self._tail.row_count > batch.snapshot_every_rows
        )

    def refresh_snapshots(self) -> None:
        """Bring the snapshots up to the last batch, and say in every flat table how far it got."""
        self._snapshots.refresh()
        self._outbox.mark()
        self._batches_since_snapshot = 0
        self._snapshot_due_at = time.monotonic() + self._settings.batch.snapshot_every_s

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            self._stages[stage] = self._stages.get(stage, 0.0) + time.perf_counter() - began


def run_job(settings: Settings, *, once: bool, adopt: bool) -> None:
    """Run the job that the settings describe.

    Args:
        settings: all settings.
        once: take what there is, refresh the snapshots and end; else run until
            SIGTERM or Ctrl-C, finish the batch at hand, refresh the snapshots and end.
        adopt: go on over the log with a checkpoint that does not fit it.

    Raises:
        JobError: tables, checkpoint or sources need a decision of the operator.
    """
    for source in settings.sources:
        location = absolute_location(source.path)
        if "://" not in location and not Path(location).exists():
            raise JobError(
                f"source {source.name!r}: {location} does not exist; create it or correct the path"
            )
    is_own_session = SparkSession.getActiveSession() is None
    spark = start_session(settings)
    try:
        job = Job(spark, settings, adopt=adopt)
        with _stop_on_signal() as stop:
            job.run(once=once, stop=stop)
    finally:
        if is_own_session:
            spark.stop()


@contextmanager
def _stop_on_signal() -> Iterator[threading.Event]:
    """Turn SIGTERM and Ctrl-C into a request to stop after the batch at hand."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {
        number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
