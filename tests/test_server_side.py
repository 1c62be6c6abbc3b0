"""KIP-848's range and uniform: their rules, and the laws they keep."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assignors.errors import AssignorError
from assignors.java_order import uuid_key
from assignors.model import Assignment, Subscription, TopicMetadata, TopicPartition
from assignors.server_side import assign_server_range, assign_server_uniform, default_topic_id
from tests.assigning import member_of, topics_of

Topics = dict[str, TopicMetadata]
Members = dict[str, Subscription]

FAST = settings(max_examples=60, deadline=None)


def named(assignment: Assignment) -> dict[str, str]:
    """Write an assignment as it is read aloud: member -> "t0p0 t1p2"."""
    return {m: " ".join(f"{t}p{p}" for t, p in owned) for m, owned in assignment.items()}


def owning_all(members: Members, assignment: Assignment) -> Members:
    """Let every member own what it was just given."""
    return {
        name: Subscription(
            topics=member.topics,
            owned_partitions=assignment[name],
            group_instance_id=member.group_instance_id,
        )
        for name, member in members.items()
    }


@st.composite
def groups(draw: st.DrawFn, *, equal: bool) -> tuple[Topics, Members]:
    """Draw topics and members; some own partitions, honestly: one owner each."""
    topics = topics_of(
        **draw(st.dictionaries(st.sampled_from(("t0", "t1", "t2")), st.integers(0, 8), min_size=1))
    )
    names = draw(st.lists(st.sampled_from([f"m{i}" for i in range(6)]), min_size=1, unique=True))
    lists = st.lists(st.sampled_from([*topics, "missing"]), min_size=1, unique=True).map(tuple)
    common = draw(lists)
    owned: dict[str, list[TopicPartition]] = {name: [] for name in names}
    for topic, metadata in topics.items():
        for partition in metadata.partitions:
            owner = draw(st.sampled_from([None, *names]))
            if owner is not None:
                owned[owner].append(TopicPartition(topic, partition))
    return topics, {
        name: Subscription(topics=common if equal else draw(lists), owned_partitions=tuple(owned[name]))
        for name in names
    }


def test_range_gives_runs_topic_by_topic() -> None:
    """Two members of two topics with three partitions each: the first gets two of each topic."""
    members = {"m1": member_of("t0 t1"), "m0": member_of("t0 t1")}
    assert named(assign_server_range(topics_of(t0=3, t1=3), members)) == {
        "m1": "t0p2 t1p2",
        "m0": "t0p0 t0p1 t1p0 t1p1",
    }


def test_range_puts_static_members_first_by_instance_id() -> None:
    """A restart under a new member id changes nothing for a static member."""
    before = {"a": member_of("t0"), "b": member_of("t0", group_instance_id="i")}
    after = {"a": member_of("t0"), "z": member_of("t0", group_instance_id="i")}
    assert (
        assign_server_range(topics_of(t0=3), before)["b"] == assign_server_range(topics_of(t0=3), after)["z"]
    )


def test_range_counts_only_the_subscribers_of_each_topic() -> None:
    """With unequal subscriptions each topic is shared among those who read it."""
    members = {"m0": member_of("t0"), "m1": member_of("t0 t1")}
    assert named(assign_server_range(topics_of(t0=2, t1=2), members)) == {
        "m0": "t0p0",
        "m1": "t0p1 t1p0 t1p1",
    }


def test_range_told_that_subscriptions_are_equal_looks_at_the_first_member_only() -> None:
    """Kafka's class believes the subscription type that the coordinator hands it."""
    members = {"m0": member_of("t0"), "m1": member_of("t1")}
    for believed in ("homogeneous", "HOMOGENEOUS"):
        got = assign_server_range(topics_of(t0=2, t1=2), members, subscription_type=believed)  # type: ignore[arg-type]
        assert named(got) == {"m0": "t0p0", "m1": "t0p1"}


def test_another_subscription_type_is_refused() -> None:
    """The message names what was found and the two that are allowed."""
    with pytest.raises(AssignorError, match="'mixed'; it must be 'homogeneous' or 'heterogeneous'"):
        assign_server_range({}, {"m0": member_of("t0")}, subscription_type="mixed")  # type: ignore[arg-type]


def test_uniform_keeps_what_members_own_up_to_their_quota() -> None:
    """A joining member gets only what others own beyond their share."""
    members = {"m0": member_of("t0", "t0p0 t0p1 t0p2"), "m1": member_of("t0", "t0p3"), "m2": member_of("t0")}
    assert named(assign_server_uniform(topics_of(t0=4), members)) == {
        "m0": "t0p0 t0p1",
        "m1": "t0p3",
        "m2": "t0p2",
    }


def test_uniform_lets_a_later_member_keep_its_larger_share() -> None:
    """The extra partition is not taken by an earlier member that would first have to be given it."""
    members = {"m0": member_of("t0", "t0p0"), "m1": member_of("t0", "t0p1 t0p2")}
    assert named(assign_server_uniform(topics_of(t0=3), members)) == {"m0": "t0p0", "m1": "t0p1 t0p2"}


def test_uniform_deals_topics_in_the_order_of_their_ids_hash() -> None:
    """Other topic ids give another assignment of the same names."""
    members = {"m0": member_of("a b"), "m1": member_of("a b")}
    topics = topics_of(a=1, b=1)
    low, high = bytes(16), bytes(15) + b"\x01"
    first = assign_server_uniform(topics, members, topic_ids={"a": low, "b": high})
    second = assign_server_uniform(topics, members, topic_ids={"a": high, "b": low})
    assert named(first) == {"m0": "ap0", "m1": "bp0"}
    assert named(second) == {"m0": "bp0", "m1": "ap0"}


def test_a_topic_read_from_a_record_goes_behind_its_bucket_a_grouped_one_before() -> None:
    """Two ids of one bucket: which topic is trimmed hangs on how the map of owned topics was made."""
    members = {"m0": member_of("a b", "ap0 bp0"), "m1": member_of("a b")}
    topics, ids = topics_of(a=1, b=1), {"a": bytes(15) + b"\x01", "b": bytes(15) + b"\x11"}
    read = assign_server_uniform(topics, members, topic_ids=ids)
    grouped = assign_server_uniform(topics, members, topic_ids=ids, owned_are_grouped=True)
    assert named(read) == {"m0": "ap0", "m1": "bp0"}
    assert named(grouped) == {"m0": "bp0", "m1": "ap0"}


def test_topic_ids_compare_signed() -> None:
    """An id whose first bit is set comes before one whose is not."""
    assert uuid_key(b"\xff" * 16) < uuid_key(bytes(16)) < uuid_key(b"\x01" * 16)
    assert len(default_topic_id("t0")) == 16


def test_uniform_evens_out_unequal_subscriptions_along_topics() -> None:
    """What only one member reads stays with it, and the shared topic makes up for it."""
    members = {"m0": member_of("t0 t1"), "m1": member_of("t1")}
    got = assign_server_uniform(topics_of(t0=2, t1=4), members)
    assert got.loads() == {"m0": 3, "m1": 3}


def test_uniform_moves_no_more_of_a_topic_than_its_owner_has_of_it() -> None:
    """The loaded member gives its one partition of the shared topic, and then has none to give."""
    members = {"m0": member_of("t0 t1", "t0p0 t1p0"), "m1": member_of("t1")}
    assert named(assign_server_uniform(topics_of(t0=1, t1=1), members)) == {"m0": "t0p0", "m1": "t1p0"}


def test_uniform_stops_when_each_topic_alone_is_level() -> None:
    """Loads of 4, 3 and 2 stay: no topic has two readers more than one apart, and no chain is sought."""
    members = {
        "m0": member_of("t0", "t0p0 t0p1 t0p2 t0p3 t0p4"),
        "m1": member_of("t0 t1", "t1p0 t1p1 t1p2 t1p3"),
        "m2": member_of("t1"),
    }
    got = assign_server_uniform(topics_of(t0=5, t1=4), members)
    assert named(got) == {
        "m0": "t0p0 t0p1 t0p2 t0p3",
        "m1": "t0p4 t1p0 t1p1",
        "m2": "t1p2 t1p3",
    }


def test_uniform_refuses_a_partition_beyond_the_end_of_a_topic() -> None:
    """With unequal subscriptions Kafka's class raises on it; the error names member and partition."""
    members = {"m0": member_of("t0", "t0p5"), "m1": member_of("t1")}
    with pytest.raises(AssignorError, match="'m0' owns partition 5 of topic 't0', which has 2") as raised:
        assign_server_uniform(topics_of(t0=2, t1=1), members)
    assert raised.value.args[1:] == ("m0", "t0", 5)


def test_uniform_refuses_to_leave_partitions_over() -> None:
    """With equal subscriptions a partition beyond the end eats a real one's place."""
    with pytest.raises(AssignorError, match="is left without an owner"):
        assign_server_uniform(topics_of(t0=2), {"m0": member_of("t0", "t0p5 t0p6")})


@pytest.mark.parametrize("assign", [assign_server_range, assign_server_uniform])
def test_nobody_and_nothing_are_groups_too(assign: Callable[[Topics, Members], Assignment]) -> None:
    """No members, no topics, and topics that nobody knows give empty assignments."""
    assert dict(assign({}, {})) == {}
    assert dict(assign({}, {"m0": member_of("t0", "t0p0"), "m1": member_of("t1")})) == {"m0": (), "m1": ()}
    assert dict(assign(topics_of(t0=1), {"m0": member_of("")})) == {"m0": ()}


@FAST
@given(group=st.booleans().flatmap(lambda equal: groups(equal=equal)))
def test_every_wanted_partition_has_one_owner_who_subscribes(group: tuple[Topics, Members]) -> None:
    """Nothing is left over, given twice, or given to one who did not ask; every member is a key."""
    topics, members = group
    wanted = {
        (topic, p)
        for topic, metadata in topics.items()
        for p in metadata.partitions
        if any(topic in member.topics for member in members.values())
    }
    for assign in (assign_server_range, assign_server_uniform):
        got = assign(topics, members)
        assert list(got) == list(members)
        owned = [tp for partitions in got.values() for tp in partitions]
        assert sorted(owned) == sorted(wanted)
        assert all(topic in members[name].topics for name, own in got.items() for topic, _ in own)
        assert all(first < second for own in got.values() for first, second in pairwise(own))


@FAST
@given(group=groups(equal=True))
def test_uniform_balances_equal_members_and_then_rests(group: tuple[Topics, Members]) -> None:
    """Loads differ by at most one, and balancing again moves nothing."""
    topics, members = group
    got = assign_server_uniform(topics, members)
    loads = got.loads().values()
    assert max(loads) - min(loads) <= 1
    assert dict(assign_server_uniform(topics, owning_all(members, got))) == dict(got)


@FAST
@given(group=groups(equal=True))
def test_uniform_moves_only_what_a_leaving_member_had(group: tuple[Topics, Members]) -> None:
    """With equal subscriptions the others keep all they own when one leaves."""
    topics, members = group
    before = assign_server_uniform(topics, members)
    rest = owning_all(members, before)
    rest.pop(next(iter(rest)))
    after = assign_server_uniform(topics, rest)
    assert all(set(before[name]) <= set(after[name]) for name in rest)
