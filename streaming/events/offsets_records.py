"""The bytes of `__consumer_offsets` as records, field by field.

`decode_record` never raises: what cannot be read is a record with a `problem`
that names field and byte, so that one bad record stops neither a stream nor a
file. A key type or value version that is newer than this module is no
damage: it has codes of its own, and whoever counts it keeps its bytes.

Source: GroupCoordinatorRecordSerde and the JSON converters of kafka-group-coordinator
4.3.1. Unlike Kafka's reader, bytes behind the last field and a known tagged field of
another size than announced are problems here: what later versions add comes as
tagged fields of their own, so both mean damage.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

import orjson

from streaming.events.captured_records import read_captured
from streaming.events.deep_values import deep_value
from streaming.events.fields import EventError
from streaming.events.offsets_fields import KEYS, OFFSET_COMMIT_TYPES, VALUES
from streaming.events.offsets_wire import Reader, WireError, read_int16, struct_reader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

ProblemCode = Literal["bad_key", "bad_value", "unknown_key_type", "unknown_value_version"]

_NO_TYPE = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeProblem:
    """Why a record could not be read whole.

    `field` is the path of the field (`members[0].clientId`) and `offset` the byte
    of the key (bad_key) or value (bad_value) where its reading began.
    """

    code: ProblemCode
    message: str
    field: str = ""
    offset: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedRecord:
    """One record; field names are Kafka's own, bytes are base64 text.

    `value` is None for a tombstone (`value_version` is None too) and where a
    `problem` says that it could not be read. `key` is None only with a problem.
    """

    key_type: int
    key: dict[str, Any] | None
    value_version: int | None = None
    value: dict[str, Any] | None = None
    problem: DecodeProblem | None = None

    @property
    def group_id(self) -> str | None:
        """The group that the record belongs to, None when its key could not be read."""
        if self.key is None:
            return None
        group_id: str | None = self.key.get("group", self.key.get("groupId"))
        return group_id

    @property
    def is_offset_commit(self) -> bool:
        """Whether it is a committed offset, which says nothing about assignments."""
        return self.key_type in OFFSET_COMMIT_TYPES

    @property
    def is_unknown(self) -> bool:
        """Whether it is of a type or version that is not known here, rather than damaged."""
        return self.problem is not None and self.problem.code.startswith("unknown")


@cache
def _key_reader(key_type: int) -> Reader | None:
    fields = KEYS.get(key_type)
    return None if fields is None else struct_reader(fields, 0, flexible=False)


@cache
def _value_reader(key_type: int, version: int) -> Reader | None:
    layout = VALUES.get(key_type)
    if layout is None or not 0 <= version <= layout.newest:
        return None
    return struct_reader(layout.fields, version, flexible=version >= layout.flexible_since)


def _read_all(read: Reader, data: bytes) -> dict[str, Any]:
    """Read a struct that must reach from behind the int16 to the last byte."""
    values, end = read(data, 2)
    if end != len(data):
        raise WireError(f"{len(data) - end} bytes are left behind the last field", end)
    struct: dict[str, Any] = values
    return struct


def decode_record(key: bytes, value: bytes | None) -> DecodedRecord:
    """Decode one record of any type and version; never raises.

    Args:
        key: the record's key.
        value: its value, None for a tombstone.

    >>> record = decode_record(bytes.fromhex("0003 0002 6731"), bytes.fromhex("0000 00000007 00"))
    >>> record.key, record.value
    ({'groupId': 'g1'}, {'epoch': 7})
    """
    if len(key) < 2:
        return _with_problem(_NO_TYPE, None, None, "bad_key", WireError("the bytes end inside it", 0, "type"))
    key_type, _ = read_int16(key, 0)
    read_key = _key_reader(key_type)
    if read_key is None:
        known = f"it must be from 0 to {max(KEYS)}"
        problem = DecodeProblem(code="unknown_key_type", message=f"key type is {key_type}; {known}")
        version = read_int16(value, 0)[0] if value is not None and len(value) >= 2 else None
        return DecodedRecord(key_type=key_type, key=None, value_version=version, problem=problem)
    try:
        key_fields = _read_all(read_key, key)
    except WireError as error:
        return _with_problem(key_type, None, None, "bad_key", error)
    if value is None:
        return DecodedRecord(key_type=key_type, key=key_fields)
    if len(value) < 2:
        short = WireError("the bytes end inside it", 0, "version")
        return _with_problem(key_type, key_fields, None, "bad_value", short)
    version, _ = read_int16(value, 0)
    read_value = _value_reader(key_type, version)
    if read_value is None:
        return _of_unknown_version(key_type, key_fields, version)
    try:
        return DecodedRecord(
            key_type=key_type, key=key_fields, value_version=version, value=_read_all(read_value, value)
        )
    except WireError as error:
        return _with_problem(key_type, key_fields, version, "bad_value", error)


def _of_unknown_version(key_type: int, key: dict[str, Any], version: int) -> DecodedRecord:
    layout = VALUES.get(key_type)
    known = "no version of it is known" if layout is None else f"it must be from 0 to {layout.newest}"
    problem = DecodeProblem(
        code="unknown_value_version",
        message=f"key type {key_type}: value version is {version}; {known}",
    )
    return DecodedRecord(key_type=key_type, key=key, value_version=version, problem=problem)


def _with_problem(
    key_type: int,
    key: dict[str, Any] | None,
    version: int | None,
    code: ProblemCode,
    error: WireError,
) -> DecodedRecord:
    where = "key" if code == "bad_key" else f"value version {version}" if version is not None else "value"
    kind = "key of unknown type" if key_type == _NO_TYPE and key is None else f"key type {key_type}, {where}"
    return DecodedRecord(
        key_type=key_type,
        key=key,
        value_version=version,
        problem=DecodeProblem(code=code, message=f"{kind}: {error}", field=error.field, offset=error.offset),
    )


def run_decode_lines(lines: Iterable[bytes], write: Callable[[str], None], deep: bool) -> None:
    """Answer each captured record with one line of JSON, in order: `counterpoise decode --jsonl`.

    A record gives partition, offset, key_type, key, value_version (absent for a
    tombstone) and value. A line that cannot be handled gives `error` and `message`
    (and its `id`, if that is a string or a number): bad_json, bad_line. So does a record that
    cannot be read (bad_key, bad_value) or is newer than this program
    (unknown_key_type, unknown_value_version), after partition, offset, key_type and
    key as far as they are known, and with its bytes as key_hex and value_hex.

    Args:
        lines: JSON objects as bytes; what `read_captured` takes.
        write: called once for each line, with its line end.
        deep: also decode what clients put into members (`deep_value`).
    """
    for line in lines:
        write(_answer(line, deep) + "\n")


def _answer(line: bytes, deep: bool) -> str:
    try:
        parsed = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        return orjson.dumps({"error": "bad_json", "message": str(error)}).decode()
    name = parsed.get("id") if type(parsed) is dict else None
    named: dict[str, Any] = {"id": name} if isinstance(name, str | int | float) else {}
    try:
        captured = read_captured(parsed, with_timestamp=False)
    except EventError as error:
        return orjson.dumps({**named, "error": "bad_line", "message": str(error)}).decode()
    record = decode_record(captured.key, captured.value)
    answer: dict[str, Any] = {} if record.problem is None else named
    answer |= {"partition": captured.partition, "offset": captured.offset, "key_type": record.key_type}
    if record.key is not None:
        answer["key"] = record.key
    if record.value_version is not None:
        answer["value_version"] = record.value_version
    if record.problem is None:
        answer["value"] = deep_value(record.key_type, record.value) if deep else record.value
    else:
        answer |= {"error": record.problem.code, "message": record.problem.message}
        answer |= {"key_hex": parsed["key_hex"], "value_hex": parsed["value_hex"]}
    return orjson.dumps(answer).decode()
