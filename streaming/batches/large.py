"""A large micro-batch: parsed, sharded and computed on the executors, committed by Spark.

The driver sees counts, topic changes, ticks and what the checks look at; records, states
and rows stay on the executors.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.pandas.types import from_arrow_schema

from streaming.batches.batch import (
    CHECK_INPUT_SCHEMA,
    Hold,
    Intake,
    SharedEvents,
    Verdict,
    apply_shared,
    judge,
    make_batch_row,
    rows_to_log,
)
from streaming.batches.executors import (
    COMPUTED,
    KEY,
    PARSED,
    TOUCHED,
    Tag,
    computer,
    parser,
    rejecter,
    toucher,
)
from streaming.batches.tally import Tally, count_rows
from streaming.crash_points import reach
from streaming.model import WEIGHTED, Position
from streaming.sources.row_numbers import row_in_task
from streaming.sources.streams import Block, add_digests, file_names, lines_before
from streaming.tables.delta import LOG, JobError, Tables
from streaming.tables.log import GROUP_KINDS, LOG_APP, ORDINAL_BITS, SNAPSHOT_APP, BatchIdentity
from streaming.tables.schemas import GENERATIONS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from checkpoints.run import CheckSuite
    from streaming.events.stretches import ReadBefore, Records
    from streaming.groups.rules import GroupRules
    from streaming.model import TopicState
    from streaming.sources.records import ParseRules

_WORK_COLUMNS = ["tag", "shard", "cluster", "group_id", "payload"]

_MOST_ROWS_IN_PANDAS = 50_000
"""Great Expectations needs seconds on a Spark frame and a tenth of one in pandas: its frame is narrow
(a dozen numbers a version), so it comes to the driver up to this many rows."""

_ROWS_PER_FILE = 20_000


class LargeBatch:
    """Takes one batch at a time through the executors: `read`, `compute`, `commit`, `release`."""

    def __init__(
        self,
        spark: SparkSession,
        tables: Tables,
        parse_rules: ParseRules,
        rules: GroupRules,
        suite: CheckSuite | None,
        shards: int,
    ) -> None:
        """Keep what every batch needs."""
        self._spark = spark
        self._tables = tables
        self._parse_rules = parse_rules
        self._rules = rules
        self._suite = suite
        self._shards = shards
        self._parsed: DataFrame | None = None
        self._rows: DataFrame | None = None
        self._shared: SharedEvents | None = None
        self._intake = Intake()
        self._ends: dict[tuple[str, str, int], int] = {}
        self._shared_count = 0
        self._verdict = Verdict()
        self._tally = Tally()

    def release(self) -> None:
        """Let go of what the executors hold for the batch."""
        if self._parsed is not None:
            self._parsed.unpersist()
        self._parsed = self._rows = self._shared = None
        self._verdict = Verdict()

    def read(
        self, frame: DataFrame, lines_read: Mapping[str, Mapping[str, int]], before: ReadBefore
    ) -> Intake:
        """Number and parse every record, and keep the result on the executors.

        Args:
            frame: the raw records.
            lines_read: what an earlier checkpoint has read: source -> stream -> how far.
            before: what earlier batches have read.
        """
        self.release()
        # Read once: a Kafka topic is slow to read, and nine tenths of this one never come so far.
        frame = frame.persist()
        place = ["source", "path", "block", "partition"]
        found = frame.groupBy(*place).agg(F.count("*").alias("n"), F.max("offset").alias("last")).collect()
        counts: dict[Block, int] = {
            (row["source"], row["path"], row["block"]): row["n"] for row in found if row["partition"] < 0
        }
        paths = sorted({(row["source"], row["path"]) for row in found})
        names = file_names(self._spark, self._parse_rules.sources, paths)
        parse = parser(self._parse_rules, names, lines_before(counts), lines_read, before, self._shards)
        self._parsed = frame.mapInArrow(parse, from_arrow_schema(PARSED)).persist()
        has_place = F.col("record_time_ms").isNotNull() | (
            (F.col("tag") == Tag.REJECTED) & (F.col("partition") >= 0)
        )
        of_place = ("source", "cluster", "path", "partition")
        totals = (
            self._parsed.groupBy("tag", *(F.when(has_place, F.col(name)).alias(name) for name in of_place))
            .agg(
                F.count("*").alias("n"),
                F.sum("digest_high").alias("high"),
                F.sum("digest_low").alias("low"),
                F.max("record_time_ms").alias("end_ms"),
            )
            .collect()
        )
        frame.unpersist()
        self._ends = {}
        by_tag: Counter[int] = Counter()
        rejected_in: Records = {}
        for row in totals:
            by_tag[row["tag"]] += row["n"]
            if row["end_ms"] is not None:
                key = (row["cluster"], row["path"], row["partition"])
                self._ends[key] = max(row["end_ms"], self._ends.get(key, row["end_ms"]))
            elif row["partition"] is not None:
                stream = Position(row["source"], row["path"], row["partition"], 0).stream
                rejected_in.setdefault(row["source"], {})[stream] = row["n"]
        self._shared_count = by_tag[Tag.SHARED]
        intake = Intake(
            records_read=sum(by_tag.values()),
            already_read=by_tag[Tag.ALREADY_READ],
            rejected=by_tag[Tag.REJECTED],
            rejected_in=rejected_in,
            digest=add_digests((row["high"] << 32) + row["low"] for row in totals),
        )
        for (source, path, _), lines in counts.items():
            files = intake.files.setdefault(source, {})
            name = names[(source, path)]
            files[name] = files.get(name, 0) + lines
        for row in found:
            if row["partition"] >= 0:
                intake.reach(Position(row["source"], row["path"], row["partition"], row["last"]))
        self._intake = intake
        return intake

    def compute(self, topics: Mapping[str, Mapping[str, TopicState]], dedupe_window_ms: int) -> None:
        """Advance every group that the batch touches, check the result, hold what a critical check refuses.

        Args:
            topics: cluster -> topic -> state before the batch.
            dedupe_window_ms: for topic events.
        """
        parsed = self._of_batch()
        heard = []
        if self._shared_count:
            heard = parsed.where(F.col("tag") == Tag.SHARED).select("payload").collect()
        shared = apply_shared(
            [pickle.loads(row["payload"]) for row in heard],  # noqa: S301 - our own executors wrote it
            self._ends,
            topics,
            dedupe_window_ms,
        )
        self._shared = shared
        work = self._work(parsed, shared)

        def advanced(these: DataFrame, holds: frozenset[Hold]) -> DataFrame:
            step = computer(topics, self._rules, shared.broadcast, holds)
            sorted_work = these.repartition(self._shards, "shard").sortWithinPartitions(*KEY, "tag")
            # The lineage is cut here: these rows read tables that the commit is about to change.
            return sorted_work.mapInArrow(step, from_arrow_schema(COMPUTED)).localCheckpoint(eager=True)

        holds: frozenset[Hold] = frozenset()
        rows = advanced(work, holds)
        while True:
            self._tally = count_rows(rows)
            self._verdict = self._judge(rows, self._tally.checked)
            if not self._verdict.holds:
                break
            if self._verdict.holds <= holds:
                raise JobError(
                    f"versions {sorted(self._verdict.holds)} were refused and come again as rebalances"
                )
            holds |= self._verdict.holds
            refused = self._keys_frame({hold[:2] for hold in self._verdict.holds})
            again = advanced(work.join(F.broadcast(refused), KEY, "left_semi"), holds)
            rows = (
                rows.join(F.broadcast(refused), KEY, "left_anti")
                .unionByName(again)
                .localCheckpoint(eager=True)
            )
        self._rows = rows

    def commit(
        self, identity: BatchIdentity, source_end: str, late_files: int, batch_seq: int, observed_at_us: int
    ) -> None:
        """Number the rows and append them to the log in one commit."""
        reach("before_log")
        parsed, rows, shared, intake = self._of_batch(), self._rows, self._shared, self._intake
        if rows is None or shared is None:
            raise RuntimeError("commit before compute")
        spark_schema = from_arrow_schema(GENERATIONS)
        reject = rejecter(self._parse_rules.rejected_raw_bytes)
        rejected = (
            parsed.where(F.col("tag") == Tag.REJECTED)
            .select("source", "path", "partition", "offset", "payload")
            .repartition(1)
            .sortWithinPartitions("source", "path", "partition", "offset")
            .mapInArrow(reject, spark_schema)
        )
        counts = self._tally.outcomes + Counter(rejected=intake.rejected)
        for row in shared.topic_rows:
            counts["applied"] += len(row["events"])
        batch_row = make_batch_row(
            identity, intake, counts, shared.loose, self._verdict.of_table, source_end, late_files
        )
        driver_rows = [*shared.topic_rows, batch_row]
        own = rows_to_log(driver_rows, batch_seq, observed_at_us)
        # A group's rows lie together and in order, so their numbers rise.
        starts, total = self._tally.starts(after=len(driver_rows))
        if total + intake.rejected >= 1 << ORDINAL_BITS:
            raise JobError(
                f"batch {batch_seq} has {total + intake.rejected} rows, at most {1 << ORDINAL_BITS} fit; "
                "lower max_files_per_trigger or max_records_per_trigger"
            )
        base = batch_seq << ORDINAL_BITS
        parts = [self._spark.createDataFrame(own, schema=spark_schema)]
        if starts:
            by_task = F.create_map(*(F.lit(x) for pair in starts.items() for x in pair))
            parts.append(self._with_checks(_number(rows, F.lit(base) + by_task[F.spark_partition_id()])))
        if intake.rejected:
            parts.append(_number(rejected, F.lit(base + total)))
        # Spark's commit goes past those of others, except past a new holder's (Lease.fence) once Spark has
        # opened its transaction. What is left is the moment between this question and that (docs/adr/0013).
        self._tables.ask_lease()
        (
            reduce(lambda left, right: left.unionByName(right), (p.select(*GENERATIONS.names) for p in parts))
            .withColumn("batch_seq", F.lit(batch_seq).cast("long"))
            .withColumn("observed_at", F.timestamp_micros(F.lit(observed_at_us)))
            .coalesce(max(total // _ROWS_PER_FILE, 1))
            .write.format("delta")
            .mode("append")
            .option("txnAppId", LOG_APP)
            .option("txnVersion", batch_seq)
            .save(self._tables.location(LOG))
        )
        self._tables.ask_lease()
        self._tables.refresh(LOG)
        if self._tables.transaction_version(LOG, LOG_APP) != batch_seq:
            # Spark skips a version it has seen without a word; then another job wrote it.
            raise JobError(
                f"log {self._tables.location(LOG)}: batch {batch_seq} was not written, the log stands at "
                f"{self._tables.transaction_version(LOG, LOG_APP)}; another job writes to them: stop one"
            )
        reach("after_log")

    def _of_batch(self) -> DataFrame:
        if self._parsed is None:
            raise RuntimeError("compute or commit before read")
        return self._parsed

    def _keys_frame(self, keys: Iterable[tuple[str, str]]) -> DataFrame:
        rows = [dict(zip(KEY, key, strict=True)) for key in sorted(keys)]
        schema = pa.schema([GENERATIONS.field(name) for name in KEY])
        return self._spark.createDataFrame(pa.Table.from_pylist(rows, schema=schema))

    def _work(self, parsed: DataFrame, shared: SharedEvents) -> DataFrame:
        """Put each touched group's latest state before its events; columns _WORK_COLUMNS.

        A group counts as touched when any of its rows says so, in the snapshot or
        behind it: one too many is computed for nothing, one too few would be wrong.
        """
        events = parsed.where(F.col("tag") == Tag.EVENT)
        keys = events.select("shard", *KEY).distinct()
        columns = [*KEY, "log_seq", "state", "group_kind", "subscribed_topics"]
        columns += ["has_pattern", "topics_patterns", "next_timer", "protocol"]
        snapshot = self._spark.read.format("delta").load(self._tables.location("groups")).select(*columns)
        tail = (
            self._spark.read.format("delta")
            .load(self._tables.location(LOG))
            .where(F.col("batch_seq") > self._tables.transaction_version("groups", SNAPSHOT_APP))
            .where(F.col("kind").isin(*GROUP_KINDS))
            .select(*columns)
        )
        known = snapshot.unionByName(tail)
        condition = _touches(shared)
        if condition is not None:
            touch = toucher(shared.changed_topics, self._shards)
            touched = (
                known.select(*KEY, condition.alias("is_touched"), "topics_patterns")
                .where(F.col("is_touched") | _may_match(shared))
                .mapInArrow(touch, from_arrow_schema(TOUCHED))
            )
            keys = keys.unionByName(touched.distinct().join(keys, KEY, "left_anti"))
        states = (
            known.select(*KEY, "log_seq", "state")
            .join(keys, KEY)
            .groupBy("shard", *KEY)
            .agg(F.max_by("state", "log_seq").alias("state"))
            .select(
                F.lit(Tag.STATE).cast("byte").alias("tag"),
                "shard",
                *KEY,
                F.col("state").cast("binary").alias("payload"),
            )
        )
        return events.select(*_WORK_COLUMNS).unionByName(states)

    def _judge(self, rows: DataFrame, count: int) -> Verdict:
        """Run the checks over the computed rows, of which `count` have something to check."""
        if self._suite is None or not count:
            return Verdict()
        inputs = [field.name for field in GENERATIONS.field("check_inputs").type]
        names = CHECK_INPUT_SCHEMA.names
        narrow = rows.where(F.col("check_inputs").isNotNull()).select(
            "kind", *(f"check_inputs.{name}" if name in inputs else name for name in names)
        )
        is_refusable = (F.col("kind") == "rebalance") & (F.col("group_kind") == "computed")
        key = [*KEY, "version"]
        if count > _MOST_ROWS_IN_PANDAS:
            refusable = {tuple(row) for row in narrow.where(is_refusable).select(*key).collect()}
            return judge(narrow.drop("kind"), self._suite, refusable.__contains__)
        here = narrow.toArrow()
        frame = here.select(names).cast(CHECK_INPUT_SCHEMA).to_pandas()
        rebalances = zip(*(here[name].to_pylist() for name in (*key, "kind", "group_kind")), strict=True)
        refusable = {tuple(row[:3]) for row in rebalances if row[3:] == ("rebalance", "computed")}
        return judge(frame, self._suite, refusable.__contains__)

    def _with_checks(self, rows: DataFrame) -> DataFrame:
        results = [
            {"cluster": cluster, "group_id": group_id, "version": version, "results": checks}
            for (cluster, group_id, version), checks in self._verdict.by_version.items()
        ]
        schema = pa.schema(
            [
                *(GENERATIONS.field(name) for name in (*KEY, "version")),
                pa.field("results", GENERATIONS.field("checks").type),
            ]
        )
        if not results:
            return rows
        checked = self._spark.createDataFrame(pa.Table.from_pylist(results, schema=schema))
        # A state row keeps the version of the row before it, but was not checked itself. The results are
        # broadcast so that the rows stay where they are, in order.
        joined = rows.join(F.broadcast(checked), [*KEY, "version"], "left")
        return joined.withColumn("checks", F.when(F.col("check_inputs").isNotNull(), F.col("results")))


def _touches(shared: SharedEvents) -> Column | None:
    """Say in Spark's words what Tail.touched_groups says: whom a batch concerns beside its own groups.

    Null is no. Patterns are matched by `toucher`; here a group only hears of all topics when its own are
    not known.
    """
    conditions = []
    goes_by_loads = F.col("protocol") == WEIGHTED
    for by_cluster, who in ((shared.changed_topics, F.lit(True)), (shared.told_loads, goes_by_loads)):
        for cluster, topics in by_cluster.items():
            subscribed = F.arrays_overlap("subscribed_topics", F.array(*map(F.lit, sorted(topics))))
            hears_all = F.col("has_pattern") & F.col("topics_patterns").isNull()
            conditions.append((F.col("cluster") == cluster) & (hears_all | (who & subscribed)))
    for cluster, time_us in shared.ticks_us.items():
        due = F.col("next_timer") <= F.timestamp_micros(F.lit(time_us))
        conditions.append((F.col("cluster") == cluster) & due)
    if shared.waiting:
        waits = F.col("next_timer").isNotNull() & (F.col("group_kind") == "observed")
        conditions.append(F.col("cluster").isin(*sorted(shared.waiting)) & waits)
    return reduce(lambda left, right: left | right, conditions) if conditions else None


def _may_match(shared: SharedEvents) -> Column:
    """Say which groups have a pattern that could take in a changed topic; null is no."""
    return F.col("cluster").isin(*sorted(shared.changed_topics)) & (F.size("topics_patterns") > 0)


def _number(rows: DataFrame, start: Column) -> DataFrame:
    return rows.withColumn("log_seq", start + row_in_task())
