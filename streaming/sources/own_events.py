"""What the job itself tells the stream: what time it is, and what a cluster's metadata says.

A timer must fire when no event comes, and must fire at the same place when the batch
is replayed. So the clock never enters a computation: it is written as a `time_advanced`
row into a table that is one more source, logged, and gone through in source order
(streaming/tables/own_events.py). The same goes for what the admin API says of topics and groups:
a replay needs no broker.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from streaming.events.parsing import Rejection, parse_record
from streaming.model import Input, Position

IN_BATCH = "_metadata"
"""The source of events that the job put into a batch by itself; there is no such directory."""

_LONGEST = 64 * 1024 * 1024


def time_advanced(clusters: Sequence[str]) -> list[dict[str, Any]]:
    """Make the events that tell these clusters the present time."""
    now_ms = time.time_ns() // 1_000_000
    return [{"type": "time_advanced", "event_time": now_ms, "cluster": cluster} for cluster in clusters]


def own_inputs(events: Sequence[Mapping[str, Any]], batch_id: int) -> list[Input]:
    """Make inputs of events that come into a batch by no source.

    Raises:
        RuntimeError: one of them is no event, which is a fault of this program.
    """
    inputs = []
    for number, event in enumerate(events, start=1):
        parsed = parse_record(
            orjson.dumps(event),
            position=Position(IN_BATCH, f"batch-{batch_id:012d}", -1, number),
            format="events",
            default_cluster="default",
            max_record_bytes=_LONGEST,
        )
        if isinstance(parsed, Rejection):
            raise RuntimeError(f"the job made a bad event of its own: {parsed.reason}")
        inputs.append(parsed)
    return inputs
