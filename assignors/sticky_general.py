"""The sticky assignment of a group whose members subscribe to different topics.

Kafka's class keeps what is owned, gives the rest to the least loaded
subscribers, and then moves partitions, one by one, from members to less loaded
ones. Before each of these looks it asks afresh whether the whole group is
balanced, which makes it quadratic. Here that question is left out where the
answer cannot matter: when every partition has one owner who subscribes to it,
and so does its previous owner, "balanced" says no more than that no subscriber
is two partitions behind an owner, and then no move is found either. Groups
where this does not hold (topics that shrank or have gaps, duplicate topics in a
subscription, previous owners who no longer subscribe) are followed word by word.

Source: AbstractStickyAssignor.GeneralAssignmentBuilder of Kafka 4.3.1.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from heapq import heapify, heapreplace
from typing import TYPE_CHECKING

from assignors.errors import AssignorError
from assignors.java_order import hash_map_order, int32
from assignors.model import NO_GENERATION
from assignors.sticky_movements import Movements

if TYPE_CHECKING:
    from assignors.sticky_claims import Group, Racks


def assign_general(group: Group, max_generation: int) -> list[list[int]]:
    """Balance a group of different subscriptions; returns codes by member, in Kafka's list order.

    Raises:
        AssignorError: Kafka's class would throw, which it does where its books
            do not agree with the topics.
    """
    return _General(group, max_generation).build()


class _General:
    """One run. `owned` and `sizes` are by member; `owner_of` is by partition code."""

    def __init__(self, group: Group, max_generation: int) -> None:
        self._group = group
        self._width = len(group.topics)
        self._racks: Racks | None = group.racks if group.racks and group.racks.by_member else None
        self._counts = [len(numbers) for numbers in group.numbers]
        self._candidates: list[list[int]] = [[] for _ in group.topics]
        for member in group.subscription_order:
            for topic in group.subscribed[member]:
                self._candidates[topic].append(member)
        self._topic_order = sorted(range(self._width), key=lambda topic: len(self._candidates[topic]))
        self._subscribed = [frozenset(topics) for topics in group.subscribed]
        self._previous = _previous_owners(group, max_generation)
        self._movements = Movements(group.topics)
        self._live = set(range(len(group.members)))
        self._must_revoke = False
        self.owned: list[list[int]] = [[] for _ in group.members]
        self.owner_of: dict[int, int] = {}
        self.sizes: list[int] = []

    def build(self) -> list[list[int]]:
        partitions = [code for topic in self._topic_order for code in self._group.codes_of(topic)]
        self._keep_owned()
        unassigned, is_sound = self._find_unassigned(partitions)
        kept = list(self.sizes)
        self._fill(unassigned)
        is_sound = is_sound and self._is_regular()
        for member in range(len(self.owned)):
            if not self._can_take_part(member):
                self._live.discard(member)
        # Nothing can move within a spread of one, and few groups get further than this.
        loads = [self.sizes[member] for member in self._live]
        if not is_sound or (loads and max(loads) - min(loads) > 1):
            self._record_owners(kept)
            self._balance(partitions, unassigned, is_fresh=not any(kept), is_sound=is_sound)
        if len(self._live) < len(self.owned):
            self._put_fixed_back()
        return self.owned

    def _keep_owned(self) -> None:
        """Take over what members own, still subscribe to, and have in their rack."""
        racks, width = self._racks, self._width
        for member in self._group.members_in_map_order:
            codes = self._group.owned[member]
            if codes:
                wanted = self._subscribed[member]
                kept = [
                    code
                    for code in codes
                    if code % width in wanted and not (racks is not None and racks.mismatch(member, code))
                ]
                self._must_revoke = self._must_revoke or len(kept) < len(codes)
                self.owned[member] = kept
        self.sizes = [len(codes) for codes in self.owned]

    def _record_owners(self, kept: list[int]) -> None:
        """Note every partition's owner; `kept` is how many each member had before the rest was dealt.

        One that was not dealt out again keeps its former owner on record, whoever holds it now.
        """
        owner_of = self.owner_of
        for member in self._group.members_in_map_order:
            for code in self._group.owned[member]:
                owner_of[code] = member
        for member, codes in enumerate(self.owned):
            for code in codes[kept[member] :]:
                owner_of[code] = member

    def _find_unassigned(self, partitions: list[int]) -> tuple[list[int], bool]:
        """List what nobody owns, and say whether all that is owned exists.

        Kafka walks both sorted lists at once and stands still at the first owned
        partition that does not exist: all behind it is dealt out again.
        """
        taken = set().union(*self.owned)
        if not taken:
            return partitions, True
        free = [code for code in partitions if code not in taken]
        if len(free) + len(taken) == len(partitions):
            return free, True
        place = {topic: i for i, topic in enumerate(self._topic_order)}
        width = self._width
        unknown = taken.difference(partitions)
        stop = min((place[code % width], code // width) for code in unknown)
        taken = {code for code in taken if (place[code % width], code // width) < stop}
        return [code for code in partitions if code not in taken], False

    def _fill(self, unassigned: list[int]) -> None:
        """Give each partition to its least loaded subscriber, within racks first.

        A topic's partitions stand together and have the same candidates, so one
        heap for each topic (and rack) holds while they are dealt.
        """
        racks = self._racks
        rest = unassigned
        if racks is not None:
            rest = []
            heaps: dict[str | None, list[int]] = {}
            at = -1
            for code in unassigned:
                if code % self._width != at:
                    at = code % self._width
                    heaps = self._heaps_by_rack(at, racks)
                near = [heaps[rack] for rack in (*racks.by_partition.get(code, ()), None) if rack in heaps]
                if near:
                    self._give(code, min(near, key=lambda heap: heap[0]))
                else:
                    rest.append(code)
        at, heap = -1, []
        for code in rest:
            if code % self._width != at:
                at = code % self._width
                heap = self._heap(self._candidates[at])
            self._give(code, heap)

    def _heap(self, members: list[int]) -> list[int]:
        """Make a heap of size * members + member: Kafka's TreeSet order by size, then id."""
        heap = [self.sizes[member] * len(self.sizes) + member for member in set(members)]
        heapify(heap)
        return heap

    def _heaps_by_rack(self, topic: int, racks: Racks) -> dict[str | None, list[int]]:
        """Part a topic's candidates by rack; those without one may take any partition."""
        members_by_rack: dict[str | None, list[int]] = {}
        for member in self._candidates[topic]:
            members_by_rack.setdefault(racks.by_member.get(member), []).append(member)
        return {rack: self._heap(members) for rack, members in members_by_rack.items()}

    def _give(self, code: int, heap: list[int]) -> None:
        key = heap[0]
        member = key % len(self.sizes)
        self.sizes[member] += 1
        heapreplace(heap, key + len(self.sizes))
        self.owned[member].append(code)

    def _is_regular(self) -> bool:
        """Say whether the group is as the shortcuts need it, besides what is owned."""
        width = self._width
        return (
            all(isinstance(numbers, range) and numbers.start == 0 for numbers in self._group.numbers)
            and list(map(len, self._subscribed)) == list(map(len, self._group.subscribed))
            and all(code % width in self._subscribed[member] for code, member in self._previous.items())
        )

    def _most_of(self, member: int) -> int:
        """Count what a member could own at most, duplicate topics counting as Kafka counts them."""
        topics = self._group.subscribed[member]
        if len(topics) == self._width:
            return sum(self._counts)
        return sum(self._counts[topic] for topic in topics)

    def _can_take_part(self, member: int) -> bool:
        """Say whether balancing could give a member something or take something from it."""
        return any(
            len(self._candidates[code % self._width]) >= 2 for code in self.owned[member]
        ) or self.sizes[member] < self._most_of(member)

    def _balance(
        self, partitions: list[int], unassigned: list[int], *, is_fresh: bool, is_sound: bool
    ) -> None:
        """Move partitions until nothing improves; undo it all if the group got no better."""
        move = self._move_sound if is_sound else self._move_literally
        before = [list(codes) for codes in self.owned]
        owner_before = dict(self.owner_of)
        if not self._must_revoke:
            move(unassigned)
        if move(partitions) and not is_fresh and self._score(self.owned) >= self._score(before):
            self.owned = [before[m] if m in self._live else codes for m, codes in enumerate(self.owned)]
            self.owner_of = owner_before
            self.sizes = [len(codes) for codes in self.owned]

    def _score(self, owned: list[list[int]]) -> int:
        """Sum the differences of load over all pairs of members, wrapped to 32 bits as in Java."""
        loads = sorted(len(owned[member]) for member in self._live)
        return int32(sum((2 * i - len(loads) + 1) * load for i, load in enumerate(loads)))

    def _move_sound(self, partitions: list[int]) -> bool:
        """Move partitions of a sound group to less loaded subscribers until none can be.

        The least loaded candidate is the same for a topic's partitions until
        something moves, and it is both the test and the receiver. `loads` stay
        sorted, so that the two ends say who can still give, and when nobody can.
        """
        sizes, many, previous = self.sizes, len(self.sizes), self._previous
        loads = sorted([sizes[member] for member in self._live])
        performed, modified = False, loads[-1] - loads[0] > 1
        while modified:
            modified = False
            at, least = -1, 0
            for code in partitions:
                size = sizes[self.owner_of[code]]
                if size <= loads[0] + 1:
                    continue
                receiver = previous.get(code)
                if receiver is None or size <= sizes[receiver] + 1:
                    if code % self._width != at:
                        at = code % self._width
                        least = min([sizes[member] * many + member for member in self._candidates[at]])
                    if size <= least // many + 1:
                        continue
                    receiver = least % many
                giver = self._move(code, receiver)
                loads[bisect_left(loads, sizes[giver] + 1)] -= 1
                loads[bisect_right(loads, sizes[receiver] - 1) - 1] += 1
                if loads[-1] - loads[0] <= 1:
                    return True
                performed = modified = True
                at = -1
        return performed

    def _move_literally(self, partitions: list[int]) -> bool:
        """Move partitions step by step as Kafka's class does, its exceptions included.

        Those of topics with one candidate are left out; Kafka counts them from 0 up.
        """
        width, performed = self._width, False
        movable = [
            code
            for code in partitions
            if len(self._candidates[code % width]) >= 2 or code // width >= self._counts[code % width]
        ]
        is_balanced: bool | None = None
        while True:
            modified = False
            for code in movable:
                # The answer can only change by a move.
                is_balanced = self._is_balanced() if is_balanced is None else is_balanced
                if is_balanced:
                    break
                receiver = self._receiver(code)
                if receiver is not None:
                    self._move(code, receiver)
                    modified, is_balanced = True, None
            if not modified:
                return performed
            performed = True

    def _receiver(self, code: int) -> int | None:
        """Find who should have a partition rather than its owner, None when nobody should."""
        owner = self.owner_of.get(code)
        before = self._previous.get(code)
        if before is not None and self._live_size(owner, code) > self._live_size(before, code) + 1:
            return before
        candidates = self._candidates[code % self._width]
        racks = self._racks
        if racks is not None and owner is not None:
            near = racks.by_partition.get(code, frozenset())
            if racks.by_member.get(owner) in near:
                for member in candidates:
                    if racks.by_member.get(member) in near and self._is_behind(member, owner, code):
                        return self._least_loaded(code)
        if any(self._is_behind(member, owner, code) for member in candidates):
            return self._least_loaded(code)
        return None

    def _is_behind(self, member: int, owner: int | None, code: int) -> bool:
        return self._live_size(owner, code) > self._live_size(member, code) + 1

    def _live_size(self, member: int | None, code: int) -> int:
        if member is None or member not in self._live:
            raise self._mismatch(code)
        return self.sizes[member]

    def _least_loaded(self, code: int) -> int:
        topic = code % self._width
        return min((self.sizes[m], m) for m in self._live if topic in self._subscribed[m])[1]

    def _is_balanced(self) -> bool:
        """Ask what Kafka asks before each look at a partition, in its order.

        Raises:
            AssignorError: a partition that should exist has no owner among the
                members that take part (Kafka: NullPointerException).
        """
        by_load = sorted((self.sizes[member], member) for member in self._live)
        if not by_load:
            raise AssignorError("no member takes part in balancing, but partitions do (Kafka throws too)")
        if by_load[0][0] >= by_load[-1][0] - 1:
            return True
        holder_of: dict[int, int] = {}
        for member in self._group.members_in_map_order:
            if member in self._live:
                holder_of.update(dict.fromkeys(self.owned[member], member))
        for size, member in by_load:
            if size == self._most_of(member):
                continue
            own = set(self.owned[member])
            for topic in self._group.subscribed[member]:
                for code in range(topic, self._counts[topic] * self._width + topic, self._width):
                    if code in own:
                        continue
                    holder = holder_of.get(code)
                    if holder is None:
                        raise self._mismatch(code)
                    if size + 1 < self.sizes[holder]:
                        return False
        return True

    def _mismatch(self, code: int) -> AssignorError:
        topic = self._group.topics[code % self._width]
        return AssignorError(
            f"partition {code // self._width} of topic {topic!r} has no owner among the members that take"
            " part in balancing; previous owners must subscribe and partitions be numbered from 0"
            " (Kafka: NullPointerException)"
        )

    def _move(self, code: int, receiver: int) -> int:
        """Give a partition, or one that came the other way before, to a less loaded member; says whose."""
        moving = self._movements.partition_to_move(code, self.owner_of[code], receiver)
        giver = self.owner_of[moving]
        self._movements.record(moving, giver, receiver)
        if moving in self.owned[giver]:
            self.owned[giver].remove(moving)
        self.owned[receiver].append(moving)
        self.owner_of[moving] = receiver
        self.sizes[giver] = len(self.owned[giver])
        self.sizes[receiver] = len(self.owned[receiver])
        return giver

    def _put_fixed_back(self) -> None:
        """Order the members as Java's map has them after it lost and regained the fixed ones.

        Only a partition with two owners can tell: the last one met counts.
        """
        group = self._group
        fixed = [member for member in group.members_in_map_order if member not in self._live]
        live = [member for member in group.members_in_map_order if member in self._live]
        names = [group.members[member] for member in (*live, *_in_map_order(group, fixed))]
        rank = {name: i for i, name in enumerate(group.members)}
        group.members_in_map_order = [rank[name] for name in hash_map_order(names)]


def _in_map_order(group: Group, members: list[int]) -> list[int]:
    rank = {group.members[member]: member for member in members}
    return [rank[name] for name in hash_map_order(list(rank))]


def _previous_owners(group: Group, max_generation: int) -> dict[int, int]:
    """Find who owned a partition last among claims older than the newest: code -> member.

    Source: AbstractStickyAssignor.prepopulateCurrentAssignments.
    """
    since: dict[int, int] = {}
    previous: dict[int, int] = {}
    for member in group.subscription_order:
        generation = group.generations[member]
        if not group.claimed[member]:
            continue
        if generation is None:
            generation = NO_GENERATION
        if generation >= max_generation:
            continue
        for code in group.claimed[member]:
            if code not in since or generation > since[code]:
                since[code] = generation
                previous[code] = member
    return previous
