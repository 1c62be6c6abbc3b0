"""`counterpoise keys`: which partition keys go to, how they spread, and what moves when the count changes.

Keys come as Arrow columns, from the command line or a block of a file at a time (key_lines), and
each column is hashed at once.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import mmh3
import numpy as np
import pyarrow as pa
from rich.markup import escape

from assignors.java_order import string_hash
from assignors.partitioners import murmur2_column
from assignors.plugins import as_number, find_plugins, import_plugin, tell
from console.errors import UsageError
from console.key_lines import key_bytes, printable
from console.placement import MOST_ROWS, check_partition_count, plain_table, print_left_out, print_titled

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from rich.console import Console

    Numbers = NDArray[np.int64]

ENTRY_POINT_GROUP = "counterpoise.partitioners"

_POSITIVE = 0x7FFFFFFF

ColumnPartitioner = Callable[[pa.Array, Sequence[int]], "list[Numbers]"]
"""Keys (Arrow binary without nulls) and partition counts in; for each count the keys' partitions out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySpread:
    """How keys lie over partitions.

    `counts` is keys by partition, once for each partition count that was asked
    for; `moved` counts keys whose partition differs between the first two, and
    is None where there is one count only. Keys that are null are `keyless` and
    counted nowhere else.
    """

    keys: int
    keyless: int
    counts: tuple[Numbers, ...]
    moved: int | None


def _hash_murmur2(keys: pa.Array) -> Numbers:
    return murmur2_column(keys).astype(np.int64) & _POSITIVE


def _hash_murmur3(keys: pa.Array) -> Numbers:
    return np.fromiter((mmh3.hash(key, 0, False) for key in keys.to_pylist()), np.int64, len(keys))


def _hash_crc32(keys: pa.Array) -> Numbers:
    return np.fromiter(map(zlib.crc32, keys.to_pylist()), np.int64, len(keys))


def _hash_fnv1a(keys: pa.Array) -> Numbers:
    hashed = _fold_bytes(keys, 0x811C9DC5, lambda h, byte: (h ^ byte) * np.uint32(0x01000193))
    return np.abs(hashed.view(np.int32).astype(np.int64))


def _hash_java(keys: pa.Array) -> Numbers:
    """Hash keys as Java's strings; for ASCII a string's units are the key's bytes."""
    _, data = _bytes_of(keys)
    if not len(data) or int(data.max()) < 0x80:
        hashed = _fold_bytes(keys, 0, lambda h, byte: h * np.uint32(31) + byte)
        return hashed.astype(np.int64) & _POSITIVE
    hashes = np.fromiter((string_hash(_as_text(key)) for key in keys.to_pylist()), np.int64, len(keys))
    return hashes & _POSITIVE


def _as_text(key: bytes) -> str:
    try:
        return key.decode()
    except UnicodeDecodeError as error:
        message = f"java-hash: key {key!r} is no UTF-8 ({error.reason}); it hashes text only"
        raise UsageError(message) from error


def _fold_bytes(keys: pa.Array, start: int, step: Callable[[Any, Any], Any]) -> NDArray[np.uint32]:
    """Fold each key's bytes into 32 bits, one byte of all keys at a time."""
    offsets, data = _bytes_of(keys)
    starts, lengths = offsets[:-1], np.diff(offsets)
    # Longest first: the keys that still have a byte are always a prefix.
    longest_first = np.argsort(-lengths, kind="stable")
    starts, sizes = starts[longest_first], lengths[longest_first]
    folded = np.full(len(sizes), start, np.uint32)
    for at in range(int(sizes.max(initial=0))):
        active = int(np.searchsorted(-sizes, -at, side="left"))
        folded[:active] = step(folded[:active], data[starts[:active] + at].astype(np.uint32))
    hashes = np.empty_like(folded)
    hashes[longest_first] = folded
    return hashes


def _bytes_of(keys: pa.Array) -> tuple[Numbers, NDArray[np.uint8]]:
    """Give the offsets of a binary column's keys, from 0, and their bytes."""
    _, offset_buffer, data_buffer = keys.buffers()
    if not len(keys):
        return np.zeros(1, np.int64), np.zeros(0, np.uint8)
    offsets = np.frombuffer(offset_buffer, np.int32)[keys.offset : keys.offset + len(keys) + 1]
    data = np.frombuffer(data_buffer, np.uint8) if data_buffer is not None else np.zeros(0, np.uint8)
    return (offsets - offsets[0]).astype(np.int64), data[offsets[0] : offsets[-1]]


HASHES: Mapping[str, Callable[[pa.Array], Numbers]] = {
    "murmur2": _hash_murmur2,
    # The Java producer of 0.8.2 called its mask `abs`; the answer is today's.
    "murmur2-0.8": _hash_murmur2,
    "java-hash": _hash_java,
    "murmur3": _hash_murmur3,
    "crc32": _hash_crc32,
    "fnv1a": _hash_fnv1a,
}
"""Name -> a column's hashes, none negative; `java-hash` is 0.8's Scala producer with text keys."""


def checked_counts(partitions: int, to: int | None) -> list[int]:
    """Give the partition counts that are asked for: one, or two.

    Raises:
        UsageError: one of them is no topic's.
    """
    check_partition_count("--partitions", partitions)
    if to is None:
        return [partitions]
    check_partition_count("--to", to)
    return [partitions, to]


def get_partitioner(name: str) -> ColumnPartitioner:
    """Look a partitioner up by its name, or load a user's own.

    Args:
        name: one of `HASHES`, an entry point of "counterpoise.partitioners", or
            "package.module:function"; of a function that takes a key's bytes and
            the partition count and gives a partition.

    Raises:
        UsageError: there is none of that name, or the user's is no function.
        PluginError: the user's cannot be imported.
    """
    if name in HASHES:
        hash_column = HASHES[name]

        def partition(keys: pa.Array, counts: Sequence[int]) -> list[Numbers]:
            hashes = hash_column(keys)
            return [hashes % count for count in counts]

        return partition
    if ":" in name:
        return _load_plugin(name)
    offered, problems = find_plugins({}, ENTRY_POINT_GROUP, HASHES)
    if name in offered:
        return _load_plugin(offered[name])
    listed = ", ".join(repr(known) for known in sorted({*HASHES, *offered}))
    unknown = f"unknown partitioner {name!r}; known: {listed}; your own is named as 'package.module:function'"
    raise UsageError("\n".join([unknown, *problems]))


def _load_plugin(path: str) -> ColumnPartitioner:
    found: Any = import_plugin(path, "partitioner")
    if not callable(found):
        raise UsageError(
            f"partitioner {path!r} is a {type(found).__name__}; it must be a function of key and count"
        )
    return lambda keys, counts: [_ask_plugin(path, found, keys, count) for count in counts]


def _ask_plugin(path: str, function: Callable[[bytes, int], Any], keys: pa.Array, count: int) -> Numbers:
    partitions = np.empty(len(keys), np.int64)
    for i, key in enumerate(keys.to_pylist()):
        where = f"partitioner {path!r}: key {key!r} with {count} partitions"
        try:
            given = function(key, count)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a user's function may raise anything, SystemExit too
            raise UsageError(f"{where} raised {tell(error)}") from error
        partition = as_number(given)
        if partition is None or not 0 <= partition < count:
            raise UsageError(f"{where} gave {given!r}; it must be a partition from 0 to {count - 1}")
        partitions[i] = partition
    return partitions


def spread_keys(
    columns: Iterable[pa.Array], partitioner: ColumnPartitioner, partition_counts: Sequence[int]
) -> KeySpread:
    """Count keys by partition, for one partition count or for two and what moves between them."""
    counts = tuple(np.zeros(count, np.int64) for count in partition_counts)
    keys = keyless = moved = 0
    for column in columns:
        keyless += column.null_count
        present = column.drop_null()
        keys += len(present)
        chosen = partitioner(present, partition_counts)
        for total, partitions in zip(counts, chosen, strict=True):
            total += np.bincount(partitions, minlength=len(total))
        moved += int(np.count_nonzero(chosen[0] != chosen[-1]))
    return KeySpread(keys=keys, keyless=keyless, counts=counts, moved=moved if len(counts) > 1 else None)


def partition_keys(
    keys: Sequence[str], partitioner: ColumnPartitioner, partition_counts: Sequence[int], *, is_hex: bool
) -> list[dict[str, Any]]:
    """Give for each key its partition, and with a second count `to_partition`."""
    column = pa.array([key_bytes(key, "KEY", is_hex=is_hex) for key in keys], pa.binary())
    chosen = partitioner(column, partition_counts)
    names = ("partition", "to_partition")
    return [
        {"key": printable(key), **{name: int(part[i]) for name, part in zip(names, chosen, strict=False)}}
        for i, key in enumerate(keys)
    ]


def describe_spread(name: str, spread: KeySpread) -> dict[str, Any]:
    """Give a spread as `keys --file --json` prints it.

    Returns:
        `partitioner`, `keys`, `keyless` and what `_load` says of the partition
        count; with a second one also `to`, its load, `moved` and `moved_share`.
        Numbers of no keys at all are null.
    """
    loads = [_load(counts) for counts in spread.counts]
    described = {"partitioner": name, "keys": spread.keys, "keyless": spread.keyless, **loads[0]}
    return (
        described
        if spread.moved is None
        else {**described, "to": loads[1], **_moved(spread.moved, spread.keys)}
    )


def describe_keys(name: str, partition_counts: Sequence[int], keys: list[dict[str, Any]]) -> dict[str, Any]:
    """Give the partitions of single keys as `keys --json` prints them.

    Args:
        name: of the partitioner.
        partition_counts: one, or two.
        keys: from `partition_keys`.
    """
    described = {"partitioner": name, "partitions": partition_counts[0], "keys": keys}
    if len(partition_counts) == 1:
        return described
    moved = sum(key["partition"] != key["to_partition"] for key in keys)
    return {**described, "to": partition_counts[1], **_moved(moved, len(keys))}


def _load(counts: Numbers) -> dict[str, Any]:
    """Put keys by partition in numbers; `ratio` is the fullest partition's keys over the mean."""
    most, mean = int(counts.max()), float(counts.mean())
    return {
        "partitions": len(counts),
        "min": int(counts.min()),
        "max": most,
        "mean": mean,
        "ratio": most / mean if mean else None,
        "counts": counts.tolist(),
    }


def _moved(moved: int, keys: int) -> dict[str, Any]:
    return {"moved": moved, "moved_share": moved / keys if keys else None}


def print_spread(described: Mapping[str, Any], console: Console) -> None:
    """Print how a file's keys spread: a row for each partition, then the numbers.

    Args:
        described: from `describe_spread`.
        console: where to.
    """
    to = described.get("to")
    loads = [described] if to is None else [described, to]
    names = ["keys>", "share>"] if to is None else [f"keys of {load['partitions']}>" for load in loads]
    table = plain_table("partition>", *names)
    rows = max(load["partitions"] for load in loads)
    for partition in range(min(rows, MOST_ROWS)):
        cells = [str(load["counts"][partition]) if partition < load["partitions"] else "-" for load in loads]
        if to is None:
            cells.append(_percent(described["counts"][partition], described["keys"]))
        table.add_row(str(partition), *cells)
    print_titled(f"Keys by partition ({described['partitioner']})", table, console)
    print_left_out(rows - MOST_ROWS, console)
    for load in loads:
        ratio = "-" if load["ratio"] is None else f"{load['ratio']:.3f}"
        spread = f"min {load['min']}, max {load['max']}, max / mean {ratio}"
        console.print(
            f"{described['keys']} keys over {load['partitions']} partitions: {spread}", highlight=False
        )
    if described["keyless"]:
        console.print(
            f"{described['keyless']} records have no key and go to partitions in turn", highlight=False
        )
    _print_moved(described, described["keys"], console)


def print_keys(described: Mapping[str, Any], console: Console) -> None:
    """Print which partition each key goes to, and where it would with another count.

    Args:
        described: from `describe_keys`.
        console: where to.
    """
    counts = [described["partitions"], *([described["to"]] if "to" in described else [])]
    table = plain_table("key", *(f"of {count}>" for count in counts))
    for key in described["keys"]:
        table.add_row(escape(key["key"]), *(str(value) for name, value in key.items() if name != "key"))
    print_titled(f"Partitions ({described['partitioner']})", table, console)
    _print_moved(described, len(described["keys"]), console)


def _print_moved(described: Mapping[str, Any], keys: int, console: Console) -> None:
    if "moved" in described:
        moved = described["moved"]
        console.print(f"{moved} of {keys} keys move ({_percent(moved, keys)})", highlight=False)


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.2f} %" if whole else "-"
