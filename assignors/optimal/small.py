"""The optimal assignment of a small group whose members all read the same, with as little ado as can be.

Most groups are such. The answer is that of partitions.level, which any group of equals could be
sent through; here no numbers are given to what needs none, which takes a third of the time.
"""

from __future__ import annotations

from collections.abc import Mapping

from assignors.model import Assignment, Subscription, TopicMetadata
from assignors.optimal.kit import LEAST_LARGE


def assign_small_equals(
    topics: Mapping[str, TopicMetadata], subscriptions: Mapping[str, Subscription]
) -> Assignment | None:
    """Assign as find_optimum does, or give None where it takes more than is done here.

    That is where members list different topics or are in racks, partitions are not
    numbered from 0, a partition is claimed twice, or there are too many.
    """
    members = sorted(subscriptions)
    by_place = [subscriptions[member] for member in members]
    if not by_place:
        return None
    wanted = by_place[0].topics
    for subscription in by_place:
        if subscription.topics != wanted or subscription.rack_id is not None:
            return None
    names: list[str] = []
    of_topics: list[int] = []
    numbers: list[int] = []
    starts_of: dict[str, int] = {}
    counts: dict[str, int] = {}
    for name in sorted(set(wanted)):
        topic = topics.get(name)
        if not topic:
            continue
        partitions = topic.partitions
        if type(partitions) is not range or partitions.start or len(numbers) + len(partitions) > LEAST_LARGE:
            return None
        starts_of[name], counts[name] = len(numbers), len(partitions)
        of_topics += [len(names)] * len(partitions)
        numbers += partitions
        names.append(name)
    many, total = len(members), len(numbers)
    taken = bytearray(total)
    owned: list[list[int]] = []
    for subscription in by_place:
        codes = []
        for topic_name, number in subscription.owned_partitions:
            if topic_name in counts and 0 <= number < counts[topic_name]:
                code = starts_of[topic_name] + number
                if taken[code]:
                    return None
                taken[code] = 1
                codes.append(code)
        owned.append(codes)
    if any(taken):
        dealt = _level(owned, taken, total)
    else:
        dealt = [list(range(place, total, many)) for place in range(many)]
    starts = [0]
    flat: list[int] = []
    for codes in dealt:
        flat += codes
        starts.append(len(flat))
    listed = Assignment(members, names, starts, [of_topics[c] for c in flat], [numbers[c] for c in flat])
    return listed.in_order(subscriptions)


def _level(owned: list[list[int]], taken: bytearray, total: int) -> list[list[int]]:
    """Do what partitions.level does."""
    least, larger = divmod(total, len(owned))
    quotas = []
    for codes in owned:
        is_larger = larger > 0 and len(codes) > least
        larger -= is_larger
        quotas.append(least + is_larger)
    line: list[int] = []
    for place, codes in enumerate(owned):
        codes.sort()
        size, quota = len(codes), quotas[place]
        if larger > 0 and quota == least:
            larger -= 1
            quotas[place] = quota = least + 1
        if size < quota:
            line.append(place)
        elif size > quota:
            kept = []
            for seen, code in enumerate(codes):
                if ((seen + 1) * quota + size - 1) // size == (seen * quota + size - 1) // size:
                    taken[code] = 0
                else:
                    kept.append(code)
            owned[place] = kept
    if line:
        changed = list(line)
        at = 0
        following: list[int] = []
        for code in range(total):
            if not taken[code]:
                if at == len(line):
                    line, following, at = following, [], 0
                place = line[at]
                at += 1
                owned[place].append(code)
                if len(owned[place]) < quotas[place]:
                    following.append(place)
        for place in changed:
            owned[place].sort()
    return owned
