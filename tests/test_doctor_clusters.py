"""The doctor asks a real cluster with the settings' login: who answers, what it may do, what is there."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from conf.settings import load_settings
from console.doctor import examine
from tests.kafka_cluster import KafkaBroker, free_ports, wait_until
from tests.test_doctor import ailing, told

if TYPE_CHECKING:
    from console.findings import Finding

pytestmark = pytest.mark.live


@contextmanager
def a_broker(folder: Path) -> Iterator[KafkaBroker]:
    """Start a broker with two users: one may do what the README's commands allow, one nothing."""
    with KafkaBroker(folder, users=("doctor", "stranger")) as running:
        for topic in ("member-events", "out", "other", "ahead"):
            running.create_topic(topic, 2)
        for topic in ("member-events", "ahead"):
            running.allow("doctor", "READ", topic=topic)
        running.allow("doctor", "WRITE", topic="out")
        running.allow("doctor", "DESCRIBE", topic="*")
        running.allow("doctor", "DESCRIBE", group="*")
        running.produce("member-events", {0: [b"{}"]})
        yield running


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """Start a broker that nobody asks for a group: in the end Kafka has not made the groups' topic."""
    with a_broker(tmp_path_factory.mktemp("kafka") / "broker") as running:
        yield running
        assert "__consumer_offsets" not in running.admin.list_topics(timeout=10).topics


@pytest.fixture
def quick_to_give_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait a fifth as long for an answer that does not come."""
    monkeypatch.setattr("streaming.sources.cluster_metadata.REQUEST_TIMEOUT_S", 2.0)


def look(
    broker: KafkaBroker,
    folder: Path,
    *,
    user: str = "doctor",
    login: dict[str, str] | None = None,
    **more: str,
) -> list[Finding]:
    """Ask the doctor about a source and a sink; `more` are "topic", "to", "format", "servers"."""
    has = {"topic": "member-events", "to": "out", "format": "events", **more}
    options = {
        "bootstrap.servers": has.get("servers", broker.sasl_bootstrap_servers or ""),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": user,
        "sasl.password": broker.login(user).password,
        **(login or {}),
    }
    kafka = "\n".join(f'"{name}" = "{value}"' for name, value in options.items())
    file = folder / "job.toml"
    file.write_text(
        f"""
        [job]
        tables = "{folder / "tables"}"
        checkpoint_location = "{folder / "checkpoint"}"
        [[sources]]
        name = "groups"
        format = "{has["format"]}"
        from = "kafka"
        topic = "{has["topic"]}"
        [[sinks]]
        name = "answers"
        to = "kafka"
        topic = "{has["to"]}"
        [clusters.default.kafka]
        {kafka}
        """
    )
    return list(examine(load_settings(file, {}, {}), os.environ))


def words(findings: list[Finding]) -> list[str]:
    """Write what is not as it should be, a line each."""
    return list(map(told, ailing(iter(findings))))


def test_a_cluster_that_lets_us_is_good(broker: KafkaBroker, tmp_path: Path) -> None:
    """With the rights of the README nothing ails; nothing is made there, no coordinator's topic either."""
    before = set(broker.admin.list_topics(timeout=10).topics)
    assert "__consumer_offsets" not in before
    findings = look(broker, tmp_path)
    assert words(findings) == []
    told_of = {(f.check, f.about): f.found for f in findings}
    assert told_of["cluster", "default"] == "it answers, and tells of 4 topics"
    assert told_of["source", "groups"].startswith("topic 'member-events', 2 partitions, newest record ")
    assert told_of["sink", "answers"] == "topic 'out', 2 partitions"
    assert set(broker.admin.list_topics(timeout=10).topics) == before


def test_a_source_of_offsets_needs_its_topic(broker: KafkaBroker, tmp_path: Path) -> None:
    """Before the first group Kafka has no such topic, and the job would not start."""
    [line] = words(look(broker, tmp_path, format="offsets", topic="__consumer_offsets"))
    assert line.startswith("problem source groups: cluster 'default', topic '__consumer_offsets': ")
    assert "Kafka makes it with the first group" in line


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ({"topic": "nowhere"}, "problem source groups: cluster 'default', topic 'nowhere': Broker: Unknown"),
        ({"topic": "other"}, "not let this user read topic 'other'; allow it: kafka-acls --add --allow-"),
        ({"to": "nowhere"}, "problem sink answers: cluster 'default', topic 'nowhere': Broker: Unknown"),
        ({"to": "other"}, "--allow-principal User:doctor --operation Write --topic 'other'"),
    ],
)
def test_a_topic_that_is_missing_or_closed(
    broker: KafkaBroker, tmp_path: Path, more: dict[str, str], line: str
) -> None:
    """It is named, and a right with the command that gives it."""
    [found] = words(look(broker, tmp_path, **more))
    assert found.startswith("problem ")
    assert line in found


def test_a_login_that_may_nothing(broker: KafkaBroker, tmp_path: Path) -> None:
    """Kafka hides what it may not see: the doctor says which rights are missing."""
    found = words(look(broker, tmp_path, user="stranger"))
    assert "does not let this user describe any topic; allow it: kafka-acls" in found[0]
    assert "--operation Describe --topic '__consumer_offsets'" in found[1]
    assert "--operation Read --topic 'member-events'" in found[2]
    assert "--operation Write --topic 'out'" in found[3]
    assert len(found) == 4


@pytest.mark.usefixtures("quick_to_give_up")
def test_a_wrong_password_and_an_address_where_nobody_is(broker: KafkaBroker, tmp_path: Path) -> None:
    """Both do not answer, each for its reason; no password is shown."""
    [refused] = words(look(broker, tmp_path, login={"sasl.password": "not-the-password"}))
    assert refused.startswith("problem cluster default: it does not answer: ")
    assert "uthentication failed" in refused
    assert "not-the-password" not in refused
    [port] = free_ports(1)
    [silent] = words(look(broker, tmp_path, servers=f"127.0.0.1:{port}"))
    assert "Connection refused" in silent
    assert "see the addresses and the login in [clusters.default]" in silent


@pytest.mark.parametrize(
    ("login", "said"),
    [
        ({"sasl.password": "${file:/nowhere/secret}"}, "the file '/nowhere/secret' cannot be read"),
        ({"sasl.mechanism": "GSSAPI"}, "kafka.sasl.mechanism: is none of PLAIN"),
        ({"retry.backoff.ms": "soon"}, "librdkafka refuses the option 'retry.backoff.ms'"),
    ],
)
def test_options_that_cannot_be_used(
    broker: KafkaBroker, tmp_path: Path, login: dict[str, str], said: str
) -> None:
    """What stops the job at its start is found before it."""
    [line] = words(look(broker, tmp_path, login=login))
    assert line.startswith("problem cluster default: clusters.default")
    assert said in line


def test_clocks_that_are_apart(broker: KafkaBroker, tmp_path: Path) -> None:
    """A record from an hour ahead means that this machine's clock, or a producer's, is wrong."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce("ahead", b"{}", partition=1, timestamp=time.time_ns() // 1_000_000 + 3_600_000)
    assert producer.flush(20) == 0
    [line] = words(look(broker, tmp_path, topic="ahead"))
    assert line.startswith("warning clock groups: topic 'ahead', 2 partitions: the newest record's time is ")
    assert "min ahead of this machine's clock; set the clocks (NTP)" in line


def test_spark_s_own_group_needs_a_right_too(tmp_path: Path) -> None:
    """Once there are groups, a source of events is asked for the right to read as one; others need none."""
    with a_broker(tmp_path / "broker") as broker:

        def makes_the_groups_topic() -> bool:
            [future] = broker.admin.describe_consumer_groups(["any"]).values()
            return future.exception(timeout=20) is None  # not while its coordinator comes up

        wait_until(makes_the_groups_topic, 30, "no group can be described")
        wait_until(lambda: words(look(broker, tmp_path)), 30, "the right was not missed")
        [line] = words(look(broker, tmp_path))
        assert "not let this user read as a group counterpoise-source-...; allow it: kafka-acls --add" in line
        assert "--operation Read --group counterpoise-source --resource-pattern-type prefixed" in line
        broker.allow("doctor", "READ", topic="__consumer_offsets")
        assert words(look(broker, tmp_path, format="offsets", topic="__consumer_offsets")) == []
        broker.allow("doctor", "READ", group="*")
        assert words(look(broker, tmp_path)) == []
