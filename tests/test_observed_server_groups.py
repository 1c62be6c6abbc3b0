"""What the records of KIP-848 and share groups add up to, and where a version is cut."""

from __future__ import annotations

from dataclasses import replace

from streaming.groups.observed.group import ObservedGroup
from streaming.model import EventOutcome, Input, Position, TopicState
from tests.observed_inputs import (
    ORDERS_ID,
    advance_all,
    classic,
    classic_value,
    current,
    new_member,
    observed,
    raw_record,
    record_input,
    target,
    versions,
    view,
)

T4 = TopicState(topic="t", partition_count=4)

JOINED = [
    raw_record(0, 5, new_member("i"), "m1"),
    raw_record(1, 3, {"epoch": 2, "metadataHash": 0}),
    raw_record(2, 7, target([0, 1, 2, 3, 4, 5]), "m1"),
    raw_record(3, 6, {"assignmentEpoch": 2}),
    raw_record(4, 8, current(2, 0, [0, 1, 2, 3, 4, 5]), "m1"),
]


def test_joining_records_are_one_version() -> None:
    """The five records of a first member make one version, at the last of them."""
    (version,) = versions(advance_all(JOINED, view())[0]["k"])
    assert (version.kind, version.generation_id, version.reason) == ("rebalance", 2, "member_joined m1")
    assert version.cause[0].event == JOINED[-1]
    assert version.assignment == {"m1": {"orders": [0, 1, 2, 3, 4, 5]}} == version.expected


def test_replaced_static_member_of_kip_848_is_one_version() -> None:
    """Tombstones of the old id and records of the new one show nothing in between."""
    replaced = [
        raw_record(100, 8, None, "m1"),
        raw_record(101, 7, None, "m1"),
        raw_record(102, 5, None, "m1"),
        raw_record(103, 5, new_member("i"), "m2"),
        raw_record(104, 7, target([0, 1, 2, 3, 4, 5]), "m2"),
        raw_record(105, 8, current(2, 2, [0, 1, 2, 3, 4, 5]), "m2"),
    ]
    _, second = versions(advance_all([*JOINED, *replaced], view())[0]["k"])
    assert (second.reason, second.instance_moves) == ("static_member_replaced i", {"m1": "m2"})
    assert second.generation_id == 2


def test_epoch_alone_and_confirmed_epoch_make_no_version() -> None:
    """An epoch waits for its target, and a member that only confirms it shows nothing new."""
    quiet = [raw_record(100, 3, {"epoch": 3, "metadataHash": 1})]
    assert len(versions(advance_all([*JOINED, *quiet], view())[0]["k"])) == 1
    quiet += [raw_record(101, 6, {"assignmentEpoch": 3}), raw_record(200, 8, current(3, 2, range(6)), "m1")]
    found = versions(advance_all([*JOINED, *quiet], view())[0]["k"])
    assert [(v.generation_id, v.group_state, v.expected_status) for v in found[1:]] == [
        (3, "Reconciling", "in_transition"),
        (3, "Stable", "equal"),
    ]


def test_missed_epochs_are_a_gap() -> None:
    """A jump of epochs in a compacted topic is a gap, as a jump of generations is."""
    later = [raw_record(100, 3, {"epoch": 6, "metadataHash": 1}), raw_record(101, 6, {"assignmentEpoch": 6})]
    found = versions(advance_all([*JOINED, *later], view())[0]["k"])
    assert (found[1].kind, found[1].generation_id) == ("gap", 6)
    assert found[1].reason == "gap: generations 3 to 5 not seen (compacted, or never completed)"


def test_compacted_kip_848_group_starts_with_a_baseline() -> None:
    """Read from a compacted topic, members whose records are far apart are shown when all are there."""
    compacted = [
        raw_record(0, 5, new_member(), "m1"),
        raw_record(100, 8, current(7, 6, [0, 1, 2]), "m1"),
        raw_record(200, 5, new_member(), "m2"),
        raw_record(201, 3, {"epoch": 7, "metadataHash": 0}),
        raw_record(202, 7, target([0, 1, 2]), "m1"),
        raw_record(203, 7, target([3, 4, 5]), "m2"),
        raw_record(204, 6, {"assignmentEpoch": 7}),
        raw_record(300, 8, current(7, 7, [3, 4, 5]), "m2"),
    ]
    (baseline,) = versions(advance_all(compacted, view())[0]["k"])
    assert (baseline.kind, baseline.generation_id, baseline.expected_status) == ("baseline", 7, "equal")


def test_kip_848_group_made_anew_drops_what_is_left_of_the_old() -> None:
    """A lower epoch at a newer offset is a new incarnation, without the members of later epochs."""
    later = [raw_record(100, 3, {"epoch": 3, "metadataHash": 0}), raw_record(101, 6, {"assignmentEpoch": 3})]
    later.append(raw_record(102, 8, current(3, 2, range(6)), "m1"))
    anew = [
        raw_record(200, 5, new_member(), "m2"),
        raw_record(201, 3, {"epoch": 2, "metadataHash": 0}),
        raw_record(202, 7, target(range(6)), "m2"),
        raw_record(203, 6, {"assignmentEpoch": 2}),
        raw_record(204, 8, current(2, 0, range(6)), "m2"),
    ]
    last = versions(advance_all([*JOINED, *later, *anew], view())[0]["k"])[-1]
    assert (last.kind, last.incarnation, last.generation_id) == ("rebalance", 2, 2)
    assert last.assignment == {"m2": {"orders": [0, 1, 2, 3, 4, 5]}}


def test_pattern_subscription_resolves_as_the_broker_said() -> None:
    """What a pattern matches is in a record of its own; the member may own just that."""
    member = new_member() | {"subscribedTopicNames": [], "subscribedTopicRegex": "ord.*"}
    resolved = record_input(
        "k", 1, 1000, 16, {"groupId": "k", "regularExpression": "ord.*"}, {"topics": ["orders"], "version": 1}
    )
    records = [raw_record(0, 5, member, "m1"), resolved, *(replace_offset(e, 1) for e in JOINED[1:])]
    (version,) = versions(advance_all(records, view())[0]["k"])
    assert version.subscribed == {"m1": frozenset({"orders"})}
    assert version.members[0].topics_pattern == "ord.*"
    assert version.topic_counts == {"orders": 6}


def replace_offset(event: Input, by: int) -> Input:
    """Move a record further back in its partition."""
    return replace(event, position=replace(event.position, offset=event.position.offset + by))


def share_records(*, initialised: int) -> list[Input]:
    """Make the records of a share group with one member and so many initialised partitions."""
    topic = {"topicId": ORDERS_ID, "topicName": "orders", "partitions": list(range(initialised))}
    names = {"initializingTopics": [], "initializedTopics": [topic], "deletingTopics": []}
    held = {"memberEpoch": 2, "previousMemberEpoch": 0, "state": 0, "assignedPartitions": [
        {"topicId": ORDERS_ID, "partitions": list(range(initialised))}]}  # fmt: skip
    member = {"rackId": None, "clientId": "x", "clientHost": "/h", "subscribedTopicNames": ["orders"]}
    return [
        raw_record(0, 15, names),
        raw_record(1, 10, member, "s1"),
        raw_record(2, 11, {"epoch": 2, "metadataHash": 0}),
        raw_record(3, 13, target(range(initialised)), "s1"),
        raw_record(4, 12, {"assignmentEpoch": 2}),
        raw_record(5, 14, held, "s1"),
    ]


def test_share_group_waits_for_its_partitions() -> None:
    """Partitions that a share group has not initialised cannot be assigned: no fault, and not final."""
    (ready,) = versions(advance_all(share_records(initialised=6), view())[0]["k"])
    assert (ready.protocol_type, ready.expected_status, ready.is_final) == ("share", "equal", True)
    (waiting,) = versions(advance_all(share_records(initialised=4), view())[0]["k"])
    assert (waiting.expected_status, waiting.is_final) == ("in_transition", False)
    assert waiting.expected_note == "share partitions not yet initialised: orders"


def test_what_does_not_concern_members_is_ignored_and_says_why() -> None:
    """Streams groups, unknown records, commits and other groups' events leave only their outcome."""
    group = ObservedGroup("c", "k")
    events = [
        raw_record(0, 17, {"epoch": 1}),
        replace(raw_record(1, 99, None), type="unknown_record"),
        record_input("k", 2, 1000, 1, {"group": "k", "topic": "orders"}, None),
        replace(observed(3, 1, {}), type="member_joined"),
    ]
    found = [item for event in events for item in group.advance(event, view())]
    assert [item.outcome for item in found if isinstance(item, EventOutcome)] == ["ignored"] * 4
    assert all(item.reason for item in found if isinstance(item, EventOutcome))


def test_group_not_seen_whole_is_version_0() -> None:
    """Before its first version a group can be described all the same: its records are part of the state."""
    group = ObservedGroup("c", "k")
    assert versions(group.advance(JOINED[0], view())) == []
    shown = group.describe(view())
    assert (shown.kind, shown.version, shown.group_state, shown.members) == ("state", 0, "Unknown", ())


def test_kip_848_group_long_after_a_tombstone_is_a_new_one() -> None:
    """Only records of the tombstone's own append carry a group on; later ones are a group made anew."""
    first = classic("k", 0, 500, classic_value(1, [("a", {"t": [0, 1, 2, 3]})], {"t"}))
    tombstone = classic("k", 1, 600, None)
    joined = [replace(e, position=replace(e.position, offset=e.position.offset + 2)) for e in JOINED]
    found = versions(advance_all([first, tombstone, *joined], view())[0]["k"])
    assert [(v.kind, v.incarnation) for v in found] == [("baseline", 1), ("deleted", 1), ("rebalance", 2)]
    assert found[1].event_time_ms == 600


def test_topic_without_a_name_shows_as_its_id() -> None:
    """An id that nobody has named is shown as it is, and has no partition count."""
    (version,) = versions(advance_all(JOINED, view(T4))[0]["k"])
    assert version.assignment == {"m1": {ORDERS_ID: [0, 1, 2, 3, 4, 5]}}
    assert version.topic_counts == {}


def test_offset_commit_names_a_topic_id() -> None:
    """Offset commits tell one thing of groups: the names behind topic ids."""
    commit = record_input("k", 9, 999, 1, {"group": "k", "topic": "orders"}, {"topicId": ORDERS_ID})
    commit = replace(commit, position=Position("kafka", "x", 0, -1))
    first, *rest = advance_all([commit, *JOINED], view(T4))[0]["k"]
    assert isinstance(first, EventOutcome)
    assert first.outcome == "applied"
    assert versions(rest)[0].assignment == {"m1": {"orders": [0, 1, 2, 3, 4, 5]}}


def test_deleted_kip_848_group() -> None:
    """The tombstones of an emptied group delete it, once its partition has gone on."""
    gone = [
        raw_record(100, 8, None, "m1"),
        raw_record(101, 7, None, "m1"),
        raw_record(102, 5, None, "m1"),
        raw_record(103, 3, {"epoch": 3, "metadataHash": 0}),
        raw_record(200, 6, None),
        raw_record(201, 3, None),
    ]
    items, groups = advance_all([*JOINED, *gone], view())
    assert [v.group_state for v in versions(items["k"])] == ["Stable", "Empty"]
    (deleted,) = groups["k"].partition_advanced("__consumer_offsets", 0, 1003, view())
    assert (deleted.kind, deleted.event_time_ms) == ("deleted", 1002)
