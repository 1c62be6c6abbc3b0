"""Groups that live in Kafka: what their records add up to, and what their leaders should have decided.

The captured run is the witness: a real broker and real clients, and what the admin client
said at six moments of it.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.groups.observed.expected import recognise_client
from streaming.groups.observed.generations import generation_of_record
from streaming.groups.observed.group import TOMBSTONE_WAIT_MS, ObservedGroup
from streaming.model import EventOutcome, Input, Version, owned_pairs
from tests.observed_inputs import (
    DATA,
    advance_all,
    captured_inputs,
    captured_items,
    captured_versions,
    versions,
    view,
)

JAVA_LED = ("cg-java-range", "cg-java-coop")


def snapshots() -> list[Any]:
    """Give each snapshot of the truth with each of its groups, named for the test."""
    truth = json.loads((DATA / "consumer-offsets.truth.json").read_bytes())
    return [
        pytest.param(snapshot["ts_ms"], group, id=f"{snapshot['label']}-{group['group']}")
        for snapshot in truth["snapshots"]
        for group in snapshot["groups"]
    ]


def last_version_at(group_id: str, time_ms: int) -> Version:
    """Give the group's last version at that moment."""
    return [v for v in captured_versions(group_id) if v.event_time_ms <= time_ms][-1]


def owned_by(version: Version) -> dict[str, list[str]]:
    """Write an assignment as the admin client does: member -> sorted "topic-partition"."""
    return {
        member_id: sorted(f"{topic}-{number}" for topic, numbers in owned.items() for number in numbers)
        for member_id, owned in version.assignment.items()
    }


KAFKAS_OWN_EXCEPTION = "member_1_left-cg-java-range"
"""The coordinator writes nothing when a static member's session expires; the record of the generation
without it came 1,092 ms after this snapshot, at whose time the admin client saw a group in the middle
of a rebalance. Nobody who reads the topic alone can know more."""


@pytest.mark.parametrize(("time_ms", "group"), snapshots())
def test_state_equals_the_admin_clients_answer(
    time_ms: int, group: Mapping[str, Any], request: pytest.FixtureRequest
) -> None:
    """The state rebuilt from the records is what Kafka's admin client said at that moment."""
    version = last_version_at(group["group"], time_ms)
    seen = owned_by(version)
    truth = {m["memberId"]: sorted(m["assignment"]) for m in group["members"]}
    if f"[{KAFKAS_OWN_EXCEPTION}]" in request.node.name:
        assert seen != truth
        (expired,) = (m for m in version.members if m.group_instance_id == "jstatic-1")
        assert {m: ps for m, ps in seen.items() if m != expired.member_id} == truth
        return
    assert seen == truth
    assert version.group_state == group["state"]
    infos = {m.member_id: m for m in version.members}
    for member in group["members"]:
        info = infos[member["memberId"]]
        assert (info.client_id, info.client_host) == (member["clientId"], member["host"])
        assert info.group_instance_id == member.get("instanceId")
    if group.get("assignor"):
        assert version.protocol == group["assignor"]
    if group["groupEpoch"] is not None:
        assert version.generation_id == group["groupEpoch"]
    targets = {m["memberId"]: m.get("targetAssignment") for m in group["members"]}
    if group["type"] == "Consumer":
        assert version.expected is not None
        expected = owned_by(replace(version, assignment=version.expected))
        assert expected == {m: sorted(ps) for m, ps in targets.items()}


def test_deleted_group_is_gone_from_the_truth_too() -> None:
    """cg-ck-coop was deleted before the last snapshot, which no longer lists it."""
    inputs = [i for i in captured_inputs() if i.group_id == "cg-ck-coop"]
    _, groups = advance_all(inputs, view())
    group, last = groups["cg-ck-coop"], inputs[-1]
    (deleted,) = group.partition_advanced("__consumer_offsets", 3, last.event_time_ms + 1, view())
    assert (deleted.kind, deleted.group_state) == ("deleted", "Dead")
    assert deleted.event_time_ms == last.event_time_ms
    assert (deleted.members, deleted.assignment) == ((), {})


@pytest.mark.parametrize("group_id", JAVA_LED)
def test_java_leaders_did_what_was_expected(group_id: str) -> None:
    """Expected equals observed in every generation of a Java leader; one behind a growth is named so."""
    judged = [v for v in captured_versions(group_id) if v.members and v.protocol_type == "consumer"]
    classic = [v for v in judged if v.rebalance_protocol in ("EAGER", "COOPERATIVE")]
    assert len(classic) >= 4
    for version in classic:
        if version.reason.startswith("downgraded"):
            assert version.expected_status == "in_transition"
        elif group_id == "cg-java-range" and version.generation_id == 4:
            assert version.expected_status == "stale_metadata"
            assert version.expected_note == (
                "the leader had not yet seen topic 'orders' grow from 6 to 8 partitions"
            )
            assert version.topic_counts["orders"] == 8
        else:
            assert version.expected_status == "equal", (version.generation_id, version.expected_note)


@pytest.mark.parametrize("group_id", ["cg-kp-range", "cg-ck-coop"])
def test_differences_of_other_clients_are_explained(group_id: str) -> None:
    """Where librdkafka or kafka-python lead, expected is equal or the note names their algorithm."""
    for version in captured_versions(group_id):
        if version.members and version.expected_status != "equal":
            assert version.expected_status == "other_algorithm"
            assert "librdkafka client" in (version.expected_note or "")


@pytest.mark.parametrize(
    ("group_id", "client"),
    [
        ("cg-java-range", "Java"),
        ("cg-java-coop", "Java"),
        ("cg-ck-coop", "librdkafka"),
        ("cg-kp-range", "kafka-python"),
    ],
)
def test_leaders_client_is_recognised_by_its_bytes(group_id: str, client: str) -> None:
    """Every captured leader is told from its bytes alone."""
    recognised = set()
    for event in captured_inputs():
        value = event.body.get("value")
        if event.group_id == group_id and event.body.get("key_type") == 2 and value and value["members"]:
            generation = generation_of_record(value)
            (leader,) = (m for m in generation.joined if m.member_id == generation.leader_id)
            recognised.add(recognise_client(leader))
    assert recognised == {client}


def test_growth_heard_of_after_the_fact_does_not_judge_the_past() -> None:
    """Here the topic grew before the first record was read; generations dated before it are still equal."""
    before = [v for v in captured_versions("cg-java-range") if v.event_time_ms < 1795225131000 and v.members]
    assert [v.expected_status for v in before] == ["equal"] * 3
    assert {v.topic_counts["orders"] for v in before} == {6}


def test_cooperative_move_takes_two_generations() -> None:
    """The generation that withholds is phase 1; the next is phase 2 and counts from before both."""
    moves = [(v.generation_id, v.phase, v.is_final) for v in captured_versions("cg-java-coop")[1:7]]
    assert moves == [(1, 0, True), (2, 1, False), (3, 2, True), (4, 1, False), (5, 2, True), (6, 0, True)]
    first, _, third = captured_versions("cg-java-coop")[1:4]
    assert third.basis == first.assignment


def test_upgrade_and_downgrade_are_one_history() -> None:
    """cg-java-coop goes to KIP-848 and back with no deletion, no gap and no incarnation."""
    history = captured_versions("cg-java-coop")
    assert {v.kind for v in history} == {"rebalance"}
    assert {v.incarnation for v in history} == {1}
    assert [v.version for v in history] == list(range(1, len(history) + 1))
    generations = [v.generation_id for v in history]
    assert generations == sorted(generations)
    upgraded = next(i for i, v in enumerate(history) if v.reason.startswith("upgraded"))
    before, after = history[upgraded - 1].assignment, history[upgraded].assignment
    assert sorted(owned_pairs(after)) == sorted(owned_pairs(before))
    downgraded = next(i for i, v in enumerate(history) if v.reason.startswith("downgraded"))
    assert upgraded < downgraded
    assert [history[i].expected_status for i in (upgraded, downgraded)] == ["in_transition"] * 2
    assert history[upgraded].rebalance_protocol == "CONSUMER"
    assert history[downgraded].rebalance_protocol == "COOPERATIVE"
    survivor = history[downgraded].members[0].member_id
    assert history[downgraded].assignment == {survivor: history[downgraded - 1].assignment[survivor]}


def test_connect_workers_run_what_they_later_report() -> None:
    """What a worker runs by our reckoning is the allocation that it reports when it next joins."""
    running: dict[str, Any] = {}
    compared = 0
    for event in captured_inputs():
        if event.group_id != "connect-wb" or not event.body["value"]["members"]:
            continue
        for member in event.body["value"]["members"]:
            allocation = connect_allocation(member["subscription"])
            if member["memberId"] in running and allocation is not None:
                deleted = set(running[member["memberId"]]) - set(allocation)
                kept = {c: ts for c, ts in running[member["memberId"]].items() if c not in deleted}
                assert allocation == kept
                compared += 1
        version = last_version_at("connect-wb", event.event_time_ms)
        running = {m: {c: sorted(ts) for c, ts in owned.items()} for m, owned in version.assignment.items()}
    assert compared >= 10


def test_connect_groups_subscribe_to_nothing() -> None:
    """What a Connect group counts are the tasks of its connectors, whatever topics are called."""
    seen = [v for v in captured_versions("connect-wb") if v.members]
    assert [v.subscribed for v in seen] == [{}] * 10
    assert {connector for v in seen for connector in v.topic_counts} == {"c-mid", "c-one"}


def connect_allocation(subscription: str) -> dict[str, list[int]] | None:
    """Read what a worker says it runs, by hand: version, url, offset, bytes(version, error, strings, ...)."""
    raw = base64.b64decode(subscription)
    (url_length,) = struct.unpack_from(">h", raw, 2)
    at = 4 + url_length + 8
    (length,) = struct.unpack_from(">i", raw, at)
    if length < 0:
        return None
    raw, at = raw[at + 4 :], 4
    for _ in range(2):
        (text_length,) = struct.unpack_from(">h", raw, at)
        at += 2 + max(text_length, 0)
    (connectors,) = struct.unpack_from(">i", raw, at + 8)
    at += 12
    found: dict[str, list[int]] = {}
    for _ in range(max(connectors, 0)):
        (name_length,) = struct.unpack_from(">h", raw, at)
        name = raw[at + 2 : at + 2 + name_length].decode()
        (tasks,) = struct.unpack_from(">i", raw, at + 2 + name_length)
        at += 6 + name_length
        found[name] = sorted(struct.unpack_from(f">{tasks}i", raw, at))
        at += 4 * tasks
    return found


# Cuts, repeats and outcomes


def test_every_event_ends_in_exactly_one_place() -> None:
    """Each record is the cause of one version or an outcome of its own, never both, never neither."""
    seen: list[str] = []
    for items in captured_items().values():
        for item in items:
            outcomes = item.cause if isinstance(item, Version) else (item,)
            seen.extend(outcome.event.event_id for outcome in outcomes)
    assert sorted(seen) == sorted(event.event_id for event in captured_inputs())


def test_saving_between_records_changes_nothing() -> None:
    """One state kept in memory through all records gives the versions that saving after each gives."""
    kept, _ = advance_all(captured_inputs(), view(), saved_after_each=False)
    assert kept == captured_items()


def test_dump_is_stable() -> None:
    """Loading a state and dumping it gives the same text, to the byte."""
    _, groups = advance_all(captured_inputs(), view())
    for group_id, group in groups.items():
        assert ObservedGroup.load(group.dump(), "c", group_id).dump() == group.dump()


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_records_read_again_are_duplicates(data: st.DataObject) -> None:
    """Records that come a second time, in any order between the others, change nothing and are counted."""
    inputs = [i for i in captured_inputs() if i.group_id in ("cg-java-coop", "cg-ck-848")]
    replayed: list[Input] = []
    for index, event in enumerate(inputs):
        replayed.append(event)
        again = data.draw(st.integers(-20, index))
        if again >= 0 and inputs[again].type == "offsets_record":
            replayed.append(inputs[again])
    items, _ = advance_all(replayed, view(), saved_after_each=False)
    for group_id, found in items.items():
        assert versions(found) == captured_versions(group_id)
    outcomes = [i.outcome for found in items.values() for i in found if isinstance(i, EventOutcome)]
    assert outcomes.count("duplicate") == len(replayed) - len(inputs)


@settings(max_examples=25, deadline=None)
@given(st.sets(st.integers(0, len(captured_inputs()) - 1), max_size=40))
def test_batches_cut_anywhere_give_the_same_versions(cuts: set[int]) -> None:
    """Wherever batches end, with partitions closed and states saved there, the versions are the same."""
    assert versions_in_batches(cuts) == versions_in_batches(set())


def versions_in_batches(cuts: set[int]) -> dict[str, list[Version]]:
    """Play the captured records in batches that end behind these records."""
    groups: dict[str, ObservedGroup] = {}
    found: dict[str, list[Version]] = {}
    ends: dict[int, int] = {}
    last = len(captured_inputs()) - 1
    for index, event in enumerate(captured_inputs()):
        group_id = event.group_id or ""
        group = groups.setdefault(group_id, ObservedGroup("c", group_id))
        found.setdefault(group_id, []).extend(versions(group.advance(event, view())))
        partition = event.position.partition
        ends[partition] = max(ends.get(partition, 0), event.event_time_ms)
        if index not in cuts and index != last:
            continue
        for name, each in groups.items():
            for closed, end_ms in ends.items():
                found[name] += each.partition_advanced("__consumer_offsets", closed, end_ms, view())
            groups[name] = ObservedGroup.load(each.dump(), "c", name)
    return found


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 400_000), max_size=6))
def test_deletion_does_not_depend_on_when_it_is_noticed(noticed: list[int]) -> None:
    """However often and whenever the partition is said to have advanced, the deletion is the same version."""
    inputs = [i for i in captured_inputs() if i.group_id == "cg-ck-coop"]
    tombstone_ms = inputs[-1].event_time_ms
    _, groups = advance_all(inputs, view(), saved_after_each=False)
    group = groups["cg-ck-coop"]
    found: list[Version] = []
    for later in noticed:
        found += group.partition_advanced("__consumer_offsets", 3, tombstone_ms - 200_000 + later, view())
        found += group.partition_advanced("__consumer_offsets", 2, tombstone_ms + later + 1, view())
    fired = group.fire_next(tombstone_ms + TOMBSTONE_WAIT_MS, view())
    if fired is not None:
        assert fired[0] == tombstone_ms
        found += versions(fired[1])
    assert [(v.kind, v.version, v.event_time_ms, v.generation_id) for v in found] == [
        ("deleted", 11, tombstone_ms, 9)
    ]
    assert group.next_timer_ms() is None


def test_no_deletion_before_its_append_is_read() -> None:
    """Records of the tombstone's own time do not settle it: the rest of its append may follow."""
    inputs = [i for i in captured_inputs() if i.group_id == "cg-java-coop" and i.position.offset <= 1307]
    _, groups = advance_all(inputs, view())
    group = groups["cg-java-coop"]
    assert group.partition_advanced("__consumer_offsets", 1, inputs[-1].event_time_ms, view()) == []
    assert group.next_timer_ms() == inputs[-1].event_time_ms + TOMBSTONE_WAIT_MS
    assert group.fire_next(inputs[-1].event_time_ms + TOMBSTONE_WAIT_MS - 1, view()) is None
