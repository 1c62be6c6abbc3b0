"""How KIP-848's uniform assignor balances, for equal and for unequal subscriptions.

Both work on one group at a time and change only what they made themselves. The
orders that come in (of members, of topics, of what each member owns) are Java's
already; `server_side` puts them so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from assignors.errors import AssignorError
from assignors.java_order import uuid_key

if TYPE_CHECKING:
    from assignors.model import TopicMetadata

_MOST_ROUNDS = 16
"""Kafka's limit of walks around the topics while balancing (MAX_ITERATION_COUNT)."""


def uniform_for_equal(
    topics: Mapping[str, TopicMetadata],
    subscribed: list[str],
    members: list[str],
    owned: Mapping[str, Mapping[str, dict[int, None]]],
) -> dict[str, dict[str, set[int]]]:
    """Assign where all subscribe alike: trim to the quota, then deal out the rest.

    Args:
        topics: topic -> its partitions.
        subscribed: the group's topics, in the order in which they are dealt out.
        members: in the order in which they may claim the larger quota.
        owned: member_id -> topic -> what it owns, in the order of trimming.

    Returns:
        member_id -> topic -> partitions; empty when nothing is subscribed to.

    Raises:
        AssignorError: partitions are left over.

    Source: UniformHomogeneousAssignmentBuilder.
    """
    if not subscribed:
        return {}
    taken: dict[str, set[int]] = {topic: set() for topic in subscribed}
    for grouped in owned.values():
        for topic, numbers in grouped.items():
            if topic in taken:
                taken[topic].update(numbers)
    free = [(t, p) for t in subscribed for p in range(len(topics[t])) if p not in taken[t]]
    total = sum(len(topics[topic]) for topic in subscribed)
    least, extras = divmod(total, len(members))

    target: dict[str, dict[str, set[int]]] = {}
    hungry: list[tuple[str, int]] = []
    for position, member in enumerate(members):
        has_extra = extras > 0
        quota = least + has_extra
        target[member] = {}
        for topic, numbers in owned[member].items():
            if topic not in taken:
                continue
            kept = list(numbers)
            free += [(topic, p) for p in kept[quota:]]
            target[member][topic] = set(kept[:quota])
            quota -= min(quota, len(kept))
        if quota > 0 and has_extra and len(members) - position > extras:
            # Another member still to come may keep its extra partition instead.
            quota -= 1
            has_extra = False
        if quota > 0:
            hungry.append((member, quota))
        extras -= has_extra

    dealt = iter(free)
    for member, quota in hungry:
        for _, (topic, partition) in zip(range(quota), dealt, strict=False):
            target[member].setdefault(topic, set()).add(partition)
    left = next(dealt, None)
    if left is not None:
        message = (
            f"partition {left[1]} of topic {left[0]!r} is left without an owner: members own"
            f" partitions beyond the end of their topics; the uniform assignor cannot go on"
        )
        raise AssignorError(message, *left)
    return target


class UniformForUnequal:
    """One assignment among members that subscribe to different topics.

    Source: UniformHeterogeneousAssignmentBuilder.
    """

    def __init__(
        self,
        topics: Mapping[str, TopicMetadata],
        wanted: Mapping[str, Mapping[str, None]],
        members: list[str],
        owned: Mapping[str, Mapping[str, dict[int, None]]],
        ids: Mapping[str, bytes],
    ) -> None:
        """Take over what members own and still subscribe to.

        Args:
            topics: topic -> its partitions.
            wanted: member_id -> the topics it subscribes to that exist.
            members: in the order that breaks ties between equal loads.
            owned: member_id -> topic -> the partitions it owns.
            ids: topic -> its id's 16 bytes, which break ties between topics.

        Raises:
            AssignorError: a member owns a partition beyond its topic's end.
        """
        self._members = members
        self._subscribers: dict[str, list[int]] = {}
        for index, member in enumerate(members):
            for topic in wanted[member]:
                self._subscribers.setdefault(topic, []).append(index)
        # Members are numbers here, as are the owners of each topic's partitions; -1 is nobody.
        self._owners = {topic: [-1] * len(topics[topic]) for topic in self._subscribers}
        self._loads = [0] * len(members)
        self._ids = ids
        self._target: list[dict[str, set[int]]] = [{} for _ in members]
        for index, member in enumerate(members):
            for topic, numbers in owned[member].items():
                if topic in wanted[member]:
                    self._keep(index, topic, numbers)

    def _keep(self, index: int, topic: str, numbers: dict[int, None]) -> None:
        owners = self._owners[topic]
        self._loads[index] += len(numbers)
        self._target[index][topic] = set(numbers)
        for partition in numbers:
            if not 0 <= partition < len(owners):
                message = (
                    f"member {self._members[index]!r} owns partition {partition} of topic {topic!r},"
                    f" which has {len(owners)}; the uniform assignor cannot go on"
                )
                raise AssignorError(message, self._members[index], topic, partition)
            owners[partition] = index

    def balanced(self) -> dict[str, dict[str, set[int]]]:
        """Deal out what is free, then even out topic by topic until nothing moves."""
        for topic in self._hardest_first([t for t, o in self._owners.items() if -1 in o]):
            owners, order = self._owners[topic], self._sorted(topic)
            takers = _least_loaded(order, self._loads, self._loads[order[0]])
            for partition, (taker, _) in zip(
                [p for p, owner in enumerate(owners) if owner == -1], takers, strict=False
            ):
                self._give(topic, partition, taker)
        self._even_out(self._hardest_first([t for t, s in self._subscribers.items() if len(s) > 1]))
        return dict(zip(self._members, self._target, strict=True))

    def _hardest_first(self, topics: list[str]) -> list[str]:
        def hardness(topic: str) -> tuple[float, int, tuple[int, int]]:
            takers = len(self._subscribers[topic])
            return (-(len(self._owners[topic]) / takers), takers, uuid_key(self._ids[topic]))

        return sorted(topics, key=hardness)

    def _sorted(self, topic: str) -> list[int]:
        return sorted(self._subscribers[topic], key=lambda index: (self._loads[index], index))

    def _give(self, topic: str, partition: int, taker: int) -> None:
        owner = self._owners[topic][partition]
        if owner != -1:
            self._target[owner][topic].discard(partition)
            self._loads[owner] -= 1
        self._target[taker].setdefault(topic, set()).add(partition)
        self._owners[topic][partition] = taker
        self._loads[taker] += 1

    def _even_out(self, topics: list[str]) -> None:
        last_changed = -1
        for _ in range(_MOST_ROUNDS):
            for position, topic in enumerate(topics):
                if position == last_changed:
                    return
                if self._even_out_topic(topic) or last_changed == -1:
                    last_changed = position

    def _even_out_topic(self, topic: str) -> int:
        """Move partitions of one topic from most to least loaded; answer how many."""
        order, moves = self._sorted(topic), 0
        if self._loads[order[-1]] - self._loads[order[0]] <= 1:
            return 0
        to_give: dict[int, list[int]] = {}
        for partition, owner in enumerate(self._owners[topic]):
            to_give.setdefault(owner, []).append(partition)
        givers = _MostLoaded(order, self._loads)
        takers = _least_loaded(order, self._loads, self._loads[order[0]])
        while True:
            giver = givers.next_member()
            while giver != -1 and not to_give.get(giver):
                givers.exclude_last()
                giver = givers.next_member()
            if giver == -1:
                return moves
            partition = to_give[giver].pop()
            taker, level = next(takers)
            if givers.level - level <= 1:
                return moves
            self._give(topic, partition, taker)
            moves += 1


def _least_loaded(order: list[int], loads: list[int], level: int) -> Iterator[tuple[int, int]]:
    """Hand out members level by level: (member, its level before it is given one).

    `order` starts sorted by load, the least being `level`. Both lists change
    while this runs, and the range grows only past members that stand exactly at
    the level reached.
    """
    end = 0
    while True:
        while end < len(order) and loads[order[end]] == level:
            end += 1
        for i in range(end):
            yield order[i], level
        level += 1


class _MostLoaded:
    """The mirror of `_least_loaded`, from which members can be excluded."""

    def __init__(self, order: list[int], loads: list[int]) -> None:
        self._order, self._loads = order, loads
        self._start = self._end = len(order)
        self._next = len(order) - 1
        self.level = loads[order[-1]] + 1

    def next_member(self) -> int:
        """Answer the member that should give up a partition next, -1 for none."""
        order, loads = self._order, self._loads
        if self._next < self._start:
            if self._end <= self._start and self._start > 0:
                # All were excluded: without this jump a member below would be skipped.
                self.level = loads[order[self._start - 1]]
            else:
                self.level -= 1
            while self._start > 0 and loads[order[self._start - 1]] == self.level:
                self._start -= 1
            self._next = self._end - 1
        if self._next < 0:
            return -1
        self._next -= 1
        return order[self._next + 1]

    def exclude_last(self) -> None:
        """Drop the member answered last: it has nothing of this topic to give."""
        last, end = self._next + 1, self._end - 1
        self._order[last], self._order[end] = self._order[end], self._order[last]
        self._end = end
