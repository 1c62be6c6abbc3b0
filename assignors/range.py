"""Kafka's range assignor: each topic's members get contiguous runs of its partitions.

With racks (KIP-881) members first get, within their quotas, partitions that have
a replica in their rack; topics with the same members and the same number of
partitions stay aligned, so that joins over them still work.

Source: RangeAssignor of Kafka 4.3.1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from assignors.java_hash_map import TREEIFY_AT
from assignors.java_order import hash_map_order, utf16_key
from assignors.racks import racks_of_partitions, use_racks
from assignors.roundrobin import joined_runs, sort_members

if TYPE_CHECKING:
    from assignors.model import Assignment, AssignorMemory, Subscription, TopicMetadata

_LEAST_LARGE_PARTITIONS = 20_000
"""From this many partitions on, runs are made in numpy's arrays."""

_Owned = list[tuple[int, int]]
"""What one member gets: (topic's place, partition number)."""


def assign_range(
    topics: Mapping[str, TopicMetadata],
    subscriptions: Mapping[str, Subscription],
    memory: AssignorMemory | None = None,
) -> Assignment:
    """Give each topic's members contiguous runs of its partitions.

    The first `n % m` members get one partition more than the rest, and the count
    starts afresh at each topic: range spreads one topic evenly, not a group that
    reads many.

    Args:
        topics: topic -> its partitions and racks. A subscribed topic absent here
            is skipped, as Kafka skips one without metadata.
        subscriptions: member_id -> Subscription, in join order. Static members
            come first, by instance id, then the others by member id.
        memory: not used.

    Returns:
        member_id -> its partitions, topics in the order of Java's HashMap (by
        name when racks are used); every member is a key.

    >>> from assignors.model import Subscription, TopicMetadata
    >>> both = Subscription(topics=("t0", "t1"))
    >>> three = TopicMetadata.of_count(3)
    >>> got = assign_range({"t0": three, "t1": three}, {"C0": both, "C1": both})
    >>> got.by_topic("C0"), got.by_topic("C1")
    ({'t0': [0, 1], 't1': [0, 1]}, {'t0': [2], 't1': [2]})
    """
    members = sort_members(subscriptions)
    names = _topics_in_map_order(topics, subscriptions)
    members_by_topic = _members_by_topic(names, [subscriptions[member].topics for member in members])
    racks = {i: rack for i, member in enumerate(members) if (rack := subscriptions[member].rack_id)}
    if racks:
        states = [_Topic(topics[name], members_by_topic[name], racks) for name in names]
        if any(state.needs_racks for state in states):
            owned = _assign_with_racks(states, len(members))
            keys = [utf16_key(name) for name in names]
            for pairs in owned:
                pairs.sort(key=lambda pair: (keys[pair[0]], pair[1]))
            topic_runs = [[at for at, _ in pairs] for pairs in owned]
            number_runs = [[number for _, number in pairs] for pairs in owned]
            return joined_runs(subscriptions, members, names, topic_runs, number_runs)
    counts = [len(topics[name]) for name in names]
    if sum(counts) >= _LEAST_LARGE_PARTITIONS and all(_counts_from_0(topics[name]) for name in names):
        # Not before it is needed: numpy takes longer to load than a small group to deal.
        from assignors.range_large import deal_runs

        return deal_runs(subscriptions, members, names, counts, list(members_by_topic.values()))
    topic_runs = [[] for _ in members]
    number_runs = [[] for _ in members]
    for at, name in enumerate(names):
        numbers = _ascending(topics[name])
        share, extra = divmod(counts[at], len(members_by_topic[name]))
        start = 0
        for i, member_at in enumerate(members_by_topic[name]):
            run = numbers[start : start + share + (1 if i < extra else 0)]
            if not run:
                break
            start += len(run)
            number_runs[member_at] += run
            topic_runs[member_at] += [at] * len(run)
    return joined_runs(subscriptions, members, names, topic_runs, number_runs)


def _members_by_topic(names: list[str], lists: list[tuple[str, ...]]) -> dict[str, list[int]]:
    """List each topic's members; topics of equal subscriptions share one list."""
    if len(set(lists)) <= 1:
        everyone = list(range(len(lists)))
        return dict.fromkeys(names, everyone)
    members_by_topic: dict[str, list[int]] = {name: [] for name in names}
    for i, listed in enumerate(lists):
        for topic in dict.fromkeys(listed):
            if topic in members_by_topic:
                members_by_topic[topic].append(i)
    return members_by_topic


def _topics_in_map_order(
    topics: Mapping[str, TopicMetadata], subscriptions: Mapping[str, Subscription]
) -> list[str]:
    """List the subscribed topics that exist as the assignor's map of them iterates.

    A HashSet of all subscribed topics is filled member by member and then fills
    a HashMap with those that exist. With one topic there is nothing to order.
    """
    lists = {subscription.topics for subscription in subscriptions.values()}
    if len(lists) == 1:
        (only,) = lists
        subscribed = dict.fromkeys(only)
    else:
        in_order = hash_map_order(list(subscriptions))
        subscribed = dict.fromkeys(topic for member in in_order for topic in subscriptions[member].topics)
    in_order = hash_map_order(list(subscribed))
    present = [topic for topic in in_order if topic in topics and topics[topic].partitions]
    # A table of the first capacity without trees has one order, however it was filled.
    return present if len(in_order) <= TREEIFY_AT else hash_map_order(present)


def _counts_from_0(metadata: TopicMetadata) -> bool:
    return isinstance(metadata.partitions, range) and metadata.partitions.start == 0


def _ascending(metadata: TopicMetadata) -> range | list[int]:
    numbers = metadata.partitions
    return numbers if isinstance(numbers, range) else sorted(set(numbers))


class _Topic:
    """One topic on its way: what is left of it and how much its members may still get."""

    def __init__(self, metadata: TopicMetadata, members: list[int], racks: Mapping[int, str]) -> None:
        self.members = members
        self.left = dict.fromkeys(_ascending(metadata))
        self._count_by_member = dict.fromkeys(members, 0)
        self._share, self._extra = divmod(len(metadata), len(members))
        self._rack_by_member = {member: racks[member] for member in members if member in racks}
        # Kafka looks at a topic's racks only when one of its own members has one.
        self.racks_by_partition = dict(racks_of_partitions(metadata)) if self._rack_by_member else {}
        self.needs_racks = bool(self._rack_by_member) and use_racks(
            self._rack_by_member.values(), self.racks_by_partition.values()
        )

    def alignment(self) -> tuple[object, int]:
        """Give what topics must have in common to be assigned together."""
        racks = frozenset((member, self._rack_by_member.get(member)) for member in self.members)
        return racks, len(self.racks_by_partition)

    def is_near(self, member: int, number: int) -> bool:
        """Say whether the member has no rack, or the partition a replica in it."""
        rack = self._rack_by_member.get(member)
        return rack is None or rack in self.racks_by_partition.get(number, ())

    def room(self, member: int) -> int:
        """Count what the member may still get of this topic."""
        return self._share + (1 if self._extra > 0 else 0) - self._count_by_member[member]

    def give(self, member: int, numbers: list[int]) -> None:
        """Note that the member gets these partitions."""
        self._count_by_member[member] += len(numbers)
        if self._count_by_member[member] > self._share:
            self._extra -= 1
        for number in numbers:
            self.left.pop(number, None)


def _assign_with_racks(states: list[_Topic], members: int) -> list[_Owned]:
    """Assign within racks, aligned topics together, then deal what is left by range."""
    owned: list[_Owned] = [[] for _ in range(members)]
    aligned: dict[tuple[object, int], list[int]] = {}
    for at, state in enumerate(states):
        aligned.setdefault(state.alignment(), []).append(at)
    for (_, count), places in aligned.items():
        if len(places) > 1:
            _assign_aligned(states, places, count, owned)
        elif states[places[0]].needs_racks:
            _assign_runs(states, places[0], states[places[0]].is_near, owned)
    for at in range(len(states)):
        _assign_runs(states, at, lambda _member, _number: True, owned)
    return owned


def _assign_runs(
    states: list[_Topic], at: int, may_get: Callable[[int, int], bool], owned: list[_Owned]
) -> None:
    """Give each member in turn the first partitions left that it may get, up to its room."""
    state = states[at]
    for member in state.members:
        if not state.left:
            break
        room = max(0, state.room(member))
        run = [number for number in state.left if may_get(member, number)][:room]
        if run:
            owned[member] += [(at, number) for number in run]
            state.give(member, run)


def _assign_aligned(states: list[_Topic], places: list[int], count: int, owned: list[_Owned]) -> None:
    """Give partition i of several topics to the first member near all of them.

    Kafka counts partitions from 0 here, whatever their numbers.
    """
    together = [states[at] for at in places]
    remaining = list(together[0].members)
    for number in range(count):
        member = next(
            (
                m
                for m in remaining
                if all(state.is_near(m, number) and state.room(m) > 0 for state in together)
            ),
            None,
        )
        if member is None:
            continue
        for at, state in zip(places, together, strict=True):
            owned[member].append((at, number))
            state.give(member, [number])
        if all(state.room(member) <= 0 for state in together):
            remaining.remove(member)
            if not remaining:
                break
