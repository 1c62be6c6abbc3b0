"""Which partition a record goes to: by its own word, its key, or in turn.

Kafka's Java producer hashes keys with murmur2; other clients hash otherwise, and
one key written by two of them can lie in two partitions. All of them are here,
for one key or for a whole column at once.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from assignors.errors import AssignorError
from assignors.java_order import int32, string_hash

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_INT32 = 0xFFFFFFFF
_POSITIVE = 0x7FFFFFFF
_MURMUR2_SEED = 0x9747B28C
_MURMUR2_FACTOR = 0x5BD1E995
_FNV_OFFSET, _FNV_PRIME = 0x811C9DC5, 0x01000193


def murmur2(key: bytes) -> int:
    """Hash a key as Kafka's producers do: murmur2, 32 bits, as Java's signed int.

    Source: org.apache.kafka.common.utils.Utils.murmur2.

    >>> murmur2(b"21"), murmur2(b"foobar")
    (-973932308, -790332482)
    """
    h = _MURMUR2_SEED ^ len(key)
    whole = len(key) & ~3
    for start in range(0, whole, 4):
        k = int.from_bytes(key[start : start + 4], "little") * _MURMUR2_FACTOR & _INT32
        k = (k ^ (k >> 24)) * _MURMUR2_FACTOR & _INT32
        h = (h * _MURMUR2_FACTOR & _INT32) ^ k
    if whole < len(key):
        h = (h ^ int.from_bytes(key[whole:], "little")) * _MURMUR2_FACTOR & _INT32
    h = (h ^ (h >> 13)) * _MURMUR2_FACTOR & _INT32
    return int32(h ^ (h >> 15))


def murmur3(key: bytes) -> int:
    """Hash a key with murmur3 (x86, 32 bits, seed 0), unsigned.

    Some clients of other languages use it; Kafka's own never did.

    >>> murmur3(b"hello")
    613153351
    """
    h = 0
    whole = len(key) & ~3
    for start in range(0, whole, 4):
        h ^= _murmur3_mixed(int.from_bytes(key[start : start + 4], "little"))
        h = (h << 13 | h >> 19) & _INT32
        h = (h * 5 + 0xE6546B64) & _INT32
    h ^= _murmur3_mixed(int.from_bytes(key[whole:], "little")) ^ len(key)
    h = (h ^ (h >> 16)) * 0x85EBCA6B & _INT32
    h = (h ^ (h >> 13)) * 0xC2B2AE35 & _INT32
    return h ^ (h >> 16)


def _murmur3_mixed(k: int) -> int:
    k = k * 0xCC9E2D51 & _INT32
    return ((k << 15 | k >> 17) & _INT32) * 0x1B873593 & _INT32


def fnv1a(key: bytes) -> int:
    """Hash a key as Sarama and librdkafka's fnv1a partitioner do.

    FNV-1a of 32 bits, then the absolute value of it as a signed int, which for
    the least int is 2**31.

    >>> fnv1a(b""), fnv1a(b"a")
    (2128831035, 468965076)
    """
    h = _FNV_OFFSET
    for byte in key:
        h = (h ^ byte) * _FNV_PRIME & _INT32
    return abs(int32(h))


def partition_by_murmur2(key: bytes, partition_count: int) -> int:
    """Give the partition of a key as Kafka's producers since 0.8.2 do.

    >>> partition_by_murmur2(b"foobar", 10)
    6
    """
    return (murmur2(key) & _POSITIVE) % _checked(partition_count)


def partition_by_java_hash(key: str, partition_count: int) -> int:
    """Give the partition of a text key as the Scala producer of 0.8 did.

    Its `abs` is no absolute value but the same mask as today's.

    Source: kafka.producer.DefaultPartitioner of 0.8.

    >>> partition_by_java_hash("foobar", 10)
    5
    """
    return (string_hash(key) & _POSITIVE) % _checked(partition_count)


def partition_by_murmur3(key: bytes, partition_count: int) -> int:
    """Give the partition of a key by murmur3, unsigned."""
    return murmur3(key) % _checked(partition_count)


def partition_by_crc32(key: bytes, partition_count: int) -> int:
    """Give the partition of a key as librdkafka's `consistent` does, and kafka-go's CRC32."""
    return zlib.crc32(key) % _checked(partition_count)


def partition_by_fnv1a(key: bytes, partition_count: int) -> int:
    """Give the partition of a key as Sarama does by default."""
    return fnv1a(key) % _checked(partition_count)


KEY_PARTITIONERS: Mapping[str, Callable[[bytes, int], int]] = {
    "murmur2": partition_by_murmur2,
    "murmur3": partition_by_murmur3,
    "crc32": partition_by_crc32,
    "fnv1a": partition_by_fnv1a,
}
"""Name -> how a key of bytes becomes a partition; the name a setting holds."""


@dataclass(frozen=True, slots=True)
class RoundRobinCounters:
    """The counters of keyless records: one for each topic, or one for all.

    `is_shared` is the producer of 0.8 and 0.9, whose topics all drew from one
    counter, so that two topics written in turn used every second partition.

    Source: RoundRobinPartitioner; 0.8's DefaultPartitioner.
    """

    is_shared: bool = False
    drawn: Mapping[str, int] = field(default_factory=dict)

    def draw(self, topic: str) -> tuple[int, RoundRobinCounters]:
        """Take the next number for a topic; give it and the counters after it."""
        counter = "" if self.is_shared else topic
        number = self.drawn.get(counter, 0)
        after = {**self.drawn, counter: int32(number + 1)}
        return number, RoundRobinCounters(self.is_shared, after)


def partition_in_turn(number: int, partition_count: int, available: Sequence[int] = ()) -> int:
    """Give the partition of a keyless record: available ones only, while there are any.

    Args:
        number: drawn from `RoundRobinCounters`.
        partition_count: of the topic.
        available: the partitions that have a leader, in metadata order.

    >>> [partition_in_turn(n, 4, available=[0, 2]) for n in range(3)]
    [0, 2, 0]
    """
    positive = number & _POSITIVE
    if available:
        return available[positive % len(available)]
    return positive % _checked(partition_count)


def explicit_partition(partition: int, partition_count: int) -> int:
    """Take the partition that a record names itself.

    Raises:
        AssignorError: the topic has no such partition.
    """
    if not 0 <= partition < _checked(partition_count):
        message = f"partition {partition!r} was asked for; it must be 0 to {partition_count - 1}"
        raise AssignorError(message, partition, partition_count)
    return partition


def partition_column(
    keys: Any,
    partition_count: int,
) -> NDArray[np.int64]:
    """Give the partition of every key of a column as Kafka's producers do.

    Args:
        keys: see `murmur2_column`.
        partition_count: of the topic.
    """
    import numpy as np

    hashes = murmur2_column(keys).astype(np.int64)
    partitions: NDArray[np.int64] = (hashes & _POSITIVE) % _checked(partition_count)
    return partitions


def murmur2_column(keys: Any) -> NDArray[np.int32]:
    """Hash a column of keys at once; equal to `murmur2` of each.

    Args:
        keys: an Arrow array (or chunked array) of binary or text, a numpy array
            of bytes or objects, or a list of bytes or text; text is taken as
            UTF-8. Not fixed-width numpy bytes that end in NUL: numpy drops it.

    Raises:
        AssignorError: a key is null; such a record has no key to hash.
    """
    import numpy as np

    data, starts, lengths = _flat_bytes(keys)
    # Longest first: the keys that still have a word to mix are always a prefix.
    longest_first = np.argsort(-lengths, kind="stable")
    starts, sizes = starts[longest_first], lengths[longest_first]
    words = sizes >> 2
    factor = np.uint32(_MURMUR2_FACTOR)
    h = np.uint32(_MURMUR2_SEED) ^ sizes.astype(np.uint32)
    for word in range(int(words.max(initial=0))):
        active = int(np.searchsorted(-words, -word, side="left"))
        at = starts[:active] + 4 * word
        k = np.zeros(active, np.uint32)
        for byte in range(4):
            k |= data[at + byte].astype(np.uint32) << np.uint32(8 * byte)
        k *= factor
        k ^= k >> np.uint32(24)
        k *= factor
        h[:active] = h[:active] * factor ^ k
    tail = sizes & 3
    has_tail = np.flatnonzero(tail)
    rest = np.zeros(len(has_tail), np.uint32)
    for byte in range(3):
        reaches = tail[has_tail] > byte
        at = (starts + 4 * words)[has_tail][reaches] + byte
        rest[reaches] |= data[at].astype(np.uint32) << np.uint32(8 * byte)
    h[has_tail] = (h[has_tail] ^ rest) * factor
    h ^= h >> np.uint32(13)
    h *= factor
    h ^= h >> np.uint32(15)
    hashes = np.empty(len(h), np.int32)
    hashes[longest_first] = h.view(np.int32)
    return hashes


def _flat_bytes(
    keys: Any,
) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]:
    """Give all keys' bytes in one array, with each key's start and length."""
    import numpy as np

    if hasattr(keys, "combine_chunks"):
        keys = keys.combine_chunks()
    if not hasattr(keys, "buffers"):
        items = [k.encode() if isinstance(k, str) else k for k in list(keys)]
        _refuse_nulls(sum(item is None for item in items))
        lengths = np.fromiter(map(len, items), np.int64, len(items))
        flat = np.frombuffer(b"".join(items), np.uint8)
        return flat, np.cumsum(lengths) - lengths, lengths
    _refuse_nulls(keys.null_count)
    width = np.int64 if str(keys.type).startswith("large") else np.int32
    _, offset_buffer, data_buffer = keys.buffers()
    if not len(keys):
        return np.zeros(0, np.uint8), np.zeros(0, np.int64), np.zeros(0, np.int64)
    offsets = np.frombuffer(offset_buffer, width)[keys.offset : keys.offset + len(keys) + 1]
    ends = offsets.astype(np.int64)
    flat = np.frombuffer(data_buffer, np.uint8) if data_buffer is not None else np.zeros(0, np.uint8)
    return flat, ends[:-1], np.diff(ends)


def _refuse_nulls(nulls: int) -> None:
    if nulls:
        message = f"{nulls} keys are null; a record without a key has no partition of its own"
        raise AssignorError(message, nulls)


def _checked(partition_count: int) -> int:
    if partition_count < 1:
        message = f"the topic has {partition_count!r} partitions; it must have 1 or more"
        raise AssignorError(message, partition_count)
    return partition_count
