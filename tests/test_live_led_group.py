"""A group that Counterpoise leads: real consumers, a real topic, churn, no record with two owners at once."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pytest
from confluent_kafka import Consumer, TopicPartition

from streaming.batches.batch import rows_to_log
from streaming.sinks.kafka import KafkaSink
from tests.kafka_cluster import ROOT, KafkaBroker, wait_until
from tests.playing import Player

if TYPE_CHECKING:
    import pyarrow as pa

pytestmark = pytest.mark.live

GROUP = "led-orders"
DATA, EVENTS, DELTAS = "led-data", "led-events", "led-deltas"
SESSION_TIMEOUT_MS = 6000
RECORDS_EVERY_S = 0.1

CONF = """
[job]
tables = "{root}/tables"
checkpoint_location = "{root}/checkpoint"
trigger_interval_s = 0.2
tick_interval_s = 1.0

[clusters.default]
metadata_interval_s = 1.0
[clusters.default.kafka]
"bootstrap.servers" = "{servers}"

[[sources]]
name = "membership"
format = "events"
from = "kafka"
topic = "{events}"

[[sinks]]
name = "assignments"
to = "kafka"
topic = "{deltas}"

[log]
jvm_output = "{root}/spark.log"
"""


class Child:
    """A child process that writes a log; ended by its own id however the test ends."""

    def __init__(self, command: list[str], log: Path) -> None:
        """Start it."""
        self.log = log
        with log.open("wb") as out:
            self._process = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )
        self.killed_ms: int | None = None
        self.paused_ms: int | None = None

    def pause(self) -> None:
        """Stop it where it stands, as a long pause of a machine does."""
        self.paused_ms = time.time_ns() // 1_000_000
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it go on."""
        self._process.send_signal(signal.SIGCONT)

    def tell_to_stop(self, timeout_s: float) -> int:
        """Send SIGTERM and give its exit code."""
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(timeout_s)

    def kill(self) -> None:
        """End it as kill -9 does."""
        self._process.kill()
        self._process.wait()
        self.killed_ms = time.time_ns() // 1_000_000

    @property
    def has_ended(self) -> bool:
        """Say whether it has ended by itself."""
        return self._process.poll() is not None

    def end(self) -> None:
        """End it if it runs."""
        if not self.has_ended:
            self._process.kill()
            self._process.wait()


class Member(Child):
    """A led consumer and what it reported."""

    def __init__(self, broker: KafkaBroker, name: str, folder: Path, **more: Any) -> None:
        """Start examples/led_consumer.py; `more` are options of it over ours."""
        options = {
            "bootstrap": broker.bootstrap_servers,
            "events_topic": EVENTS,
            "deltas_topic": DELTAS,
            "group": GROUP,
            "member": name,
            "topics": DATA,
            "session_timeout_ms": SESSION_TIMEOUT_MS,
            **more,
        }
        script = str(ROOT / "examples" / "led_consumer.py")
        arguments = [
            text for name, value in options.items() for text in (f"--{name.replace('_', '-')}", str(value))
        ]
        super().__init__([sys.executable, script, *arguments], folder / f"{name}.log")

    def events(self) -> list[dict[str, Any]]:
        """List what it reported; a line that a kill cut short is none."""
        text = self.log.read_text(encoding="utf-8", errors="replace")
        lines = text.splitlines() if text.endswith("\n") else text.splitlines()[:-1]
        return [json.loads(line) for line in lines if line.startswith("{")]

    def owned(self) -> set[int]:
        """Give the partitions that it owns by its own word."""
        owned: set[int] = set()
        for event in self.events():
            numbers = {partition for _, partition in event.get("partitions", ())}
            if event["event"] == "assigned":
                owned |= numbers
            elif event["event"] in ("released", "lost"):
                owned -= numbers
        return owned

    def tenures(self) -> Iterator[tuple[int, int, int]]:
        """Walk who owned what when: (partition, from, until), milliseconds.

        What it lost by a pause it last had when the pause began, if it read nothing since.
        """
        began: dict[int, int] = {}
        has_read_since_pause = False
        for event in self.events():
            is_after_pause = self.paused_ms is not None and event["time_ms"] > self.paused_ms
            has_read_since_pause |= is_after_pause and event["event"] == "read"
            for _, partition in event.get("partitions", ()):
                if event["event"] == "assigned":
                    assert partition not in began, f"{self.log.stem} took a repeat for news: {event}"
                    began[partition] = event["time_ms"]
                elif event["event"] == "lost" and is_after_pause and not has_read_since_pause:
                    yield partition, began.pop(partition), self.paused_ms or 0
                elif event["event"] in ("released", "lost"):
                    yield partition, began.pop(partition), event["time_ms"]
        for partition, since in began.items():
            assert self.killed_ms is not None, "it ended without releasing what it owned"
            yield partition, since, self.killed_ms

    def reads(self) -> list[dict[str, Any]]:
        """List its reports of records."""
        return [event for event in self.events() if event["event"] == "read"]


class Writer:
    """Writes numbered records to every partition that the test has made, until the block ends."""

    def __init__(self, broker: KafkaBroker, partitions: int) -> None:
        """Write to so many partitions; the attribute may rise."""
        self._broker = broker
        self.partitions = partitions
        self.written = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)

    def _write(self) -> None:
        while not self._stop.wait(RECORDS_EVERY_S):
            count = self.partitions
            numbers = range(self.written, self.written + count)
            self._broker.produce(DATA, {p: [b"%d" % n] for p, n in enumerate(numbers)})
            self.written += count

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(30)


class LeaderInProcess:
    """The leader without its job: the same stations and sink, over one topic of events, event by event."""

    def __init__(self, broker: KafkaBroker, events_topic: str, deltas_topic: str) -> None:
        """Read events from the beginning."""
        options = {"bootstrap.servers": broker.bootstrap_servers}
        self._consumer = Consumer({**options, "group.id": f"{events_topic}-leader"})
        self._consumer.assign([TopicPartition(events_topic, 0, 0)])
        self._sink = KafkaSink("s", options, deltas_topic, ("deltas", "generations"))
        self._player = Player()
        self.sent: list[pa.Table] = []

    def lead(self, events: list[bytes]) -> None:
        """Take these events, and those that have come."""
        for message in self._consumer.consume(100, timeout=0.1):
            assert message.error() is None
            events = [*events, message.value() or b""]
        for event in events:
            self.sent.append(rows_to_log(self._player.play([event]), len(self.sent) + 1, 0))
            assert self._sink.send(self.sent[-1])

    def repeat(self) -> None:
        """Send everything again, as after a crash."""
        for rows in self.sent:
            assert self._sink.send(rows)

    def close(self) -> None:
        """End the connection."""
        self._consumer.close()


def test_a_handover_reads_no_record_twice_and_a_repeat_changes_nothing(
    kafka: KafkaBroker, tmp_path: Path
) -> None:
    """What is revoked is not read and is committed before it is confirmed; a message's repeat is no news."""
    topics = {"topics": "hand-data", "events_topic": "hand-events", "deltas_topic": "hand-deltas"}
    for topic in topics.values():
        kafka.create_topic(topic, 4 if topic == "hand-data" else 1)
    with ExitStack() as ends:
        leader = LeaderInProcess(kafka, topics["events_topic"], topics["deltas_topic"])
        ends.callback(leader.close)
        told = {"type": "topic_changed", "event_time": 0, "topic": "hand-data", "partitions": 4}
        leader.lead([json.dumps(told).encode()])
        more = {**topics, "group": "hand", "session_timeout_ms": 60_000}
        members: list[Member] = []
        for name, shares in (("one", [4]), ("two", [2, 2]), ("three", [1, 1, 2])):
            members.append(Member(kafka, name, tmp_path, **more))
            ends.callback(members[-1].end)

            def is_shared(shares: list[int] = shares) -> bool:
                kafka.produce("hand-data", {partition: [b"x"] * 20 for partition in range(4)})
                leader.lead([])
                owned = [member.owned() for member in members]
                return sorted(map(len, owned)) == shares and set().union(*owned) == set(range(4))

            wait_until(is_shared, 60, lambda: str([(m.log.stem, m.events()[-3:]) for m in members]))
        leader.repeat()
        first = members[0]
        assert first.tell_to_stop(60) == 0
        leaving = len(leader.sent)
        wait_until(
            lambda: leader.lead([]) or set().union(*(m.owned() for m in members[1:])) == set(range(4)),
            60,
            lambda: str([(m.log.stem, m.owned()) for m in members]),
        )
        assert len(leader.sent) > leaving
        for member in members[1:]:
            assert member.tell_to_stop(60) == 0
    assert overlaps(members) == []
    offsets = [
        (read["partition"], offset)
        for member in members
        for read in member.reads()
        for offset in range(read["first"], read["last"] + 1)
    ]
    assert offsets
    assert len(offsets) == len(set(offsets))


def ends_of(broker: KafkaBroker, partitions: int) -> dict[int, int]:
    """Ask for the end of each partition of the data topic."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "led-judge"})
    try:
        return {
            partition: consumer.get_watermark_offsets(TopicPartition(DATA, partition), timeout=20)[1]
            for partition in range(partitions)
        }
    finally:
        consumer.close()


def versions_sent(broker: KafkaBroker) -> list[int]:
    """List the versions of the group's generations in the deltas topic, in order."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "led-judge"})
    try:
        places = [TopicPartition(DELTAS, partition, 0) for partition in range(2)]
        left = sum(consumer.get_watermark_offsets(place, timeout=20)[1] for place in places)
        consumer.assign(places)
        found: list[int] = []
        while left:
            for message in consumer.consume(500, timeout=1):
                left -= 1
                body = json.loads(message.value() or b"{}")
                if "generation_key" in body:
                    found.append(body["version"])
        return found
    finally:
        consumer.close()


def unread(members: list[Member], ends: dict[int, int]) -> list[tuple[int, int]]:
    """List (partition, offset) that no member has read."""
    read: dict[int, set[int]] = {partition: set() for partition in ends}
    for member in members:
        for event in member.reads():
            assert event["count"] == event["last"] - event["first"] + 1
            read[event["partition"]].update(range(event["first"], event["last"] + 1))
    return [(p, offset) for p, end in ends.items() for offset in range(end) if offset not in read[p]]


def overlaps(members: list[Member]) -> list[str]:
    """List tenures of one partition that overlap, in words."""
    tenures = sorted(
        (partition, since, until, member.log.stem)
        for member in members
        for partition, since, until in member.tenures()
    )
    return [
        f"partition {first[0]}: {first[3]} until {first[2]}, {second[3]} from {second[1]}"
        for first, second in pairwise(tenures)
        if first[0] == second[0] and second[1] < first[2]
    ]


@pytest.mark.spark
@pytest.mark.slow
def test_a_led_group_under_churn_reads_everything_with_one_owner_at_a_time(
    kafka: KafkaBroker, tmp_path: Path
) -> None:
    """Members join, die, pause and leave, the topic grows, the leader dies: all is read, by one at a time."""
    for topic, partitions in ((DATA, 6), (EVENTS, 2), (DELTAS, 2)):
        kafka.create_topic(topic, partitions)
    conf = tmp_path / "job.toml"
    conf.write_text(CONF.format(root=tmp_path, servers=kafka.bootstrap_servers, events=EVENTS, deltas=DELTAS))
    with ExitStack() as ends:
        command = [sys.executable, "-m", "console.cli", "run", "--conf", str(conf)]
        job = Child(command, tmp_path / "job-1.log")
        ends.callback(job.end)
        members: list[Member] = []

        def start(name: str) -> Member:
            member = Member(kafka, name, tmp_path)
            ends.callback(member.end)
            members.append(member)
            return member

        def wait_for_shares(*sharing: Member) -> None:
            """Wait until these own everything, evenly; on a busy machine the job alone starts for 40 s."""
            count = writer.partitions

            def is_shared() -> bool:
                assert not job.has_ended, job.log.read_text()[-3000:]
                owned = [member.owned() for member in sharing]
                return sorted(p for some in owned for p in some) == list(range(count)) and (
                    max(map(len, owned)) - min(map(len, owned)) <= 1
                )

            wait_until(
                is_shared,
                120,
                lambda: (
                    f"{[(m.log.stem, sorted(m.owned())) for m in sharing]}, {job.log.read_text()[-2000:]}"
                ),
            )

        with Writer(kafka, 6) as writer:
            first = start("first")
            wait_for_shares(first)
            second, third = start("second"), start("third")
            wait_for_shares(first, second, third)
            second.kill()
            wait_for_shares(first, third)
            kafka.grow_topic(DATA, 9)
            writer.partitions = 9
            job.kill()
            job = Child(command, tmp_path / "job-2.log")
            ends.callback(job.end)
            fourth = start("fourth")
            wait_for_shares(first, third, fourth)
            third.pause()
            wait_for_shares(first, fourth)
            third.go_on()
            wait_for_shares(first, third, fourth)
            assert first.tell_to_stop(60) == 0
            wait_for_shares(third, fourth)
        last = ends_of(kafka, writer.partitions)
        assert sum(last.values()) == writer.written
        wait_until(lambda: not unread(members, last), 60, lambda: f"unread: {unread(members, last)[:20]}")
        for member in (third, fourth):
            assert member.tell_to_stop(60) == 0
        assert job.tell_to_stop(60) == 0, job.log.read_text()[-3000:]
    assert overlaps(members) == []
    versions = versions_sent(kafka)
    # The leader's second life sent its first one's versions again; none is missing.
    assert versions.count(1) == 2
    assert sorted(set(versions)) == list(range(1, max(versions) + 1))
    assert len({p for member in members for p, *_ in member.tenures()}) == 9
