"""The primitives of Kafka's wire format, and readers put together from field tables.

A reader takes the whole record and a place in it and gives the value and the place
behind it. Readers are built once for each (fields, version) as closures: a record
of three members is read in some ten microseconds of plain Python.

Whatever the bytes hold, a reader either returns or raises `WireError`; it never
reads past the end, and it never allocates for a count that the bytes left could
not hold.

Source: Kafka's message protocol (the primitive types; KIP-482's flexible versions).
"""

from __future__ import annotations

import re
import struct
from binascii import b2a_base64
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

Reader = Callable[[bytes, int], tuple[Any, int]]

ABSENT = object()
"""Marks a field without a default, so that None can be one."""

_INT8 = struct.Struct(">b").unpack_from
_INT16 = struct.Struct(">h").unpack_from
_UINT16 = struct.Struct(">H").unpack_from
_INT32 = struct.Struct(">i").unpack_from
_INT64 = struct.Struct(">q").unpack_from

_ENCODED_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]")
_LONGEST_VARINT = 5
_NULL = "it is null, which this field does not allow"


class WireError(ValueError):
    """Bytes that do not hold what their record type says.

    `field` is the path of the field (`members[2].clientId`), `offset` the byte,
    counted from the start of the bytes given, where reading it began.
    """

    def __init__(self, problem: str, offset: int, field: str = "") -> None:
        """Say what is wrong at which byte; the field's path grows on the way up."""
        super().__init__(problem, offset, field)
        self.problem = problem
        self.offset = offset
        self.field = field

    def inside(self, name: str) -> WireError:
        """Put the name of the enclosing field before the path."""
        joint = "." if self.field and not self.field.startswith("[") else ""
        return WireError(self.problem, self.offset, name + joint + self.field)

    def __str__(self) -> str:
        return f"{self.field or 'record'} at byte {self.offset}: {self.problem}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field of a record as the field tables describe it.

    `kind` is a primitive's name or "struct"; `many` makes an array of it. The
    field exists in the versions `since` to `until`. A field with a `tag` stands
    in the tagged block, and is left out of the result when it has its `default`,
    as Kafka's own JSON leaves it out.
    """

    name: str
    kind: str = "struct"
    many: bool = False
    nullable: bool = False
    since: int = 0
    until: int = 32767
    tag: int | None = None
    default: Any = ABSENT
    fields: tuple[Field, ...] = ()


def read_int8(data: bytes, at: int) -> tuple[int, int]:
    """Read one signed byte."""
    return _INT8(data, at)[0], at + 1


def read_int16(data: bytes, at: int) -> tuple[int, int]:
    """Read two bytes, big-endian and signed."""
    return _INT16(data, at)[0], at + 2


def read_uint16(data: bytes, at: int) -> tuple[int, int]:
    """Read two bytes, big-endian and unsigned."""
    return _UINT16(data, at)[0], at + 2


def read_int32(data: bytes, at: int) -> tuple[int, int]:
    """Read four bytes, big-endian and signed."""
    return _INT32(data, at)[0], at + 4


def read_int64(data: bytes, at: int) -> tuple[int, int]:
    """Read eight bytes, big-endian and signed."""
    return _INT64(data, at)[0], at + 8


def read_uvarint(data: bytes, at: int) -> tuple[int, int]:
    """Read an unsigned varint of at most 31 bits, the range of every length and tag."""
    value = data[at]
    if value < 0x80:
        return value, at + 1
    value &= 0x7F
    for i in range(1, _LONGEST_VARINT):
        byte = data[at + i]
        value |= (byte & 0x7F) << (7 * i)
        if byte < 0x80:
            if value > 0x7FFFFFFF:
                break
            return value, at + i + 1
    raise WireError("a varint is longer than 31 bits", at)


def read_uuid(data: bytes, at: int) -> tuple[str, int]:
    """Read 16 bytes as Kafka prints a topic id: URL-safe base64 without padding."""
    if at + 16 > len(data):
        raise IndexError
    text = b2a_base64(data[at : at + 16], newline=False)[:22]
    return text.translate(_URL_SAFE).decode("ascii"), at + 16


_URL_SAFE = bytes.maketrans(b"+/", b"-_")
ZERO_UUID = "A" * 22


def decode_text(raw: bytes) -> str:
    """Decode UTF-8 as Java does: what is broken becomes U+FFFD, an encoded surrogate one of them."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return _ENCODED_SURROGATE.sub("\ufffd".encode(), raw).decode("utf-8", "replace")


def _read_size16(data: bytes, at: int) -> tuple[int, int]:
    return _INT16(data, at)[0], at + 2


def _read_size32(data: bytes, at: int) -> tuple[int, int]:
    return _INT32(data, at)[0], at + 4


def _read_compact_size(data: bytes, at: int) -> tuple[int, int]:
    """Read a length in a flexible version: one more than it is, 0 for null."""
    size, at = read_uvarint(data, at)
    return size - 1, at


def _span_reader(read_size: Reader, turn: Callable[[bytes], Any], nullable: bool) -> Reader:
    """Make a reader of length-prefixed bytes, given on through `turn`."""

    def read_span(data: bytes, at: int) -> tuple[Any, int]:
        size, start = read_size(data, at)
        if size < 0:
            if nullable:
                return None, start
            raise WireError(_NULL, at)
        end = start + size
        if end > len(data):
            raise WireError(f"{size} bytes are announced and {len(data) - start} left", at)
        return turn(data[start:end]), end

    return read_span


def _array_reader(read_count: Reader, read_item: Reader, nullable: bool) -> Reader:
    """Make a reader of an array whose items take one byte or more each."""

    def read_array(data: bytes, at: int) -> tuple[list[Any] | None, int]:
        count, place = read_count(data, at)
        if count < 0:
            if nullable:
                return None, place
            raise WireError(_NULL, at)
        if count > len(data) - place:
            raise WireError(f"{count} items are announced and {len(data) - place} bytes left", at)
        items: list[Any] = []
        try:
            for _ in range(count):
                item, place = read_item(data, place)
                items.append(item)
        except WireError as error:
            raise error.inside(f"[{len(items)}]") from None
        except (struct.error, IndexError):
            raise WireError("the bytes end inside it", place, f"[{len(items)}]") from None
        return items, place

    return read_array


def _int_array_reader(read_count: Reader, code: str, width: int, nullable: bool) -> Reader:
    """Make a reader of an array of integers, unpacked in one go."""

    def read_ints(data: bytes, at: int) -> tuple[list[int] | None, int]:
        count, place = read_count(data, at)
        if count < 0:
            if nullable:
                return None, place
            raise WireError(_NULL, at)
        end = place + count * width
        if end > len(data):
            raise WireError(f"{count} items are announced and {len(data) - place} bytes left", at)
        return list(struct.unpack_from(f">{count}{code}", data, place)), end

    return read_ints


_FIXED: dict[str, Reader] = {
    "int8": read_int8,
    "int16": read_int16,
    "uint16": read_uint16,
    "int32": read_int32,
    "int64": read_int64,
    "uuid": read_uuid,
}
_INT_CODES = {"int16": ("h", 2), "int32": ("i", 4)}


def _as_base64(raw: bytes) -> str:
    return b2a_base64(raw, newline=False).decode("ascii")


def field_reader(field: Field, version: int, flexible: bool, *, raw_bytes: bool = False) -> Reader:
    """Make the reader of one field.

    Args:
        field: the field; its version range is not looked at.
        version: the version of the enclosing record, for nested structs.
        flexible: whether that version is flexible (KIP-482).
        raw_bytes: give `bytes` fields as bytes instead of as base64 text.
    """
    count = _read_compact_size if flexible else _read_size32
    if field.many and field.kind in _INT_CODES:
        code, width = _INT_CODES[field.kind]
        return _int_array_reader(count, code, width, field.nullable)
    nullable = field.nullable and not field.many
    read: Reader
    if field.kind == "string":
        read = _span_reader(_read_compact_size if flexible else _read_size16, decode_text, nullable)
    elif field.kind == "bytes":
        read = _span_reader(count, bytes if raw_bytes else _as_base64, nullable)
    elif field.kind == "struct":
        read = struct_reader(field.fields, version, flexible, raw_bytes=raw_bytes)
        if nullable:
            read = _nullable_struct_reader(read, tagged=field.tag is not None)
    else:
        read = _FIXED[field.kind]
    return _array_reader(count, read, field.nullable) if field.many else read


def _nullable_struct_reader(read: Reader, *, tagged: bool) -> Reader:
    """Make a reader of a struct behind a marker: a varint in the tagged block, else one signed byte."""

    def read_nullable(data: bytes, at: int) -> tuple[Any, int]:
        marker, place = read_uvarint(data, at) if tagged else read_int8(data, at)
        is_null = marker == 0 if tagged else marker < 0
        return (None, place) if is_null else read(data, place)

    return read_nullable


def struct_reader(
    fields: Iterable[Field], version: int, flexible: bool, *, raw_bytes: bool = False
) -> Reader:
    """Make the reader of a struct: field name -> value, in the order of the table.

    Returns:
        A reader that raises nothing but WireError, with the field's path and byte.
    """
    present = [f for f in fields if f.since <= version <= f.until]
    plain = tuple(
        (f.name, field_reader(f, version, flexible, raw_bytes=raw_bytes)) for f in present if f.tag is None
    )
    tagged = {
        f.tag: (f, field_reader(f, version, flexible, raw_bytes=raw_bytes))
        for f in present
        if f.tag is not None
    }

    def read_struct(data: bytes, at: int) -> tuple[dict[str, Any], int]:
        values: dict[str, Any] = {}
        name = ""
        try:
            for name, read in plain:
                values[name], at = read(data, at)
            if flexible:
                name = "tagged fields"
                at = _read_tagged(data, at, tagged, values)
        except WireError as error:
            raise error.inside(name) from None
        except (struct.error, IndexError):
            raise WireError("the bytes end inside it", at, name) from None
        return values, at

    return read_struct


def _read_tagged(
    data: bytes, at: int, tagged: dict[int, tuple[Field, Reader]], values: dict[str, Any]
) -> int:
    """Read a tagged block into `values`; tags unknown here are skipped, as KIP-482 asks."""
    count, at = read_uvarint(data, at)
    found: dict[int, Any] = {}
    for _ in range(count):
        start = at
        tag, at = read_uvarint(data, at)
        size, at = read_uvarint(data, at)
        end = at + size
        if end > len(data):
            raise WireError(f"{size} bytes are announced and {len(data) - at} left", start)
        if tag in tagged:
            field, read = tagged[tag]
            try:
                found[tag], at = read(data, at)
            except WireError as error:
                raise error.inside(field.name) from None
            except (struct.error, IndexError):
                raise WireError("the bytes end inside it", at, field.name) from None
            if at != end:
                raise WireError(f"{size} bytes are announced and {at - end + size} used", start, field.name)
        at = end
    for tag, (field, _read) in tagged.items():
        if tag in found and found[tag] != field.default:
            values[field.name] = found[tag]
    return at
