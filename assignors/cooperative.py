"""The two steps of a cooperative rebalance: first let go, then give on.

Source: KIP-429 and CooperativeStickyAssignor.adjustAssignment, for any target
and any current owners; the claims of old generations are settled before this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Owners = Mapping[str, Mapping[str, Sequence[int]]]
"""member_id -> topic -> partition numbers."""


def withhold(target: Owners, current: Owners) -> dict[str, dict[str, list[int]]]:
    """Give of a target what nobody else still holds.

    Args:
        target: who shall own what in the end; its keys are the group's members.
        current: what members hold now. One that is not in `target` has left the
            group and holds nothing any more.

    Returns:
        The first step's assignment, in the target's order, every member of the
        target a key. A partition that its new owner shares with another holder
        now is withheld too, until that one has let go.

    >>> withhold({"C0": {"t": [0]}, "C1": {"t": [1]}}, {"C0": {"t": [0, 1]}})
    {'C0': {'t': [0]}, 'C1': {}}
    """
    holder_of: dict[tuple[str, int], str | None] = {}
    for member, topics in current.items():
        if member in target:
            for topic, partitions in topics.items():
                for partition in partitions:
                    # Held by two: None is no member, so that nobody is given it.
                    known = holder_of.setdefault((topic, partition), member)
                    if known != member:
                        holder_of[topic, partition] = None
    given: dict[str, dict[str, list[int]]] = {}
    for member, topics in target.items():
        given[member] = {}
        for topic, partitions in topics.items():
            free = [p for p in partitions if holder_of.get((topic, p), member) == member]
            if free:
                given[member][topic] = free
    return given


def revoked_by(step: Owners, current: Owners) -> dict[str, dict[str, list[int]]]:
    """List what members of the step hold now and must let go: member_id -> topic -> partitions.

    Members that let nothing go are left out; an empty result means that no second
    step follows.

    >>> revoked_by({"C0": {"t": [0]}, "C1": {}}, {"C0": {"t": [0, 1]}})
    {'C0': {'t': [1]}}
    """
    revoked: dict[str, dict[str, list[int]]] = {}
    for member, topics in current.items():
        if member not in step:
            continue
        for topic, partitions in topics.items():
            kept = frozenset(step[member].get(topic, ()))
            leaving = [p for p in partitions if p not in kept]
            if leaving:
                revoked.setdefault(member, {})[topic] = leaving
    return revoked
