"""What each rebalance moved, and what would have been enough; certificates of groups that are optimal."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from assignors import Assignment, Subscription, TopicMetadata
from assignors.optimal import Certificate, check_certificate
from console.report import moves_text
from streaming.groups.advice import advise
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
    short = advise(before, version)
    unlike = replace(version, subscribed={**version.subscribed, "Z": frozenset()})
    long = advise(before, replace(unlike, members=version.members))
    assert short is not None
    assert long is not None
    assert short.moves == long.moves
