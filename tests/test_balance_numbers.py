"""Spread, the test for a better assignment, and moves are what their definitions say."""

from __future__ import annotations

from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from assignors.balance import (
    Balance,
    Moves,
    better_assignment_exists,
    moves_between,
    numbers_of,
    topic_spread,
)

_MEMBERS = ("A", "B", "C")


def test_numbers_of_a_lopsided_group() -> None:
    """Loads 4 and 0: spread 4, deviation 2."""
    got = numbers_of({"A": {"t0": [0, 1], "t1": [5, 9]}, "B": {}})
    assert got == Balance(members=2, partitions=4, least=0, most=4, spread=4, standard_deviation=2.0)


def test_numbers_of_an_empty_group_are_zeros() -> None:
    """No member, nothing to divide by."""
    assert numbers_of({}) == Balance(
        members=0, partitions=0, least=0, most=0, spread=0, standard_deviation=0.0
    )


def test_topic_spread_sees_each_topic_alone() -> None:
    """A group can be level in sum and lopsided in each topic."""
    owners = {"A": {"t0": [0, 1, 2]}, "B": {"t1": [0, 1]}}
    both = {"A": {"t0", "t1"}, "B": {"t0", "t1"}}
    assert topic_spread(owners, both) == 3
    assert topic_spread({}, {}) == 0


@settings(max_examples=150, deadline=None)
@given(
    wants=st.lists(st.sets(st.sampled_from(("t0", "t1", "t2"))), min_size=3, max_size=3),
    counts=st.tuples(*[st.integers(0, 3)] * 3),
    dice=st.randoms(use_true_random=False),
)
def test_better_assignment_exists_agrees_with_trying_them_all(
    wants: list[set[str]], counts: tuple[int, int, int], dice: object
) -> None:
    """Against every way to give each topic's partitions to its subscribers."""
    subscribed = dict(zip(_MEMBERS, wants, strict=True))
    takers = [[m for m in _MEMBERS if f"t{t}" in subscribed[m]] for t in range(3)]
    owners: dict[str, dict[str, list[int]]] = {m: {} for m in _MEMBERS}
    units: list[list[str]] = []
    for t, count in enumerate(counts):
        for p in range(count if takers[t] else 0):
            owners[dice.choice(takers[t])].setdefault(f"t{t}", []).append(p)  # type: ignore[attr-defined]
            units.append(takers[t])
    now = sum(sum(map(len, topics.values())) ** 2 for topics in owners.values())
    least = min(sum(choice.count(m) ** 2 for m in _MEMBERS) for choice in product(*units))
    assert better_assignment_exists(owners, subscribed) == (least < now)


def test_a_better_assignment_may_need_a_chain() -> None:
    """A has 3 of t0, B can take t0 for t1, C only takes t1: one step of each levels the group."""
    owners = {"A": {"t0": [0, 1, 2]}, "B": {"t1": [0, 1]}, "C": {"t1": [2]}}
    subscribed = {"A": {"t0"}, "B": {"t0", "t1"}, "C": {"t1"}}
    assert better_assignment_exists(owners, subscribed)
    assert not better_assignment_exists(owners, {**subscribed, "B": {"t1"}})


def test_a_group_without_members_cannot_be_better() -> None:
    """There is nobody to move anything to."""
    assert not better_assignment_exists({}, {})


def test_moves_are_told_apart() -> None:
    """One partition each: kept, moved, revoked to nobody, lost with its owner, new."""
    old = {"A": {"t": [0, 1, 2]}, "B": {"t": [3]}}
    new = {"A": {"t": [0, 4]}, "C": {"t": [1, 3]}}
    assert moves_between(old, new) == Moves(moved=1, kept=1, revoked=2, assigned=3, lost=1)


_ASSIGNMENTS = st.dictionaries(
    st.sampled_from(["A", "B", "C", "D"]),
    st.dictionaries(st.sampled_from(["t", "u"]), st.lists(st.integers(0, 3), max_size=4), max_size=2),
    max_size=4,
)


@given(old=_ASSIGNMENTS, new=_ASSIGNMENTS, renamed=st.sampled_from([{}, {"A": "D"}]))
def test_moves_follow_from_each_partition_s_owners(
    old: dict[str, dict[str, list[int]]], new: dict[str, dict[str, list[int]]], renamed: dict[str, str]
) -> None:
    """Partition by partition, owners before held against owners after give the five counts."""
    counts = dict.fromkeys(("moved", "kept", "revoked", "assigned", "lost"), 0)
    for topic, partition in product(["t", "u"], range(4)):
        had = {renamed.get(m, m) for m, topics in old.items() if partition in topics.get(topic, ())}
        has = {m for m, topics in new.items() if partition in topics.get(topic, ())}
        counts["kept"] += len(had & has)
        counts["assigned"] += len(has - had)
        counts["lost"] += len((had - has) - new.keys())
        counts["revoked"] += len((had - has) & new.keys())
        counts["moved"] += bool((had - has) & new.keys()) and bool(has - had)
    assert moves_between(old, new, renamed) == Moves(**counts)


def test_what_a_static_member_keeps_over_its_restart_is_kept() -> None:
    """Its new member id owns what the old one did: nothing moved."""
    old, new = {"A-1": {"t": [0, 1]}}, {"A-2": {"t": [0, 1]}}
    assert moves_between(old, new, {"A-1": "A-2"}) == Moves(moved=0, kept=2, revoked=0, assigned=0, lost=0)
    assert moves_between(old, new) == Moves(moved=0, kept=0, revoked=0, assigned=2, lost=2)


def test_two_owners_of_one_partition_count_apart() -> None:
    """A share group's partition may stay with one owner and gain another."""
    old, new = {"A": {"t": [0]}, "B": {}}, {"A": {"t": [0]}, "B": {"t": [0]}}
    assert moves_between(old, new) == Moves(moved=0, kept=1, revoked=0, assigned=1, lost=0)
