"""A group as the optimal assignor sees it: rows, arcs, and who owned which partition.

A row is a topic; where racks matter, the partitions of one topic whose replicas lie in the
same racks. Everything is sorted by name, so that no order of arrival or of a dictionary shows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, repeat
from typing import TYPE_CHECKING, Any

from assignors.errors import AssignorError
from assignors.optimal.claims import (
    Claims,
    Codes,
    read_assignment,
    read_large_assignment,
    read_many_subscriptions,
    read_subscriptions,
)
from assignors.optimal.flow import Arcs
from assignors.optimal.kit import PLAIN, Kit, kit_for
from assignors.sticky_claims import ascending_numbers

if TYPE_CHECKING:
    from assignors.model import Assignment, Subscription, TopicMetadata
    from assignors.optimal.steps import Ints

_Racks = frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """One group, its partitions numbered by row (codes).

    `members` and `topics` are sorted. `rows` are (topic's place in `topics`, racks);
    `code_starts` says where each row's codes begin, and the end; `order` lists the codes
    by (topic, partition), none where that is their own order.
    `owner` is by code: the member's place, -1 for nobody; it settles the `claims`.
    `tellers` and `wanted` are by arc, the member and a row that it may have; both are
    None where every member may have everything and racks do not matter. `racks` are
    by member, empty where they do not matter.
    """

    kit: Kit
    members: list[str]
    join_order: list[str]
    topics: list[str]
    rows: list[tuple[int, _Racks]]
    code_starts: Ints
    topic_of: Ints
    number_of: Ints
    order: Ints
    claims: Claims
    owner: Ints
    tellers: Ints | None
    wanted: Ints | None
    racks: list[str | None]

    def arcs(self) -> Arcs:
        """Make the arcs, nothing owned yet."""
        kit, many, width = self.kit, len(self.members), len(self.rows)
        tellers, wanted = self.tellers, self.wanted
        if tellers is None or wanted is None:
            tellers = kit.spread([width] * many)
            wanted = kit.joined([range(width)] * many)
        row_starts, member_starts = kit.filled(width + 1, 0), kit.filled(many + 1, 0)
        members, rows, by_member = (kit.filled(len(wanted), 0) for _ in range(3))
        kit.do["arcs_by_row"](tellers, wanted, row_starts, kit.filled(width, 0), members, rows)
        kit.do["arcs_by_member"](members, member_starts, kit.filled(many, 0), by_member)
        return Arcs(
            topic_starts=row_starts,
            members=members,
            topics=rows,
            member_starts=member_starts,
            by_member=by_member,
            owned=kit.filled(len(wanted), 0),
            far=kit.numbers(self._far(members, rows)) if any(self.racks) else kit.filled(len(wanted), 0),
        )

    def _far(self, members: Ints, rows: Ints) -> list[int]:
        """Say of each arc whether the member is in none of the row's racks while another subscriber is."""
        is_far = [
            (rack := self.racks[member]) is not None
            and bool(self.rows[row][1])
            and rack not in self.rows[row][1]
            for member, row in zip(members, rows, strict=True)
        ]
        has_near = {row for row, far in zip(rows, is_far, strict=True) if not far}
        return [int(far and row in has_near) for row, far in zip(rows, is_far, strict=True)]


def read_group(
    topics: Mapping[str, TopicMetadata],
    subscriptions: Mapping[str, Subscription],
    previous: Assignment | None,
) -> Group:
    """Put a group into numbers.

    Args:
        topics: topic -> its partitions and racks.
        subscriptions: member_id -> Subscription.
        previous: who owns what; None to read `owned_partitions`, where the highest
            `generation_id` wins a partition and two of the same lose it both.

    Raises:
        AssignorError: there is no member.
    """
    if not subscriptions:
        raise AssignorError("a group without members has nobody to assign to; give at least one subscription")
    members = sorted(subscriptions)
    by_place = [subscriptions[member] for member in members]
    tuples = [subscription.topics for subscription in by_place]
    # Most often there is but one, and to count it takes less than to hash them all.
    distinct = tuples[:1] if tuples.count(tuples[0]) == len(tuples) else list(dict.fromkeys(tuples))
    first = frozenset(distinct[0])
    are_alike = all(len(one) >= len(first) and first == frozenset(one) for one in distinct[1:])
    read = first if are_alike else first.union(*distinct[1:])
    names = sorted(name for name in read if topics.get(name))
    racks = [subscription.rack_id for subscription in by_place]
    rows, parts = _rows(names, topics, frozenset(filter(None, racks)))
    if not any(near for _, near in rows):
        racks = []
    starts = list(accumulate(map(len, parts), initial=0))
    size = starts[-1] + (len(members) if are_alike else sum(map(len, tuples)))
    kit = kit_for(size)
    topic_of = kit.spread([len(part) for part in parts])
    number_of = kit.joined(parts)
    order = kit.numbers([])
    if len(rows) > len(names):
        of_row = [topic for topic, _ in rows]
        topic_of = kit.joined([[of_row[row] for row in topic_of]])
        order = kit.numbers(sorted(range(starts[-1]), key=lambda code: (topic_of[code], number_of[code])))
    codes = _codes(names, rows, parts, starts)
    places = {member: place for place, member in enumerate(members)}
    tellers = wanted = None
    if racks or not are_alike:
        if kit is PLAIN or len(rows) > len(names):
            tellers, wanted = map(kit.numbers, _wanted(names, rows, tuples))
        else:
            tellers, wanted = _much_wanted(kit, names, tuples)
    if previous is None:
        read_claims = read_subscriptions if kit is PLAIN else read_many_subscriptions
        claims = read_claims(by_place, codes)
    else:
        read_previous = read_assignment if kit is PLAIN else read_large_assignment
        claims = read_previous(previous, places, codes)
    owner = kit.narrow(starts[-1], -1)
    if len(claims.codes):
        generations = [s.generation_id for s in by_place] if previous is None else [0] * len(by_place)
        kit.do["settle_claims"](*claims, kit.numbers(generations), owner)
    return Group(
        kit=kit,
        members=members,
        join_order=list(subscriptions),
        topics=names,
        rows=rows,
        code_starts=kit.numbers(starts),
        topic_of=topic_of,
        number_of=number_of,
        order=order,
        claims=claims,
        owner=owner,
        tellers=tellers,
        wanted=wanted,
        racks=racks,
    )


def _rows(
    names: Sequence[str], topics: Mapping[str, TopicMetadata], members_racks: _Racks
) -> tuple[list[tuple[int, _Racks]], list[Sequence[int]]]:
    """List rows as Group has them, and the partition numbers of each, ascending."""
    rows: list[tuple[int, _Racks]] = []
    parts: list[Sequence[int]] = []
    for place, name in enumerate(names):
        topic = topics[name]
        if not members_racks or not topic.racks:
            rows.append((place, frozenset()))
            parts.append(ascending_numbers(topic.partitions))
            continue
        by_racks: dict[_Racks, list[int]] = {}
        for number, racks in sorted(zip(topic.partitions, topic.racks, strict=True)):
            by_racks.setdefault(members_racks.intersection(racks), []).append(number)
        for near in sorted(by_racks, key=sorted):
            rows.append((place, near))
            parts.append(ascending_numbers(tuple(by_racks[near])))
    return rows, parts


def _wanted(
    names: Sequence[str], rows: Sequence[tuple[int, _Racks]], tuples: Sequence[tuple[str, ...]]
) -> tuple[list[int], list[int]]:
    """List (member, row) for each row that a member may have, each once."""
    rows_of: dict[str, list[int]] = {}
    for row, (topic, _) in enumerate(rows):
        rows_of.setdefault(names[topic], []).append(row)
    tellers: list[int] = []
    wanted: list[int] = []
    for place, topics in enumerate(tuples):
        of_member = [row for topic in dict.fromkeys(topics) for row in rows_of.get(topic, ())]
        wanted += of_member
        tellers += [place] * len(of_member)
    return tellers, wanted


def _much_wanted(kit: Kit, names: Sequence[str], tuples: Sequence[tuple[str, ...]]) -> tuple[Any, Any]:
    """List the same as _wanted, where every topic is one row, in arrays."""
    import numpy as np

    row_of = {name: row for row, name in enumerate(names)}
    sizes = [len(topics) for topics in tuples]
    flat = map(row_of.get, chain.from_iterable(tuples), repeat(-1))
    wanted = np.fromiter(flat, np.int32, sum(sizes))
    tellers = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
    is_known = wanted >= 0
    if not is_known.all():
        tellers, wanted = tellers[is_known], wanted[is_known]
    if kit.do["names_twice"](tellers, wanted, kit.filled(len(names), -1)):
        pairs = np.unique(tellers.astype(np.int64) * len(names) + wanted)
        tellers, wanted = (each.astype(np.int32) for each in np.divmod(pairs, len(names)))
    return tellers, wanted


def _codes(
    names: Sequence[str],
    rows: Sequence[tuple[int, _Racks]],
    parts: Sequence[Sequence[int]],
    starts: Sequence[int],
) -> Codes:
    spans: dict[str, tuple[int, int]] = {}
    others: dict[str, dict[int, int]] = {}
    rows_of = Counter(topic for topic, _ in rows)
    for (topic, _), part, start in zip(rows, parts, starts, strict=False):
        if rows_of[topic] == 1 and isinstance(part, range) and part.start == 0:
            spans[names[topic]] = (start, len(part))
        else:
            others.setdefault(names[topic], {}).update(
                zip(part, range(start, start + len(part)), strict=True)
            )
    return Codes(spans, others)
