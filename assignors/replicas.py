"""Which brokers hold a new partition: partition -> replicas, the leader first.

Two ways of Kafka's: `AdminUtils`, which the tools and ZooKeeper's controller
used, exact for a given start; and KRaft's `StripedReplicaPlacer`, which draws
its offsets from java.util.Random, exact for a known seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from assignors.errors import AssignorError
from assignors.java_order import hash_order, int32, string_hash, utf16_key

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """One broker; `rack` is None where it has none. A fenced one never leads."""

    broker_id: int
    rack: str | None = None
    is_fenced: bool = False


def place_replicas(
    brokers: Sequence[Broker],
    *,
    partitions: int,
    replication_factor: int,
    start_index: int = 0,
    start_shift: int = 0,
    start_partition_id: int = 0,
) -> dict[int, tuple[int, ...]]:
    """Place partitions in a circle of brokers, over racks where brokers have them.

    With racks, and at least as many replicas as racks, each rack holds at least
    one replica of each partition; with fewer replicas each rack at most one.

    Args:
        brokers: in the order of the circle, where no rack is known; with racks
            their order does not count.
        partitions: how many to place.
        replication_factor: replicas of each.
        start_index: where in the circle partition 0 has its leader.
        start_shift: how far behind it the second replica starts.
        start_partition_id: the first new partition's number; the circle goes on
            from the partitions a topic already has.

    Returns:
        partition -> broker ids, the leader first.

    Raises:
        AssignorError: no partitions or replicas are asked for, more replicas
            than there are brokers, or only some brokers have a rack.

    Source: org.apache.kafka.admin.AdminUtils (of 4.0; 4.3.1 no longer has it).

    >>> five = [Broker(broker_id=i) for i in range(5)]
    >>> place_replicas(five, partitions=6, replication_factor=3)[5]
    (0, 2, 3)
    """
    if partitions <= 0:
        message = f"partitions is {partitions!r}; it must be 1 or more"
        raise AssignorError(message, partitions)
    _check_replication(replication_factor, len(brokers))
    rack_by_broker = {b.broker_id: b.rack for b in brokers if b.rack is not None}
    without = [b.broker_id for b in brokers if b.rack is None]
    if rack_by_broker and without:
        message = f"brokers {without!r} have no rack while others do; all or none must have one"
        raise AssignorError(message, tuple(without))
    circle = _alternate_racks(rack_by_broker) if rack_by_broker else without
    racks = len(set(rack_by_broker.values()))
    shift = start_shift
    placed: dict[int, tuple[int, ...]] = {}
    first_id = max(0, start_partition_id)
    for partition in range(first_id, first_id + partitions):
        if partition > 0 and partition % len(circle) == 0:
            shift += 1
        leader_at = (partition + start_index) % len(circle)
        if racks:
            placed[partition] = _across_racks(
                circle, rack_by_broker, leader_at, shift * racks, replication_factor
            )
        else:
            followers = (
                circle[_follower_at(leader_at, shift + step, len(circle))]
                for step in range(replication_factor - 1)
            )
            placed[partition] = (circle[leader_at], *followers)
    return placed


def _follower_at(leader_at: int, distance: int, brokers: int) -> int:
    """Find a follower's place in the circle: never the leader's own."""
    return (leader_at + 1 + distance % (brokers - 1)) % brokers


def _alternate_racks(rack_by_broker: dict[int, str]) -> list[int]:
    """List brokers rack by rack in turns: the first of each, then the second of each."""
    by_rack: dict[str, list[int]] = {}
    for broker in sorted(rack_by_broker):
        by_rack.setdefault(rack_by_broker[broker], []).append(broker)
    racks = [by_rack[rack] for rack in sorted(by_rack, key=utf16_key)]
    return [rack[i] for i in range(max(map(len, racks))) for rack in racks if i < len(rack)]


def _across_racks(
    circle: list[int],
    rack_by_broker: dict[int, str],
    leader_at: int,
    shift: int,
    replication_factor: int,
) -> tuple[int, ...]:
    """Walk the circle behind the leader, passing racks that have a replica already."""
    all_racks = len(set(rack_by_broker.values()))
    replicas = [circle[leader_at]]
    racks = {rack_by_broker[circle[leader_at]]}
    step = 0
    while len(replicas) < replication_factor:
        broker = circle[_follower_at(leader_at, shift + step, len(circle))]
        rack = rack_by_broker[broker]
        if (rack not in racks or len(racks) == all_racks) and broker not in replicas:
            replicas.append(broker)
            racks.add(rack)
        step += 1
    return tuple(replicas)


def place_striped(
    brokers: Sequence[Broker], *, partitions: int, replication_factor: int, seed: int
) -> list[tuple[int, ...]]:
    """Place partitions as a KRaft controller would with this random seed.

    Args:
        brokers: every registered broker, fenced ones included; their order
            decides nothing but that of unseen racks in Java's map.
        partitions: how many to place.
        replication_factor: replicas of each.
        seed: of the controller's java.util.Random, freshly made. A running
            controller's seed is not known; this answers "what could it do".

    Returns:
        Broker ids of each new partition, the leader first.

    Raises:
        AssignorError: no replicas are asked for, more than there are brokers,
            or all brokers are fenced.

    Source: org.apache.kafka.metadata.placement.StripedReplicaPlacer.
    """
    if replication_factor > 0 and all(broker.is_fenced for broker in brokers):
        # As Kafka: that there are too few is said after this.
        message = f"all {len(brokers)} brokers are fenced; at least one must not be"
        raise AssignorError(message, len(brokers))
    _check_replication(replication_factor, len(brokers))
    racks = _StripedRacks(brokers, JavaRandom(seed))
    return [racks.place(replication_factor) for _ in range(partitions)]


class JavaRandom:
    """The numbers of java.util.Random with a known seed.

    >>> dice = JavaRandom(42)
    >>> [dice.next_int(10) for _ in range(4)]
    [0, 3, 8, 4]
    """

    _MASK = (1 << 48) - 1

    def __init__(self, seed: int) -> None:
        """Scramble the seed as Java does."""
        self._state = (seed ^ 0x5DEECE66D) & self._MASK

    def _next_31(self) -> int:
        self._state = (self._state * 0x5DEECE66D + 0xB) & self._MASK
        return self._state >> 17

    def next_int(self, bound: int) -> int:
        """Draw a number from 0 to bound - 1."""
        drawn = self._next_31()
        if bound & (bound - 1) == 0:
            return bound * drawn >> 31
        while int32(drawn - drawn % bound + bound - 1) < 0:
            drawn = self._next_31()
        return drawn % bound

    def shuffle(self, items: list[T]) -> None:
        """Shuffle in place as java.util.Collections does."""
        for i in range(len(items) - 1, 0, -1):
            j = self.next_int(i + 1)
            items[i], items[j] = items[j], items[i]


class _Stripe:
    """Some brokers of one rack, handed out from an offset that moves each epoch."""

    def __init__(self) -> None:
        self.brokers: list[int] = []
        self._index = self._offset = self._epoch = 0

    def start(self, dice: JavaRandom) -> None:
        if self.brokers:
            self.brokers.sort()
            self._offset = dice.next_int(len(self.brokers))

    def next_broker(self, epoch: int) -> int | None:
        if not self.brokers:
            return None
        if self._epoch != epoch:
            self._epoch, self._index = epoch, 0
            self._offset = (self._offset + 1) % len(self.brokers)
        if self._index >= len(self.brokers):
            return None
        self._index += 1
        return self.brokers[(self._index - 1 + self._offset) % len(self.brokers)]


class _StripedRacks:
    """All racks, walked in turns; leaders from unfenced brokers only."""

    def __init__(self, brokers: Sequence[Broker], dice: JavaRandom) -> None:
        self._dice = dice
        self._unfenced_brokers = sum(not b.is_fenced for b in brokers)
        self._fenced: dict[str | None, _Stripe] = {}
        self._unfenced: dict[str | None, _Stripe] = {}
        for broker in brokers:
            for stripes in (self._fenced, self._unfenced):
                stripes.setdefault(broker.rack, _Stripe())
            stripes = self._fenced if broker.is_fenced else self._unfenced
            stripes[broker.rack].brokers.append(broker.broker_id)
        # Java walks a HashMap of Optional<String>, each step drawing a number.
        self._hashed = hash_order(list(self._fenced), _optional_hash, _optional_key)
        for rack in self._hashed:
            self._fenced[rack].start(dice)
            self._unfenced[rack].start(dice)
        self._names = sorted(self._fenced, key=_optional_key)
        self._offset = dice.next_int(len(self._names))
        self._epoch = 0

    def _shuffle(self) -> None:
        self._dice.shuffle(self._names)
        for rack in self._hashed:
            self._dice.shuffle(self._fenced[rack].brokers)
            self._dice.shuffle(self._unfenced[rack].brokers)

    def place(self, replication_factor: int) -> tuple[int, ...]:
        """Place one partition."""
        if self._epoch == self._unfenced_brokers > 1:
            # Every broker has led once: another order, lest the same sets come again.
            self._shuffle()
            self._epoch = 0
        count = len(self._names)
        self._offset %= count
        leader_rack = self._offset
        leader = self._unfenced[self._names[leader_rack]].next_broker(self._epoch)
        while leader is None:
            leader_rack = (leader_rack + 1) % count
            leader = self._unfenced[self._names[leader_rack]].next_broker(self._epoch)
        replicas = [leader]
        at = self._offset
        while len(replicas) < replication_factor:
            follower = None
            if at == leader_rack:
                # The leader's rack is passed over once, in the first round.
                leader_rack = -1
            else:
                name = self._names[at]
                follower = self._unfenced[name].next_broker(self._epoch)
                if follower is None:
                    follower = self._fenced[name].next_broker(self._epoch)
            at = (at + 1) % count
            if follower is not None:
                replicas.append(follower)
        self._epoch += 1
        self._offset += 1
        return tuple(replicas)


def _optional_hash(rack: str | None) -> int:
    return 0 if rack is None else string_hash(rack)


def _optional_key(rack: str | None) -> tuple[bool, bytes]:
    return (rack is not None, utf16_key(rack or ""))


def _check_replication(replication_factor: int, brokers: int) -> None:
    if replication_factor <= 0:
        message = f"replication factor is {replication_factor!r}; it must be 1 or more"
        raise AssignorError(message, replication_factor)
    if replication_factor > brokers:
        message = f"replication factor is {replication_factor!r}; there are only {brokers} brokers"
        raise AssignorError(message, replication_factor, brokers)
