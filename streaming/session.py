"""The Spark session: the only place that makes one."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

if TYPE_CHECKING:
    from conf.settings import Settings

_ALWAYS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # Event times are UTC everywhere; a session in local time would shift what people read.
    "spark.sql.session.timeZone": "UTC",
}

_DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Delta reads its own snapshot with 50 tasks unless told; that is most of a small batch.
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "2000",
}


def start_session(settings: Settings) -> SparkSession:
    """Start the session that the settings describe, or give the running one.

    `spark.options` of the settings win over the defaults above, not over what
    correctness needs (Delta's extension, UTC, this interpreter for the workers).
    """
    options = {
        "spark.sql.shuffle.partitions": str(settings.batch.shards),
        **_DEFAULTS,
        **settings.spark.option_values(),
        **_ALWAYS,
        "spark.pyspark.driver.python": sys.executable,
    }
    # Without these the workers start whatever `python3` is, without our dependencies: PySpark reads
    # the variable, spark-submit the option. On a cluster the variable names the shipped environment.
    options["spark.pyspark.python"] = os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    packages = ",".join(settings.spark.packages)
    if packages:
        options["spark.jars.packages"] = packages
    builder = SparkSession.builder.master(settings.spark.master).appName(settings.spark.app_name)
    for key, value in sorted(options.items()):
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session
