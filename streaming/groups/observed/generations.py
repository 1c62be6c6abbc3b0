"""One whole generation of a classic or Connect group, from a record or from an event.

A record of key type 2 and a `generation_observed` event tell the same story; both
become a `Generation`, so that the group's history is kept in one place.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from assignors.model import Subscription, TopicPartition
from streaming.events.client_protocols import (
    ConnectAssignment,
    ConnectMetadata,
    decode_connect_assignment,
    decode_connect_metadata,
    decode_consumer_assignment,
    decode_subscription,
)
from streaming.events.offsets_wire import WireError
from streaming.groups.observed.connect_evidence import JoinedWorker
from streaming.groups.observed.expected import JoinedMember
from streaming.model import MemberInfo, Owners

_LONGEST_KEPT = 1_024
"""Characters; with the count below, what is kept of members stays below a few megabytes."""

_KEPT = 2_048

_UNSETTLED_STATES = frozenset({"PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """What one group was in one generation.

    `joined` holds the members of a consumer group with all that is needed to judge
    the leader; it is empty in a Connect group, whose `workers` hold it; those are
    empty where the source does not carry what workers reported (`generation_observed`).
    `owners` are what runs where: in a Connect group worker -> connector -> tasks, -1
    being the connector itself. `began_ms` is when the coordinator asked for the
    assignment, None where that is not recorded. `is_settled` is False while something
    still waits to be given out. `note` says what could not be read.
    """

    protocol_type: str
    generation_id: int
    protocol: str | None
    leader_id: str | None
    group_state: str
    members: tuple[MemberInfo, ...]
    joined: tuple[JoinedMember, ...]
    owners: Owners
    workers: tuple[JoinedWorker, ...] = ()
    began_ms: int | None = None
    is_settled: bool = True
    note: str | None = None

    @property
    def is_creation(self) -> bool:
        """Say whether this is the record of a group just made: nothing came before it."""
        return self.generation_id == 0 and not self.members

    def subscribed(self) -> dict[str, tuple[str, ...]]:
        """Give member_id -> the topics it may own; Connect has none."""
        return {} if self.protocol_type == "connect" else {m.member_id: m.topics for m in self.members}


def generation_of_record(value: Mapping[str, Any]) -> Generation:
    """Read the value of a record of key type 2 (GroupMetadataValue), bytes as base64 text.

    Bytes of a member that cannot be read cost what they held, never the member.

    Source: GroupMetadataValue.json; ConsumerProtocol, ConnectProtocol.
    """
    protocol_type = value["protocolType"]
    entries = value["members"]
    joined: tuple[JoinedMember, ...] = ()
    workers: list[JoinedWorker] = []
    is_settled, unread = True, []
    if protocol_type == "connect":
        infos = tuple(map(_info, entries))
        owners: Owners = {}
        for entry in entries:
            try:
                metadata = decode_connect_metadata(_bytes(entry["subscription"]))
                given = decode_connect_assignment(_bytes(entry["assignment"]))
            except WireError:
                unread.append(entry["memberId"])
                owners[entry["memberId"]] = {}
                continue
            workers.append(JoinedWorker(member_id=entry["memberId"], said=metadata, given=given))
            owners[entry["memberId"]] = running_tasks(metadata, given)
            is_settled &= given is None or not (given.revoked or given.delay_ms)
    elif protocol_type in ("consumer", ""):
        joined = tuple(map(_joined_consumer, entries))
        unread = [member.member_id for member in joined if member.subscription is None]
        infos = tuple(member.info for member in joined)
        owners = {m.member_id: {t: list(ps) for t, ps in m.assigned.items()} for m in joined}
    else:
        infos = tuple(map(_info, entries))
        owners = {entry["memberId"]: {} for entry in entries}
        unread = [entry["memberId"] for entry in entries]
    return Generation(
        protocol_type=protocol_type or "consumer",
        generation_id=value["generation"],
        protocol=value["protocol"],
        leader_id=value["leader"],
        group_state="Stable" if entries else "Empty",
        members=infos,
        joined=joined,
        owners=owners,
        workers=tuple(workers),
        began_ms=value.get("currentStateTimestamp"),
        is_settled=is_settled,
        note=f"what {', '.join(unread)} sent could not be read as {protocol_type!r}" if unread else None,
    )


def generation_of_event(body: Mapping[str, Any]) -> Generation:
    """Read a `generation_observed` event, as events.py has accepted it."""
    is_connect = body["protocol_type"] == "connect"
    infos, joined = [], []
    owners: Owners = {}
    for entry in body["members"]:
        info = MemberInfo(
            member_id=entry["member_id"],
            group_instance_id=entry.get("group_instance_id"),
            client_id=entry.get("client_id") or "",
            client_host=entry.get("client_host") or "",
            rack_id=entry.get("rack_id"),
            topics=() if is_connect else tuple(entry.get("topics") or ()),
        )
        infos.append(info)
        owners[info.member_id] = {topic: list(ps) for topic, ps in entry["assigned"].items()}
        if is_connect:
            continue
        user_data = entry.get("user_data")
        generation_id = entry.get("member_generation_id")
        subscription = Subscription(
            topics=info.topics,
            owned_partitions=_pairs((entry.get("owned_partitions") or {}).items()),
            generation_id=-1 if generation_id is None else generation_id,
            group_instance_id=info.group_instance_id,
            rack_id=info.rack_id,
            user_data=None if user_data is None else _bytes(user_data),
        )
        joined.append(JoinedMember(info=info, subscription=subscription, assigned=owners[info.member_id]))
    return Generation(
        protocol_type=body["protocol_type"],
        generation_id=body["generation_id"],
        protocol=body["protocol"],
        leader_id=body.get("leader_id"),
        group_state=body["state"],
        members=tuple(infos),
        joined=tuple(joined),
        owners=owners,
        is_settled=body["state"] not in _UNSETTLED_STATES,
    )


def running_tasks(metadata: ConnectMetadata, given: ConnectAssignment | None) -> dict[str, list[int]]:
    """Give what a worker runs after this generation: connector -> tasks, -1 the connector itself.

    Under the incremental protocols an assignment only says what is new and what
    is taken; the rest the worker keeps, as it said when it joined.

    Source: IncrementalCooperativeConnectProtocol; WorkerCoordinator.
    """
    running: dict[str, list[int]] = {}
    if given is None or given.version > 0:
        running = _lists(metadata.allocation.assigned if metadata.allocation else ())
    if given is None:
        return running
    for connector, tasks in given.revoked:
        left = [task for task in running.get(connector, ()) if task not in tasks]
        running[connector] = left
    for connector, tasks in given.assigned:
        held = running.setdefault(connector, [])
        held.extend(task for task in tasks if task not in held)
    return {connector: tasks for connector, tasks in running.items() if tasks}


def _joined_consumer(entry: Mapping[str, Any]) -> JoinedMember:
    """Read a member's entry. Who stays has the same one in many generations: short ones are kept."""
    sent, given = entry["subscription"], entry["assignment"]
    read = _read_consumer if len(sent) + len(given) > _LONGEST_KEPT else _kept_consumer
    return read(
        entry["memberId"], entry.get("groupInstanceId"), entry["clientId"], entry["clientHost"], sent, given
    )


def _read_consumer(
    member_id: str,
    group_instance_id: str | None,
    client_id: str,
    client_host: str,
    subscription: str,
    assignment: str,
) -> JoinedMember:
    try:
        sent = decode_subscription(_bytes(subscription))
        given = decode_consumer_assignment(_bytes(assignment))
    except WireError:
        info = MemberInfo(
            member_id=member_id,
            group_instance_id=group_instance_id,
            client_id=client_id,
            client_host=client_host,
        )
        return JoinedMember(info=info, subscription=None, assigned={})
    return JoinedMember(
        info=MemberInfo(
            member_id=member_id,
            group_instance_id=group_instance_id,
            client_id=client_id,
            client_host=client_host,
            rack_id=sent.rack_id,
            topics=sent.topics,
        ),
        subscription=Subscription(
            topics=sent.topics,
            owned_partitions=_pairs(sent.owned_partitions),
            generation_id=sent.generation_id,
            group_instance_id=group_instance_id,
            rack_id=sent.rack_id,
            user_data=sent.user_data,
        ),
        assigned=_lists(given.partitions if given else ()),
        subscription_version=sent.version,
        assignment_version=given.version if given else None,
        assignment_user_data=given.user_data if given else None,
    )


_kept_consumer = lru_cache(_KEPT)(_read_consumer)


def _info(entry: Mapping[str, Any]) -> MemberInfo:
    return MemberInfo(
        member_id=entry["memberId"],
        group_instance_id=entry.get("groupInstanceId"),
        client_id=entry["clientId"],
        client_host=entry["clientHost"],
    )


def _lists(entries: Iterable[tuple[str, Iterable[int]]]) -> dict[str, list[int]]:
    """Merge (topic, partitions) entries, since a topic may stand there more than once."""
    merged: dict[str, list[int]] = {}
    for topic, partitions in entries:
        merged.setdefault(topic, []).extend(partitions)
    return merged


def _pairs(entries: Iterable[tuple[str, Iterable[int]]]) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(topic, number) for topic, numbers in entries for number in numbers)


def _bytes(text: str) -> bytes:
    return base64.b64decode(text)
