"""Who plays in the demo, and when: members that join, leave, crash and come back, and a topic that grows."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

TOPICS = {"orders": 6, "payments": 4}
"""Topic -> partitions at the beginning."""

GROWING_TOPIC = "payments"
MOST_PARTITIONS = 16

_FIRST_GROWTH_S, _GROWTH_EVERY_S, _GROWTH = 20.0, 30.0, 2
_SHORTEST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 3.5
_FLAPS, _CRASHES = 0.7, 0.3
"""What share of the acts is the flapping member's, and what share of the departures a crash."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cast:
    """One group; the last of its members is the one that flaps.

    `kind` is "classic" or "consumer" (KIP-848); `assignors` are protocol names, none for the broker's own.
    """

    group_id: str
    kind: str
    assignors: tuple[str, ...] = ()
    topics: tuple[str, ...]
    members: tuple[str, ...]

    @property
    def at_the_start(self) -> tuple[str, ...]:
        """Those who are there from the beginning: all but the one that flaps, where there are others."""
        return self.members[:-1] or self.members


GROUPS = (
    Cast(
        group_id="checkout",
        kind="classic",
        assignors=("cooperative-sticky",),
        topics=("orders", "payments"),
        members=("till-1", "till-2", "till-3"),
    ),
    Cast(
        group_id="billing",
        kind="classic",
        assignors=("range",),
        topics=("orders", "payments"),
        members=("bill-1", "bill-2", "bill-3"),
    ),
    Cast(
        group_id="fraud",
        kind="consumer",
        topics=("payments",),
        members=("guard-1", "guard-2", "guard-3"),
    ),
    # One member alone: while it is away the group is empty.
    Cast(
        group_id="reports",
        kind="classic",
        assignors=("roundrobin",),
        topics=("orders",),
        members=("report-1",),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """What one member does, so many seconds after the beginning."""

    at_s: float
    do: Literal["join", "leave", "crash"]
    group: Cast
    member: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """A topic gets partitions, this many in all."""

    at_s: float
    topic: str
    partitions: int


def schedule(seed: int) -> Iterator[Act | Growth]:
    """Give what happens, in order and without end: first all joins at 0 s, then one thing after the other.

    Only a member that is away joins and only one that is there goes; a group of several
    members always keeps one. The same seed gives the same schedule.
    """
    for group in GROUPS:
        for member in group.at_the_start:
            yield Act(at_s=0.0, do="join", group=group, member=member)
    chance = random.Random(seed)
    present = {group.group_id: set(group.at_the_start) for group in GROUPS}
    partitions, grows_at_s = TOPICS[GROWING_TOPIC], _FIRST_GROWTH_S
    at_s = 0.0
    while True:
        at_s += chance.uniform(_SHORTEST_PAUSE_S, _LONGEST_PAUSE_S)
        if at_s >= grows_at_s and partitions < MOST_PARTITIONS:
            partitions += _GROWTH
            grows_at_s += _GROWTH_EVERY_S
            yield Growth(at_s=at_s, topic=GROWING_TOPIC, partitions=partitions)
            continue
        group = chance.choice(GROUPS)
        there = present[group.group_id]
        member = group.members[-1] if chance.random() < _FLAPS else chance.choice(group.members)
        if member not in there:
            there.add(member)
            yield Act(at_s=at_s, do="join", group=group, member=member)
        elif len(there) > 1 or len(group.members) == 1:
            there.remove(member)
            how: Literal["leave", "crash"] = "crash" if chance.random() < _CRASHES else "leave"
            yield Act(at_s=at_s, do=how, group=group, member=member)
