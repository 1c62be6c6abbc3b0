"""What Kafka's own suites try out on the placing of replicas, answered by us and by Kafka.

Written from what AdminRackAwareTest (of AdminUtils, up to Kafka 4.0) and
StripedReplicaPlacerTest (of 4.3.1) test. Each test runs twice: on this project, and on the
Java classes, where they can be built; so the answers written down here are Kafka's.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from assignors import replicas
from assignors.errors import AssignorError
from assignors.replicas import Broker, JavaRandom, place_replicas, place_striped

Placed = dict[int, tuple[int, ...]]
"""partition -> broker ids, the leader first."""

Circle = Callable[..., list[Placed] | str]
"""(brokers, partitions, replication_factor, start, start_partition_id) -> placements, or a refusal.

One placement where `start` is given. Where it is None Kafka draws the leader's start and the
followers' shift: ours are then all that could be drawn, Kafka's a number of its draws.
"""

Striped = Callable[..., list[tuple[int, ...]] | str]
"""(brokers, partitions, replication_factor) -> the brokers of each partition, or a refusal."""

_REFUSALS = {
    "no partitions": ("partitions is", "InvalidPartitionsException: "),
    "no replicas": (
        r"replication factor is (0|-\d+); it must be 1 or more",
        r"InvalidReplicationFactorException: .*(must be larger than 0|must be positive)",
    ),
    "too few brokers": (
        "replication factor is .* only",
        "InvalidReplicationFactorException: .*(larger than available|only 2 broker)",
    ),
    "all fenced": ("all . brokers are fenced", "InvalidReplicationFactorException: All brokers are .*fenced"),
    "racks missing": (
        r"brokers \[4\] have no rack while others do",
        "AdminOperationException: Not all brokers",
    ),
}
"""Why a wish is refused -> how ours says so, how Kafka does."""

_DRAWS = 40
"""How often Kafka is asked where its own random numbers decide."""

_SIX = "0=rack1 1=rack2 2=rack2 3=rack3 4=rack3 5=rack1"
"""Three racks of two brokers each, as most of AdminRackAwareTest has them."""


def _brokers(text: str) -> list[Broker]:
    """Read "3=rack1 4 5=rack2,fenced": ids, and rack and state where they are given."""
    found = re.finditer(r"(?P<id>\d+)(?:=(?P<rack>\w+))?(?P<fenced>,fenced)?(?: |$)", text)
    return [
        Broker(broker_id=int(each["id"]), rack=each["rack"], is_fenced=each["fenced"] is not None)
        for each in found
    ]


def _case(kind: str, brokers: str, partitions: int, replication_factor: int, **more: Any) -> dict[str, Any]:
    described = [{"id": b.broker_id, "rack": b.rack, "fenced": b.is_fenced} for b in _brokers(brokers)]
    counts = {"partitions": partitions, "replication_factor": replication_factor}
    return {"id": 0, "assignor": kind, "brokers": described, **counts, **more}


def _refusal(message: str, is_kafkas: bool) -> str:
    (reason,) = (reason for reason, patterns in _REFUSALS.items() if re.match(patterns[is_kafkas], message))
    return reason


def _all_in_a_circle(
    brokers: str, partitions: int, replication_factor: int, start: int | None, start_partition_id: int
) -> Iterator[Placed]:
    """Place from the given start, which is index and shift, or from each pair that can be drawn."""
    everywhere = range(len(_brokers(brokers)))
    starts = itertools.product(everywhere, repeat=2) if start is None else [(start, start)]
    for start_index, start_shift in starts:
        yield place_replicas(
            _brokers(brokers),
            partitions=partitions,
            replication_factor=replication_factor,
            start_index=start_index,
            start_shift=start_shift,
            start_partition_id=start_partition_id,
        )


@pytest.fixture(params=["ours", pytest.param("kafka", marks=pytest.mark.oracle)])
def circle(request: pytest.FixtureRequest) -> Circle:
    """Give who places in a circle: this project, or Kafka's AdminUtils."""

    def answer(
        brokers: str,
        partitions: int,
        replication_factor: int,
        start: int | None = None,
        start_partition_id: int = -1,
    ) -> list[Placed] | str:
        if request.param == "ours":
            try:
                placed = _all_in_a_circle(brokers, partitions, replication_factor, start, start_partition_id)
                return list(placed)
            except AssignorError as error:
                return _refusal(str(error.args[0]), is_kafkas=False)
        drawn = {"start": -1 if start is None else start, "start_partition": start_partition_id}
        case = _case("circle-placer", brokers, partitions, replication_factor, **drawn)
        answers = [request.getfixturevalue("oracle").ask(case) for _ in range(_DRAWS if start is None else 1)]
        if "error" in answers[0]:
            return _refusal(f"{answers[0]['error']}: {answers[0]['message']}", is_kafkas=True)
        return [{int(p): tuple(owners) for p, owners in given["result"].items()} for given in answers]

    return answer


class _LinearDice(JavaRandom):
    """The numbers that StripedReplicaPlacerTest draws: a linear congruence over 64 bits, from 17."""

    MULTIPLIER, INCREMENT, SEED = 2862933555777941757, 3037000493, 17

    def __init__(self, seed: int) -> None:
        self._state = seed

    def _next_31(self) -> int:
        self._state = (self._state * self.MULTIPLIER + self.INCREMENT) % 2**64
        return self._state >> 33


@pytest.fixture(params=["ours", pytest.param("kafka", marks=pytest.mark.oracle)])
def striped(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Striped:
    """Give who places in stripes, with the dice of Kafka's suite: this project, or Kafka's own class."""
    monkeypatch.setattr(replicas, "JavaRandom", _LinearDice)

    def answer(brokers: str, partitions: int, replication_factor: int) -> list[tuple[int, ...]] | str:
        if request.param == "ours":
            try:
                return place_striped(
                    _brokers(brokers),
                    partitions=partitions,
                    replication_factor=replication_factor,
                    seed=_LinearDice.SEED,
                )
            except AssignorError as error:
                return _refusal(str(error.args[0]), is_kafkas=False)
        dice = {"multiplier": _LinearDice.MULTIPLIER, "increment": _LinearDice.INCREMENT}
        case = _case(
            "striped-placer", brokers, partitions, replication_factor, seed=_LinearDice.SEED, dice=dice
        )
        given = request.getfixturevalue("oracle").ask(case)
        if "error" in given:
            return _refusal(f"{given['error']}: {given['message']}", is_kafkas=True)
        return [tuple(owners) for owners in given["result"]["partitions"]]

    return answer


def _only(placements: list[Placed] | str) -> list[tuple[int, ...]]:
    """Give the one placement's brokers, partition by partition from 0."""
    assert isinstance(placements, list)
    (placed,) = placements
    assert list(placed) == list(range(len(placed)))
    return list(placed.values())


def _spread(placements: list[Placed] | str, brokers: str) -> Iterator[tuple[list[int], list[int], set[int]]]:
    """Give of each placement: each broker's leaders, its replicas, and in how many racks a partition is.

    A broker twice in one partition fails here.
    """
    assert isinstance(placements, list)
    assert placements
    rack_by_broker = {b.broker_id: b.rack for b in _brokers(brokers)}
    for placed in placements:
        assert all(len(set(owners)) == len(owners) for owners in placed.values())
        leaders = Counter(owners[0] for owners in placed.values())
        held = Counter(broker for owners in placed.values() for broker in owners)
        racks = {len({rack_by_broker[broker] for broker in owners}) for owners in placed.values()}
        yield [leaders[b] for b in rack_by_broker], [held[b] for b in rack_by_broker], racks


def test_the_circle_alternates_between_racks(circle: Circle) -> None:
    """AdminRackAwareTest: leaders follow the racks in turns, with five brokers as with six."""
    six = "0=rack1 1=rack3 2=rack3 3=rack2 4=rack2 5=rack1"
    assert _only(circle(six, 6, 1, 0)) == [(0,), (3,), (1,), (5,), (4,), (2,)]
    assert _only(circle(six.removesuffix(" 5=rack1"), 5, 1, 0)) == [(0,), (3,), (1,), (4,), (2,)]
    assert _only(circle(six, 7, 3, 0, 0)) == [
        (0, 3, 1),
        (3, 1, 5),
        (1, 5, 4),
        (5, 4, 2),
        (4, 2, 0),
        (2, 0, 3),
        (0, 4, 2),
    ]


def test_each_partition_in_each_rack(circle: Circle) -> None:
    """AdminRackAwareTest: six partitions from start 2 give each broker one leader and three replicas."""
    placed = circle(_SIX, 6, 3, 2, 0)
    assert _only(placed) == [(3, 2, 0), (5, 4, 1), (2, 0, 3), (4, 1, 5), (0, 3, 2), (1, 5, 4)]
    assert list(_spread(placed, _SIX)) == [([1] * 6, [3] * 6, {3})]


def test_each_partition_in_each_rack_from_any_start(circle: Circle) -> None:
    """AdminRackAwareTest: so it is wherever the circle starts."""
    for spread in _spread(circle(_SIX, 6, 3), _SIX):
        assert spread == ([1] * 6, [3] * 6, {3})


def test_more_partitions_than_a_round(circle: Circle) -> None:
    """AdminRackAwareTest: thirteen partitions on six brokers still have a replica in each rack."""
    placed = circle(_SIX, 13, 3, 0, 0)
    assert _only(placed) == [
        (0, 1, 3),
        (1, 3, 5),
        (3, 5, 2),
        (5, 2, 4),
        (2, 4, 0),
        (4, 0, 1),
        (0, 2, 4),
        (1, 4, 0),
        (3, 0, 1),
        (5, 1, 3),
        (2, 3, 5),
        (4, 5, 2),
        (0, 3, 2),
    ]
    assert list(_spread(placed, _SIX)) == [([3, 2, 2, 2, 2, 2], [7, 6, 7, 7, 6, 6], {3})]


def test_racks_of_unequal_size(circle: Circle) -> None:
    """AdminRackAwareTest: racks of three, one and two brokers have even leaders, not replicas."""
    brokers = "0=rack1 1=rack1 2=rack2 3=rack3 4=rack3 5=rack1"
    for leaders, held, racks in _spread(circle(brokers, 12, 3), brokers):
        assert (leaders, racks) == ([2] * 6, {3})
        # The lone broker of its rack holds a replica of every partition.
        assert (held[2], sum(held)) == (12, 36)


def test_two_replicas_in_three_racks(circle: Circle) -> None:
    """AdminRackAwareTest: twelve partitions of two replicas never use one rack twice."""
    for spread in _spread(circle(_SIX, 12, 2), _SIX):
        assert spread == ([2] * 6, [4] * 6, {2})


def test_added_partitions_on_added_brokers(circle: Circle) -> None:
    """AdminRackAwareTest: partitions 12 to 23 on brokers 6 to 11 are as even as the first ones."""
    brokers = "6=rack1 7=rack2 8=rack2 9=rack3 10=rack3 11=rack1"
    placements = circle(brokers, 12, 2, None, 12)
    assert isinstance(placements, list)
    assert all(list(placed) == list(range(12, 24)) for placed in placements)
    for spread in _spread(placements, brokers):
        assert spread == ([2] * 6, [4] * 6, {2})


def test_two_replicas_of_six_partitions(circle: Circle) -> None:
    """AdminRackAwareTest: one round of leaders with two replicas each."""
    for spread in _spread(circle(_SIX, 6, 2), _SIX):
        assert spread == ([1] * 6, [2] * 6, {2})


def test_two_replicas_on_three_brokers(circle: Circle) -> None:
    """AdminRackAwareTest: three racks of one broker each, whose ids have a gap."""
    brokers = "0=rack1 1=rack2 4=rack3"
    for spread in _spread(circle(brokers, 3, 2), brokers):
        assert spread == ([1] * 3, [2] * 3, {2})


def test_a_large_number_of_partitions(circle: Circle) -> None:
    """AdminRackAwareTest: 96 partitions on twelve brokers: eight leaders and 24 replicas each."""
    brokers = f"{_SIX} 6=rack1 7=rack2 8=rack2 9=rack3 10=rack1 11=rack3"
    for spread in _spread(circle(brokers, 96, 3), brokers):
        assert spread == ([8] * 12, [24] * 12, {3})


def test_more_replicas_than_racks(circle: Circle) -> None:
    """AdminRackAwareTest: five replicas in three racks are in all of them."""
    brokers = "0=rack1 1=rack2 2=rack2 3=rack3 4=rack3 5=rack2"
    for _, held, racks in _spread(circle(brokers, 6, 5), brokers):
        assert (sum(held), racks) == (30, {3})


def test_fewer_replicas_than_racks(circle: Circle) -> None:
    """AdminRackAwareTest: two replicas are in two of three racks, also of unequal size."""
    brokers = "0=rack1 1=rack2 2=rack2 3=rack3 4=rack3 5=rack2"
    for _, held, racks in _spread(circle(brokers, 6, 2), brokers):
        assert (sum(held), racks) == (12, {2})


def test_one_rack_only(circle: Circle) -> None:
    """AdminRackAwareTest: where all brokers are in one rack each still leads once."""
    brokers = " ".join(f"{broker}=rack1" for broker in range(6))
    for leaders, held, racks in _spread(circle(brokers, 6, 3), brokers):
        assert (leaders, sum(held), racks) == ([1] * 6, 18, {1})


def test_a_broker_with_a_replica_is_passed_over(circle: Circle) -> None:
    """AdminRackAwareTest: four replicas on racks of three, one and one brokers are on four brokers."""
    brokers = "0=a 1=b 2=c 3=a 4=a"
    placed = circle(brokers, 6, 4, 2)
    assert _only(placed) == [
        (2, 0, 1, 3),
        (3, 1, 2, 4),
        (4, 2, 1, 3),
        (0, 1, 2, 3),
        (1, 4, 2, 3),
        (2, 4, 1, 3),
    ]
    assert [racks for _, _, racks in _spread(placed, brokers)] == [{3}]


def test_without_racks_partitions_go_round_and_followers_shift(circle: Circle) -> None:
    """AdminRackAwareTest: five brokers, ten partitions; after a round the followers move one on."""
    assert circle("0 1 2 3 4", 10, 0) == "no replicas"
    assert circle("0 1 2 3 4", 10, 6) == "too few brokers"
    assert _only(circle("0 1 2 3 4", 10, 3, 0)) == [
        (0, 1, 2),
        (1, 2, 3),
        (2, 3, 4),
        (3, 4, 0),
        (4, 0, 1),
        (0, 2, 3),
        (1, 3, 4),
        (2, 4, 0),
        (3, 0, 1),
        (4, 1, 2),
    ]


def test_impossible_wishes_are_refused_one_after_the_other(circle: Circle) -> None:
    """AdminRackAwareTest: partitions count first, then replicas, then whether all have racks."""
    brokers = "0=rack1 1=rack3 2=rack3 3=rack2 4"
    assert circle(brokers, 0, 0) == "no partitions"
    assert circle(brokers, 10, 0) == "no replicas"
    assert circle(brokers, 10, 6) == "too few brokers"
    assert circle(brokers, 10, 5) == "racks missing"


@pytest.mark.parametrize("circle", [pytest.param("kafka", marks=pytest.mark.oracle)], indirect=True)
@pytest.mark.parametrize("brokers", [_SIX, "0=a 1=a 2=b 3=a 4=c", "3 1 4 0 5"])
def test_what_kafka_draws_is_one_of_ours(circle: Circle, brokers: str) -> None:
    """Wherever Kafka's random numbers start the circle, some start index and shift of ours give just that."""
    ours = list(_all_in_a_circle(brokers, 13, 3, None, 4))
    drawn = circle(brokers, 13, 3, None, 4)
    assert len(drawn) == _DRAWS
    assert all(placed in ours for placed in drawn)


def test_a_list_of_brokers_is_handed_out_once_a_partition(striped: Striped) -> None:
    """StripedReplicaPlacerTest: each partition starts one on; fenced ones come when others run out."""
    assert striped("0 1 2 3", 4, 4) == [(2, 3, 0, 1), (3, 0, 1, 2), (0, 1, 2, 3), (1, 2, 3, 0)]
    assert striped("0 1 2 3 4,fenced", 2, 5) == [(2, 3, 0, 1, 4), (3, 0, 1, 2, 4)]


def test_a_fenced_broker_is_avoided(striped: Striped) -> None:
    """StripedReplicaPlacerTest: where four unfenced brokers suffice the fenced one gets none."""
    brokers = "3 1,fenced 0 4 2"
    assert striped(brokers, 1, 0) == "no replicas"
    assert striped(brokers, 1, -1) == "no replicas"
    assert striped(brokers, 5, 4) == [(3, 4, 0, 2), (4, 0, 2, 3), (0, 2, 3, 4), (2, 3, 4, 0), (0, 4, 3, 2)]


def test_many_partitions_on_one_unfenced_broker(striped: Striped) -> None:
    """StripedReplicaPlacerTest: the only broker that is not fenced leads all, partition after partition."""
    assert striped("0 1,fenced", 3, 1) == [(0,), (0,), (0,)]


def test_a_fenced_broker_is_used_where_it_must_be(striped: Striped) -> None:
    """StripedReplicaPlacerTest: it comes last, and so again after brokers were shuffled."""
    assert striped("3 1,fenced 2", 4, 3) == [(3, 2, 1), (2, 3, 1), (3, 2, 1), (2, 3, 1)]


def test_stripes_over_several_racks(striped: Striped) -> None:
    """StripedReplicaPlacerTest: racks in turns, each partition from the next; a fenced one follows."""
    brokers = "11=1 10=1 30=3 31=3 21=2 20=2,fenced"
    assert striped(brokers, 3, 4) == [(11, 21, 31, 10), (21, 30, 10, 20), (31, 11, 21, 30)]


def test_racks_of_fenced_brokers_only(striped: Striped) -> None:
    """StripedReplicaPlacerTest: a rack that is fenced whole never leads, but holds followers."""
    brokers = "11=1 10=1 30=3,fenced 31=3,fenced 20=2,fenced 21=2,fenced 41=4 40=4,fenced"
    assert striped(brokers, 3, 4) == [(41, 11, 21, 30), (10, 20, 31, 41), (41, 21, 30, 11)]


def test_a_cluster_of_fenced_brokers_is_refused(striped: Striped) -> None:
    """StripedReplicaPlacerTest: nobody could lead, for one replica or for as many as brokers."""
    assert striped("11=1,fenced 10=1,fenced", 1, 1) == "all fenced"
    assert striped("0,fenced 1,fenced 2,fenced", 1, 3) == "all fenced"


def test_more_replicas_than_brokers_are_refused(striped: Striped) -> None:
    """StripedReplicaPlacerTest: three replicas want three brokers."""
    assert striped("11=1 10=1", 1, 3) == "too few brokers"


def test_no_replicas_are_refused(striped: Striped) -> None:
    """StripedReplicaPlacerTest: none and fewer than none."""
    assert striped("11=1 10=1", 1, 0) == "no replicas"
    assert striped("11=1 10=1", 1, -1) == "no replicas"


def test_five_partitions_on_four_brokers(striped: Striped) -> None:
    """StripedReplicaPlacerTest: four stripes in the order of ids, and then a shuffled one."""
    placed = striped("0 3 2 1", 5, 3)
    assert placed == [(2, 3, 0), (3, 0, 1), (0, 1, 2), (1, 2, 3), (1, 0, 2)]


def test_two_hundred_partitions_are_even(striped: Striped) -> None:
    """StripedReplicaPlacerTest: each broker leads fifty, and each pair comes up eleven times or more."""
    placed = striped("0 1 2 3", 200, 2)
    assert isinstance(placed, list)
    assert Counter(leader for leader, _ in placed) == dict.fromkeys(range(4), 50)
    assert Counter(placed) == {
        (0, 1): 14,
        (0, 2): 22,
        (0, 3): 14,
        (1, 0): 17,
        (1, 2): 17,
        (1, 3): 16,
        (2, 0): 13,
        (2, 1): 17,
        (2, 3): 20,
        (3, 0): 20,
        (3, 1): 19,
        (3, 2): 11,
    }
