"""What an optimal assignment would have needed where a rebalance did what it did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import orjson

from assignors import Assignment, Subscription, TopicMetadata, TopicPartition
from assignors.optimal import certificate_of, check_certificate, find_optimum
from streaming.model import Owners, Version, owned_pairs

if TYPE_CHECKING:
    from assignors.optimal import Optimum

OPTIMAL = frozenset({"optimal", "optimal-cooperative"})
"""The assignors whose generations are held to their certificates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """The best that could be had: how many partitions it moves, and the spread of its loads.

    `certificate` is the proof as JSON, for a group that goes by an optimal assignor, and
    `is_proven` says whether it holds of what the group was given; both else None.
    """

    moves: int
    spread: int
    certificate: str | None = None
    is_proven: bool | None = None


def advise(old: Owners, version: Version) -> Advice | None:
    """Say what an optimal assignment would have moved and how even it would be.

    Moves count from the assignment before the whole move, as `moved` does. Racks are not
    looked at, so members in racks have no certificate here.

    Args:
        old: the assignment before the version.
        version: the version.

    Returns:
        None where that is not known or makes no sense: Connect and share groups, nobody
        there, an assignment with partitions that topics are not known to have. Of a version
        with an unknown past the moves mean nothing.
    """
    if version.protocol_type != "consumer" or not version.members or not version.subscribed:
        return None
    counts = version.topic_counts
    if any(partition >= counts.get(topic, 0) for _, topic, partition in owned_pairs(version.assignment)):
        return None
    before = old if version.basis is None else version.basis
    assignor = version.assignor.name if version.assignor is not None else version.protocol
    has_racks = any(member.rack_id is not None for member in version.members)
    is_certified = assignor in OPTIMAL and version.group_kind == "computed" and not has_racks
    if len(set(version.subscribed.values())) == 1 and not is_certified:
        return _of_equals(before, version)
    topics = {
        topic: TopicMetadata.of_count(counts[topic])
        for topic in sorted(frozenset[str]().union(*version.subscribed.values()))
        if counts.get(topic)
    }
    subscriptions = {
        member: Subscription(topics=tuple(sorted(wanted))) for member, wanted in version.subscribed.items()
    }
    previous = _renamed(before, version)
    optimum = find_optimum(topics, subscriptions, previous)
    loads = optimum.assignment.loads().values()
    moves, spread = int(optimum.moved), max(loads) - min(loads)
    if not is_certified or not version.is_final:
        return Advice(moves=moves, spread=spread)
    return _certified(optimum, version, Advice(moves=moves, spread=spread), topics, subscriptions, previous)


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
    return Advice(
        moves=advice.moves,
        spread=advice.spread,
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
    owned: Counter[str] = Counter()
    for member_id, topic, partition in owned_pairs(before):
        owner = version.instance_moves.get(member_id, member_id)
        if owner in version.subscribed and topic in topics and partition < version.topic_counts.get(topic, 0):
            owned[owner] += 1
    total = sum(version.topic_counts.get(topic, 0) for topic in topics)
    least, larger = divmod(total, len(version.subscribed))
    descending = sorted(owned.values(), reverse=True)
    moves = sum(max(0, load - least - (1 if i < larger else 0)) for i, load in enumerate(descending))
    return Advice(moves=moves, spread=1 if larger else 0)
