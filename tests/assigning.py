"""Builders for groups in tests: short to write, short to read when one fails."""

from __future__ import annotations

from collections.abc import Mapping

from assignors import (
    Assignment,
    Assignor,
    AssignorMemory,
    Subscription,
    TopicMetadata,
    TopicPartition,
    encode_sticky_user_data,
)

Owned = dict[str, list[str]]


def topics_of(**counts: int) -> dict[str, TopicMetadata]:
    """Describe topics by their counts: `topics_of(t0=3)`."""
    return {topic: TopicMetadata.of_count(count) for topic, count in counts.items()}


def member_of(
    topics: str | tuple[str, ...],
    owned: str = "",
    generation: int = -1,
    *,
    group_instance_id: str | None = None,
    rack_id: str | None = None,
) -> Subscription:
    """Describe a member that reads `topics` ("t0 t1") and owns `owned` ("t0p1 t1p0").

    Ownership stands in both places where an assignor may look for it.
    """
    names = tuple(topics.split()) if isinstance(topics, str) else topics
    pairs = tuple(_parse(text) for text in owned.split())
    return owning(
        Subscription(topics=names, group_instance_id=group_instance_id, rack_id=rack_id), pairs, generation
    )


def owning(subscription: Subscription, owned: tuple[TopicPartition, ...], generation: int) -> Subscription:
    """Let a member own partitions since a generation, for eager and cooperative assignors alike."""
    return Subscription(
        topics=subscription.topics,
        owned_partitions=owned,
        generation_id=generation,
        group_instance_id=subscription.group_instance_id,
        rack_id=subscription.rack_id,
        user_data=encode_sticky_user_data(owned, generation) if owned else None,
    )


def _parse(text: str) -> TopicPartition:
    topic, _, partition = text.rpartition("p")
    return TopicPartition(topic, int(partition))


def listed(assignment: Mapping[str, tuple[TopicPartition, ...]]) -> dict[str, str]:
    """Write an assignment as in the worked examples: {"C0": "t0p0 t0p1"}, each sorted by name and number."""
    return {
        member: " ".join(f"{topic}p{partition}" for topic, partition in sorted(owned))
        for member, owned in assignment.items()
    }


def settle(
    assignor: Assignor,
    topics: Mapping[str, TopicMetadata],
    subscriptions: Mapping[str, Subscription],
    generation: int,
    memory: AssignorMemory | None = None,
) -> tuple[Assignment, dict[str, Subscription], int]:
    """Rebalance until nobody has to give anything up; returns the assignment, its members, the generation.

    Eager assignors are asked once, cooperative ones again after each step in which
    somebody had to, with what members then own: that is when Kafka's clients join again.
    """
    current = dict(subscriptions)
    memory = memory or AssignorMemory()
    for _ in range(4):
        assignment = assignor.function(topics, current, memory)
        generation += 1
        before = {member: frozenset(s.owned_partitions) for member, s in current.items()}
        current = {member: owning(s, assignment[member], generation) for member, s in current.items()}
        after = {member: frozenset(assignment[member]) for member in current}
        revokes = any(before[member] - after[member] for member in current)
        if assignor.rebalance_protocol == "EAGER" or not revokes:
            return assignment, current, generation
    raise AssertionError(f"{assignor.name} does not settle: {listed(assignment)}")
