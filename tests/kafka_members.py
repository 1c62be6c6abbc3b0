"""Real members of real groups: Java's, confluent-kafka's and kafka-python's, each in a process of its own."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, ClassVar, Self

from tests.kafka_cluster import ROOT, KafkaBroker, Login, Pair, java_command, wait_until

_JAVA_ASSIGNORS = {
    "range": "org.apache.kafka.clients.consumer.RangeAssignor",
    "roundrobin": "org.apache.kafka.clients.consumer.RoundRobinAssignor",
    "sticky": "org.apache.kafka.clients.consumer.StickyAssignor",
    "cooperative-sticky": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """What a member reported.

    `generation_id` is what the client's group metadata said inside the callback: the generation, under
    KIP-848 the member's epoch; None where the event has none. `time_ms` is UTC, epoch. `more` holds what else
    an event of this kind says (tests/kafka_client.py lists it).
    """

    kind: str
    partitions: frozenset[Pair] = frozenset()
    generation_id: int | None = None
    member_id: str | None = None
    time_ms: int
    more: Mapping[str, Any] = field(default_factory=dict, hash=False)


def _read_event(line: str) -> Event:
    """Read one line of a member's stdout."""
    fields = json.loads(line)
    return Event(
        kind=fields.pop("event"),
        partitions=frozenset((topic, partition) for topic, partition in fields.pop("partitions", ())),
        generation_id=fields.pop("generation_id", None),
        member_id=fields.pop("member_id", None),
        time_ms=fields.pop("time_ms"),
        more=fields,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """How a client joins its group; the same words for every library.

    Attributes:
        group_id: the group.
        kind: "classic", "consumer" (KIP-848) or "share" (Java alone).
        assignors: protocol names in order of preference, for Java also class names; none for the library's
            own default. Under "consumer" at most one, the broker's.
        group_instance_id: for a static member.
        client_id: None for the library's own.
        rack: the client's rack.
        session_timeout_ms: of a classic member; for the others the broker decides.
        login: over the broker's SASL listener; None for the plain one.
        properties: more of the library's own.
    """

    group_id: str
    kind: str = "classic"
    assignors: tuple[str, ...] = ()
    group_instance_id: str | None = None
    client_id: str | None = None
    rack: str | None = None
    session_timeout_ms: int = 6_000
    login: Login | None = None
    properties: Mapping[str, Any] = field(default_factory=dict, hash=False)


def _dotted_properties(broker: KafkaBroker, joining: Membership) -> dict[str, Any]:
    """Give the properties that Java's clients and librdkafka name alike."""
    servers = broker.sasl_bootstrap_servers if joining.login else broker.bootstrap_servers
    properties: dict[str, Any] = {
        "bootstrap.servers": servers,
        "group.id": joining.group_id,
        "group.instance.id": joining.group_instance_id,
        "client.id": joining.client_id,
        "client.rack": joining.rack,
    }
    if joining.kind == "classic":
        properties["session.timeout.ms"] = joining.session_timeout_ms
        # By its heartbeat a member hears of a rebalance: often, or every test waits for it.
        properties["heartbeat.interval.ms"] = min(250, joining.session_timeout_ms // 3)
    elif joining.kind == "consumer":
        properties["group.protocol"] = "consumer"
        (properties["group.remote.assignor"],) = joining.assignors or (None,)
    return {key: value for key, value in properties.items() if value is not None}


class GroupMember:
    """A client in a child process, told what to do and asked what it saw; a context manager.

    The libraries' classes below say how their process is started.
    """

    library: ClassVar[str]
    kinds: ClassVar[tuple[str, ...]]

    def __init__(self, broker: KafkaBroker, **joining: Any) -> None:
        """Start the process; the arguments are `Membership`'s.

        Raises:
            ValueError: the library has no members of that kind.
        """
        wanted = Membership(**joining)
        if wanted.kind not in self.kinds:
            message = f"{self.library} has no members of kind {wanted.kind!r}; known: {self.kinds}"
            raise ValueError(message)
        command = self._command(broker, wanted)
        self.events: list[Event] = []
        self.log = broker.client_log(self.library)
        self._taken = 0
        self._changed = threading.Condition()
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                encoding="utf-8",
                # A terminal's Ctrl-C is not for it, as in kafka_cluster.py.
                process_group=0,
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _command(self, broker: KafkaBroker, wanted: Membership) -> list[str]:
        raise AssertionError

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._changed:
                self.events.append(_read_event(line))
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._process.pid

    def send(self, do: str, **fields: Any) -> None:
        """Give a command; tests/kafka_client.py lists them."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **fields}) + "\n")
        self._process.stdin.flush()

    def subscribe(self, *topics: str, pattern: str | None = None) -> None:
        """Subscribe to topics or to a pattern in the library's own syntax; does not wait."""
        if pattern is not None:
            self.send("subscribe", pattern=pattern)
        else:
            self.send("subscribe", topics=list(topics))

    def unsubscribe(self) -> None:
        """Give up the subscription and with it the membership, and wait for that."""
        self.send("unsubscribe")
        self.wait_for("done", where=lambda event: event.more["do"] == "unsubscribe")

    def wakeup(self) -> None:
        """Wake a poll, as Java's wakeup does."""
        self.send("wakeup")

    def leave(self, timeout_s: float = 30) -> None:
        """Close the consumer, which leaves the group unless it is static, and end."""
        self.send("leave")
        self.wait_for("left", timeout_s=timeout_s)
        self._process.wait(timeout_s)
        self._close()

    def crash(self) -> None:
        """End without leaving the group, by its own hand."""
        self.send("crash")
        self._process.wait(30)
        self._close()

    def kill(self) -> None:
        """End it with kill -9; nothing happens to one that has ended."""
        self._process.kill()
        self._process.wait()
        self._close()

    def pause(self) -> None:
        """Stop its process as a long garbage collection or a suspended machine does (SIGSTOP)."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused process go on."""
        self._process.send_signal(signal.SIGCONT)

    def _close(self) -> None:
        """Read what is left, then close the pipes."""
        self._reader.join(30)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()

    def wait_for(
        self, *kinds: str, where: Callable[[Event], bool] = lambda _: True, timeout_s: float = 30
    ) -> Event:
        """Wait for the next event of these kinds; each call goes on after the one that the last gave.

        Raises:
            TimeoutError: none came, or the process ended without one; with what came instead.
        """
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while True:
                while self._taken < len(self.events):
                    event = self.events[self._taken]
                    self._taken += 1
                    if event.kind in kinds and where(event):
                        return event
                left_s = deadline - time.monotonic()
                if left_s <= 0 or not self._reader.is_alive():
                    message = (
                        f"waited {timeout_s} s for {kinds}, last came {self.events[-3:]}; see {self.log}"
                    )
                    raise TimeoutError(message)
                self._changed.wait(left_s)

    @property
    def owned(self) -> frozenset[Pair]:
        """What the callbacks so far leave it with: assigned, less revoked, less lost."""
        owned: set[Pair] = set()
        for event in tuple(self.events):
            if event.kind == "assigned":
                owned |= event.partitions
            elif event.kind in {"revoked", "lost"}:
                owned -= event.partitions
        return frozenset(owned)


class JavaClient(GroupMember):
    """Kafka's own consumer or share consumer (tests/broker's Client), in a JVM of 64 MiB."""

    library = "java"
    kinds = ("classic", "consumer", "share")

    def _command(self, broker: KafkaBroker, wanted: Membership) -> list[str]:
        properties = _dotted_properties(broker, wanted)
        if wanted.kind == "classic" and wanted.assignors:
            properties["partition.assignment.strategy"] = ",".join(
                _JAVA_ASSIGNORS.get(name, name) for name in wanted.assignors
            )
        properties |= {**(wanted.login.java() if wanted.login else {}), **wanted.properties}
        kind = "share" if wanted.kind == "share" else "consumer"
        return java_command("64m", "counterpoise.Client", kind, json.dumps(properties))


class ConfluentClient(GroupMember):
    """A consumer of confluent-kafka: range, roundrobin, cooperative-sticky, or KIP-848."""

    library = "confluent-kafka"
    kinds = ("classic", "consumer")

    def _command(self, broker: KafkaBroker, wanted: Membership) -> list[str]:
        properties = _dotted_properties(broker, wanted)
        properties["reconnect.backoff.max.ms"] = 1_000
        if wanted.kind == "classic" and wanted.assignors:
            properties["partition.assignment.strategy"] = ",".join(wanted.assignors)
        properties |= {**(wanted.login.librdkafka() if wanted.login else {}), **wanted.properties}
        return _python_command(self.library, properties)


class KafkaPythonClient(GroupMember):
    """A consumer of kafka-python: range, roundrobin, sticky or cooperative-sticky, all classic."""

    library = "kafka-python"
    kinds = ("classic",)

    def _command(self, broker: KafkaBroker, wanted: Membership) -> list[str]:
        properties: dict[str, Any] = {
            key.replace(".", "_"): value for key, value in _dotted_properties(broker, wanted).items()
        }
        properties["assignors"] = wanted.assignors
        properties |= {**(wanted.login.kafka_python() if wanted.login else {}), **wanted.properties}
        return _python_command(self.library, properties)


def _python_command(library: str, properties: Mapping[str, Any]) -> list[str]:
    """Write the command that runs tests/kafka_client.py."""
    return [sys.executable, "-m", "tests.kafka_client", library, json.dumps(properties)]


def wait_for_owners(
    members: Collection[GroupMember], wanted: Iterable[Pair], *, idle_members: int = 0, timeout_s: float = 30
) -> None:
    """Wait until these members own these partitions, each of them once, and so many members none.

    Raises:
        TimeoutError: they never did; with who owned what at the end.
    """
    partitions = sorted(wanted)

    def are_owned() -> bool:
        owned = [member.owned for member in members]
        idle = sum(not of_member for of_member in owned)
        return (
            sorted(pair for of_member in owned for pair in of_member) == partitions and idle == idle_members
        )

    def failure() -> str:
        owned = {member.log.stem: sorted(member.owned) for member in members}
        return f"{partitions} should have one owner each and {idle_members} members none, but: {owned}"

    wait_until(are_owned, timeout_s, failure)
