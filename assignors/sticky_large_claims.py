"""What the members of a large group claim, read into numpy's arrays.

An eager member's claim lies in its user data, topic after topic. Where many
members claim in many topics, the bytes of all members are read in step: the first
topic of each, then the second of each, and so on.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from itertools import repeat
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from assignors.model import NO_GENERATION, Subscription
from assignors.user_data import decode_cooperative_user_data, decode_sticky_user_data

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

# Reading in step costs about as much for one member as for a hundred.
_LEAST_IN_STEP = 64
_PAD = bytes(8)
_REPLACEMENT = "\ufffd"
# Odd, so that multiplying loses nothing, and with bits all over.
_FACTOR = 0x9E3779B97F4A7C15


class Claims(NamedTuple):
    """One entry a claimed partition: the member's rank, the topic's place, the number.

    `max_generation` is the highest that a member told.
    """

    members: Ints
    topics: Ints
    numbers: Ints
    max_generation: int


def read_cooperative_claims(by_rank: list[Subscription], index: Mapping[str, int]) -> Claims:
    """Read what cooperative members own; topics absent from `index` are left out."""
    max_generation = NO_GENERATION
    topics, numbers = array("q"), array("q")
    sizes: list[int] = []
    for subscription in by_rank:
        owned = subscription.owned_partitions
        sizes.append(len(owned))
        if owned:
            of_topics, of_numbers = zip(*owned, strict=True)
            topics.extend(map(index.get, of_topics, repeat(-1)))
            numbers.extend(of_numbers)
        generation: int | None = subscription.generation_id
        if subscription.generation_id <= NO_GENERATION:
            generation = decode_cooperative_user_data(subscription.user_data)
        if generation is not None:
            max_generation = max(max_generation, generation)
    members = np.repeat(np.arange(len(by_rank)), sizes)
    return _known(
        members, np.array(topics, dtype=np.int64), np.array(numbers, dtype=np.int64), max_generation
    )


def read_eager_claims(by_rank: list[Subscription], index: Mapping[str, int]) -> Claims | None:
    """Read what eager members say in their user data; None when that takes decoding them one by one."""
    told = [(rank, s.user_data) for rank, s in enumerate(by_rank) if s.user_data]
    if len(told) < _LEAST_IN_STEP:
        return _read_one_by_one(told, index)
    groups = _InStep([data for _, data in told])
    # Bytes that are no UTF-8 read as the replacement character, which only decoding finds.
    if not groups.is_sound or any(_REPLACEMENT in name for name in index):
        return None
    of_groups = groups.match(index)
    if of_groups is None:
        return None
    counts = groups.counts
    ranks = np.array([rank for rank, _ in told], dtype=np.int64)
    members = np.repeat(ranks[groups.tellers], counts)
    topics = np.repeat(of_groups, counts)
    return _known(members, topics, groups.numbers(), groups.max_generation)


def _read_one_by_one(told: list[tuple[int, bytes]], index: Mapping[str, int]) -> Claims:
    """Read few members' user data, junk included."""
    max_generation = NO_GENERATION
    topics, numbers = array("q"), array("q")
    ranks: list[int] = []
    sizes: list[int] = []
    for rank, data in told:
        by_topic, generation = decode_sticky_user_data(data)
        before = len(numbers)
        for topic, of_topic in by_topic:
            topics.extend(repeat(index.get(topic, -1), len(of_topic)))
            numbers.extend(of_topic)
        ranks.append(rank)
        sizes.append(len(numbers) - before)
        if generation is not None:
            max_generation = max(max_generation, generation)
    members = np.repeat(np.array(ranks, dtype=np.int64), sizes)
    return _known(
        members, np.array(topics, dtype=np.int64), np.array(numbers, dtype=np.int64), max_generation
    )


def _known(members: Ints, topics: Ints, numbers: Ints, max_generation: int) -> Claims:
    """Leave out the partitions of unknown topics, whose place is -1."""
    is_known = topics >= 0
    if is_known.all():
        return Claims(members, topics, numbers, max_generation)
    return Claims(members[is_known], topics[is_known], numbers[is_known], max_generation)


class _InStep:
    """The user data of many members, layout v1 or v0, read side by side.

    One entry a topic of a member's: `tellers` (the member's place), `counts` (its
    partitions). `is_sound` is false when bytes ran out somewhere; nothing else
    counts then.
    """

    def __init__(self, buffers: list[bytes]) -> None:
        sizes = np.array([len(data) for data in buffers], dtype=np.int64)
        self._bytes = b"".join([*buffers, _PAD])
        # Numbers begin at any byte, so each view has one for every byte.
        bytes_ = len(self._bytes)
        self._int32 = np.ndarray((bytes_ - 3,), ">i4", self._bytes, strides=(1,))
        self._int16 = np.ndarray((bytes_ - 1,), ">i2", self._bytes, strides=(1,))
        self._words = np.ndarray((bytes_ - 7,), "<u8", self._bytes, strides=(1,))
        ends = np.cumsum(sizes)
        at = ends - sizes
        self.is_sound = bool((sizes >= 4).all())
        if not self.is_sound:
            return
        topics = self._int32[at].astype(np.int64)
        if (topics < 0).any() or (topics > sizes - 4).any():
            self.is_sound = False
            return
        # Who has most topics comes first: those still reading are always the front.
        order = np.argsort(-topics, kind="stable")
        at, ends, topics = at[order] + 4, ends[order], topics[order]
        still = np.searchsorted(-topics, -np.arange(int(topics[0])), side="left").tolist()
        steps: list[tuple[Ints, Ints, Ints]] = []
        for many in still:
            if not self._step(at[:many], ends[:many], steps):
                self.is_sound = False
                return
        has_generation = ends - at >= 4
        generations = self._int32[at[has_generation]]
        self.max_generation = (
            max(NO_GENERATION, int(generations.max())) if len(generations) else NO_GENERATION
        )
        self._name_at = np.concatenate([step[0] for step in steps]) if steps else at[:0]
        self._lengths = np.concatenate([step[1] for step in steps]) if steps else at[:0]
        self.counts = np.concatenate([step[2] for step in steps]) if steps else at[:0]
        self.tellers = np.concatenate([order[:many] for many in still]) if steps else at[:0]

    def _step(self, at: Ints, ends: Ints, steps: list[tuple[Ints, Ints, Ints]]) -> bool:
        """Read one topic of each member and move `at` behind it; False when one has not the bytes."""
        if (at + 2 > ends).any():
            return False
        lengths = self._int16[at].astype(np.int64)
        name_at = at + 2
        count_at = name_at + lengths
        if (lengths < 0).any() or (count_at + 4 > ends).any():
            return False
        counts = self._int32[count_at].astype(np.int64)
        np.add(count_at, 4 + 4 * counts, out=at)
        if (counts < 0).any() or (at > ends).any():
            return False
        steps.append((name_at, lengths, counts))
        return True

    def match(self, index: Mapping[str, int]) -> Ints | None:
        """Give the place of each entry's topic, -1 for a topic not in `index`; None: cannot tell."""
        found = np.full(len(self._lengths), -1, dtype=np.int64)
        names_by_length: dict[int, list[tuple[bytes, int]]] = {}
        for name, place in index.items():
            try:
                encoded = name.encode()
            except UnicodeEncodeError:
                continue  # a lone surrogate: no bytes on the wire are read as one
            names_by_length.setdefault(len(encoded), []).append((encoded, place))
        for length in np.unique(self._lengths).tolist():
            names = names_by_length.get(length)
            if not names:
                continue
            here = np.flatnonzero(self._lengths == length)
            joined = b"".join([*(name for name, _ in names), _PAD])
            words = np.ndarray((len(joined) - 7,), "<u8", joined, strides=(1,))
            known = _words_of(words, np.arange(len(names)) * length, length)
            told = _words_of(self._words, self._name_at[here], length)
            at = _look_up(known, told)
            if at is None:
                return None
            places = np.array([place for _, place in names], dtype=np.int64)
            found[here] = np.where(at >= 0, places[at], -1)
        return found

    def numbers(self) -> Ints:
        """List the partition numbers, entry after entry."""
        first = self._name_at + self._lengths + 4
        counts = self.counts
        within = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
        found: Ints = self._int32[np.repeat(first, counts) + 4 * within].astype(np.int64)
        return found


def _words_of(words: NDArray[np.uint64], at: Ints, length: int) -> list[NDArray[np.uint64]]:
    """Cut texts of one length, beginning at `at`, into words of eight bytes; the last may overlap."""
    if length < 8:
        return [words[at] & np.uint64((1 << 8 * length) - 1)]
    cuts = [*range(0, length - 7, 8)]
    if length % 8:
        cuts.append(length - 8)
    return [words[at + cut] for cut in cuts]


def _look_up(known: list[NDArray[np.uint64]], told: list[NDArray[np.uint64]]) -> Ints | None:
    """Find the place of each told text among the known ones, -1 for none.

    A sum over the words says where to look, and then all words are compared. None
    when two known texts have the same sum, which takes names made for it.
    """
    factors = [np.uint64(pow(_FACTOR, i, 1 << 64)) for i in range(len(known))]
    known_keys, told_keys = _sum_of(known, factors), _sum_of(told, factors)
    if len(np.unique(known_keys)) < len(known_keys):
        return None
    order = np.argsort(known_keys)
    at = order[np.minimum(np.searchsorted(known_keys[order], told_keys), len(order) - 1)]
    is_found = np.ones(len(at), dtype=np.bool_)
    for known_words, told_words in zip(known, told, strict=True):
        is_found &= known_words[at] == told_words
    return np.where(is_found, at, -1)


def _sum_of(words: list[NDArray[np.uint64]], factors: list[np.uint64]) -> NDArray[np.uint64]:
    total = words[0] * factors[0]
    for more, factor in zip(words[1:], factors[1:], strict=True):
        total += more * factor
    return total
