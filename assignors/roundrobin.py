"""Kafka's round robin assignor: all partitions of all topics, dealt in one circle.

Source: RoundRobinAssignor of Kafka 4.3.1.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping

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
    if lists == lists[:1] * len(lists):
        return _deal_alike(topics, subscriptions, members, lists[0])
    wanted = [frozenset(listed) for listed in lists]
    names = utf16_sorted(topic for topic in frozenset().union(*wanted) if topics.get(topic))
    topic_runs: list[array[int]] = [array("i") for _ in members]
    number_runs: list[array[int]] = [array("i") for _ in members]
    turn = 0
    for at, name in enumerate(names):
        is_subscribed = [name in topics_of for topics_of in wanted]
        for number in range(len(topics[name])):
            while not is_subscribed[turn]:
                turn = (turn + 1) % len(members)
            topic_runs[turn].append(at)
            number_runs[turn].append(number)
            turn = (turn + 1) % len(members)
    return joined_runs(subscriptions, members, names, topic_runs, number_runs)


def _deal_alike(
    topics: Mapping[str, TopicMetadata],
    subscriptions: Mapping[str, Subscription],
    members: list[str],
    subscribed: tuple[str, ...],
) -> Assignment:
    """Deal to members that all subscribe to the same topics: each gets every n-th partition."""
    names = utf16_sorted({topic for topic in subscribed if topics.get(topic)})
    by_topic: array[int] = array("i")
    by_number: array[int] = array("i")
    for at, name in enumerate(names):
        count = len(topics[name].partitions)
        by_topic += array("i", [at]) * count
        by_number.extend(range(count))
    everyone = len(members)
    place = {member: i for i, member in enumerate(members)}
    starts, topic_indexes, partitions = array("q", [0]), array("i"), array("i")
    for member in subscriptions:
        i = place[member]
        topic_indexes += by_topic[i::everyone]
        partitions += by_number[i::everyone]
        starts.append(len(partitions))
    return Assignment(subscriptions, names, starts, topic_indexes, partitions)


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
    topic_runs: list[array[int]],
    number_runs: list[array[int]],
) -> Assignment:
    """Put each member's run of partitions behind the other, members in join order."""
    place = {member: i for i, member in enumerate(members)}
    starts, topic_indexes, partitions = array("q", [0]), array("i"), array("i")
    for member in join_order:
        i = place[member]
        topic_indexes += topic_runs[i]
        partitions += number_runs[i]
        starts.append(len(partitions))
    return Assignment(join_order, topics, starts, topic_indexes, partitions)
