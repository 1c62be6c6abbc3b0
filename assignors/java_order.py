"""Java's orders, where Kafka's answers depend on them.

The assignors of Kafka iterate over `HashMap` and `HashSet` and sort strings with
`compareTo`; which member keeps the larger share can hang on either. This module
gives those orders for maps that are only filled. It computes them from the
final capacity, and follows a map node by node only where nine keys met in one
bucket on the way, because from there on Java reorders the bucket as a
red-black tree.

Source: java.util.HashMap and HashMap.TreeNode of OpenJDK 17, without removal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache
from operator import mul
from typing import Any, TypeVar

from assignors.java_hash_map import TREEIFY_AT, Bins, Node

K = TypeVar("K")

_REMEMBERED_KEYS = 64
_FIRST_CAPACITY = 16

_POWERS_OF_31: list[int] = [pow(31, exponent, 1 << 32) for exponent in range(511, -1, -1)]


def int32(number: int) -> int:
    """Wrap a number as Java's int arithmetic does.

    >>> int32(2**31), int32(-(2**31) - 1)
    (-2147483648, 2147483647)
    """
    return ((number + 0x80000000) & 0xFFFFFFFF) - 0x80000000


# Member ids and topic names come again at every rebalance; the bound keeps a
# job that sees millions of dynamic members from growing.
@lru_cache(maxsize=1 << 15)
def string_hash(text: str) -> int:
    """Give `String.hashCode()` of a text, over its UTF-16 units.

    >>> string_hash("AaBB") == string_hash("BBAa") == 2031744
    True
    """
    units: Sequence[int]
    if text.isascii():
        units = text.encode("ascii")
    else:
        units = memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H")
    if len(units) <= len(_POWERS_OF_31):
        return int32(sum(map(mul, units, _POWERS_OF_31[len(_POWERS_OF_31) - len(units) :])))
    result = 0
    for unit in units:
        result = (31 * result + unit) & 0xFFFFFFFF
    return int32(result)


def partition_hash(topic: str, partition: int) -> int:
    """Give `TopicPartition.hashCode()`.

    >>> partition_hash("t0", 1) == int32(31 * 32 + string_hash("t0"))
    True
    """
    return int32(31 * (31 + partition) + string_hash(topic))


def task_hash(connector: str, task: int) -> int:
    """Give `ConnectorTaskId.hashCode()`, a record's: 31 times the first plus the second."""
    return int32(31 * string_hash(connector) + task)


def uuid_hash(uuid: bytes) -> int:
    """Give the `hashCode()` of Kafka's Uuid: its four ints xor-folded."""
    folded = 0
    for i in range(0, 16, 4):
        folded ^= int.from_bytes(uuid[i : i + 4], "big")
    return int32(folded)


def uuid_key(uuid: bytes) -> tuple[int, int]:
    """Give a key that sorts like `Uuid.compareTo`: two signed halves."""
    return (
        int.from_bytes(uuid[:8], "big", signed=True),
        int.from_bytes(uuid[8:], "big", signed=True),
    )


def spread_hash(hash_code: int) -> int:
    """Mix the high half into the low one, as a HashMap does before it takes a bucket."""
    return int32(hash_code ^ ((hash_code & 0xFFFFFFFF) >> 16))


def utf16_key(text: str) -> bytes:
    """Give a key that sorts like `String.compareTo`: surrogates come before U+E000."""
    return text.encode("utf-16-be", "surrogatepass")


def utf16_sorted(texts: Iterable[str]) -> list[str]:
    r"""Sort texts as Java sorts strings.

    >>> utf16_sorted(["\uffee", "\U0001f600"]) == ["\U0001f600", "\uffee"]
    True
    """
    collected = list(texts)
    together = "".join(collected)
    # Without a code point at or above the surrogates both orders are the same.
    if together.isascii() or max(together) < "\ud800":
        return sorted(collected)
    return sorted(collected, key=utf16_key)


def capacity_for(size: int, capacity: int = _FIRST_CAPACITY) -> int:
    """Give the table size of a HashMap that was filled with `size` keys one by one."""
    while size * 4 > capacity * 3:
        capacity *= 2
    return capacity


def copied_capacity(size: int) -> int:
    """Give the table size of `new HashSet<>(collection)` for a collection of `size`.

    It can be larger than that of a set filled one by one, and so order otherwise.

    >>> copied_capacity(12), capacity_for(12)
    (32, 16)
    """
    return 1 << max(int(size / 0.75), _FIRST_CAPACITY - 1).bit_length()


def hash_map_order(keys: Collection[str]) -> list[str]:
    """Order distinct strings as a `HashMap` filled in the given order iterates.

    >>> hash_map_order(["C1", "AaBB", "C0", "BBAa"])
    ['C0', 'C1', 'AaBB', 'BBAa']
    """
    if len(keys) <= TREEIFY_AT:
        # They fit the first table, and make no tree. Sorting is stable, as a bucket's list is.
        return sorted(keys, key=_first_bucket)
    if len(keys) <= _REMEMBERED_KEYS:
        return list(_lately_ordered(tuple(keys)))
    return hash_order(keys, string_hash, utf16_key)


@lru_cache(maxsize=1 << 10)
def _lately_ordered(keys: tuple[str, ...]) -> tuple[str, ...]:
    """Order the members of a group: one rebalance asks for the same order again and again."""
    return tuple(hash_order(keys, string_hash, utf16_key))


@lru_cache(maxsize=1 << 15)
def _first_bucket(text: str) -> int:
    """Give the bucket of a text in a table of the first capacity."""
    return spread_hash(string_hash(text)) & (_FIRST_CAPACITY - 1)


def hash_order(
    keys: Collection[K],
    hash_of: Callable[[K], int],
    compare_key: Callable[[K], Any],
    *,
    capacity: int = _FIRST_CAPACITY,
) -> list[K]:
    """Order distinct keys as a HashMap or HashSet filled in the given order iterates.

    Args:
        keys: without duplicates, in insertion order.
        hash_of: `hashCode()` of a key, as a signed 32-bit number.
        compare_key: sorts like the key's `compareTo`; decides inside a tree
            between keys of equal hash.
        capacity: the table size that the map was made with, a power of two.
    """
    if len(keys) < 2:
        return list(keys)
    spread = [(h ^ ((h & 0xFFFFFFFF) >> 16)) for h in map(hash_of, keys)]
    if len(keys) > TREEIFY_AT and _some_bucket_overflows(spread, capacity):
        bins = Bins(capacity)
        for key, hash_ in zip(keys, spread, strict=True):
            bins.add(Node(key, int32(hash_), compare_key(key)))
        return bins.keys()
    mask = capacity_for(len(keys), capacity) - 1
    # Sorting is stable, so keys of one bucket stay in insertion order.
    pairs = sorted(zip([h & mask for h in spread], range(len(spread)), strict=True))
    by_position = keys if isinstance(keys, list | tuple) else list(keys)
    return [by_position[i] for _, i in pairs]


def computed_map_order(calls: Sequence[str]) -> list[str]:
    """Order strings as a HashMap iterates that `computeIfAbsent` was called on for each.

    Such a key goes before the others of its bucket, not behind them, and the
    table grows with the next call, which may be for a key that is there already.

    >>> computed_map_order(["AaBB", "C0", "BBAa", "AaBB"])
    ['C0', 'BBAa', 'AaBB']
    """
    distinct = dict.fromkeys(calls)
    if len(distinct) < TREEIFY_AT:
        mask = _FIRST_CAPACITY - 1
        latest_first = list(distinct)[::-1]  # and sorting is stable
        return sorted(latest_first, key=lambda key: spread_hash(string_hash(key)) & mask)
    bins = Bins(_FIRST_CAPACITY)
    present: set[str] = set()
    for key in calls:
        bins.grow_if_full()
        if key not in present:
            present.add(key)
            bins.compute(Node(key, spread_hash(string_hash(key)), utf16_key(key)))
    return bins.keys()


def _some_bucket_overflows(spread: list[int], capacity: int) -> bool:
    """Say whether, at any table size on the way, a ninth key met eight in one bucket."""
    while True:
        # The key that makes the table grow still goes into the old one.
        present = spread[: capacity * 3 // 4 + 1]
        mask = capacity - 1
        if max(Counter(h & mask for h in present).values()) > TREEIFY_AT:
            return True
        if len(present) == len(spread) and len(spread) * 4 <= capacity * 3:
            return False
        capacity *= 2
