"""The counts of an optimal assignment: how many partitions of each topic each member gets.

A partition of a topic is as good as any other, so counts decide, and which partitions they
are follows. An *arc* is one (topic, member) subscription; it holds `owned` partitions before
and `counts` after. Loads are made as even as subscriptions allow (the least sum of squares)
and among all such counts those are found that take the fewest partitions from their owners.

How. The start leaves every member what it owns and pours the rest onto the least loaded. From
there a minimum-cost flow moves units from members above a box [least, most] of loads to
members below it, along shortest paths, primal and dual together. Where it is blocked, no
assignment at all can bring the members that the excess reaches down to the others, so they
part: two classes, each with a box of its own, and nothing goes from one to the other any more.
The classes, boxes and potentials at the end are the proof (certificate.py).

What is done often (start.py, steps.py) knows lists and arrays alike: small groups run it as it
stands, large ones compiled by numba (kit.py), so there is one algorithm and not two.

Nodes are numbered topics first, then members, then the sink of the class at hand. All
numbers are integers, and every choice goes by number, so the result has no chance in it.

Source: least-majorised points of an integral base polytope (Fujishige; Frank and Murota's
decreasing minimisation); the primal-dual method for minimum-cost flows (Ahuja, Magnanti, Orlin).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from assignors.optimal.steps import BALANCED, FOUND, UNREACHED

if TYPE_CHECKING:
    from assignors.optimal.kit import Kit
    from assignors.optimal.steps import Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class Arcs:
    """Who may have partitions of what: the arcs, by topic and by member.

    Arcs are numbered by topic and, within one, by member. `by_member` lists each
    member's arcs in the order of topics. `far[arc]` is 1 where the member is in no rack
    of the partitions while another subscriber is; `owned[arc]` is never more than the
    topic has.
    """

    topic_starts: Ints
    members: Ints
    topics: Ints
    member_starts: Ints
    by_member: Ints
    owned: Ints
    far: Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Optimal counts, and what proves them.

    `counts` is by arc, `loads` by member. `classes` are in ascending order of load,
    each (first member, end, first topic, end, least, most, sink's potential) with
    places in `member_order` and `topic_order`; `potentials` is by node.
    """

    counts: Ints
    loads: Ints
    classes: list[tuple[int, int, int, int, int, int, int]]
    member_order: Ints
    topic_order: Ints
    potentials: Ints


def optimal_counts(arcs: Arcs, free: Ints, kit: Kit) -> Counts:
    """Find the counts.

    Args:
        arcs: who may have what, and what each owns.
        free: by topic, how many partitions have no owner in `arcs.owned`.
        kit: lists, or arrays for a large group.
    """
    numbers, do = kit.numbers, kit.do
    topics, members = len(arcs.topic_starts) - 1, len(arcs.member_starts) - 1
    sink = topics + members
    counts, loads = numbers(arcs.owned), kit.filled(members, 0)
    sizes = [arcs.topic_starts[t + 1] - arcs.topic_starts[t] for t in range(topics)]
    rare_first = numbers(sorted(range(topics), key=sizes.__getitem__))
    do["pour"](arcs.topic_starts, arcs.members, arcs.far, counts, loads, free, rare_first)
    graph = (
        *(arcs.topic_starts, arcs.members, arcs.topics, arcs.member_starts, arcs.by_member),
        *(arcs.owned, arcs.far, counts),
    )
    potentials = numbers([0] * topics + [1] * (members + 1))
    flows = (kit.filled(members, 0), kit.filled(members + 1, 0), potentials)
    distance, class_of = kit.filled(sink + 1, UNREACHED), kit.filled(sink, 0)
    first_list, second_list, third_list = (kit.filled(sink + 1, 0) for _ in range(3))
    member_order, topic_order = numbers(range(members)), numbers(range(topics))
    finished: list[tuple[int, int, int, int, int, int, int]] = []
    waiting = [(0, members, 0, topics, 1)]
    number = 0
    while waiting:
        first, end, first_topic, end_topic, potentials[sink] = waiting.pop()
        number += 1
        part = (number, class_of, member_order, first, end, topic_order, first_topic, end_topic)
        box = do["begin"](part, loads, flows)
        while (found := do["search"](graph, part, box, flows, distance, first_list, second_list)) == FOUND:
            do["push"](graph, part, box, flows, loads, distance, first_list, second_list, third_list)
        if found == BALANCED:
            finished.append((first, end, first_topic, end_topic, *box, potentials[sink]))
            continue
        middle = do["divide"](member_order, first, end, topics, distance, first_list)
        middle_topic = do["divide"](topic_order, first_topic, end_topic, 0, distance, first_list)
        # The lower one is worked on first, so that classes are finished in the order of their loads.
        waiting.append((middle, end, middle_topic, end_topic, potentials[sink]))
        waiting.append((first, middle, first_topic, middle_topic, potentials[sink]))
    return Counts(
        counts=counts,
        loads=loads,
        classes=finished,
        member_order=member_order,
        topic_order=topic_order,
        potentials=potentials,
    )
