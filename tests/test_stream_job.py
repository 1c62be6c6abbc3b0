"""The job over real Spark and Delta: exact positions, one result on every path, nothing twice."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from streaming.job import Job
from streaming.run import run_job
from streaming.sources.streams import file_names, lines_before, number_records, raw_stream, sources_of
from streaming.tables.delta import JobError, Tables
from streaming.tables.log import Log
from streaming.tables.own_events import OwnEvents
from tests.deployments import contents, event, make_settings, story, totals, write_lines

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from conf.settings import Settings

pytestmark = pytest.mark.spark


class TestSources:
    """Raw records and where they stand."""

    def read(self, spark: SparkSession, settings: Settings, checkpoint: Path) -> dict[tuple[str, int], bytes]:
        """Run the sources once, return (name, line) -> bytes."""
        tables = Tables(settings.job.tables)
        OwnEvents(tables, Log(tables))
        sources = {s.name: s for s in sources_of(spark, settings, tables.root)}
        found: dict[tuple[str, int], bytes] = {}
        blocks: set[tuple[str, str, int]] = set()

        def take(frame: DataFrame, _: int) -> None:
            counted = frame.groupBy("source", "path", "block").count().collect()
            counts = {(row["source"], row["path"], row["block"]): row["count"] for row in counted}
            blocks.update(counts)
            names = file_names(spark, sources, {block[:2] for block in counts})
            for record in number_records(frame.toArrow(), names, lines_before(counts)):
                found[record.position.path, record.position.offset] = record.value

        short = settings.source.model_copy(update={"max_record_bytes": 100})
        stream = raw_stream(spark, list(sources.values()), settings.model_copy(update={"source": short}))
        query = stream.writeStream.foreachBatch(take).option("checkpointLocation", str(checkpoint))
        query.trigger(availableNow=True).start().awaitTermination()
        self.blocks = blocks
        return found

    def test_lines_and_bytes_are_exact(self, spark: SparkSession, tmp_path: Path) -> None:
        """Split files, odd names, NUL, bytes that are not UTF-8, CR, blank lines, no LF at the end."""
        lines = [b"%d" % number * (number % 7) for number in range(3000)]
        odd = [b"one", b"\xff\x00\xfe", b"", b"cr\r", b"x" * 101, b"last"]
        (tmp_path / "in" / "sub").mkdir(parents=True)
        (tmp_path / "in" / "big.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))
        (tmp_path / "in" / "sub" / "a b+c%25.jsonl").write_bytes(b"\n".join(odd))
        before = spark.conf.get("spark.sql.files.maxPartitionBytes")
        spark.conf.set("spark.sql.files.maxPartitionBytes", "4096")
        try:
            found = self.read(spark, make_settings(tmp_path / "job"), tmp_path / "checkpoint")
        finally:
            spark.conf.set("spark.sql.files.maxPartitionBytes", str(before))
        assert len(self.blocks) > 3
        expected = {("big.jsonl", number): line for number, line in enumerate(lines, start=1)}
        expected |= {("sub/a b+c%25.jsonl", number): line for number, line in enumerate(odd, start=1)}
        assert found == expected

    def test_a_delta_table_is_read_in_the_order_it_was_written(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        """Its data files have random names, so positions begin with the time of writing."""
        table = tmp_path / "in"
        for value in ("first", "second"):
            write_deltalake(table, pa.table({"value": [value, f"{value}, row 2"]}), mode="append")
        settings = make_settings(tmp_path / "job")
        [source] = settings.sources
        settings = settings.model_copy(update={"sources": (source.model_copy(update={"from_": "delta"}),)})
        found = self.read(spark, settings, tmp_path / "checkpoint")
        assert [found[place] for place in sorted(found)] == [
            b"first", b"first, row 2", b"second", b"second, row 2"
        ]  # fmt: skip

    def test_a_delta_table_without_records_is_refused(self, spark: SparkSession, tmp_path: Path) -> None:
        """The error names source, table and what it has instead."""
        write_deltalake(tmp_path / "in", pa.table({"value": [1]}))
        settings = make_settings(tmp_path / "job")
        [source] = settings.sources
        settings = settings.model_copy(update={"sources": (source.model_copy(update={"from_": "delta"}),)})
        with pytest.raises(JobError, match=r"source 'events': .* has column value as bigint; it needs"):
            self.read(spark, settings, tmp_path / "checkpoint")


class TestPaths:
    """The driver's process and the executors."""

    def test_both_paths_fill_all_tables_alike(self, spark: SparkSession, tmp_path: Path) -> None:
        """The same input here and on executors: every table equal, every record accounted for."""
        write_lines(tmp_path / "in", story())
        found = {}
        for name, most in (("driver", "5000"), ("executors", "0")):
            settings = make_settings(tmp_path / name, batch__local_max_records=most)
            job = Job(spark, settings)
            job.run(once=True)
            assert {timing["path"] for timing in job.timings} == {name}
            found[name] = contents(settings)
            counts = totals(settings)
            assert counts["records_read"] == sum(len(lines) for lines in story().values())
            assert counts["rejected"] == 2
            assert counts["duplicate"] == 1
        assert found["driver"] == found["executors"]
        assert found["driver"]["assignment_deltas"]

    def test_cutting_and_running_again_change_nothing(self, spark: SparkSession, tmp_path: Path) -> None:
        """A file a batch gives the versions of all at once; running again adds nothing."""
        versions = []
        for name, most in (("whole", "0"), ("cut", "1")):
            write_lines(tmp_path / name / "in", {"a.jsonl": story()["a.jsonl"]})
            settings = make_settings(
                tmp_path / name / "job", **{"sources.events.max_files_per_trigger": most}
            )
            Job(spark, settings).run(once=True)
            write_lines(tmp_path / name / "in", {"b.jsonl": story()["b.jsonl"]})
            job = Job(spark, settings)
            job.run(once=True)
            assert len(job.timings) == 1
            before = contents(settings)
            Job(spark, settings).run(once=True)
            assert contents(settings) == before
            versions.append([row for row in before["generations"] if "'kind': 'rebalance'" in row])
        assert versions[0] == versions[1]

    def test_other_readers_open_every_table(self, spark: SparkSession, tmp_path: Path) -> None:
        """Polars and, where its extension is at hand, DuckDB read what both paths wrote."""
        write_lines(tmp_path / "in", story())
        settings = make_settings(tmp_path / "job", batch__local_max_records="0")
        Job(spark, settings).run(once=True)
        for name, rows in contents(settings).items():
            location = f"{settings.job.tables}/{name}"
            assert pl.read_delta(location).height == len(rows), name
            files = Tables(settings.job.tables).delta_table(name).file_uris()
            if files:
                count = duckdb.sql("SELECT count(*) FROM read_parquet($files)", params={"files": files})
                assert count.fetchall() == [(len(rows),)], name


class TestCheckpoints:
    """A checkpoint that does not fit the log."""

    def test_a_new_checkpoint_needs_adoption_and_repeats_nothing(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        """Without it the job stops; with it, what the log holds is a duplicate and what is new is applied."""
        write_lines(tmp_path / "in", {"a.jsonl": story()["a.jsonl"]})
        settings = make_settings(tmp_path / "job", groups__dedupe_window_ms="0")
        Job(spark, settings).run(once=True)
        before = contents(settings)
        shutil.rmtree(settings.job.checkpoint_location)
        write_lines(tmp_path / "in", {"b.jsonl": story()["b.jsonl"]})
        with pytest.raises(JobError, match=r"has never seen that checkpoint.*--adopt"):
            Job(spark, settings).run(once=True)
        assert contents(settings) == before
        for most in ("5000", "0"):
            shutil.rmtree(settings.job.checkpoint_location, ignore_errors=True)
            again = make_settings(
                tmp_path / "job", groups__dedupe_window_ms="0", batch__local_max_records=most
            )
            Job(spark, again, adopt=True).run(once=True)
        counts = totals(settings)
        first, second = (len(lines) for lines in story().values())
        assert counts["records_read"] == first + 2 * (first + second)
        assert counts["duplicate"] >= first + first + second
        assert len(contents(settings)["rejected_events"]) == len(before["rejected_events"])

    def test_files_changed_after_they_were_read_are_noticed(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        """A batch that comes again with other content is not mixed with what was logged."""
        write_lines(tmp_path / "in", {"a.jsonl": story()["a.jsonl"]})
        settings = make_settings(tmp_path / "job")
        Job(spark, settings).run(once=True)
        for note in (tmp_path / "job" / "checkpoint" / "commits").glob("*0*"):
            note.unlink()
        (tmp_path / "in" / "a.jsonl").write_text(event("time_advanced", 1) + "\n")
        with pytest.raises(JobError, match="the log holds that batch with digest"):
            Job(spark, settings).run(once=True)

    def test_a_missing_source_is_named(self, tmp_path: Path) -> None:
        """Before Spark starts."""
        with pytest.raises(JobError, match=r"source 'events': .*/in does not exist"):
            run_job(make_settings(tmp_path / "job"), once=True, adopt=False)
