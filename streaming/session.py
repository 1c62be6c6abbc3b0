"""The Spark session: the only place that makes one."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from streaming.garbage import look_for_cycles_rarely
from streaming.sources.kafka import OFFSETS_BY_CONSUMER

if TYPE_CHECKING:
    from conf.settings import Settings

_ALWAYS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # Event times are UTC everywhere; a session in local time would shift what people read.
    "spark.sql.session.timeZone": "UTC",
    # INT96, the default, is read as nanoseconds elsewhere, which end in the year 2262.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}

_DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Delta reads its own snapshot with 50 tasks unless told; that is most of a small batch.
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "2000",
}


_LINES_OF_FAILURE = 20


def start_session(settings: Settings) -> SparkSession:
    """Start the session that the settings describe, or give the running one.

    `spark.options` of the settings win over the defaults above, not over what
    correctness needs (Delta's extension, UTC, this interpreter for the workers).
    """
    look_for_cycles_rarely()
    needs_kafka = any(source.from_ == "kafka" for source in settings.sources)
    options = {
        "spark.sql.shuffle.partitions": str(settings.batch.shards),
        **_DEFAULTS,
        **settings.spark.option_values(),
        **_ALWAYS,
        **(OFFSETS_BY_CONSUMER if needs_kafka else {}),
        "spark.pyspark.driver.python": sys.executable,
    }
    # Without these the workers start whatever `python3` is, without our dependencies: PySpark reads
    # the variable, spark-submit the option. On a cluster the variable names the shipped environment.
    options["spark.pyspark.python"] = os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    extra = settings.spark.kafka_packages if needs_kafka and settings.spark.packages else ()
    packages = ",".join((*settings.spark.packages, *extra))
    if packages:
        options["spark.jars.packages"] = packages
    builder = SparkSession.builder.master(settings.spark.master).appName(settings.spark.app_name)
    for key, value in sorted(options.items()):
        builder = builder.config(key, value)
    with _jvm_output_to(settings.log.jvm_output):
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


@contextmanager
def _jvm_output_to(path: str) -> Iterator[None]:
    """Let the JVM that starts in this block write its stderr to a file, for as long as it lives.

    Ivy's report and Spark's start-up lines come before any logging can be set. A
    start that fails shows the end of the file.
    """
    if not path:
        yield
        return
    sys.stderr.flush()
    own = os.dup(2)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(file, 2)
    os.close(file)
    try:
        yield
    except Exception:
        os.dup2(own, 2)
        last = Path(path).read_text(encoding="utf-8", errors="replace").splitlines()[-_LINES_OF_FAILURE:]
        sys.stderr.write("\n".join([*last, f"(the end of {path})", ""]))
        raise
    finally:
        os.dup2(own, 2)
        os.close(own)
