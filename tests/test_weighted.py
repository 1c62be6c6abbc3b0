"""Partitions that weigh unequally are balanced by weight, within a budget, and nobody moves for little."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assignors import Assignment, AssignorError, Subscription, TopicMetadata
from assignors.optimal import assign_weighted, find_bound, find_optimum
from tests.parity.optimal import Subscriptions, Topics, random_group, score
from tests.test_optimal import readers, topics_of

groups = st.randoms(use_true_random=False).map(lambda rng: random_group(rng, 6, 6))


def loads_of(assignment: Assignment, weights: dict[str, list[float]]) -> dict[str, float]:
    """Add up what each member has, where partitions are numbered from 0."""
    return {member: sum(weights[t][p] for t, p in pairs) for member, pairs in assignment.items()}


def random_weights(topics: Topics, rng: random.Random) -> dict[str, list[float]]:
    """Weigh partitions from nothing to a thousand, few of them heavy."""
    return {
        name: [rng.choice((0, 1, 1, 2, 5, 1000)) * rng.random() for _ in topic.partitions]
        for name, topic in topics.items()
    }


def test_heavy_partitions_are_kept_apart() -> None:
    """Two heavy and four light ones at two members: one heavy and two light each, not three and three."""
    topics, weights = topics_of(t=6), {"t": [10.0, 10.0, 1.0, 1.0, 1.0, 1.0]}
    found = assign_weighted(topics, readers(a="t", b="t"), weights)
    assert found.loads == {"a": 12.0, "b": 12.0} == loads_of(found.assignment, weights)
    assert (found.bound, found.distance, found.moved) == (pytest.approx(12), pytest.approx(0, abs=1e-6), 0)


def test_one_partition_that_outweighs_all_is_no_fault_of_the_assignment() -> None:
    """No load can be below the heaviest partition; with a hysteresis nobody moves others about for it."""
    topics, weights = topics_of(t=5), {"t": [100.0, 1.0, 1.0, 1.0, 1.0]}
    found = assign_weighted(topics, readers(a="t", b="t"), weights)
    assert sorted(found.loads.values()) == [4.0, 100.0]
    assert (found.bound, found.distance) == (pytest.approx(100), pytest.approx(0, abs=1e-6))
    before = Assignment.of({"a": [("t", 0)], "b": [("t", 1), ("t", 2), ("t", 3)], "c": [("t", 4)]})
    members = readers(a="t", b="t", c="t")
    assert assign_weighted(topics, members, weights, before, hysteresis=0.1).moved == 0
    assert assign_weighted(topics, members, weights, before).moved == 1


@pytest.mark.parametrize("scale", [5e-324, 1e-300, 1e18])
def test_weights_may_be_tiny_or_huge(scale: float) -> None:
    """What counts is how weights compare: the smallest numbers there are neither vanish nor overflow."""
    members = readers(a="t", b="t")
    found = assign_weighted(topics_of(t=4), members, {"t": [scale] * 4})
    assert set(found.loads.values()) == {2 * scale}
    assert find_bound(topics_of(t=4), members, {"t": [scale] * 4}) == found.bound == 2 * scale


def test_a_budget_is_kept_and_spent_where_it_helps_most() -> None:
    """With one move allowed the heaviest that fits goes; with none, nothing does."""
    topics, weights = topics_of(t=5), {"t": [8.0, 4.0, 2.0, 1.0, 1.0]}
    before = Assignment.of({"a": [("t", p) for p in range(5)], "b": []})
    members = readers(a="t", b="t")
    none = assign_weighted(topics, members, weights, before, most_moves=0)
    assert (none.moved, none.loads) == (0, {"a": 16.0, "b": 0.0})
    one = assign_weighted(topics, members, weights, before, most_moves=1)
    assert (one.moved, one.loads) == (1, {"a": 8.0, "b": 8.0})


def test_hysteresis_leaves_what_is_good_enough() -> None:
    """11 against 9 is 10 % above the bound: with more allowed nobody moves, with less they do."""
    topics, weights = topics_of(t=20), {"t": [1.0] * 20}
    before = Assignment.of({"a": [("t", p) for p in range(11)], "b": [("t", p) for p in range(11, 20)]})
    members = readers(a="t", b="t")
    assert assign_weighted(topics, members, weights, before, hysteresis=0.11).moved == 0
    assert assign_weighted(topics, members, weights, before, hysteresis=0.09).moved == 1


@given(groups, st.randoms(use_true_random=False), st.none() | st.integers(0, 5))
def test_laws(group: tuple[Topics, Subscriptions], rng: random.Random, most_moves: int | None) -> None:
    """All partitions are given once to subscribers, no more than the budget moves, no bound is beaten."""
    topics, subscriptions = group
    plain = {
        m: Subscription(topics=s.topics, owned_partitions=s.owned_partitions, generation_id=s.generation_id)
        for m, s in subscriptions.items()
    }
    weights = random_weights(topics, rng)
    found = assign_weighted(topics, plain, weights, most_moves=most_moves)
    moved = score(topics, plain, found.assignment).moved
    assert moved == found.moved
    assert most_moves is None or moved <= most_moves
    assert found.distance >= 0
    assert max(found.loads.values()) >= found.bound * (1 - 1e-6)
    again = assign_weighted(topics, plain, weights, most_moves=most_moves)
    assert dict(again.assignment.items()) == dict(found.assignment.items())


@given(groups)
def test_equal_weights_are_balanced_as_well_as_by_number(group: tuple[Topics, Subscriptions]) -> None:
    """With every weight one and no budget the loads are the optimum's."""
    topics, subscriptions = group
    plain = {m: Subscription(topics=s.topics) for m, s in subscriptions.items()}
    found = assign_weighted(topics, plain, {})
    best = find_optimum(topics, plain).assignment.loads()
    assert sum(n * n for n in map(len, found.assignment.values())) == sum(n * n for n in best.values())


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        ({"t": [1.0]}, "'t' has 1 for 2 partitions"),
        ({"t": [1.0, -1.0]}, "t-1 has -1.0; it must be a number from 0"),
        ({"t": [float("nan"), 1.0]}, "t-0 has nan"),
    ],
)
def test_weights_that_are_none_are_named(weights: dict[str, list[float]], words: str) -> None:
    """Which topic or partition, what was found, what is allowed."""
    with pytest.raises(AssignorError, match=words):
        assign_weighted({"t": TopicMetadata.of_count(2)}, readers(a="t"), weights)
