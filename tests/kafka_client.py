"""One member of a group in a process of its own: `python -m tests.kafka_client LIBRARY PROPERTIES`.

LIBRARY is confluent-kafka or kafka-python, PROPERTIES a JSON object of what that library takes (for
kafka-python its keyword arguments; its assignors by their protocol names). tests/broker's Client speaks
the same:

Commands, JSON lines on stdin: {"do": "subscribe", "topics": [...]} or {"do": "subscribe", "pattern": regex},
{"do": "unsubscribe"}, {"do": "leave"} (ends the process), {"do": "crash"} (ends it without leaving). The end
of stdin is a crash too. {"do": "wakeup"} is Java's alone.

Events, JSON lines on stdout, each with time_ms (UTC, epoch): "started"; "assigned", "revoked" and "lost" with
partitions [[topic, partition], ...], generation_id and member_id as the client knew them inside the callback
(under KIP-848 generation_id is the member's epoch: no client calls it otherwise); "records" with the
partitions and the count that a poll gave; "woken"; "done" with the command; "left"; "error" with the
library's name for it and its message.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

_POLL_S = 0.1
_MOST_RECORDS = 500
_LONGEST_JOIN_MS = 300_000
"""max.poll.interval.ms: a coordinator waits for members no longer."""
_CRASHED = 137  # what a shell says of kill -9


class _Member(Protocol):
    """What is asked of either library."""

    def subscribe(self, topics: list[str] | None, pattern: str | None) -> None: ...

    def unsubscribe(self) -> None: ...

    def poll(self) -> None: ...

    def close(self) -> None: ...


def report(event: str, **fields: Any) -> None:
    """Write one event."""
    line = json.dumps({"event": event, **fields, "time_ms": time.time_ns() // 1_000_000})
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _pairs(partitions: Iterable[Any]) -> list[tuple[str, int]]:
    """List (topic, partition) of either library's objects, ordered."""
    return sorted((each.topic, each.partition) for each in partitions)


class _Confluent:
    """A consumer of confluent-kafka, either protocol."""

    def __init__(self, properties: Mapping[str, Any]) -> None:
        from confluent_kafka import Consumer

        self._consumer = Consumer({**properties, "error_cb": self._report_error})

    @staticmethod
    def _report_error(error: Any) -> None:
        """Report what librdkafka mostly overcomes by itself: a broker away, a login refused."""
        report("error", error=error.name(), message=error.str())

    def _report_partitions(self, event: str, partitions: Iterable[Any]) -> None:
        # librdkafka tells the generation only inside this: "CGMDv2:", then an int32 of the machine's order.
        generation = self._consumer.consumer_group_metadata()[7:11]
        report(
            event,
            partitions=_pairs(partitions),
            generation_id=int.from_bytes(generation, sys.byteorder, signed=True),
            member_id=self._consumer.memberid(),
        )

    def subscribe(self, topics: list[str] | None, pattern: str | None) -> None:
        self._consumer.subscribe(
            # librdkafka takes for a pattern what begins so.
            topics or [f"^{(pattern or '').removeprefix('^')}"],
            on_assign=lambda _, partitions: self._report_partitions("assigned", partitions),
            on_revoke=lambda _, partitions: self._report_partitions("revoked", partitions),
            on_lost=lambda _, partitions: self._report_partitions("lost", partitions),
        )

    def unsubscribe(self) -> None:
        self._consumer.unsubscribe()

    def poll(self) -> None:
        messages = self._consumer.consume(num_messages=_MOST_RECORDS, timeout=_POLL_S)
        for message in messages:
            if message.error() is not None:
                self._report_error(message.error())
        found = [(message.topic(), message.partition()) for message in messages if message.error() is None]
        if found:
            report("records", partitions=sorted(set(found)), count=len(found))

    def close(self) -> None:
        self._consumer.close()


class _KafkaPython:
    """A consumer of kafka-python, which knows the classic protocol only."""

    def __init__(self, properties: Mapping[str, Any]) -> None:
        from kafka import ConsumerRebalanceListener, KafkaConsumer
        from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
        from kafka.coordinator.assignors.range import RangePartitionAssignor
        from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
        from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
        from kafka.util import Timer

        known = (
            RangePartitionAssignor,
            RoundRobinPartitionAssignor,
            StickyPartitionAssignor,
            CooperativeStickyAssignor,
        )
        by_name = {assignor.name: assignor for assignor in known}
        arguments = dict(properties)
        if assignors := arguments.pop("assignors", None):
            arguments["partition_assignment_strategy"] = [by_name[name] for name in assignors]
        consumer = KafkaConsumer(**arguments)

        def report_partitions(event: str, partitions: Iterable[Any]) -> None:
            group = consumer.group_metadata()
            report(
                event,
                partitions=_pairs(partitions),
                generation_id=group.generation_id,
                member_id=group.member_id,
            )

        class Reporter(ConsumerRebalanceListener):
            def on_partitions_assigned(self, assigned: Any) -> None:
                report_partitions("assigned", assigned)

            def on_partitions_revoked(self, revoked: Any) -> None:
                report_partitions("revoked", revoked)

            def on_partitions_lost(self, lost: Any) -> None:
                report_partitions("lost", lost)

        self._consumer = consumer
        self._listener = Reporter()
        self._timer = Timer

    def subscribe(self, topics: list[str] | None, pattern: str | None) -> None:
        self._consumer.subscribe(topics=topics or (), pattern=pattern, listener=self._listener)

    def unsubscribe(self) -> None:
        self._consumer.unsubscribe()

    def poll(self) -> None:
        """Do one round of a poll: a join to its end, or else a fetch until the next heartbeat is due.

        kafka-python 3.0.12 forgets a join that it began for a new subscription or for new metadata when the
        poll's time is over in its midst: need_rejoin() is false by then, so the answer is never read, no
        callback comes and no heartbeat is sent again. No poll of the public kind is both short and safe.
        """
        found = self._consumer._poll_once(self._timer(_LONGEST_JOIN_MS), _MOST_RECORDS)
        if found:
            report("records", partitions=_pairs(found), count=sum(map(len, found.values())))

    def close(self) -> None:
        self._consumer.close()


LIBRARIES: dict[str, Callable[[Mapping[str, Any]], _Member]] = {
    "confluent-kafka": _Confluent,
    "kafka-python": _KafkaPython,
}


def _read_commands(commands: queue.SimpleQueue[dict[str, Any]]) -> None:
    """Hand over commands as they come; a crash does not wait for its turn."""
    for line in sys.stdin:
        command = json.loads(line)
        if command["do"] == "crash":
            os._exit(_CRASHED)
        commands.put(command)
    os._exit(1)


def _obey(member: _Member, commands: queue.SimpleQueue[dict[str, Any]]) -> None:
    """Poll, and do as told, until told to leave."""
    subscribed = False
    while True:
        try:
            command = commands.get(timeout=0 if subscribed else _POLL_S)
        except queue.Empty:
            command = {"do": None}
        match command["do"]:
            case None:
                pass
            case "subscribe":
                member.subscribe(command.get("topics"), command.get("pattern"))
                subscribed = True
            case "unsubscribe":
                member.unsubscribe()
                subscribed = False
            case "leave":
                member.close()
                report("left")
                return
            case other:
                message = f"unknown command {other!r}; known: subscribe, unsubscribe, leave, crash"
                raise ValueError(message)
        if command["do"] is not None:
            report("done", do=command["do"])
        if subscribed:
            member.poll()


def main(library: str, properties: str) -> None:
    """Be a member until told to leave; what the library raises is reported and ends the process."""
    commands: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    try:
        member = LIBRARIES[library](json.loads(properties))
        threading.Thread(target=_read_commands, args=(commands,), daemon=True).start()
        report("started")
        _obey(member, commands)
    except Exception as error:  # noqa: BLE001 - the process edge
        report("error", error=type(error).__name__, message=str(error))
        os._exit(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
