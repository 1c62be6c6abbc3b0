"""Large groups are computed in numpy's arrays, with the answer of the plain way, list order included."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

import assignors.range
import assignors.sticky_claims
from assignors import (
    Assignment,
    AssignorMemory,
    Subscription,
    TopicMetadata,
    TopicPartition,
    encode_sticky_user_data,
    get_assignor,
)
from assignors.range import assign_range
from assignors.sticky_large import assign_large

_NEVER = 10**12
_MANY = 70  # enough members for their user data to be read in step


def _subscription(
    topics: tuple[str, ...], owned: tuple[TopicPartition, ...] = (), generation: int | None = 1
) -> Subscription:
    """Let a member claim in both places; without a generation in layout v0."""
    return Subscription(
        topics=topics,
        owned_partitions=owned,
        generation_id=-1 if generation is None else generation,
        user_data=encode_sticky_user_data(owned, generation) if owned else None,
    )


def _sound_group(seed: int) -> tuple[dict[str, TopicMetadata], dict[str, Subscription]]:
    """Make a group of equal subscriptions whose claims exist and contradict nobody."""
    seeded = random.Random(seed)
    lengths = (1, 3, 7, 8, 9, 16, 21)
    names = tuple(f"{i}é"[:length].ljust(length, "x") for i, length in enumerate(seeded.sample(lengths, 4)))
    topics = {name: TopicMetadata.of_count(seeded.randrange(60)) for name in names}
    names = (*names, "no such topic")
    members = [f"m{i}-{seeded.randrange(999)}" for i in range(seeded.choice((1, 3, 12, _MANY, 100)))]
    owned: dict[str, list[TopicPartition]] = {member: [] for member in members}
    if seeded.random() < 0.9:
        claimants = seeded.sample(members, seeded.randrange(1, len(members) + 1))
        for topic, metadata in topics.items():
            for partition in metadata.partitions:
                if seeded.random() < 0.8:
                    owned[seeded.choice(claimants)].append(TopicPartition(topic, partition))
        for i, claimant in enumerate(claimants):
            if seeded.random() < 0.3:
                owned[claimant].append(TopicPartition("gone topic", i))
    subscriptions = {
        member: _subscription(
            tuple(seeded.sample(names, len(names))),
            tuple(seeded.sample(owned[member], len(owned[member]))),
            seeded.choice((1, 2, None)),
        )
        for member in members
    }
    return topics, subscriptions


def _plain(
    name: str,
    topics: dict[str, TopicMetadata],
    subscriptions: dict[str, Subscription],
    memory: AssignorMemory | None = None,
) -> Assignment:
    """Ask without arrays, which groups this small never get."""
    return get_assignor(name).function(topics, subscriptions, memory)


@pytest.mark.parametrize("name", ["sticky", "cooperative-sticky"])
@pytest.mark.parametrize("seed", range(60))
def test_a_sound_group_is_answered_as_on_the_plain_way(name: str, seed: int) -> None:
    """Same partitions in the same order, and the same highest generation remembered."""
    topics, subscriptions = _sound_group(seed)
    memory, plain_memory = AssignorMemory(), AssignorMemory()
    assignment = assign_large(topics, subscriptions, memory, is_cooperative=name != "sticky")
    assert assignment is not None
    assert dict(assignment) == dict(_plain(name, topics, subscriptions, plain_memory))
    assert memory == plain_memory


def _one_reader(data: bytes | None = None, **fields: object) -> Subscription:
    return Subscription(topics=("t", "s"), user_data=data, **fields)  # type: ignore[arg-type]


_T0 = encode_sticky_user_data([("t", 0)], 1)


@pytest.mark.parametrize(
    ("oddity", "odd"),
    [
        ("a rack", _one_reader(rack_id="r")),
        ("another subscription", Subscription(topics=("t",))),
        ("a topic twice", Subscription(topics=("t", "s", "s"))),
        ("a topic twice instead of another", Subscription(topics=("t", "t"))),
        ("a partition that does not exist", _one_reader(encode_sticky_user_data([("t", 99)], 1))),
        ("a negative partition", _one_reader(encode_sticky_user_data([("t", -1)], 1))),
        ("a claim that another member makes", _one_reader(encode_sticky_user_data([("t", 1)], 1))),
        ("too few bytes for a count", _one_reader(b"\x00")),
        ("a negative count of topics", _one_reader(b"\xff\xff\xff\xff" + _T0)),
        ("more topics than bytes", _one_reader(b"\x00\x00\xff\xff" + _T0)),
        ("an end before a topic's name", _one_reader(b"\x00\x00\x00\x01\x00")),
        ("a negative length", _one_reader(b"\x00\x00\x00\x01\xff\xffxxxxxxxx")),
        ("a name without an end", _one_reader(b"\x00\x00\x00\x01\x00\x09t\x00\x00")),
        (
            "more partitions than bytes",
            _one_reader(b"\x00\x00\x00\x01\x00\x01t\x00\x00\x00\x09\x00\x00\x00\x01"),
        ),
        ("a negative count of partitions", _one_reader(b"\x00\x00\x00\x01\x00\x01t\xff\xff\xff\xff")),
    ],
)
def test_an_odd_group_goes_the_plain_way(oddity: str, odd: Subscription) -> None:
    """One odd member of many is enough to decline, and nothing is remembered then."""
    topics = {"t": TopicMetadata.of_count(90), "s": TopicMetadata.of_count(5)}
    told = {f"m{i}": _one_reader(encode_sticky_user_data([("t", i)], 7)) for i in range(_MANY)}
    memory = AssignorMemory()
    assert assign_large(topics, told, memory, is_cooperative=False) is not None
    assert memory.max_generation == 7
    memory = AssignorMemory()
    assert assign_large(topics, {**told, "odd": odd}, memory, is_cooperative=False) is None, oddity
    assert memory.max_generation == -1


def test_numbers_with_gaps_and_repeated_topics_go_the_plain_way() -> None:
    """Topics must be numbered from 0, and listed once."""
    alike = {"A": Subscription(topics=("t",)), "B": Subscription(topics=("t",))}
    twice = {"A": Subscription(topics=("t", "t"))}
    memory = AssignorMemory()
    assert assign_large({"t": TopicMetadata((0, 2))}, alike, memory, is_cooperative=True) is None
    assert assign_large({"t": TopicMetadata(range(1, 3))}, alike, memory, is_cooperative=True) is None
    assert assign_large({"t": TopicMetadata.of_count(3)}, twice, memory, is_cooperative=True) is None


@pytest.mark.parametrize(
    ("names", "is_taken"),
    [
        # Words 0 and 2 differ by a bit that multiplying by any odd number's square leaves alone.
        (("aaaaaaaA" + "bbbbbbbb" + "cccccccc", "aaaaaaaa" + "bbbbbbbb" + "cccccccC"), False),
        (("what \ufffd is read as", "t"), False),
        (("lone \ud800 surrogate", "t"), True),
    ],
)
def test_strange_names_are_told_apart_or_left_to_the_plain_way(
    names: tuple[str, ...], is_taken: bool
) -> None:
    """Names that might be mixed up when bytes are compared are never mixed up."""
    topics = {name: TopicMetadata.of_count(_MANY) for name in names}
    subscriptions = {
        f"m{i}": Subscription(
            topics=names, user_data=encode_sticky_user_data([(name, i) for name in names], 1)
        )
        for i in range(_MANY)
    }
    assignment = assign_large(topics, subscriptions, AssignorMemory(), is_cooperative=False)
    assert (assignment is not None) == is_taken
    if assignment is not None:
        assert dict(assignment) == dict(_plain("sticky", topics, subscriptions))


def test_members_that_claim_no_topic_are_fresh() -> None:
    """User data of no topics at all is a claim to nothing, of a generation all the same."""
    topics = {"t": TopicMetadata.of_count(_MANY)}
    nothing = b"\x00\x00\x00\x00\x00\x00\x00\x05"
    subscriptions = {f"m{i}": Subscription(topics=("t",), user_data=nothing) for i in range(_MANY)}
    memory = AssignorMemory()
    assignment = assign_large(topics, subscriptions, memory, is_cooperative=False)
    assert assignment is not None
    assert dict(assignment) == dict(_plain("sticky", topics, subscriptions))
    assert memory.max_generation == 5


@pytest.fixture
def without_arrays(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Give a switch that sends groups of every size the plain way."""

    def switch() -> None:
        for module in (assignors.range, assignors.sticky_claims):
            monkeypatch.setattr(module, "_LEAST_LARGE_PARTITIONS", _NEVER)

    return switch


@pytest.mark.parametrize("name", ["sticky", "cooperative-sticky", "range", "roundrobin"])
def test_a_really_large_group_is_answered_alike(name: str, without_arrays: Callable[[], None]) -> None:
    """25,000 partitions, 75 members, fresh and after one left: each way gives the other's answer."""
    topics = {f"topic-{i}": TopicMetadata.of_count(1_000) for i in range(25)}
    members = {f"m{i}": Subscription(topics=tuple(topics)) for i in range(75)}
    fresh = get_assignor(name).function(topics, members, None)
    staying = {m: _subscription(s.topics, fresh[m]) for m, s in members.items() if m != "m40"}
    after = get_assignor(name).function(topics, staying, None)
    odd = {**staying, "m41": Subscription(topics=tuple(topics), rack_id="r", user_data=b"junk")}
    with_rack = get_assignor(name).function(topics, odd, None)
    without_arrays()
    assert dict(fresh) == dict(_plain(name, topics, members))
    assert dict(after) == dict(_plain(name, topics, staying))
    assert dict(with_rack) == dict(_plain(name, topics, odd))


@pytest.mark.parametrize("seed", range(20))
def test_runs_of_unlike_readers_are_dealt_alike(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Range gives the same runs in the same order, gaps and static members included."""
    seeded = random.Random(seed)
    topics = {f"t{i}": TopicMetadata.of_count(seeded.randrange(1, 30)) for i in range(6)}
    if seed % 4 == 0:
        topics["gaps"] = TopicMetadata((4, 0, 9))
    members = {
        f"m{i}": Subscription(
            topics=tuple(seeded.sample(list(topics), seeded.randrange(len(topics)))),
            group_instance_id=seeded.choice((None, f"i{99 - i}")),
        )
        for i in range(20)
    }
    plain = assign_range(topics, members)
    monkeypatch.setattr(assignors.range, "_LEAST_LARGE_PARTITIONS", 1)
    assert dict(assign_range(topics, members)) == dict(plain)
