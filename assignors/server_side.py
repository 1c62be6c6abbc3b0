"""The group coordinator's own assignors of KIP-848: range and uniform.

On the wire they are called "range" and "uniform"; here "server-range" and
"server-uniform", because the client-side range decides differently. A member's
assignment is a set there; here it is listed by topic name, then partition.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from hashlib import md5
from typing import Literal, cast, get_args

from assignors.errors import AssignorError
from assignors.java_hash_map import Bins, Node
from assignors.java_order import (
    copied_capacity,
    hash_map_order,
    hash_order,
    spread_hash,
    utf16_key,
    uuid_hash,
    uuid_key,
)
from assignors.model import Assignment, Subscription, TopicMetadata
from assignors.server_uniform import UniformForUnequal, uniform_for_equal

SubscriptionType = Literal["homogeneous", "heterogeneous"]


def default_topic_id(topic: str) -> bytes:
    """Derive the topic id used where none is given: the MD5 of the name's UTF-8."""
    return md5(topic.encode("utf-8", "surrogatepass"), usedforsecurity=False).digest()


def assign_server_range(
    topics: Mapping[str, TopicMetadata],
    subscriptions: Mapping[str, Subscription],
    *,
    topic_ids: Mapping[str, bytes] | None = None,
    subscription_type: SubscriptionType | None = None,
) -> Assignment:
    """Give each topic's members contiguous runs, static members first.

    Neither the old assignment nor racks nor topic ids count.

    Args:
        topics: topic -> its partitions; only their number counts. A subscribed
            topic absent here is skipped.
        subscriptions: member_id -> Subscription, in the order in which the
            coordinator's map is filled (it decides among equal instance ids).
        topic_ids: accepted so that both server-side assignors are called alike.
        subscription_type: "homogeneous" when all subscribe to the same topics;
            None finds out.

    Returns:
        member_id -> its partitions, by topic name, then number.

    Source: org.apache.kafka.coordinator.group.assignor.RangeAssignor.

    >>> both = Subscription(topics=("t0",))
    >>> assign_server_range({"t0": TopicMetadata.of_count(3)}, {"A": both, "B": both}).loads()
    {'A': 2, 'B': 1}
    """
    del topic_ids
    wanted = _known_topics(topics, subscriptions)
    members = sorted(hash_map_order(subscriptions), key=lambda m: _static_first(m, subscriptions[m]))
    if members and _type_of(subscriptions, subscription_type) == "homogeneous":
        wanted = dict.fromkeys(members, wanted[members[0]])
    subscribers: dict[str, list[str]] = {}
    for member in members:
        for topic in wanted[member]:
            subscribers.setdefault(topic, []).append(member)
    owned: dict[str, dict[str, range]] = {member: {} for member in subscriptions}
    for topic, takers in subscribers.items():
        quota, extra = divmod(len(topics[topic]), len(takers))
        start = 0
        for i, member in enumerate(takers):
            end = start + quota + (i < extra)
            owned[member][topic] = range(start, end)
            start = end
    return _listed(owned)


def assign_server_uniform(
    topics: Mapping[str, TopicMetadata],
    subscriptions: Mapping[str, Subscription],
    *,
    topic_ids: Mapping[str, bytes] | None = None,
    subscription_type: SubscriptionType | None = None,
    owned_are_grouped: bool = False,
) -> Assignment:
    """Balance the whole group and keep what members own where that allows.

    Args:
        topics: topic -> its partitions; only their number counts. A subscribed
            topic absent here is skipped.
        subscriptions: member_id -> Subscription, in the order in which the
            coordinator's map is filled: it decides who keeps the larger quota.
            `owned_partitions` is the group's last target assignment. The order
            of `topics` and of what is owned decides between ids that fall into
            one bucket of Java's tables.
        topic_ids: topic -> the 16 bytes of its id, which decide the order of
            topics; a topic without one gets `default_topic_id`.
        subscription_type: "homogeneous" when all subscribe to the same topics;
            None finds out.
        owned_are_grouped: whether each member's map of owned topics was made by
            Java's computeIfAbsent, partition by partition, which puts a new
            topic before the others of its bucket. A broker reads its own
            records topic by topic, and puts it behind them.

    Returns:
        member_id -> its partitions, by topic name, then number.

    Raises:
        AssignorError: where Kafka's class raises: an owned partition beyond the
            topic's end in a heterogeneous group, or partitions left over.

    Source: UniformAssignor (without racks, which it does not read either),
        UniformHomogeneousAssignmentBuilder, UniformHeterogeneousAssignmentBuilder.

    >>> one = Subscription(topics=("t0",))
    >>> assign_server_uniform({"t0": TopicMetadata.of_count(4)}, {"A": one, "B": one}).loads()
    {'A': 2, 'B': 2}
    """
    members = hash_map_order(subscriptions)
    if not members:
        return Assignment.of({})
    wanted = _known_topics(topics, subscriptions)
    ids = {topic: (topic_ids or {}).get(topic) or default_topic_id(topic) for topic in topics}
    owned = {m: _owned_in_java_order(subscriptions[m], ids, owned_are_grouped) for m in members}
    if _type_of(subscriptions, subscription_type) == "homogeneous":
        names = list(dict.fromkeys(subscriptions[members[0]].topics))
        subscribed = _order_of_ids(
            [name for name in names if name in topics], ids, capacity=copied_capacity(len(names))
        )
        target = uniform_for_equal(topics, subscribed, members, owned)
    else:
        target = UniformForUnequal(topics, wanted, members, owned, ids).balanced()
    return _listed({member: target.get(member, {}) for member in subscriptions})


def _type_of(subscriptions: Mapping[str, Subscription], given: SubscriptionType | None) -> SubscriptionType:
    if given is not None:
        for allowed in get_args(SubscriptionType):
            if str(given).lower() == allowed:
                return cast("SubscriptionType", allowed)
        message = f"subscription_type is {given!r}; it must be 'homogeneous' or 'heterogeneous'"
        raise AssignorError(message, given)
    different = {frozenset(s.topics) for s in subscriptions.values()}
    return "homogeneous" if len(different) <= 1 else "heterogeneous"


def _static_first(member: str, subscription: Subscription) -> tuple[bool, bytes]:
    instance = subscription.group_instance_id
    return (instance is None, utf16_key(member if instance is None else instance))


def _known_topics(
    topics: Mapping[str, TopicMetadata], subscriptions: Mapping[str, Subscription]
) -> dict[str, dict[str, None]]:
    """Keep each member's subscribed topics that exist, once each."""
    return {
        member: dict.fromkeys(topic for topic in subscription.topics if topic in topics)
        for member, subscription in subscriptions.items()
    }


def _order_of_ids(names: list[str], ids: Mapping[str, bytes], *, capacity: int = 16) -> list[str]:
    """Order topics as a HashSet of their ids, filled in this order, iterates."""
    return hash_order(names, lambda n: uuid_hash(ids[n]), lambda n: uuid_key(ids[n]), capacity=capacity)


def _owned_in_java_order(
    subscription: Subscription, ids: dict[str, bytes], are_grouped: bool
) -> dict[str, dict[int, None]]:
    """Group what a member owns as the coordinator's HashMap of HashSets iterates."""
    grouped: dict[str, dict[int, None]] = {}
    bins = Bins(16)
    for topic, partition in subscription.owned_partitions:
        # Each call may make the table grow, not only one for a new topic.
        bins.grow_if_full()
        if topic not in grouped:
            uuid = ids.setdefault(topic, default_topic_id(topic))
            bins.compute(Node(topic, spread_hash(uuid_hash(uuid)), uuid_key(uuid)))
        grouped.setdefault(topic, {})[partition] = None
    ordered = bins.keys() if are_grouped else _order_of_ids(list(grouped), ids)
    return {
        topic: dict.fromkeys(hash_order(grouped[topic], hash_of=int, compare_key=int)) for topic in ordered
    }


def _listed(owned: Mapping[str, Mapping[str, range | set[int]]]) -> Assignment:
    """List each member's partitions by topic name, then number."""
    names = sorted({t for grouped in owned.values() for t in grouped}, key=utf16_key)
    index = {name: i for i, name in enumerate(names)}
    starts, topic_indexes, partitions = array("q", [0]), array("i"), array("i")
    for grouped in owned.values():
        for topic in sorted(grouped, key=index.__getitem__):
            numbers = grouped[topic]
            partitions.extend(numbers if isinstance(numbers, range) else sorted(numbers))
            topic_indexes.extend(array("i", [index[topic]]) * len(numbers))
        starts.append(len(partitions))
    return Assignment(owned, names, starts, topic_indexes, partitions)
