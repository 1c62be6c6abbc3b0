"""The sticky assignment of a group whose members all subscribe to the same topics.

Every member keeps what it owns up to its quota, in the order of Java's HashMap
(which decides who keeps the larger quotas), and the rest is dealt in a circle.
The circle is dealt by strides: as long as nobody fills up, the k-th member of
the circle gets every n-th partition.

Source: AbstractStickyAssignor.ConstrainedAssignmentBuilder of Kafka 4.3.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from assignors.errors import AssignorError

if TYPE_CHECKING:
    from assignors.sticky_claims import Group, Racks


def assign_uniform(group: Group, *, is_withholding: bool) -> list[list[int]]:
    """Balance a group of equal subscriptions.

    Args:
        group: the members and what they own.
        is_withholding: leave out partitions that pass from one owner to another,
            as a cooperative assignor does for one generation.

    Returns:
        The partition codes of each member, in Kafka's list order.

    Raises:
        AssignorError: owned partitions beyond a topic's count (it shrank) upset
            the quotas, where Kafka's class throws IllegalStateException.
    """
    filling = _Filling(group)
    filling.keep_owned()
    kept = [len(codes) for codes in filling.owned]
    unassigned = _unassigned(group, filling.owned)
    filling.below.sort()
    filling.at_least.sort()
    if group.racks is not None:
        near = group.racks.members_near
        unassigned.sort(key=lambda code: near.get(code, 0))
        if group.racks.by_member:
            unassigned = filling.deal_within_racks(unassigned, group.racks)
    filling.deal(unassigned)
    if is_withholding and (filling.revoked_from or group.doubly_claimed):
        _withhold(group, filling, kept)
    return filling.owned


class _Filling:
    """The members on their way to their quotas.

    `below` are members under the least quota, `at_least` those that may still
    get one more than it; both as Kafka's two lists of unfilled members.
    """

    def __init__(self, group: Group) -> None:
        self._group = group
        self._least, self._larger_expected = divmod(group.total(), len(group.members))
        self._most = self._least + (1 if self._larger_expected else 0)
        self._larger = 0
        self.owned: list[list[int]] = [codes.copy() for codes in group.owned]
        self.revoked_from: dict[int, int] = {}
        self.below: list[int] = []
        self.at_least: list[int] = []

    def keep_owned(self) -> None:
        """Give every member what it owned, as far as its quota goes."""
        group, least, most, expected = self._group, self._least, self._most, self._larger_expected
        racks = group.racks if group.racks is not None and group.racks.by_member else None
        doubly_claimed = group.doubly_claimed
        for member in group.members_in_map_order:
            codes = self.owned[member]
            codes.sort()
            if racks is not None and codes:
                far = [code for code in codes if racks.mismatch(member, code)]
                self.revoked_from.update(dict.fromkeys(far, member))
                codes = [code for code in codes if not racks.mismatch(member, code)]
            if doubly_claimed:
                codes = [code for code in codes if code not in doubly_claimed]
            owns = len(codes)
            if owns < least:
                self.owned[member] = codes
                self.below.append(member)
                continue
            quota = least
            if self._larger < expected:
                if owns >= most:
                    quota = most
                    self._larger += 1
                    if self._larger == expected:
                        self.at_least.clear()
                else:
                    self.at_least.append(member)
            if owns > quota:
                for code in codes[quota:]:
                    self.revoked_from[code] = member
                del codes[quota:]
            self.owned[member] = codes

    def deal_within_racks(self, unassigned: list[int], racks: Racks) -> list[int]:
        """Deal partitions to members of their racks; returns those that found none."""
        rest: list[int] = []
        start = 0
        for code in unassigned:
            at = _next_near(racks, code, self.below, start)
            if at >= 0:
                member = self.below[at]
                size = len(self.owned[member]) + 1
                if size >= self._least:
                    del self.below[at]
                    if size < self._most and self._larger < self._larger_expected:
                        self.at_least.append(member)
                else:
                    at += 1
                start = at % len(self.below) if self.below else 0
            else:
                at = _next_near(racks, code, self.at_least, 0)
                if at < 0:
                    rest.append(code)
                    continue
                member = self.at_least[at]
                if len(self.owned[member]) + 1 == self._most:
                    del self.at_least[at]
                    self._larger += 1
                    if self._larger == self._larger_expected:
                        self.at_least.clear()
            self.owned[member].append(code)
        return rest

    def deal(self, unassigned: list[int]) -> None:
        """Deal partitions in a circle: up to the least quota first, then one more each.

        They always reach for the first part: what was kept is within the quotas,
        whose sum is the number of partitions. (Kafka checks this afterwards.)
        """
        owned, at_least, least, at = self.owned, self.at_least, self._least, 0
        while self.below and at < len(unassigned):
            circle, self.below = self.below, []
            width = len(circle)
            end = at + (least - max([len(owned[member]) for member in circle])) * width
            for start, member in enumerate(circle, at):
                codes = owned[member]
                codes += unassigned[start:end:width]
                (self.below if len(codes) < least else at_least).append(member)
            at = end
        rest = unassigned[at:]
        if len(rest) > len(at_least):
            raise AssignorError(
                f"{len(rest) - len(at_least)} partitions are left and every member is full;"
                " owned partitions must lie within their topics"
                " (Kafka: No more unfilled consumers to be assigned)"
            )
        for i, code in enumerate(rest):
            owned[at_least[i]].append(code)


def _next_near(racks: Racks, code: int, members: list[int], start: int) -> int:
    """Find the first member from `start` on, around the list, whose rack holds the partition; else -1."""
    near = racks.by_partition.get(code)
    if near:
        for i in range(len(members)):
            at = (start + i) % len(members)
            if racks.by_member.get(members[at]) in near:
                return at
    return -1


def _unassigned(group: Group, owned: list[list[int]]) -> list[int]:
    """List what nobody owns by (topic, partition), as Kafka's walk with two pointers finds it.

    That walk counts partitions from 0 whatever their numbers, and stands still at
    the first owned partition that does not exist: everything behind it is then
    dealt out again, although it has an owner.
    """
    taken = set().union(*owned)
    if not taken:
        codes: list[int] = []
        for topic in range(len(group.topics)):
            codes += group.codes_of(topic)
        return codes
    counts = [len(numbers) for numbers in group.numbers]
    codes = _all_but(taken, counts)
    if len(codes) + len(taken) == sum(counts):
        return codes  # all that is owned exists
    width = len(counts)
    unknown = [
        (code % width, code // width) for code in taken if not 0 <= code // width < counts[code % width]
    ]
    stop = min(unknown)
    return _all_but({code for code in taken if (code % width, code // width) < stop}, counts)


def _all_but(taken: set[int], counts: list[int]) -> list[int]:
    """List all codes by (topic, number) that are not taken."""
    width = len(counts)
    return [
        code
        for topic, count in enumerate(counts)
        for code in range(topic, count * width + topic, width)
        if code not in taken
    ]


def _withhold(group: Group, filling: _Filling, kept: list[int]) -> None:
    """Take away again what was given while its former owner still has to let go."""
    revoked_from, doubly_claimed = filling.revoked_from, group.doubly_claimed
    for member, codes in enumerate(filling.owned):
        if len(codes) > kept[member]:
            codes[kept[member] :] = [
                code
                for code in codes[kept[member] :]
                if revoked_from.get(code, member) == member and code not in doubly_claimed
            ]
