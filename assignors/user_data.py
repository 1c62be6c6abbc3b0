"""The bytes that Kafka's sticky assignors hand to the leader about their member.

An eager member tells its last assignment and its generation in layout v1 (older
clients: v0, without the generation); a cooperative member only its generation,
because the protocol itself carries what it owns.

Source: StickyAssignor and CooperativeStickyAssignor of Kafka 4.3.1.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import cast

from assignors.java_order import computed_map_order
from assignors.model import NO_GENERATION

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")

_Topics = list[tuple[str, tuple[int, ...]]]


def encode_sticky_user_data(owned: Iterable[tuple[str, int]], generation: int | None) -> bytes:
    """Write the user data of an eager sticky member.

    Args:
        owned: (topic, partition) pairs. Topics are written in the order of
            Java's HashMap, each with its partitions in the order given.
        generation: None writes the older layout v0, which has none.

    >>> encode_sticky_user_data([("t", 1)], 7).hex()
    '00000001000174000000010000000100000007'
    """
    numbers_by_topic: dict[str, list[int]] = {}
    topics: list[str] = []
    for topic, partition in owned:
        topics.append(topic)
        numbers_by_topic.setdefault(topic, []).append(partition)
    parts = [_INT32.pack(len(numbers_by_topic))]
    for topic in computed_map_order(topics):
        numbers = numbers_by_topic[topic]
        # Java writes '?' for a lone surrogate, as "replace" does.
        name = topic.encode("utf-8", "replace")
        parts += [_INT16.pack(len(name)), name, struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)]
    if generation is not None:
        parts.append(_INT32.pack(generation))
    return b"".join(parts)


def encode_cooperative_user_data(generation: int) -> bytes:
    """Write the user data of a cooperative-sticky member.

    >>> encode_cooperative_user_data(-1).hex()
    'ffffffff'
    """
    return _INT32.pack(generation)


def decode_sticky_user_data(user_data: bytes | None) -> tuple[_Topics, int | None]:
    """Read an eager member's claim as Kafka does: v1, else v0, else nothing at generation -1.

    Bytes behind a layout are ignored, so v1 bytes never reach v0.

    Returns:
        (topic, partition numbers) pairs, and the generation: None when it is not
        told. Without any bytes it is absent too, which is not the same as -1.

    >>> decode_sticky_user_data(encode_sticky_user_data([("t", 1), ("t", 0)], 7))
    ([('t', (1, 0))], 7)
    >>> decode_sticky_user_data(bytes.fromhex("ffffffff00000007"))  # an array of -1 topics
    ([], -1)
    """
    if not user_data:
        return [], None
    try:
        partitions_by_topic, end = _read_topics(user_data)
    except (struct.error, ValueError):
        return [], NO_GENERATION
    if len(user_data) - end < _INT32.size:
        return partitions_by_topic, None
    return partitions_by_topic, _INT32.unpack_from(user_data, end)[0]


def decode_cooperative_user_data(user_data: bytes | None) -> int | None:
    """Read a cooperative member's generation: None without bytes, -1 from too few."""
    if user_data is None:
        return None
    try:
        generation: int = _INT32.unpack_from(user_data, 0)[0]
    except struct.error:
        return NO_GENERATION
    return generation


def _read_topics(data: bytes) -> tuple[_Topics, int]:
    """Read array(string, array(int32)); raises struct.error or ValueError where Java throws.

    Reading refuses a length or a count below 0 and whatever lies beyond the end,
    so that Kafka's checks before it need not be made again.
    """
    (topics,) = _INT32.unpack_from(data, 0)
    if topics < 0:
        raise ValueError(f"an array of {topics}")
    at = _INT32.size
    groups: _Topics = []
    read_int16, read_int32 = _INT16.unpack_from, _INT32.unpack_from
    for _ in range(topics):
        (length,) = read_int16(data, at)
        name, count = _name_and_count(length)(data, at + 2)
        at += length + 6
        # A member of many topics owns one partition in most.
        numbers = read_int32(data, at) if count == 1 else _numbers(count)(data, at)
        groups.append((name.decode("utf-8", "replace"), numbers))
        at += 4 * count
    return groups, at


# Members of one group write the same few layouts again and again.
@lru_cache(maxsize=512)
def _name_and_count(length: int) -> Callable[[bytes, int], tuple[bytes, int]]:
    return cast("Callable[[bytes, int], tuple[bytes, int]]", struct.Struct(f">{length}si").unpack_from)


@lru_cache(maxsize=512)
def _numbers(count: int) -> Callable[[bytes, int], tuple[int, ...]]:
    return struct.Struct(f">{count}i").unpack_from
