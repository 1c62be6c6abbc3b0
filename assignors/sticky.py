"""Kafka's eager sticky assignor: balanced, and moving no more than it finds it must.

Source: StickyAssignor and AbstractStickyAssignor of Kafka 4.3.1.
"""

from __future__ import annotations

from collections.abc import Mapping

from assignors.model import Assignment, AssignorMemory, Subscription, TopicMetadata
from assignors.sticky_claims import is_large, read_group
from assignors.sticky_general import assign_general
from assignors.sticky_uniform import assign_uniform


def assign_sticky(
    topics: Mapping[str, TopicMetadata],
    subscriptions: Mapping[str, Subscription],
    memory: AssignorMemory | None = None,
) -> Assignment:
    """Balance partitions over members, keeping with each what it owned.

    What a member owned, and since which generation, is read from its
    `user_data` alone: an eager member has revoked everything before it joins.

    Args:
        topics: topic -> its partitions and racks. A subscribed topic absent here
            is skipped, as Kafka skips one without metadata.
        subscriptions: member_id -> Subscription, in join order.
        memory: what this leader remembers; its highest generation is raised.
            None is a leader's first rebalance.

    Returns:
        member_id -> its partitions in Kafka's list order; every member is a key.

    Raises:
        AssignorError: there is no member, or Kafka's class would throw.

    >>> both = Subscription(topics=("t0", "t1"))
    >>> got = assign_sticky({"t0": TopicMetadata.of_count(3)}, {"C0": both, "C1": both})
    >>> got.by_topic("C0"), got.by_topic("C1")
    ({'t0': [0, 2]}, {'t0': [1]})
    """
    memory = AssignorMemory() if memory is None else memory
    if is_large(topics, subscriptions):
        # Not before it is needed: numpy takes longer to load than a small group to balance.
        from assignors.sticky_large import assign_large

        assignment = assign_large(topics, subscriptions, memory, is_cooperative=False)
        if assignment is not None:
            return assignment
    group = read_group(topics, subscriptions, memory, is_cooperative=False)
    if group.is_uniform:
        owned = assign_uniform(group, is_withholding=False)
    else:
        owned = assign_general(group, memory.max_generation)
    return group.to_assignment(owned, subscriptions)
