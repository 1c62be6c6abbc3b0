"""What Kafka's own suites try out on the client-side assignors, answered by us and by Kafka.

Written from what AbstractStickyAssignorTest, StickyAssignorTest,
CooperativeStickyAssignorTest, RangeAssignorTest and RoundRobinAssignorTest of Kafka
4.3.1 test. Where those only ask for balance, here stands the very answer, list order
included. Each test runs twice: on this project, and on the Java classes, where they
can be built; so the answers written down here are Kafka's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from console.assign_lines import answer_lines

Assign = Callable[..., dict[str, str] | str]
"""(assignor, topics, members) -> member -> its partitions in list order, or "error"."""

_BOTH = ("sticky", "cooperative-sticky")

_MEMBER = re.compile(
    r"(?P<id>\S+) reads(?P<topics>(?: [^\s,]+)*)(?:, owns(?P<owned>(?: \S+p\d+)*))?"
    r"(?:, since (?P<since>-?\d+))?(?:, field (?P<field>-?\d+))?(?:, rack (?P<rack>\S+))?"
    r"(?:, static (?P<static>\S+))?(?:, data (?P<data>\S+))?"
)


def _case(assignor: str, topics: str, members: tuple[str, ...], session: str) -> dict[str, Any]:
    """Read a case: topics "t0=3 t1=a/b,c" (a count, or each partition's racks), members after _MEMBER."""
    case: dict[str, Any] = {"id": 0, "assignor": assignor, "topics": {}, "members": []}
    for text in topics.split():
        name, _, value = text.partition("=")
        racks = [part.split("/") for part in value.split(",")]
        case["topics"][name] = int(value) if value.isdigit() else racks
    for text in members:
        found = _MEMBER.fullmatch(text)
        assert found, f"no member: {text!r}"
        member: dict[str, Any] = {"id": found["id"], "topics": found["topics"].split()}
        if found["owned"] is not None:
            pairs = [text.rpartition("p") for text in found["owned"].split()]
            member["owned"] = [[topic, int(number)] for topic, _, number in pairs]
        for key, name in (("generation", "since"), ("sub_generation", "field")):
            if found[name] is not None:
                member[key] = int(found[name])
        for key, name in (("rack", "rack"), ("instance_id", "static"), ("user_data", "data")):
            if found[name] is not None:
                member[key] = found[name]
        case["members"].append(member)
    return {**case, "session": session} if session else case


@pytest.fixture(params=["ours", pytest.param("kafka", marks=pytest.mark.oracle)])
def assign(request: pytest.FixtureRequest) -> Assign:
    """Give whoever answers: this project, or Kafka's own classes."""
    waiting: list[str] = []
    # One reader for all lines of a test, because a session lives as long as it does.
    ours = answer_lines(iter(waiting.pop, ""))

    def answer(
        assignor: str, topics: str, members: tuple[str, ...], session: str = ""
    ) -> dict[str, str] | str:
        case = _case(assignor, topics, members, session and f"{request.node.name}/{session}")
        if request.param == "kafka":
            result = request.getfixturevalue("oracle").ask(case)
        else:
            waiting.append(json.dumps(case))
            result = next(ours)
            assert result.get("error") in (None, "assignor_error"), result
        if "error" in result:
            return "error"
        return {m: " ".join(f"{t}p{p}" for t, p in owned) for m, owned in result["result"].items()}

    return answer


def test_a_lone_member_without_topics_gets_nothing(assign: Assign) -> None:
    """Whoever subscribes to nothing owns nothing."""
    topics = "t=3"
    members = ("A reads",)
    for assignor in ("range", "roundrobin", *_BOTH):
        assert assign(assignor, topics, members) == {"A": ""}


def test_a_topic_that_does_not_exist_gives_nothing(assign: Assign) -> None:
    """A subscription to an unknown topic is no error and no partition."""
    topics = "t=3"
    members = ("A reads other",)
    for assignor in ("range", "roundrobin", *_BOTH):
        assert assign(assignor, topics, members) == {"A": ""}


def test_a_lone_member_gets_the_whole_topic(assign: Assign) -> None:
    """One member owns all partitions of its one topic."""
    topics = "t=3"
    members = ("A reads t",)
    for assignor in ("range", "roundrobin", *_BOTH):
        assert assign(assignor, topics, members) == {"A": "tp0 tp1 tp2"}


def test_a_lone_member_gets_only_what_it_reads(assign: Assign) -> None:
    """Topics that exist but are not subscribed to stay with nobody."""
    topics = "t=3 other=3"
    members = ("A reads t",)
    for assignor in ("range", "roundrobin", *_BOTH):
        assert assign(assignor, topics, members) == {"A": "tp0 tp1 tp2"}


def test_a_lone_member_gets_all_its_topics(assign: Assign) -> None:
    """One member owns all partitions of several topics of different sizes."""
    topics = "t1=1 t2=2"
    members = ("A reads t1 t2",)
    for assignor in ("range", "roundrobin", *_BOTH):
        assert assign(assignor, topics, members) == {"A": "t1p0 t2p0 t2p1"}


def test_two_members_and_one_partition(assign: Assign) -> None:
    """One of two members goes without."""
    topics = "t=1"
    members = ("A reads t", "B reads t")
    for assignor in ("range", "roundrobin", *_BOTH):
        assert assign(assignor, topics, members) == {"A": "tp0", "B": ""}


def test_two_members_and_two_partitions(assign: Assign) -> None:
    """Each of two members gets one."""
    topics = "t=2"
    members = ("A reads t", "B reads t")
    for assignor in ("range", "roundrobin", *_BOTH):
        assert assign(assignor, topics, members) == {"A": "tp0", "B": "tp1"}


def test_members_of_mixed_subscriptions(assign: Assign) -> None:
    """Three members, of which only one reads the second topic."""
    topics = "t1=3 t2=2"
    members = ("A reads t1", "B reads t1 t2", "C reads t1")
    assert assign("range", topics, members) == {"A": "t1p0", "B": "t1p1 t2p0 t2p1", "C": "t1p2"}
    assert assign("roundrobin", topics, members) == {"A": "t1p0", "B": "t1p1 t2p0 t2p1", "C": "t1p2"}
    for assignor in _BOTH:
        assert assign(assignor, topics, members) == {"A": "t1p0 t1p2", "B": "t2p0 t2p1", "C": "t1p1"}


def test_two_members_two_topics_six_partitions(assign: Assign) -> None:
    """Range gives the first member more of each topic, the others level the sum."""
    topics = "t1=3 t2=3"
    members = ("A reads t1 t2", "B reads t1 t2")
    assert assign("range", topics, members) == {"A": "t1p0 t1p1 t2p0 t2p1", "B": "t1p2 t2p2"}
    assert assign("roundrobin", topics, members) == {"A": "t1p0 t1p2 t2p1", "B": "t1p1 t2p0 t2p2"}
    assert assign("sticky", topics, members) == {"A": "t1p0 t1p2 t2p1", "B": "t1p1 t2p0 t2p2"}
    assert assign("cooperative-sticky", topics, members) == {"A": "t1p0 t1p2 t2p1", "B": "t1p1 t2p0 t2p2"}


def test_a_subscribed_topic_vanishes(assign: Assign) -> None:
    """Members keep what is left when one of their topics was deleted."""
    topics = "t=3"
    members = (
        "A reads t gone, owns t0p0 gonep0 tp0, since 1",
        "B reads t gone, owns gonep1 tp1 tp2, since 1",
    )
    for assignor in _BOTH:
        assert assign(assignor, topics, members) == {"A": "tp0", "B": "tp1 tp2"}


def test_the_only_subscribed_topic_vanishes(assign: Assign) -> None:
    """A member whose topics are all gone gets nothing, and nothing fails."""
    topics = "other=2"
    members = ("A reads gone, owns gonep0 gonep1 gonep2, since 1",)
    for assignor in _BOTH:
        assert assign(assignor, topics, members) == {"A": ""}


def test_range_puts_static_members_first_by_instance_id(assign: Assign) -> None:
    """Instance ids order static members, whatever their member ids; dynamic ones follow."""
    topics = "t1=5 t2=3"
    members = ("C reads t1 t2, static i1", "A reads t1 t2", "B reads t1 t2, static i0")
    assert assign("range", topics, members) == {
        "C": "t1p2 t1p3 t2p1",
        "A": "t1p4 t2p2",
        "B": "t1p0 t1p1 t2p0",
    }


def test_range_with_more_members_than_partitions(assign: Assign) -> None:
    """The first members get one each, the rest nothing."""
    topics = "t=2"
    members = ("A reads t", "B reads t", "C reads t", "D reads t")
    assert assign("range", topics, members) == {"A": "tp0", "B": "tp1", "C": "", "D": ""}


def test_range_starts_afresh_at_each_topic(assign: Assign) -> None:
    """The remainder of every topic falls to the same first members."""
    topics = "a=4 b=4 c=5"
    members = ("A reads a b c", "B reads a b c", "C reads a b c")
    assert assign("range", topics, members) == {
        "A": "ap0 ap1 bp0 bp1 cp0 cp1",
        "B": "ap2 bp2 cp2 cp3",
        "C": "ap3 bp3 cp4",
    }


def test_range_keeps_static_partitions_when_a_member_id_changes(assign: Assign) -> None:
    """A static member that comes back under another id gets the same run."""
    topics = "t=6"
    members = ("A1 reads t, static i1", "B1 reads t, static i2", "C1 reads t, static i3")
    assert assign("range", topics, members) == {"A1": "tp0 tp1", "B1": "tp2 tp3", "C1": "tp4 tp5"}
    topics = "t=6"
    members = ("Z9 reads t, static i1", "B1 reads t, static i2", "C1 reads t, static i3")
    assert assign("range", topics, members) == {"Z9": "tp0 tp1", "B1": "tp2 tp3", "C1": "tp4 tp5"}


def test_range_gives_each_member_its_rack(assign: Assign) -> None:
    """With one replica a partition, each goes to the member of its rack."""
    topics = "t=r1,r2,r3"
    members = ("A reads t, rack r3", "B reads t, rack r1", "C reads t, rack r2")
    assert assign("range", topics, members) == {"A": "tp2", "B": "tp0", "C": "tp1"}


def test_range_ignores_racks_when_all_have_all(assign: Assign) -> None:
    """Partitions with replicas in every rack are dealt as if there were none."""
    topics = "t=r1/r2,r1/r2,r1/r2"
    members = ("A reads t, rack r2", "B reads t, rack r1")
    assert assign("range", topics, members) == {"A": "tp0 tp1", "B": "tp2"}


def test_range_ignores_racks_that_never_meet(assign: Assign) -> None:
    """Members in other racks than all replicas get plain ranges."""
    topics = "t=r1,r2,r1"
    members = ("A reads t, rack x", "B reads t, rack y")
    assert assign("range", topics, members) == {"A": "tp0 tp1", "B": "tp2"}


def test_range_prefers_balance_to_racks(assign: Assign) -> None:
    """A member's quota ends its rack's claim; the rest goes anywhere."""
    topics = "t=r1,r1,r1,r2"
    members = ("A reads t, rack r1", "B reads t, rack r2")
    assert assign("range", topics, members) == {"A": "tp0 tp1", "B": "tp2 tp3"}


def test_range_keeps_equal_topics_aligned_within_racks(assign: Assign) -> None:
    """Topics of one size and one set of readers are given number by number to the same member."""
    topics = "a=r1,r2,r3 b=r1,r2,r3"
    members = ("A reads a b, rack r2", "B reads a b, rack r3", "C reads a b, rack r1")
    assert assign("range", topics, members) == {"A": "ap1 bp1", "B": "ap2 bp2", "C": "ap0 bp0"}
    topics = "a=r1,r2,r3 b=r2,r3,r1"
    members = ("A reads a b, rack r2", "B reads a b, rack r3", "C reads a b, rack r1")
    assert assign("range", topics, members) == {"A": "ap0 bp0", "B": "ap1 bp1", "C": "ap2 bp2"}


def test_range_with_racks_and_a_member_without(assign: Assign) -> None:
    """Who has no rack takes any partition."""
    topics = "t=r1,r2,r1,r2"
    members = ("A reads t", "B reads t, rack r1")
    assert assign("range", topics, members) == {"A": "tp0 tp1", "B": "tp2 tp3"}


def test_roundrobin_goes_on_over_topics(assign: Assign) -> None:
    """The circle does not start afresh at a topic."""
    topics = "t1=3 t2=2"
    members = ("A reads t1 t2", "B reads t1 t2")
    assert assign("roundrobin", topics, members) == {"A": "t1p0 t1p2 t2p1", "B": "t1p1 t2p0"}


def test_roundrobin_skips_who_does_not_read(assign: Assign) -> None:
    """Unlike subscriptions leave the circle lopsided."""
    topics = "t1=1 t2=2 t3=3"
    members = ("A reads t1", "B reads t1 t2", "C reads t1 t2 t3")
    assert assign("roundrobin", topics, members) == {"A": "t1p0", "B": "t2p0", "C": "t2p1 t3p0 t3p1 t3p2"}


def test_roundrobin_puts_static_members_first(assign: Assign) -> None:
    """Static members take their turns before dynamic ones."""
    topics = "t1=2 t2=3"
    members = ("C reads t1 t2, static i1", "A reads t1 t2", "B reads t1 t2, static i0")
    assert assign("roundrobin", topics, members) == {"C": "t1p1 t2p2", "A": "t2p0", "B": "t1p0 t2p1"}


def test_roundrobin_of_a_static_member_under_a_new_id(assign: Assign) -> None:
    """A new member id of the same instance changes nothing."""
    topics = "t=5"
    members = ("A reads t, static i1", "B reads t, static i2")
    assert assign("roundrobin", topics, members) == {"A": "tp0 tp2 tp4", "B": "tp1 tp3"}
    topics = "t=5"
    members = ("Z reads t, static i1", "B reads t, static i2")
    assert assign("roundrobin", topics, members) == {"Z": "tp0 tp2 tp4", "B": "tp1 tp3"}


def test_the_poor_round_robin_scenario(assign: Assign) -> None:
    """Where a circle is lopsided, sticky is level."""
    topics = "t1=2 t2=1 t3=2 t4=1 t5=2"
    members = ("A reads t1 t2 t3 t4 t5", "B reads t1 t3 t5", "C reads t1 t3 t5", "D reads t1 t2 t3 t4 t5")
    for assignor in _BOTH:
        assert assign(assignor, topics, members) == {
            "A": "t2p0 t3p0",
            "B": "t1p0 t3p1",
            "C": "t1p1 t5p0",
            "D": "t4p0 t5p1",
        }
    assert assign("roundrobin", topics, members) == {
        "A": "t1p0 t3p0 t5p0",
        "B": "t1p1 t3p1 t5p1",
        "C": "",
        "D": "t2p0 t4p0",
    }


def test_a_member_joins_and_one_leaves_one_topic(assign: Assign) -> None:
    """The newcomer gets what is over the quota; who stays takes over what a leaver had."""
    topics = "t=3"
    members = ("A reads t, owns tp0 tp1 tp2, since 1", "B reads t")
    assert assign("sticky", topics, members) == {"A": "tp0 tp1", "B": "tp2"}
    assert assign("cooperative-sticky", topics, members) == {"A": "tp0 tp1", "B": ""}
    topics = "t=3"
    members = ("B reads t, owns tp1, since 2", "A reads t, owns tp0 tp2, since 2")
    for assignor in _BOTH:
        assert assign(assignor, topics, members) == {"B": "tp1", "A": "tp0 tp2"}
    topics = "t=3"
    members = ("B reads t, owns tp1, since 2",)
    for assignor in _BOTH:
        assert assign(assignor, topics, members) == {"B": "tp1 tp0 tp2"}


def test_two_members_leave_two_topics(assign: Assign) -> None:
    """Four members become two and keep what they had."""
    topics = "t1=4 t2=4"
    members = ("A reads t1 t2", "B reads t1 t2", "C reads t1 t2", "D reads t1 t2")
    for assignor in _BOTH:
        assert assign(assignor, topics, members) == {
            "A": "t1p0 t2p0",
            "B": "t1p1 t2p1",
            "C": "t1p2 t2p2",
            "D": "t1p3 t2p3",
        }
    topics = "t1=4 t2=4"
    members = ("A reads t1 t2, owns t1p0 t2p0, since 1", "C reads t1 t2, owns t1p2 t2p2, since 1")
    for assignor in _BOTH:
        assert assign(assignor, topics, members) == {"A": "t1p0 t2p0 t1p1 t2p1", "C": "t1p2 t2p2 t1p3 t2p3"}


def test_a_topic_is_added_and_another_taken_away(assign: Assign) -> None:
    """A new topic is shared out, and what is left of an old one stays."""
    topics = "t1=3 t2=3"
    members = ("A reads t1 t2, owns t1p0 t1p2, since 1", "B reads t1 t2, owns t1p1, since 1")
    for assignor in _BOTH:
        assert assign(assignor, topics, members) == {"A": "t1p0 t1p2 t2p0", "B": "t1p1 t2p1 t2p2"}
    topics = "t2=3"
    members = ("A reads t1 t2, owns t1p0 t1p2 t2p1, since 2", "B reads t1 t2, owns t1p1 t2p0 t2p2, since 2")
    for assignor in _BOTH:
        assert assign(assignor, topics, members) == {"A": "t2p1", "B": "t2p0 t2p2"}


def test_a_member_of_unlike_subscriptions_leaves(assign: Assign) -> None:
    """Its partitions go to the least loaded readers of their topics."""
    topics = "t1=2 t2=2 t3=2 t4=2"
    members = (
        "A reads t1 t2, owns t1p0 t2p0, since 1",
        "C reads t2 t3 t4, owns t3p1 t4p0 t4p1, since 1",
        "D reads t1 t3, owns t1p1, since 1",
    )
    assert assign("sticky", topics, members) == {
        "A": "t1p0 t2p0 t2p1",
        "C": "t4p0 t4p1 t3p1",
        "D": "t1p1 t3p0",
    }
    assert assign("cooperative-sticky", topics, members) == {
        "A": "t1p0 t2p0 t2p1",
        "C": "t3p1 t4p0 t4p1",
        "D": "t1p1 t3p0",
    }


def test_a_member_of_unlike_subscriptions_joins(assign: Assign) -> None:
    """The newcomer takes from the most loaded."""
    topics = "t1=3 t2=3 t3=3"
    members = (
        "A reads t1 t2 t3, owns t1p0 t1p1 t2p0 t3p0 t3p1, since 1",
        "B reads t2 t3, owns t2p1 t2p2 t3p2, since 1",
        "C reads t3",
        "D reads t1 t2, owns t1p2, since 1",
    )
    assert assign("sticky", topics, members) == {
        "A": "t2p0 t3p1",
        "B": "t2p1 t2p2",
        "C": "t3p0 t3p2",
        "D": "t1p2 t1p0 t1p1",
    }
    assert assign("cooperative-sticky", topics, members) == {
        "A": "t2p0 t3p1",
        "B": "t2p1 t2p2",
        "C": "",
        "D": "t1p2",
    }


def test_all_get_the_same_subscription(assign: Assign) -> None:
    """Where each read a part, all read all now, and loads become level."""
    topics = "t1=2 t2=2 t3=2"
    members = (
        "A reads t1 t2 t3, owns t1p0 t1p1, since 1",
        "B reads t1 t2 t3, owns t2p0 t2p1, since 1",
        "C reads t1 t2 t3, owns t3p0, since 1",
        "D reads t1 t2 t3, owns t3p1, since 1",
    )
    for assignor in _BOTH:
        assert assign(assignor, topics, members) == {
            "A": "t1p0 t1p1",
            "B": "t2p0 t2p1",
            "C": "t3p0",
            "D": "t3p1",
        }


def test_a_new_subscription_moves_what_it_must(assign: Assign) -> None:
    """A member that subscribes to one more topic is levelled with its readers."""
    topics = "t1=1 t2=2 t3=3"
    members = (
        "A reads t1 t2, owns t1p0, since 1",
        "B reads t1 t2 t3, owns t2p0 t2p1, since 1",
        "C reads t1 t2 t3, owns t3p0 t3p1 t3p2, since 1",
    )
    for assignor in _BOTH:
        assert assign(assignor, topics, members) == {"A": "t1p0", "B": "t2p0 t2p1", "C": "t3p0 t3p1 t3p2"}


def test_partitions_of_one_reader_cannot_move(assign: Assign) -> None:
    """Topics that only one member reads stay with it however loaded it is."""
    topics = "t1=1 t2=1 t3=1 t4=1 t5=1 t6=1"
    members = (
        "A reads t1 t2, owns t1p0, since 1",
        "B reads t1 t2 t3 t4, owns t2p0 t3p0, since 1",
        "C reads t2 t3 t4 t5 t6, owns t4p0 t5p0 t6p0, since 1",
    )
    for assignor in _BOTH:
        assert assign(assignor, topics, members) == {"A": "t1p0", "B": "t2p0 t3p0", "C": "t4p0 t5p0 t6p0"}


def test_a_balanced_group_stays_as_it_is(assign: Assign) -> None:
    """Rebalancing again moves nothing, whatever the order in which members join."""
    topics = "t1=4 t2=3"
    members = (
        "C reads t1 t2, owns t1p2 t2p1, since 4",
        "A reads t1 t2, owns t1p0 t1p3 t2p2, since 4",
        "B reads t1 t2, owns t1p1 t2p0, since 4",
    )
    for assignor in _BOTH:
        assert assign(assignor, topics, members) == {
            "C": "t2p1 t1p2",
            "A": "t1p0 t2p2 t1p3",
            "B": "t2p0 t1p1",
        }


def test_the_newest_of_two_generations_counts(assign: Assign) -> None:
    """Who was away for a generation loses what others got meanwhile."""
    topics = "t=6"
    members = (
        "A reads t, owns tp0 tp4, since 2",
        "B reads t, owns tp1 tp2 tp3, since 2",
        "C reads t, owns tp2 tp3 tp5, since 1",
    )
    assert assign("sticky", topics, members) == {"A": "tp0 tp4", "B": "tp1 tp2", "C": "tp5 tp3"}
    assert assign("cooperative-sticky", topics, members) == {"A": "tp0 tp4", "B": "tp1 tp2", "C": "tp5"}


def test_claims_of_three_generations(assign: Assign) -> None:
    """Partitions claimed in three generations go to the newest claim; older ones help to place the rest."""
    topics = "t=6"
    members = (
        "A reads t, owns tp0 tp1 tp4, since 1",
        "B reads t, owns tp0 tp2 tp3, since 2",
        "C reads t, owns tp3 tp4 tp5, since 3",
    )
    assert assign("sticky", topics, members) == {"A": "tp1 tp5", "B": "tp0 tp2", "C": "tp3 tp4"}
    assert assign("cooperative-sticky", topics, members) == {"A": "tp1", "B": "tp0 tp2", "C": "tp3 tp4"}


def test_one_partition_claimed_in_three_generations(assign: Assign) -> None:
    """Of three claims to one partition the newest stands, whoever joins first."""
    topics = "t=3"
    members = ("A reads t, owns tp0, since 1", "B reads t, owns tp0, since 2", "C reads t, owns tp0, since 3")
    for assignor in _BOTH:
        assert assign(assignor, topics, members) == {"A": "tp1", "B": "tp2", "C": "tp0"}
    topics = "t=3"
    members = ("C reads t, owns tp0, since 3", "B reads t, owns tp0, since 2", "A reads t, owns tp0, since 1")
    for assignor in _BOTH:
        assert assign(assignor, topics, members) == {"C": "tp0", "B": "tp2", "A": "tp1"}


def test_two_equal_claims_and_a_newer_one(assign: Assign) -> None:
    """A and B of one generation, then C of a newer one: taken from all by map order."""
    topics = "t=3"
    members = ("A reads t, owns tp0, since 5", "B reads t, owns tp0, since 5", "C reads t, owns tp0, since 6")
    assert assign("sticky", topics, members) == {"A": "tp0", "B": "tp1", "C": "tp2"}
    assert assign("cooperative-sticky", topics, members) == {"A": "", "B": "tp1", "C": "tp2"}
    topics = "t=3"
    members = ("Q reads t, owns tp0, since 5", "B reads t, owns tp0, since 5", "A reads t, owns tp0, since 6")
    for assignor in _BOTH:
        assert assign(assignor, topics, members) == {"Q": "tp2", "B": "tp1", "A": "tp0"}


def test_a_claim_twice_in_one_generation_is_nobodys(assign: Assign) -> None:
    """Equal claims are dropped, and cooperative members have to wait a generation."""
    topics = "t=4"
    members = ("A reads t, owns tp0 tp2, since 1", "B reads t, owns tp0 tp3, since 1")
    assert assign("sticky", topics, members) == {"A": "tp2 tp0", "B": "tp3 tp1"}
    assert assign("cooperative-sticky", topics, members) == {"A": "tp2", "B": "tp3 tp1"}
    topics = "t=4"
    members = (
        "A reads t, owns tp0 tp1 tp2, since 1",
        "B reads t, owns tp1, since 1",
        "C reads t, owns tp2 tp3, since 1",
    )
    assert assign("sticky", topics, members) == {"A": "tp0 tp2", "B": "tp1", "C": "tp3"}
    assert assign("cooperative-sticky", topics, members) == {"A": "tp0", "B": "", "C": "tp3"}


def test_equal_claims_of_unlike_readers(assign: Assign) -> None:
    """With unlike subscriptions an equal claim is dealt out afresh, and not withheld."""
    topics = "t=3 s=2"
    members = ("A reads t, owns tp0 tp1, since 1", "B reads t s, owns tp0 sp0, since 1")
    for assignor in _BOTH:
        assert assign(assignor, topics, members) == {"A": "tp1 tp0 tp2", "B": "sp0 sp1"}


def test_a_stale_generation_loses_all_it_claims(assign: Assign) -> None:
    """An old claim to everything counts only where nobody newer claims."""
    topics = "t=4 s=2"
    members = (
        "A reads t s, owns tp0 tp1 tp2 tp3 sp0 sp1, since 3",
        "B reads t s, owns tp0 sp0, since 5",
        "C reads t s, owns tp1 sp1, since 5",
    )
    for assignor in _BOTH:
        assert assign(assignor, topics, members) == {"A": "tp2 tp3", "B": "sp0 tp0", "C": "sp1 tp1"}


def test_a_member_without_a_generation(assign: Assign) -> None:
    """Claims of generation -1 lose against any other and stand among themselves."""
    topics = "t=4"
    members = ("A reads t, owns tp0 tp1, since -1", "B reads t, owns tp0, since 4", "C reads t")
    for assignor in _BOTH:
        assert assign(assignor, topics, members) == {"A": "tp1 tp3", "B": "tp0", "C": "tp2"}
    topics = "t=4"
    members = ("A reads t, owns tp0 tp1, since -1", "B reads t, owns tp2, since -1")
    for assignor in _BOTH:
        assert assign(assignor, topics, members) == {"A": "tp0 tp1", "B": "tp2 tp3"}


def test_an_assignor_remembers_the_highest_generation(assign: Assign) -> None:
    """To a leader that once saw generation 9 a claim of 5 is an old one; to a new leader it is the newest."""
    topics = "t=2"
    members = ("A reads t, owns tp0, since 9", "B reads t, owns tp1, since 9")
    assert assign("sticky", topics, members, "long a leader") == {"A": "tp0", "B": "tp1"}
    topics = "t=1 s=1"
    members = ("A reads t s, owns sp0, since 5", "B reads s", "C reads s, owns sp0, since 4")
    assert assign("sticky", topics, members, "long a leader") == {"A": "tp0", "B": "sp0", "C": ""}
    assert assign("sticky", topics, members) == {"A": "tp0", "B": "", "C": "sp0"}


def test_a_conflict_of_unlike_generation_fields(assign: Assign) -> None:
    """An eager member's own generation comes from its bytes, the other's from the protocol's field."""
    topics = "t=2"
    members = ("A reads t, owns tp0, since 5, field -1", "B reads t, owns tp0, since 4, field -1")
    assert assign("sticky", topics, members) == {"A": "tp1", "B": "tp0"}
    topics = "t=2"
    members = ("A reads t, owns tp0, since 5, field 7", "B reads t, owns tp0, since 6, field 2")
    assert assign("sticky", topics, members) == {"A": "tp0", "B": "tp1"}


def test_the_older_layout_of_user_data(assign: Assign) -> None:
    """Layout v0 claims without a generation, and loses to who has one."""
    topics = "t=3"
    members = ("A reads t, owns tp0 tp1, since 2, field -1, data v0", "B reads t, owns tp1 tp2, since 2")
    assert assign("sticky", topics, members) == {"A": "tp0", "B": "tp1 tp2"}


def test_user_data_that_is_junk_claims_nothing(assign: Assign) -> None:
    """Bytes of no layout are read as no claim at all."""
    topics = "t=3"
    members = ("A reads t, owns tp0 tp1, since 2, data b64:AAAA", "B reads t, owns tp1 tp2, since 2")
    assert assign("sticky", topics, members) == {"A": "tp0", "B": "tp1 tp2"}
    topics = "t=3"
    members = ("A reads t, owns tp0 tp1, since 2, data empty", "B reads t, owns tp2, since 2, data none")
    assert assign("sticky", topics, members) == {"A": "tp0 tp2", "B": "tp1"}


def test_cooperative_claims_come_from_the_protocol(assign: Assign) -> None:
    """The generation in the bytes counts only where the protocol's own field is absent."""
    topics = "t=3"
    members = ("A reads t, owns tp0 tp1, since 1, field 3", "B reads t, owns tp1, since 2, field 2")
    assert assign("cooperative-sticky", topics, members) == {"A": "tp0 tp1", "B": "tp2"}
    topics = "t=3"
    members = ("A reads t, owns tp0 tp1, since 3, field -1", "B reads t, owns tp1, since 2, field -1")
    assert assign("cooperative-sticky", topics, members) == {"A": "tp0 tp2", "B": "tp1"}


def test_an_owner_no_longer_subscribes(assign: Assign) -> None:
    """What a member owns of a topic it stopped reading goes to who reads it."""
    topics = "t=2 s=2"
    members = ("A reads s, owns tp0 tp1 sp0 sp1, since 1", "B reads t s")
    assert assign("sticky", topics, members) == {"A": "sp0 sp1", "B": "tp0 tp1"}
    assert assign("cooperative-sticky", topics, members) == {"A": "sp0 sp1", "B": ""}
    topics = "t=3 s=3"
    members = (
        "A reads s, owns tp0 tp1 sp0, since 3",
        "B reads t, owns tp2, since 3",
        "C reads t s, owns sp1 sp2, since 3",
    )
    assert assign("sticky", topics, members) == {"A": "sp0", "B": "tp2 tp0 tp1", "C": "sp1 sp2"}
    assert assign("cooperative-sticky", topics, members) == {"A": "sp0", "B": "tp2", "C": "sp1 sp2"}


def test_a_previous_owner_who_no_longer_subscribes(assign: Assign) -> None:
    """An old claim can give a member what it stopped reading, or make Kafka fail."""
    topics = "t=1 s=2"
    members = ("A reads t s, owns tp0, since 5", "B reads s", "C reads t, owns sp1, since 4")
    for assignor in _BOTH:
        assert assign(assignor, topics, members) == {"A": "tp0", "B": "sp0", "C": "sp1"}
    topics = "t=4 s=1"
    members = (
        "A reads s, owns tp0 tp1 tp2 tp3, since 1",
        "B reads t, owns sp0, since 2",
        "C reads t, owns tp0 tp1 tp2 tp3, since 2",
    )
    for assignor in _BOTH:
        assert assign(assignor, topics, members) == "error"


def test_a_topic_that_shrank(assign: Assign) -> None:
    """An owned number that no longer exists makes Kafka deal out again what has an owner, or fail."""
    topics = "t=2"
    members = ("A reads t, owns tp0 tp1 tp2 tp3, since 1", "B reads t")
    assert assign("sticky", topics, members) == {"A": "tp0", "B": "tp1"}
    assert assign("cooperative-sticky", topics, members) == {"A": "tp0", "B": ""}
    topics = "t=2 s=2"
    members = ("A reads t s, owns tp0 tp5 sp0, since 1", "B reads t s, owns tp1 sp1, since 1")
    for assignor in _BOTH:
        assert assign(assignor, topics, members) == {"A": "sp0 tp0", "B": "sp1 tp1"}
    topics = "t=3 s=2"
    members = (
        "A reads t s, owns tp7 sp0, since 1",
        "B reads t, owns tp1 tp2, since 1",
        "C reads s, owns sp1, since 1",
    )
    assert assign("sticky", topics, members) == {"A": "tp7 tp0", "B": "tp1 tp2", "C": "sp1 sp0"}
    assert assign("cooperative-sticky", topics, members) == {"A": "tp7 tp0", "B": "tp1 tp2", "C": "sp1"}


def test_a_member_without_topics_may_get_some(assign: Assign) -> None:
    """A member that subscribes to nothing and comes first in the map makes all others look alike."""
    topics = "t=4"
    members = ("A reads", "B reads t")
    for assignor in _BOTH:
        assert assign(assignor, topics, members) == {"A": "tp0 tp2", "B": "tp1 tp3"}
    topics = "t=4"
    members = ("B reads", "A reads t")
    for assignor in _BOTH:
        assert assign(assignor, topics, members) == {"B": "", "A": "tp0 tp1 tp2 tp3"}


def test_racks_draw_partitions_of_equal_readers(assign: Assign) -> None:
    """Members get partitions with a replica in their rack as far as quotas allow."""
    topics = "t=r1,r2,r3,r1,r2,r3"
    members = ("A reads t, rack r3", "B reads t, rack r1", "C reads t, rack r2")
    for assignor in _BOTH:
        assert assign(assignor, topics, members) == {"A": "tp2 tp5", "B": "tp0 tp3", "C": "tp1 tp4"}
    topics = "t=r1,r1,r1,r2"
    members = ("A reads t, rack r1", "B reads t, rack r2")
    for assignor in _BOTH:
        assert assign(assignor, topics, members) == {"A": "tp0 tp1", "B": "tp3 tp2"}


def test_racks_take_partitions_from_owners(assign: Assign) -> None:
    """An owner in another rack than all replicas loses its partition."""
    topics = "t=r1,r2,r1,r2"
    members = ("A reads t, owns tp1 tp3, since 1, rack r1", "B reads t, owns tp0 tp2, since 1, rack r2")
    assert assign("sticky", topics, members) == {"A": "tp0 tp2", "B": "tp1 tp3"}
    assert assign("cooperative-sticky", topics, members) == {"A": "", "B": ""}


def test_racks_among_unlike_readers(assign: Assign) -> None:
    """The least loaded reader in the rack comes first; where there is none, any reader."""
    topics = "t=r1,r2,r3 s=r1,r2"
    members = ("A reads t s, rack r1", "B reads t, rack r2", "C reads s, rack r3")
    for assignor in _BOTH:
        assert assign(assignor, topics, members) == {"A": "sp0 tp0", "B": "tp1 tp2", "C": "sp1"}


def test_a_newcomer_waits_for_what_others_hold(assign: Assign) -> None:
    """Cooperative members get a moving partition one generation later, eager ones at once."""
    topics = "t=4"
    members = ("A reads t, owns tp0 tp1, since 1", "B reads t, owns tp2 tp3, since 1", "C reads t")
    assert assign("sticky", topics, members) == {"A": "tp0 tp1", "B": "tp2", "C": "tp3"}
    assert assign("cooperative-sticky", topics, members) == {"A": "tp0 tp1", "B": "tp2", "C": ""}
    topics = "t=4"
    members = ("A reads t, owns tp0, since 2", "B reads t, owns tp2 tp3, since 2", "C reads t, since 2")
    assert assign("cooperative-sticky", topics, members) == {"A": "tp0", "B": "tp2 tp3", "C": "tp1"}


def test_racks_and_unlike_subscriptions_may_move_a_settled_group(assign: Assign) -> None:
    """With racks, cooperative-sticky takes a partition from a settled group and gives it back the next."""
    topics = "t=4 u=r2,,r2"
    settled, taken = "t2 u1", "t2"

    def members(owned: str, since: int) -> tuple[str, ...]:
        of_a = " ".join(f"{pair[0]}p{pair[1]}" for pair in owned.split())
        return (
            f"A reads t u, owns {of_a}, since {since}",
            f"B reads t u, owns up2, since {since}, rack r2",
            f"C reads t, owns tp1 tp3, since {since}",
            f"D reads t, owns tp0, since {since}, rack r0",
            f"E reads u, owns up0, since {since}, rack r0",
        )

    first = assign("cooperative-sticky", topics, members(settled, 1), "s")
    second = assign("cooperative-sticky", topics, members(taken, 2), "s")
    assert isinstance(first, dict)
    assert isinstance(second, dict)
    assert first["A"] == "tp2"
    assert second["A"] == "tp2 up1"
