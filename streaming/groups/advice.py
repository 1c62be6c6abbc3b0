"""What an optimal assignment would have needed where a rebalance did what it did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import orjson

from assignors import Assignment, Subscription, TopicMetadata, TopicPartition
from assignors.optimal import certificate_of, check_certificate, find_optimum
from assignors.racks import racks_of_partitions, use_racks

if TYPE_CHECKING:
    from assignors.optimal import Optimum
    from streaming.model import Owners, TopicView, Version

OPTIMAL = frozenset({"optimal", "optimal-cooperative"})
"""The assignors whose generations are held to their certificates."""

_READ_RACKS = OPTIMAL | {"cooperative-sticky", "range", "sticky"}
"""The assignors that look at racks (KIP-881); the servers' of KIP-848 do not, whatever their names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """The best that could be had: how many partitions it moves, and the spread of its loads.

    `has_racks` says that moves out of a wrong rack are among those that it takes. `certificate`
    is the proof as JSON, for a group that goes by an optimal assignor, and `is_proven` says
    whether it holds of what the group was given; both else None.
    """

    moves: int
    spread: int
    has_racks: bool = False
    certificate: str | None = None
    is_proven: bool | None = None


def advise(old: Owners, version: Version, topics: TopicView) -> Advice | None:
    """Say what an optimal assignment would have moved and how even it would be.

    Moves count from the assignment before the whole move, as `moved` does. Racks come before
    moves where the assignor looks at them too: members have some, and those of the partitions
    are known and not all the same.

    Args:
        old: the assignment before the version.
        version: the version.
        topics: the topics as the group saw them then.

    Returns:
        None where that is not known or makes no sense: Connect and share groups, nobody
        there, an assignment with partitions that topics are not known to have. Of a version
        with an unknown past the moves mean nothing.
    """
    if version.protocol_type != "consumer" or not version.members or not version.subscribed:
        return None
    counts = version.topic_counts
    if any(
        partitions and max(partitions) >= counts.get(topic, 0)
        for owned in version.assignment.values()
        for topic, partitions in owned.items()
    ):
        return None
    before = old if version.basis is None else version.basis
    assignor = version.assignor.name if version.assignor is not None else version.protocol
    is_certified = assignor in OPTIMAL and version.group_kind == "computed" and not version.is_interrupted
    rack_by_member: dict[str, str] = {}
    if assignor in _READ_RACKS and version.rebalance_protocol != "CONSUMER":
        rack_by_member = {m.member_id: m.rack_id for m in version.members if m.rack_id is not None}
    are_alike = len(set(version.subscribed.values())) == 1
    if are_alike and not is_certified and not rack_by_member:
        return _of_equals(before, version)
    metadata = {
        topic: TopicMetadata(range(count), topics.racks(topic, count) if rack_by_member else ())
        for topic in sorted(frozenset[str]().union(*version.subscribed.values()))
        if (count := counts.get(topic))
    }
    has_racks = bool(rack_by_member) and _use_racks(rack_by_member.values(), metadata.values())
    if not has_racks and not is_certified:
        if are_alike:
            return _of_equals(before, version)
        rack_by_member = {}
    subscriptions = {
        member: Subscription(topics=tuple(sorted(wanted)), rack_id=rack_by_member.get(member))
        for member, wanted in version.subscribed.items()
    }
    previous = _renamed(before, version)
    optimum = find_optimum(metadata, subscriptions, previous)
    loads = optimum.assignment.loads().values()
    advice = Advice(moves=int(optimum.moved), spread=max(loads) - min(loads), has_racks=has_racks)
    if not is_certified or not version.is_final:
        return advice
    return _certified(optimum, version, advice, metadata, subscriptions, previous)


def _use_racks(racks: Iterable[str], topics: Iterable[TopicMetadata]) -> bool:
    """Say whether Kafka's assignors look at racks: not where every partition is in all of them."""
    return use_racks(racks, {near for topic in topics for _, near in racks_of_partitions(topic)})


def _certified(
    optimum: Optimum,
    version: Version,
    advice: Advice,
    topics: Mapping[str, TopicMetadata],
    subscriptions: Mapping[str, Subscription],
    previous: Assignment,
) -> Advice:
    certificate = certificate_of(optimum)
    given = {
        member: [TopicPartition(topic, p) for topic, partitions in owned.items() for p in partitions]
        for member, owned in version.assignment.items()
    }
    faults = check_certificate(certificate, topics, subscriptions, given, previous)
    return replace(
        advice,
        certificate=orjson.dumps(certificate.to_json()).decode(),
        is_proven=not faults,
    )


def _renamed(before: Owners, version: Version) -> Assignment:
    """Give the owners before, a static member by the member_id that it has now."""
    return Assignment.of(
        {
            version.instance_moves.get(member, member): [
                (topic, partition) for topic, partitions in owned.items() for partition in partitions
            ]
            for member, owned in before.items()
        }
    )


def _of_equals(before: Owners, version: Version) -> Advice:
    """Do without a search where all subscribe alike.

    A member gives up only what it owns over its quota, and the larger quotas go to
    those who own the most.
    """
    topics = next(iter(version.subscribed.values()))
    counts = {topic: version.topic_counts.get(topic, 0) for topic in topics}
    owned: Counter[str] = Counter()
    for member_id, by_topic in before.items():
        owner = version.instance_moves.get(member_id, member_id)
        if owner in version.subscribed:
            for topic, partitions in by_topic.items():
                count = counts.get(topic, 0)
                owned[owner] += sum([partition < count for partition in partitions])
    total = sum(counts.values())
    least, larger = divmod(total, len(version.subscribed))
    descending = sorted(owned.values(), reverse=True)
    moves = sum(max(0, load - least - (1 if i < larger else 0)) for i, load in enumerate(descending))
    return Advice(moves=moves, spread=1 if larger else 0)
