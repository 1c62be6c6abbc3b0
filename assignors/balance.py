"""Numbers about an assignment: how level it is, whether a better one exists, what moved.

Everything here takes plain mappings, member_id -> topic -> partition numbers,
as the stream keeps them; in a Connect group worker -> connector -> task numbers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from math import sqrt

Owners = Mapping[str, Mapping[str, Sequence[int]]]
"""member_id -> topic -> partition numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """How partitions lie over members.

    `spread` is the most minus the least; the standard deviation is that of the
    whole population of members. A group without members has zeros only.
    """

    members: int
    partitions: int
    least: int
    most: int
    spread: int
    standard_deviation: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Moves:
    """What changed between two assignments of one group, in partitions.

    For a partition with its set of owners before and after:

    * `kept` counts members that own it before and after,
    * `revoked` counts members that own it before, not after, and are still in the group,
    * `lost` counts members that owned it before and are gone,
    * `assigned` counts members that own it after and did not before,
    * `moved` counts partitions that were revoked from a live member and
      assigned to another one in the same step.

    So `revoked` and `assigned` include what moved; `assigned - moved` is what came
    from nobody or from members that are gone.
    """

    moved: int
    kept: int
    revoked: int
    assigned: int
    lost: int


def numbers_of(owners: Owners) -> Balance:
    """Count partitions by member and say how level they are.

    >>> numbers_of({"C0": {"t0": [0, 1], "t1": [0]}, "C1": {"t0": [2]}}).spread
    2
    """
    loads = [_load(topics) for topics in owners.values()]
    if not loads:
        return Balance(members=0, partitions=0, least=0, most=0, spread=0, standard_deviation=0.0)
    total, squares, many = sum(loads), sum(load * load for load in loads), len(loads)
    # Integers up to the root: the result does not depend on the order of members.
    variance = (many * squares - total * total) / (many * many)
    return Balance(
        members=many,
        partitions=total,
        least=min(loads),
        most=max(loads),
        spread=max(loads) - min(loads),
        standard_deviation=sqrt(variance),
    )


def topic_spread(owners: Owners, subscribed: Mapping[str, Set[str]]) -> int:
    """Give the largest spread that one topic has over the members subscribed to it.

    >>> topic_spread({"C0": {"t0": [0, 1]}, "C1": {}}, {"C0": {"t0"}, "C1": {"t0"}})
    2
    """
    loads_by_topic: dict[str, list[int]] = {}
    for member, topics in subscribed.items():
        held = owners.get(member, {})
        for topic in topics:
            loads_by_topic.setdefault(topic, []).append(len(held.get(topic, ())))
    return max((max(loads) - min(loads) for loads in loads_by_topic.values()), default=0)


def better_assignment_exists(owners: Owners, subscribed: Mapping[str, Set[str]]) -> bool:
    """Say whether moving partitions along subscriptions can make loads strictly more even.

    More even means a smaller sum of squared loads. That is so exactly when a
    chain leads from a member with load L to one with load L - 2 or less: each
    member of the chain owns a partition that the next one subscribes to. Moving
    one partition along each link takes one from the first and gives one to the
    last; and without such a chain the loads are the least possible, because they
    are a point of an integral polymatroid that no exchange improves.

    Members are searched from the most loaded down, and what one search reached
    is never searched again: a member reached from a load above can only reach
    what that search reached, so all searches together are linear in the arcs.

    Args:
        owners: member_id -> topic -> partitions. Partitions count, whoever owns
            them; one held by two members counts for both.
        subscribed: member_id -> topics that it may own; its keys are the
            members, those that own nothing included.
    """
    loads = {member: _load(owners.get(member, {})) for member in subscribed}
    if not loads or max(loads.values()) - min(loads.values()) <= 1:
        return False
    subscribers: dict[str, list[str]] = {}
    for member, topics in subscribed.items():
        for topic in topics:
            subscribers.setdefault(topic, []).append(member)
    seen: set[str] = set()
    seen_topics: set[str] = set()
    for start in sorted(loads, key=lambda member: -loads[member]):
        if start in seen:
            continue
        seen.add(start)
        waiting = deque([start])
        while waiting:
            for topic, partitions in owners.get(waiting.popleft(), {}).items():
                if not partitions or topic in seen_topics:
                    continue
                seen_topics.add(topic)
                for member in subscribers.get(topic, ()):
                    if loads[member] <= loads[start] - 2:
                        return True
                    if member not in seen:
                        seen.add(member)
                        waiting.append(member)
    return False


def moves_between(old: Owners, new: Owners, renamed: Mapping[str, str] | None = None) -> Moves:
    """Count what moved from one assignment to the next.

    Args:
        old: the assignment before.
        new: the assignment after; its keys are the members still in the group.
        renamed: a static member's old member_id -> its new one: what it kept
            over its restart is kept.

    >>> moves_between({"C0": {"t": [0, 1]}, "C1": {"t": [2]}}, {"C0": {"t": [0]}, "C2": {"t": [1, 2]}})
    Moves(moved=1, kept=1, revoked=1, assigned=2, lost=1)
    """
    had, has = owned_triples(old), owned_triples(new)
    if renamed:
        had = {(renamed.get(member, member), topic, partition) for member, topic, partition in had}
    leaving, coming = had - has, has - had
    given_up = [(topic, partition) for member, topic, partition in leaving if member in new]
    return Moves(
        moved=len({(topic, partition) for _, topic, partition in coming}.intersection(given_up)),
        kept=len(had) - len(leaving),
        revoked=len(given_up),
        assigned=len(coming),
        lost=len(leaving) - len(given_up),
    )


def _load(topics: Mapping[str, Sequence[int]]) -> int:
    return sum(map(len, topics.values()))


def owned_triples(owners: Owners) -> set[tuple[str, str, int]]:
    """Give every (member, topic, partition) of an assignment."""
    return {
        (member, topic, partition)
        for member, topics in owners.items()
        for topic, partitions in topics.items()
        for partition in partitions
    }
