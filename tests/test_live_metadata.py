"""What a real cluster says of its topics and groups, and the rights that asking for it takes."""

from __future__ import annotations

import json
import logging
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from pydantic import SecretStr

from conf.clusters import ClusterSettings, admin_options
from conf.layers import SettingsError
from streaming.events.parsing import Rejection, parse_record
from streaming.groups.broadcast import advance_topics
from streaming.model import Input, Position, TopicState
from streaming.sources.cluster_metadata import ClusterMetadata
from tests.kafka_cluster import ROOT, ConnectWorker, KafkaBroker, wait_until
from tests.kafka_members import JavaClient

pytestmark = pytest.mark.live

NOW_MS = 1_795_225_200_000
PREFIX = "metadata-"
"""Of this file's topics and groups: other tests share the broker."""


def metadata_of(broker: KafkaBroker, **options: str) -> ClusterMetadata:
    """Make the client under test, over the plain listener unless told otherwise."""
    kafka = {
        "bootstrap.servers": broker.bootstrap_servers,
        **{k.replace("_", "."): v for k, v in options.items()},
    }
    cluster = ClusterSettings(kafka={name: SecretStr(value) for name, value in kafka.items()})
    return ClusterMetadata("prod", admin_options(cluster, {}))


def accepted(event: Mapping[str, Any], number: int = 1) -> Input:
    """Let the parser of events read one of ours."""
    parsed = parse_record(
        json.dumps(event).encode(),
        position=Position("ticks", "tick.jsonl", -1, number),
        format="events",
        default_cluster="default",
        max_record_bytes=1_048_576,
    )
    assert not isinstance(parsed, Rejection), parsed.reason
    assert parsed.cluster == "prod"
    return parsed


class Known:
    """What the log would know of the topics: our own events, applied."""

    def __init__(self, metadata: ClusterMetadata) -> None:
        """Start with nothing known."""
        self.topics: dict[str, TopicState] = {}
        self._metadata = metadata
        self._now_ms = NOW_MS

    def ask(self, *only: str) -> list[dict[str, Any]]:
        """Ask for all topics or some, apply what is said; gives the events of this file's topics."""
        self._now_ms += 1000
        events = self._metadata.topic_events(self.topics, only or None, now_ms=self._now_ms)
        inputs = [accepted(event, number) for number, event in enumerate(events, start=1)]
        for state, outcome in advance_topics(self.topics, inputs, dedupe_window_ms=86_400_000):
            assert outcome.outcome == "applied"
            self.topics[state.topic] = state
        return [event for event in events if event["topic"].startswith(PREFIX)]


def delete_topic(broker: KafkaBroker, topic: str) -> None:
    """Delete a topic and wait until the broker tells so."""
    broker.admin.delete_topics([topic])[topic].result(timeout=20)
    wait_until(lambda: topic not in broker.admin.list_topics(timeout=5).topics, 20, f"{topic} is still there")


def test_a_topic_s_life_is_told(kafka: KafkaBroker) -> None:
    """New, grown, gone, made anew: each is told once, as an event that is accepted."""
    topic = f"{PREFIX}life"
    known = Known(metadata_of(kafka))
    known.ask()
    kafka.create_topic(topic, 2)
    (made,) = known.ask()
    assert (made["event_time"], made["partitions"], made["partition_racks"]) == (0, 2, [["rack-a"]] * 2)
    assert known.ask() == []
    kafka.grow_topic(topic, 3)
    (grown,) = known.ask()
    assert (grown["event_time"], grown["partitions"], grown["topic_id"]) == (
        NOW_MS + 4000,
        3,
        made["topic_id"],
    )
    delete_topic(kafka, topic)
    assert known.ask(topic) == []
    (gone,) = known.ask()
    assert (gone["event_time"], gone["partitions"]) == (NOW_MS + 6000, 0)
    assert known.ask() == []
    kafka.create_topic(topic, 3)
    (again,) = known.ask()
    assert (again["event_time"], again["partitions"]) == (NOW_MS + 8000, 3)
    assert again["topic_id"] != made["topic_id"]
    delete_topic(kafka, topic)
    kafka.create_topic(topic, 1)
    one, other = known.ask()
    assert (one["partitions"], other["partitions"]) == (0, 1)
    assert other["topic_id"] not in {made["topic_id"], again["topic_id"]}
    assert known.topics[topic].partition_count == 1


def test_what_was_told_is_not_told_again_before_it_is_applied(kafka: KafkaBroker) -> None:
    """A batch that lasts longer than the time between two questions does not hear the same growth twice."""
    topic = f"{PREFIX}slow"
    kafka.create_topic(topic, 2)
    metadata = metadata_of(kafka)
    assert [e["partitions"] for e in metadata.topic_events({}, {topic}, now_ms=NOW_MS)] == [2]
    assert metadata.topic_events({}, {topic}, now_ms=NOW_MS + 1000) == []
    kafka.grow_topic(topic, 3)
    assert [e["partitions"] for e in metadata.topic_events({}, {topic}, now_ms=NOW_MS + 2000)] == [3]


def test_some_topics_are_asked_for_by_name(kafka: KafkaBroker) -> None:
    """Unknown topics that turn up are asked for alone; what is not there, or Kafka's own, is not told."""
    names = [f"{PREFIX}named-{number:02}" for number in range(12)]  # so many ids hold every character
    for name in names:
        kafka.create_topic(name, 1)
    known = Known(metadata_of(kafka))
    events = known.ask(*names, f"{PREFIX}nobodys", "__consumer_offsets", "no topic/name", "")
    assert [(event["topic"], event["partitions"]) for event in events] == [(name, 1) for name in names]
    assert list(known.topics) == names


def test_what_was_known_without_an_id_or_racks_learns_them(kafka: KafkaBroker) -> None:
    """A topic from JSON events gets its id and racks once, and is not taken for another topic."""
    topic = f"{PREFIX}half-known"
    kafka.create_topic(topic, 2)
    known = Known(metadata_of(kafka))
    known.topics[topic] = TopicState(topic=topic, partition_count=2)
    (event,) = (event for event in known.ask() if event["topic"] == topic)
    assert (event["partitions"], event["partition_racks"]) == (2, [["rack-a"]] * 2)
    assert known.ask() == []


class States:
    """The group_state events of one group."""

    def __init__(self, metadata: ClusterMetadata, group_id: str, *others: str) -> None:
        """Ask once, so that only what comes after counts."""
        self._metadata, self._group_id, self._others = metadata, group_id, others
        self.seen: list[tuple[str, str, str]] = []
        self.ask()

    def ask(self) -> None:
        """Ask and keep what is said of the group."""
        for event in self._metadata.group_events(NOW_MS, self._others):
            assert accepted(event).type == "group_state"
            if event["group_id"] == self._group_id:
                self.seen.append((event["state"], event["protocol_type"], event["group_type"]))

    def wait_for(self, state: str) -> None:
        """Ask until the group is in this state."""

        def is_there() -> bool:
            self.ask()
            return bool(self.seen) and self.seen[-1][0] == state

        wait_until(is_there, 30, lambda: f"{self._group_id!r} told {self.seen}, not {state!r}")


def test_a_rebalance_is_told_as_it_lasts(kafka: KafkaBroker) -> None:
    """A group that waits for a member is in PreparingRebalance until that answers, and Empty in the end."""
    topic = group_id = f"{PREFIX}rebalance"
    kafka.create_topic(topic, 2)
    joining: dict[str, Any] = {"group_id": group_id, "assignors": ("range",), "session_timeout_ms": 30_000}
    states = States(metadata_of(kafka), group_id)
    with JavaClient(kafka, **joining) as first, JavaClient(kafka, **joining) as second:
        first.subscribe(topic)
        first.wait_for("assigned")
        states.wait_for("Stable")
        first.pause()
        second.subscribe(topic)
        states.wait_for("PreparingRebalance")
        states.ask()
        first.resume()
        states.wait_for("Stable")
        first.leave()
        second.leave()
        states.wait_for("Empty")
    names = [state for state, _, _ in states.seen if state != "CompletingRebalance"]
    assert names[:4] == ["Stable", "PreparingRebalance", "Stable", "PreparingRebalance"] or names == [
        *("Stable", "PreparingRebalance", "Stable", "Empty"),
    ]
    assert {(kind, group_type) for _, kind, group_type in states.seen} == {("consumer", "classic")}


def test_a_kip_848_group_s_state_is_told(kafka: KafkaBroker) -> None:
    """A group under the consumer protocol is Stable with members and Empty without."""
    topic = group_id = f"{PREFIX}kip-848"
    kafka.create_topic(topic, 2)
    states = States(metadata_of(kafka), group_id)
    with JavaClient(kafka, group_id=group_id, kind="consumer") as member:
        member.subscribe(topic)
        member.wait_for("assigned")
        states.wait_for("Stable")
        member.leave()
        states.wait_for("Empty")
    assert {(kind, group_type) for _, kind, group_type in states.seen} == {("consumer", "consumer")}


def test_a_connect_cluster_s_state_is_told_when_it_is_asked_for(kafka: KafkaBroker) -> None:
    """The list of groups lacks Connect clusters, so they are named; one that is not there says nothing."""
    group_id = f"{PREFIX}connect"
    with ConnectWorker(kafka, group_id=group_id):
        states = States(metadata_of(kafka), group_id, group_id, f"{PREFIX}nobody")
        states.wait_for("Stable")
    states.wait_for("Empty")
    assert states.seen == [("Stable", "connect", "classic"), ("Empty", "connect", "classic")]


def test_a_broker_that_is_away_costs_one_line_and_growing_waits(
    kafka: KafkaBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody waits for a dead broker twice, the log says once why, and says when it answers again."""
    del kafka  # Where it cannot be built there is nothing to ask.
    monkeypatch.setattr("streaming.sources.cluster_metadata.REQUEST_TIMEOUT_S", 1.0)
    caplog.set_level(logging.INFO, "streaming.sources.cluster_metadata")
    metadata = ClusterMetadata("prod", {"bootstrap.servers": "127.0.0.1:1"})
    for _ in range(3):
        assert metadata.topic_events({}, now_ms=NOW_MS) == []
        began = time.monotonic()
        assert metadata.group_events(NOW_MS) == []
        assert time.monotonic() - began < 0.5
        time.sleep(1.1)
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("cluster 'prod' does not answer: ")
    assert "127.0.0.1:1" in line
    assert "Connection refused" in line


def test_a_broker_that_comes_back_is_asked_again(
    guarded: KafkaBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """After an outage what changed meanwhile is told, nothing else is, and the log says that it is over."""
    monkeypatch.setattr("streaming.sources.cluster_metadata.REQUEST_TIMEOUT_S", 2.0)
    caplog.set_level(logging.INFO, "streaming.sources.cluster_metadata")
    metadata = metadata_of(guarded)
    known = {
        event["topic"]: TopicState(
            topic=event["topic"], partition_count=event["partitions"], topic_id=event["topic_id"]
        )
        for event in metadata.topic_events({}, now_ms=NOW_MS)
    }
    known["gone"] = TopicState(topic="gone", partition_count=1)
    guarded.stop()
    assert metadata.topic_events(known, now_ms=NOW_MS) == []
    guarded.start()
    events: list[dict[str, Any]] = []

    def is_told() -> bool:
        events.extend(metadata.topic_events(known, now_ms=NOW_MS))
        return bool(events)

    wait_until(is_told, 60, "nothing is told")
    assert [(event["topic"], event["partitions"]) for event in events] == [("gone", 0)]
    assert lines_of(caplog)[-1] == "cluster 'prod' answers again"


def test_an_option_that_librdkafka_refuses_is_named_without_its_value() -> None:
    """The error says which option, and no value is in it or its traceback."""
    with pytest.raises(SettingsError) as caught:
        ClusterMetadata("prod", {"bootstrap.servers": "b", "security.protocol": "hunter2"})
    expected = "clusters.prod: librdkafka refuses the option 'security.protocol'; see [clusters.prod.admin]"
    assert caught.value.problems == (expected,)
    assert caught.value.__context__ is None


USER = "counterpoise"
Right = tuple[str, str, str, str]
"""An operation, TOPIC or GROUP, a name, LITERAL or PREFIXED."""


def rights_of_readme() -> list[Right]:
    """Read the README's kafka-acls commands."""
    rights = []
    for line in (ROOT / "README.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("kafka-acls "):
            words = shlex.split(line)
            kind = next(kind for kind in ("topic", "group") if f"--{kind}" in words)
            name = words[words.index(f"--{kind}") + 1]
            pattern = "PREFIXED" if words[-2:] == ["--resource-pattern-type", "prefixed"] else "LITERAL"
            rights.append((words[words.index("--operation") + 1].upper(), kind.upper(), name, pattern))
    return rights


READ_OFFSETS, DESCRIBE_TOPICS, DESCRIBE_GROUPS, READ_EVENTS, READ_AS_GROUP = rights_of_readme()
LEAST = (READ_OFFSETS, DESCRIBE_TOPICS, DESCRIBE_GROUPS)
EVENTS = READ_EVENTS[2]
READERS = {
    "all": (*LEAST, READ_EVENTS, READ_AS_GROUP),
    "no-read": (DESCRIBE_TOPICS, DESCRIBE_GROUPS),
    "no-describe-group": (READ_OFFSETS, DESCRIBE_TOPICS),
    "no-read-as-group": (*LEAST, READ_EVENTS),
}


@pytest.fixture(scope="module")
def guarded(kafka: KafkaBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """Start a broker with users and ACLs, one topic and one group."""
    del kafka  # Where it cannot be built this one cannot either.
    with KafkaBroker(tmp_path_factory.mktemp("acl"), users=(USER, *READERS)) as running:
        running.create_topic("orders", 2)
        running.create_topic(EVENTS, 1)
        with JavaClient(running, group_id="billing", assignors=("range",)) as member:
            member.subscribe("orders")
            member.wait_for("assigned")
            yield running


def acl(user: str, right: Right) -> AclBinding:
    """Describe one thing that a user may do."""
    operation, kind, name, pattern = right
    return AclBinding(
        ResourceType[kind],
        name,
        ResourcePatternType[pattern],
        f"User:{user}",
        "*",
        AclOperation[operation],
        AclPermissionType.ALLOW,
    )


def allow_only(broker: KafkaBroker, *rights: Right, user: str = USER) -> None:
    """Let a user do these things and nothing else."""
    any_kind, any_pattern = ResourceType.ANY, ResourcePatternType.ANY
    every = AclBindingFilter(
        any_kind, None, any_pattern, f"User:{user}", None, AclOperation.ANY, AclPermissionType.ANY
    )
    for deleted in broker.admin.delete_acls([every]).values():
        deleted.result(timeout=20)
    wanted = [acl(user, right) for right in rights]
    for made in broker.admin.create_acls(wanted).values() if wanted else ():
        made.result(timeout=20)
    wait_until(
        lambda: set(broker.admin.describe_acls(every).result(timeout=20)) == set(wanted),
        20,
        "the ACLs differ",
    )


def options_of(broker: KafkaBroker, **more: str) -> dict[str, str]:
    """Give the user's options as people write them."""
    assert broker.sasl_bootstrap_servers
    login = broker.login(USER)
    return {
        "bootstrap.servers": broker.sasl_bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": login.mechanism,
        "sasl.username": USER,
        "sasl.password": login.password,
        **more,
    }


def guarded_metadata(broker: KafkaBroker, **more: str) -> ClusterMetadata:
    """Make the client under test as the user."""
    options = {name: SecretStr(value) for name, value in options_of(broker, **more).items()}
    return ClusterMetadata("prod", admin_options(ClusterSettings(kafka=options), {}))


def lines_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Give what was logged."""
    return [record.getMessage() for record in caplog.records if record.name.startswith("streaming")]


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "PLAIN"])
def test_the_least_rights_are_enough(
    guarded: KafkaBroker, caplog: pytest.LogCaptureFixture, mechanism: str
) -> None:
    """With the README's ACLs topics but Kafka's own and groups are told, and nothing is logged."""
    allow_only(guarded, *LEAST)
    metadata = guarded_metadata(guarded, **{"sasl.mechanism": mechanism})
    told = {event["topic"]: event for event in metadata.topic_events({}, now_ms=NOW_MS)}
    assert {topic: event["partitions"] for topic, event in told.items()} == {"orders": 2, EVENTS: 1}
    assert "partition_racks" not in told["orders"]
    (group,) = metadata.group_events(NOW_MS)
    assert (group["group_id"], group["state"]) == ("billing", "Stable")
    assert lines_of(caplog) == []


ALLOW = "allow it: kafka-acls --add --allow-principal User:NAME --operation Describe"


def test_a_missing_right_on_topics_is_named(guarded: KafkaBroker, caplog: pytest.LogCaptureFixture) -> None:
    """Who may see no topic is told so once, and a topic that became invisible is not told to be gone."""
    allow_only(guarded, READ_OFFSETS, DESCRIBE_GROUPS)
    metadata = guarded_metadata(guarded)
    known = {"orders": TopicState(topic="orders", partition_count=2)}
    for _ in range(2):
        assert metadata.topic_events({}, now_ms=NOW_MS) == []
    for _ in range(2):
        assert metadata.topic_events(known, now_ms=NOW_MS) == []
        assert metadata.topic_events(known, {"orders"}, now_ms=NOW_MS) == []
    assert len(metadata.group_events(NOW_MS)) == 1
    assert lines_of(caplog) == [
        f"cluster 'prod' does not let this user describe any topic; {ALLOW} --topic '*'",
        f"cluster 'prod' does not let this user describe topic 'orders'; {ALLOW} --topic 'orders'",
    ]


def test_a_missing_right_on_groups_is_named(guarded: KafkaBroker, caplog: pytest.LogCaptureFixture) -> None:
    """Who may see no group, or not the one that is asked for, is told which ACL is missing."""
    allow_only(guarded, READ_OFFSETS, DESCRIBE_TOPICS)
    metadata = guarded_metadata(guarded)
    for _ in range(2):
        assert metadata.group_events(NOW_MS) == []
    assert len(metadata.topic_events({}, now_ms=NOW_MS)) == 2
    allow_only(guarded, READ_OFFSETS, DESCRIBE_TOPICS, ("DESCRIBE", "GROUP", "billing", "LITERAL"))
    assert len(metadata.group_events(NOW_MS, others=["shipping"])) == 1
    assert lines_of(caplog) == [
        f"cluster 'prod' does not let this user describe any group; {ALLOW} --group '*'",
        f"cluster 'prod' does not let this user describe group 'shipping'; {ALLOW} --group 'shipping'",
    ]


def test_a_wrong_password_is_told_without_it(
    guarded: KafkaBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The line says that the login failed, and holds no password."""
    monkeypatch.setattr("streaming.sources.cluster_metadata.REQUEST_TIMEOUT_S", 2.0)
    metadata = guarded_metadata(guarded, **{"sasl.password": "hunter2"})
    assert metadata.topic_events({}, now_ms=NOW_MS) == []
    (line,) = lines_of(caplog)
    assert "SASL authentication error: Authentication failed" in line
    assert "hunter2" not in line


READ_ONCE = """
import json
import sys
from pathlib import Path
from conf.settings import load_settings
from streaming.sources.kafka import read_kafka
from streaming.session import start_session

settings = load_settings(Path(sys.argv[1]), {}, {})
session = start_session(settings)
found = {}
for source in settings.sources:
    rows = f"{sys.argv[2]}/{source.name}"
    try:
        stream = read_kafka(session, source.name, settings).writeStream.format("parquet")
        stream = stream.option("checkpointLocation", rows + "-checkpoint").trigger(availableNow=True)
        stream.start(rows).awaitTermination()
        found[source.name] = session.read.parquet(rows).count()
    except Exception as error:
        found[source.name] = str(error)
print(json.dumps(found))
"""


def read_with_spark(
    broker: KafkaBroker, folder: Path, reads: Mapping[str, tuple[str, str]]
) -> dict[str, Any]:
    """Let Spark read as users in a process of its own.

    Args:
        broker: the broker with these users.
        folder: a folder to be made.
        reads: name -> (user, topic).

    Returns:
        name -> the number of rows, or the error.
    """
    text = f'[log]\njvm_output = "{folder}/jvm.log"\n'
    text += '[job]\ntables = "{cluster}/tables"\ncheckpoint_location = "{cluster}/checkpoint"\n'
    for name, (user, topic) in reads.items():
        login = {"sasl.username": user, "sasl.password": broker.login(user).password}
        options = "\n".join(f'"{k}" = {json.dumps(v)}' for k, v in options_of(broker, **login).items())
        kind = "offsets" if topic == "__consumer_offsets" else "events"
        text += f"[clusters.{name}.kafka]\n{options}\n"
        text += f'[[sources]]\nname = "{name}"\ncluster = "{name}"\nformat = "{kind}"\nfrom = "kafka"\n'
        text += f'topic = "{topic}"\n'
    folder.mkdir()
    (folder / "prod.toml").write_text(text, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", READ_ONCE, str(folder / "prod.toml"), str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    said = done.stdout + done.stderr + (folder / "jvm.log").read_text(encoding="utf-8")
    assert not [user for user, _ in reads.values() if broker.login(user).password in said]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.spark
def test_reading_takes_the_rights_of_the_list_and_no_more(guarded: KafkaBroker, tmp_path: Path) -> None:
    """Spark reads with the README's ACLs; without one its error says what it may not, and no password."""
    for user, rights in READERS.items():
        allow_only(guarded, *rights, user=user)
    guarded.produce(EVENTS, {0: [b"{}"]})
    reads = {
        "offsets": ("all", "__consumer_offsets"),
        "events": ("all", EVENTS),
        "no-read": ("no-read", "__consumer_offsets"),
        "no-describe-group": ("no-describe-group", "__consumer_offsets"),
        "no-read-as-group": ("no-read-as-group", EVENTS),
    }
    found = read_with_spark(guarded, tmp_path / "spark", reads)
    assert found["offsets"] > 0
    assert found["events"] == 1
    assert "Not authorized to access topics: [__consumer_offsets]" in found["no-read"]
    assert "Not authorized to access group: counterpoise-source-" in found["no-describe-group"]
    assert "Not authorized to access group: counterpoise-source-" in found["no-read-as-group"]
    groups = [group.group_id for group in guarded.admin.list_consumer_groups().result(timeout=20).valid]
    assert len(groups) > 1, "reading events makes a group"
    assert [event["group_id"] for event in metadata_of(guarded).group_events(NOW_MS)] == ["billing"]


def test_asking_makes_no_topic(kafka: KafkaBroker, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Where requests make topics ours do not, not even Kafka's own for a group that is not there."""
    del kafka
    with KafkaBroker(
        tmp_path_factory.mktemp("auto"), properties={"auto.create.topics.enable": "true"}
    ) as broker:
        metadata = metadata_of(broker)
        assert metadata.topic_events({}, now_ms=NOW_MS) == []
        assert metadata.topic_events({}, {"not-there"}, now_ms=NOW_MS) == []
        assert metadata.group_events(NOW_MS, ["not-there"]) == []
        time.sleep(1)
        there = AdminClient({"bootstrap.servers": broker.bootstrap_servers}).list_topics(timeout=10).topics
        assert list(there) == []
