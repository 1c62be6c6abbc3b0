"""Sinks: every delta and generation reaches the topic, in order, known by its id if it comes twice."""

from __future__ import annotations

import json
import logging
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from jsonschema import Draft202012Validator, FormatChecker

from conf.settings import Settings, SettingsError, load_settings
from examples.led_consumer import parse_arguments
from streaming.sinks.kafka import KafkaSink, sinks_of
from streaming.sinks.messages import Message, messages_of
from streaming.tables.delta import JobError, Tables
from streaming.tables.log import Log
from streaming.tables.publish import Outbox
from tests.kafka_cluster import ROOT, KafkaBroker, wait_until
from tests.playing import event, join, topic
from tests.sink_stories import log_batches, story, write_log

live = pytest.mark.live

SCHEMAS = {
    path.stem: json.loads(path.read_text(encoding="utf-8")) for path in (ROOT / "docs/schemas").glob("*.json")
}
BOTH = ("deltas", "generations")


def other_groups() -> list[list[dict[str, Any]]]:
    """Tell of a Connect group, of an observed group with a gap, and of a held generation."""
    member = {"member_id": "m", "client_id": "c", "client_host": "/h", "topics": ["orders"]}
    seen = {"protocol_type": "consumer", "protocol": "range", "leader_id": "m", "state": "Stable"}
    return [
        [topic("orders", 2)],
        [
            event("worker_joined", 1, group_id="w", worker_id="w1", url="http://w1"),
            event("connector_configured", 2, group_id="w", connector="sink", tasks=3),
            join("a", 1, "orders", group_id="k", protocols=["range"], group_instance_id="i", rack_id="r"),
            join("b", 2, "orders", group_id="k", protocols=["sticky"]),
        ],
        *(
            [
                event(
                    "generation_observed",
                    second,
                    group_id="o",
                    generation_id=generation_id,
                    members=[{**member, "assigned": {"orders": [0, 1]}}],
                    **seen,
                )
            ]
            for second, generation_id in ((3, 1), (4, 2), (5, 9))
        ),
    ]


def all_messages(batches: Sequence[Any], what: Sequence[str] = BOTH) -> list[Message]:
    """List the messages of several batches."""
    return [message for rows in batches for message in messages_of(rows, what)]


class TestMessages:
    """What is in a message."""

    def test_every_message_fits_its_published_schema(self) -> None:
        """Computed, observed, Connect, held and deleted groups: all fields are described, and as they are."""
        validators = {
            name: Draft202012Validator(schema, format_checker=FormatChecker())
            for name, schema in SCHEMAS.items()
        }
        messages = all_messages(log_batches(story())) + all_messages(log_batches(other_groups()))
        kinds = set()
        for message in messages:
            body = json.loads(message.value)
            validators[message.schema].validate(body)
            assert list(body.keys() ^ SCHEMAS[message.schema]["properties"].keys()) == []
            kinds.add((message.schema, body.get("kind"), body.get("change"), body.get("resource_type")))
        changes = {(change, resource) for schema, _, change, resource in kinds if "delta" in schema}
        assert changes >= {(c, "partition") for c in ("assigned", "revoked", "lost")}
        assert {resource for _, resource in changes} == {"partition", "connector", "task"}
        assert {kind for schema, kind, *_ in kinds if "generation" in schema} == set(
            SCHEMAS["generation.v1"]["properties"]["kind"]["enum"]
        )

    @pytest.mark.parametrize("name", sorted(SCHEMAS))
    def test_published_schemas_are_schemas(self, name: str) -> None:
        """Each file is JSON Schema 2020-12 and demands every field that it describes."""
        schema = SCHEMAS[name]
        Draft202012Validator.check_schema(schema)
        assert schema["$id"].endswith(name)
        assert sorted(schema["required"]) == sorted(schema["properties"])

    def test_headers_hold_schema_and_id(self) -> None:
        """A reader can tell what a message is, and whether it had it, without parsing it."""
        for message in all_messages(log_batches(story())):
            body = json.loads(message.value)
            headers = dict(message.headers)
            assert headers["counterpoise-schema"] == message.schema.encode()
            if message.schema == "assignment_delta.v1":
                assert headers["counterpoise-delta-id"] == body["delta_id"].encode()
            else:
                assert headers["counterpoise-generation-key"] == body["generation_key"].encode()
            assert message.key == body["group_id"].encode()

    def test_ids_are_distinct_and_the_same_again(self) -> None:
        """Two messages never share an id; made twice, a message is the same to the byte."""
        first, second = (all_messages(log_batches(story())) for _ in range(2))
        assert first == second
        assert len({(message.schema, message.id) for message in first}) == len(first)

    def test_a_generation_comes_behind_its_deltas(self) -> None:
        """Deltas are numbered and lie together; the generation says how many there were, versions rise."""
        pending: dict[bytes, list[int]] = {}
        versions: dict[bytes, int] = {}
        for message in all_messages(log_batches(story())):
            body = json.loads(message.value)
            if message.schema == "assignment_delta.v1":
                pending.setdefault(message.key, []).append(body["number"])
                assert body["count"] >= body["number"]
                continue
            numbers = pending.pop(message.key, [])
            assert numbers == list(range(1, body["deltas"] + 1))
            assert body["version"] == versions.get(message.key, 0) + 1
            versions[message.key] = body["version"]
        assert versions == {b"g": 6, b"h": 4}
        assert pending == {}

    @pytest.mark.parametrize("what", BOTH)
    def test_either_kind_alone(self, what: str) -> None:
        """A sink that wants one kind has just that of the two."""
        batches = log_batches(story())
        schema = {"deltas": "assignment_delta.v1", "generations": "generation.v1"}[what]
        assert all_messages(batches, [what]) == [m for m in all_messages(batches) if m.schema == schema]


def load_text(directory: Path, text: str) -> Settings:
    """Load a settings file with this text."""
    file = directory / "sinks.toml"
    file.write_text(text, encoding="utf-8")
    return load_settings(file, {}, {})


SINK = '[[sinks]]\nname = "s"\nto = "kafka"\ntopic = "t"\n'
CLUSTERS = "".join(f'[clusters.{n}.kafka]\n"bootstrap.servers" = "{n}:1"\n' for n in ("east", "west"))
SOURCES = "".join(
    f'[[sources]]\nname = "{n}"\nformat = "events"\nfrom = "kafka"\ncluster = "{n}"\ntopic = "e"\n'
    for n in ("east", "west")
)
EACH_ITS_OWN = '[job]\ntables = "d/{cluster}/t"\ncheckpoint_location = "d/{cluster}/c"\n'


class TestSettings:
    """[[sinks]] in the settings."""

    def test_the_example_of_a_sink_in_the_defaults_is_one(self, tmp_path: Path) -> None:
        """The commented [[sinks]] of default.toml holds every key of a sink with its default, and loads."""
        text = (ROOT / "conf/default.toml").read_text(encoding="utf-8")
        lines = [line.removeprefix("# ") for line in text.splitlines() if line.startswith("# ")]
        begin = lines.index("[[sinks]]")
        example = [line for line in lines[begin : begin + 9] if re.match(r"\[\[|\w+ = ", line)]
        cluster = '[clusters.default.kafka]\n"bootstrap.servers" = "b:1"\n'
        (sink,) = load_text(tmp_path, "\n".join([*example, cluster])).sinks
        assert {line.split(" = ")[0] for line in example[1:]} == set(type(sink).model_fields)
        (short,) = load_text(tmp_path, SINK + cluster).sinks
        assert sink == short.model_copy(update={"name": sink.name, "topic": sink.topic})

    def test_the_readme_s_led_group_can_be_typed(self, tmp_path: Path) -> None:
        """Settings and command line of the README fit each other and the example."""
        readme = (ROOT / "README.md").read_text(encoding="utf-8")
        section = readme.partition("## Let Counterpoise lead a group")[2].split("\n## ")[0]
        indented = re.findall(r"^    (.*)", section, re.MULTILINE)
        (command,) = (line for line in indented if line.startswith("python "))
        settings = load_text(tmp_path, "\n".join(line for line in indented if line != command))
        told = parse_arguments(shlex.split(command)[2:])
        assert (ROOT / shlex.split(command)[1]).is_file()
        assert [told.events_topic] == [source.topic for source in settings.sources]
        assert [told.deltas_topic] == [sink.topic for sink in settings.sinks]
        assert told.cluster == settings.job.cluster

    def test_each_deployment_writes_to_its_own_cluster(self, tmp_path: Path) -> None:
        """With {cluster} in job.tables a sink without a cluster goes to each one's own, one with it there."""
        text = EACH_ITS_OWN + SINK + SINK.replace('"s"', '"all"') + 'cluster = "west"\n' + SOURCES + CLUSTERS
        deployments = load_text(tmp_path, text).by_cluster()
        found = {
            name: [sink._options["bootstrap.servers"] for sink in sinks_of(settings, lambda: False)]
            for name, settings in deployments.items()
        }
        assert found == {"east": ["east:1", "west:1"], "west": ["west:1", "west:1"]}

    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            (SINK, "sinks has 's' to cluster 'default', which has no section [clusters.default.kafka]"),
            (SINK + 'cluster = "eats"\n' + CLUSTERS, "sinks has 's' to cluster 'eats', which has no section"),
            (SINK + SINK + CLUSTERS, "sinks has the name 's' twice"),
            (SINK + 'what = ["deltas", "deltas"]\n', "sinks.s.what is ['deltas', 'deltas']; name each of"),
            (SINK + "what = []\n", "sinks.s.what is []; it must be a list"),
            (SINK + 'what = ["alerts"]\n', "must be one of 'deltas', 'generations'"),
            (SINK + "flush_timeout_s = 0\n", "sinks.s.flush_timeout_s is 0; it must be a number over 0"),
            (SINK.replace('"t"', '""'), "sinks.s.topic is ''; it must be a text that is not empty"),
            (SINK.replace("to =", "too ="), "sinks.s.too is unknown; did you mean sinks.s.to?"),
            (
                EACH_ITS_OWN + SINK.replace('"t"', '"e"') + SOURCES + CLUSTERS,
                "sinks has 's' write to topic 'e', from which source 'east' reads",
            ),
        ],
    )
    def test_what_cannot_work_is_said_before_spark_starts(
        self, tmp_path: Path, text: str, problem: str
    ) -> None:
        """A sink without a cluster, with a name twice, into a source, or with a slip of the pen."""
        with pytest.raises(SettingsError, match=re.escape(problem)):
            load_text(tmp_path, text)


def test_options_that_cannot_be_used_end_the_job() -> None:
    """A certificate that is not there is the operator's to correct: no use in waiting."""
    options = {"bootstrap.servers": "b:1", "security.protocol": "ssl", "ssl.ca.location": "absent.pem"}
    (rows,) = log_batches(story()[:1])
    with pytest.raises(JobError, match=r"sink 's', topic 't': .*ssl\.ca\.location"):
        KafkaSink("s", options, "t", BOTH).send(rows)


def received(broker: KafkaBroker, topic_name: str, count: int) -> list[dict[str, Any]]:
    """Read a topic of one partition from its beginning up to its end, which must hold `count` messages."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": f"{topic_name}-reader"})
    try:
        place = TopicPartition(topic_name, 0, 0)
        end = consumer.get_watermark_offsets(place, timeout=20)[1]
        assert end == count
        consumer.assign([place])
        found: list[dict[str, Any]] = []

        def has_all() -> bool:
            for message in consumer.consume(500, timeout=0.5):
                assert message.error() is None
                found.append(
                    {"key": message.key(), "value": message.value(), "headers": message.headers() or []}
                )
            return len(found) == end

        wait_until(has_all, 20, lambda: f"{len(found)} of {end} messages of {topic_name!r} were read")
        return found
    finally:
        consumer.close()


def sent(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Show messages as `received` does."""
    return [{"key": m.key, "value": m.value, "headers": m.headers} for m in messages]


def sink_to(broker: KafkaBroker, topic_name: str, **more: Any) -> KafkaSink:
    """Make a sink for both kinds that does not wait long for a topic that is not there."""
    options = {"bootstrap.servers": broker.bootstrap_servers, "topic.metadata.propagation.max.ms": "500"}
    return KafkaSink("s", options, topic_name, BOTH, **more)


def outbox_to(root: Path, sink: KafkaSink) -> Outbox:
    """Open the outbox over the tables, as a start of the job does."""
    tables = Tables(str(root))
    outbox = Outbox(tables, Log(tables))
    outbox.connect([sink])
    return outbox


@live
def test_everything_arrives_once_and_in_order(kafka: KafkaBroker, tmp_path: Path) -> None:
    """A start sends what the log holds, the next batches follow, and a marked start sends nothing again."""
    kafka.create_topic("sink-whole", 1)
    batches = log_batches(story())
    tables = Tables(str(tmp_path))
    write_log(tables, batches[:3])
    log = Log(tables)
    outbox = Outbox(tables, log)
    outbox.catch_up()
    sink = sink_to(kafka, "sink-whole")
    outbox.connect([sink])
    first, expected = sent(all_messages(batches[:3])), sent(all_messages(batches))
    assert received(kafka, "sink-whole", len(first)) == first
    write_log(tables, batches[3:])
    log.last_batch_seq = len(batches)
    outbox.catch_up()
    outbox.mark()
    assert received(kafka, "sink-whole", len(expected)) == expected
    outbox_to(tmp_path, sink)
    assert received(kafka, "sink-whole", len(expected)) == expected


PUBLISH = """
import sys
from pathlib import Path
from streaming.sinks.kafka import KafkaSink
from tests.test_kafka_sink import BOTH, outbox_to
root, servers, topic = sys.argv[1:]
outbox_to(Path(root), KafkaSink("s", {"bootstrap.servers": servers}, topic, BOTH)).mark()
"""


@live
@pytest.mark.parametrize(
    ("point", "repeated"),
    [
        pytest.param("before_sink", 0, id="before the first"),
        pytest.param("before_sink:3", 2, id="before the third"),
        pytest.param("after_sink:3", 3, id="after the third"),
    ],
)
def test_a_kill_repeats_ids_and_loses_none(
    kafka: KafkaBroker, tmp_path: Path, point: str, repeated: int
) -> None:
    """Killed around a batch with messages, the next life repeats, with the same ids, what is not marked."""
    name = f"sink-{re.sub(r'[^a-z0-9]', '-', point)}"
    kafka.create_topic(name, 1)
    batches = log_batches(story())
    write_log(Tables(str(tmp_path)), batches)
    for crash_at, code in ((point, -signal.SIGKILL), ("", 0)):
        done = subprocess.run(
            [sys.executable, "-c", PUBLISH, str(tmp_path), kafka.bootstrap_servers, name],
            env={**os.environ, "COUNTERPOISE_CRASH_AT": crash_at},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == code, done.stderr[-2000:]
    telling = [messages for rows in batches if (messages := list(messages_of(rows, BOTH)))]
    before = [message for messages in telling[:repeated] for message in messages]
    expected = sent([*before, *all_messages(batches)])
    assert received(kafka, name, len(expected)) == expected


@live
def test_a_topic_that_comes_late_is_waited_for(
    kafka: KafkaBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Without its topic the sink says so and tries again; a stop leaves it for the next start."""
    batches = log_batches(story())
    write_log(Tables(str(tmp_path)), batches)
    stopping = threading.Event()
    sink = sink_to(kafka, "sink-late", is_stopping=stopping.is_set)
    tables = Tables(str(tmp_path))
    outbox = Outbox(tables, Log(tables))
    with caplog.at_level(logging.WARNING, "streaming.sinks.kafka"):
        waiting = threading.Thread(target=outbox.connect, args=([sink],), daemon=True)
        waiting.start()
        wait_until(lambda: "next try in 2 s" in caplog.text, 20, lambda: caplog.text)
        stopping.set()
        waiting.join(10)
    assert not waiting.is_alive()
    assert (
        "sink 's', topic 'sink-late': 5 of 5 messages were not delivered: UNKNOWN_TOPIC_OR_PART"
        in caplog.text
    )
    assert "the next start sends them" in caplog.text
    outbox.mark()
    kafka.create_topic("sink-late", 1)
    stopping.clear()
    outbox_to(tmp_path, sink)
    expected = sent(all_messages(batches))
    assert received(kafka, "sink-late", len(expected)) == expected


@live
def test_nothing_overtakes_what_was_refused(kafka: KafkaBroker, caplog: pytest.LogCaptureFixture) -> None:
    """A message that the topic refuses holds back all behind it, until the topic takes it."""
    kafka.create_topic("sink-refused", 1, max_message_bytes="2000")
    small, large = (
        log_batches([[topic("orders", 2), *(join(f"m{number}", 1, "orders") for number in range(members))]])[
            0
        ]
        for members in (1, 40)
    )
    sink = sink_to(kafka, "sink-refused")
    assert sink.send(small)
    with caplog.at_level(logging.ERROR, "streaming.sinks.kafka"):
        sending = threading.Thread(target=sink.send, args=(large,), daemon=True)
        sending.start()
        wait_until(lambda: "Message size too large" in caplog.text, 20, lambda: caplog.text)
    raised = ConfigEntry("max.message.bytes", "1000000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, "sink-refused", incremental_configs=[raised])
    for altered in kafka.admin.incremental_alter_configs([resource]).values():
        altered.result(timeout=20)
    sending.join(60)
    assert not sending.is_alive()
    expected = sent([*messages_of(small, BOTH), *messages_of(large, BOTH)])
    assert received(kafka, "sink-refused", len(expected)) == expected


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[KafkaBroker]:
    """Start a broker with a login and access control."""
    with KafkaBroker(tmp_path / "guarded", users=("writer",)) as running:
        yield running


@live
def test_a_broker_that_is_away_and_a_login_that_is_refused(
    guarded: KafkaBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """The log names the cause and no password, Write on the topic is enough, messages wait for the broker."""
    (rows,) = log_batches(story()[:1])
    guarded.create_topic("sink-away", 1)
    guarded.allow("writer", "WRITE", topic="sink-away")
    right = guarded.login("writer").librdkafka()
    assert guarded.sasl_bootstrap_servers is not None
    servers = {"bootstrap.servers": guarded.sasl_bootstrap_servers, "reconnect.backoff.max.ms": "250"}
    wrong = {**servers, **right, "sasl.password": "hush-hush"}
    stopping = threading.Event()
    with caplog.at_level(logging.WARNING, "streaming.sinks.kafka"):
        refused = KafkaSink("s", wrong, "sink-away", BOTH, flush_timeout_s=1, is_stopping=stopping.is_set)
        results: list[bool] = []
        sending = threading.Thread(target=lambda: results.append(refused.send(rows)), daemon=True)
        sending.start()
        wait_until(lambda: "_AUTHENTICATION" in caplog.text, 20, lambda: caplog.text)
        stopping.set()
        sending.join(10)
        assert results == [False]
        assert "hush-hush" not in caplog.text
        assert "hush-hush" not in repr(refused)
        sink = KafkaSink("s", {**servers, **right}, "sink-away", BOTH, flush_timeout_s=1)
        assert sink.send(rows)
        guarded.kill()
        sending = threading.Thread(target=lambda: results.append(sink.send(rows)), daemon=True)
        sending.start()
        wait_until(lambda: "messages wait for delivery" in caplog.text, 20, lambda: caplog.text)
        guarded.start()
        sending.join(30)
    assert results == [False, True]
    once = sent(list(messages_of(rows, BOTH)))
    assert received(guarded, "sink-away", 2 * len(once)) == once + once
