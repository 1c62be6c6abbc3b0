"""Equal input gives equal tables: run again, cut into other shards, on either path."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from streaming.job import Job
from tests.deployments import contents, make_settings, story, write_lines
from tests.test_stream_promises import demo_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from conf.settings import Settings

pytestmark = pytest.mark.spark

DRIVER, EXECUTORS = "20000", "0"
PARTITIONS = "spark.sql.shuffle.partitions"


def tables_of(spark: SparkSession, settings: Settings, shards: int, partitions: int) -> dict[str, list[str]]:
    """Run the job once; what its tables hold, numbers of the log and times of observation aside."""
    batch = settings.batch.model_copy(update={"shards": shards})
    before = str(spark.conf.get(PARTITIONS))
    spark.conf.set(PARTITIONS, str(partitions))
    try:
        job = Job(spark, settings.model_copy(update={"batch": batch}))
        job.run(once=True)
    finally:
        spark.conf.set(PARTITIONS, before)
    assert {t["path"] for t in job.timings} == {"executors" if not batch.local_max_records else "driver"}
    return contents(settings)


def test_one_shard_or_eight_or_none_at_all(spark: SparkSession, tmp_path: Path) -> None:
    """On the executors in one task or in eight, and in the driver: the same tables, row by row."""
    write_lines(tmp_path / "in", story())
    in_driver = tables_of(spark, make_settings(tmp_path / "driver", batch__local_max_records=DRIVER), 2, 2)
    assert len(in_driver["generations"]) > 24
    for number in (1, 8):
        settings = make_settings(tmp_path / f"{number}", batch__local_max_records=EXECUTORS)
        assert tables_of(spark, settings, number, number) == in_driver


@pytest.mark.slow
def test_runs_over_real_records_are_equal(spark: SparkSession, tmp_path: Path) -> None:
    """Captured groups and the demo's story: both paths twice, every mix of 1, 2, 8 shards and partitions."""
    twice = [tables_of(spark, demo_settings(tmp_path / f"driver-{n}", DRIVER), 2, 2) for n in (1, 2)]
    assert twice[0] == twice[1]
    mixes = [*itertools.product((1, 2, 8), repeat=2), (2, 2)]
    for number, (shards, partitions) in enumerate(mixes):
        settings = demo_settings(tmp_path / f"executors-{number}", EXECUTORS)
        found = tables_of(spark, settings, shards, partitions)
        assert found == twice[0], f"{shards} shards, {partitions} partitions"
