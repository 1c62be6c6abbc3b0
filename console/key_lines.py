"""Keys as they are written, on the command line or in a file's lines -> bytes, as Arrow columns.

A file is read in blocks: one of any size takes the memory of a few blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import numpy as np
import orjson
import pyarrow as pa

from console.errors import UsageError

BLOCK_BYTES = 4 << 20

LONGEST_LINE_BYTES = 16 << 20
"""A line without end would otherwise be held whole; Kafka's own limit for a record is far lower."""

NAMED_FIELDS = 10
"""How many of a record's fields an error lists."""

_NEWLINE, _RETURN = 10, 13


def key_bytes(text: str, where: str, *, is_hex: bool) -> bytes:
    """Give the bytes of a written key: text as UTF-8, or hex.

    Raises:
        UsageError: hex was announced and is not there.

    >>> key_bytes("6b6579", "key", is_hex=True)
    b'key'
    """
    if not is_hex:
        # An argument's bytes that are no UTF-8 reach us as surrogates; this is the way back.
        return text.encode("utf-8", "surrogateescape")
    try:
        return bytes.fromhex(text)
    except ValueError as error:
        message = f"{where}: {printable(text)!r} is no hex; write two digits for each byte, without 0x"
        raise UsageError(message) from error


def printable(text: str) -> str:
    """Write bytes that were no UTF-8 as escapes, which any terminal takes."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


@contextmanager
def open_keys(file: Path, stdin: BinaryIO) -> Iterator[BinaryIO]:
    """Open a file of keys, `-` for stdin.

    Raises:
        UsageError: it cannot be opened or read.
    """
    try:
        if str(file) == "-":
            yield stdin
            return
        with file.open("rb") as stream:
            yield stream
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror or error}") from error


def read_columns(
    stream: BinaryIO, where: str, *, field: str | None = None, is_hex: bool = False
) -> Iterator[pa.Array]:
    r"""Read keys from lines, a block at a time.

    A line ends with \n or \r\n, which is not part of the key; an empty line is
    an empty key.

    Args:
        stream: the lines' bytes; without `field` and `is_hex` they are the keys.
        where: the name that errors give.
        field: the lines are JSON objects and the key is this field's text; a
            null one has no key and stays null.
        is_hex: keys are written in hex.

    Raises:
        UsageError: naming the line that cannot be read.
    """
    for first_line, block in _whole_lines(stream, where):
        if field is None and not is_hex:
            yield _plain_column(block)
            continue
        lines = block.removesuffix(b"\n").split(b"\n")
        keys = [
            _line_key(line.removesuffix(b"\r"), f"{where}:{number}", field, is_hex)
            for number, line in enumerate(lines, first_line)
        ]
        yield pa.array(keys, pa.binary())


def _whole_lines(stream: BinaryIO, where: str) -> Iterator[tuple[int, bytes]]:
    """Give blocks that end with a newline, each with its first line's number."""
    carried: list[bytes] = []
    line, carried_bytes = 1, 0
    while data := stream.read(BLOCK_BYTES):
        end = data.rfind(b"\n") + 1
        if end:
            block = b"".join([*carried, data[:end]])
            yield line, block
            line += block.count(b"\n")
            carried, carried_bytes = [], 0
        carried.append(data[end:])
        carried_bytes += len(data) - end
        if carried_bytes > LONGEST_LINE_BYTES:
            raise UsageError(
                f"{where}:{line}: the line has over {LONGEST_LINE_BYTES} bytes; no key is that long"
            )
    if carried_bytes:
        yield line, b"".join([*carried, b"\n"])


def _plain_column(block: bytes) -> pa.Array:
    """Make a column of a block's lines without touching them one by one."""
    data = np.frombuffer(block, np.uint8)
    ends = np.flatnonzero(data == _NEWLINE)
    has_return = (ends > 0) & (data[ends - 1] == _RETURN)
    is_key = np.ones(len(data), bool)
    is_key[ends] = False
    is_key[ends[has_return] - 1] = False
    lengths = np.diff(ends, prepend=-1) - 1 - has_return
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data[is_key])]
    return pa.Array.from_buffers(pa.binary(), len(ends), buffers)


def _line_key(line: bytes, where: str, field: str | None, is_hex: bool) -> bytes | None:
    if field is None:
        return key_bytes(line.decode("utf-8", "backslashreplace"), where, is_hex=is_hex)
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise UsageError(f"{where}: not JSON: {error}") from error
    if not isinstance(record, dict):
        message = f"{where}: the line is a {type(record).__name__}; it must be an object with {field!r}"
        raise UsageError(message)
    if field not in record:
        listed = ", ".join(map(repr, sorted(record)[:NAMED_FIELDS])) or "none"
        raise UsageError(f"{where}: there is no field {field!r}; there are: {listed}")
    key = record[field]
    if key is None:
        return None
    if not isinstance(key, str):
        raise UsageError(
            f"{where}: {field} is {key!r}; it must be a text, or null for a record without a key"
        )
    return key_bytes(key, where, is_hex=is_hex)
