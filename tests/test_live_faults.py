"""What a cluster does to a job that watches it: an outage, a compaction, records of unknown kinds.

It goes on through all three, loses nothing that is still to be had, and says what it saw.
"""

from __future__ import annotations

import logging
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from console.tables import read_table
from tests.kafka_cluster import KafkaBroker, Pair, wait_until
from tests.kafka_members import ConfluentClient, GroupMember, JavaClient, KafkaPythonClient
from tests.live_jobs import (
    OFFSETS_TOPIC,
    AdminClients,
    GroupsSeen,
    LiveJob,
    Moment,
    Row,
    WatchedGroup,
    take_moment,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.live, pytest.mark.spark, pytest.mark.slow]

OUTAGE_S = 30
SHORT_SESSION_MS, LONG_SESSION_MS = 10_000, 60_000
ALL: frozenset[Pair] = frozenset(("orders", partition) for partition in range(6))

MEMBERS: dict[str, tuple[type[GroupMember], str]] = {
    "classic": (JavaClient, "classic"),
    "cooperative": (ConfluentClient, "classic"),
    "consumer": (ConfluentClient, "consumer"),
}
ASSIGNORS = {"classic": ("range",), "cooperative": ("cooperative-sticky",)}


def java_hash(text: str) -> int:
    """Compute java.lang.String.hashCode of an ASCII text, signed."""
    value = 0
    for character in text:
        value = (31 * value + ord(character)) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def partition_of(group_id: str) -> int:
    """Say in which of four partitions of `__consumer_offsets` a group lives."""
    return abs(java_hash(group_id)) % 4


BYSTANDER = next(name for i in range(99) if partition_of(name := f"bystander-{i}") == 1)
STRANGE = next(name for i in range(99) if partition_of(name := f"strange-{i}") == 0)


def key_of(key_type: int, group_id: str) -> bytes:
    """Write a record's key: its type, then the group's id."""
    return key_type.to_bytes(2, "big") + len(group_id).to_bytes(2, "big") + group_id.encode()


FOREIGN = {
    "a key type of the future": (key_of(99, STRANGE), b"\x00\x00new"),
    "a value version of the future": (key_of(2, STRANGE), b"\x00\x4dnew"),
    "the same of KIP-848": (key_of(3, STRANGE), b"\x00\x09new"),
    "a damaged value": (key_of(2, STRANGE), b"\x00\x03broken"),
    "a key of one byte": (b"\x00", b"new"),
}


@dataclass(slots=True)
class Evidence:
    """What was seen: moments by name, the tables' rows by name, and the log's lines."""

    groups: dict[str, WatchedGroup] = field(default_factory=dict)
    moments: dict[str, Moment] = field(default_factory=dict)
    rows: dict[str, list[Row]] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    missing: int = 0
    after_injection: GroupsSeen = field(default_factory=dict)
    told_after_injection: GroupsSeen = field(default_factory=dict)

    def versions(self, group_id: str) -> list[Row]:
        """Give a group's versions in order, `state` rows left out."""
        rows = (row for row in self.rows["generations"] if row["group_id"] == group_id)
        return sorted((row for row in rows if row["kind"] != "state"), key=lambda row: row["version"])


class _Lines(logging.Handler):
    def __init__(self, lines: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(record.getMessage())


def generations_kept(broker: KafkaBroker, group_id: str) -> int:
    """Count the records of a classic group (key type 2) that `__consumer_offsets` still holds."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "counterpoise-tests-count",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.assign([TopicPartition(OFFSETS_TOPIC, partition_of(group_id), OFFSET_BEGINNING)])
        kept = 0
        while True:
            message = consumer.poll(10)
            assert message is not None, "the partition does not end"
            if message.error() is not None:
                return kept
            kept += message.key() == key_of(2, group_id)
    finally:
        consumer.close()


def compact(broker: KafkaBroker, group_id: str, most_kept: int, timeout_s: float = 90) -> int:
    """Let Kafka's cleaner run over `__consumer_offsets`: how many generations of the group are left.

    Only closed segments are cleaned, and a segment is closed by the first record after its time.
    """
    resource = ConfigResource(
        ResourceType.TOPIC,
        OFFSETS_TOPIC,
        incremental_configs=[
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in (("segment.ms", "500"), ("min.cleanable.dirty.ratio", "0.001"))
        ],
    )
    for altered in broker.admin.incremental_alter_configs([resource]).values():
        altered.result(timeout=20)
    kept = 0

    def is_compacted() -> bool:
        nonlocal kept
        # Offset commits of a client without members: records of the partition that say nothing of groups.
        commit(broker, group_id)
        time.sleep(1)
        kept = generations_kept(broker, group_id)
        return kept <= most_kept

    wait_until(is_compacted, timeout_s, lambda: f"{kept} generations of {group_id!r} are still there")
    return kept


def commit(broker: KafkaBroker, group_id: str) -> None:
    """Commit an offset in the group's partition, for another group that has no members."""
    silent = next(f"silent-{i}" for i in range(99) if partition_of(f"silent-{i}") == partition_of(group_id))
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": silent})
    try:
        consumer.commit(offsets=[TopicPartition("orders", 0, 1)], asynchronous=False)
    finally:
        consumer.close()


def inject(broker: KafkaBroker) -> None:
    """Write the foreign records under the client id that a broker lets into internal topics.

    Source: `AdminUtils.ADMIN_CLIENT_ID`, KafkaApis.handleProduceRequest.
    """
    errors: list[Any] = []
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "client.id": "__admin_client", "log_level": 0}
    )
    for key, value in FOREIGN.values():
        producer.produce(
            OFFSETS_TOPIC,
            value,
            key,
            partition=partition_of(STRANGE),
            on_delivery=lambda error, _: errors.append(error) if error is not None else None,
        )
    assert producer.flush(20) == 0
    assert errors == []


@pytest.fixture(scope="module")
def evidence(spark: SparkSession, kafka: KafkaBroker, tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    """Go through all three on a broker of its own, which is stopped, and in the end not fit for groups."""
    del kafka  # Where it cannot be built this one cannot either.
    folder = tmp_path_factory.mktemp("faults")
    seen = Evidence()
    groups = seen.groups
    properties = {
        "log.cleaner.backoff.ms": "500",
        "group.consumer.session.timeout.ms": str(SHORT_SESSION_MS),
        "group.consumer.heartbeat.interval.ms": "1000",
    }
    handler = _Lines(seen.lines)
    logging.getLogger("streaming").addHandler(handler)
    with ExitStack() as running:
        running.callback(logging.getLogger("streaming").removeHandler, handler)
        broker = running.enter_context(KafkaBroker(folder / "kafka", properties=properties))
        broker.create_topic("orders", 6)
        admins = running.enter_context(AdminClients(broker))
        job = running.enter_context(LiveJob(spark, folder / "job", broker, starting="earliest"))

        def join(group_id: str, letter: str) -> None:
            library, kind = MEMBERS[group_id]
            group = groups.setdefault(group_id, WatchedGroup(group_id=group_id, kind=kind))
            group.client_ids[letter] = f"{group_id}-{letter}"
            more = {"session_timeout_ms": LONG_SESSION_MS} if kind == "classic" else {}
            client = library(
                broker,
                group_id=group_id,
                kind=kind,
                assignors=ASSIGNORS.get(group_id, ()),
                client_id=group.client_ids[letter],
                **more,
            )
            group.clients[letter] = running.enter_context(client)
            group.present.add(letter)
            group.wanted = (ALL,)
            client.subscribe("orders")

        def take(name: str) -> None:
            seen.moments[name] = take_moment(name, groups.values(), admins, job, timeout_s=120)

        for group_id in MEMBERS:
            join(group_id, "a")
        take("before the outage")
        broker.stop()
        time.sleep(OUTAGE_S)
        broker.start()
        for group_id in MEMBERS:
            join(group_id, "b")
        take("after the outage")

        job.stop()
        for letter in "cd":
            join("classic", letter)
            wait_until(lambda: owned_by(groups["classic"]) == ALL, 60, "the group does not settle")
        for letter in "cd":
            groups["classic"].leave(letter)
            groups["classic"].clients[letter].wait_for("left")
        wait_until(lambda: owned_by(groups["classic"]) == ALL, 60, "the group does not settle")
        before = generations_kept(broker, "classic")
        seen.missing = before - compact(broker, "classic", most_kept=1)
        job.start()
        take("after the compaction")

        inject(broker)
        job.catch_up()
        # The coordinator of that partition does not survive it; those of the others do, and so must the job.
        groups[BYSTANDER] = WatchedGroup(group_id=BYSTANDER, kind="classic", client_ids={"a": "bystander"})
        late = KafkaPythonClient(broker, group_id=BYSTANDER, assignors=("range",), client_id="bystander")
        running.enter_context(late)
        late.subscribe("orders")
        wait_until(lambda: late.owned == ALL, 60, "the late group owns nothing")
        job.catch_up()
        seen.told_after_injection = admins.describe([BYSTANDER])
        seen.after_injection = job.describe([BYSTANDER])
        job.stop()
        names = ("generations", "events", "rejected_events", "assignment_deltas")
        seen.rows = {name: read_table(job.tables, name).to_pylist() for name in names}
    return seen


def owned_by(group: WatchedGroup) -> frozenset[Pair]:
    """Give what the clients own by their own account; nothing while one has none or two the same."""
    by_client = [group.clients[letter].owned for letter in group.present]
    owned = [pair for of_client in by_client for pair in of_client]
    return frozenset(owned) if all(by_client) and len(set(owned)) == len(owned) else frozenset()


@pytest.mark.parametrize("name", ["before the outage", "after the outage", "after the compaction"])
def test_tables_say_what_the_admin_client_says(evidence: Evidence, name: str) -> None:
    """Whatever happened before, at a stable moment the tables have every member and owner."""
    assert evidence.moments[name].shown == evidence.moments[name].told


def test_an_outage_costs_a_line_and_no_generation(evidence: Evidence) -> None:
    """The job says that the cluster does not answer and when it does again; the histories go on."""
    assert sum("does not answer" in line for line in evidence.lines) == 1
    for group_id in MEMBERS:
        kinds = [row["kind"] for row in evidence.versions(group_id)]
        assert kinds.count("gap") == (group_id == "classic")  # made by the compaction
        assert set(kinds) <= {"rebalance", "gap"}


def test_what_was_compacted_away_is_named_a_gap(evidence: Evidence) -> None:
    """Generations that nobody can read any more make one gap that names them, and no invented moves."""
    assert evidence.missing >= 2
    (gap,) = [row for row in evidence.versions("classic") if row["kind"] == "gap"]
    before = next(row for row in evidence.versions("classic") if row["version"] == gap["version"] - 1)
    first, last = before["generation_id"] + 1, gap["generation_id"] - 1
    assert gap["reason"].startswith(f"gap: generations {first} to {last} not seen")
    deltas = evidence.rows["assignment_deltas"]
    assert not [r for r in deltas if r["group_id"] == "classic" and r["version"] == gap["version"]]


def test_foreign_records_are_kept_and_counted(evidence: Evidence) -> None:
    """Of each foreign record it is told what is not known of it, with its bytes; none stops the job."""
    unknown = [row for row in evidence.rows["events"] if row["type"] == "unknown_record"]
    rejected = evidence.rows["rejected_events"]
    assert len(unknown) + len(rejected) == len(FOREIGN)
    assert len(unknown) == 3
    assert all(row["outcome"] == "ignored" and "not known" in row["reason"] for row in unknown)
    reasons = sorted(row["reason"] for row in rejected)
    assert ["key type 2, value version 3" in reason for reason in reasons].count(True) == 1


def test_other_groups_are_watched_all_the_same(evidence: Evidence) -> None:
    """A group that comes after the foreign records is in the tables as the admin client has it."""
    assert evidence.after_injection == evidence.told_after_injection
    assert evidence.after_injection[BYSTANDER].state == "Stable"
