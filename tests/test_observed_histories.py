"""What single records and events do to an observed group: baselines, gaps, deletions, replacements."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from streaming.events.client_protocols import ConnectAssignment, ConnectMetadata
from streaming.groups.deltas import diff_versions
from streaming.groups.observed.generations import running_tasks
from streaming.groups.observed.group import ObservedGroup
from streaming.model import EventOutcome, Position, TopicState, Version
from tests.observed_inputs import (
    Items,
    advance_all,
    classic,
    classic_value,
    observed,
    versions,
    view,
)

# Classic groups

T4 = TopicState(topic="t", partition_count=4)


def feed(values: Iterable[Mapping[str, Any] | None], *, step_ms: int = 1000) -> tuple[ObservedGroup, Items]:
    """Feed one group these key-2 values, a second apart, saving in between."""
    inputs = [classic("g", i, (i + 1) * step_ms, value) for i, value in enumerate(values)]
    items, groups = advance_all(inputs, view(T4))
    return groups["g"], items["g"]


def test_leader_that_knew_nothing_of_a_topic_is_named() -> None:
    """A leader without metadata of a topic gives nothing of it out: stale metadata, not another algorithm."""
    record = classic_value(1, [("a", {"t": [0, 1]}), ("b", {"t": [2, 3]})], {"t", "u"})
    topics = view(T4, TopicState(topic="u", partition_count=3))
    (version,) = ObservedGroup("c", "g").advance(classic("g", 1, 1000, record), topics)
    assert isinstance(version, Version)
    assert version.expected_status == "stale_metadata"
    assert version.expected_note == "the leader knew nothing yet of topic 'u', which has 3 partitions"


CREATED = classic_value(0, [], ())
ONE = classic_value(1, [("a", {"t": [0, 1, 2, 3]})], {"t"})
TWO = classic_value(2, [("a", {"t": [0, 1]}), ("b", {"t": [2, 3]})], {"t"})
EMPTY = classic_value(3, [], ())


def kinds(items: Items) -> list[tuple[str, int, int]]:
    """Say of each version: kind, generation, incarnation."""
    return [(v.kind, v.generation_id, v.incarnation) for v in versions(items)]


def test_leader_that_saw_the_growth_first_is_named() -> None:
    """A leader that knows two partitions more than we do is named, and the counts are the leader's."""
    record = classic_value(1, [("a", {"t": [0, 1, 2, 3]})], {"t"})
    topics = view(TopicState(topic="t", partition_count=2))
    (version,) = ObservedGroup("c", "g").advance(classic("g", 1, 1000, record), topics)
    assert isinstance(version, Version)
    assert version.expected_status == "stale_metadata"
    assert version.expected_note == "the leader already saw 4 partitions of topic 't' where 2 are known here"
    assert version.topic_counts == {"t": 4}


def test_first_sight_is_a_baseline_unless_the_group_was_just_made() -> None:
    """Only the creation record proves that nothing came before."""
    assert kinds(feed([TWO])[1]) == [("baseline", 2, 1)]
    assert kinds(feed([CREATED, ONE])[1]) == [("rebalance", 0, 1), ("rebalance", 1, 1)]


def test_jump_of_generations_is_a_gap() -> None:
    """What moved in generations that are not there is not known."""
    items = feed([CREATED, TWO])[1]
    assert kinds(items) == [("rebalance", 0, 1), ("gap", 2, 1)]
    assert versions(items)[1].reason == "gap: generation 1 not seen (compacted, or never completed)"


def test_lower_generation_at_a_newer_offset_is_a_new_incarnation() -> None:
    """The group was deleted and made anew, and the tombstone is compacted away."""
    anew = feed([TWO, CREATED, ONE])[1]
    assert kinds(anew) == [("baseline", 2, 1), ("rebalance", 0, 2), ("rebalance", 1, 2)]
    assert kinds(feed([EMPTY, ONE])[1]) == [("baseline", 3, 1), ("gap", 1, 2)]


def test_deletion_and_new_group() -> None:
    """A tombstone followed by a later record is a deletion, dated at the tombstone."""
    _, items = feed([CREATED, ONE, None, CREATED, ONE])
    assert kinds(items)[2:] == [("deleted", 1, 1), ("rebalance", 0, 2), ("rebalance", 1, 2)]
    deleted = versions(items)[2]
    assert (deleted.event_time_ms, deleted.cause) == (3000, ())
    assert [v.version for v in versions(items)] == [1, 2, 3, 4, 5]


def test_tombstone_of_an_unknown_group_is_ignored() -> None:
    """There is nothing to delete."""
    group, items = feed([None])
    assert [item.outcome for item in items if isinstance(item, EventOutcome)] == ["ignored"]
    assert group.next_timer_ms() is None


def test_what_a_member_should_have_kept_goes_to_nobody_known() -> None:
    """A leader that takes what its assignor would have left to the owner: the delta names no receiver."""
    before = classic_value(1, [("a", {"t": [0, 1]}), ("b", {"t": [2, 3]})], {"t"})
    after = classic_value(2, [("a", {"t": [0]}), ("b", {"t": [2, 3]})], {"t"})
    first, second = versions(feed([CREATED, before, after])[1])[1:]
    assert second.expected == {"a": {"t": [0, 1]}, "b": {"t": [2, 3]}}
    (delta,) = diff_versions(first.assignment, second, cluster="c", group_id="g")
    assert (delta["change"], delta["member_id"], delta["partition"]) == ("revoked", "a", 1)
    assert (delta["from_member_id"], delta["to_member_id"]) == ("a", None)


def test_same_generation_again_is_ignored() -> None:
    """A record that shows nothing new makes no version."""
    _, items = feed([CREATED, ONE, ONE])
    assert len(versions(items)) == 2
    assert isinstance(items[2], EventOutcome)
    assert items[2].outcome == "ignored"


def test_static_member_replaced_in_place() -> None:
    """A restarted static member takes over under a new id: one version of the same generation."""
    before = classic_value(1, [("a-1", {"t": [0, 1]}), ("b", {"t": [2, 3]})], {"t"}, instances={"a-1": "a"})
    after = classic_value(1, [("a-2", {"t": [0, 1]}), ("b", {"t": [2, 3]})], {"t"}, instances={"a-2": "a"})
    _, items = feed([CREATED, before, after])
    replaced = versions(items)[2]
    assert (replaced.kind, replaced.generation_id, replaced.version) == ("rebalance", 1, 3)
    assert (replaced.reason, replaced.instance_moves) == ("static_member_replaced a", {"a-1": "a-2"})
    assert replaced.expected_status == "equal"
    assert replaced.expected == {"a-2": {"t": [0, 1]}, "b": {"t": [2, 3]}}


def test_empty_group_expects_nothing() -> None:
    """With no members there is nothing to expect."""
    empty = versions(feed([TWO, EMPTY])[1])[1]
    assert (empty.group_state, empty.expected, empty.expected_status) == ("Empty", None, "not_applicable")
    assert empty.reason == "member_left a, b"


def test_unknown_assignor_and_unknown_topic_are_said() -> None:
    """What cannot be recomputed is unknown, and the note says which part is missing."""
    odd = classic_value(1, [("a", {"t": [0]})], {"t"}, protocol="mine")
    note = versions(feed([odd])[1])[0].expected_note
    assert note == "assignor 'mine' is not known here: a plug-in of the clients"
    unheard = classic_value(1, [("a", {"t": [0]})], {"t", "u", "v"})
    version = versions(feed([unheard])[1])[0]
    assert (version.expected_status, version.expected) == ("unknown", None)
    assert version.expected_note == "no partition count is known of 'u', 'v'"
    assert version.topic_counts == {"t": 4}


def test_difference_of_a_java_leader_is_called_one() -> None:
    """With the inputs known and Java's layout, a difference has no excuse."""
    odd = classic_value(1, [("a", {"t": [2, 3]}), ("b", {"t": [0, 1]})], {"t"})
    version = versions(feed([odd])[1])[0]
    assert version.expected_status == "different"
    assert version.expected == {"a": {"t": [0, 1]}, "b": {"t": [2, 3]}}
    assert "looks like a Java client" in (version.expected_note or "")


def test_member_whose_bytes_cannot_be_read_stays_in_the_group() -> None:
    """Broken bytes cost what they held, not the member."""
    broken = classic_value(1, [("a", {"t": [0, 1]}), ("b", {"t": [2, 3]})], {"t"})
    broken["members"][1]["subscription"] = base64.b64encode(b"\x00").decode()
    version = versions(feed([broken])[1])[0]
    assert [m.member_id for m in version.members] == ["a", "b"]
    assert version.expected_status == "unknown"
    assert version.expected_note == "the subscription of b could not be read"


def claims_of(generation_id: int, claim: int) -> dict[str, Any]:
    """Write a sticky generation whose members claim what they have since generation `claim` and keep it."""
    owned = {"a": {"t": [0, 3]}, "b": {"t": [1, 2]}}
    claims = {m: (ps, claim) for m, ps in owned.items()}
    return classic_value(generation_id, list(owned.items()), {"t"}, protocol="sticky", claims=claims)


@pytest.mark.usefixtures("_remembering")
def test_memory_of_a_leader_matters_only_where_it_can() -> None:
    """At first sight a leader may remember more than the claims tell: unknown, unless it cannot matter."""
    (latest,) = versions(feed([claims_of(9, 8)])[1])
    assert latest.expected_status == "equal"
    (old,) = versions(feed([claims_of(9, 3)])[1])
    assert (old.expected_status, old.expected) == ("unknown", None)
    assert "remembers" in (old.expected_note or "")


@pytest.mark.usefixtures("_remembering")
def test_memory_is_known_once_the_latest_generation_was_claimed() -> None:
    """Claims as new as can be pin the leader's memory, and older claims after them are judged by it."""
    _, second = versions(feed([claims_of(9, 8), claims_of(10, 3)])[1])
    assert (second.expected_status, second.expected) == ("different", {"a": {"t": [0, 1, 2, 3]}, "b": {}})
    _, gap = versions(feed([claims_of(9, 8), claims_of(12, 3)])[1])
    assert (gap.kind, gap.expected_status) == ("gap", "unknown")


@pytest.mark.usefixtures("_remembering")
def test_leader_that_came_while_we_looked_remembers_nothing_older() -> None:
    """Of a group watched from its creation every memory is known."""
    values = [CREATED, claims_of(1, 0), claims_of(2, 0), claims_of(3, 1), claims_of(4, 0)]
    watched = versions(feed(values)[1])
    assert [v.expected_status for v in watched[1:]] == ["equal", "equal", "equal", "different"]


@pytest.mark.parametrize(
    ("version", "running"),
    [(0, {"one": [1]}), (2, {"one": [-1, 1], "two": [0]})],
)
def test_connect_worker_runs_what_it_keeps_and_what_is_new(
    version: int, running: dict[str, list[int]]
) -> None:
    """Incremental protocols give and take; the eager one gives everything."""
    held = ConnectAssignment(
        version=version, error=0, leader_id=None, leader_url=None, config_offset=1,
        assigned=(("one", (-1, 0)), ("two", (0,))),
    )  # fmt: skip
    given = replace(held, assigned=(("one", (1,)),), revoked=(("one", (0,)),))
    metadata = ConnectMetadata(version=version, url="", config_offset=1, allocation=held)
    assert running_tasks(metadata, given) == running


# generation_observed


def test_generation_observed_tells_the_same_story() -> None:
    """An exporter's event is judged like a record: here two equal generations and one that differs."""
    events = [
        observed(1, 4, {"a": {"t": [0, 1, 2, 3]}}),
        observed(2, 5, {"a": {"t": [0, 1]}, "b": {"t": [2, 3]}}),
        observed(3, 6, {"a": {"t": [0, 1, 2, 3]}, "b": {}}),
    ]
    found = versions(advance_all(events, view(T4))[0]["g"])
    assert [(v.kind, v.expected_status) for v in found] == [
        ("baseline", "equal"), ("rebalance", "equal"), ("rebalance", "different"),
    ]  # fmt: skip
    assert found[2].expected_note == "the leader is not known, so its client may have another algorithm"


def test_event_id_is_applied_once() -> None:
    """The same event in a second file is a duplicate by its id."""
    event = observed(1, 4, {"a": {"t": [0]}})
    copy = replace(event, position=Position("files", "b.jsonl", -1, 7))
    _, second = advance_all([event, copy], view(T4))[0]["g"]
    assert isinstance(second, EventOutcome)
    assert (second.outcome, second.reason) == ("duplicate", "event_id 'e1' is applied")


def test_group_deleted_event_and_dead_state() -> None:
    """Both say that the group is no more; a second time there is nothing left to delete."""
    dead = replace(observed(2, 4, {}), body={**observed(2, 4, {}).body, "state": "Dead"})
    deleted = replace(observed(3, 4, {}), type="group_deleted", body={})
    items = advance_all([observed(1, 4, {"a": {"t": [0]}}), dead, deleted], view(T4))[0]["g"]
    assert [v.kind for v in versions(items)] == ["baseline", "deleted"]
    assert versions(items)[1].cause[0].event == dead
    assert isinstance(items[2], EventOutcome)
    assert items[2].outcome == "ignored"


def test_describe_shows_the_counts_of_now() -> None:
    """A state row repeats the last version with the topics as they are, and makes no version."""
    group, _ = feed([CREATED, ONE])
    grown = view(replace(T4, partition_count=6, history=((5000, 4),)))
    assert group.watches("t")
    assert not group.watches("u")
    assert group.topic_changed("t", 5000, grown) == []
    shown = group.describe(grown)
    assert (shown.kind, shown.version, shown.topic_counts, shown.cause) == ("state", 2, {"t": 6}, ())
    assert shown.assignment == {"a": {"t": [0, 1, 2, 3]}}
