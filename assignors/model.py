"""The values that every assignor takes and gives.

Inputs are plain frozen values; an `Assignment` keeps its partitions in flat
lists or arrays and makes tuples only when it is asked for them, because a tuple for each
of a million partitions costs more than computing who owns them.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

NO_GENERATION = -1
"""The generation of a member that owns nothing from an earlier one (KIP-792)."""


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """What one member told the group leader when it joined.

    `topics` keeps order and duplicates, because Kafka's classes compare the
    size of that list with the size of the set. `owned_partitions` keeps order
    for the same reason. `user_data` is the assignor's own bytes, None when
    absent.

    Source: ConsumerPartitionAssignor.Subscription; KIP-429, KIP-792, KIP-881.
    """

    topics: tuple[str, ...]
    owned_partitions: tuple[TopicPartition, ...] = ()
    generation_id: int = NO_GENERATION
    group_instance_id: str | None = None
    rack_id: str | None = None
    user_data: bytes | None = None


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """The partitions of one topic, and the racks that hold their replicas.

    `partitions` are the partition numbers in metadata order (nearly always
    `range(n)`). `racks[i]` are the racks of `partitions[i]`; empty when no racks
    are known at all.
    """

    partitions: range | tuple[int, ...]
    racks: tuple[tuple[str | None, ...], ...] = ()

    @classmethod
    def of_count(cls, count: int) -> TopicMetadata:
        """Describe a topic of `count` partitions whose racks are unknown."""
        return cls(range(count))

    def __len__(self) -> int:
        return len(self.partitions)


@dataclass(slots=True)
class AssignorMemory:
    """What one instance of a Kafka assignor remembers from rebalance to rebalance.

    The sticky assignors keep the highest generation they ever saw for as long as
    their consumer lives, so a later leader may answer differently. This is the
    one value here that an assignor changes: pass the same object to every
    rebalance of one leader, a new one (or None) to a new leader's.

    Source: AbstractStickyAssignor.maxGeneration.
    """

    max_generation: int = NO_GENERATION


class Assignment(Mapping[str, "tuple[TopicPartition, ...]"]):
    """Who owns what in one group: member_id -> its partitions, in Kafka's list order.

    Every member is a key; one with nothing to do maps to (). The partitions lie
    in two flat sequences, a member's run after another's; indexing makes tuples.
    """

    __slots__ = ("_partitions", "_position_by_member", "_starts", "_topic_indexes", "_topics")

    def __init__(
        self,
        members: Iterable[str],
        topics: Iterable[str],
        starts: Sequence[int],
        topic_indexes: Sequence[int],
        partitions: Sequence[int],
    ) -> None:
        """Wrap flat lists or, where there are many partitions, arrays, which take less memory.

        They are not copied and must not be changed after.

        Args:
            members: member_ids, in the order in which they are iterated.
            topics: topic names; `topic_indexes` point into them.
            starts: len(members) + 1 offsets; member i owns
                [starts[i], starts[i + 1]).
            topic_indexes: topic of each owned partition.
            partitions: number of each owned partition.
        """
        self._position_by_member = {member: i for i, member in enumerate(members)}
        self._topics = tuple(topics)
        self._starts = starts
        self._topic_indexes = topic_indexes
        self._partitions = partitions

    @classmethod
    def of(cls, partitions_by_member: Mapping[str, Iterable[tuple[str, int]]]) -> Assignment:
        """Build from member_id -> (topic, partition) pairs, keeping every order.

        >>> Assignment.of({"C0": [("t0", 1)], "C1": []})["C0"]
        (TopicPartition(topic='t0', partition=1),)
        """
        index_by_topic: dict[str, int] = {}
        starts, topic_indexes, partitions = array("q", [0]), array("i"), array("i")
        for pairs in partitions_by_member.values():
            for topic, partition in pairs:
                topic_indexes.append(index_by_topic.setdefault(topic, len(index_by_topic)))
                partitions.append(partition)
            starts.append(len(partitions))
        return cls(partitions_by_member, index_by_topic, starts, topic_indexes, partitions)

    def __getitem__(self, member_id: str) -> tuple[TopicPartition, ...]:
        i = self._position_by_member[member_id]
        topics, run = self._topics, slice(self._starts[i], self._starts[i + 1])
        return tuple(
            TopicPartition(topics[t], p)
            for t, p in zip(self._topic_indexes[run], self._partitions[run], strict=True)
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self._position_by_member)

    def __len__(self) -> int:
        return len(self._position_by_member)

    def __repr__(self) -> str:
        return f"Assignment({len(self)} members, {len(self._partitions)} partitions)"

    def flat(self) -> tuple[list[str], tuple[str, ...], Sequence[int], Sequence[int], Sequence[int]]:
        """Give what it was made of: members, topics, starts, topic indexes, partitions; not to be changed."""
        members = sorted(self._position_by_member, key=self._position_by_member.__getitem__)
        return members, self._topics, self._starts, self._topic_indexes, self._partitions

    def in_order(self, members: Iterable[str]) -> Assignment:
        """Give the same assignment with its members, all of them, iterated in this order."""
        other = Assignment((), self._topics, self._starts, self._topic_indexes, self._partitions)
        other._position_by_member = {member: self._position_by_member[member] for member in members}
        return other

    def loads(self) -> dict[str, int]:
        """Count each member's partitions: member_id -> number."""
        starts = self._starts
        return {m: starts[i + 1] - starts[i] for m, i in self._position_by_member.items()}

    def by_topic(self, member_id: str) -> dict[str, list[int]]:
        """Group one member's partitions: topic -> partition numbers, in list order."""
        grouped: dict[str, list[int]] = {}
        i = self._position_by_member[member_id]
        for k in range(self._starts[i], self._starts[i + 1]):
            grouped.setdefault(self._topics[self._topic_indexes[k]], []).append(self._partitions[k])
        return grouped
