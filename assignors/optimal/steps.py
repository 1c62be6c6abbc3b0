"""The steps of the flow that evens out loads: which way is shortest, and what goes along it.

They stand apart from flow.py, which says what they are for, as those on which nearly all time
is spent. Nodes are numbered topics first, then members, then the sink of the class at hand.
"""

from __future__ import annotations

from collections.abc import MutableSequence
from typing import Final

Ints = MutableSequence[int]
"""A list of integers or an array of int64."""

BALANCED: Final = 0
FOUND: Final = 1
BLOCKED: Final = 2

FAR: Final = 1 << 40
"""What a partition out of its member's racks costs, next to 1 for a move: more than all moves together."""

UNREACHED: Final = 1 << 62

Graph = tuple[Ints, Ints, Ints, Ints, Ints, Ints, Ints, Ints]
"""(topic_starts, members, topics, member_starts, by_member, owned, far, counts): see Arcs and Counts."""

Part = tuple[int, Ints, Ints, int, int, Ints, int, int]
"""A class: (its number, the class of each node, members in order, from, to, topics in order, from, to)."""

Flows = tuple[Ints, Ints, Ints]
"""(through, excess, potentials): see _begin."""


def search(
    graph: Graph, part: Part, box: tuple[int, int], flows: Flows, distance: Ints, queue: Ints, later: Ints
) -> int:
    """Find how far the nearest node that lacks something is from those that have too much.

    Distances are lengths of shortest paths by reduced cost, and potentials rise by them.
    They are found level by level: most steps are free, and there are few levels.

    Returns:
        FOUND, BALANCED when nobody has too much, or BLOCKED when none that lacks
        can be reached; then `distance` is below UNREACHED at all that can be.
    """
    topic_starts, members, topics, member_starts, by_member, owned, far, counts = graph
    number, class_of, member_order, first, end, topic_order, first_topic, end_topic = part
    least, most = box
    through, excess, potentials = flows
    width, many = len(topic_starts) - 1, len(member_starts) - 1
    sink = width + many
    ready, waiting = _start(part, width, many, excess, distance, queue, UNREACHED), 0
    if ready == 0:
        return BALANCED
    level, done, is_found = 0, 0, False
    while not is_found:
        while done < ready and not is_found:
            node = queue[done]
            done += 1
            base = level + potentials[node]
            if node < width:
                for arc in range(topic_starts[node], topic_starts[node + 1]):
                    other = width + members[arc]
                    if class_of[other] == number:
                        length = base + _price(arc, counts[arc] + 1, owned, far) - potentials[other]
                        if length < distance[other]:
                            ready, waiting = _reach(
                                other, length, level, distance, queue, ready, later, waiting
                            )
            elif node < sink:
                member = node - width
                is_found = excess[member] < 0
                for place in range(member_starts[member], member_starts[member + 1]):
                    arc = by_member[place]
                    if counts[arc] > 0:
                        other = topics[arc]
                        length = base - _price(arc, counts[arc], owned, far) - potentials[other]
                        if length < distance[other]:
                            ready, waiting = _reach(
                                other, length, level, distance, queue, ready, later, waiting
                            )
                if through[member] < most and base - potentials[sink] < distance[sink]:
                    length = base - potentials[sink]
                    ready, waiting = _reach(sink, length, level, distance, queue, ready, later, waiting)
            else:
                is_found = excess[many] < 0
                for place in range(first, end):
                    other = width + member_order[place]
                    length = base - potentials[other]
                    if through[other - width] > least and length < distance[other]:
                        ready, waiting = _reach(other, length, level, distance, queue, ready, later, waiting)
        if is_found:
            break
        waiting, nearest = _beyond(level, distance, later, waiting)
        if waiting == 0:
            return BLOCKED
        level, ready, done = nearest, 0, 0
        for place in range(waiting):
            if distance[later[place]] == level:
                queue[ready] = later[place]
                ready += 1
    if level > 0:
        for place in range(first_topic, end_topic):
            node = topic_order[place]
            potentials[node] += min(distance[node], level)
        for place in range(first, end):
            node = width + member_order[place]
            potentials[node] += min(distance[node], level)
        potentials[sink] += min(distance[sink], level)
    return FOUND


def _price(arc: int, unit: int, owned: Ints, far: Ints) -> int:
    """Give what an arc's so-manieth unit costs, from 1: nothing for one that was owned, 1 for another."""
    return far[arc] * FAR + (1 if unit > owned[arc] else 0)


def _start(part: Part, width: int, many: int, excess: Ints, marks: Ints, queue: Ints, unmarked: int) -> int:
    """Unmark a class's nodes, and mark with 0 and line up those with too much; how many."""
    _, _, member_order, first, end, topic_order, first_topic, end_topic = part
    for place in range(first_topic, end_topic):
        marks[topic_order[place]] = unmarked
    ready = 0
    for place in range(first, end):
        member = member_order[place]
        marks[width + member] = unmarked
        if excess[member] > 0:
            marks[width + member] = 0
            queue[ready] = width + member
            ready += 1
    marks[width + many] = unmarked
    if excess[many] > 0:
        marks[width + many] = 0
        queue[ready] = width + many
        ready += 1
    return ready


def _reach(
    node: int, length: int, level: int, distance: Ints, queue: Ints, ready: int, later: Ints, waiting: int
) -> tuple[int, int]:
    """Note a shorter way to a node: at the level at hand it is ready, beyond it waits."""
    if length == level:
        queue[ready] = node
        ready += 1
    elif distance[node] == UNREACHED:
        later[waiting] = node
        waiting += 1
    distance[node] = length
    return ready, waiting


def _beyond(level: int, distance: Ints, later: Ints, waiting: int) -> tuple[int, int]:
    """Keep of those that wait the ones beyond the level; how many they are, and the nearest's distance."""
    nearest, kept = UNREACHED, 0
    for place in range(waiting):
        node = later[place]
        if distance[node] > level:
            later[kept] = node
            kept += 1
            nearest = min(nearest, distance[node])
    return kept, nearest


def push(
    graph: Graph, part: Part, box: tuple[int, int], flows: Flows, loads: Ints,
    depth: Ints, queue: Ints, at: Ints, path: Ints,
) -> None:  # fmt: skip
    """Send all that goes along paths that cost nothing by the potentials, from too much to too little.

    The shortest of them by steps first, all of one length together (Dinic's blocking flows).
    """
    topic_starts, members, topics, member_starts, by_member, owned, far, counts = graph
    _, _, member_order, first, end, _, _, _ = part
    least, most = box
    through, excess, potentials = flows
    width, many = len(topic_starts) - 1, len(member_starts) - 1
    sink = width + many
    while _measure(graph, part, box, flows, depth, queue, at):
        for place in range(first, end + 1):
            source = width + member_order[place] if place < end else sink
            length = 1
            path[0] = source
            while length > 0 and excess[source - width] > 0:
                node = path[length - 1]
                if node >= width and excess[node - width] < 0:
                    amount = min(excess[source - width], -excess[node - width])
                    for step in range(length - 1):
                        here, other = path[step], path[step + 1]
                        if here < width:
                            arc = at[here]
                            room = _room_up(
                                counts[arc], owned[arc], far[arc], potentials[other] - potentials[here]
                            )
                        elif here == sink:
                            room = through[other - width] - least
                        elif other == sink:
                            room = most - through[here - width]
                        else:
                            arc = by_member[at[here]]
                            room = _room_down(
                                counts[arc], owned[arc], far[arc], potentials[here] - potentials[other]
                            )
                        amount = min(amount, room)
                    for step in range(length - 1):
                        here, other = path[step], path[step + 1]
                        if here < width:
                            counts[at[here]] += amount
                        elif here == sink:
                            through[other - width] -= amount
                            loads[other - width] -= amount
                        elif other == sink:
                            through[here - width] += amount
                            loads[here - width] += amount
                        else:
                            counts[by_member[at[here]]] -= amount
                    excess[source - width] -= amount
                    excess[node - width] += amount
                    if source < sink:
                        loads[source - width] -= amount
                    if node < sink:
                        loads[node - width] += amount
                    length = 1
                    continue
                found, next_depth = -1, depth[node] + 1
                if node < width:
                    while at[node] < topic_starts[node + 1]:
                        arc = at[node]
                        other = width + members[arc]
                        rise = potentials[other] - potentials[node]
                        room = _room_up(counts[arc], owned[arc], far[arc], rise)
                        if depth[other] == next_depth and room > 0:
                            found = other
                            break
                        at[node] += 1
                elif node == sink:
                    while at[node] < end:
                        other = width + member_order[at[node]]
                        room = through[other - width] - least if potentials[other] == potentials[sink] else 0
                        if depth[other] == next_depth and room > 0:
                            found = other
                            break
                        at[node] += 1
                else:
                    last = member_starts[node - width + 1]
                    while at[node] < last:
                        arc = by_member[at[node]]
                        other = topics[arc]
                        rise = potentials[node] - potentials[other]
                        room = _room_down(counts[arc], owned[arc], far[arc], rise)
                        if depth[other] == next_depth and room > 0:
                            found = other
                            break
                        at[node] += 1
                    if found < 0:
                        # After a member's arcs comes its way to the sink.
                        room = most - through[node - width] if potentials[node] == potentials[sink] else 0
                        if depth[sink] == next_depth and room > 0:
                            found = sink
                if found >= 0:
                    path[length] = found
                    length += 1
                else:
                    depth[node] = -1
                    length -= 1
                    if length > 0:
                        at[path[length - 1]] += 1


def _measure(
    graph: Graph, part: Part, box: tuple[int, int], flows: Flows, depth: Ints, queue: Ints, at: Ints
) -> bool:
    """Count the steps to each node along what costs nothing, up to the nearest that lacks; is there one?

    Sets `at`, where each node's steps begin: a topic's arcs, a member's, the places of the sink's members.
    """
    topic_starts, members, topics, member_starts, by_member, owned, far, counts = graph
    number, class_of, member_order, first, end, _, _, _ = part
    least, most = box
    through, excess, potentials = flows
    width, many = len(topic_starts) - 1, len(member_starts) - 1
    sink = width + many
    ready, done, nearest = _start(part, width, many, excess, depth, queue, -1), 0, UNREACHED
    while done < ready:
        node = queue[done]
        done += 1
        next_depth = depth[node] + 1
        if node < width:
            at[node] = topic_starts[node]
        elif node < sink:
            at[node] = member_starts[node - width]
        else:
            at[node] = first
        if node >= width and excess[node - width] < 0:
            nearest = min(nearest, depth[node])
        if depth[node] >= nearest:
            continue
        if node < width:
            for arc in range(topic_starts[node], topic_starts[node + 1]):
                other = width + members[arc]
                if depth[other] < 0 and class_of[other] == number:
                    rise = potentials[other] - potentials[node]
                    if _room_up(counts[arc], owned[arc], far[arc], rise) > 0:
                        depth[other] = next_depth
                        queue[ready] = other
                        ready += 1
        elif node < sink:
            for place in range(member_starts[node - width], member_starts[node - width + 1]):
                arc = by_member[place]
                other = topics[arc]
                if depth[other] < 0:
                    rise = potentials[node] - potentials[other]
                    if _room_down(counts[arc], owned[arc], far[arc], rise) > 0:
                        depth[other] = next_depth
                        queue[ready] = other
                        ready += 1
            if depth[sink] < 0 and through[node - width] < most and potentials[node] == potentials[sink]:
                depth[sink] = next_depth
                queue[ready] = sink
                ready += 1
        else:
            for place in range(first, end):
                other = width + member_order[place]
                room = through[other - width] - least if potentials[other] == potentials[sink] else 0
                if depth[other] < 0 and room > 0:
                    depth[other] = next_depth
                    queue[ready] = other
                    ready += 1
    return nearest < UNREACHED


def _room_up(has: int, was: int, far: int, rise: int) -> int:
    """Give how many units may come onto an arc at no cost by the potentials, which rise so much along it."""
    if has < was:
        return was - has if far * FAR == rise else 0
    return UNREACHED if far * FAR + 1 == rise else 0


def _room_down(has: int, was: int, far: int, rise: int) -> int:
    """Give how many units may leave an arc at no cost; `rise` is that of the arc's own direction."""
    if has > was:
        return has - was if far * FAR + 1 == rise else 0
    return has if far * FAR == rise else 0


def divide(order: Ints, first: int, end: int, base: int, distance: Ints, scratch: Ints) -> int:
    """Put those that were not reached before those that were, each in their order; where the latter begin."""
    kept = reached = 0
    for place in range(first, end):
        item = order[place]
        if distance[base + item] == UNREACHED:
            order[first + kept] = item
            kept += 1
        else:
            scratch[reached] = item
            reached += 1
    for place in range(reached):
        order[first + kept + place] = scratch[place]
    return first + kept


HELPERS: Final = (_price, _start, _reach, _beyond, _room_up, _room_down, _measure)
"""What the steps call, each after those that it calls itself."""
