"""What the job keeps in memory of its tables' files and commits is little, and does not grow with them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from conf.settings import UpkeepSettings
from streaming.job import Job
from streaming.tables.delta import LOG, SNAPSHOTS, Tables
from streaming.tables.properties import STATISTICS
from streaming.tables.schemas import SCHEMA_BY_TABLE
from streaming.tables.upkeep import Upkeep
from tests.deployments import make_settings, story, write_lines
from tests.test_soak import resident_mb
from tests.test_stream_plumbing import SECOND_US, Deployment, group_row, topic_row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from conf.settings import Settings

ALL = {name: {*STATISTICS} & {*schema.names} for name, schema in SCHEMA_BY_TABLE.items()}
"""Of which columns a file of each table has statistics."""

ALLOCATOR = "_RJEM_MALLOC_CONF"


def upkeep_settings() -> UpkeepSettings:
    """Let every few files be put together."""
    plain = {"every_s": 1.0, "compact_from_files": 4, "target_file_bytes": 1 << 20, "vacuum_after_h": 1}
    return UpkeepSettings.model_validate({**plain, "log_retention_h": 1, "keep_days": {}})


def advance(job: Deployment, batches: int, groups: int = 3) -> None:
    """Write batches as the job does, with rows for several tables, snapshots after every fifth."""
    for _ in range(batches):
        number = job.log.last_batch_seq + 1
        alerts = [{"alertname": "GroupEmpty", "status": "firing", "change_number": number}]
        deltas = [{"delta_id": f"{number}", "topic": "orders", "partition": 0, "member_id": "m1"}]
        rows = [
            group_row(f"g{group}", number, alerts=alerts, deltas=deltas, events=[{"event_id": f"e{number}"}])
            for group in range(groups)
        ]
        table = job.commit(topic_row("orders", 1 + number % 5), *rows)
        job.outbox.catch_up((number, table))
        if number % 5 == 0:
            job.snapshots.refresh()
            job.outbox.mark()


def statistics(location: str, engine: str = "") -> list[tuple[str, set[str]]]:
    """List for each data file that a commit added: the operation, and the columns it has statistics of."""
    found = []
    for path in sorted(Path(location, "_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in path.read_text().splitlines()]
        [info] = [action["commitInfo"] for action in actions if "commitInfo" in action]
        if engine in info.get("engineInfo", ""):
            stats = [json.loads(action["add"]["stats"]) for action in actions if "add" in action]
            found += [(info["operation"], {*each["nullCount"], *each["minValues"]}) for each in stats]
    return found


def make_without_properties(root: Path) -> None:
    """Make tables as a release did that kept statistics of everything."""
    for name, schema in SCHEMA_BY_TABLE.items():
        DeltaTable.create(root / name, schema)


class TestStatistics:
    """Smallest and largest values of a file: only where somebody looks files up by them."""

    def test_every_commit_of_ours_keeps_them_of_few_columns(self, tmp_path: Path) -> None:
        """Appends, merges, overwrites and compaction: the columns of STATISTICS that the table has."""
        job = Deployment(tmp_path)
        advance(job, 5)
        Upkeep(job.tables, upkeep_settings()).run()
        job.restart()
        advance(job, 5)
        operations = set()
        for name, columns in ALL.items():
            for operation, found in statistics(job.tables.location(name)):
                operations.add(operation)
                assert found == columns, (name, operation)
        assert operations == {"WRITE", "MERGE", "OPTIMIZE"}

    def test_a_deletion_and_a_read_of_some_batches_find_their_files(self, tmp_path: Path) -> None:
        """Files of other batches are not opened, and a deletion by time rewrites none that it need not."""
        job = Deployment(tmp_path)
        advance(job, 9)
        assert len(job.tables.files(LOG)) == 9
        assert len(job.tables._files_of(LOG, 4, 5)) == 2
        assert len(job.tables.read(LOG, ["batch_seq"], batches=(4, 5))) == 10
        table = DeltaTable(job.tables.location(LOG))
        removed = table.delete(f"observed_at < '{_second(4)}' AND batch_seq <= 7 AND kind <> 'batch'")
        assert (removed["num_deleted_rows"], removed["num_removed_files"]) == (12, 3)

    def test_tables_of_an_earlier_release_get_the_property_before_any_batch(self, tmp_path: Path) -> None:
        """What they hold is found as before, files of both kinds together, and compaction makes one kind."""
        make_without_properties(tmp_path)
        job = Deployment(tmp_path)
        advance(job, 4)
        before = job.contents()
        assert all("state" in found for _, found in statistics(job.tables.location(LOG)))
        versions = {}
        for _ in range(2):
            Upkeep(job.tables, upkeep_settings())
            now = {name: job.tables.delta_table(name).version() for name in SCHEMA_BY_TABLE}
            assert versions in ({}, now)
            versions = now
        advance(job, 1)
        assert statistics(job.tables.location(LOG))[-1] == ("WRITE", ALL[LOG])
        assert len(job.tables._files_of(LOG, 2, 2)) == len(job.tables._files_of(LOG, 5, 5)) == 1
        kept = job.tables.read(LOG, SCHEMA_BY_TABLE[LOG].names, batches=(1, 4)).to_pylist()
        assert sorted(kept, key=repr) == before[LOG]
        Upkeep(job.tables, upkeep_settings()).run()
        for name in set(SCHEMA_BY_TABLE) - {*SNAPSHOTS}:
            files = DeltaTable(job.tables.location(name)).get_add_actions(flatten=True)
            told = {column.split(".", 1)[1] for column in pa.table(files).column_names if "min." in column}
            assert told == ALL[name], name

    @pytest.mark.spark
    def test_sparks_commits_keep_no_more(self, spark: SparkSession, tmp_path: Path) -> None:
        """The log as the executors' path writes it, and readers that ask for a column without statistics."""
        write_lines(tmp_path / "in", story())
        settings = make_settings(tmp_path / "job", batch__local_max_records="0")
        Job(spark, settings).run(once=True)
        of_spark = statistics(f"{settings.job.tables}/{LOG}", engine="Apache-Spark")
        assert of_spark
        assert all(found == ALL[LOG] for _, found in of_spark)
        _ask_by_any_column(settings)


def _second(number: int) -> str:
    """Write the time at which a batch of `Deployment` was observed."""
    return str(pa.scalar(number * SECOND_US, pa.timestamp("us")).as_py())


def _ask_by_any_column(settings: Settings) -> None:
    location = f"{settings.job.tables}/assignment_deltas"
    rows = Tables(settings.job.tables).read("assignment_deltas", ["group_id", "topic", "partition"])
    for condition, wanted in (("partition = 6", ("partition", 6)), ("group_id = 'g3'", ("group_id", "g3"))):
        count = sum(row[wanted[0]] == wanted[1] for row in rows.to_pylist())
        assert count
        asked = QueryBuilder().register("deltas", DeltaTable(location))
        sql = f"SELECT * FROM deltas WHERE {condition}"  # noqa: S608 - the conditions above
        assert pa.table(asked.execute(sql).read_all()).num_rows == count
        assert pl.scan_delta(location).filter(pl.col(wanted[0]) == wanted[1]).collect().height == count


@pytest.mark.parametrize(("there", "wanted"), [(None, "dirty_decay_ms:1000"), ("narenas:1", "narenas:1")])
def test_delta_rs_is_told_before_it_is_loaded(there: str | None, wanted: str) -> None:
    """Its allocator reads the environment once; what an operator has set there stands."""
    code = (
        "import os, sys; from streaming import run; loaded = list(sys.modules);"
        "assert loaded.index('streaming.garbage') < loaded.index('deltalake');"
        f"print(os.environ[{ALLOCATOR!r}])"
    )
    environ = {name: value for name, value in os.environ.items() if name != ALLOCATOR}
    environ |= {ALLOCATOR: there} if there else {}
    command, root = [sys.executable, "-c", code], Path(__file__).parents[1]
    done = subprocess.run(command, cwd=root, env=environ, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == wanted


def work(root: str) -> None:
    """Commit four hundred batches, upkeep after every twentieth; print the memory after each fifty."""
    job = Deployment(Path(root))
    upkeep = Upkeep(job.tables, upkeep_settings())
    for number in range(1, 401):
        advance(job, 1, groups=20)
        if number % 20 == 0:
            upkeep.run()
        if number % 50 == 0:
            # What was given back late would otherwise hide what is kept.
            time.sleep(3)
            sys.stdout.write(f"{resident_mb(['self'])}\n")


@pytest.mark.slow
def test_commits_leave_nothing_in_memory(tmp_path: Path) -> None:
    """Three hundred batches after the first hundred take less than 25 MB, in a process of their own."""
    code = f"from tests.test_tables_memory import work; work({str(tmp_path)!r})"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=True,
    )
    memory_mb = [float(line) for line in done.stdout.split()]
    assert len(memory_mb) == 8
    assert max(memory_mb[-2:]) - memory_mb[1] < 25, memory_mb
