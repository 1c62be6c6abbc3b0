"""Who leads a group and which assignor its members choose: as Kafka's own coordinator class says."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from streaming.groups.computed.membership import Member, Members, choose_protocol

if TYPE_CHECKING:
    from tests.parity.oracle import Oracle

_NAMES = ["range", "roundrobin", "sticky", "cooperative-sticky", "Aa", "BB", "AaAa", "BBBB", "AaBB", "BBAa"]
_IDS = [
    *(f"consumer-{n}-{n * 7919:x}" for n in range(40)),
    "Aa",
    "BB",
    "AaAa",
    "BBBB",
    "AaBB",
    "BBAa",
    "\U0001f600",
]


def _member(event: dict[str, Any]) -> Member:
    return Member(
        member_id=event["member"], protocols=event["protocols"], group_instance_id=event.get("static")
    )


def _random_story(dice: random.Random) -> list[dict[str, Any]]:
    """Let members with one assignor in common join, leave, and come back in another's place."""
    common, present, story = dice.choice(_NAMES), {}, []
    for _ in range(dice.randint(1, 60)):
        absent = [i for i in _IDS if i not in present]
        static = [i for i in present if "static" in present[i]]
        what = dice.choice(["join", "join", "leave", "replace"])
        if what == "replace" and static and absent:
            old, new = dice.choice(static), dice.choice(absent)
            event = {**present.pop(old), "does": "replace", "member": new, "replaces": old}
            present[new] = event
        elif what == "leave" and present:
            event = {"does": "leave", "member": dice.choice(sorted(present))}
            del present[event["member"]]
        elif absent:
            protocols = list({common, *dice.sample(_NAMES, dice.randint(0, 4))})
            dice.shuffle(protocols)
            event = {"does": "join", "member": dice.choice(absent), "protocols": protocols}
            if dice.random() < 0.3:
                event["static"] = f"instance-{len(story)}"
            present[event["member"]] = event
        else:
            continue
        story.append(event)
    return story


def _ours(story: list[dict[str, Any]]) -> list[dict[str, Any]]:
    members, after = Members(), []
    for event in story:
        if event["does"] == "join":
            members.add(_member(event))
        elif event["does"] == "leave":
            members.remove(event["member"])
        else:
            members.replace(members[event["replaces"]], _member(event))
        lists = {m.member_id: m.protocols for m in members.values()}
        after.append({"leader": members.leader_id, "protocol": choose_protocol(lists)})
    return after


@pytest.mark.oracle
def test_leader_and_assignor_are_those_of_the_coordinator(oracle: Oracle) -> None:
    """Through 300 random stories the leader and the chosen assignor are ClassicGroup's after each event."""
    for seed in range(300):
        story = _random_story(random.Random(seed))
        kafka = oracle.ask({"id": seed, "assignor": "classic-group", "story": story})
        assert _ours(story) == kafka["result"], f"seed {seed}"


def test_the_first_leads_until_it_goes() -> None:
    """The first to join leads, whoever comes; its replacement takes the lead over; then the map's first."""
    members = Members()
    for name in ("B", "A", "C"):
        members.add(Member(member_id=name, group_instance_id=f"instance-{name}"))
    assert members.leader_id == "B"
    members.replace(members["B"], Member(member_id="D", group_instance_id="instance-B"))
    assert (members.leader_id, list(members)) == ("D", ["A", "C", "D"])
    members.remove("D")
    assert members.leader_id == "A"
    for name in ("A", "C"):
        members.remove(name)
    assert members.leader_id is None


def test_a_tie_goes_to_the_first_in_the_order_of_the_votes() -> None:
    """One vote each: Java's HashMap of the votes decides, not who joined first."""
    assert choose_protocol({"A": ["sticky", "range"], "B": ["range", "sticky"]}) == "sticky"
    assert choose_protocol({"A": ["range", "sticky"], "B": ["sticky", "range"]}) == "sticky"


def test_without_a_common_assignor_there_is_none() -> None:
    """Members that agree on nothing choose nothing."""
    assert choose_protocol({"A": ["range"], "B": ["sticky"]}) is None
    assert choose_protocol({}) is None
