"""What every assignor of the registry must hold to, whatever the group."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assignors import REGISTRY, Assignment, Assignor, Subscription, TopicMetadata, TopicPartition
from assignors.balance import Moves, moves_between, topic_spread
from assignors.cooperative import revoked_by, withhold
from tests.assigning import listed, member_of, owning, settle, topics_of

ALL = pytest.mark.parametrize("assignor", REGISTRY.values(), ids=REGISTRY)
STICKY = pytest.mark.parametrize(
    "assignor", [a for a in REGISTRY.values() if a.is_sticky], ids=lambda a: a.name
)
FAST = settings(max_examples=40, deadline=None)

Topics = dict[str, TopicMetadata]
Members = dict[str, Subscription]

_RACKS = ("r0", "r1", "r2")
_topic_names = ("t0", "t1", "t2", "\U0001f600", "\uffee")
# Different buckets of a table of sixteen: join order cannot matter.
_MEMBERS = tuple(f"C{i}" for i in range(7))


@st.composite
def topic_maps(draw: st.DrawFn) -> Topics:
    """Draw up to five topics, with racks or without."""
    counts = draw(st.dictionaries(st.sampled_from(_topic_names), st.integers(0, 7), min_size=1))
    if draw(st.integers(0, 3)):
        return {topic: TopicMetadata.of_count(count) for topic, count in counts.items()}
    racks = st.lists(st.sampled_from(_RACKS), max_size=2).map(tuple)
    return {
        topic: TopicMetadata(range(count), tuple(draw(racks) for _ in range(count)))
        for topic, count in counts.items()
    }


@st.composite
def groups(draw: st.DrawFn, *, equal: bool = False, racks: bool = True) -> tuple[Topics, Members]:
    """Draw topics and members that own nothing yet, each subscribed to something.

    Kafka's sticky class breaks the first law for a member without topics; that has its own test.
    """
    topics = draw(topic_maps())
    names = draw(st.lists(st.sampled_from(_MEMBERS), min_size=1, unique=True))
    lists = st.lists(st.sampled_from([*topics, "missing"]), min_size=1, unique=True).map(tuple)
    common = draw(lists)
    return topics, {
        name: Subscription(
            topics=common if equal else draw(lists),
            group_instance_id=draw(st.sampled_from((None, None, f"i-{name}"))),
            rack_id=draw(st.sampled_from((None, *_RACKS))) if racks else None,
        )
        for name in names
    }


def _wanted(topics: Topics, members: Members) -> set[TopicPartition]:
    return {
        TopicPartition(topic, partition)
        for member in members.values()
        for topic in member.topics
        for partition in (topics[topic].partitions if topic in topics else ())
    }


def _owners(assignment: Assignment) -> dict[str, dict[str, list[int]]]:
    return {member: assignment.by_topic(member) for member in assignment}


def _moves(before: Assignment, after: Assignment) -> Moves:
    return moves_between(_owners(before), _owners(after))


@ALL
@FAST
@given(group=groups())
def test_every_wanted_partition_has_one_owner_who_subscribes(
    assignor: Assignor, group: tuple[Topics, Members]
) -> None:
    """Nothing is left out, nothing given twice, nothing given to who did not ask; every member is a key."""
    topics, members = group
    assignment, _, _ = settle(assignor, topics, members, 0)
    given_out = Counter(tp for owned in assignment.values() for tp in owned)
    assert dict(given_out) == dict.fromkeys(_wanted(topics, members), 1), listed(assignment)
    assert all(tp.topic in members[member].topics for member in assignment for tp in assignment[member])
    assert list(assignment) == list(members)


@ALL
@FAST
@given(group=groups(), data=st.data())
def test_input_order_changes_nothing(
    assignor: Assignor, group: tuple[Topics, Members], data: st.DataObject
) -> None:
    """Members whose ids fall into different buckets may join in any order, topics come in any order."""
    topics, members = group
    _, owning_members, generation = settle(assignor, topics, members, 0)
    members = data.draw(st.sampled_from((members, owning_members)))
    shuffled = dict(data.draw(st.permutations(list(members.items()))))
    reordered = dict(data.draw(st.permutations(list(topics.items()))))
    first, _, _ = settle(assignor, topics, members, generation)
    second, _, _ = settle(assignor, reordered, shuffled, generation)
    assert {m: set(first[m]) for m in first} == {m: set(second[m]) for m in second}


@ALL
@FAST
@given(group=groups(equal=True))
def test_equal_subscriptions_give_a_spread_of_one_at_most(
    assignor: Assignor, group: tuple[Topics, Members]
) -> None:
    """Over the group, or topic by topic, as the assignor promises."""
    topics, members = group
    assignment, _, _ = settle(assignor, topics, members, 0)
    loads = assignment.loads().values()
    if assignor.promises == "group":
        assert max(loads) - min(loads) <= 1, listed(assignment)
    else:
        assert assignor.promises == "topic"
        subscribed = {member: set(s.topics) for member, s in members.items()}
        assert topic_spread(_owners(assignment), subscribed) <= 1, listed(assignment)


@STICKY
@FAST
@given(group=groups())
def test_balancing_again_moves_nothing(assignor: Assignor, group: tuple[Topics, Members]) -> None:
    """A settled group that rebalances without a change keeps everything (KIP-848's: equal subscriptions)."""
    topics, members = group
    if assignor.name == "server-uniform" or any(s.rack_id for s in members.values()):
        # KIP-848's balancing walks on for unequal groups, and racks may pull a settled one.
        common = next(iter(members.values())).topics
        members = {member: Subscription(topics=common) for member in members}
    first, joined, generation = settle(assignor, topics, members, 0)
    second, _, _ = settle(assignor, topics, joined, generation)
    assert _moves(first, second) == Moves(
        moved=0, kept=sum(first.loads().values()), revoked=0, assigned=0, lost=0
    )


@STICKY
@FAST
@given(group=groups(equal=True, racks=False), data=st.data())
def test_one_leaver_moves_only_what_it_had(
    assignor: Assignor, group: tuple[Topics, Members], data: st.DataObject
) -> None:
    """With equal subscriptions the others keep all they had."""
    topics, members = group
    first, joined, generation = settle(assignor, topics, members, 0)
    leaver = data.draw(st.sampled_from(list(members)))
    rest = {member: s for member, s in joined.items() if member != leaver}
    if rest:
        second, _, _ = settle(assignor, topics, rest, generation)
        assert all(set(first[member]) <= set(second[member]) for member in rest), listed(second)


@pytest.mark.parametrize("name", ["cooperative-sticky"])
@FAST
@given(group=groups(), data=st.data())
def test_cooperative_gives_nothing_that_another_still_owns(
    name: str, group: tuple[Topics, Members], data: st.DataObject
) -> None:
    """Through joins, leaves and new subscriptions; and once these stop, nothing stays unassigned."""
    topics, members = group
    assignor, generation = REGISTRY[name], 0
    for _ in range(3):
        change = data.draw(st.sampled_from(("join", "leave", "subscribe")))
        member = data.draw(st.sampled_from(_MEMBERS))
        wanted = data.draw(st.lists(st.sampled_from(list(topics)), min_size=1, unique=True))
        if change == "leave" and len(members) > 1:
            members.pop(member, None)
        elif change == "subscribe" and member in members:
            members[member] = owning(
                Subscription(topics=tuple(wanted)), members[member].owned_partitions, generation
            )
        else:
            members.setdefault(member, Subscription(topics=tuple(wanted)))
        assignment = assignor.function(topics, members, None)
        holder = {tp: m for m, s in members.items() for tp in s.owned_partitions}
        for m in members:
            assert all(holder.get(tp, m) == m for tp in assignment[m]), listed(assignment)
        generation += 1
        members = {m: owning(s, assignment[m], generation) for m, s in members.items()}
    settled, _, _ = settle(assignor, topics, members, generation)
    assert {tp for owned in settled.values() for tp in owned} == _wanted(topics, members)


_owner_maps = st.dictionaries(
    st.tuples(st.sampled_from(("t0", "t1")), st.integers(0, 5)),
    st.sampled_from(("A", "B", "C", "D")),
    max_size=12,
)


def _nested(owner_of: dict[tuple[str, int], str], members: set[str]) -> dict[str, dict[str, list[int]]]:
    nested: dict[str, dict[str, list[int]]] = {member: {} for member in sorted(members)}
    for (topic, partition), member in sorted(owner_of.items()):
        if member in nested:
            nested[member].setdefault(topic, []).append(partition)
    return nested


@FAST
@given(target=_owner_maps, current=_owner_maps, gone=st.sets(st.sampled_from("ABCD"), max_size=3))
def test_the_two_cooperative_steps_for_any_target(
    target: dict[tuple[str, int], str], current: dict[tuple[str, int], str], gone: set[str]
) -> None:
    """Step one gives the target without what is in transfer; step two gives all and revokes nothing."""
    live = set("ABCD") - gone
    wanted = {p: m for p, m in target.items() if m in live}
    goal, now = _nested(wanted, live), _nested(current, set("ABCD"))
    first = withhold(goal, now)
    in_transfer = {p for p, m in wanted.items() if p in current and current[p] in live and current[p] != m}
    assert first == _nested({p: m for p, m in wanted.items() if p not in in_transfer}, live)
    leaving = revoked_by(first, now)
    kept = {p: m for p, m in current.items() if m in live and p[1] not in leaving.get(m, {}).get(p[0], ())}
    assert all(first[m].get(topic, []).count(p) == 1 for (topic, p), m in kept.items())
    second = withhold(goal, first)
    assert second == goal
    assert not revoked_by(second, first)
    # Nobody ever has what another one still has: in the order let go, then take.
    for step, held in ((first, now), (second, first)):
        for member, others in ((m, set(held) - {m}) for m in step):
            for topic, partitions in step[member].items():
                for other in others & live:
                    assert not set(partitions) & set(held[other].get(topic, ()))


@FAST
@given(target=_owner_maps, current=_owner_maps, left=st.sampled_from("ABCD"), later=_owner_maps)
def test_a_member_may_leave_between_the_two_steps(
    target: dict[tuple[str, int], str],
    current: dict[tuple[str, int], str],
    left: str,
    later: dict[tuple[str, int], str],
) -> None:
    """The second step may have another target and fewer members, and is still safe."""
    everyone = set("ABCD")
    first = withhold(_nested(target, everyone), _nested(current, everyone))
    rest = everyone - {left}
    second = withhold(_nested({p: m for p, m in later.items() if m in rest}, rest), first)
    for member, other in ((m, o) for m in rest for o in rest if m != o):
        for topic, partitions in second[member].items():
            assert not set(partitions) & set(first[other].get(topic, ()))


def test_a_partition_with_two_holders_is_given_to_neither_at_first() -> None:
    """Both must let go before one of them gets it."""
    now = {"A": {"t": [0]}, "B": {"t": [0]}}
    assert withhold({"A": {"t": [0]}, "B": {}}, now) == {"A": {}, "B": {}}


@pytest.mark.parametrize("generation", [5, 6])
def test_a_stale_claim_loses_and_a_double_one_is_nobodys(generation: int) -> None:
    """An older generation loses to a newer one; within one generation the partition is withheld from all."""
    members = {"C0": member_of("t", "tp0", generation), "C1": member_of("t", "tp0 tp1", 5)}
    got = REGISTRY["cooperative-sticky"].function(topics_of(t=4), members, None)
    owners = [member for member in got if TopicPartition("t", 0) in got[member]]
    assert owners == ([] if generation == 5 else ["C0"])


@FAST
@given(group=groups(equal=True, racks=False))
def test_members_grow_one_by_one_and_stay_level(group: tuple[Topics, Members]) -> None:
    """Sticky gives a newcomer its share and takes no more from the others than that."""
    topics, members = group
    assignor, generation = REGISTRY["sticky"], 0
    joined: Members = {}
    settled: list[Assignment] = []
    for member, subscription in members.items():
        joined[member] = subscription
        assignment, joined, generation = settle(assignor, topics, joined, generation)
        settled.append(assignment)
    for before, after in pairwise(settled):
        newcomer = next(iter(set(after) - set(before)))
        moves = _moves(before, after)
        assert moves.moved == moves.assigned == after.loads()[newcomer]
