"""What each rebalance moved, and what would have been enough; certificates of groups that are optimal."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from assignors import Assignment, Subscription, TopicMetadata
from assignors.optimal import Certificate, check_certificate
from console.report import moves_text
from streaming.groups.advice import advise
from streaming.model import MemberInfo, TopicState, TopicView, Version
from tests.playing import Player, event, join, topic
from tests.test_deltas import version_of

_OPTIMAL = event("group_settings", 0.5, assignor="optimal-cooperative")
_UNLIKE = {"m0": ("t1",), "m1": ("t0", "t1"), "m2": ("t0",)}


def confirmations(row: dict[str, Any], seconds: float) -> list[dict[str, Any]]:
    """Let every member confirm what a generation took from it."""
    taken: dict[str, dict[str, list[int]]] = {}
    for delta in row["deltas"]:
        if delta["change"] == "revoked":
            taken.setdefault(delta["member_id"], {}).setdefault(delta["topic"], []).append(delta["partition"])
    return [
        event("partitions_revoked", seconds, member, partitions=topics, generation_id=row["generation_id"])
        for member, topics in taken.items()
    ]


def test_a_group_led_optimally_is_as_even_as_can_be_and_says_why() -> None:
    """Members that read unlike topics come one by one: two generations a move, each final one proven."""
    player = Player()
    player.play([topic("t0", 2), topic("t1", 4), _OPTIMAL])
    for seconds, (member, topics) in enumerate(_UNLIKE.items(), start=1):
        player.play([join(member, seconds, *topics)])
        if player.latest()["balance"]["unowned"]:
            player.play(confirmations(player.latest(), seconds + 0.5))
    last = [row for row in player.rows if row["kind"] == "rebalance"][-1]
    assert {
        owned["member_id"]: len(owned["partitions"]) for owned in last["assignment"]
    }.keys() == _UNLIKE.keys()
    assert (last["balance"]["min"], last["balance"]["max"], last["balance"]["optimal_spread"]) == (2, 2, 0)
    assert last["balance"]["moved"] == last["balance"]["optimal_moves"]
    assert (last["check_inputs"]["excess_spread"], last["check_inputs"]["excess_moves"]) == (0, 0)
    proven = [row for row in player.rows if row.get("certificate")]
    assert len(proven) >= len(_UNLIKE)
    certificate = Certificate.from_json(json.loads(last["certificate"]))
    owners: dict[str, list[tuple[str, int]]] = {}
    for owned in last["assignment"]:
        owners.setdefault(owned["member_id"], []).extend((owned["topic"], p) for p in owned["partitions"])
    topics = {"t0": TopicMetadata.of_count(2), "t1": TopicMetadata.of_count(4)}
    members = {member: Subscription(topics=wanted) for member, wanted in _UNLIKE.items()}
    assert check_certificate(certificate, topics, members, Assignment.of(owners), Assignment.of(owners)) == []


def test_kafka_s_assignor_is_told_what_would_have_been_enough() -> None:
    """The group of the smallest example stays uneven under Kafka's, and could be perfectly even."""
    player = Player()
    player.play([topic("t0", 2), topic("t1", 4)])
    player.play(
        [join(member, 1, *topics, protocols=["cooperative-sticky"]) for member, topics in _UNLIKE.items()]
    )
    last = [row for row in player.rows if row["kind"] == "rebalance"][-1]
    assert last["balance"]["optimal_spread"] == 0 < last["balance"]["spread"]
    assert last["certificate"] is None


def test_people_read_how_many_moves_were_enough() -> None:
    """Beside what moved stands how many partitions had to, where fewer would have done."""
    delta = {"topic": "t", "change": "assigned", "from_member_id": "A", "to_member_id": "B"}
    row = {"deltas": [{**delta, "partition": 1}], "balance": {"moved": 89, "optimal_moves": 47}}
    assert moves_text(row) == "t(1) A -> B; 89 moved, 47 were enough"
    assert moves_text({**row, "balance": {"moved": 47, "optimal_moves": 47}}) == "t(1) A -> B"


@given(
    st.dictionaries(st.sampled_from("ABC"), st.sets(st.integers(0, 5)), min_size=1),
    st.dictionaries(st.sampled_from("ABC"), st.sets(st.integers(0, 5)), min_size=1),
)
def test_equals_need_no_search(old: dict[str, set[int]], new: dict[str, set[int]]) -> None:
    """The closed form says what the solver says."""
    before, taken = {}, set[int]()
    for member, partitions in old.items():
        before[member] = {"t": sorted(partitions - taken)}
        taken |= partitions
    version = replace(version_of({member: {} for member in new}), topic_counts={"t": 6})
    short = advise(before, version, TopicView({}))
    unlike = replace(version, subscribed={**version.subscribed, "Z": frozenset()})
    long = advise(before, replace(unlike, members=version.members), TopicView({}))
    assert short is not None
    assert long is not None
    assert short.moves == long.moves


def all_confirm(row: dict[str, Any], seconds: float) -> list[dict[str, Any]]:
    """Let every member say that it has let go of whatever it was told to."""
    members = [member["member_id"] for member in row["members"]]
    return [event("partitions_revoked", seconds, m, generation_id=row["generation_id"]) for m in members]


_MEMBERS = st.sampled_from(["a", "b", "c", "d"])
_DEEDS = st.one_of(
    st.tuples(st.just("join"), _MEMBERS, st.sampled_from([("t0",), ("t1",), ("t0", "t1")])),
    st.tuples(st.just("leave"), _MEMBERS),
    st.tuples(st.just("confirm")),
)


@pytest.mark.parametrize("assignor", ["optimal-cooperative", "cooperative-sticky"])
@example(
    deeds=[("join", "a", ("t0",)), ("join", "c", ("t0",)), ("confirm",),
           ("join", "b", ("t0",)), ("leave", "c"), ("confirm",)],
    are_alike=False,
)  # fmt: skip
@given(deeds=st.lists(_DEEDS, max_size=14), are_alike=st.booleans())
def test_a_move_that_is_interrupted_is_not_blamed(
    assignor: str, deeds: list[tuple[Any, ...]], are_alike: bool
) -> None:
    """Members come and go while others have not let go yet: nobody made a move too many, by any count."""
    player = Player()
    pinned = event("group_settings", 0.5, assignor=assignor)
    player.play([topic("t0", 5), topic("t1", 3), pinned])
    for seconds, (deed, *rest) in enumerate(deeds, start=1):
        if deed == "join":
            player.play([join(rest[0], seconds, *(("t0", "t1") if are_alike else rest[1]))])
        elif deed == "leave":
            player.play([event("member_left", seconds, rest[0], reason="leave")])
        elif versions := player.versions():
            player.play(all_confirm(versions[-1], seconds))
    for row in player.rows:
        inputs = row.get("check_inputs") or {}
        assert not inputs.get("excess_moves"), row["reason"]
        assert not inputs.get("excess_spread"), row["reason"]


def test_what_interrupts_a_move_leaves_it_without_a_proof() -> None:
    """The proof is of what was owned when the assignor was asked; the next whole move has one again."""
    player = Player()
    player.play([topic("t0", 4), _OPTIMAL, join("a", 1, "t0"), join("b", 2, "t0"), join("c", 3, "t0")])
    player.play(all_confirm(player.latest(), 3.5))
    interrupted = player.versions()[-1]
    assert interrupted["is_final"]
    assert (interrupted["certificate"], interrupted["check_inputs"]["excess_moves"]) == (None, None)
    player.play([event("member_left", 4, "c", reason="leave")])
    assert player.versions()[-1]["certificate"] is not None
    assert player.versions()[-1]["check_inputs"]["excess_moves"] == 0


_RACKS = [["a"], ["a"], ["b"], ["b"]]


def proof_of(row: dict[str, Any], racks: list[list[str]], owned: dict[str, list[int]]) -> list[str]:
    """Check a row's certificate anew, of what was owned before, with the racks that the test knows."""
    topics = {"t": TopicMetadata(range(len(racks)), tuple(map(tuple, racks)))}
    members = {m["member_id"]: Subscription(topics=("t",), rack_id=m["rack_id"]) for m in row["members"]}
    given = {m: [("t", p) for p in partitions] for m, partitions in partitions_of(row).items()}
    before = Assignment.of({m: [("t", p) for p in partitions] for m, partitions in owned.items()})
    return check_certificate(
        Certificate.from_json(json.loads(row["certificate"])), topics, members, given, before
    )


def partitions_of(row: dict[str, Any]) -> dict[str, list[int]]:
    """Give who owns what of the only topic."""
    return {entry["member_id"]: entry["partitions"] for entry in row["assignment"]}


@pytest.mark.parametrize("assignor", ["optimal", "optimal-cooperative"])
def test_a_group_in_racks_that_is_led_optimally_says_why(assignor: str) -> None:
    """What is taken from members out of its racks is no move too many, and the proof knows of the racks."""
    player = Player()
    pinned = event("group_settings", 0.5, assignor=assignor)
    player.play([topic("t", 4, partition_racks=_RACKS), pinned])
    player.play([join("m0", 1, "t", rack_id="b"), join("m1", 1, "t", rack_id="a")])
    player.play(confirmations(player.latest(), 1.5))
    first = player.versions()[-1]
    assert partitions_of(first) == {"m0": [2, 3], "m1": [0, 1]}
    assert proof_of(first, _RACKS, {"m0": [0, 1, 2, 3]}) == []
    swapped = [["b"], ["a"], ["b"], ["a"]]
    player.play([topic("t", 4, 2, partition_racks=swapped)])
    player.play(confirmations(player.latest(), 2.5))
    last = player.versions()[-1]
    assert partitions_of(last) == {"m0": [0, 2], "m1": [1, 3]}
    assert (last["balance"]["moved"], last["balance"]["optimal_moves"]) == (2, 2)
    assert (last["check_inputs"]["excess_spread"], last["check_inputs"]["excess_moves"]) == (0, 0)
    assert proof_of(last, swapped, partitions_of(first)) == []
    # Elsewhere each of them would be out of its rack: the same proof does not hold.
    assert proof_of({**last, "assignment": first["assignment"]}, swapped, partitions_of(first))


def version_in_racks(protocol: str, rebalance_protocol: str = "EAGER") -> Version:
    """Make a version of an observed group whose two members have only what is not in their racks."""
    version = version_of({"A": {"t": [2, 3]}, "B": {"t": [0, 1]}})
    return replace(
        version,
        protocol=protocol,
        rebalance_protocol=rebalance_protocol,
        members=(MemberInfo(member_id="A", rack_id="a"), MemberInfo(member_id="B", rack_id="b")),
        topic_counts={"t": 4},
    )


def view_of(racks: list[list[str]]) -> TopicView:
    """See the only topic, with four partitions and these racks."""
    known = tuple(map(tuple, racks))
    return TopicView({"t": TopicState(topic="t", partition_count=4, racks=known)})


@pytest.mark.parametrize(
    ("protocol", "rebalance_protocol", "racks", "moves"),
    [
        ("range", "EAGER", _RACKS, 4),
        ("sticky", "EAGER", _RACKS, 4),
        ("cooperative-sticky", "COOPERATIVE", [*_RACKS[:2], ["a", "b"], ["a"]], 2),
        ("range", "EAGER", [], 0),
        ("range", "EAGER", _RACKS[:3], 0),
        ("range", "EAGER", [["b", "a"]] * 4, 0),
        ("roundrobin", "EAGER", _RACKS, 0),
        ("range", "CONSUMER", _RACKS, 0),
        ("uniform", "CONSUMER", _RACKS, 0),
    ],
)
def test_racks_count_where_the_leader_looks_at_them(
    protocol: str, rebalance_protocol: str, racks: list[list[str]], moves: int
) -> None:
    """An observed group is told of moves into racks if its assignor looks at racks and they are known."""
    version = version_in_racks(protocol, rebalance_protocol)
    advice = advise(version.assignment, version, view_of(racks))
    assert advice is not None
    assert (advice.moves, advice.spread, advice.has_racks) == (moves, 0, moves > 0)
    assert advice.certificate is None


def test_kafka_s_sticky_promises_no_fewest_moves_into_racks() -> None:
    """Kafka's lets go of all that is out of its owner's rack, also where that mends nothing, and may."""
    player = Player()
    player.play([topic("t", 4, partition_racks=[["a"], ["b"], ["b"], ["a"]])])
    for seconds, member in enumerate(("m0", "m1"), start=1):
        player.play([join(member, seconds, "t", protocols=["sticky"], rack_id="a")])
        player.play(confirmations(player.latest(), seconds + 0.5))
    player.play([topic("t", 4, 3, partition_racks=[["a"], ["b"], ["b"], ["b"]])])
    player.play(confirmations(player.latest(), 3.5))
    last = player.versions()[-1]
    assert last["is_final"]
    assert (last["balance"]["moved"], last["balance"]["optimal_moves"]) == (2, 0)
    assert last["check_inputs"]["excess_moves"] is None
