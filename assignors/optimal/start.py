"""How the flow begins: what nobody owns is poured out, and a class of members has its box of loads.

These functions, as those of steps.py, know lists and arrays alike and are compiled for large groups (kit.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from assignors.optimal.steps import Flows, Ints, Part


def pour(
    topic_starts: Ints, members: Ints, far: Ints, counts: Ints, loads: Ints, free: Ints, order: Ints
) -> None:
    """Add up the loads, and pour each topic's free units onto its least loaded subscribers.

    What lies out of its racks is free, too: the potentials at the start are right for no other counts.
    """
    for arc in range(len(members)):
        if far[arc] == 0:
            loads[members[arc]] += counts[arc]
    for topic in order:
        units = free[topic]
        first, end = topic_starts[topic], topic_starts[topic + 1]
        for arc in range(first, end):
            if far[arc] != 0:
                units += counts[arc]
                counts[arc] = 0
        if units == 0:
            continue
        low = high = -1
        near = 0
        for arc in range(first, end):
            if far[arc] == 0:
                load = loads[members[arc]]
                near += 1
                if low < 0 or load < low:
                    low = load
                if load > high:
                    high = load
        # The highest level to which the units fill everybody; none fills `low`, all would not fill `top`.
        top = high + units // near + 1
        while top - low > 1:
            level = (low + top) // 2
            needed = 0
            for arc in range(first, end):
                if far[arc] == 0 and loads[members[arc]] < level:
                    needed += level - loads[members[arc]]
            if needed <= units:
                low = level
            else:
                top = level
        for arc in range(first, end):
            member = members[arc]
            if far[arc] == 0 and loads[member] < low:
                units -= low - loads[member]
                counts[arc] += low - loads[member]
                loads[member] = low
        for arc in range(first, end):
            member = members[arc]
            if units > 0 and far[arc] == 0 and loads[member] == low:
                units -= 1
                counts[arc] += 1
                loads[member] += 1


def begin(part: Part, loads: Ints, flows: Flows) -> tuple[int, int]:
    """Give a class its box of loads, and to each member's load as much way to the sink as potentials allow.

    `through` is what flows from a member to the sink, within the box. `excess` is what
    a member has beyond that, below 0 what it lacks; its last number is the sink's own.
    """
    number, class_of, member_order, first, end, topic_order, first_topic, end_topic = part
    through, excess, potentials = flows
    many = len(loads)
    width = len(class_of) - many
    total = 0
    for place in range(first, end):
        total += loads[member_order[place]]
    least = total // (end - first)
    most = least if least * (end - first) == total else least + 1
    excess[many] = -total
    for place in range(first, end):
        member = member_order[place]
        class_of[width + member] = number
        slope = potentials[width + member] - potentials[width + many]
        if slope > 0 or (slope == 0 and loads[member] < most):
            through[member] = least
        else:
            through[member] = most
        excess[member] = loads[member] - through[member]
        excess[many] += through[member]
    for place in range(first_topic, end_topic):
        class_of[topic_order[place]] = number
    return least, most
