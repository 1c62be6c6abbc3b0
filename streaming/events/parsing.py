"""Records of the sources -> events, or the reason why one is none.

`parse_record` is a pure function of the record and its place, so a rejected record
is rejected again wherever and whenever it is read. It never raises over data.

A record must be one JSON object in UTF-8. Beyond orjson's own strictness (no NaN,
no Infinity, no lone surrogate) an object that has a key twice is refused, because
readers differ on which one counts, and so is nesting that orjson could not write
again (more than 254 levels). An integer beyond 64 bits is read as the nearest float,
which no field allows. A blank line is a record like any other and is rejected:
sources do not deliver the nothing behind a file's last line end.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

import mmh3
import orjson

from streaming.events.captured_records import CapturedRecord, read_captured
from streaming.events.fields import EventError, name, refuse, shown, time_ms
from streaming.events.limits import DEFAULT_LIMITS, Limits
from streaming.events.offsets_records import DecodedRecord, decode_record
from streaming.events.types import EVENT_TYPES
from streaming.model import Input, Position

OFFSETS_TOPIC = "__consumer_offsets"

OFFSETS_RECORD = "offsets_record"
OFFSET_COMMIT = "offset_commit"
UNKNOWN_RECORD = "unknown_record"
"""The types of Input that records of `__consumer_offsets` become: one that tells about a
group, a committed offset, and one of a type or version newer than this program."""

_BOM = b"\xef\xbb\xbf"
# The closing quotation mark is optional, so that a string without one is passed over in one step: where it
# had to be there, each escaped mark in it would be tried as a beginning, to the end of the record each time.
_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?'
_NOT_JSON_WORD = re.compile(_STRING + rb"|(-?(?:NaN|Infinity)\b)", re.DOTALL)
_KEY_OR_BRACE = re.compile(rb"(" + _STRING + rb")\s*(:?)|[{}]", re.DOTALL)
_MAX_LEVELS = 254


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """A record that is no event: where it stood, what it held and why it was refused.

    `raw` is the whole record; whoever stores it cuts it. `raw_bytes` is its length.
    """

    position: Position
    reason: str
    raw: bytes
    raw_bytes: int


def parse_record(
    raw: bytes | None,
    *,
    position: Position,
    format: Literal["events", "offsets"],
    default_cluster: str,
    max_record_bytes: int,
    kafka_key: bytes | None = None,
    kafka_timestamp_ms: int | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> Input | Rejection:
    """Turn one record into an event, or into the reason why it is none.

    Args:
        raw: the record: a line without its line end, a row's value, or the value of
            a Kafka record (None for a tombstone).
        position: where it stood; its `partition` is 0 or more for a Kafka record only.
        format: "events" for JSON events; "offsets" for records of
            `__consumer_offsets`, captured as JSON lines or straight from Kafka.
        default_cluster: the cluster of events that name none, and of the source.
        max_record_bytes: a longer record is rejected unread.
        kafka_key: the key of a Kafka record.
        kafka_timestamp_ms: its timestamp, the event time under "offsets".
        limits: how much may be in one event.

    Returns:
        An Input. Under "events" its `event_id` is the event's own; else for a Kafka
        record `cluster/topic/partition/offset` of the record, the cluster being
        `default_cluster`; else the 32 hexadecimal digits of the 16 bytes of
        MurmurHash3 x64 128 (seed 0, mmh3's digest order) over the whole object as
        orjson writes it with sorted keys: UTF-8, no spaces, unknown fields included.
        Under "offsets" `type` is "offsets_record", "offset_commit" or
        "unknown_record", `body` holds key_type, key, value_version and value (a
        commit's only group, topic and topicId), and the position and event_id are
        the record's own in its topic, however it got here.
    """
    try:
        if format == "events":
            if raw is None:
                raise EventError("is null", "it must be one JSON object")
            event = _event(raw, position, default_cluster, max_record_bytes)
        elif position.partition < 0:
            event = _captured_record(raw or b"", position, default_cluster, max_record_bytes)
        else:
            event = _kafka_offsets_record(
                raw, position, default_cluster, max_record_bytes, kafka_key, kafka_timestamp_ms
            )
        limits.check(event)
    except EventError as error:
        kept = raw or b""
        return Rejection(position=position, reason=str(error), raw=kept, raw_bytes=len(kept))
    return event


def _event(raw: bytes, position: Position, default_cluster: str, max_record_bytes: int) -> Input:
    event, canonical = _load_object(raw, max_record_bytes)
    type_name = event.get("type")
    if type(type_name) is not str or type_name not in EVENT_TYPES:
        known = ", ".join(map(repr, EVENT_TYPES))
        found = f"is {shown(type_name)}" if "type" in event else "is missing"
        raise EventError(found, f"known types: {known}", "type")
    if "event_time" not in event:
        raise EventError("is missing", "every event needs it", "event_time")
    try:
        event_time_ms = time_ms(event["event_time"])
    except EventError as error:
        raise error.inside("event_time") from None
    cluster = _name_or_none(event, "cluster") or default_cluster
    event_id = _name_or_none(event, "event_id")
    if event_id is None and position.partition >= 0:
        event_id = f"{default_cluster}/{position.path}/{position.partition}/{position.offset}"
    if event_id is None:
        event_id = mmh3.mmh3_x64_128_digest(canonical).hex()
    body = EVENT_TYPES[type_name].body_of(event, f"type {type_name!r}")
    return Input(
        type=type_name,
        cluster=cluster,
        event_time_ms=event_time_ms,
        event_id=event_id,
        position=position,
        body=body,
        raw=raw,
        group_id=body.get("group_id"),
        topic=body.get("topic"),
    )


def _name_or_none(event: dict[str, Any], field: str) -> str | None:
    value = event.get(field)
    if value is not None:
        try:
            name(value)
        except EventError as error:
            raise error.inside(field) from None
    found: str | None = value
    return found


def _load_object(raw: bytes, max_record_bytes: int) -> tuple[dict[str, Any], bytes]:
    """Read one JSON object and write it again with sorted keys.

    Raises:
        EventError: it is too long, is no JSON object, or has a key twice.
    """
    if len(raw) > max_record_bytes:
        raise EventError(f"has {len(raw)} bytes", f"it must have at most {max_record_bytes}")
    try:
        event = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise _why_no_json(raw, str(error)) from None
    if type(event) is not dict:
        raise refuse(event, "one JSON object")
    try:
        canonical = orjson.dumps(event, option=orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError:
        raise _too_deep() from None
    # A key that was there twice is written once: it takes its quotation marks with it. Only the escape
    # \u0022 adds one, as the object is written again.
    if raw.count(b'"') != canonical.count(b'"') or b"\\u0022" in raw:
        _refuse_repeated_key(raw)
    return event, canonical


def _too_deep() -> EventError:
    return EventError("is nested too deeply", f"it must have at most {_MAX_LEVELS} levels")


def _why_no_json(raw: bytes, problem: str) -> EventError:
    """Say why a record is no JSON, by the most telling cause that it has."""
    allowed = "it must be one JSON object in UTF-8"
    if not raw.strip(b" \t\r\n"):
        return EventError("is blank", allowed)
    if raw.startswith(_BOM):
        return EventError("begins with a byte order mark", f"{allowed}, without one")
    if b"\0" in raw:
        return EventError(f"has a NUL byte at offset {raw.index(0)}", allowed)
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError as error:
        return EventError(f"is not UTF-8 at offset {error.start}", allowed)
    if "depth limit" in problem:
        return _too_deep()
    for match in _NOT_JSON_WORD.finditer(raw):
        if match[1]:
            return EventError(f"holds {match[1].decode()} at offset {match.start()}, no JSON number", allowed)
    return EventError(f"is no JSON ({problem})", allowed)


def _refuse_repeated_key(raw: bytes) -> None:
    """Raise when an object of this valid JSON has a key twice; keys are compared unescaped."""
    keys_by_level: list[set[str]] = []
    for token in _KEY_OR_BRACE.finditer(raw):
        if token[0] == b"{":
            keys_by_level.append(set())
        elif token[0] == b"}":
            keys_by_level.pop()
        elif token[2]:
            key = orjson.loads(token[1])
            if key in keys_by_level[-1]:
                raise EventError(f"has the key {shown(key)} twice in one object", "each must be there once")
            keys_by_level[-1].add(key)


def _captured_record(raw: bytes, position: Position, cluster: str, max_record_bytes: int) -> Input:
    line, _canonical = _load_object(raw, max_record_bytes)
    captured = read_captured(line)
    place = Position(position.source, OFFSETS_TOPIC, captured.partition, captured.offset)
    return _offsets_input(captured, raw, place, cluster)


def _kafka_offsets_record(
    raw: bytes | None,
    position: Position,
    cluster: str,
    max_record_bytes: int,
    key: bytes | None,
    timestamp_ms: int | None,
) -> Input:
    """Take a record from Kafka itself; it is kept as the line that a capture would have written."""
    if key is None:
        raise EventError("is null", f"every record of {OFFSETS_TOPIC} has one", "key")
    if timestamp_ms is None:
        raise EventError("is missing", "a Kafka record has one", "timestamp")
    length = len(key) + len(raw or b"")
    if length > max_record_bytes:
        raise EventError(f"has {length} bytes", f"it must have at most {max_record_bytes}")
    captured = CapturedRecord(
        partition=position.partition,
        offset=position.offset,
        timestamp_ms=timestamp_ms,
        key=key,
        value=raw,
    )
    return _offsets_input(captured, captured.line(), position, cluster)


def _offsets_input(captured: CapturedRecord, raw: bytes, position: Position, cluster: str) -> Input:
    try:
        event_time_ms = time_ms(captured.timestamp_ms)
    except EventError as error:
        raise error.inside("timestamp") from None
    record = decode_record(captured.key, captured.value)
    if record.problem is not None and not record.is_unknown:
        raise EventError(
            f"cannot be decoded ({record.problem.message})",
            "its bytes must hold what its type and version say",
        )
    return Input(
        type=_type_of(record),
        cluster=cluster,
        event_time_ms=event_time_ms,
        event_id=f"{cluster}/{position.path}/{position.partition}/{position.offset}",
        position=position,
        body=_body_of(record),
        raw=raw,
        group_id=record.group_id,
    )


def _type_of(record: DecodedRecord) -> str:
    if record.is_unknown:
        return UNKNOWN_RECORD
    return OFFSET_COMMIT if record.is_offset_commit else OFFSETS_RECORD


def _body_of(record: DecodedRecord) -> dict[str, Any]:
    if record.is_offset_commit and record.key is not None and record.problem is None:
        commit = {"group": record.key["group"], "topic": record.key["topic"]}
        topic_id = (record.value or {}).get("topicId")
        return commit if topic_id is None else {**commit, "topicId": topic_id}
    body = {
        "key_type": record.key_type,
        "key": record.key,
        "value_version": record.value_version,
        "value": record.value,
    }
    return body if record.problem is None else {**body, "problem": record.problem.message}
