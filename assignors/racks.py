"""When racks count, for the client-side assignors.

Source: AbstractPartitionAssignor of Kafka 4.3.1; KIP-881.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from assignors.model import TopicMetadata


def racks_of_partitions(metadata: TopicMetadata) -> list[tuple[int, frozenset[str]]]:
    """List (partition, racks of its replicas) in metadata order; an unknown rack counts for nothing."""
    if not metadata.racks:
        return [(number, frozenset()) for number in metadata.partitions]
    return [
        (number, frozenset(rack for rack in racks if rack is not None))
        for number, racks in zip(metadata.partitions, metadata.racks, strict=True)
    ]


def use_racks(member_racks: Iterable[str], partition_racks: Collection[frozenset[str]]) -> bool:
    """Say whether racks make a difference at all.

    They do when members and partitions have a rack in common and not every
    partition has replicas in all racks.

    Source: AbstractPartitionAssignor.useRackAwareAssignment.
    """
    everywhere: frozenset[str] = frozenset().union(*partition_racks)
    return not everywhere.isdisjoint(member_racks) and any(racks != everywhere for racks in partition_racks)
