"""The groups on which the optimal assignor and its peers are measured, and the one judge of all answers."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from assignors import Assignment, Subscription, TopicMetadata, TopicPartition
from assignors.optimal import find_optimum

GENERATION = 1
"""In which everything was owned before."""

Given = Mapping[str, Mapping[str, Sequence[int]]]
"""An answer: member_id -> topic -> partitions."""

Topics = Mapping[str, TopicMetadata]
Subscriptions = Mapping[str, Subscription]


class Score(NamedTuple):
    """The sum of squared loads, and how many partitions left a live owner that subscribes; less is better."""

    squares: int
    moves: int


@dataclass(frozen=True, kw_only=True)
class Case:
    """One group, and who owned what before, maybe of members that have left.

    `repeats` are how many calls one sample is the mean of, `java_warm_up` how often Java
    computes the case before it is measured, beyond once, `rounds` the samples of each.
    """

    name: str
    partitions: Mapping[str, int]
    topics_by_member: Mapping[str, tuple[str, ...]]
    before: Assignment | None = None
    rounds: int = 3
    repeats: int = 1
    java_warm_up: int = 0
    is_small: bool = False
    has_peak: bool = False
    exponent_of: str = ""
    size: int = 0
    excluded: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def topics(self) -> Topics:
        """Describe the topics for us."""
        return {topic: TopicMetadata.of_count(count) for topic, count in self.partitions.items()}

    @cached_property
    def owned(self) -> dict[str, dict[str, list[int]]]:
        """Say what each member of today owned: member_id -> topic -> partitions."""
        before = self.before
        if before is None:
            return {}
        return {member: before.by_topic(member) for member in self.topics_by_member if before.get(member)}

    def subscriptions(self, *, with_owned: bool) -> dict[str, Subscription]:
        """Describe the members for us, their owned partitions as tuples if asked for."""
        owned = self.owned if with_owned else {}
        return {
            member: Subscription(
                topics=topics,
                owned_partitions=tuple(
                    TopicPartition(topic, p) for topic, parts in owned.get(member, {}).items() for p in parts
                ),
                generation_id=GENERATION if member in owned else -1,
            )
            for member, topics in self.topics_by_member.items()
        }

    def score(self, given: Given) -> Score:
        """Judge an answer.

        Raises:
            RuntimeError: it leaves a partition out, gives one twice or to one who does not subscribe.
        """
        read = {topic for topics in self.topics_by_member.values() for topic in topics}
        starts: dict[str, int] = {}
        total = 0
        for topic, count in self.partitions.items():
            if topic in read:
                starts[topic] = total
                total += count
        owner: list[str | None] = [None] * total
        squares = 0
        for member, by_topic in given.items():
            wanted = frozenset(self.topics_by_member[member])
            load = 0
            for topic, numbers in by_topic.items():
                start, count = starts[topic], self.partitions[topic]
                load += len(numbers)
                for number in numbers:
                    if topic not in wanted or not 0 <= number < count or owner[start + number] is not None:
                        raise RuntimeError(f"{self.name}: {topic}-{number} is not {member!r}'s to have")
                    owner[start + number] = member
            squares += load * load
        if None in owner:
            raise RuntimeError(f"{self.name}: {owner.count(None)} partitions are left out")
        moves = 0
        for member, by_topic in self.owned.items():
            wanted = frozenset(self.topics_by_member[member])
            for topic in wanted.intersection(by_topic):
                moves += sum(owner[starts[topic] + number] != member for number in by_topic[topic])
        return Score(squares, moves)


def _partitions(topics: int, count: int) -> dict[str, int]:
    return {f"topic-{i:05d}": count for i in range(topics)}


def _members(many: int) -> list[str]:
    """Name members as clients are named."""
    seeded = random.Random(many)
    return [f"consumer-{i:05d}-{seeded.getrandbits(64):016x}" for i in range(many)]


def _alike(many: int, topics: Mapping[str, int]) -> dict[str, tuple[str, ...]]:
    # A tuple of its own for each, as when each came in its own request.
    return {member: tuple(topics) for member in _members(many)}


def _some(many: int, topics: Mapping[str, int], each: int) -> dict[str, tuple[str, ...]]:
    seeded = random.Random(many)
    names = list(topics)
    return {member: tuple(seeded.sample(names, each)) for member in _members(many)}


def _two_of_three(many: int, topics: Mapping[str, int]) -> dict[str, tuple[str, ...]]:
    return {
        member: tuple(topic for k, topic in enumerate(topics) if (i + k) % 3)
        for i, member in enumerate(_members(many))
    }


def _events(case: Case) -> Iterator[Case]:
    """Make of a group whose last member is a newcomer: fresh, one leaves, one joins."""
    everyone = dict(case.topics_by_member)
    newcomer = list(everyone)[-1]
    first = {member: topics for member, topics in everyone.items() if member != newcomer}
    fresh = replace(case, name=f"{case.name}, fresh", topics_by_member=first)
    yield fresh
    before = find_optimum(fresh.topics, fresh.subscriptions(with_owned=False)).assignment
    leaver = list(first)[len(first) // 2]
    staying = {member: topics for member, topics in first.items() if member != leaver}
    yield replace(case, name=f"{case.name}, one leaves", topics_by_member=staying, before=before)
    yield replace(case, name=f"{case.name}, one joins", before=before)


def _dealt(case: Case) -> Case:
    """Give every partition to any of its subscribers before: the hard case, far from even."""
    seeded = random.Random(len(case.topics_by_member))
    readers: dict[str, list[str]] = {}
    for member, topics in case.topics_by_member.items():
        for topic in topics:
            readers.setdefault(topic, []).append(member)
    owned: dict[str, list[tuple[str, int]]] = {member: [] for member in case.topics_by_member}
    for topic, count in case.partitions.items():
        for number in range(count if topic in readers else 0):
            owned[seeded.choice(readers[topic])].append((topic, number))
    return replace(case, name=f"{case.name}, dealt at random before", before=Assignment.of(owned))


def large_cases() -> Iterator[list[Case]]:
    """Give the cases of each large group."""
    many, hundred = _partitions(500, 2_000), _partitions(100, 100)
    yield list(
        _events(
            Case(
                name="500 x 2,000, 2,000 members",
                partitions=many,
                topics_by_member=_alike(2_001, many),
                has_peak=True,
            )
        )
    )
    halves = Case(
        name="100 x 100, 500 members of random halves",
        partitions=hundred,
        topics_by_member=_some(501, hundred, 50),
        rounds=5,
    )
    yield [*_events(halves), _dealt(halves)]
    yield list(
        _events(
            Case(
                name="500 x 2,000, 2,000 members of random halves",
                partitions=many,
                topics_by_member=_some(2_001, many, 250),
                has_peak=True,
            )
        )
    )


def small_cases() -> Iterator[list[Case]]:
    """Give the cases of five members and three topics, alike and unlike."""
    three = _partitions(3, 12)
    for name, topics_by_member in (
        ("members", _alike(6, three)),
        ("unlike members", _two_of_three(6, three)),
    ):
        yield list(
            _events(
                Case(
                    name=f"3 x 12, 5 {name}",
                    partitions=three,
                    topics_by_member=topics_by_member,
                    rounds=12,
                    repeats=200,
                    java_warm_up=8_000,
                    is_small=True,
                )
            )
        )


def growing_cases(most: int) -> Iterator[list[Case]]:
    """Give groups of random halves that one joins, which grow tenfold in partitions, then in members.

    Args:
        most: partitions of the largest; a hundredth of it are its members at most.
    """
    sizes = [size for size in (1_000, 10_000, 100_000, 1_000_000) if size <= most]
    yield [_growing(size, 100, "partitions", size) for size in sizes]
    partitions = min(most, 100_000)
    many = [size for size in (10, 100, 1_000, 10_000) if size * 100 <= most]
    yield [_growing(partitions, members, "members", members) for members in many]


def _growing(partitions: int, members: int, exponent_of: str, size: int) -> Case:
    topics = _partitions(100, partitions // 100)
    group = Case(
        name=f"{partitions:,} partitions of 100 topics, {members:,} members of random halves",
        partitions=topics,
        topics_by_member=_some(members + 1, topics, 50),
        exponent_of=exponent_of,
        size=size,
    )
    return list(_events(group))[-1]


def hostile_cases() -> Iterator[list[Case]]:
    """Give many members and topics with few arcs, and one topic of very many members."""
    seeded = random.Random(5)
    sparse = {topic: seeded.randint(1, 9) for topic in _partitions(10_000, 1)}
    yield list(
        _events(
            Case(
                name="10,000 topics, 10,000 members of five each",
                partitions=sparse,
                topics_by_member=_some(10_001, sparse, 5),
                has_peak=True,
            )
        )
    )
    huge = _partitions(1, 200_000)
    limit = "it has numbers for 65,533 members at most"
    yield list(
        _events(
            Case(
                name="1 x 200,000, 100,000 members",
                partitions=huge,
                topics_by_member=_alike(100_001, huge),
                has_peak=True,
                excluded={"franz-go's sticky": limit},
            )
        )
    )
