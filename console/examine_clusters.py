"""The doctor's look at the Kafka clusters: who answers, what this login may do, topics, and the clock.

Nothing is made there. Asking for a group lets Kafka make the topic of its coordinator, so no group is
asked for where that is not there yet.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from enum import Enum
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

from conf.clusters import admin_options, spark_kafka_options
from conf.layers import SettingsError
from conf.sources import OFFSETS_TOPIC
from console.findings import Finding, lasting, ok, problem, problem_told, warning

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.admin._topic import TopicDescription

    from conf.settings import Settings
    from conf.sources import SourceSettings

_ANSWER_S = 10.0

_CLOCKS_APART_S = 60
"""So far may a record's time be ahead of ours: clocks that are kept by NTP are within a second."""


def examine_cluster(cluster: str, settings: Settings, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Ask one cluster, with the logins of the settings, for all that the job will need of it.

    Source: rights as Kafka names them, AclOperation; KIP-430 (what a login may do), KIP-734 (newest record).
    """
    described = settings.clusters[cluster]
    sources = [s for s in settings.sources if s.from_ == "kafka" and s.cluster == cluster]
    own = settings.by_cluster()
    sinks = [
        sink for sink in settings.sinks if sink.cluster == cluster or (not sink.cluster and cluster in own)
    ]
    try:
        options = admin_options(described, environ)
        if sources:
            spark_kafka_options(described, environ)
        asked = _Asked(cluster, options)
    except SettingsError as error:
        for told in error.problems:
            yield problem_told("cluster", cluster, told)
        return
    yield from asked.look_around(everywhere=bool(sources), only={sink.topic for sink in sinks})
    if not asked.answers:
        return
    for source in sources:
        yield from asked.look_at_source(source)
    for sink in sinks:
        yield from asked.look_at_sink(sink.name, sink.topic)


class _Asked:
    """One cluster, and what it answers."""

    def __init__(self, cluster: str, options: Mapping[str, str]) -> None:
        from streaming.sources.cluster_metadata import ClusterMetadata

        self._cluster = cluster
        self._user = options.get("sasl.username", "NAME")
        self._told: dict[str, str] = {}
        self._metadata = ClusterMetadata(cluster, options, self._told.__setitem__)
        self._client: AdminClient = self._metadata.client
        self.answers = False

    def look_around(self, *, everywhere: bool, only: set[str]) -> Iterator[Finding]:
        """Ask what the job will ask: for all topics and groups, or for some topics only."""
        from streaming.sources.cluster_metadata import NO_ANSWER

        now_ms = time.time_ns() // 1_000_000
        found = self._metadata.topic_events({}, None if everywhere else only, now_ms=now_ms)
        if everywhere and NO_ANSWER not in self._told:
            self._metadata.group_events(now_ms)
        self.answers = NO_ANSWER not in self._told
        if not self.answers:
            why = self._told[NO_ANSWER].partition("; ")[0]
            advice = f"see the addresses and the login in [clusters.{self._cluster}], and the network between"
            yield problem("cluster", self._cluster, f"it {why}", advice)
            return
        for told in self._told.values():
            yield problem_told("cluster", self._cluster, f"it {told}")
        if not self._told:
            yield ok("cluster", self._cluster, f"it answers, and tells of {len(found)} topics")

    def look_at_source(self, source: SourceSettings) -> Iterator[Finding]:
        """See whether a topic can be read, how new its newest record is, and by whose clock."""
        described = self._describe(source.topic)
        missing = self._missing_right(described, "Read", source.topic)
        if missing is None and source.format == "events":
            missing = self._missing_group_right()
        if missing is not None:
            yield problem("source", source.name, *missing)
        elif isinstance(described, KafkaError):
            made = "Kafka makes it with the first group" if source.topic == OFFSETS_TOPIC else "create it"
            yield problem(
                "source",
                source.name,
                self._about(source.topic, described),
                f"{made}, or correct the name; the job does not start without it",
            )
        else:
            yield self._examine_clock(source, described)

    def look_at_sink(self, name: str, topic: str) -> Iterator[Finding]:
        """See whether a topic is there and can be written to."""
        described = self._describe(topic)
        missing = self._missing_right(described, "Write", topic)
        if missing is not None:
            yield problem("sink", name, *missing)
        elif isinstance(described, KafkaError):
            yield problem(
                "sink",
                name,
                self._about(topic, described),
                "create it; where the brokers make topics themselves the first message does",
            )
        else:
            yield ok("sink", name, _counted(topic, described))

    def _examine_clock(self, source: SourceSettings, described: TopicDescription) -> Finding:
        """Compare the time of the newest record with ours."""
        found, newest_ms = _counted(source.topic, described), self._newest_ms(source.topic, described)
        if newest_ms is None:
            return ok("source", source.name, f"{found}, no record yet")
        age_s = time.time() - newest_ms / 1000
        if age_s < -_CLOCKS_APART_S:
            return warning(
                "clock",
                source.name,
                f"{found}: the newest record's time is {lasting(-age_s)} ahead of this machine's clock",
                "set the clocks (NTP); timers wait until events have that time",
            )
        return ok("source", source.name, f"{found}, newest record {lasting(max(age_s, 0))} old")

    def _describe(self, topic: str) -> TopicDescription | KafkaError:
        """Describe a topic, with what this login may do; or give the error."""
        future = self._client.describe_topics(
            TopicCollection([topic]), include_authorized_operations=True, request_timeout=_ANSWER_S
        )[topic]
        try:
            found: TopicDescription = future.result(timeout=_ANSWER_S)
        except KafkaException as error:
            refused: KafkaError = error.args[0]
            return refused
        return found

    def _about(self, topic: str, error: KafkaError) -> str:
        return f"cluster {self._cluster!r}, topic {topic!r}: {error.str()}"

    def _missing_right(
        self, described: TopicDescription | KafkaError, operation: str, topic: str
    ) -> tuple[str, str] | None:
        """Say which right on a topic is missing and how it is given, None when none is."""
        if isinstance(described, KafkaError):
            if described.code() != KafkaError.TOPIC_AUTHORIZATION_FAILED:
                return None
        elif _allows(described.authorized_operations, operation):
            return None
        return (
            f"cluster {self._cluster!r} does not let this user {operation.lower()} topic {topic!r}",
            f"allow it: kafka-acls --add --allow-principal User:{self._user} --operation {operation} "
            f"--topic {topic!r}",
        )

    def _missing_group_right(self) -> tuple[str, str] | None:
        """Say whether Spark may read as a group of the name that it will make up."""
        from streaming.sources.kafka import GROUP_PREFIX

        if isinstance(self._describe(OFFSETS_TOPIC), KafkaError):
            return None
        group_id = f"{GROUP_PREFIX}-of-the-doctor"
        future = self._client.describe_consumer_groups(
            [group_id], include_authorized_operations=True, request_timeout=_ANSWER_S
        )[group_id]
        try:
            if _allows(future.result(timeout=_ANSWER_S).authorized_operations, "Read"):
                return None
        except KafkaException as error:
            if error.args[0].code() != KafkaError.GROUP_AUTHORIZATION_FAILED:
                return None
        return (
            f"cluster {self._cluster!r} does not let this user read as a group {GROUP_PREFIX}-...",
            f"allow it: kafka-acls --add --allow-principal User:{self._user} --operation Read "
            f"--group {GROUP_PREFIX} --resource-pattern-type prefixed",
        )

    def _newest_ms(self, topic: str, described: TopicDescription) -> int | None:
        """Ask for the time of a topic's newest record, None when there is none or nobody says."""
        newest = OffsetSpec.max_timestamp()  # type: ignore[no-untyped-call]
        wanted = {TopicPartition(topic, each.id): newest for each in described.partitions}
        futures = self._client.list_offsets(wanted, request_timeout=_ANSWER_S)
        try:
            times = [future.result(timeout=_ANSWER_S).timestamp for future in futures.values()]
        except KafkaException:
            # A broker from before 3.0, or a partition without a leader.
            return None
        return max((time_ms for time_ms in times if time_ms >= 0), default=None)


def _allows(allowed: Collection[Enum] | None, operation: str) -> bool:
    """Say whether an operation is among those allowed; a broker from before KIP-430 tells of none."""
    return allowed is None or operation.upper() in {each.name for each in allowed}


def _counted(topic: str, described: TopicDescription) -> str:
    return f"topic {topic!r}, {len(described.partitions)} partitions"
