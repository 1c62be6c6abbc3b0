"""Random groups for the optimal assignor, and what an exact solver of another house says of them.

The solver is OR-tools' minimum-cost flow, asked on counts: a row (a topic, or the partitions of
one that lie in the same racks) gives units to members, at 1 beyond what each owns; a member's
units go to the sink at 1, 3, 5, ... times more than all moves together.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ortools.graph.python import min_cost_flow

from assignors import Subscription, TopicMetadata, TopicPartition
from assignors.optimal import certificate_of, check_certificate, find_optimum

Topics = Mapping[str, TopicMetadata]
Subscriptions = Mapping[str, Subscription]
Owners = Mapping[TopicPartition, str]

_RACKS = ("a", "b", "c", "d")


class Score(NamedTuple):
    """What an assignment is judged by, in this order; less is better."""

    squares: int
    out_of_rack: int
    moved: int


def random_group(rng: random.Random, most_members: int, most_topics: int) -> tuple[Topics, Subscriptions]:
    """Make a group: even and uneven, chains and ladders, racks, orphans, claims that are void or disputed."""
    members = [f"m{place}" for place in range(rng.randint(1, most_members))]
    names = [f"t{place}" for place in range(rng.randint(1, most_topics))]
    has_racks = rng.random() < 0.25
    most = rng.choice((2, 6, 20))
    topics = {name: _topic(rng, most, has_racks) for name in names}
    wanted = rng.choice((_sparse, _sparse, _chain, _ladder))(rng, members, [*names, "unknown"])
    claims = _claims(rng, members, wanted, topics)
    return topics, {
        member: Subscription(
            topics=tuple(wanted[member]),
            owned_partitions=tuple(claims[member]),
            generation_id=rng.choice((-1, 4, 5, 5, 5, 5, 5)),
            rack_id=rng.choice((*_RACKS[:3], None)) if has_racks else None,
        )
        for member in members
    }


def _topic(rng: random.Random, most: int, has_racks: bool) -> TopicMetadata:
    count = rng.randint(0, most)
    numbers = range(count) if rng.random() < 0.9 else tuple(sorted(rng.sample(range(count + 5), count)))
    racks = tuple(tuple(rng.sample(_RACKS, rng.randint(0, 2))) for _ in range(count))
    return TopicMetadata(numbers, racks if has_racks and rng.random() < 0.8 else ())


def _sparse(rng: random.Random, members: list[str], names: list[str]) -> dict[str, list[str]]:
    share = rng.choice((0.05, 0.2, 0.5, 0.9, 1.0))
    return {member: [name for name in names if rng.random() < share] for member in members}


def _chain(rng: random.Random, members: list[str], names: list[str]) -> dict[str, list[str]]:
    """Let each member share a topic with the next one only."""
    return {member: names[place : place + 2] for place, member in enumerate(members)}


def _ladder(rng: random.Random, members: list[str], names: list[str]) -> dict[str, list[str]]:
    """Let each member read all that the one before it reads, and more: as many levels as members."""
    step = rng.randint(1, 3)
    return {member: names[: 1 + step * place] for place, member in enumerate(members)}


def _claims(
    rng: random.Random, members: list[str], wanted: Mapping[str, list[str]], topics: Topics
) -> dict[str, list[TopicPartition]]:
    """Deal owners at random: some to one favourite, some to nobody, some void, some to two."""
    claims: dict[str, list[TopicPartition]] = {member: [] for member in members}
    share, void = rng.choice((0.0, 0.5, 0.9, 1.0)), rng.choice((0.0, 0.0, 0.1))
    for name, topic in topics.items():
        readers = [member for member in members if name in wanted[member]] or members
        favourite = rng.choice(readers)
        for number in topic.partitions:
            if rng.random() < share:
                owner = favourite if rng.random() < 0.5 else rng.choice(readers)
                claims[owner].append(TopicPartition(name, number))
            if rng.random() < void:
                claims[rng.choice(members)].append(TopicPartition(name, number + rng.choice((0, 0, 50))))
    return claims


def owners_before(topics: Topics, subscriptions: Subscriptions) -> dict[TopicPartition, str]:
    """Settle the claims: the highest generation's only claimant, if it subscribes to the topic."""
    claims: dict[TopicPartition, list[tuple[int, str]]] = {}
    for member, subscription in subscriptions.items():
        for pair in subscription.owned_partitions:
            if pair.topic in topics and pair.partition in topics[pair.topic].partitions:
                claims.setdefault(pair, []).append((subscription.generation_id, member))
    owners = {}
    for pair, found in claims.items():
        latest = {member for generation, member in found if generation == max(found)[0]}
        if len(latest) == 1 and pair.topic in subscriptions[min(latest)].topics:
            owners[pair] = min(latest)
    return owners


def is_out_of_rack(topics: Topics, subscriptions: Subscriptions, pair: TopicPartition, member: str) -> bool:
    """Say whether a partition lies in no rack of its member's while another subscriber is in one."""
    topic, rack = topics[pair.topic], subscriptions[member].rack_id
    if not topic.racks or rack is None:
        return False
    lies_in = set(topic.racks[topic.partitions.index(pair.partition)])
    lies_in &= {s.rack_id for s in subscriptions.values() if s.rack_id is not None}
    readers = [s for s in subscriptions.values() if pair.topic in s.topics]
    return (
        bool(lies_in)
        and rack not in lies_in
        and any(s.rack_id is None or s.rack_id in lies_in for s in readers)
    )


def partitions_of(topics: Topics, subscriptions: Subscriptions) -> list[TopicPartition]:
    """List the partitions that somebody reads."""
    read = {name for s in subscriptions.values() for name in s.topics}
    return [TopicPartition(name, p) for name in topics if name in read for p in topics[name].partitions]


def score(topics: Topics, subscriptions: Subscriptions, assignment: Mapping[str, object]) -> Score:
    """Judge an assignment.

    Raises:
        AssertionError: it leaves a partition out, gives one twice or to one who does not subscribe.
    """
    owner: dict[TopicPartition, str] = {}
    for member in assignment:
        for pair in assignment[member]:  # type: ignore[attr-defined]
            assert pair not in owner, f"{pair} is given twice"
            assert pair.topic in subscriptions[member].topics, f"{member} does not read {pair}"
            owner[pair] = member
    assert set(owner) == set(partitions_of(topics, subscriptions)), "not the partitions that are read"
    loads = Counter(owner.values())
    before = owners_before(topics, subscriptions)
    return Score(
        sum(load * load for load in loads.values()),
        sum(is_out_of_rack(topics, subscriptions, pair, member) for pair, member in owner.items()),
        sum(owner[pair] != member for pair, member in before.items()),
    )


def exact_score(topics: Topics, subscriptions: Subscriptions) -> Score:
    """Ask the solver for the best score there is."""
    before = owners_before(topics, subscriptions)
    pairs = partitions_of(topics, subscriptions)
    members = list(subscriptions)
    total = len(pairs)
    out_cost = total + 1
    square_cost = (total + 1) * out_cost
    rows: dict[tuple[object, ...], list[TopicPartition]] = {}
    for pair in pairs:
        out = tuple(is_out_of_rack(topics, subscriptions, pair, member) for member in members)
        rows.setdefault((pair.topic, out), []).append(pair)
    solver = min_cost_flow.SimpleMinCostFlow()
    sink = len(rows) + len(members)
    most = Counter[str]()
    for row, ((topic, out), of_row) in enumerate(rows.items()):
        solver.set_node_supply(row, len(of_row))
        owned = Counter(before.get(pair) for pair in of_row)
        for place, member in enumerate(members):
            if topic in subscriptions[member].topics:
                price = out_cost * out[place]  # type: ignore[index]
                most[member] += len(of_row)
                node = len(rows) + place
                solver.add_arc_with_capacity_and_unit_cost(row, node, owned[member], price)
                solver.add_arc_with_capacity_and_unit_cost(row, node, len(of_row), price + 1)
    for place, member in enumerate(members):
        for unit in range(1, most[member] + 1):
            solver.add_arc_with_capacity_and_unit_cost(
                len(rows) + place, sink, 1, square_cost * (2 * unit - 1)
            )
    solver.set_node_supply(sink, -total)
    assert solver.solve() == solver.OPTIMAL
    squares, rest = divmod(solver.optimal_cost(), square_cost)
    out_of_rack, gained = divmod(rest, out_cost)
    # What is gained beyond what was owned is what was free or disputed, and what was taken.
    return Score(squares, out_of_rack, gained - (total - len(before)))


def find_optimal_differences(
    count: int, seed: int, *, most_members: int = 30, most_topics: int = 40
) -> Iterator[str]:
    """Hold that many random groups against the solver, and their certificates against their check."""
    for number in range(count):
        rng = random.Random(f"{seed}/{number}")
        # Mostly small groups, where every tie and corner comes up; some of full size.
        scale = rng.choice((0.2, 0.2, 0.4, 1.0))
        topics, subscriptions = random_group(rng, int(most_members * scale), int(most_topics * scale))
        optimum = find_optimum(topics, subscriptions)
        found, best = score(topics, subscriptions, optimum.assignment), exact_score(topics, subscriptions)
        faults = check_certificate(certificate_of(optimum), topics, subscriptions, optimum.assignment)
        if found != best or optimum.moved != found.moved or faults:
            yield f"case {seed}/{number}: {found}, told {optimum.moved} moved; exact {best}; {faults[:3]}"
