"""Which events of a group are applied already: by place in their source, and by id."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streaming.model import Input, Position

_MOST_STREAMS = 32
"""Of how many files the last applied line is remembered; a Kafka partition is one stream for good."""


class AppliedEvents:
    """The last place applied in each ordered stream, and the event ids of the dedupe window.

    Both are bounded: streams by number, least recently met first out, ids by the
    group's event time. Records of `__consumer_offsets` are known by place alone,
    for that is what their ids are made of.
    """

    def __init__(self, dedupe_window_ms: int, state: Mapping[str, Any] | None = None) -> None:
        """Start empty, or where `to_json` left off."""
        self._dedupe_window_ms = dedupe_window_ms
        self._last_by_stream: list[list[Any]] = list(state["streams"]) if state else []
        self._time_by_id: dict[str, int] = dict(state["ids"]) if state else {}

    def to_json(self) -> dict[str, Any]:
        """Give everything in JSON's own types."""
        return {"streams": self._last_by_stream, "ids": self._time_by_id}

    def why_duplicate(self, event: Input) -> str | None:
        """Say why the event must not be applied again, None when it is new."""
        stream, offset = _stream_of(event.position)
        for *known, last in self._last_by_stream:
            if known == stream and offset <= last:
                return f"offset {offset} is not after {last}, which is applied"
        if event.event_id in self._time_by_id:
            return f"event_id {event.event_id!r} is applied"
        return None

    def remember(self, event: Input) -> None:
        """Count the event as applied."""
        stream, offset = _stream_of(event.position)
        others = [entry for entry in self._last_by_stream if entry[:-1] != stream]
        self._last_by_stream = [*others, [*stream, offset]][-_MOST_STREAMS:]
        if event.type == "offsets_record":
            return
        oldest_ms = event.event_time_ms - self._dedupe_window_ms
        while self._time_by_id and next(iter(self._time_by_id.values())) < oldest_ms:
            del self._time_by_id[next(iter(self._time_by_id))]
        self._time_by_id[event.event_id] = event.event_time_ms


def _stream_of(position: Position) -> tuple[list[Any], int]:
    """Split a position into its ordered stream and the place in it (see Position.follows_stream_of)."""
    path = position.path if position.partition < 0 else ""
    return [position.source, path, position.partition], position.offset
