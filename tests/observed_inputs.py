"""Inputs for observed groups: the captured run, and records made up by hand.

The captured run (tests/data) is of a Kafka 4.3.1 broker with Java, librdkafka and
kafka-python clients.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from assignors import Assignment, AssignorMemory, Subscription, TopicMetadata
from streaming.groups.observed.group import ObservedGroup
from streaming.model import EventOutcome, Input, Position, TopicState, TopicView, Version

DATA = Path(__file__).parent / "data"
Items = list[Version | EventOutcome]
ORDERS_ID = "Hf_N4lx3QQOy1qprBqwfHw"


@cache
def captured_topics() -> tuple[TopicState, ...]:
    """Give the topics after the whole run, with their history."""
    states: dict[str, TopicState] = {}
    for line in (DATA / "topics.jsonl").read_bytes().splitlines():
        event = json.loads(line)
        before = states.get(event["topic"])
        states[event["topic"]] = TopicState(
            topic=event["topic"],
            partition_count=event["partitions"],
            topic_id=event["topic_id"],
            event_time_ms=event["event_time"],
            history=((event["event_time"], before.partition_count),) if before else (),
        )
    return tuple(states.values())


def view(*states: TopicState) -> TopicView:
    """Look at these topics, or at those of the captured run."""
    return TopicView({state.topic: state for state in states or captured_topics()})


@cache
def captured_inputs() -> tuple[Input, ...]:
    """Give the captured records as the decoder hands them on."""
    decoded = (DATA / "consumer-offsets.decoded.jsonl").read_bytes().splitlines()
    raw = (DATA / "consumer-offsets.jsonl").read_bytes().splitlines()
    inputs = []
    for decoded_line, raw_line in zip(decoded, raw, strict=True):
        record = json.loads(decoded_line)
        key = record["key"]
        inputs.append(
            record_input(
                key.get("group") or key["groupId"],
                record["offset"],
                json.loads(raw_line)["timestamp"],
                record["key_type"],
                key,
                record["value"],
                partition=record["partition"],
            )
        )
    return tuple(inputs)


def record_input(
    group_id: str,
    offset: int,
    time_ms: int,
    key_type: int,
    key: Mapping[str, Any],
    value: Mapping[str, Any] | None,
    *,
    partition: int = 0,
) -> Input:
    """Make the Input of one record of __consumer_offsets."""
    body = {"key_type": key_type, "key": dict(key), "value_version": 0, "value": value}
    if key_type in (0, 1):
        body = {"group": group_id, "topic": key["topic"], "topicId": (value or {}).get("topicId")}
    return Input(
        type="offset_commit" if key_type in (0, 1) else "offsets_record",
        cluster="c",
        event_time_ms=time_ms,
        event_id=f"c/__consumer_offsets/{partition}/{offset}",
        position=Position("kafka", "__consumer_offsets", partition, offset),
        body=body,
        raw=b"",
        group_id=group_id,
    )


def advance_all(
    inputs: Iterable[Input], topics: TopicView, *, saved_after_each: bool = True
) -> tuple[dict[str, Items], dict[str, ObservedGroup]]:
    """Feed every group its records: group -> what came of it, and the groups."""
    groups: dict[str, ObservedGroup] = {}
    items: dict[str, Items] = {}
    for event in inputs:
        group_id = event.group_id or ""
        group = groups.get(group_id) or ObservedGroup.load(None, "c", group_id)
        items.setdefault(group_id, []).extend(group.advance(event, topics))
        groups[group_id] = ObservedGroup.load(group.dump(), "c", group_id) if saved_after_each else group
    return items, groups


@cache
def captured_items() -> Mapping[str, Items]:
    """Give what the captured records make, one at a time, the state saved and loaded between."""
    return advance_all(captured_inputs(), view())[0]


def versions(items: Iterable[Version | EventOutcome]) -> list[Version]:
    """Pick the versions out."""
    return [item for item in items if isinstance(item, Version)]


def captured_versions(group_id: str) -> list[Version]:
    """Give the versions of one captured group."""
    return versions(captured_items()[group_id])


def consumer_bytes(topics: Sequence[str], owned: Mapping[str, Sequence[int]], generation_id: int) -> str:
    """Write a Java consumer's subscription (version 2) as base64."""
    raw = struct.pack(">hi", 2, len(topics)) + b"".join(_text(t) for t in topics) + struct.pack(">i", -1)
    return base64.b64encode(raw + _topic_lists(owned) + struct.pack(">i", generation_id)).decode()


def given_bytes(assigned: Mapping[str, Sequence[int]]) -> str:
    """Write a Java leader's assignment (version 2) as base64."""
    return base64.b64encode(struct.pack(">h", 2) + _topic_lists(assigned) + struct.pack(">i", -1)).decode()


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def _topic_lists(lists: Mapping[str, Sequence[int]]) -> bytes:
    written = struct.pack(">i", len(lists))
    for topic, partitions in lists.items():
        written += _text(topic) + struct.pack(f">i{len(partitions)}i", len(partitions), *partitions)
    return written


def classic_value(
    generation_id: int,
    members: Sequence[tuple[str, Mapping[str, Sequence[int]]]],
    topics: Iterable[str] | Mapping[str, Iterable[str]],
    *,
    protocol: str = "range",
    instances: Mapping[str, str] | None = None,
    claims: Mapping[str, tuple[Mapping[str, Sequence[int]], int]] | None = None,
) -> dict[str, Any]:
    """Write the value of a key-2 record: (member, what it is given) in join order; the first leads.

    `topics` are what all subscribe to, or each member; `claims` what each owns since which generation.
    """
    claims, instances = claims or {}, instances or {}
    topics_of = topics if isinstance(topics, Mapping) else {member: list(topics) for member, _ in members}
    return {
        "protocolType": "consumer" if members or generation_id else "",
        "generation": generation_id,
        "protocol": protocol if members else None,
        "leader": members[0][0] if members else None,
        "currentStateTimestamp": -1,
        "members": [
            {
                "memberId": member,
                "groupInstanceId": instances.get(member),
                "clientId": member.split("-")[0],
                "clientHost": "/127.0.0.1",
                "rebalanceTimeout": 1,
                "sessionTimeout": 1,
                "subscription": consumer_bytes(sorted(topics_of[member]), *claims.get(member, ({}, -1))),
                "assignment": given_bytes(assigned),
            }
            for member, assigned in members
        ],
    }


def classic(group_id: str, offset: int, time_ms: int, value: Mapping[str, Any] | None) -> Input:
    """Make the Input of a key-2 record."""
    return record_input(group_id, offset, time_ms, 2, {"group": group_id}, value)


def raw_record(
    offset: int, key_type: int, value: Mapping[str, Any] | None, member: str | None = None
) -> Input:
    """Make the Input of one KIP-848 record, all of one append per hundred offsets."""
    key = {"groupId": "k"} | ({"memberId": member} if member else {})
    return record_input("k", offset, 1000 + offset // 100, key_type, key, value)


def new_member(instance_id: str | None = None) -> dict[str, Any]:
    """Write the value of a key-5 record."""
    return {
        "instanceId": instance_id,
        "rackId": None,
        "clientId": "x",
        "clientHost": "/h",
        "subscribedTopicNames": ["orders"],
        "subscribedTopicRegex": "",
        "rebalanceTimeoutMs": 1,
        "serverAssignor": None,
        "classicMemberMetadata": None,
    }


def current(epoch: int, previous: int, partitions: Sequence[int], state: int = 0) -> dict[str, Any]:
    """Write the value of a key-8 record."""
    return {
        "memberEpoch": epoch,
        "previousMemberEpoch": previous,
        "state": state,
        "assignedPartitions": [{"topicId": ORDERS_ID, "partitions": list(partitions)}],
        "partitionsPendingRevocation": [],
    }


def target(partitions: Sequence[int]) -> dict[str, Any]:
    """Write the value of a key-7 record."""
    return {"topicPartitions": [{"topicId": ORDERS_ID, "partitions": list(partitions)}]}


def observed(line: int, generation_id: int, assigned: Mapping[str, Mapping[str, list[int]]]) -> Input:
    """Make a generation_observed event at that line of a file."""
    members = [
        {"member_id": m, "client_id": m, "client_host": "h", "topics": ["t"], "assigned": dict(owned)}
        for m, owned in assigned.items()
    ]
    body = {
        "generation_id": generation_id,
        "protocol_type": "consumer",
        "protocol": "range",
        "state": "Stable",
        "members": members,
    }
    return Input(
        type="generation_observed",
        cluster="c",
        event_time_ms=line * 1000,
        event_id=f"e{line}",
        position=Position("files", "a.jsonl", -1, line),
        body=body,
        raw=b"",
        group_id="g",
    )


def distrustful(
    topics: Mapping[str, TopicMetadata],
    subscriptions: Mapping[str, Subscription],
    memory: AssignorMemory | None,
) -> Assignment:
    """Honour claims as new as any ever seen, else give everything to the first member.

    Kafka's sticky assignors let their memory decide in so few cases that a random search found none;
    this one shows whether it is handed on rightly.
    """
    assert memory is not None
    newest = max(s.generation_id for s in subscriptions.values())
    is_trusted = newest >= memory.max_generation
    memory.max_generation = max(newest, memory.max_generation)
    if is_trusted:
        return Assignment.of({m: s.owned_partitions for m, s in subscriptions.items()})
    everything = [(t, p) for t, found in topics.items() for p in found.partitions]
    return Assignment.of({m: everything if i == 0 else [] for i, m in enumerate(subscriptions)})
