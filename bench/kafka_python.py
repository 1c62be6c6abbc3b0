"""kafka-python's assignors with one group before them, as its own coordinator asks them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from types import SimpleNamespace
from typing import Any

_PLACES = {
    "range": ("range", "RangePartitionAssignor"),
    "roundrobin": ("roundrobin", "RoundRobinPartitionAssignor"),
    "sticky": ("sticky.sticky_assignor", "StickyPartitionAssignor"),
}
"""Its cooperative assignor is left out: it reads what is owned from the protocol's own classes."""

KINDS = frozenset(_PLACES)
"""The assignors that can be asked, by the protocol's name."""


def prepare(
    kind: str,
    partitions: Mapping[str, int],
    topics_by_member: Mapping[str, Sequence[str]],
    owned: Mapping[str, Mapping[str, Sequence[int]]],
    generation: int,
) -> Callable[[], dict[str, Any]]:
    """Describe a group in its classes.

    Args:
        kind: one of KINDS.
        partitions: topic -> number of partitions.
        topics_by_member: member_id -> what it subscribes to.
        owned: member_id -> topic -> partitions, without those that owned nothing; for sticky only.
        generation: in which they were owned.

    Returns:
        What asks it: member_id -> its own class of assignment.

    Raises:
        ImportError: it is not installed.
    """
    module, name = _PLACES[kind]
    assignor = getattr(import_module(f"kafka.coordinator.assignors.{module}"), name)()
    # A layout of its own: before Kafka's comes a version, without which it reads nothing and starts afresh.
    layout = import_module("kafka.coordinator.assignors.sticky.user_data").StickyAssignorUserData
    known = {topic: set(range(count)) for topic, count in partitions.items()}
    cluster = SimpleNamespace(partitions_for_topic=known.get, topics=lambda: set(known))
    members = [
        SimpleNamespace(
            member_id=member,
            group_instance_id=None,
            metadata=SimpleNamespace(
                topics=list(topics),
                user_data=layout(list(owned[member].items()), generation).encode()
                if member in owned
                else b"",
            ),
        )
        for member, topics in topics_by_member.items()
    ]
    return partial(assignor.assign, cluster, members)
