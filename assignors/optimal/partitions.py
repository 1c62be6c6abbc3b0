"""From counts to partitions and back: who owned each partition, and who has it after.

A partition is a *code*, its place in the list of all partitions, row after row; a row is
a topic, or the partitions of one topic whose replicas lie in the same racks. `owner`
holds a member for each code, -1 for nobody. These functions know lists and arrays alike
and are compiled for large groups (kit.py), as those of steps.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from assignors.optimal.steps import Ints


def find_codes(
    starts: Ints,
    holders: Ints,
    topics: Ints,
    numbers: Ints,
    firsts: Ints,
    counts: Ints,
    codes: Ints,
    claimants: Ints,
) -> None:
    """Find which partitions are claimed.

    Args:
        starts: where each holder's claims begin, and the end.
        holders: by holder, the member; below 0 for one that is gone.
        topics: by claim, the topic; below 0 for one that nobody reads.
        numbers: by claim, the partition's number in its topic.
        firsts: by topic, its first code.
        counts: by topic, how many codes it has from there.
        codes: by claim; the result, -1 for one that does not count.
        claimants: by claim; the result.
    """
    for holder in range(len(holders)):
        member = holders[holder]
        for claim in range(starts[holder], starts[holder + 1]):
            claimants[claim] = member
            codes[claim] = -1
            topic = topics[claim]
            if member >= 0 and topic >= 0 and 0 <= numbers[claim] < counts[topic]:
                codes[claim] = firsts[topic] + numbers[claim]


def settle_claims(codes: Ints, claimants: Ints, generations: Ints, owner: Ints) -> None:
    """Give each partition to whoever claims it with the highest generation; to nobody where two do.

    Args:
        codes: by claim, the partition; below 0 for one that does not count.
        claimants: by claim, the member.
        generations: by member.
        owner: by code, -1 to begin with; the result.
    """
    for claim in range(len(codes)):
        code = codes[claim]
        if code < 0:
            continue
        member, held = claimants[claim], owner[code]
        if held == -1:
            owner[code] = member
            continue
        # Below -1 stands for a dispute, and for one of those who have it.
        rival = held if held >= 0 else -2 - held
        if generations[member] > generations[rival]:
            owner[code] = member
        elif generations[member] == generations[rival] and member != held:
            owner[code] = -2 - rival
    for code in range(len(owner)):
        if owner[code] < -1:
            owner[code] = -1


def count_owned(
    code_starts: Ints, row_starts: Ints, members: Ints, owner: Ints, owned: Ints, free: Ints, arc_of: Ints
) -> None:
    """Count what members own, by arc, and what nobody does, by row; who does not subscribe owns nothing.

    Args:
        code_starts: where each row's codes begin, and the end.
        row_starts: where each row's arcs begin, and the end.
        members: by arc.
        owner: by code; who does not subscribe is taken out.
        owned: by arc, 0 to begin with.
        free: by row, 0 to begin with.
        arc_of: by member, -1; scratch.
    """
    for row in range(len(row_starts) - 1):
        first = row_starts[row]
        for arc in range(first, row_starts[row + 1]):
            arc_of[members[arc]] = arc
        for code in range(code_starts[row], code_starts[row + 1]):
            member = owner[code]
            if member >= 0 and arc_of[member] >= first:
                owned[arc_of[member]] += 1
            else:
                owner[code] = -1
                free[row] += 1


def hand_out(
    code_starts: Ints, row_starts: Ints, members: Ints, counts: Ints, owner: Ints, need: Ints, line: Ints
) -> None:
    """Let members keep their lowest-numbered partitions up to the counts, and deal the rest in a circle.

    Args:
        code_starts: as count_owned has it.
        row_starts: as count_owned has it.
        members: by arc.
        counts: by arc, how many the member shall have.
        owner: by code, before; and after.
        need: by member; scratch.
        line: by member; scratch.
    """
    for row in range(len(row_starts) - 1):
        for arc in range(row_starts[row], row_starts[row + 1]):
            need[members[arc]] = counts[arc]
        is_full = True
        for code in range(code_starts[row], code_starts[row + 1]):
            member = owner[code]
            if member >= 0 and need[member] > 0:
                need[member] -= 1
            else:
                owner[code] = -1
                is_full = False
        if is_full:
            continue
        waiting = 0
        for arc in range(row_starts[row], row_starts[row + 1]):
            if need[members[arc]] > 0:
                line[waiting] = members[arc]
                waiting += 1
        _deal(code_starts[row], code_starts[row + 1], owner, need, line, waiting)


def _deal(first: int, end: int, owner: Ints, need: Ints, line: Ints, waiting: int) -> None:
    """Deal the codes of nobody in a circle to the first `waiting` in line, each as many as it needs."""
    at = kept = 0
    for code in range(first, end):
        if owner[code] >= 0:
            continue
        if at == waiting:
            at, waiting, kept = 0, kept, 0
        member = line[at]
        at += 1
        owner[code] = member
        need[member] -= 1
        if need[member] > 0:
            line[kept] = member
            kept += 1


def level(owner: Ints, sizes: Ints, quotas: Ints, seen: Ints, line: Ints) -> None:
    """Make all loads as even as can be where everybody may have everything, moving the fewest partitions.

    The larger of the two loads goes first to members that have more than the smaller one. Who must
    let go lets go evenly all along its partitions, and the free ones are dealt in a circle.

    Args:
        owner: by code, before; and after.
        sizes: by member, 0 to begin with; how many it owned.
        quotas: by member; how many it has after.
        seen: by member, 0 to begin with; scratch: what it has shown of its own, then what it needs.
        line: by member; scratch.
    """
    many, total = len(sizes), len(owner)
    for code in range(total):
        if owner[code] >= 0:
            sizes[owner[code]] += 1
    least = total // many
    larger = total - least * many
    for member in range(many):
        quotas[member] = least
        if larger > 0 and sizes[member] > least:
            quotas[member] += 1
            larger -= 1
    waiting = 0
    for member in range(many):
        if larger > 0 and quotas[member] == least:
            quotas[member] += 1
            larger -= 1
        if sizes[member] < quotas[member]:
            line[waiting] = member
            waiting += 1
    for code in range(total):
        member = owner[code]
        if member >= 0 and sizes[member] > quotas[member]:
            size, quota = sizes[member], quotas[member]
            before = (seen[member] * quota + size - 1) // size
            seen[member] += 1
            if (seen[member] * quota + size - 1) // size == before:
                owner[code] = -1
    for member in range(many):
        seen[member] = quotas[member] - sizes[member]
    _deal(0, total, owner, seen, line, waiting)


def list_by_member(
    owner: Ints,
    order: Ints,
    topic_of: Ints,
    number_of: Ints,
    starts: Ints,
    at: Ints,
    topics: Ints,
    numbers: Ints,
) -> None:
    """Write each member's partitions one after another, as an Assignment has them.

    Args:
        owner: by code; a code of nobody is left out.
        order: the codes by (topic, partition); none where that is their own order.
        topic_of: by code.
        number_of: by code.
        starts: by member and the end, 0 to begin with; the result.
        at: by member; scratch.
        topics: as many as codes with an owner; the result.
        numbers: likewise.
    """
    for code in range(len(owner)):
        if owner[code] >= 0:
            starts[owner[code] + 1] += 1
    for member in range(len(at)):
        at[member] = starts[member]
        starts[member + 1] += starts[member]
    is_ordered = len(order) == 0
    for place in range(len(owner)):
        code = place if is_ordered else order[place]
        member = owner[code]
        if member >= 0:
            topics[at[member]] = topic_of[code]
            numbers[at[member]] = number_of[code]
            at[member] += 1


def withhold(codes: Ints, claimants: Ints, owner: Ints) -> int:
    """Take from its new owner what another member claims; how many. Arguments as settle_claims has them."""
    withheld = 0
    for claim in range(len(codes)):
        code = codes[claim]
        if code >= 0 and owner[code] >= 0 and owner[code] != claimants[claim]:
            owner[code] = -1
            withheld += 1
    return withheld


def count_moves(before: Ints, after: Ints) -> tuple[int, int]:
    """Count the partitions taken from their owners, and those that stay; both by code."""
    moved = kept = 0
    for code in range(len(before)):
        if before[code] >= 0:
            if after[code] == before[code]:
                kept += 1
            else:
                moved += 1
    return moved, kept


def names_twice(tellers: Ints, wanted: Ints, last: Ints) -> bool:
    """Say whether a member has a row twice; `tellers` ascend, `last` is by row, -1 to begin with."""
    for arc in range(len(wanted)):
        if last[wanted[arc]] == tellers[arc]:
            return True
        last[wanted[arc]] = tellers[arc]
    return False


def arcs_by_row(
    members: Ints, rows: Ints, row_starts: Ints, at: Ints, members_of: Ints, rows_of: Ints
) -> None:
    """Sort arcs by row; within one they keep their order. See arcs_by_member for the arguments."""
    for arc in range(len(rows)):
        row_starts[rows[arc] + 1] += 1
    for row in range(len(at)):
        at[row] = row_starts[row]
        row_starts[row + 1] += row_starts[row]
    for arc in range(len(rows)):
        place = at[rows[arc]]
        at[rows[arc]] += 1
        members_of[place] = members[arc]
        rows_of[place] = rows[arc]


def arcs_by_member(members: Ints, member_starts: Ints, at: Ints, by_member: Ints) -> None:
    """List each member's arcs in their order.

    Args:
        members: by arc.
        member_starts: by member and the end, 0 to begin with; the result.
        at: by member; scratch.
        by_member: as many as arcs; the result.
    """
    for arc in range(len(members)):
        member_starts[members[arc] + 1] += 1
    for member in range(len(at)):
        at[member] = member_starts[member]
        member_starts[member + 1] += member_starts[member]
    for arc in range(len(members)):
        by_member[at[members[arc]]] = arc
        at[members[arc]] += 1


HELPERS: Final = (_deal,)
"""What the functions call."""
