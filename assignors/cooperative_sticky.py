"""Kafka's cooperative sticky assignor: sticky, and never giving what another still holds.

Source: CooperativeStickyAssignor of Kafka 4.3.1; KIP-429.
"""

from __future__ import annotations

from collections.abc import Mapping

from assignors.model import Assignment, AssignorMemory, Subscription, TopicMetadata
from assignors.sticky_claims import Group, is_large, read_group
from assignors.sticky_general import assign_general
from assignors.sticky_uniform import assign_uniform


def assign_cooperative_sticky(
    topics: Mapping[str, TopicMetadata],
    subscriptions: Mapping[str, Subscription],
    memory: AssignorMemory | None = None,
) -> Assignment:
    """Balance partitions over members and withhold those that change owners.

    What a member owns is read from `owned_partitions`; its generation from
    `generation_id`, or from `user_data` where that is absent (below 0). A
    withheld partition belongs to nobody until the rebalance that follows its
    revocation. With equal subscriptions a partition that two members claimed in
    one generation is withheld as well.

    Args:
        topics: topic -> its partitions and racks; a subscribed topic absent here
            is skipped.
        subscriptions: member_id -> Subscription, in join order.
        memory: what this leader remembers; its highest generation is raised.

    Returns:
        member_id -> its partitions in Kafka's list order; every member is a key.

    Raises:
        AssignorError: there is no member, or Kafka's class would throw.

    >>> from assignors.model import TopicPartition
    >>> owned = (TopicPartition("t0", 0), TopicPartition("t0", 1))
    >>> owner = Subscription(topics=("t0",), owned_partitions=owned, generation_id=1)
    >>> got = assign_cooperative_sticky(
    ...     {"t0": TopicMetadata.of_count(2)}, {"C0": owner, "C1": Subscription(topics=("t0",))}
    ... )
    >>> got.by_topic("C0"), got.by_topic("C1")
    ({'t0': [0]}, {})
    """
    memory = AssignorMemory() if memory is None else memory
    if is_large(topics, subscriptions):
        # Not before it is needed: numpy takes longer to load than a small group to balance.
        from assignors.sticky_large import assign_large

        assignment = assign_large(topics, subscriptions, memory, is_cooperative=True)
        if assignment is not None:
            return assignment
    group = read_group(topics, subscriptions, memory, is_cooperative=True)
    if group.is_uniform:
        owned = assign_uniform(group, is_withholding=True)
    else:
        owned = assign_general(group, memory.max_generation)
        for code, member in _transfers(group, owned).items():
            owned[member].remove(code)
    return group.to_assignment(owned, subscriptions)


def _transfers(group: Group, owned: list[list[int]]) -> dict[int, int]:
    """Find what one member gains and another one loses: code -> who gains it.

    Kafka compares with everything that a member said it owned, whoever's claim won.
    """
    if not any(group.claimed):
        return {}
    claimed = [set(codes) for codes in group.claimed]
    lost: set[int] = set()
    for told, codes in zip(claimed, owned, strict=True):
        lost |= told.difference(codes)
    if not lost:
        return {}
    return {
        code: member
        for member in group.members_in_map_order
        for code in owned[member]
        if code in lost and code not in claimed[member]
    }
