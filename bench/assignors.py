"""The assignors held against Kafka's own Java classes, and small groups against kafka-python's.

Processor time on each side, of one thread's work: Java's as the oracle measures it,
its collector's threads left out; ours of this whole process, the collector in it.
The two take turns, so that a slow minute of the machine slows both, and Java runs
each case often enough before that its compiler is done. What is timed is the same on
both sides: subscriptions in, the finished assignment out, user data decoded on the
way. Every case's answer is compared with Java's, to the partition and in list order.

Who joins a group of unlike subscriptions decides how long Java takes, up to twenty
times as long: it asks whether the group is balanced before each partition, topic
after topic, until it comes to one that the newcomer reads, and every second newcomer
reads the first. So several join such a group, one at a time; the figure is the median
over all of them, and the details say how far they lie apart.
"""

from __future__ import annotations

import gc
import os
import random
import statistics
import time
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assignors import (
    Assignment,
    Subscription,
    TopicMetadata,
    TopicPartition,
    encode_cooperative_user_data,
    encode_sticky_user_data,
    get_assignor,
)
from bench import Figure, Scale, kafka_python
from bench.optimal_peers import by_topic
from tests.parity.oracle import Oracle, OracleUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_GENERATION = 1
_JAVA_OPTIONS = "-Xmx6g -XX:+UseSerialGC"
_RACKS = ("rack-0", "rack-1", "rack-2")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """One group: its topics' partitions, and what each member reads.

    The last `newcomers` are no members yet: each of them joins the same group, alone.
    `repeats` are how many calls one sample of ours is the mean of (a clock's tick is
    no measure for microseconds), `java_warm_up` how often Java computes each case
    before it is measured, `rounds` how many samples are enough.
    """

    name: str
    kinds: tuple[str, ...]
    partitions: dict[str, int]
    topics_by_member: dict[str, tuple[str, ...]]
    is_racked: bool = False
    newcomers: int = 1
    repeats: int = 1
    java_warm_up: int
    rounds: int
    against_python: bool = False


@dataclass(slots=True)
class _Case:
    """One assignor's task in one group, and what was measured of it."""

    group: _Group
    kind: str
    event: str
    members: list[str]
    owned: dict[str, tuple[TopicPartition, ...]]
    ours: list[float] = field(default_factory=list)
    java: list[float] = field(default_factory=list)
    python: list[float] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Say what is measured, in a few words."""
        return f"{self.group.name}, {self.kind}, {self.event}"

    def topics(self) -> dict[str, TopicMetadata]:
        """Describe the topics for us."""
        if not self.group.is_racked:
            return {topic: TopicMetadata.of_count(n) for topic, n in self.group.partitions.items()}
        return {
            topic: TopicMetadata(range(n), tuple(_racks_of(p) for p in range(n)))
            for topic, n in self.group.partitions.items()
        }

    def subscriptions(self) -> dict[str, Subscription]:
        """Describe the members for us."""
        return {member: self._subscription(member) for member in self.members}

    def _subscription(self, member: str) -> Subscription:
        owned = self.owned.get(member, ())
        generation = _GENERATION if owned else -1
        user_data = None
        if self.kind == "sticky" and owned:
            user_data = encode_sticky_user_data(owned, generation)
        elif self.kind == "cooperative-sticky":
            user_data = encode_cooperative_user_data(generation)
        return Subscription(
            topics=self.group.topics_by_member[member],
            owned_partitions=() if self.kind == "sticky" else owned,
            generation_id=generation,
            rack_id=self._rack(member),
            user_data=user_data,
        )

    def _rack(self, member: str) -> str | None:
        return _RACKS[self.members.index(member) % len(_RACKS)] if self.group.is_racked else None

    def lines(self) -> dict[str, Any]:
        """Describe the same case to the oracle."""
        members: list[dict[str, Any]] = []
        for member in self.members:
            told: dict[str, Any] = {"id": member, "topics": self.group.topics_by_member[member]}
            if self.owned.get(member):
                told |= {"owned": self.owned[member], "generation": _GENERATION}
            if self.group.is_racked:
                told["rack"] = self._rack(member)
            members.append(told)
        topics: dict[str, Any] = dict(self.group.partitions)
        if self.group.is_racked:
            topics = {topic: [_racks_of(p) for p in range(n)] for topic, n in topics.items()}
        return {"id": 0, "assignor": self.kind, "topics": topics, "members": members}


def _racks_of(partition: int) -> tuple[str, ...]:
    """Put a partition's two replicas into two racks of three."""
    return _RACKS[partition % 3], _RACKS[(partition + 1) % 3]


def _groups() -> list[_Group]:
    """List the groups that are measured."""
    sticky = ("sticky", "cooperative-sticky")
    every = (*sticky, "range", "roundrobin")
    small: dict[str, Any] = {
        "kinds": every,
        "partitions": _partitions(3, 12),
        "repeats": 50,
        "java_warm_up": 8_000,
        "rounds": 40,
        "against_python": True,
    }
    three = list(small["partitions"])
    hundred = _partitions(100, 100)
    many = _partitions(500, 2_000)
    unlike: dict[str, Any] = {
        "kinds": sticky,
        "partitions": hundred,
        "rounds": 3,
        "java_warm_up": 1,
    }
    return [
        _Group(name="3 x 12, 5 members", topics_by_member=_alike(5, three), **small),
        _Group(name="3 x 12, 5 unlike members", topics_by_member=_two_of_three(5, three), **small),
        _Group(
            name="100 x 100, 500 members of random halves",
            topics_by_member=_halves(500, hundred, newcomers=21),
            newcomers=21,
            **unlike,
        ),
        _Group(
            name="100 x 100, 100 members of random halves",
            topics_by_member=_halves(100, hundred, newcomers=5),
            newcomers=5,
            **unlike,
        ),
        _Group(
            name="100 x 100, 100 members of random halves, racks",
            topics_by_member=_halves(100, hundred, newcomers=5),
            newcomers=5,
            is_racked=True,
            **unlike,
        ),
        _Group(
            name="500 x 2,000, 2,000 members",
            kinds=every,
            partitions=many,
            topics_by_member=_alike(2_000, list(many)),
            rounds=3,
            java_warm_up=1,
        ),
    ]


def _partitions(topics: int, count: int) -> dict[str, int]:
    return {f"topic-{i:03d}": count for i in range(topics)}


def _member_ids(many: int, newcomers: int = 1) -> Iterator[str]:
    """Name members as clients are named, and after them those who join."""
    seeded = random.Random(many)
    for i in range(many + newcomers):
        yield f"consumer-{i:04d}-{seeded.getrandbits(64):016x}"


def _alike(many: int, topics: list[str]) -> dict[str, tuple[str, ...]]:
    # A tuple of its own for each, as when each came in its own request.
    return {member: tuple(topics) for member in _member_ids(many)}


def _two_of_three(many: int, topics: list[str]) -> dict[str, tuple[str, ...]]:
    return {
        member: tuple(topic for k, topic in enumerate(topics) if (i + k) % 3)
        for i, member in enumerate(_member_ids(many))
    }


def _halves(many: int, topics: dict[str, int], newcomers: int) -> dict[str, tuple[str, ...]]:
    seeded = random.Random(many)
    names = list(topics)
    return {member: tuple(seeded.sample(names, len(names) // 2)) for member in _member_ids(many, newcomers)}


def run(scale: Scale, say: Callable[[str], None]) -> list[Figure]:
    """Measure every assignor on every group; without Java or Maven it says so and gives nothing.

    Raises:
        RuntimeError: an answer is not Java's.
    """
    os.environ.setdefault("ORACLE_JAVA_OPTIONS", _JAVA_OPTIONS)
    figures: list[Figure] = []
    for group in _groups():
        try:
            # A JVM for each group, which no other group's garbage slows.
            with Oracle() as oracle:
                for cases in _cases(group):
                    say(f"assignors: {cases[0].name}")
                    for case in cases:
                        _measure(case, oracle, min(scale.rounds * 4, group.rounds))
                    figures += _figures(cases)
        except OracleUnavailableError as error:
            say(f"assignors: not measured: {error}")
            return []
    return figures


def _cases(group: _Group) -> Iterator[list[_Case]]:
    """Give each assignor's cases: a fresh group, and for the sticky ones a leave and each join after it."""
    everyone = list(group.topics_by_member)
    first, newcomers = everyone[: -group.newcomers], everyone[-group.newcomers :]
    for kind in group.kinds:
        fresh = _Case(group=group, kind=kind, event="fresh", members=first, owned={})
        yield [fresh]
        if kind not in ("range", "roundrobin"):
            owned = dict(_assign(fresh))
            leaver = first[len(first) // 2]
            staying = [member for member in first if member != leaver]
            yield [_Case(group=group, kind=kind, event="one leaves", members=staying, owned=owned)]
            yield [
                _Case(group=group, kind=kind, event="one joins", members=[*first, newcomer], owned=owned)
                for newcomer in newcomers
            ]


def _assign(case: _Case) -> Assignment:
    return get_assignor(case.kind).function(case.topics(), case.subscriptions(), None)


def _measure(case: _Case, oracle: Oracle, rounds: int) -> None:
    """Compare the answers, then let both sides take turns."""
    assign = get_assignor(case.kind).function
    topics, subscriptions, lines = case.topics(), case.subscriptions(), case.lines()
    kafka = oracle.ask(lines)["result"]
    ours = assign(topics, subscriptions, None)
    if any(list(map(list, ours[member])) != kafka.pop(member) for member in ours) or kafka:
        raise RuntimeError(f"{case.name}: the answer is not Java's")
    python = _kafka_python(case) if case.group.against_python else None
    oracle.ask({**lines, "timing": case.group.java_warm_up})
    for _ in range(rounds):
        timed = oracle.ask({**lines, "timing": case.group.repeats})["cpu_ns"]
        case.java.append(statistics.median(timed) / 1e9)
        case.ours.append(_seconds_of(lambda: assign(topics, subscriptions, None), case.group.repeats))
        if python is not None:
            case.python.append(_seconds_of(python, case.group.repeats))


def _seconds_of(work: Callable[[], object], repeats: int) -> float:
    """Measure one call, as the mean of some."""
    gc.collect()
    before = time.process_time()
    for _ in range(repeats):
        work()
    return (time.process_time() - before) / repeats


def _kafka_python(case: _Case) -> Callable[[], object] | None:
    """Prepare the same task for kafka-python; None when it has no answer, or is not installed."""
    if case.kind not in kafka_python.KINDS:
        return None
    try:
        work = kafka_python.prepare(
            case.kind,
            case.group.partitions,
            {member: case.group.topics_by_member[member] for member in case.members},
            by_topic({member: pairs for member in case.members if (pairs := case.owned.get(member))}),
            _GENERATION,
        )
        work()
    except (ImportError, KeyError):
        return None  # its round robin cannot do unlike subscriptions
    return work


def _figures(cases: list[_Case]) -> Iterator[Figure]:
    """Give the medians against each of the others, over all who joined."""
    case = cases[0]
    ours = [sample for one in cases for sample in one.ours]
    java = [sample for one in cases for sample in one.java]
    python = [sample for one in cases for sample in one.python]
    details: dict[str, float] = {"slowest": max(ours), "slowest against": max(java)}
    if len(cases) > 1:
        ratios = [statistics.median(one.ours) / statistics.median(one.java) for one in cases]
        details |= {"least ratio": min(ratios), "largest ratio": max(ratios)}
        details |= {"ratio of the sums": sum(ours) / sum(java)}
    if sum(case.group.partitions.values()) >= 1_000_000:
        details |= _peak(case)
    for against, samples in (("Kafka's Java", java), ("kafka-python", python)):
        if samples:
            yield Figure(
                comparison="assignors",
                case=case.name,
                seconds=statistics.median(ours),
                against=against,
                against_seconds=statistics.median(samples),
                samples=len(samples),
                details=details if samples is java else {},
            )


def _peak(case: _Case) -> dict[str, float]:
    """Measure the most memory that a process needs which does this case alone, its input included."""
    with get_context("spawn").Pool(1) as pool:
        peak = pool.apply(peak_megabytes, (case.group, case.kind, case.event))
    return {"peak memory in MB": peak} if peak is not None else {}


def peak_megabytes(group: _Group, kind: str, event: str) -> float | None:
    """Do one case and say how much memory this process ever held; None where /proc does not tell."""
    for case, *_ in _cases(replace(group, kinds=(kind,))):
        if case.event == event:
            _assign(case)
    status = Path("/proc/self/status")
    if not status.exists():
        return None
    fields = dict(line.split(":", 1) for line in status.read_text(encoding="ascii").splitlines())
    return int(fields["VmHWM"].split()[0]) / 1_000
