"""Kafka as a source: a topic of events, or `__consumer_offsets` itself, through Spark's connector.

Nine tenths of `__consumer_offsets` are offset commits (key types 0 and 1), which say nothing
about assignments. They are told apart by the key's first bytes inside the JVM and only counted
(docs/adr/0010); so are the records about the groups under which Spark's own consumers read.

Records of groups are never part of a transaction, so the topic is read uncommitted: an
open transaction of some producer must not hold the groups back. A compacted topic has gaps
and old segments go; a missing offset is no failure of the stream, and a generation that is
missing for it shows as a version of kind gap. One that is missing where no offset is was never
written (docs/adr/0012), which is why records are counted by partition before any is left out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from pyspark.sql import Observation
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from conf.clusters import admin_options, spark_kafka_options
from streaming.model import Position
from streaming.sources.row_numbers import row_in_task
from streaming.tables.delta import JobError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from conf.settings import Settings
    from conf.sources import SourceSettings
    from streaming.events.stretches import Records
    from streaming.sources.records import Source

GROUP_PREFIX = "counterpoise-source"
"""How the groups begin under which Spark's consumers read; they are not watched."""

OFFSETS_BY_CONSUMER = {"spark.sql.streaming.kafka.useDeprecatedOffsetFetching": "true"}
"""Spark's other way to look offsets up leaves internal topics out without a word."""

_TIMEOUT_S = 30

_COMMIT_KEYS = ("0000", "0001")

_MOST_PARTITIONS = 100_000
"""Up to this many partitions of a topic Spark's histogram is a count of each; a topic has a few dozen."""


def read_kafka(spark: SparkSession, name: str, settings: Settings) -> DataFrame:
    """Read one Kafka source as raw records (see streams.py), `bytes` left out.

    Args:
        spark: a session with the connector among its packages.
        name: the source's name in the settings.
        settings: all settings; the source's cluster has its options there.
    """
    source = next(source for source in settings.sources if source.name == name)
    reader = spark.readStream.format("kafka")
    for option, value in _options(source, settings).items():
        reader = reader.option(option, value)
    return reader.load().select(
        F.lit(name).alias("source"),
        F.col("topic").alias("path"),
        F.lit(-1).cast("long").alias("block"),
        F.col("partition"),
        F.col("offset"),
        F.unix_millis("timestamp").alias("timestamp_ms"),
        F.col("key"),
        F.col("value"),
        (is_only_counted() if source.format == "offsets" else F.lit(False)).alias("is_filtered"),
    )


def admin_options_of(settings: Settings) -> dict[str, dict[str, str]]:
    """Give the admin client's options of every cluster that a source is read from, by its name."""
    names = sorted({source.cluster for source in settings.sources if source.from_ == "kafka"})
    return {name: admin_options(settings.clusters[name]) for name in names}


def _options(source: SourceSettings, settings: Settings) -> dict[str, str]:
    options = {
        # A compacted topic loses offsets as a matter of course.
        "failOnDataLoss": "false",
        "groupIdPrefix": GROUP_PREFIX,
        # A batch asks for what is there; a fetch that waits for more holds the next one up.
        "kafka.fetch.max.wait.ms": "20",
        **_topic(source, settings),
        **spark_kafka_options(settings.clusters[source.cluster]),
        **_starting(source.starting),
    }
    if source.max_records_per_trigger:
        options["maxOffsetsPerTrigger"] = str(source.max_records_per_trigger)
    return options


def _topic(source: SourceSettings, settings: Settings) -> dict[str, str]:
    """Say which topic: events by subscription, so that new partitions are found; offsets by assignment.

    A subscription makes a group of our own, which is in everybody's way who watches
    groups; the partitions of `__consumer_offsets` never change, so it needs none.
    """
    if source.format == "events":
        return {"subscribe": source.topic}
    count = _partition_count(source.topic, source.cluster, admin_options(settings.clusters[source.cluster]))
    return {"assign": json.dumps({source.topic: list(range(count))})}


def _partition_count(topic: str, cluster: str, options: Mapping[str, str]) -> int:
    try:
        found = AdminClient({"log_level": "2", **options}).list_topics(topic, timeout=_TIMEOUT_S)
    except KafkaException as error:
        text = f"cluster {cluster!r} does not answer: {error.args[0].str()}; see [clusters.{cluster}]"
        raise JobError(text) from None
    described = found.topics[topic]
    if described.error is not None or not described.partitions:
        why = described.error.str() if described.error is not None else "it has no partitions"
        raise JobError(
            f"cluster {cluster!r}, topic {topic!r}: {why}; Kafka makes it with the first group, and this "
            "user needs Describe and Read on it"
        )
    return len(described.partitions)


def _starting(starting: str) -> dict[str, str]:
    if starting in ("earliest", "latest"):
        return {"startingOffsets": starting}
    moment = datetime.fromisoformat(starting)
    return {
        "startingTimestamp": str(round(moment.timestamp() * 1000)),
        # A partition with nothing that late begins at its end, instead of failing the query.
        "startingOffsetsByTimestampStrategy": "latest",
    }


def count_and_filter(frame: DataFrame, sources: Sequence[Source]) -> tuple[DataFrame, Observation]:
    """Leave out of a batch what is only counted, and count what there was.

    Every row gets its number in its task (column `row`) before any is left out.

    Args:
        frame: the batch's raw records.
        sources: those of `__consumer_offsets`, read from Kafka.

    Returns:
        (the frame to read, what `records_read` takes when its first action is done).
    """
    observation = Observation()
    # One aggregate that counts by partition; a count for each would take half of the reading's time.
    counts = (
        F.to_json(
            F.histogram_numeric(
                F.when(F.col("source") == source.name, F.col("partition")), F.lit(_MOST_PARTITIONS)
            )
        ).alias(f"records_{number}")
        for number, source in enumerate(sources)
    )
    numbered = frame.withColumn("row", row_in_task())
    observed = numbered.observe(observation, F.count_if("is_filtered").alias("filtered"), *counts)
    return observed.where(~F.col("is_filtered")), observation


def records_read(observed: Mapping[str, Any], sources: Sequence[Source]) -> tuple[int, Records]:
    """Read what `count_and_filter` has counted: (records left out, records read by source and partition)."""
    read: Records = {source.name: {} for source in sources}
    for number, source in enumerate(sources):
        # Spark lays the bins of several tasks side by side.
        for counted in json.loads(observed[f"records_{number}"] or "[]"):
            stream = Position(source.name, source.location, counted["x"], 0).stream
            read[source.name][stream] = read[source.name].get(stream, 0) + round(counted["y"])
    return observed["filtered"], read


def is_only_counted() -> Column:
    """Say of a record of `__consumer_offsets` whether it is an offset commit, or about ourselves."""
    is_commit = F.hex(F.substring("key", 1, 2)).isin(*_COMMIT_KEYS)
    # Behind the type (2 bytes) and the length (2 bytes) of the group's id.
    is_ours = F.hex(F.substring("key", 5, len(GROUP_PREFIX))) == GROUP_PREFIX.encode().hex().upper()
    return F.coalesce(is_commit | is_ours, F.lit(False))
