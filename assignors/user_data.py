"""The bytes that Kafka's sticky assignors hand to the leader about their member.

An eager member tells its last assignment and its generation in layout v1 (older
clients: v0, without the generation); a cooperative member only its generation,
because the protocol itself carries what it owns.

Source: StickyAssignor and CooperativeStickyAssignor of Kafka 4.3.1.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from assignors.java_order import computed_map_order
from assignors.model import NO_GENERATION

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


class Claim(NamedTuple):
    """What a member says it owned, and since which generation; None: it did not say."""

    partitions_by_topic: tuple[tuple[str, tuple[int, ...]], ...]
    generation: int | None


_NOTHING_SAID = Claim((), None)
_JUNK = Claim((), NO_GENERATION)


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


def decode_sticky_user_data(user_data: bytes | None) -> Claim:
    """Read an eager member's claim as Kafka does: v1, else v0, else nothing at generation -1.

    Bytes behind a layout are ignored, so v1 bytes never reach v0. Without any
    bytes the generation is absent, which is not the same as -1.
    """
    if not user_data:
        return _NOTHING_SAID
    try:
        partitions_by_topic, end = _read_topics(user_data)
    except (struct.error, ValueError):
        return _JUNK
    try:
        return Claim(partitions_by_topic, _INT32.unpack_from(user_data, end)[0])
    except struct.error:
        return Claim(partitions_by_topic, None)


def decode_cooperative_user_data(user_data: bytes | None) -> int | None:
    """Read a cooperative member's generation: None without bytes, -1 from too few."""
    if user_data is None:
        return None
    try:
        generation: int = _INT32.unpack_from(user_data, 0)[0]
    except struct.error:
        return NO_GENERATION
    return generation


def _read_topics(data: bytes) -> tuple[tuple[tuple[str, tuple[int, ...]], ...], int]:
    """Read array(string, array(int32)); raises struct.error or ValueError where Java throws."""
    topics, at = _read_size(data, 0), 4
    groups: list[tuple[str, tuple[int, ...]]] = []
    for _ in range(topics):
        (length,) = _INT16.unpack_from(data, at)
        at += 2
        if not 0 <= length <= len(data) - at:
            raise ValueError(f"a string of {length} bytes where {len(data) - at} are left")
        name = data[at : at + length].decode("utf-8", "replace")
        count = _read_size(data, at + length)
        at += length + 4
        groups.append((name, struct.unpack_from(f">{count}i", data, at)))
        at += 4 * count
    return tuple(groups), at


def _read_size(data: bytes, at: int) -> int:
    size: int = _INT32.unpack_from(data, at)[0]
    # Kafka's check counts bytes, not elements; a size that passes it can still run out.
    if not 0 <= size <= len(data) - at - 4:
        raise ValueError(f"an array of {size} where {len(data) - at - 4} bytes are left")
    return size
