"""Which partitions moved between which members while a group was balanced.

When a partition is about to move from A to B and another of its topic moved from
B to A before, that one goes back instead. Which one, if there are several, is
the first of a Java HashSet, so its order is kept here.

Source: AbstractStickyAssignor.PartitionMovements of Kafka 4.3.1.
"""

from __future__ import annotations

from assignors.java_order import capacity_for, partition_hash, spread_hash


class Movements:
    """The moves so far: partition code -> (first giver, current owner), and back."""

    def __init__(self, topics: list[str]) -> None:
        """Start without moves; `topics` are the names behind partition codes."""
        self._topics = topics
        self._pair_of: dict[int, tuple[int, int]] = {}
        self._moved: dict[tuple[int, int, int], _MovedSet] = {}

    def partition_to_move(self, code: int, giver: int, receiver: int) -> int:
        """Choose the partition that moves instead of `code`, or `code` itself."""
        if not self._moved:
            return code
        pair = self._pair_of.get(code)
        back = self._moved.get((code % len(self._topics), receiver, pair[0] if pair else giver))
        return back.first() if back else code

    def record(self, code: int, giver: int, receiver: int) -> None:
        """Note that a partition moved; a move back to where it came from cancels out."""
        pair = self._pair_of.pop(code, None)
        topic = code % len(self._topics)
        if pair is not None:
            before = self._moved[topic, *pair]
            del before.slots[code]
            if not before.slots:
                del self._moved[topic, *pair]
            if pair[0] == receiver:
                return
            giver = pair[0]
        self._pair_of[code] = (giver, receiver)
        key = (topic, giver, receiver)
        if key not in self._moved:
            self._moved[key] = _MovedSet()
        hash_code = partition_hash(self._topics[topic], code // len(self._topics))
        self._moved[key].add(code, spread_hash(hash_code))


class _MovedSet:
    """A HashSet of partitions as far as its first element goes.

    `slots` keeps insertion order; the capacity grows with the set and never
    shrinks. Buckets do not become trees here: the partitions of one topic spread
    evenly, nine in one bucket would take numbers far apart.
    """

    __slots__ = ("_capacity", "slots")

    def __init__(self) -> None:
        self.slots: dict[int, int] = {}
        self._capacity = 16

    def add(self, code: int, hash_: int) -> None:
        self.slots[code] = hash_
        self._capacity = capacity_for(len(self.slots), self._capacity)

    def first(self) -> int:
        mask = self._capacity - 1
        # min() keeps the first of equals: insertion order within a bucket.
        return min(self.slots, key=lambda code: self.slots[code] & mask)
