"""The Spark session of the tests; run as a program this fetches the jars that one needs, and no more.

Two processes of tests that fetch them at the same time would write into one cache.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from conf.settings import load_settings
from streaming.session import start_session
from streaming.sources.kafka import OFFSETS_BY_CONSUMER

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def start_test_session() -> SparkSession:
    """Start a small session with Delta and the Kafka connector."""
    overrides = {
        "spark.master": "local[2]",
        "spark.app_name": "counterpoise-tests",
        "spark.options.spark.driver.memory": "1g",
        "spark.options.spark.sql.shuffle.partitions": "2",
        **{f"spark.options.{name}": value for name, value in OFFSETS_BY_CONSUMER.items()},
    }
    settings = load_settings(None, {}, overrides)
    # One JVM serves them all, so it has the packages of those with a source from Kafka too.
    packages = (*settings.spark.packages, *settings.spark.kafka_packages)
    with_kafka = settings.spark.model_copy(update={"packages": packages})
    return start_session(settings.model_copy(update={"spark": with_kafka}))


if __name__ == "__main__":
    start_test_session().stop()
