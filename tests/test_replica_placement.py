"""Partition to brokers, beyond what Kafka's suites try: AdminUtils' circle and KRaft's stripes."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assignors.errors import AssignorError
from assignors.replicas import Broker, JavaRandom, place_replicas, place_striped

SIX_IN_RACKS = [
    Broker(broker_id=i, rack=rack)
    for i, rack in enumerate(["rack1", "rack3", "rack3", "rack2", "rack2", "rack1"])
]


def brokers_of(*racks: str | None) -> list[Broker]:
    """Make brokers 0, 1, ... with these racks."""
    return [Broker(broker_id=i, rack=rack) for i, rack in enumerate(racks)]


def test_added_partitions_continue_the_circle() -> None:
    """Placing four and then six more starts where ten at once would be."""
    brokers = brokers_of(*[None] * 5)
    whole = place_replicas(brokers, partitions=5, replication_factor=3)
    added = place_replicas(brokers, partitions=2, replication_factor=3, start_partition_id=3)
    assert added == {3: whole[3], 4: whole[4]}


def test_start_index_and_shift_turn_the_circle() -> None:
    """The first leader stands at the index; the followers begin behind it by the shift."""
    placed = place_replicas(
        brokers_of(*[None] * 4), partitions=1, replication_factor=2, start_index=2, start_shift=1
    )
    assert placed == {0: (2, 0)}


@pytest.mark.parametrize(
    ("partitions", "replication_factor", "message"),
    [
        (0, 1, "partitions is 0; it must be 1 or more"),
        (-1, 1, "partitions is -1"),
        (1, 0, "replication factor is 0; it must be 1 or more"),
        (1, 7, "replication factor is 7; there are only 6 brokers"),
    ],
)
def test_impossible_wishes_are_refused(partitions: int, replication_factor: int, message: str) -> None:
    """Each error says the value that was found."""
    with pytest.raises(AssignorError, match=message):
        place_replicas(SIX_IN_RACKS, partitions=partitions, replication_factor=replication_factor)


def test_racks_are_known_for_all_brokers_or_for_none() -> None:
    """The error names the brokers that have none."""
    with pytest.raises(AssignorError, match=r"brokers \[1\] have no rack while others do"):
        place_replicas(brokers_of("a", None), partitions=1, replication_factor=1)


@settings(max_examples=60, deadline=None)
@given(
    racks=st.lists(st.sampled_from("abc"), min_size=1, max_size=8),
    replication_factor=st.integers(1, 8),
    start=st.integers(0, 9),
)
def test_replicas_are_distinct_and_spread_over_racks(
    racks: list[str], replication_factor: int, start: int
) -> None:
    """Each rack holds one if there are enough replicas, and at most one if there are too few."""
    brokers = brokers_of(*racks)
    replication_factor = min(replication_factor, len(brokers))
    placed = place_replicas(
        brokers, partitions=9, replication_factor=replication_factor, start_index=start, start_shift=start
    )
    for replicas in placed.values():
        assert len(set(replicas)) == replication_factor
        per_rack = Counter(racks[broker] for broker in replicas)
        if replication_factor >= len(set(racks)):
            assert set(per_rack) == set(racks)
        else:
            assert max(per_rack.values()) == 1


def test_javas_random_numbers_come_from_its_seed() -> None:
    """Powers of two are drawn from the high bits, others by remainder."""
    dice = JavaRandom(0)
    assert [dice.next_int(100) for _ in range(3)] == [60, 48, 29]
    dice = JavaRandom(0)
    assert [dice.next_int(16) for _ in range(3)] == [11, 13, 3]


def test_a_remainder_that_would_not_be_fair_is_drawn_again() -> None:
    """With a bound of 2**30 + 1 nearly half of the draws are thrown away."""
    bound = 2**30 + 1
    drawn = [JavaRandom(seed).next_int(bound) for seed in range(50)]
    assert all(0 <= number < bound for number in drawn)
    assert JavaRandom(3).next_int(bound) == 152454210


@settings(max_examples=60, deadline=None)
@given(
    racks=st.lists(st.sampled_from(("a", "b", "c", None)), min_size=1, max_size=8),
    fenced=st.sets(st.integers(1, 7)),
    seed=st.integers(-(2**63), 2**63 - 1),
)
def test_fenced_brokers_never_lead(racks: list[str | None], fenced: set[int], seed: int) -> None:
    """Stripes give distinct replicas, unfenced leaders, and each leader its turn."""
    brokers = [Broker(broker_id=i, rack=rack, is_fenced=i in fenced) for i, rack in enumerate(racks)]
    placed = place_striped(brokers, partitions=10, replication_factor=min(3, len(brokers)), seed=seed)
    assert not {replicas[0] for replicas in placed} & fenced
    assert all(len(set(replicas)) == len(replicas) == min(3, len(brokers)) for replicas in placed)
