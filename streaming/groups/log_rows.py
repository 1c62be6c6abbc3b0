"""Values of the stream as rows of the log: versions, members, owners, events (schemas.GENERATIONS)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streaming.model import EventOutcome, MemberInfo, Owners, Version

Row = dict[str, Any]

Since = Mapping[str, Mapping[str, Sequence[tuple[int, int]]]]
"""member_id -> topic -> for each of its partitions (generation_id, event_time_ms), since when it is owned."""

WENT_BACK = "event_time goes back"
"""Stands in the reason of an applied event that is older than one applied before it."""

WAITED = "it waited with its group"
"""Begins the reason of an event that an earlier batch has kept, and has counted as applied."""


def event_row(outcome: EventOutcome, went_back_ms: int | None = None, *, has_waited: bool = False) -> Row:
    """Make the row of one event, as nested in the log; columns of schemas._EVENT.

    Args:
        outcome: the event and what became of it.
        went_back_ms: by how much it is older than an event of its group applied before.
        has_waited: whether an earlier batch has kept it.
    """
    event, reason = outcome.event, outcome.reason
    if went_back_ms is not None and outcome.outcome == "applied":
        note = f"{WENT_BACK} {went_back_ms} ms"
        reason = f"{reason}; {note}" if reason else note
    if has_waited:
        reason = f"{WAITED}; {reason}" if reason else WAITED
    return {
        "event_id": event.event_id,
        "type": event.type,
        "cluster": event.cluster,
        "group_id": event.group_id,
        "topic": event.topic,
        "event_time": event.event_time_ms * 1000,
        "source": event.position.source,
        "path": event.position.path,
        "partition": event.position.partition,
        "offset": event.position.offset,
        "outcome": outcome.outcome,
        "reason": reason,
        "raw": event.raw,
        "raw_bytes": len(event.raw),
    }


def version_columns(version: Version, since: Since) -> Row:
    """Make the columns that a version itself decides.

    Args:
        version: the version, or a description of the group as it stands.
        since: for all that the version's members own.
    """
    subscribed = frozenset[str]().union(*version.subscribed.values())
    patterns = {m.topics_pattern for m in version.members if m.topics_pattern is not None}
    return {
        "kind": version.kind,
        "event_time": version.event_time_ms * 1000,
        "version": version.version,
        "generation_id": version.generation_id,
        "incarnation": version.incarnation,
        "group_kind": version.group_kind,
        "protocol_type": version.protocol_type,
        "protocol": version.protocol,
        "rebalance_protocol": version.rebalance_protocol,
        "leader_id": version.leader_id,
        "group_state": version.group_state,
        "phase": version.phase,
        "is_final": version.is_final,
        "reason": version.reason,
        "members": [_member_row(m) for m in version.members],
        "assignment": _owner_rows(version.assignment, since),
        "expected": _expected_rows(version.expected),
        "expected_status": version.expected_status,
        "expected_note": version.expected_note,
        "subscribed_topics": sorted(subscribed),
        "has_pattern": bool(patterns),
        # What the patterns of an observed group take in its broker says: it is in `subscribed_topics`.
        "topics_patterns": sorted(patterns) if version.group_kind == "computed" else [],
    }


def _member_row(member: MemberInfo) -> Row:
    return {
        "member_id": member.member_id,
        "group_instance_id": member.group_instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "rack_id": member.rack_id,
        "topics": list(member.topics),
        "topics_pattern": member.topics_pattern,
    }


def _owner_rows(owners: Owners, since: Since) -> list[Row]:
    rows = []
    for member_id, topics in owners.items():
        for topic, partitions in topics.items():
            starts = since[member_id][topic]
            rows.append(
                {
                    "member_id": member_id,
                    "topic": topic,
                    "partitions": partitions,
                    "since_generation_ids": [generation_id for generation_id, _ in starts],
                    "since_times": [ms * 1000 for _, ms in starts],
                }
            )
    return rows


def _expected_rows(owners: Owners | None) -> list[Row] | None:
    if owners is None:
        return None
    return [
        {"member_id": member_id, "topic": topic, "partitions": partitions}
        for member_id, topics in owners.items()
        for topic, partitions in topics.items()
    ]
