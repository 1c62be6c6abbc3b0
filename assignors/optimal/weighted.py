"""Partitions that weigh unequally: bytes or records a second, or lag, balanced within a budget of moves.

To even out weights is NP-hard, so the answer is not proven optimal; it comes with how far it may be
from the best: the highest load, next to the least that it could be if partitions could be cut into
pieces, which the count flow finds exactly, or to the heaviest partition where that is more. Two starts are
improved by moves and swaps: everybody keeps what it owns and the rest goes heaviest first to the least
loaded; and the optimum by number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite

from assignors.errors import AssignorError
from assignors.model import Assignment, Subscription, TopicMetadata
from assignors.optimal.assignor import find_optimum, listed
from assignors.optimal.flow import Arcs, optimal_counts
from assignors.optimal.group import Group, read_group
from assignors.optimal.kit import PLAIN

Weights = Mapping[str, Sequence[float]]
"""topic -> the weight of each of its partitions, in the order of TopicMetadata.partitions."""

_UNITS = 1 << 30
"""All weights together in whole units, so that sums do not depend on their order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedAssignment:
    """Who owns what, and how good that is.

    `loads` are sums of weights by member; `bound` is below what the highest load could be
    at best (see find_bound), `distance` how far the highest is above it (0.05 is 5 %).
    `moved` counts partitions taken from a live member that subscribes.
    """

    assignment: Assignment
    loads: Mapping[str, float]
    bound: float
    distance: float
    moved: int


def assign_weighted(
    topics: Mapping[str, TopicMetadata],
    subscriptions: Mapping[str, Subscription],
    weights: Weights,
    previous: Assignment | None = None,
    *,
    most_moves: int | None = None,
    hysteresis: float = 0.0,
) -> WeightedAssignment:
    """Even out the members' sums of weights.

    Args:
        topics: topic -> its partitions; racks are not looked at.
        subscriptions: member_id -> Subscription; as find_optimum has them.
        weights: a topic that is absent weighs 1 a partition.
        previous: who owns what, instead of `owned_partitions`.
        most_moves: how many partitions may be taken from live members; None for any number.
        hysteresis: while the highest load is above its bound by no more than this
            share (0.1 is 10 %), nothing is taken from anybody. With 0 the heaviest partition
            does not count for that, so that those who do not have it are evened out too.

    Raises:
        AssignorError: there is no member, a weight is negative or no number, or a topic
            has another number of weights than partitions.
    """
    plain = _without_racks(subscriptions)
    group = read_group(topics, plain, previous)
    exact = _weights_of(group, topics, weights)
    total, units = _in_units(exact)
    arcs = group.arcs()
    of_pieces = _bound(group, arcs, units)
    bound = max(of_pieces, *units, 0)
    enough = bound * (1 + hysteresis) if hysteresis else of_pieces
    budget = len(units) if most_moves is None else most_moves
    search = _Search(group, arcs, units)
    kept = search.improve(search.filled(), budget, enough)
    best = kept
    if kept.highest > enough:
        optimum = find_optimum(topics, plain, previous)
        if optimum.moved <= budget:
            other = search.improve(_Standing(search, list(map(int, optimum.owner))), budget, enough)
            best = min(kept, other, key=lambda found: (found.squares, found.moved))
    loads = [0.0] * len(group.members)
    for code, member in enumerate(best.owner):
        loads[member] += exact[code]
    highest = max(loads)
    floor = bound / _UNITS * total
    return WeightedAssignment(
        assignment=listed(group, group.kit.numbers(best.owner), len(best.owner)),
        loads=dict(zip(group.members, loads, strict=True)),
        bound=floor,
        # The bound is in whole units, so that it can be above by a rounding.
        distance=max(0.0, highest / floor - 1) if floor else 0.0,
        moved=best.moved,
    )


def find_bound(
    topics: Mapping[str, TopicMetadata], subscriptions: Mapping[str, Subscription], weights: Weights
) -> float:
    """Find what no assignment's highest load can be below: partitions cut at will, or the heaviest one.

    Takes and raises what assign_weighted does. The result is right to a billionth of all weights together.
    """
    group = read_group(topics, _without_racks(subscriptions), None)
    total, units = _in_units(_weights_of(group, topics, weights))
    return max(_bound(group, group.arcs(), units), *units, 0) / _UNITS * total


def _without_racks(subscriptions: Mapping[str, Subscription]) -> dict[str, Subscription]:
    return {
        member: Subscription(
            topics=s.topics, owned_partitions=s.owned_partitions, generation_id=s.generation_id
        )
        for member, s in subscriptions.items()
    }


def _in_units(exact: Sequence[float]) -> tuple[float, list[int]]:
    """Give the sum of the weights, and each as its part of _UNITS."""
    total = sum(exact)
    return total, [round(weight / total * _UNITS) if total else 0 for weight in exact]


def _weights_of(group: Group, topics: Mapping[str, TopicMetadata], weights: Weights) -> list[float]:
    by_topic: list[dict[int, float]] = []
    for name in group.topics:
        numbers = topics[name].partitions
        given = weights.get(name, (1.0,) * len(numbers))
        if len(given) != len(numbers):
            raise AssignorError(
                f"weights: {name!r} has {len(given)} for {len(numbers)} partitions; it must have one for each"
            )
        for number, weight in zip(numbers, given, strict=True):
            if not (isfinite(weight) and weight >= 0):
                raise AssignorError(f"weights: {name}-{number} has {weight!r}; it must be a number from 0")
        by_topic.append(dict(zip(numbers, map(float, given), strict=True)))
    return [by_topic[topic][number] for topic, number in zip(group.topic_of, group.number_of, strict=True)]


def _bound(group: Group, arcs: Arcs, units: Sequence[int]) -> int:
    """Find the least highest load if partitions could be cut: the count flow over units of weight."""
    free = group.kit.filled(len(group.rows), 0)
    for row in range(len(group.rows)):
        free[row] = sum(units[group.code_starts[row] : group.code_starts[row + 1]])
    loads = optimal_counts(arcs, free, group.kit).loads
    return max(map(int, loads), default=0)


class _Search:
    """What all standings of one group have in common."""

    def __init__(self, group: Group, arcs: Arcs, units: Sequence[int]) -> None:
        self.units = units
        self.home = list(map(int, group.owner))
        self.row_of = PLAIN.spread(
            [group.code_starts[row + 1] - group.code_starts[row] for row in range(len(group.rows))]
        )
        self.readers = [
            [int(m) for m in arcs.members[arcs.topic_starts[row] : arcs.topic_starts[row + 1]]]
            for row in range(len(group.rows))
        ]
        rows: list[set[int]] = [set() for _ in group.members]
        for row, members in enumerate(self.readers):
            for member in members:
                rows[member].add(row)
        self.rows_of = [frozenset(of_member) for of_member in rows]
        self.many = len(group.members)
        for code, member in enumerate(self.home):
            if member >= 0 and self.row_of[code] not in self.rows_of[member]:
                self.home[code] = -1

    def filled(self) -> _Standing:
        """Give what nobody owns, heaviest first, to the least loaded subscriber, or to who has fewest."""
        standing = _Standing(self, list(self.home))
        free = [code for code, member in enumerate(self.home) if member < 0]
        for code in sorted(free, key=lambda code: (-self.units[code], code)):
            standing.give(
                code,
                min(
                    self.readers[self.row_of[code]],
                    key=lambda m: (standing.loads[m], len(standing.held[m]), m),
                ),
            )
        return standing

    def improve(self, standing: _Standing, budget: int, enough: float) -> _Standing:
        """Move and swap until nothing helps, the budget is spent or the highest load is low enough."""
        while standing.highest > enough and standing.step(budget):
            pass
        return standing


class _Standing:
    """Who owns what at one point of the search; `owner` by code, -1 for nobody yet."""

    def __init__(self, search: _Search, owner: list[int]) -> None:
        self._search = search
        self.owner = owner
        self.loads = [0] * search.many
        self.held: list[set[int]] = [set() for _ in range(search.many)]
        self.moved = 0
        for code, member in enumerate(owner):
            if member >= 0:
                self.loads[member] += search.units[code]
                self.held[member].add(code)
                self.moved += self._is_away(code, member)

    @property
    def highest(self) -> int:
        """The highest load."""
        return max(self.loads)

    @property
    def squares(self) -> int:
        """The sum of squared loads."""
        return sum(load * load for load in self.loads)

    def _is_away(self, code: int, member: int) -> bool:
        return self._search.home[code] not in (-1, member)

    def give(self, code: int, member: int) -> None:
        """Give a partition to a member, from whoever has it."""
        before, weight = self.owner[code], self._search.units[code]
        if before >= 0:
            self.loads[before] -= weight
            self.held[before].remove(code)
            self.moved -= self._is_away(code, before)
        self.owner[code] = member
        self.loads[member] += weight
        self.held[member].add(code)
        self.moved += self._is_away(code, member)

    def step(self, budget: int) -> bool:
        """Make the best move or swap that takes load off the most loaded member that can be helped."""
        for member in sorted(range(self._search.many), key=lambda m: (-self.loads[m], m)):
            found = self._best(member, budget)
            if found is not None:
                for code, to in found:
                    self.give(code, to)
                return True
        return False

    def _best(self, giver: int, budget: int) -> list[tuple[int, int]] | None:
        """Find the best move away from a member, or else the best swap: [(code, to whom), ...]."""
        search = self._search
        moves: list[tuple[float, int, int]] = []
        for code in sorted(self.held[giver]):
            for taker in search.readers[search.row_of[code]]:
                apart = self.loads[giver] - self.loads[taker]
                cost = self._is_away(code, taker) - self._is_away(code, giver)
                if 0 < search.units[code] < apart and self.moved + cost <= budget:
                    moves.append((-_gain(search.units[code], apart, cost), code, taker))
        if moves:
            _, code, taker = min(moves)
            return [(code, taker)]
        swaps: list[tuple[float, int, int, int]] = []
        for code in sorted(self.held[giver]):
            for taker in search.readers[search.row_of[code]]:
                apart = self.loads[giver] - self.loads[taker]
                if apart <= 1:
                    continue
                cost = self._is_away(code, taker) - self._is_away(code, giver)
                for back in self.held[taker]:
                    shift = search.units[code] - search.units[back]
                    if 0 < shift < apart and search.row_of[back] in search.rows_of[giver]:
                        both = cost + self._is_away(back, giver) - self._is_away(back, taker)
                        if self.moved + both <= budget:
                            swaps.append((-_gain(shift, apart, both), code, back, taker))
        if not swaps:
            return None
        _, code, back, taker = min(swaps)
        return [(code, taker), (back, giver)]


def _gain(shift: int, apart: int, cost: int) -> float:
    """Rate a shift of load by how much the sum of squares falls for each partition that it moves."""
    fall = 2 * shift * (apart - shift)
    return fall / cost if cost > 0 else 2.0 * fall if cost == 0 else inf
