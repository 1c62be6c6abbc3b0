"""Kafka's round robin assignor: all partitions of all topics, dealt in one circle.

Source: RoundRobinAssignor of Kafka 4.3.1.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

from assignors.errors import AssignorError
from assignors.java_order import hash_map_order, utf16_key, utf16_sorted
from assignors.model import Assignment, AssignorMemory, Subscription, TopicMetadata


def assign_roundrobin(
    topics: Mapping[str, TopicMetadata],
    subscriptions: Mapping[str, Subscription],
    memory: AssignorMemory | None = None,
) -> Assignment:
    """Deal partitions by topic and number to the members in turn, skipping those not subscribed.

    Args:
        topics: topic -> its partitions; only their count matters, numbers are
            taken to start at 0. A subscribed topic absent here is skipped.
        subscriptions: member_id -> Subscription, in join order. Static members
            take their turns first, by instance id, then the others by member id.
        memory: not used.

    Returns:
        member_id -> its partitions by topic, then number; every member is a key.

    Raises:
        AssignorError: there is no member.

    >>> both = Subscription(topics=("t0", "t1"))
    >>> three = TopicMetadata.of_count(3)
    >>> got = assign_roundrobin({"t0": three, "t1": three}, {"C0": both, "C1": both})
    >>> got.by_topic("C0"), got.by_topic("C1")
    ({'t0': [0, 2], 't1': [1]}, {'t0': [1], 't1': [0, 2]})
    """
    if not subscriptions:
        raise AssignorError("roundrobin got a group of 0 members; it must have 1 or more")
    members = sort_members(subscriptions)
    lists = [subscriptions[member].topics for member in members]
    if lists.count(lists[0]) == len(lists):
        return _deal_alike(topics, subscriptions, members, lists[0])
    wanted = [frozenset(listed) for listed in lists]
    counts = _counts(topics, frozenset().union(*wanted))
    topic_runs: list[list[int]] = [[] for _ in members]
    number_runs: list[list[int]] = [[] for _ in members]
    everyone = list(range(len(members)))
    # One list for all topics, so that no number is held more than once.
    numbers = list(range(max(counts.values(), default=0)))
    turn = 0
    for at, (name, count) in enumerate(counts.items()):
        circle = [i for i in everyone[turn:] + everyone[:turn] if name in wanted[i]]
        width = len(circle)
        # As long as one topic is dealt, the k-th of its circle gets every n-th partition.
        for k, i in enumerate(circle[:count]):
            run = numbers[k:count:width]
            number_runs[i] += run
            topic_runs[i] += [at] * len(run)
        turn = circle[(count - 1) % width] + 1
    return joined_runs(subscriptions, members, list(counts), topic_runs, number_runs)


def _deal_alike(
    topics: Mapping[str, TopicMetadata],
    subscriptions: Mapping[str, Subscription],
    members: list[str],
    subscribed: tuple[str, ...],
) -> Assignment:
    """Deal to members that all subscribe to the same topics: each gets every n-th partition."""
    counts = _counts(topics, set(subscribed))
    by_topic: list[int] = []
    by_number: list[int] = []
    # One list for all topics, so that no number is held more than once.
    numbers = list(range(max(counts.values(), default=0)))
    for at, count in enumerate(counts.values()):
        by_topic += [at] * count
        by_number += numbers[:count]
    everyone = len(members)
    place = {member: i for i, member in enumerate(members)}
    starts = [0]
    topic_indexes: list[int] = []
    partitions: list[int] = []
    for member in subscriptions:
        i = place[member]
        topic_indexes += by_topic[i::everyone]
        partitions += by_number[i::everyone]
        starts.append(len(partitions))
    return Assignment(subscriptions, counts, starts, topic_indexes, partitions)


def _counts(topics: Mapping[str, TopicMetadata], subscribed: Set[str]) -> dict[str, int]:
    """Count the partitions of each subscribed topic that has any: topic -> count, in the order of names."""
    names = utf16_sorted([topic for topic in subscribed if topic in topics])
    return {topic: count for topic in names if (count := len(topics[topic].partitions))}


def sort_members(subscriptions: Mapping[str, Subscription]) -> list[str]:
    """Sort members as Kafka does: static ones by instance id, then the others by member id.

    Members of one instance id, which a fenced member can cause, stay in the
    order of the leader's HashMap.

    Source: AbstractPartitionAssignor.MemberInfo.
    """
    instances = {
        member: subscription.group_instance_id
        for member, subscription in subscriptions.items()
        if subscription.group_instance_id is not None
    }
    if not instances:
        return utf16_sorted(subscriptions)
    static = list(instances)
    if len(set(instances.values())) < len(instances):
        static = [member for member in hash_map_order(list(subscriptions)) if member in instances]
    static.sort(key=lambda member: utf16_key(instances[member]))
    return static + utf16_sorted(member for member in subscriptions if member not in instances)


def joined_runs(
    join_order: Mapping[str, object],
    members: list[str],
    topics: list[str],
    topic_runs: list[list[int]],
    number_runs: list[list[int]],
) -> Assignment:
    """Put each member's run of partitions behind the other, members in join order."""
    place = {member: i for i, member in enumerate(members)}
    starts = [0]
    topic_indexes: list[int] = []
    partitions: list[int] = []
    for member in join_order:
        i = place[member]
        topic_indexes += topic_runs[i]
        partitions += number_runs[i]
        starts.append(len(partitions))
    return Assignment(join_order, topics, starts, topic_indexes, partitions)
