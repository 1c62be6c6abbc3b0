"""The optimal assignor: no assignment is more even, none as even moves less, and there is a proof."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assignors import (
    REGISTRY,
    Assignment,
    AssignorError,
    Subscription,
    TopicMetadata,
    TopicPartition,
    assign_sticky,
    encode_sticky_user_data,
)
from assignors.optimal import (
    Certificate,
    assign_optimal,
    assign_optimal_cooperative,
    certificate_of,
    check_certificate,
    find_optimum,
    kit,
)
from assignors.optimal import group as optimal_group
from assignors.optimal.small import assign_small_equals
from assignors.server_side import assign_server_uniform
from tests.parity.optimal import (
    Subscriptions,
    Topics,
    exact_score,
    find_optimal_differences,
    owners_before,
    random_group,
    score,
)

groups = st.randoms(use_true_random=False).map(lambda rng: random_group(rng, 8, 8))


def topics_of(**counts: int) -> dict[str, TopicMetadata]:
    """Make topics of so many partitions."""
    return {name: TopicMetadata.of_count(count) for name, count in counts.items()}


def readers(**wanted: str) -> dict[str, Subscription]:
    """Make members that own nothing: name -> topics, parted by blanks."""
    return {member: Subscription(topics=tuple(topics.split())) for member, topics in wanted.items()}


def owning(
    subscriptions: Subscriptions, assignment: Mapping[str, tuple[TopicPartition, ...]]
) -> Subscriptions:
    """Let the members own what an assignment gives them."""
    return {
        member: replace(s, owned_partitions=assignment.get(member, ()), generation_id=1)
        for member, s in subscriptions.items()
    }


def as_dict(assignment: Assignment) -> dict[str, tuple[TopicPartition, ...]]:
    """Take an assignment apart."""
    return dict(assignment.items())


@pytest.fixture
def always_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every group be large."""
    monkeypatch.setattr(optimal_group, "kit_for", lambda size: kit.compiled())


class TestExact:
    """Against OR-tools; `make parity` has many and larger groups."""

    def test_random_groups_of_all_kinds(self) -> None:
        """Square sum, racks, moves and the certificate's check agree on 500 groups."""
        assert list(find_optimal_differences(500, seed=2026, most_members=16, most_topics=16)) == []

    def test_compiled_they_are_the_same(self, always_compiled: None) -> None:
        """Numba's functions find what Python's do, to the last partition."""
        for number in range(150):
            topics, subscriptions = random_group(random.Random(number), 12, 12)
            compiled = find_optimum(topics, subscriptions)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(optimal_group, "kit_for", lambda size: kit.PLAIN)
                plain = find_optimum(topics, subscriptions)
            assert as_dict(compiled.assignment) == as_dict(plain.assignment)
            assert (compiled.moved, compiled.kept) == (plain.moved, plain.kept)
            assert certificate_of(compiled) == certificate_of(plain)

    @given(groups)
    def test_small_groups_of_equals_take_no_other_answer(self, group: tuple[Topics, Subscriptions]) -> None:
        """The short way for equal subscriptions gives what the long one does."""
        topics, subscriptions = group
        alike = {
            member: replace(s, topics=tuple(topics), rack_id=None) for member, s in subscriptions.items()
        }
        short = assign_small_equals(topics, alike)
        if short is not None:
            assert as_dict(short) == as_dict(find_optimum(topics, alike).assignment)

    @given(groups)
    def test_an_assignment_says_as_much_as_claims(self, group: tuple[Topics, Subscriptions]) -> None:
        """Whether owners come as claims or as the Assignment before is all one."""
        topics, subscriptions = group
        before = assign_optimal(
            topics, {m: replace(s, owned_partitions=()) for m, s in subscriptions.items()}
        )
        changed = {m: s for m, s in subscriptions.items() if m != "m0"} or subscriptions
        claiming = find_optimum(topics, owning(changed, before))
        told = find_optimum(topics, changed, before)
        assert as_dict(claiming.assignment) == as_dict(told.assignment)
        assert claiming.moved == told.moved


def test_numba_is_loaded_when_that_pays() -> None:
    """A small group never does; a large one does, or many middling ones, and then all but small ones gain."""
    code = """
import sys
from assignors.optimal import kit
def kinds(*sizes):
    return [kit.kit_for(size) is kit.PLAIN for size in sizes]
kit._MOST_PLAIN = 3_000
assert kinds(*[199] * 100) == [True] * 100
assert kinds(1_000, 1_000, 1_000) == [True] * 3 and "numba" not in sys.modules
assert kinds(1_000, 199, 200) == [False, True, False] and "numba" in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    code = """
from assignors.optimal import kit
assert [kit.kit_for(size) is kit.PLAIN for size in (19_999, 20_000, 19_999)] == [True, False, False]
"""
    subprocess.run([sys.executable, "-c", code], check=True)


class TestWorkedExamples:
    """Small groups where one can see it."""

    def test_the_smallest_that_kafka_leaves_uneven(self) -> None:
        """t0 has 2 partitions, t1 has 4: Kafka's sticky gives 3, 2 and 1, and 2, 2 and 2 can be had."""
        topics = topics_of(t0=2, t1=4)
        subscriptions = readers(m0="t1", m1="t0 t1", m2="t0")
        assert sorted(assign_sticky(topics, subscriptions).loads().values()) == [1, 2, 3]
        assert assign_optimal(topics, subscriptions).loads() == {"m0": 2, "m1": 2, "m2": 2}

    def test_a_chain_evens_out_along_its_whole_length(self) -> None:
        """9, 10 and 11 become 10, 10 and 10 where one partition can be handed on by the one between."""
        topics = topics_of(t1=14, t2=16)
        subscriptions = readers(m1="t1", m2="t1 t2", m3="t2")
        before = Assignment.of(
            {
                "m1": [("t1", p) for p in range(9)],
                "m2": [("t1", p) for p in range(9, 14)] + [("t2", p) for p in range(5)],
                "m3": [("t2", p) for p in range(5, 16)],
            }
        )
        optimum = find_optimum(topics, subscriptions, before)
        assert optimum.assignment.loads() == {"m1": 10, "m2": 10, "m3": 10}
        assert optimum.moved == 2

    def test_levels_that_nothing_can_bring_together(self) -> None:
        """Two share what only they read, and a small topic's only reader keeps to that: three classes."""
        topics = topics_of(huge=100, large=30, small=5)
        subscriptions = readers(a="huge", b="large huge", c="large small", d="small")
        optimum = find_optimum(topics, subscriptions)
        assert sorted(optimum.assignment.loads().values()) == [5, 30, 50, 50]
        boxes = [(one.least, one.most) for one in certificate_of(optimum).classes]
        assert boxes == [(5, 5), (30, 30), (50, 50)]

    def test_a_newcomer_gets_its_share_and_nothing_else_moves(self) -> None:
        """20 partitions at five members: the sixth takes three, each from another."""
        topics = topics_of(t=20)
        five = readers(a="t", b="t", c="t", d="t", e="t")
        optimum = find_optimum(topics, {**five, **readers(f="t")}, assign_optimal(topics, five))
        assert optimum.assignment.loads() == {"a": 4, "b": 4, "c": 3, "d": 3, "e": 3, "f": 3}
        assert (optimum.moved, optimum.kept) == (3, 17)

    def test_what_a_dead_member_owned_is_dealt_in_a_circle(self) -> None:
        """Nobody is moved when one leaves, and its partitions do not all go to one."""
        topics = topics_of(t=12)
        three = readers(a="t", b="t", c="t")
        two = {member: three[member] for member in ("a", "b")}
        optimum = find_optimum(topics, two, assign_optimal(topics, three))
        assert optimum.assignment.loads() == {"a": 6, "b": 6}
        assert (optimum.moved, optimum.kept) == (0, 8)

    def test_racks_come_after_balance_and_before_moves(self) -> None:
        """A partition moves to be near, but no load becomes uneven for it."""
        racks = (("a",), ("a",), ("a",), ("b",))
        topics = {"t": TopicMetadata(range(4), racks)}
        subscriptions = {
            "m0": Subscription(
                topics=("t",),
                rack_id="a",
                owned_partitions=(TopicPartition("t", 2), TopicPartition("t", 3)),
            ),
            "m1": Subscription(
                topics=("t",),
                rack_id="b",
                owned_partitions=(TopicPartition("t", 0), TopicPartition("t", 1)),
            ),
        }
        optimum = find_optimum(topics, subscriptions)
        assert optimum.assignment.loads() == {"m0": 2, "m1": 2}
        assert score(topics, subscriptions, optimum.assignment)[1:] == (1, 2)

    def test_nobody_to_assign_to(self) -> None:
        """A group without members is an error, as with Kafka's classes; without topics it is none."""
        with pytest.raises(AssignorError, match="without members"):
            assign_optimal(topics_of(t=1), {})
        assert as_dict(assign_optimal({}, readers(a="t", b=""))) == {"a": (), "b": ()}


class TestNeverWorse:
    """Than the assignors that move little, on any group."""

    @given(groups)
    def test_than_kafka_s(self, group: tuple[Topics, Subscriptions]) -> None:
        """Neither the client's sticky nor the server's uniform comes before it in (square sum, moves)."""
        topics, subscriptions = group
        # Kafka's own classes throw, or hand on what there is not, where claims are void or numbers have gaps.
        topics = {name: TopicMetadata.of_count(len(topic)) for name, topic in topics.items() if len(topic)}
        before = owners_before(topics, subscriptions)
        sound = {
            member: replace(
                s,
                topics=tuple(t for t in s.topics if t in topics),
                rack_id=None,
                generation_id=1,
                owned_partitions=tuple(pair for pair, owner in before.items() if owner == member),
            )
            for member, s in subscriptions.items()
        }
        sound = {member: s for member, s in sound.items() if s.topics}
        if not sound:
            return
        best = score(topics, sound, assign_optimal(topics, sound))
        eager = {
            m: replace(s, user_data=encode_sticky_user_data(s.owned_partitions, 1)) for m, s in sound.items()
        }
        assert best <= score(topics, sound, assign_sticky(topics, eager))
        assert best <= score(topics, sound, assign_server_uniform(topics, sound))

    @given(groups)
    def test_again_it_moves_nothing(self, group: tuple[Topics, Subscriptions]) -> None:
        """What is optimal stays as it is."""
        topics, subscriptions = group
        once = assign_optimal(topics, subscriptions)
        again = find_optimum(topics, subscriptions, once)
        assert as_dict(again.assignment) == as_dict(once)
        assert again.moved == 0

    @given(groups, st.randoms(use_true_random=False))
    def test_no_order_shows(self, group: tuple[Topics, Subscriptions], rng: random.Random) -> None:
        """However members, topics and claims are listed, the answer is one."""
        topics, subscriptions = group

        def mixed(items: Mapping[str, object]) -> dict[str, object]:
            return dict(rng.sample(list(items.items()), len(items)))

        turned = {
            member: replace(
                s,
                topics=tuple(rng.sample(s.topics, len(s.topics))),
                owned_partitions=tuple(rng.sample(s.owned_partitions, len(s.owned_partitions))),
            )
            for member, s in mixed(subscriptions).items()
        }
        assert as_dict(assign_optimal(mixed(topics), turned)) == as_dict(
            assign_optimal(topics, subscriptions)
        )


class TestCertificate:
    """The proof, and its check, which has nothing of the solver's."""

    @given(groups)
    def test_every_optimum_has_one_and_json_keeps_it(self, group: tuple[Topics, Subscriptions]) -> None:
        """Written down and read again, it still proves the assignment."""
        topics, subscriptions = group
        optimum = find_optimum(topics, subscriptions)
        read = Certificate.from_json(json.loads(json.dumps(certificate_of(optimum).to_json())))
        assert read == certificate_of(optimum)
        assert check_certificate(read, topics, subscriptions, optimum.assignment) == []

    @given(groups, st.randoms(use_true_random=False))
    def test_it_proves_nothing_worse(self, group: tuple[Topics, Subscriptions], rng: random.Random) -> None:
        """With partitions moved about it holds only if they lie as well as before."""
        topics, subscriptions = group
        optimum = find_optimum(topics, subscriptions)
        moved = {member: list(pairs) for member, pairs in optimum.assignment.items()}
        for _ in range(rng.randint(1, 3)):
            pairs = [(member, pair) for member, held in moved.items() for pair in held]
            if not pairs:
                return
            member, pair = rng.choice(pairs)
            moved[member].remove(pair)
            moved[rng.choice([m for m, s in subscriptions.items() if pair.topic in s.topics])].append(pair)
        faults = check_certificate(certificate_of(optimum), topics, subscriptions, moved)
        is_as_good = score(topics, subscriptions, moved) == exact_score(topics, subscriptions)
        assert is_as_good or faults

    @given(groups, st.randoms(use_true_random=False))
    def test_no_forged_one_proves_what_is_not_optimal(
        self, group: tuple[Topics, Subscriptions], rng: random.Random
    ) -> None:
        """Whatever is changed in a certificate, it proves no assignment that the solver finds wanting."""
        topics, subscriptions = group
        worse = assign_server_like(topics, subscriptions, rng)
        if score(topics, subscriptions, worse) == exact_score(topics, subscriptions):
            return
        optimum = find_optimum(topics, subscriptions)
        for forged in forgeries(certificate_of(optimum), worse, rng):
            assert check_certificate(forged, topics, subscriptions, worse)

    def test_what_it_says_of_a_certificate_that_does_not_hold(self) -> None:
        """Each fault is named: a member forgotten, a box too wide, a load outside, a step for less."""
        topics = topics_of(t0=2, t1=4)
        subscriptions = readers(m0="t1", m1="t0 t1", m2="t0")
        optimum = find_optimum(topics, subscriptions)
        value = certificate_of(optimum).to_json()

        def faults(**changes: object) -> str:
            changed = Certificate.from_json({"classes": [{**value["classes"][0], **changes}]})
            return "; ".join(check_certificate(changed, topics, subscriptions, optimum.assignment))

        assert faults() == ""
        assert "members are not the group's" in faults(members={"m0": 1, "m1": 1})
        assert "topics are not those subscribed to" in faults(topics=[["t0", 0]])
        assert "may span one at most" in faults(least=0)
        assert "outside [3, 3]" in faults(least=3, most=3)
        assert "could give a partition of 't0' for less" in faults(topics=[["t0", 9], ["t1", 0]])
        assert "could take a partition of 't0' for less" in faults(topics=[["t0", -9], ["t1", 0]])
        assert "two owners" in "; ".join(
            check_certificate(
                certificate_of(optimum),
                topics,
                subscriptions,
                {**optimum.assignment, "m0": (*optimum.assignment["m0"], *optimum.assignment["m1"])},
            )
        )


def assign_server_like(
    topics: Topics, subscriptions: Subscriptions, rng: random.Random
) -> dict[str, list[TopicPartition]]:
    """Deal every partition to some subscriber."""
    dealt: dict[str, list[TopicPartition]] = {member: [] for member in subscriptions}
    for name, topic in topics.items():
        of_topic = [member for member, s in subscriptions.items() if name in s.topics]
        for number in topic.partitions if of_topic else ():
            dealt[rng.choice(of_topic)].append(TopicPartition(name, number))
    return dealt


def forgeries(
    certificate: Certificate, assignment: Mapping[str, list[TopicPartition]], rng: random.Random
) -> Iterator[Certificate]:
    """Change potentials, boxes and classes, boxes also to what the loads would need."""
    for _ in range(10):
        classes = [
            replace(
                one,
                potential=one.potential + rng.choice((0, 0, -1, 1)),
                members={m: p + rng.choice((0, 0, -1, 1)) for m, p in one.members.items()},
                rows={row: p + rng.choice((0, 0, -1, 1)) for row, p in one.rows.items()},
            )
            for one in certificate.classes
        ]
        yield Certificate(tuple(classes))
        fitted = []
        for one in classes:
            loads = [len(assignment[member]) for member in one.members]
            fitted.append(replace(one, least=min(loads), most=max(loads)))
        yield Certificate(tuple(fitted))
        yield Certificate(tuple(reversed(fitted)))
        levels: dict[int, dict[str, int]] = {}
        for one in classes:
            for member, potential in one.members.items():
                levels.setdefault(len(assignment[member]), {})[member] = potential
        rows = {row: p for one in classes for row, p in one.rows.items()}
        yield Certificate(
            tuple(
                replace(classes[0], least=level, most=level, members=members, rows=rows if not place else {})
                for place, (level, members) in enumerate(sorted(levels.items()))
            )
        )


class TestCooperative:
    """The two steps."""

    @given(groups)
    def test_the_first_step_gives_nothing_that_another_holds(
        self, group: tuple[Topics, Subscriptions]
    ) -> None:
        """It is the target without what another live member claims, and the claims it leaves are settled."""
        topics, subscriptions = group
        target = assign_optimal(topics, subscriptions)
        first = assign_optimal_cooperative(topics, subscriptions)
        claimed: dict[TopicPartition, set[str]] = {}
        for member, s in subscriptions.items():
            for pair in s.owned_partitions:
                claimed.setdefault(pair, set()).add(member)
        for member in subscriptions:
            free = [pair for pair in target[member] if claimed.get(pair, {member}) == {member}]
            assert list(first[member]) == free

    @given(groups)
    def test_the_second_revokes_nothing_and_is_as_even(self, group: tuple[Topics, Subscriptions]) -> None:
        """Once everybody has let go, what was withheld is given out and the loads are the target's."""
        topics, subscriptions = group
        target = find_optimum(topics, subscriptions)
        first = assign_optimal_cooperative(topics, subscriptions)
        after = owning(subscriptions, first)
        second = assign_optimal_cooperative(topics, after)
        for member in subscriptions:
            assert set(first[member]) <= set(second[member])
        assert sorted(second.loads().values()) == sorted(target.assignment.loads().values())

    def test_registered(self) -> None:
        """Both are there by name, for groups, `assign` and what-if questions."""
        assert REGISTRY["optimal"].rebalance_protocol == "EAGER"
        assert REGISTRY["optimal-cooperative"].rebalance_protocol == "COOPERATIVE"
        assert all(REGISTRY[name].is_sticky for name in ("optimal", "optimal-cooperative"))


_SPARSE = """
import random, re
from assignors import Subscription, TopicMetadata
from assignors.optimal import certificate_of, check_certificate, find_optimum
rng = random.Random(5)
topics = {f"t{t}": TopicMetadata.of_count(rng.randint(1, 9)) for t in range(10_000)}
names = list(topics)
members = {f"m{m}": Subscription(topics=tuple(rng.sample(names, 5))) for m in range(10_000)}
optimum = find_optimum(topics, members)
assert not check_certificate(certificate_of(optimum), topics, members, optimum.assignment)
print(int(re.search(r"VmHWM:\\s*(\\d+)", open("/proc/self/status").read())[1]) // 1024)
"""


class TestLarge:
    """Sizes at which anything dense or quadratic would show."""

    def test_many_members_and_topics_few_arcs(self) -> None:
        """10,000 members x 10,000 topics, five topics each: proven, and no dense matrix of 800 MB."""
        ran = subprocess.run([sys.executable, "-c", _SPARSE], capture_output=True, text=True, check=True)
        assert int(ran.stdout) < 600

    def test_one_huge_topic_and_very_many_members(self) -> None:
        """200,000 partitions of one topic at 100,000 members: two each; one leaves, and two are dealt."""
        topics = topics_of(t=200_000)
        subscriptions = {f"m{m}": Subscription(topics=("t",)) for m in range(100_000)}
        first = find_optimum(topics, subscriptions)
        assert set(first.assignment.loads().values()) == {2}
        del subscriptions["m7"]
        second = find_optimum(topics, subscriptions, first.assignment)
        assert (second.moved, second.kept) == (0, 199_998)
        assert max(second.assignment.loads().values()) == 3
