"""A consumer whose group is led by Counterpoise instead of Kafka's coordinator.

    python examples/led_consumer.py --bootstrap localhost:9092 --events-topic membership \
        --deltas-topic assignments --group orders --member till-1 --topics orders,refunds

It tells the events topic that it joins, lives, has given partitions up and leaves, and follows the
topic of a [[sinks]] with deltas and generations to hear what it owns. What it must keep to:

* It follows the deltas from before it joins. A version's deltas are carried out when its generation
  has come, which is behind all of them; a version that is not newer than the last is a repeat.
* What is revoked it stops reading, commits, and only then confirms.
* It stops by itself when no heartbeat of it was confirmed for three quarters of its session: by the
  time the leader counts it as gone it reads nothing. This asks for clocks that agree that well.
* Once lost it has nothing to confirm or commit; it joins again under a new member_id.

It prints JSON lines: joined, assigned, read, released, lost, left. SIGTERM or Ctrl-C make it leave.
"""

from __future__ import annotations

import argparse
import json
import secrets
import signal
import sys
import time
from collections.abc import Collection, Iterable, Mapping
from types import FrameType
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, Producer, TopicPartition

FENCE = 0.75
"""Of the session timeout: how long it reads on without a confirmed heartbeat."""

HEARTBEATS = 6
"""In a session timeout."""

Pair = tuple[str, int]
"""(topic, partition)"""


def report(event: str, **fields: Any) -> None:
    """Print what happened as one line of JSON."""
    line = json.dumps({"event": event, "time_ms": time.time_ns() // 1_000_000, **fields})
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


class Leader:
    """The way to the group's leader and back: events out, deltas and generations in."""

    def __init__(
        self, bootstrap: str, events_topic: str, deltas_topic: str, cluster: str, group: str
    ) -> None:
        """Follow the deltas from now on."""
        self._events_topic, self._cluster, self._group = events_topic, cluster, group
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 0,
                # All who write to the topic must agree where a group's events go: Kafka's own way.
                "partitioner": "murmur2_random",
            }
        )
        # Nothing is committed under this name; librdkafka asks for one.
        self._follower = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": f"{group}-deltas", "enable.auto.commit": False}
        )
        partitions = self._follower.list_topics(deltas_topic, timeout=20).topics[deltas_topic].partitions
        ends = [TopicPartition(deltas_topic, p) for p in partitions]
        for end in ends:
            # An end that is a number: "the end" of a partition would be found out only with the first fetch.
            end.offset = self._follower.get_watermark_offsets(end, timeout=20)[1]
        self._follower.assign(ends)
        self._version = 0
        self._deltas: dict[str, dict[str, Any]] = {}
        self.confirmed_ms = 0

    def tell(self, kind: str, member_id: str, **fields: Any) -> None:
        """Send an event of the member; `confirmed_ms` becomes its time when the broker has it."""
        now_ms = time.time_ns() // 1_000_000
        event = {"type": kind, "event_time": now_ms, "cluster": self._cluster, "group_id": self._group}

        def confirm(error: Any, _message: Message) -> None:
            if error is None:
                self.confirmed_ms = max(self.confirmed_ms, now_ms)

        self._producer.produce(
            self._events_topic,
            key=self._group,
            value=json.dumps({**event, "member_id": member_id, **fields}),
            on_delivery=confirm,
        )
        self._producer.poll(0)

    def flush(self) -> None:
        """Wait until the broker has every event.

        Raises:
            TimeoutError: it has not, after 20 s.
        """
        if self._producer.flush(20):
            raise TimeoutError("the events topic takes no events")

    def hear(self, timeout_s: float) -> Iterable[tuple[dict[str, Any], list[dict[str, Any]]]]:
        """Give the group's new versions: (generation, its deltas), each once, oldest first."""
        self._producer.poll(0)
        for message in self._follower.consume(num_messages=500, timeout=timeout_s):
            if message.error() is not None or message.key() != self._group.encode():
                continue
            body = json.loads(message.value() or b"{}")
            if body["cluster"] != self._cluster or body["version"] <= self._version:
                continue
            if "delta_id" in body:
                self._deltas[body["delta_id"]] = body
                continue
            deltas = [delta for delta in self._deltas.values() if delta["version"] == body["version"]]
            self._version = body["version"]
            self._deltas.clear()
            yield body, deltas

    def close(self) -> None:
        """End the connection."""
        self._follower.close()


class LedConsumer:
    """One member: reads the partitions that its leader has assigned to it."""

    def __init__(
        self,
        bootstrap: str,
        leader: Leader,
        group: str,
        member: str,
        topics: list[str],
        session_timeout_ms: int,
    ) -> None:
        """Own nothing yet."""
        self._leader, self._member, self._topics = leader, member, topics
        self._session_timeout_ms = session_timeout_ms
        self._member_id = ""
        self._positions: dict[Pair, int] = {}
        """What it owns, and the offset that it reads next."""
        self._uncommitted: set[Pair] = set()
        self._next_heartbeat_ms = self._next_commit_ms = 0
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "topic.metadata.refresh.interval.ms": 10_000,
            }
        )

    def join(self, protocols: list[str]) -> None:
        """Join under a member_id that nobody has had."""
        self._member_id = f"{self._member}-{secrets.token_hex(4)}"
        self._protocols = protocols
        self._leader.tell(
            "member_joined",
            self._member_id,
            topics=self._topics,
            protocols=protocols,
            client_id=self._member,
            session_timeout_ms=self._session_timeout_ms,
        )
        self._leader.flush()
        report("joined", member_id=self._member_id)

    def turn(self) -> None:
        """Live for a moment: heartbeat, hear the leader, read, commit."""
        # Before the heartbeat: after a long pause that would only say that it lives again.
        if self._is_silent():
            self._start_over("no heartbeat was confirmed in time")
        now_ms = time.time_ns() // 1_000_000
        if now_ms >= self._next_heartbeat_ms:
            self._leader.tell("member_heartbeat", self._member_id)
            self._next_heartbeat_ms = now_ms + self._session_timeout_ms // HEARTBEATS
        for generation, deltas in self._leader.hear(0.05):
            self._carry_out(generation, [d for d in deltas if d["member_id"] == self._member_id])
        self._read()
        if now_ms >= self._next_commit_ms:
            self._commit(self._uncommitted)
            self._next_commit_ms = now_ms + 1000

    def leave(self) -> None:
        """Stop reading, commit, and tell the leader."""
        self._release(set(self._positions))
        self._leader.tell("member_left", self._member_id, reason="leave")
        self._leader.flush()
        report("left", member_id=self._member_id)

    def close(self) -> None:
        """End the connection."""
        self._consumer.close()

    def _carry_out(self, generation: Mapping[str, Any], deltas: list[dict[str, Any]]) -> None:
        """Do what a version asks of this member."""
        by_change: dict[str, set[Pair]] = {"lost": set(), "revoked": set(), "assigned": set()}
        for delta in deltas:
            by_change[delta["change"]].add((delta["topic"], delta["partition"]))
        if by_change["lost"]:
            self._start_over("the leader counts it as gone")
            return
        if by_change["revoked"]:
            self._release(by_change["revoked"])
            self._leader.tell(
                "partitions_revoked", self._member_id, generation_id=generation["generation_id"]
            )
        if by_change["assigned"]:
            self._take(by_change["assigned"])

    def _take(self, pairs: Collection[Pair]) -> None:
        """Begin to read partitions where the last owner's commit stands."""
        wanted = [TopicPartition(topic, partition) for topic, partition in sorted(pairs)]
        for found in self._consumer.committed(wanted, timeout=20):
            is_known = found.offset >= 0
            self._positions[found.topic, found.partition] = found.offset if is_known else OFFSET_BEGINNING
        report("assigned", member_id=self._member_id, partitions=sorted(pairs))
        self._assign()

    def _release(self, pairs: Collection[Pair]) -> None:
        """Stop reading partitions, and only then commit what was read of them."""
        offsets = {pair: self._positions.pop(pair) for pair in pairs if pair in self._positions}
        self._assign()
        self._commit({pair for pair in offsets if pair in self._uncommitted}, offsets)
        report("released", member_id=self._member_id, partitions=sorted(offsets))

    def _start_over(self, why: str) -> None:
        """Stop reading everything at once and join again; others may own it already, so no commit."""
        lost = sorted(self._positions)
        self._positions.clear()
        self._uncommitted.clear()
        self._assign()
        report("lost", member_id=self._member_id, partitions=lost, why=why)
        self._leader.tell("member_left", self._member_id, reason="fenced")
        self.join(self._protocols)

    def _assign(self) -> None:
        self._consumer.assign(
            [TopicPartition(topic, partition, at) for (topic, partition), at in self._positions.items()]
        )

    def _is_silent(self) -> bool:
        """Say whether the leader may soon count this member as gone."""
        silent_ms = time.time_ns() // 1_000_000 - self._leader.confirmed_ms
        return silent_ms > FENCE * self._session_timeout_ms

    def _read(self) -> None:
        read: dict[Pair, list[int]] = {}
        for message in self._consumer.consume(num_messages=500, timeout=0.05):
            error, topic, partition, offset = (
                message.error(),
                message.topic(),
                message.partition(),
                message.offset(),
            )
            if error is not None or topic is None or partition is None or offset is None:
                report("error", message="no record" if error is None else error.str())
                continue
            read.setdefault((topic, partition), []).append(offset)
        if self._is_silent():
            return  # what was fetched is dropped: the next turn starts over
        for (topic, partition), offsets in read.items():
            # Here the records would be worked on.
            self._positions[topic, partition] = offsets[-1] + 1
            self._uncommitted.add((topic, partition))
            report(
                "read",
                member_id=self._member_id,
                topic=topic,
                partition=partition,
                first=offsets[0],
                last=offsets[-1],
                count=len(offsets),
            )

    def _commit(self, pairs: Collection[Pair], offsets: Mapping[Pair, int] | None = None) -> None:
        at = self._positions if offsets is None else offsets
        done = [TopicPartition(topic, partition, at[topic, partition]) for topic, partition in pairs]
        if done:
            for committed in self._consumer.commit(offsets=done, asynchronous=False) or ():
                if committed.error is not None:
                    raise KafkaException(committed.error)
        self._uncommitted -= set(pairs)


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="A consumer whose group is led by Counterpoise.")
    parser.add_argument("--bootstrap", required=True, help="host:port,host:port")
    parser.add_argument("--events-topic", required=True, help="what Counterpoise reads events from")
    parser.add_argument("--deltas-topic", required=True, help="what its sink writes to")
    parser.add_argument("--cluster", default="default", help="the cluster's name in Counterpoise's settings")
    parser.add_argument("--group", required=True)
    parser.add_argument("--member", required=True, help="a name; each time it joins it gets an id of its own")
    parser.add_argument("--topics", required=True, type=lambda text: text.split(","), help="t1,t2")
    parser.add_argument("--protocols", default=["cooperative-sticky"], type=lambda text: text.split(","))
    parser.add_argument("--session-timeout-ms", default=10_000, type=int)
    return parser.parse_args(arguments)


def main() -> None:
    """Be a member until told to leave."""
    told = parse_arguments()
    is_leaving = False

    def leave(_number: int, _frame: FrameType | None) -> None:
        nonlocal is_leaving
        is_leaving = True

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, leave)
    leader = Leader(told.bootstrap, told.events_topic, told.deltas_topic, told.cluster, told.group)
    member = LedConsumer(
        told.bootstrap, leader, told.group, told.member, told.topics, told.session_timeout_ms
    )
    try:
        member.join(told.protocols)
        while not is_leaving:
            member.turn()
        member.leave()
    finally:
        member.close()
        leader.close()


if __name__ == "__main__":
    main()
