"""Records of `__consumer_offsets` captured as JSON lines: one record a line, its bytes in hexadecimal."""

from __future__ import annotations

from binascii import Error as HexError
from binascii import hexlify, unhexlify
from dataclasses import dataclass
from typing import Any

from streaming.events.fields import MAX_INT32, MAX_INT64, EventError, Rule, integer, refuse

_DIGITS = "an even number of hexadecimal digits"

_partition: Rule = integer(0, MAX_INT32)
_offset: Rule = integer(0, MAX_INT64)
_timestamp: Rule = integer(-MAX_INT64, MAX_INT64)


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedRecord:
    """Where a record stood in its topic, when it was written (epoch milliseconds), and its bytes."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes
    value: bytes | None

    def line(self) -> bytes:
        """Write the record as the line that `read_captured` reads, without a line end."""
        # Written by hand, twice as fast as by a JSON writer: there is nothing in it that needs escaping.
        return b'{"partition":%d,"offset":%d,"timestamp":%d,"key_hex":"%b","value_hex":%b}' % (
            self.partition,
            self.offset,
            self.timestamp_ms,
            hexlify(self.key),
            b"null" if self.value is None else b'"%b"' % hexlify(self.value),
        )


def read_captured(line: Any, *, with_timestamp: bool = True) -> CapturedRecord:
    """Check the fields of one captured record.

    Args:
        line: the parsed line: partition, offset, timestamp, key_hex, and value_hex,
            which is null for a tombstone.
        with_timestamp: False where the time does not matter and may be missing; it is 0 then.

    Raises:
        EventError: a field is missing or not what it must be.
    """
    if type(line) is not dict:
        raise refuse(line, "one JSON object")
    partition = _checked(line, "partition", _partition)
    offset = _checked(line, "offset", _offset)
    timestamp_ms = _checked(line, "timestamp", _timestamp) if with_timestamp else 0
    key = _unhex(_present(line, "key_hex"), "key_hex", _DIGITS)
    value_hex = _present(line, "value_hex")
    value = None if value_hex is None else _unhex(value_hex, "value_hex", f"{_DIGITS}, or null")
    return CapturedRecord(partition=partition, offset=offset, timestamp_ms=timestamp_ms, key=key, value=value)


def _present(line: dict[str, Any], field: str) -> Any:
    if field not in line:
        raise EventError("is missing", "a captured record needs it", field)
    return line[field]


def _checked(line: dict[str, Any], field: str, rule: Rule) -> int:
    found = _present(line, field)
    try:
        rule(found)
    except EventError as error:
        raise error.inside(field) from None
    number: int = found
    return number


def _unhex(found: object, field: str, allowed: str) -> bytes:
    if type(found) is str:
        try:
            return unhexlify(found)
        except (HexError, ValueError):
            pass
    raise refuse(found, allowed, field)
