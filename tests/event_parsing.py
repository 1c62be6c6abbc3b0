"""Parsing one record with the defaults of the tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack

from streaming.events.parsing import Rejection, parse_record
from streaming.model import Input, Position

DATA = Path(__file__).parent / "data"
LINE = Position("orders-events", "2026/a.jsonl", -1, 7)
MAX_BYTES = 1_048_576


class Options(TypedDict, total=False):
    """What a test may say besides the record."""

    position: Position
    format: Literal["events", "offsets"]
    kafka_key: bytes
    kafka_timestamp_ms: int


def parse(record: dict[str, Any] | bytes | None, **options: Unpack[Options]) -> Input | Rejection:
    """Parse one record with the defaults of these tests."""
    raw = json.dumps(record).encode() if isinstance(record, dict) else record
    chosen: Options = {"position": LINE, "format": "events", **options}
    return parse_record(raw, default_cluster="main", max_record_bytes=MAX_BYTES, **chosen)


def accepted(record: dict[str, Any] | bytes | None, **options: Unpack[Options]) -> Input:
    """Parse a record that must be an event."""
    parsed = parse(record, **options)
    assert isinstance(parsed, Input), parsed
    return parsed


def reason(record: dict[str, Any] | bytes | None, **options: Unpack[Options]) -> str:
    """Parse a record that must be rejected and give the reason."""
    parsed = parse(record, **options)
    assert isinstance(parsed, Rejection), parsed
    assert parsed.raw_bytes == len(parsed.raw)
    return parsed.reason
