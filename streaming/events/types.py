"""The types of events: which fields each must and may have.

A field that is not named here is kept in the record's raw text and otherwise
ignored; null in a field that may be absent is the same as its absence.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from streaming.events.fields import (
    EventError,
    Rule,
    base64_text,
    integer,
    list_of,
    name,
    number,
    one_of,
    partitions_by_topic,
    racks,
    refuse,
    shown,
    text,
    topic_id,
    topic_pattern,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def _no_more(_event: dict[str, Any]) -> None:
    """Ask for nothing beyond the single fields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventType:
    """The fields of one type of event, without the common ones.

    `nullable` names required fields that may be null. `check` looks at the fields
    together, after each by itself.
    """

    required: Mapping[str, Rule]
    may_have: Mapping[str, Rule] = field(default_factory=dict)
    nullable: frozenset[str] = frozenset()
    check: Callable[[dict[str, Any]], None] = _no_more

    def body_of(self, event: Mapping[str, Any], of: str) -> dict[str, Any]:
        """Check the event's fields and give them, those that are absent or null left out.

        Args:
            event: the parsed object.
            of: what the fields belong to, for the message about a missing one.

        Raises:
            EventError: a field is missing, or not what it must be.
        """
        body: dict[str, Any] = {}
        field_name = ""
        try:
            for field_name, rule in self.required.items():
                if field_name not in event:
                    raise EventError("is missing", f"{of} needs it")
                value = event[field_name]
                if value is not None or field_name not in self.nullable:
                    rule(value)
                body[field_name] = value
            for field_name, rule in self.may_have.items():
                value = event.get(field_name)
                if value is not None:
                    rule(value)
                    body[field_name] = value
        except EventError as error:
            raise error.inside(field_name) from None
        self.check(body)
        return body


_NAMES = list_of(name, "names")
_GENERATION = integer(0)
MAX_PARTITIONS = 1_000_000
"""Of one topic. Kafka itself stops well below; a slip of the pen must not fill the memory."""
_COUNT = integer(0, MAX_PARTITIONS)
MAX_LOAD = 1e18
"""Of one partition, in whatever unit. No disk writes as much a second, and sums of it stay finite."""
_GROUP: dict[str, Rule] = {"group_id": name}
_MEMBER: dict[str, Rule] = {**_GROUP, "member_id": name}
_WORKER: dict[str, Rule] = {**_GROUP, "worker_id": name}
_CONNECTOR: dict[str, Rule] = {**_GROUP, "connector": name}
_SUBSCRIPTION: dict[str, Rule] = {"topics": list_of(name, "topic names"), "topics_pattern": topic_pattern}

_OBSERVED_FIELDS: dict[str, Rule] = {
    "group_instance_id": name,
    "member_generation_id": integer(-1),
    "rack_id": text,
    "user_data": base64_text,
}


GROUP_STATES = (
    "Stable",
    "PreparingRebalance",
    "CompletingRebalance",
    "Empty",
    "Dead",
    "Assigning",
    "Reconciling",
)
"""The states of a group as Kafka's coordinator names them (GroupState; NotReady is a Streams group's)."""


def _observed_member(lowest: int) -> EventType:
    """Describe one entry of `members`, whose partition numbers are `lowest` or more."""
    return EventType(
        required={
            "member_id": name,
            "client_id": text,
            "client_host": text,
            "topics": list_of(name, "topic names"),
            "assigned": partitions_by_topic(lowest),
        },
        may_have={**_OBSERVED_FIELDS, "owned_partitions": partitions_by_topic(lowest)},
    )


_CONSUMER_MEMBER = _observed_member(0)
_CONNECT_MEMBER = _observed_member(-1)
"""In a Connect group partition -1 of a connector is the connector itself."""


def _one_subscription(event: dict[str, Any]) -> None:
    has_topics, has_pattern = "topics" in event, "topics_pattern" in event
    if has_topics and has_pattern:
        raise EventError("is there besides topics", "a member has exactly one of the two", "topics_pattern")
    if not has_topics and not has_pattern:
        raise EventError("is missing", "a member has exactly one of topics and topics_pattern", "topics")


def _partition_count(event: dict[str, Any]) -> None:
    """Ask for a count or racks; where both are there they must agree. Racks alone give the count."""
    rack_lists = event.get("partition_racks")
    if rack_lists is None:
        if "partitions" not in event:
            raise EventError("is missing", "type 'topic_changed' needs it or partition_racks", "partitions")
        return
    if event.setdefault("partitions", len(rack_lists)) != len(rack_lists):
        raise EventError(
            f"has {len(rack_lists)} entries",
            f"partitions is {event['partitions']}, and there must be one for each",
            "partition_racks",
        )


def _observed_members(event: dict[str, Any]) -> None:
    shape = _CONNECT_MEMBER if event["protocol_type"] == "connect" else _CONSUMER_MEMBER
    place_by_member: dict[str, int] = {}
    members: list[dict[str, Any]] = []
    for i, member in enumerate(event["members"]):
        try:
            if type(member) is not dict:
                raise refuse(member, "an object")
            members.append(shape.body_of(member, "a member of a generation"))
        except EventError as error:
            raise error.inside(f"members[{i}]") from None
        first = place_by_member.setdefault(member["member_id"], i)
        if first != i:
            raise EventError(
                f"is {shown(member['member_id'])}, as in members[{first}]",
                "each member must be there once",
                f"members[{i}].member_id",
            )
    event["members"] = members


EVENT_TYPES: dict[str, EventType] = {
    "topic_changed": EventType(
        required={"topic": name},
        may_have={"topic_id": topic_id, "partitions": _COUNT, "partition_racks": racks},
        check=_partition_count,
    ),
    "member_joined": EventType(
        required=_MEMBER,
        may_have={
            **_SUBSCRIPTION,
            "group_instance_id": name,
            "client_id": text,
            "client_host": text,
            "rack_id": text,
            "protocols": list_of(name, "protocol names", at_least=1),
            "owned_partitions": partitions_by_topic(),
            "generation_id": integer(-1),
            "session_timeout_ms": integer(1),
            "user_data": base64_text,
        },
        check=_one_subscription,
    ),
    "subscription_changed": EventType(required=_MEMBER, may_have=_SUBSCRIPTION, check=_one_subscription),
    "member_heartbeat": EventType(required=_MEMBER),
    "member_left": EventType(required=_MEMBER, may_have={"reason": one_of("leave", "expired", "fenced")}),
    "partitions_revoked": EventType(required={**_MEMBER, "generation_id": _GENERATION}),
    "group_settings": EventType(required=_GROUP, may_have={"assignor": name}),
    "group_deleted": EventType(required=_GROUP),
    "time_advanced": EventType(required={}),
    "worker_joined": EventType(required=_WORKER, may_have={"url": text}),
    "worker_left": EventType(required=_WORKER),
    "connector_configured": EventType(required={**_CONNECTOR, "tasks": _COUNT}),
    "connector_deleted": EventType(required=_CONNECTOR),
    "generation_observed": EventType(
        required={
            **_GROUP,
            "generation_id": _GENERATION,
            "protocol_type": text,
            "protocol": text,
            "state": name,
            "members": list_of(lambda _member: None, "members"),
        },
        may_have={"leader_id": text},
        nullable=frozenset({"protocol"}),
        check=_observed_members,
    ),
    # What the coordinator says of one of its groups at that moment; the log alone does not tell of a
    # classic group that is rebalancing.
    "group_state": EventType(
        required={**_GROUP, "state": one_of(*GROUP_STATES)},
        may_have={"protocol_type": text, "group_type": text},
    ),
    # What each partition of a topic weighs, from 0: bytes or records a second, or lag; in one unit for all
    # topics that a group reads. An empty list: what was told before holds no more.
    "partition_load": EventType(required={"topic": name, "loads": list_of(number(0, MAX_LOAD), "numbers")}),
}
"""Every type of event that a source may hold, by the value of its field `type`."""
