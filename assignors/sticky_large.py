"""The uniform sticky assignment again, for large groups: in numpy's arrays, the answer the same.

Only sound groups come this way: equal subscriptions, no racks, topics numbered
from 0, every claim to a partition that exists and that nobody else claims. It is
what nearly every group is; for the others `assign_large` gives None and the
reader of this package goes the plain way, which knows all oddities.

A partition is its place in the list of all partitions by (topic, number).

Source: AbstractStickyAssignor.ConstrainedAssignmentBuilder of Kafka 4.3.1.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from assignors.java_order import hash_map_order, utf16_sorted
from assignors.model import Assignment, AssignorMemory, Subscription, TopicMetadata
from assignors.sticky_claims import ascending_numbers
from assignors.sticky_large_claims import Claims, read_cooperative_claims, read_eager_claims

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]


def assign_large(
    topics: Mapping[str, TopicMetadata],
    subscriptions: Mapping[str, Subscription],
    memory: AssignorMemory,
    *,
    is_cooperative: bool,
) -> Assignment | None:
    """Balance a large group, or give None, and leave the memory alone, when it is not a sound one."""
    names = _common_topics(topics, subscriptions)
    if names is None:
        return None
    members = utf16_sorted(subscriptions)
    by_rank = [subscriptions[member] for member in members]
    index = {name: i for i, name in enumerate(names)}
    read_claims = read_cooperative_claims if is_cooperative else read_eager_claims
    claims = read_claims(by_rank, index)
    if claims is None:
        return None
    space = _Space([len(topics[name]) for name in names])
    places = space.places_of(claims)
    if places is None:
        return None
    memory.max_generation = max(memory.max_generation, claims.max_generation)
    rank = {member: i for i, member in enumerate(members)}
    map_order: list[int] = []
    if len(places):
        # The leader fills one map with the members, the assignor a second one from it.
        map_order = [rank[m] for m in hash_map_order(hash_map_order(list(subscriptions)))]
    filling = _Filling(space, len(members))
    filling.keep_owned(claims, map_order)
    join_order = np.array([rank[member] for member in subscriptions], dtype=np.int64)
    out, sizes = filling.deal(join_order, is_withholding=is_cooperative)
    starts = np.concatenate(([0], np.cumsum(sizes[join_order])))
    topic_indexes = space.topic_of[out]
    partitions = (out - space.offsets[topic_indexes]).astype(np.int32)
    return Assignment(
        subscriptions,
        names,
        array("q", starts.tobytes()),
        array("i", topic_indexes.tobytes()),
        array("i", partitions.tobytes()),
    )


def _common_topics(
    topics: Mapping[str, TopicMetadata], subscriptions: Mapping[str, Subscription]
) -> list[str] | None:
    """List what all members subscribe to, sorted; None when they differ or the group has oddities."""
    if any(subscription.rack_id for subscription in subscriptions.values()):
        return None
    lists = list({id(s.topics): s.topics for s in subscriptions.values()}.values())
    common = frozenset(lists[0])
    for names in lists:
        # As many names and all of the first list's: none of them comes twice, which Kafka would let pass.
        if names != lists[0] and (len(names) != len(common) or not common.issubset(names)):
            return None
    if len(common) < len(lists[0]):
        return None
    present = utf16_sorted(name for name in common if topics.get(name))
    numbers = [ascending_numbers(topics[name].partitions) for name in present]
    is_sound = all(isinstance(one, range) and one.start == 0 for one in numbers)
    return present if is_sound else None


class _Space:
    """All partitions, numbered by (topic, partition)."""

    def __init__(self, counts: list[int]) -> None:
        self.counts = np.array(counts, dtype=np.int64)
        self.offsets = np.concatenate(([0], np.cumsum(self.counts)[:-1]))
        self.total = int(self.counts.sum())
        self.topic_of = np.repeat(np.arange(len(counts), dtype=np.int32), self.counts)

    def places_of(self, claims: Claims) -> Ints | None:
        """Number what is claimed; None when one does not exist or is claimed twice."""
        numbers, topics = claims.numbers, claims.topics
        if len(numbers) and (numbers.min() < 0 or (numbers >= self.counts[topics]).any()):
            return None
        places: Ints = self.offsets[topics] + numbers
        is_claimed = np.zeros(self.total, dtype=np.bool_)
        is_claimed[places] = True
        return places if np.count_nonzero(is_claimed) == len(places) else None


class _Filling:
    """The members, by rank, on their way to their quotas; as sticky_uniform's, in arrays."""

    def __init__(self, space: _Space, members: int) -> None:
        self._space = space
        self._members = members
        self._least, self._larger_expected = divmod(space.total, members)
        self._below = list(range(members)) if self._least else []
        self._at_least: list[int] = [] if self._least else list(range(members))
        self._kept = np.empty(0, dtype=np.int64)
        self._kept_sizes = np.zeros(members, dtype=np.int64)
        self._revoked = self._revoked_from = self._kept

    def keep_owned(self, claims: Claims, map_order: list[int]) -> None:
        """Let every member keep what it owned by (partition, topic), as far as its quota goes."""
        if not map_order:
            return
        width, most_numbers = len(self._space.counts), int(self._space.counts.max())
        keys = (claims.members * most_numbers + claims.numbers) * width + claims.topics
        keys.sort()
        rest, topics = np.divmod(keys, width)
        owners, numbers = np.divmod(rest, most_numbers)
        places = self._space.offsets[topics] + numbers
        sizes = np.bincount(owners, minlength=self._members)
        self._kept_sizes = np.minimum(sizes, self._quotas(sizes.tolist(), map_order))
        before = np.cumsum(sizes) - sizes
        is_kept = np.arange(len(keys)) - before[owners] < self._kept_sizes[owners]
        self._kept = places[is_kept]
        self._revoked, self._revoked_from = places[~is_kept], owners[~is_kept]

    def _quotas(self, sizes: list[int], map_order: list[int]) -> Ints:
        """Say up to what a member keeps: who comes first in the map keeps the larger quota."""
        least, expected = self._least, self._larger_expected
        most = least + (1 if expected else 0)
        quotas = np.full(self._members, least, dtype=np.int64)
        larger = 0
        self._below, self._at_least = [], []
        for member in map_order:
            if sizes[member] < least:
                self._below.append(member)
            elif larger < expected:
                if sizes[member] >= most:
                    quotas[member] = most
                    larger += 1
                else:
                    self._at_least.append(member)
        if larger == expected:
            self._at_least = []
        self._below.sort()
        self._at_least.sort()
        return quotas

    def deal(self, join_order: Ints, *, is_withholding: bool) -> tuple[Ints, Ints]:
        """Deal what nobody keeps in a circle.

        Returns:
            The places of all members' partitions, members in join order, and
            how many each member has, by rank.
        """
        is_free = np.ones(self._space.total, dtype=np.bool_)
        is_free[self._kept] = False
        free = np.flatnonzero(is_free)
        below = np.array(self._below, dtype=np.int64)
        need = self._least - self._kept_sizes[below]
        to_below = int(need.sum())
        dealt = _deal_rounds(free[:to_below], need)
        last = free[to_below:]
        # Who fills up joins the others in the order of filling up; each gets one at most.
        in_line = np.concatenate(
            (np.array(self._at_least, dtype=np.int64), below[np.argsort(need, kind="stable")])
        )[: len(last)]
        sizes = self._kept_sizes.copy()
        sizes[below] = self._least
        last_at = sizes[in_line]
        sizes[in_line] += 1
        starts = np.empty(self._members, dtype=np.int64)
        starts[join_order] = np.cumsum(sizes[join_order]) - sizes[join_order]
        out = np.empty(self._space.total, dtype=np.int64)
        out[_runs(starts, self._kept_sizes)] = self._kept
        out[_runs(starts[below] + self._kept_sizes[below], need)] = dealt
        out[starts[in_line] + last_at] = last
        if not (is_withholding and len(self._revoked)):
            return out, sizes
        # A revoked partition never comes back to whom it was taken from unless it is dealt to it.
        owner_of = np.repeat(join_order, sizes[join_order])
        former = np.full(self._space.total, -1, dtype=np.int64)
        former[self._revoked] = self._revoked_from
        is_withheld = (former[out] >= 0) & (former[out] != owner_of)
        return out[~is_withheld], sizes - np.bincount(owner_of[is_withheld], minlength=self._members)


def _deal_rounds(free: Ints, need: Ints) -> Ints:
    """Deal round by round, each member until its need is met; gives member after member's run."""
    if not len(free):
        return free
    if need.min() == need.max():
        return free.reshape(int(need[0]), len(need)).T.ravel()
    rounds = np.arange(len(free)) - np.repeat(np.cumsum(need) - need, need)
    dealt = np.empty_like(free)
    # Stable, so within a round in the order of members; short numbers sort by radix.
    dealt[np.argsort(rounds.astype(np.uint16 if need.max() < 1 << 16 else np.int64), kind="stable")] = free
    return dealt


def _runs(starts: Ints, sizes: Ints) -> Ints:
    """List the numbers of all runs, one after another."""
    shifts: Ints = np.repeat(starts - (np.cumsum(sizes) - sizes), sizes)
    shifts += np.arange(len(shifts))
    return shifts
