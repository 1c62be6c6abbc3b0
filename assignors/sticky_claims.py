"""What the members of a group claim to own, as Kafka's sticky assignors read it.

Both sticky assignors begin here: one pass over the members in the order of
Java's HashMap settles conflicting claims and finds out whether all subscribe
alike. From here on members and topics are numbers in the order of their names,
and a partition is one number too: `partition * topics + topic`, which sorts by
(partition, topic) and holds partitions that do not exist just as well.

Source: AbstractStickyAssignor.allSubscriptionsEqual, prepopulateCurrentAssignments and
RackInfo of Kafka 4.3.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from assignors.errors import AssignorError
from assignors.java_hash_map import TREEIFY_AT
from assignors.java_order import hash_map_order, utf16_sorted
from assignors.model import NO_GENERATION, Assignment, AssignorMemory, Subscription, TopicMetadata
from assignors.racks import racks_of_partitions, use_racks
from assignors.user_data import decode_cooperative_user_data, decode_sticky_user_data

_LEAST_LARGE_PARTITIONS = 20_000
"""From this many partitions on, groups that subscribe alike are computed in numpy's arrays."""


@dataclass(slots=True)
class Racks:
    """Which racks matter, when any member has one.

    `by_member` and `by_partition` are empty when racks are not used: no rack in
    common, or every partition has replicas in all of them. `members_near` is
    there all the same, because Kafka sorts by it in either case.
    """

    by_member: dict[int, str]
    by_partition: dict[int, frozenset[str]]
    members_near: dict[int, int]

    def mismatch(self, member: int, code: int) -> bool:
        """Say whether the member has a rack and the partition no replica in it."""
        rack = self.by_member.get(member)
        return rack is not None and rack not in self.by_partition.get(code, ())


@dataclass(slots=True)
class Group:
    """One group in numbers.

    `rank` is a member's number. `claimed` is what a member told, `owned` what is left of it after conflicts,
    both as partition codes in the order told; `doubly_claimed` are partitions
    that two members claimed in one generation. `subscription_order` are all members
    as the leader's HashMap of subscriptions iterates, `members_in_map_order` as
    the assignor's own map does, which is filled from it.
    """

    members: list[str]
    rank: dict[str, int]
    topics: list[str]
    numbers: list[range | tuple[int, ...]]
    subscribed: list[list[int]]
    subscription_order: list[int]
    members_in_map_order: list[int]
    claimed: list[list[int]]
    generations: list[int | None]
    owned: list[list[int]]
    doubly_claimed: set[int]
    is_uniform: bool
    racks: Racks | None

    def total(self) -> int:
        """Count the partitions of all topics."""
        return sum(map(len, self.numbers))

    def codes_of(self, topic: int) -> list[int] | range:
        """List the codes of a topic's partitions, in metadata order."""
        numbers, width = self.numbers[topic], len(self.topics)
        if isinstance(numbers, range):
            return range(numbers.start * width + topic, numbers.stop * width + topic, width)
        return [number * width + topic for number in numbers]

    def to_assignment(self, owned: list[list[int]], join_order: Mapping[str, object]) -> Assignment:
        """Turn codes by member into an Assignment whose members stand in join order."""
        width = len(self.topics)
        rank = self.rank
        codes: list[int] = []
        starts = [0]
        for member in join_order:
            codes += owned[rank[member]]
            starts.append(len(codes))
        topic_indexes = [code % width for code in codes]
        partitions = [code // width for code in codes]
        return Assignment(join_order, self.topics, starts, topic_indexes, partitions)


def read_group(
    topics: Mapping[str, TopicMetadata],
    subscriptions: Mapping[str, Subscription],
    memory: AssignorMemory,
    *,
    is_cooperative: bool,
) -> Group:
    """Settle who owned what before, and raise the memory's highest generation.

    Raises:
        AssignorError: there is no member.
    """
    if not subscriptions:
        raise AssignorError("a sticky assignor got a group of 0 members; it must have 1 or more")
    members = utf16_sorted(subscriptions)
    by_rank = [subscriptions[member] for member in members]
    lists = [subscription.topics for subscription in by_rank]
    is_alike = lists.count(lists[0]) == len(lists)
    wanted = set(lists[0]) if is_alike else set().union(*lists)
    names = utf16_sorted([topic for topic in wanted if topic in topics and topics[topic].partitions])
    index = {topic: i for i, topic in enumerate(names)}
    distinct = lists[:1] if is_alike else lists
    if len(index) == len(wanted):
        subscribed = [list(map(index.__getitem__, listed)) for listed in distinct]
    else:
        subscribed = [[index[topic] for topic in listed if topic in index] for listed in distinct]
    read_claims = _read_cooperative_claims if is_cooperative else _read_eager_claims
    claimed, generations = read_claims(by_rank, index)
    for generation in generations:
        if generation is not None and generation > memory.max_generation:
            memory.max_generation = generation
    rank = {member: i for i, member in enumerate(members)}
    everyone = list(rank.values())
    group = Group(
        members=members,
        rank=rank,
        topics=names,
        numbers=[ascending_numbers(topics[topic].partitions) for topic in names],
        subscribed=subscribed * len(members) if is_alike else subscribed,
        subscription_order=everyone,
        members_in_map_order=everyone,
        claimed=claimed,
        generations=generations,
        owned=claimed,
        doubly_claimed=set(),
        is_uniform=True,
        racks=_racks_of(topics, names, by_rank),
    )
    is_plain = is_alike and len(wanted) == len(lists[0])
    if any(claimed) or not is_plain:
        # The leader fills one map with the members, the assignor a second one from it.
        in_order = hash_map_order(list(subscriptions))
        group.subscription_order = [rank[member] for member in in_order]
        group.members_in_map_order = group.subscription_order
        group.is_uniform = is_plain or _all_equal([subscriptions[member].topics for member in in_order])
        if len(set().union(*claimed)) < sum(map(len, claimed)):
            _settle_conflicts(group, by_rank)
        if len(members) > TREEIFY_AT:
            # Only trees make the second map's order another than the first one's.
            group.members_in_map_order = [rank[member] for member in hash_map_order(in_order)]
    return group


def is_large(topics: Mapping[str, TopicMetadata], subscriptions: Mapping[str, Subscription]) -> bool:
    """Say whether numpy pays: one member may read that many partitions.

    Below, importing it and filling its many small arrays takes longer than it saves.
    """
    first = next(iter(subscriptions.values()), None)
    return first is not None and (
        sum([len(topics[topic].partitions) for topic in first.topics if topic in topics])
        >= _LEAST_LARGE_PARTITIONS
    )


def ascending_numbers(numbers: range | tuple[int, ...]) -> range | tuple[int, ...]:
    """Sort partition numbers; without gaps they become a range, which later steps ask for."""
    if isinstance(numbers, range):
        return numbers
    ordered = tuple(sorted(numbers))
    return range(len(ordered)) if ordered == tuple(range(len(ordered))) else ordered


def _read_eager_claims(
    by_rank: list[Subscription], index: Mapping[str, int]
) -> tuple[list[list[int]], list[int | None]]:
    """Read what eager members claim from their user data: partition codes and generation of each.

    Topics that nobody subscribes to or that do not exist are left out.
    """
    width = len(index)
    claimed: list[list[int]] = []
    generations: list[int | None] = []
    for subscription in by_rank:
        codes: list[int] = []
        by_topic, generation = decode_sticky_user_data(subscription.user_data)
        for topic, numbers in by_topic:
            if (at := index.get(topic)) is not None:
                # Most runs are short: a comprehension for each would cost more than it saves.
                for number in numbers:
                    codes.append(number * width + at)  # noqa: PERF401 - see above
        claimed.append(codes)
        generations.append(generation)
    return claimed, generations


def _read_cooperative_claims(
    by_rank: list[Subscription], index: Mapping[str, int]
) -> tuple[list[list[int]], list[int | None]]:
    """Read what cooperative members claim, as `_read_eager_claims` does, from the protocol's own fields."""
    width = len(index)
    claimed: list[list[int]] = []
    generations: list[int | None] = []
    for subscription in by_rank:
        owned, generation = subscription.owned_partitions, subscription.generation_id
        try:
            codes = [number * width + index[topic] for topic, number in owned]
        except KeyError:
            codes = [number * width + index[topic] for topic, number in owned if topic in index]
        claimed.append(codes)
        told = generation if generation > NO_GENERATION else None
        generations.append(decode_cooperative_user_data(subscription.user_data) if told is None else told)
    return claimed, generations


def _all_equal(lists: list[tuple[str, ...]]) -> bool:
    """Compare subscriptions as Kafka does, flaws included.

    The set is started afresh while it is empty, so members without topics do not
    count until one with topics was met; a list is compared by its length, so
    its duplicates count.
    """
    common: set[str] = set()
    for topics in lists:
        if not common:
            common.update(topics)
        elif len(topics) != len(common) or not common.issuperset(topics):
            return False
    return True


def _settle_conflicts(group: Group, by_rank: list[Subscription]) -> None:
    """Decide between members that claim the same partition, in map order.

    A member's own generation is the one of its claim; the other's is the
    protocol's field of its subscription, which an eager member may leave out.
    """
    owner_of: dict[int, int] = {}
    kept: list[dict[int, None]] = [{} for _ in by_rank]
    for member in group.subscription_order:
        generation = group.generations[member]
        own = NO_GENERATION if generation is None else generation
        for code in group.claimed[member]:
            other = owner_of.get(code)
            if other is None:
                kept[member][code] = None
                owner_of[code] = member
                continue
            others = max(by_rank[other].generation_id, NO_GENERATION)
            if own < others:
                continue
            owner_of[code] = member
            was_kept = code in kept[other]
            kept[other].pop(code, None)
            if own == others:
                group.doubly_claimed.add(code)
            elif other != member or was_kept:
                # Java adds to the list's end and takes the first one away: against itself
                # a member keeps what it still had, and gains nothing it had lost.
                kept[member][code] = None
    group.owned = [list(codes) for codes in kept]


def _racks_of(
    topics: Mapping[str, TopicMetadata], names: list[str], by_rank: list[Subscription]
) -> Racks | None:
    """Collect the racks, None when no member has one (the empty text is none)."""
    racks = [subscription.rack_id for subscription in by_rank]
    if not any(racks):
        return None
    rack_by_member = {i: rack for i, rack in enumerate(racks) if rack}
    members_by_rack: dict[str, int] = {}
    for rack in rack_by_member.values():
        members_by_rack[rack] = members_by_rack.get(rack, 0) + 1
    racks_by_partition: dict[int, frozenset[str]] = {}
    width = len(names)
    for at, topic in enumerate(names):
        for number, racks_of in racks_of_partitions(topics[topic]):
            racks_by_partition[number * width + at] = racks_of
    near = {
        code: sum(members_by_rack.get(rack, 0) for rack in racks_of)
        for code, racks_of in racks_by_partition.items()
    }
    if use_racks(members_by_rack.keys(), racks_by_partition.values()):
        return Racks(rack_by_member, racks_by_partition, near)
    return Racks({}, {}, near)
