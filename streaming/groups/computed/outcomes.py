"""What became of an event of a computed group."""

from __future__ import annotations

from streaming.model import EventOutcome, Input


def applied(event: Input, reason: str | None = None) -> tuple[EventOutcome, ...]:
    """Say that the event was applied."""
    return (EventOutcome(event=event, outcome="applied", reason=reason),)


def duplicate(event: Input, reason: str) -> EventOutcome:
    """Say that the event was applied before."""
    return EventOutcome(event=event, outcome="duplicate", reason=reason)


def ignored(event: Input, reason: str) -> EventOutcome:
    """Say that the event was ignored, and why."""
    return EventOutcome(event=event, outcome="ignored", reason=reason)


def unknown_member(event: Input) -> EventOutcome:
    """Say that the event's member is not there."""
    return ignored(event, f"member {event.body['member_id']!r} is not in the group")
