"""What Kafka's own suites try out on KIP-848's range and uniform, answered by us and by Kafka.

Written from what the group coordinator's RangeAssignorTest,
UniformHeterogeneousAssignmentBuilderTest and UniformHomogeneousAssignmentBuilderTest (once
OptimizedUniformAssignmentBuilderTest, of a class that gave the larger share to the first)
test. Each test runs twice: on this project, and on the Java classes of Kafka 4.3.1, where they
can be built; so the answers written down here are Kafka's. The ids of topics decide ties, so
each topic has one that is made up for it.
"""

from __future__ import annotations

import base64
import json
import random
import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from console.assign_lines import answer_lines

Assign = Callable[..., dict[str, str] | str]
"""(assignor, topics, members, type, buckets) -> member -> its partitions in list order, or "error"."""

_BUCKETS = {"t1": 10, "t2": 1, "t3": 9, "t4": 5}
"""Where each topic stands in Java's tables of 16; by their ids the topics compare as by their names."""

_MEMBER = re.compile(
    r"(?P<id>\S+) reads(?P<topics>(?: [^\s,]+)*)(?:, owns(?P<owned>(?: \S+p\d+)*))?"
    r"(?:, static (?P<static>\S+))?"
)


def _topic_id(topic: str, bucket: int) -> str:
    """Make an id whose two halves xor to the bucket, and which compares as the topic's number does."""
    number = int(topic[1:])
    return base64.urlsafe_b64encode(number.to_bytes(8, "big") + (number ^ bucket).to_bytes(8, "big")).decode()


def _member(text: str) -> dict[str, Any]:
    found = _MEMBER.fullmatch(text)
    assert found, f"no member: {text!r}"
    pairs = [owned.rpartition("p") for owned in (found["owned"] or "").split()]
    owned = [[topic, int(number)] for topic, _, number in pairs]
    static = {"instance_id": found["static"]} if found["static"] else {}
    return {"id": found["id"], "topics": found["topics"].split(), "owned": owned, **static}


@pytest.fixture(params=["ours", pytest.param("kafka", marks=pytest.mark.oracle)])
def ask(request: pytest.FixtureRequest) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Give whoever answers a case: this project, or Kafka's own classes."""

    def answer(case: dict[str, Any]) -> dict[str, Any]:
        if request.param == "kafka":
            given: dict[str, Any] = request.getfixturevalue("oracle").ask(case)
        else:
            (given,) = answer_lines([json.dumps(case)])
            assert given.get("error") in (None, "assignor_error"), given
        return given

    return answer


@pytest.fixture
def assign(ask: Callable[[dict[str, Any]], dict[str, Any]]) -> Assign:
    """Let a case be asked in short: topics "t1=3 t2=2", members after _MEMBER."""

    def answer(
        assignor: str,
        topics: str,
        members: tuple[str, ...],
        subscription_type: str | None = None,
        buckets: Mapping[str, int] | None = None,
    ) -> dict[str, str] | str:
        placed = {**_BUCKETS, **(buckets or {})}
        case: dict[str, Any] = {
            "id": 0,
            "assignor": f"server-{assignor}",
            "topics": {
                name: int(count) for name, _, count in (text.partition("=") for text in topics.split())
            },
            "topic_ids": {topic: _topic_id(topic, bucket) for topic, bucket in placed.items()},
            "members": [_member(text) for text in members],
        }
        if subscription_type:
            case["subscription_type"] = subscription_type
        given = ask(case)
        if "error" in given:
            return "error"
        return {m: " ".join(f"{t}p{p}" for t, p in owned) for m, owned in given["result"].items()}

    return answer


def test_members_without_topics_get_nothing(assign: Assign) -> None:
    """All three suites: whoever subscribes to nothing owns nothing."""
    for assignor in ("range", "uniform"):
        assert assign(assignor, "t1=3", ("A reads",), "homogeneous") == {"A": ""}
    members = ("A reads", "B reads")
    assert assign("uniform", "t1=3", members, "heterogeneous") == {"A": "", "B": ""}


def test_topics_that_do_not_exist_give_nothing(assign: Assign) -> None:
    """All three suites: a topic that nobody knows is no error for a member that subscribes to its name.

    The suites hand over a bare id without a topic, and the class refuses that. A coordinator
    describes members by names and passes on only the ids of topics that exist, as is done here.
    """
    for assignor in ("range", "uniform"):
        assert assign(assignor, "t1=3", ("A reads t2",), "homogeneous") == {"A": ""}
    members = ("A reads t3", "B reads t2")
    assert assign("uniform", "t1=3", members, "heterogeneous") == {"A": "", "B": ""}


def test_range_two_members_two_topics(assign: Assign) -> None:
    """RangeAssignorTest: the first member gets the larger part of the odd topic, the even one is halved."""
    members = ("A reads t1 t3", "B reads t1 t3")
    assert assign("range", "t1=3 t3=2", members) == {"A": "t1p0 t1p1 t3p0", "B": "t1p2 t3p1"}


def test_range_three_members_of_different_subscriptions(assign: Assign) -> None:
    """RangeAssignorTest: each topic is shared among its own readers."""
    members = ("A reads t1 t2", "B reads t3", "C reads t2 t3")
    assert assign("range", "t1=3 t2=3 t3=2", members) == {
        "A": "t1p0 t1p1 t1p2 t2p0 t2p1",
        "B": "t3p0",
        "C": "t2p2 t3p1",
    }


def test_range_with_more_members_than_partitions_of_a_topic(assign: Assign) -> None:
    """RangeAssignorTest: of a topic of two partitions the third member gets none."""
    members = ("A reads t1 t3", "B reads t1 t3", "C reads t1 t3")
    assert assign("range", "t1=3 t3=2", members) == {"A": "t1p0 t3p0", "B": "t1p1 t3p1", "C": "t1p2"}


def test_range_gives_a_static_member_its_run_again(assign: Assign) -> None:
    """RangeAssignorTest: a static member back under another member id gets what it had."""
    members = ("A reads t1, static instanceA", "B reads t1, static instanceB")
    assert assign("range", "t1=3", members) == {"A": "t1p0 t1p1", "B": "t1p2"}
    members = ("B reads t1, static instanceB", "memberA1 reads t1, static instanceA")
    assert assign("range", "t1=3", members) == {"B": "t1p2", "memberA1": "t1p0 t1p1"}


def test_range_puts_a_dynamic_member_behind_static_ones(assign: Assign) -> None:
    """RangeAssignorTest: with B dynamic, A and C come first, and A's new member id changes nobody's run."""
    members = ("A reads t1, static instanceA", "B reads t1", "C reads t1, static instanceC")
    assert assign("range", "t1=5", members) == {"A": "t1p0 t1p1", "B": "t1p4", "C": "t1p2 t1p3"}
    members = ("B reads t1", "C reads t1, static instanceC", "memberA1 reads t1, static instanceA")
    assert assign("range", "t1=5", members) == {"B": "t1p4", "C": "t1p2 t1p3", "memberA1": "t1p0 t1p1"}


def test_range_when_a_member_too_many_joins(assign: Assign) -> None:
    """RangeAssignorTest: a third member of topics with two partitions gets nothing."""
    members = ("A reads t1 t2, owns t1p0 t2p0", "B reads t1 t2, owns t1p1 t2p1", "C reads t1 t2")
    assert assign("range", "t1=2 t2=2", members) == {"A": "t1p0 t2p0", "B": "t1p1 t2p1", "C": ""}


def test_range_when_each_topic_grows_by_one(assign: Assign) -> None:
    """RangeAssignorTest: from three to four partitions, the new one goes to the shorter run."""
    members = ("A reads t1 t2, owns t1p0 t1p1 t2p0 t2p1", "B reads t1 t2, owns t1p2 t2p2")
    assert assign("range", "t1=4 t2=4", members) == {
        "A": "t1p0 t1p1 t2p0 t2p1",
        "B": "t1p2 t1p3 t2p2 t2p3",
    }


def test_range_when_a_member_joins(assign: Assign) -> None:
    """RangeAssignorTest: runs are cut anew, so B's only partition of each topic moves on to C."""
    members = ("A reads t1 t2, owns t1p0 t1p1 t2p0 t2p1", "B reads t1 t2, owns t1p2 t2p2", "C reads t1 t2")
    assert assign("range", "t1=3 t2=3", members) == {"A": "t1p0 t2p0", "B": "t1p1 t2p1", "C": "t1p2 t2p2"}


def test_range_when_a_member_joins_and_a_topic_grows(assign: Assign) -> None:
    """RangeAssignorTest: the newcomer reads one topic only, and gets its new partition."""
    members = ("A reads t1 t2, owns t1p0 t1p1 t2p0 t2p1", "B reads t1 t2, owns t1p2 t2p2", "C reads t1")
    assert assign("range", "t1=4 t2=3", members) == {
        "A": "t1p0 t1p1 t2p0 t2p1",
        "B": "t1p2 t2p2",
        "C": "t1p3",
    }


def test_range_when_a_member_leaves(assign: Assign) -> None:
    """RangeAssignorTest: who remains gets all."""
    members = ("B reads t1 t2, owns t1p2 t2p2",)
    assert assign("range", "t1=3 t2=3", members) == {"B": "t1p0 t1p1 t1p2 t2p0 t2p1 t2p2"}


def test_range_when_all_subscriptions_change(assign: Assign) -> None:
    """RangeAssignorTest: what members own of topics they no longer read counts for nothing."""
    members = (
        "A reads t1, owns t1p0 t1p1 t1p2 t2p0",
        "B reads t1 t2 t3, owns t2p1",
        "C reads t2, owns t2p2 t3p0 t3p1",
    )
    assert assign("range", "t1=3 t2=3 t3=2", members) == {
        "A": "t1p0 t1p1",
        "B": "t1p2 t2p0 t2p1 t3p0 t3p1",
        "C": "t2p2",
    }


def test_unequal_two_members_two_topics(assign: Assign) -> None:
    """UniformHeterogeneous: the shared topic makes up for the one that only A reads."""
    members = ("A reads t1 t3", "B reads t3")
    assert assign("uniform", "t1=3 t3=6", members) == {
        "A": "t1p0 t1p1 t1p2 t3p4",
        "B": "t3p0 t3p1 t3p2 t3p3 t3p5",
    }


def test_unequal_with_more_members_than_partitions(assign: Assign) -> None:
    """UniformHeterogeneous: of two readers of one partition the first gets it; C has a topic to itself."""
    members = ("A reads t3", "B reads t3", "C reads t1")
    assert assign("uniform", "t3=1 t1=2", members) == {"A": "t3p0", "B": "", "C": "t1p0 t1p1"}


def test_unequal_from_an_unbalanced_assignment(assign: Assign) -> None:
    """UniformHeterogeneous: C, who reads all, gives up what it owns of the topics that others read too."""
    members = (
        "A reads t1, owns t1p0 t1p1 t1p2",
        "B reads t1 t2, owns t1p3 t2p0",
        "C reads t1 t2 t3, owns t1p4 t1p5 t2p1 t2p2 t2p3 t3p0 t3p1 t3p2 t3p3",
    )
    assert assign("uniform", "t1=6 t2=4 t3=4", members) == {
        "A": "t1p0 t1p1 t1p2 t1p5",
        "B": "t1p3 t2p0 t2p1 t2p2 t2p3",
        "C": "t1p4 t3p0 t3p1 t3p2 t3p3",
    }


def test_unequal_when_topics_grow(assign: Assign) -> None:
    """UniformHeterogeneous: new partitions level the loads, and nobody gives up anything."""
    members = (
        "A reads t1 t3, owns t1p0 t1p1 t1p2 t1p3 t3p0 t3p1",
        "B reads t1 t2 t3 t4, owns t2p0 t2p1 t2p2 t4p0 t4p1 t4p2",
    )
    assert assign("uniform", "t1=6 t2=5 t3=3 t4=3", members) == {
        "A": "t1p0 t1p1 t1p2 t1p3 t1p4 t1p5 t3p0 t3p1 t3p2",
        "B": "t2p0 t2p1 t2p2 t2p3 t2p4 t4p0 t4p1 t4p2",
    }


def test_unequal_when_a_member_joins_and_topics_grow(assign: Assign) -> None:
    """UniformHeterogeneous: what A owns of a topic it no longer reads goes to the newcomer."""
    members = (
        "A reads t1, owns t1p0 t1p2 t2p0",
        "B reads t1 t2, owns t1p1 t2p1 t2p2",
        "C reads t1 t2",
    )
    assert assign("uniform", "t1=6 t2=7", members) == {
        "A": "t1p0 t1p2 t1p3 t1p4 t1p5",
        "B": "t1p1 t2p1 t2p2 t2p6",
        "C": "t2p0 t2p3 t2p4 t2p5",
    }


def test_unequal_when_a_member_leaves(assign: Assign) -> None:
    """UniformHeterogeneous: what nobody owns goes to the only reader of its topic, level or not."""
    members = (
        "A reads t1 t3, owns t1p0 t1p1 t1p2 t3p0 t3p1",
        "B reads t2, owns t2p3 t2p4 t2p5 t2p6",
    )
    assert assign("uniform", "t1=3 t2=8 t3=3", members) == {
        "A": "t1p0 t1p1 t1p2 t3p0 t3p1 t3p2",
        "B": "t2p0 t2p1 t2p2 t2p3 t2p4 t2p5 t2p6 t2p7",
    }


def test_unequal_when_a_subscription_goes(assign: Assign) -> None:
    """UniformHeterogeneous: A stops reading t2, whose partitions go to B; all of t1 goes to A for it."""
    members = (
        "A reads t1, owns t1p0 t1p2 t2p1 t2p3",
        "B reads t1 t2, owns t1p1 t2p0 t2p2 t2p4",
    )
    assert assign("uniform", "t1=3 t2=5", members) == {
        "A": "t1p0 t1p1 t1p2",
        "B": "t2p0 t2p1 t2p2 t2p3 t2p4",
    }


def test_unequal_when_a_topic_has_no_more_to_give(assign: Assign) -> None:
    """UniformHeterogeneous: B owns nothing; a topic that runs out before loads are level ends its round."""
    members = ("A reads t1 t2 t3, owns t1p0 t1p1 t2p0 t2p1 t3p0 t3p1", "B reads t1 t2 t3")
    assert assign("uniform", "t1=2 t2=2 t3=2", members, "heterogeneous") == {
        "A": "t2p0 t3p0 t3p1",
        "B": "t1p0 t1p1 t2p1",
    }


def test_unequal_with_one_member_without_topics(assign: Assign) -> None:
    """UniformHeterogeneous: a member that subscribes to nothing does not stop the other from getting all."""
    members = ("A reads t1", "B reads")
    assert assign("uniform", "t1=3", members) == {"A": "t1p0 t1p1 t1p2", "B": ""}


def test_equal_two_members_two_topics(assign: Assign) -> None:
    """UniformHomogeneous: the first leaves the larger share to the second; t3's id hashes before t1's."""
    members = ("A reads t1 t3", "B reads t1 t3")
    assert assign("uniform", "t1=3 t3=2", members) == {"A": "t3p0 t3p1", "B": "t1p0 t1p1 t1p2"}


def test_equal_with_more_members_than_partitions(assign: Assign) -> None:
    """UniformHomogeneous: the first of three members leaves both partitions to the others."""
    members = ("A reads t3", "B reads t3", "C reads t3")
    assert assign("uniform", "t3=2", members) == {"A": "", "B": "t3p0", "C": "t3p1"}


@pytest.mark.parametrize("seed", range(3))
def test_equal_in_a_large_group(ask: Callable[[dict[str, Any]], dict[str, Any]], seed: int) -> None:
    """UniformHomogeneous: 49 members share 297 partitions of topics with random ids, six or seven each."""
    dice = random.Random(seed)
    topics = [f"topic-{number}" for number in range(1, 100)]
    given = ask(
        {
            "id": 0,
            "assignor": "server-uniform",
            "topics": dict.fromkeys(topics, 3),
            "topic_ids": {t: base64.urlsafe_b64encode(dice.randbytes(16)).decode() for t in topics},
            "members": [{"id": f"member{number}", "topics": topics} for number in range(1, 50)],
        }
    )
    owned = [(topic, partition) for own in given["result"].values() for topic, partition in own]
    assert sorted(owned) == sorted((topic, partition) for topic in topics for partition in range(3))
    assert Counter(map(len, given["result"].values())) == {6: 46, 7: 3}


def test_equal_from_an_unbalanced_assignment(assign: Assign) -> None:
    """UniformHomogeneous: A gives up one partition, of the topic that its map of owned topics holds last."""
    topics, members = (
        "t1=3 t2=3",
        ("A reads t1 t2, owns t1p0 t1p1 t2p0 t2p1", "B reads t1 t2, owns t1p2 t2p2"),
    )
    assert assign("uniform", topics, members, buckets={"t1": 1, "t2": 2}) == {
        "A": "t1p0 t1p1 t2p0",
        "B": "t1p2 t2p1 t2p2",
    }
    assert assign("uniform", topics, members, buckets={"t1": 2, "t2": 1}) == {
        "A": "t1p0 t2p0 t2p1",
        "B": "t1p1 t1p2 t2p2",
    }


def test_equal_when_topics_grow(assign: Assign) -> None:
    """UniformHomogeneous: both keep all they own and get two and three of the five new partitions."""
    members = ("A reads t1 t2, owns t1p0 t1p2 t2p0", "B reads t1 t2, owns t1p1 t2p1 t2p2")
    assert assign("uniform", "t1=6 t2=5", members) == {
        "A": "t1p0 t1p2 t2p0 t2p3 t2p4",
        "B": "t1p1 t1p3 t1p4 t1p5 t2p1 t2p2",
    }


def test_equal_when_a_member_joins(assign: Assign) -> None:
    """UniformHomogeneous: the newcomer gets the one partition that each other member owns too many."""
    topics = "t1=3 t2=3"
    members = ("A reads t1 t2, owns t1p0 t1p2 t2p0", "B reads t1 t2, owns t1p1 t2p1 t2p2", "C reads t1 t2")
    assert assign("uniform", topics, members, buckets={"t1": 1, "t2": 2}) == {
        "A": "t1p0 t1p2",
        "B": "t1p1 t2p1",
        "C": "t2p0 t2p2",
    }
    assert assign("uniform", topics, members, buckets={"t1": 2, "t2": 1}) == {
        "A": "t1p0 t2p0",
        "B": "t2p1 t2p2",
        "C": "t1p1 t1p2",
    }


def test_equal_when_a_member_leaves(assign: Assign) -> None:
    """UniformHomogeneous: the two that remain keep what they own and share what the third one had."""
    members = ("A reads t1 t2, owns t1p0 t2p0", "B reads t1 t2, owns t1p1 t2p1")
    assert assign("uniform", "t1=3 t2=3", members) == {"A": "t1p0 t2p0 t2p2", "B": "t1p1 t1p2 t2p1"}


def test_equal_when_all_drop_a_topic(assign: Assign) -> None:
    """UniformHomogeneous: both stop reading t1 and keep what they own of t2."""
    members = ("A reads t2, owns t1p0 t2p0", "B reads t2, owns t1p1 t2p1")
    assert assign("uniform", "t1=2 t2=2", members) == {"A": "t2p0", "B": "t2p1"}
