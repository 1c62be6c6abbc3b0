"""The optimal assignor: the most even loads that subscriptions allow, with the fewest partitions moved.

Kafka's sticky assignors promise neither where members subscribe to different topics. Here, in this
order: the least sum of squared loads, the fewest partitions on members out of their racks, the fewest
partitions taken from a live member that still subscribes to them. All three are exact and the answer
comes with a proof (certificate.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from assignors.model import Assignment, AssignorMemory, Subscription, TopicMetadata
from assignors.optimal.certificate import Certificate, LoadClass
from assignors.optimal.flow import optimal_counts
from assignors.optimal.group import read_group
from assignors.optimal.small import assign_small_equals

if TYPE_CHECKING:
    from assignors.optimal.certificate import Row
    from assignors.optimal.flow import Counts
    from assignors.optimal.group import Group
    from assignors.optimal.steps import Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimum:
    """An optimal assignment, and what it takes.

    `moved` counts partitions taken from a live member that subscribes to them;
    `kept` those that stay. `owner` is by code, as `group.owner`, which is the one before;
    `counts` is None where all subscribe alike.
    """

    assignment: Assignment
    moved: int
    kept: int
    group: Group
    owner: Ints
    counts: Counts | None


def find_optimum(
    topics: Mapping[str, TopicMetadata],
    subscriptions: Mapping[str, Subscription],
    previous: Assignment | None = None,
) -> Optimum:
    """Find an optimal assignment.

    Args:
        topics: topic -> its partitions and racks; a subscribed topic absent here is skipped.
        subscriptions: member_id -> Subscription, in any order. `owned_partitions` are
            settled by generation: the highest wins a partition, and of two with the same
            neither has it.
        previous: who owns what, instead of `owned_partitions`: it spares making and
            reading a tuple for each partition.

    Raises:
        AssignorError: there is no member.
    """
    group = read_group(topics, subscriptions, previous)
    kit, many = group.kit, len(group.members)
    counts = None
    if group.wanted is None:
        owner = kit.numbers(group.owner)
        scratch = [kit.filled(many, 0) for _ in range(4)]
        kit.do["level"](owner, *scratch)
    else:
        arcs = group.arcs()
        free = kit.filled(len(group.rows), 0)
        kit.do["count_owned"](
            *(group.code_starts, arcs.topic_starts, arcs.members, group.owner),
            *(arcs.owned, free, kit.filled(many, -1)),
        )
        counts = optimal_counts(arcs, free, kit)
        owner = kit.numbers(group.owner)
        kit.do["hand_out"](
            *(group.code_starts, arcs.topic_starts, arcs.members, counts.counts, owner),
            *(kit.filled(many, 0), kit.filled(many, 0)),
        )
    moved, kept = kit.do["count_moves"](group.owner, owner)
    return Optimum(
        assignment=listed(group, owner, len(owner)),
        moved=moved,
        kept=kept,
        group=group,
        owner=owner,
        counts=counts,
    )


def listed(group: Group, owner: Ints, given: int) -> Assignment:
    """Make an Assignment of the owners by code, -1 for nobody; `given` of them are somebody's."""
    kit, many = group.kit, len(group.members)
    starts, starts_made = kit.room(many + 1)
    topics, topics_made = kit.room(given)
    numbers, numbers_made = kit.room(given)
    kit.do["list_by_member"](
        *(owner, group.order, group.topic_of, group.number_of),
        *(starts_made, kit.filled(many, 0), topics_made, numbers_made),
    )
    by_name = Assignment(group.members, group.topics, starts, topics, numbers)
    return by_name.in_order(group.join_order)


def assign_optimal(
    topics: Mapping[str, TopicMetadata],
    subscriptions: Mapping[str, Subscription],
    memory: AssignorMemory | None = None,
) -> Assignment:
    """Balance partitions over members as evenly as subscriptions allow, moving as few as that takes.

    Args:
        topics: topic -> its partitions and racks; a subscribed topic absent here is skipped.
        subscriptions: member_id -> Subscription; see find_optimum.
        memory: not used: nothing is remembered.

    Returns:
        member_id -> its partitions by (topic, partition); every member is a key.

    Raises:
        AssignorError: there is no member.

    >>> topics = {"t0": TopicMetadata.of_count(2), "t1": TopicMetadata.of_count(4)}
    >>> wants = {"m0": ("t1",), "m1": ("t0", "t1"), "m2": ("t0",)}
    >>> assign_optimal(topics, {m: Subscription(topics=t) for m, t in wants.items()}).loads()
    {'m0': 2, 'm1': 2, 'm2': 2}
    """
    assignment = assign_small_equals(topics, subscriptions)
    return find_optimum(topics, subscriptions).assignment if assignment is None else assignment


def assign_optimal_cooperative(
    topics: Mapping[str, TopicMetadata],
    subscriptions: Mapping[str, Subscription],
    memory: AssignorMemory | None = None,
) -> Assignment:
    """Take the first of two steps to an optimal assignment: give what no other member says it owns.

    Whoever has the better claim, a partition that another live member claims is withheld
    until that one has let go; the rebalance that follows gives it out.

    Args, returns and raises as assign_optimal.

    Source: KIP-429 for the two steps.

    >>> from assignors.model import TopicPartition
    >>> owned = (TopicPartition("t0", 0), TopicPartition("t0", 1))
    >>> owner = Subscription(topics=("t0",), owned_partitions=owned, generation_id=1)
    >>> got = assign_optimal_cooperative(
    ...     {"t0": TopicMetadata.of_count(2)}, {"C0": owner, "C1": Subscription(topics=("t0",))}
    ... )
    >>> got.by_topic("C0"), got.by_topic("C1")
    ({'t0': [0]}, {})
    """
    optimum = find_optimum(topics, subscriptions)
    group = optimum.group
    owner = group.kit.numbers(optimum.owner)
    withheld = group.kit.do["withhold"](group.claims.codes, group.claims.claimants, owner)
    return listed(group, owner, len(owner) - withheld) if withheld else optimum.assignment


def certificate_of(optimum: Optimum) -> Certificate:
    """Write down why an assignment is optimal."""
    group, counts = optimum.group, optimum.counts
    names: list[Row] = [(group.topics[topic], tuple(sorted(racks))) for topic, racks in group.rows]
    if counts is None:
        return _certificate_of_equals(optimum, names)
    width = len(names)
    classes = []
    for first, end, first_row, end_row, least, most, potential in counts.classes:
        members = sorted(counts.member_order[first:end])
        rows = sorted(counts.topic_order[first_row:end_row])
        classes.append(
            LoadClass(
                least=int(least),
                most=int(most),
                potential=int(potential),
                members={group.members[m]: int(counts.potentials[width + m]) for m in members},
                rows={names[row]: int(counts.potentials[row]) for row in rows},
            )
        )
    return Certificate(tuple(classes))


def _certificate_of_equals(optimum: Optimum, rows: list[Row]) -> Certificate:
    """Give the potentials where all subscribe alike: 0 to who lost partitions, 1 to who gained any."""
    group = optimum.group
    owned, loads = Counter(group.owner), Counter(optimum.owner)
    least, rest = divmod(len(optimum.owner), len(group.members))
    most = least + (1 if rest else 0)
    lost_down = any(owned[m] > loads[m] and loads[m] < most for m in range(len(group.members)))
    potential = 0 if lost_down else 1
    members = {}
    for place, member in enumerate(group.members):
        change = loads[place] - owned[place]
        members[member] = 0 if change < 0 else 1 if change > 0 else potential
    return Certificate(
        (
            LoadClass(
                least=least, most=most, potential=potential, members=members, rows=dict.fromkeys(rows, 0)
            ),
        )
    )
