"""Made-up records of `__consumer_offsets`: offset commits, classic groups and KIP-848 groups that rebalance.

Every group of one kind lives the same life: in each generation one of its members restarts and
comes back under a new id, and the partitions are shared out anew. So its records are encoded once, and
copied with another group id of the same length. Group ids, member ids and client ids are as long as usual.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

from assignors import Subscription, TopicMetadata, assign_range
from assignors.java_order import string_hash
from tests.observed_inputs import classic_value
from tests.offsets_encoder import encode_key, encode_value

MEMBERS = 5
PARTITIONS = 10
_TEMPLATE_ID = "group-#######"
_COMMIT_VERSION = 4
_GROUP_VERSION = 3
_START_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z; any fixed time will do


class Record(NamedTuple):
    """A record's partition, key and value; a value of None is a tombstone."""

    partition: int
    key: bytes
    value: bytes | None


def group_id_of(number: int) -> str:
    """Name a group; all names have one length, so that a record can be copied from group to group."""
    return f"group-{number:07d}"


def records_of_groups(
    numbers: range,
    generations: int,
    topics: Mapping[str, str],
    partitions: int,
    *,
    is_classic: bool,
    members: int = MEMBERS,
    topic_partitions: int = PARTITIONS,
) -> Iterator[Record]:
    """Give the records of several groups, generation by generation through all of them.

    Args:
        numbers: of the groups.
        generations: how many each has.
        topics: name -> id of the topics that they read, one each, in turn; all names of one length.
        partitions: of the topic that the records are for.
        is_classic: classic groups (one record a generation) or KIP-848 groups.
        members: of each group.
        topic_partitions: of each of the topics.
    """
    write = _classic_record if is_classic else _consumer_records
    lives = [
        [
            write(generation, members, topic, topic_id, topic_partitions)
            for generation in range(1, generations + 1)
        ]
        for topic, topic_id in topics.items()
    ]
    old = _TEMPLATE_ID.encode()
    places = [(number, partition_of(group_id_of(number), partitions)) for number in numbers]
    for generation in range(generations):
        for number, place in places:
            new = group_id_of(number).encode()
            for key, value in lives[number % len(lives)][generation]:
                yield Record(place, key.replace(old, new), value and value.replace(old, new))


def commit_records(count: int, groups: int, topics: Mapping[str, str], partitions: int) -> Iterator[Record]:
    """Give offset commits (version 4) of the groups, in turn, one partition of their topic at a time."""
    names, old = list(topics), _TEMPLATE_ID.encode()
    ids = [group_id_of(number) for number in range(groups)]
    known = [(group_id.encode(), partition_of(group_id, partitions)) for group_id in ids]
    for place in range(count):
        offset, number = divmod(place, groups)
        (new, partition), topic = known[number], names[number % len(names)]
        key = _commit_key(topic, offset % PARTITIONS).replace(old, new)
        yield Record(partition, key, _commit_value(offset, topics[topic]))


@cache
def _commit_key(topic: str, partition: int) -> bytes:
    return encode_key(1, {"group": _TEMPLATE_ID, "topic": topic, "partition": partition})


@cache
def _commit_value(offset: int, topic_id: str) -> bytes:
    value = {
        "offset": offset,
        "leaderEpoch": 0,
        "metadata": "",
        "commitTimestamp": _START_MS + offset,
        "topicId": topic_id,
    }
    return encode_value(1, _COMMIT_VERSION, value)


def partition_of(group_id: str, partitions: int) -> int:
    """Say where Kafka puts a group. Source: GroupCoordinatorService.partitionFor."""
    return (string_hash(group_id) & 0x7FFF_FFFF) % partitions


def _member_id(seed: int) -> str:
    return f"{_TEMPLATE_ID}-{uuid.UUID(int=seed * 0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C834 % (1 << 128))}"


def _members(generation: int, count: int) -> list[str]:
    """Name the members of a generation: in each the one who has been there longest restarts."""
    return [_member_id(seed) for seed in range(generation, generation + count)]


def _shares(members: list[str], topic: str, partitions: int) -> dict[str, list[int]]:
    """Share a topic out as the range assignor does: member_id -> partitions."""
    if not members:
        return {}
    subscription = Subscription(topics=(topic,))
    given = assign_range({topic: TopicMetadata.of_count(partitions)}, dict.fromkeys(members, subscription))
    return {member: [p.partition for p in given[member]] for member in members}


def _classic_record(
    generation: int, count: int, topic: str, _topic_id: str, partitions: int
) -> list[tuple[bytes, bytes | None]]:
    """Write a classic group's one record of a generation: key and value of type 2."""
    members = _members(generation, count)
    given = [(member, {topic: share}) for member, share in _shares(members, topic, partitions).items()]
    value = classic_value(generation, given, [topic]) | {"currentStateTimestamp": _START_MS + generation}
    for member in value["members"]:
        member |= {"clientId": _TEMPLATE_ID, "clientHost": "/10.20.30.40"}
        member |= {"rebalanceTimeout": 300_000, "sessionTimeout": 45_000}
    return [(encode_key(2, {"group": _TEMPLATE_ID}), encode_value(2, _GROUP_VERSION, value))]


def _consumer_records(
    epoch: int, count: int, topic: str, topic_id: str, partitions: int
) -> list[tuple[bytes, bytes | None]]:
    """Write the records of one epoch of a KIP-848 group: who left, who came, the target, what each has."""
    before, members = _members(epoch - 1, count) if epoch > 1 else [], _members(epoch, count)
    left, came = set(before) - set(members), set(members) - set(before)
    records: list[tuple[bytes, bytes | None]] = []

    def add(key_type: int, value: dict[str, Any] | None, member: str | None = None) -> None:
        key = {"groupId": _TEMPLATE_ID} | ({} if member is None else {"memberId": member})
        written = None if value is None else encode_value(key_type, 0, value)
        records.append((encode_key(key_type, key), written))

    for member in sorted(left):
        for key_type in (8, 7, 5):
            add(key_type, None, member)
    for member in sorted(came):
        add(5, {**_NEW_MEMBER, "clientId": _TEMPLATE_ID, "subscribedTopicNames": [topic]}, member)
    add(3, {"epoch": epoch, "metadataHash": 1})
    shares, shares_before = (_shares(names, topic, partitions) for names in (members, before))
    for member, share in shares.items():
        if share != shares_before.get(member):
            add(7, {"topicPartitions": [{"topicId": topic_id, "partitions": share}]}, member)
    add(6, {"assignmentEpoch": epoch, "assignmentTimestamp": _START_MS + epoch})
    for member, share in shares.items():
        current = {
            "memberEpoch": epoch,
            "previousMemberEpoch": 0 if member in came else epoch - 1,
            "state": 0,
            "assignedPartitions": [{"topicId": topic_id, "partitions": share, "assignmentEpochs": None}],
            "partitionsPendingRevocation": [],
        }
        add(8, current, member)
    return records


_NEW_MEMBER = {
    "instanceId": None,
    "rackId": None,
    "clientHost": "/10.20.30.40",
    "subscribedTopicRegex": "",
    "rebalanceTimeoutMs": 300_000,
    "serverAssignor": "range",
    "classicMemberMetadata": None,
}
