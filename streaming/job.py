"""The streaming job: the only place that joins the stations.

One query over all sources, one `foreachBatch`, one commit point a batch:

    raw records -> events or rejections -> group state -> rows of the log, checked
        -> the log (commit) -> flat tables -> now and then the snapshots
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from checkpoints.run import load_suite
from streaming.batches.large import LargeBatch
from streaming.batches.small import SmallBatch
from streaming.crash_points import reach
from streaming.groups.rules import GroupRules, limits_of
from streaming.log_context import as_fields
from streaming.operations.duties import Duties
from streaming.operations.health import JobHealth
from streaming.operations.misfits import check_checkpoint, put_right
from streaming.operations.report import JobReport
from streaming.sinks.kafka import sinks_of
from streaming.sources.cluster_metadata import ClusterMetadata
from streaming.sources.kafka import admin_options_of, count_and_filter, records_read
from streaming.sources.own_events import own_inputs, time_advanced
from streaming.sources.records import ParseRules
from streaming.sources.streams import raw_stream, sources_of
from streaming.tables.delta import JobError, Tables, absolute_location
from streaming.tables.lease import Lease
from streaming.tables.log import BatchIdentity, Log, Tail, groups_of_type
from streaming.tables.own_events import OwnEvents
from streaming.tables.publish import Outbox
from streaming.tables.snapshots import Snapshots
from streaming.tables.upkeep import Upkeep

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from conf.settings import Settings
    from streaming.batches.batch import Intake

_logger = logging.getLogger(__name__)

_TIMINGS_KEPT = 1000


class Job:
    """One deployment's stream over one session: state between batches, and what a batch does."""

    def __init__(
        self,
        spark: SparkSession,
        settings: Settings,
        *,
        adopt: bool = False,
        stop: threading.Event | None = None,
        report: JobReport | None = None,
    ) -> None:
        """Take the lease, open or make the tables, publish what a crash left, and load the tail.

        Args:
            spark: the session.
            settings: all settings.
            adopt: take a checkpoint that does not fit the log as a new beginning.
            stop: gives up waiting for the lease when it is set.
            report: hears how the job does; None for nobody.

        Raises:
            JobError: another job holds the tables, or tables and checkpoint do not belong together.
        """
        self._report = report or JobReport(JobHealth(settings.job.cluster))
        self.lease = Lease(absolute_location(settings.job.tables), settings.job.lease_s)
        self.lease.take(stop)
        reach("after_take")
        with self.lease.released_on_error():
            self._open(spark, settings, adopt=adopt)

    def _open(self, spark: SparkSession, settings: Settings, *, adopt: bool) -> None:
        self._spark = spark
        self._settings = settings
        self._adopt = adopt
        self.tables = Tables(settings.job.tables, lambda: self.lease.ensure_held(ask=True))
        self.lease.fence(self.tables)
        reach("after_fence")
        put_right(self.tables)
        self._log = Log(self.tables)
        check_checkpoint(spark, settings.job.checkpoint_location, self._log, self.tables, adopt=adopt)
        self._own = OwnEvents(self.tables, self._log)
        self._outbox = Outbox(self.tables, self._log)
        self._outbox.catch_up()
        self._tail = Tail(self.tables, self._log)
        self._snapshots = Snapshots(self.tables, self._log, self._tail)
        self._upkeep = Upkeep(self.tables, settings.upkeep, [sink.name for sink in settings.sinks])
        sources = sources_of(spark, settings, self.tables.root)
        self._parse_rules = ParseRules(
            sources={source.name: source for source in sources},
            max_record_bytes=settings.source.max_record_bytes,
            rejected_raw_bytes=settings.source.rejected_raw_bytes,
            limits=limits_of(settings),
        )
        self._rules = GroupRules.from_settings(settings)
        self._suite = load_suite(settings.checks.suite) if settings.checks.enabled else None
        self._lines_read = self._log.lines_read()
        self._clusters = {source.cluster for source in sources} | self._tail.clusters()
        self._connect_groups = self._tail.groups_of_type("connect")
        self._metadata = {
            cluster: ClusterMetadata(cluster, options)
            for cluster, options in admin_options_of(settings).items()
        }
        self._topics_asked_for: set[tuple[str, str]] = set()
        self._counted = [s for s in sources if s.kind == "kafka" and s.format == "offsets"]
        common = (self._parse_rules, self._rules, self._suite)
        self._small = SmallBatch(spark, self.tables, self._tail, *common, settings.batch.local_max_records)
        self._large = LargeBatch(spark, self.tables, *common, settings.batch.shards)
        self._expects_large = False
        self._batches_since_snapshot = 0
        self._snapshot_due_at = time.monotonic() + settings.batch.snapshot_every_s
        self._lock = threading.Lock()
        self._is_stopping = False
        self._failure: BaseException | None = None
        self.timings: deque[dict[str, Any]] = deque(maxlen=_TIMINGS_KEPT)
        """Of each of the last batches: batch_id, records, groups, path, and the seconds of each stage."""
        self._stages: dict[str, Any] = {}
        self._report.open(self.lease, self.tables, self._tail)

    def run(self, *, once: bool, stop: threading.Event | None = None) -> None:
        """Run the query: until the input is at its end, or until `stop` is set; give the lease back.

        Raises:
            JobError: a batch found something that its operator must decide, or another job took over.
        """
        try:
            self._run(once=once, stop=stop)
        finally:
            self.lease.release()

    def _run(self, *, once: bool, stop: threading.Event | None) -> None:
        settings = self._settings.job
        self._outbox.connect(
            sinks_of(self._settings, lambda: self._is_stopping or (stop is not None and stop.is_set()))
        )
        self._report.health.reach("sinks")
        # Before the first batch, which needs the partition counts of what it reads.
        self._own.write(self._look_at_clusters())
        frame = raw_stream(self._spark, list(self._parse_rules.sources.values()), self._settings)
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
        self._report.health.begin(str(query.id))
        duties = Duties() if once else self._duties()
        try:
            while not query.awaitTermination(1):
                if stop is not None and stop.is_set():
                    break
                self.lease.ensure_held()
                duties.run_due()
        except Exception:
            # Whoever has taken over writes the same checkpoint, so Spark may have noticed first.
            self.lease.ensure_held(ask=True)
            # Spark wraps what a batch raised in layers of its own; the first cause is what helps.
            if self._failure is not None:
                raise self._failure from None
            raise
        finally:
            # Before the lock: a sink that waits for its cluster gives up, and the batch at hand ends.
            self._is_stopping = True
            # Not under the lock: a batch that waits for it must be let in to be turned away.
            with self._lock:
                pass
            # A batch that is turned away is no error; Spark would print it as one, with its whole stack.
            self._spark.sparkContext.setLogLevel("OFF")
            query.stop()
            self._spark.sparkContext.setLogLevel("ERROR")
            self._upkeep.stop()
        self.refresh_snapshots()

    def _take_batch(self, frame: DataFrame, batch_id: int) -> None:
        with self._lock:
            if self._is_stopping:
                # Returning would let Spark note the batch as done, with nothing in the log.
                raise JobError("the job is stopping; this batch comes again at the next start")
            try:
                self.lease.ensure_held()
                with self._report.health.batch(batch_id):
                    self._process(frame, batch_id)
                # Returning lets Spark note the batch as done in a checkpoint that may be another's now.
                self.lease.ensure_held()
            except BaseException as error:
                self._failure = error
                raise

    def _duties(self) -> Duties:
        """List what is done now and then beside the batches."""
        duties = Duties()
        # As often as the cluster that wants it most often.
        looks = [self._settings.clusters[name].metadata_interval_s for name in self._metadata]
        look_every_s = min((seconds for seconds in looks if seconds), default=0.0)
        duties.add(look_every_s, lambda: self._own.write(self._look_at_clusters()))
        tick_every_s = self._settings.job.tick_interval_s
        duties.add(tick_every_s, lambda: self._own.write(time_advanced(sorted(self._clusters))))
        duties.add(self._settings.upkeep.every_s, self._upkeep.begin)
        return duties

    def _look_at_clusters(self) -> list[dict[str, Any]]:
        """Ask every cluster what has changed of its topics and of the states of its groups."""
        self._topics_asked_for.clear()
        now_ms = time.time_ns() // 1_000_000
        events: list[dict[str, Any]] = []
        for cluster, metadata in self._metadata.items():
            events += metadata.topic_events(self._tail.topics.get(cluster, {}), now_ms=now_ms)
            # The list of groups that the admin client gives holds consumers only.
            others = {group_id for of_cluster, group_id in self._connect_groups if of_cluster == cluster}
            events += metadata.group_events(now_ms, others)
        return events

    def _process(self, frame: DataFrame, batch_id: int) -> None:
        began = time.perf_counter()
        self._stages = {"batch_id": batch_id}
        checkpoint_id = str(self._spark.sparkContext.getLocalProperty("sql.streaming.queryId"))
        rows = self._take_through(frame, checkpoint_id, batch_id)
        if rows is not None:
            with self._timed("tail"):
                self._tail.add(rows)
                self._clusters.update(rows["cluster"].drop_null().unique().to_pylist())
                self._connect_groups |= groups_of_type(rows, "connect")
        with self._timed("publish"):
            self._outbox.catch_up((self._log.last_batch_seq, rows) if rows is not None else None)
        self._adopt = False
        self._batches_since_snapshot += 1
        if self._is_snapshot_due():
            with self._timed("snapshot"):
                self.refresh_snapshots()
        self._stages["total"] = time.perf_counter() - began
        self.timings.append(self._stages)
        offsets_sources = [s.name for s in self._parse_rules.sources.values() if s.format == "offsets"]
        self._report.end_batch(self._stages, rows, self.tables, self._tail, offsets_sources)
        told = (f"{k} {v:.3f} s" if isinstance(v, float) else f"{k} {v}" for k, v in self._stages.items())
        _logger.info("%s", ", ".join(told), extra=as_fields(self._stages, self._log.last_batch_seq))
        reach("before_spark_commit")

    def _take_through(self, frame: DataFrame, checkpoint_id: str, batch_id: int) -> pa.Table | None:
        """Take a batch to its commit; its rows, None when the log holds it already."""
        observation = None
        if self._counted:
            frame, observation = count_and_filter(frame, self._counted)
        with self._timed("read"):
            # Both ways give the same rows. To find out that a batch is large it must be read, so in a
            # backlog the batch before tells.
            is_small = not self._expects_large and self._small.fetch(frame)
        path = self._small if is_small else self._large

        def read() -> Intake:
            with self._timed("parse"):
                known = self._lines_read, self._log.read_before(s.name for s in self._counted)
                return self._small.read(*known) if is_small else self._large.read(frame, *known)

        try:
            lines_read, intake = self._lines_read, read()
            # The identity covers all that was read, whatever of it an earlier checkpoint had.
            identity = intake.identity(checkpoint_id, batch_id)
            if not self._is_new(identity):
                return None
            if self._lines_read is not lines_read:
                intake = read()
            self._expects_large = intake.records_read > self._settings.batch.local_max_records
            if observation is not None:
                intake.filtered, counts = records_read(observation.get, self._counted)
                before = self._log.read_before(s.name for s in self._counted)
                intake.records = before.and_now(counts, intake.rejected_in)
            intake.records_read += intake.filtered
            sources, late = intake.source_end(self._log.sources)
            batch_seq, end = self._log.last_batch_seq + 1, self._log.source_end(sources)
            with self._timed("compute"):
                path.compute(self._tail.topics, self._rules.dedupe_window_ms)
            if is_small and self._metadata:
                with self._timed("metadata"):
                    self._hear_of_topics(batch_id)
            with self._timed("commit"):
                rows = path.commit(identity, end, late, batch_seq, time.time_ns() // 1000)
            self._log.note(identity, batch_seq, sources)
            self._stages.update(path="driver" if is_small else "executors", records=intake.records_read)
            if rows is not None:
                self._stages["groups"] = self._small.group_count
                return rows
            with self._timed("read_back"):
                return self._log.rows_of(batch_seq)
        finally:
            self._small.release()
            self._large.release()

    def _hear_of_topics(self, batch_id: int) -> None:
        """Ask for the topics that observed groups of the batch read and nobody has heard of.

        What is found becomes events of this batch, which is then computed once more: a
        group's first generation has its expected assignment, and the log all it followed from.
        """
        found: list[dict[str, Any]] = []
        for cluster, names in sorted(self._small.unheard_topics(self._tail.topics).items()):
            wanted = {name for name in names if (cluster, name) not in self._topics_asked_for}
            if cluster in self._metadata and wanted:
                known = self._tail.topics.get(cluster, {})
                now_ms = time.time_ns() // 1_000_000
                found += self._metadata[cluster].topic_events(known, wanted, now_ms=now_ms)
                self._topics_asked_for.update((cluster, name) for name in wanted)
        if found:
            self._small.add_inputs(own_inputs(found, batch_id))
            self._small.compute(self._tail.topics, self._rules.dedupe_window_ms)

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
