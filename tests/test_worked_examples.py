"""The worked examples of the assignors, each by its name."""

from __future__ import annotations

import pytest

from assignors import REGISTRY, AssignorMemory, Subscription, assign_range, assign_roundrobin, assign_sticky
from tests.assigning import listed, member_of, owning, settle, topics_of

_THREE_BY_NEED = {"C0": member_of("t0"), "C1": member_of("t0 t1"), "C2": member_of("t0 t1 t2")}
_STICKY = ("sticky", "cooperative-sticky")


def _rejoined(subscriptions: dict[str, Subscription], left: str) -> dict[str, Subscription]:
    return {member: s for member, s in subscriptions.items() if member != left}


def test_range_gives_the_first_member_one_more_of_each_topic() -> None:
    """Two members and two topics of three: C0 gets two of each topic, C1 one."""
    both = member_of("t0 t1")
    assert listed(assign_range(topics_of(t0=3, t1=3), {"C0": both, "C1": both})) == {
        "C0": "t0p0 t0p1 t1p0 t1p1",
        "C1": "t0p2 t1p2",
    }


def test_range_starts_afresh_at_each_topic() -> None:
    """Three members and two topics of four: the first member has the extra one of both."""
    both = member_of("t0 t1")
    got = assign_range(topics_of(t0=4, t1=4), {"C0": both, "C1": both, "C2": both})
    assert listed(got) == {"C0": "t0p0 t0p1 t1p0 t1p1", "C1": "t0p2 t1p2", "C2": "t0p3 t1p3"}


def test_roundrobin_deals_topics_in_one_circle() -> None:
    """The circle goes on from one topic to the next."""
    both = member_of("t0 t1")
    assert listed(assign_roundrobin(topics_of(t0=3, t1=3), {"C0": both, "C1": both})) == {
        "C0": "t0p0 t0p2 t1p1",
        "C1": "t0p1 t1p0 t1p2",
    }


def test_roundrobin_is_uneven_where_subscriptions_differ() -> None:
    """The member that reads most gets more than it need, because the circle only skips."""
    assert listed(assign_roundrobin(topics_of(t0=1, t1=2, t2=3), _THREE_BY_NEED)) == {
        "C0": "t0p0",
        "C1": "t1p0",
        "C2": "t1p1 t2p0 t2p1 t2p2",
    }


def test_roundrobin_passes_on_over_three_different_subscriptions() -> None:
    """Each topic has two of three members; no member is passed over twice."""
    members = {"C0": member_of("T0 T1"), "C1": member_of("T1 T2"), "C2": member_of("T0 T2")}
    assert listed(assign_roundrobin(topics_of(T0=3, T1=2, T2=4), members)) == {
        "C0": "T0p0 T0p2 T1p1",
        "C1": "T1p0 T2p0 T2p2",
        "C2": "T0p1 T2p1 T2p3",
    }


def test_roundrobin_moves_what_need_not_move_when_a_member_leaves() -> None:
    """C2 leaves: C0 and C1 exchange partitions that they could have kept."""
    both = member_of("t0 t1")
    topics = topics_of(t0=3, t1=3)
    first = assign_roundrobin(topics, {"C0": both, "C1": both, "C2": both})
    assert listed(first) == {"C0": "t0p0 t1p0", "C1": "t0p1 t1p1", "C2": "t0p2 t1p2"}
    second = assign_roundrobin(topics, {"C0": both, "C1": both})
    assert listed(second) == {"C0": "t0p0 t0p2 t1p1", "C1": "t0p1 t1p0 t1p2"}


@pytest.mark.parametrize("name", _STICKY)
def test_sticky_is_even_where_subscriptions_differ(name: str) -> None:
    """What round robin gives to C2 goes to C1, which can take it."""
    got = REGISTRY[name].function(topics_of(t0=1, t1=2, t2=3), _THREE_BY_NEED, None)
    assert listed(got) == {"C0": "t0p0", "C1": "t1p0 t1p1", "C2": "t2p0 t2p1 t2p2"}


@pytest.mark.parametrize("name", _STICKY)
def test_sticky_hands_on_only_what_the_leaver_had(name: str) -> None:
    """C0 leaves: C1 takes its one partition, nothing else moves."""
    topics = topics_of(t0=1, t1=2, t2=3)
    _, members, generation = settle(REGISTRY[name], topics, _THREE_BY_NEED, 0)
    got, _, _ = settle(REGISTRY[name], topics, _rejoined(members, "C0"), generation)
    assert listed(got) == {"C1": "t0p0 t1p0 t1p1", "C2": "t2p0 t2p1 t2p2"}


@pytest.mark.parametrize("name", _STICKY)
def test_sticky_leaves_two_members_what_they_had_when_the_third_leaves(name: str) -> None:
    """Same start as round robin, but C0 and C1 keep theirs and get one more each."""
    both = member_of("t0 t1")
    topics = topics_of(t0=3, t1=3)
    first, members, generation = settle(REGISTRY[name], topics, {"C0": both, "C1": both, "C2": both}, 0)
    assert listed(first) == {"C0": "t0p0 t1p0", "C1": "t0p1 t1p1", "C2": "t0p2 t1p2"}
    second, _, _ = settle(REGISTRY[name], topics, _rejoined(members, "C2"), generation)
    for member in ("C0", "C1"):
        assert set(first[member]) < set(second[member])
        assert len(second[member]) == 3


@pytest.mark.parametrize("name", _STICKY)
def test_sticky_ends_level_over_many_small_topics(name: str) -> None:
    """Four topics of two, C1 of three members leaves: the others keep theirs and have four each."""
    everything = member_of("t0 t1 t2 t3")
    topics = topics_of(t0=2, t1=2, t2=2, t3=2)
    members = {"C0": everything, "C1": everything, "C2": everything}
    first, joined, generation = settle(REGISTRY[name], topics, members, 0)
    second, _, _ = settle(REGISTRY[name], topics, _rejoined(joined, "C1"), generation)
    assert second.loads() == {"C0": 4, "C2": 4}
    assert all(set(first[member]) <= set(second[member]) for member in second)


@pytest.mark.parametrize("assign", [assign_range, assign_roundrobin])
def test_static_members_come_first_by_instance_id(assign: object) -> None:
    """A static member stands before every dynamic one, whatever its member id."""
    members = {"A": member_of("t"), "Z": member_of("t", group_instance_id="i1")}
    assert callable(assign)
    assert listed(assign(topics_of(t=1), members)) == {"A": "", "Z": "tp0"}


@pytest.mark.parametrize("assign", [assign_range, assign_roundrobin])
def test_a_static_members_restart_changes_nothing(assign: object) -> None:
    """Instance i1 comes back under another member id and gets what it had."""
    assert callable(assign)
    one, two = (member_of("t0 t1", group_instance_id=i) for i in ("i1", "i2"))
    topics = topics_of(t0=3, t1=2)
    before = assign(topics, {"m-a": one, "m-b": two, "m-c": member_of("t0")})
    after = assign(topics, {"m-z": one, "m-b": two, "m-c": member_of("t0")})
    assert [before[m] for m in ("m-a", "m-b", "m-c")] == [after[m] for m in ("m-z", "m-b", "m-c")]


def test_static_dynamic_static_leaves_nobody_out() -> None:
    """Another client's range gives nothing to the first of two static members around a dynamic one."""
    members = {
        "m0": member_of("t", group_instance_id="i0"),
        "m1": member_of("t"),
        "m2": member_of("t", group_instance_id="i2"),
    }
    assert assign_range(topics_of(t=3), members).loads() == {"m0": 1, "m1": 1, "m2": 1}


def test_cooperative_sticky_withholds_what_changes_owners() -> None:
    """C1 joins: C0 gives up two, and C1 gets them only in the generation after."""
    topics = topics_of(t=4)
    members = {"C0": member_of("t", "tp0 tp1 tp2 tp3", 1), "C1": member_of("t")}
    cooperative = REGISTRY["cooperative-sticky"].function
    first = cooperative(topics, members, None)
    assert listed(first) == {"C0": "tp0 tp1", "C1": ""}
    second = cooperative(topics, {m: owning(members[m], first[m], 2) for m in members}, None)
    assert listed(second) == {"C0": "tp0 tp1", "C1": "tp2 tp3"}


def test_the_oddest_claim_one_partition_in_three_generations() -> None:
    """Three members claim the same partition: the newest generation keeps it."""
    members = {f"C{i}": member_of("t", "tp0", 5 + i) for i in range(3)}
    assert listed(assign_sticky(topics_of(t=3), members))["C2"] == "tp0"


def test_a_leader_remembers_the_highest_generation_it_saw() -> None:
    """A claim that is older than the memory counts as a previous owner's, not as a current one's."""
    memory = AssignorMemory()
    assign_sticky(topics_of(t=1), {"C0": member_of("t", "tp0", 9)}, memory)
    assign_sticky(topics_of(t=1), {"C0": member_of("t", "tp0", 3)}, memory)
    assert memory.max_generation == 9


@pytest.mark.parametrize("name", _STICKY)
def test_kafka_gives_partitions_to_a_member_without_topics_that_iterates_first(name: str) -> None:
    """Kafka's own flaw, kept: C0 asked for nothing, but the group counts as equally subscribed."""
    members = {"C0": member_of(""), "C1": member_of("t")}
    assert listed(REGISTRY[name].function(topics_of(t=2), members, None)) == {"C0": "tp0", "C1": "tp1"}
    members = {"C1": member_of(""), "C0": member_of("t")}
    assert listed(REGISTRY[name].function(topics_of(t=2), members, None)) == {"C0": "tp0 tp1", "C1": ""}
