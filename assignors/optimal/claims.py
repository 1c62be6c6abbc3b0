"""What members claim to own, as codes: from their subscriptions, or from an earlier Assignment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain, repeat
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from assignors.optimal.kit import compiled

if TYPE_CHECKING:
    from assignors.model import Assignment, Subscription
    from assignors.optimal.steps import Ints

NOTHING = -1
"""The code of a claim that does not count."""


class Claims(NamedTuple):
    """By claim: the partition's code or NOTHING, and the member's place."""

    codes: Ints
    claimants: Ints


class Codes:
    """Finds a partition's code.

    A topic in one row, numbered from 0, needs but its first code and its count; of
    any other each number is looked up.
    """

    def __init__(self, spans: Mapping[str, tuple[int, int]], others: Mapping[str, Mapping[int, int]]) -> None:
        """Know the topics by name: first code and count of the plain ones, codes by number of the others."""
        self.spans = spans
        self.others = others

    def find(self, topic: str, number: int) -> int:
        """Give the code, NOTHING for a partition that there is not."""
        span = self.spans.get(topic)
        if span is None:
            return self.others[topic].get(number, NOTHING) if topic in self.others else NOTHING
        return span[0] + number if 0 <= number < span[1] else NOTHING


def read_subscriptions(by_place: Sequence[Subscription], codes: Codes) -> Claims:
    """Read a small group's claims out of its members' `owned_partitions`."""
    claims = Claims([], [])
    for place, subscription in enumerate(by_place):
        owned = subscription.owned_partitions
        if owned:
            claims.codes.extend([codes.find(topic, number) for topic, number in owned])
            claims.claimants.extend(repeat(place, len(owned)))
    return claims


def read_many_subscriptions(by_place: Sequence[Subscription], codes: Codes) -> Claims:
    """Read a large group's claims; arrays of int32."""
    import numpy as np

    sizes = [len(subscription.owned_partitions) for subscription in by_place]
    total = sum(sizes)
    names = chain.from_iterable(map(itemgetter(0), s.owned_partitions) for s in by_place)
    numbers = chain.from_iterable(map(itemgetter(1), s.owned_partitions) for s in by_place)
    topics = [*codes.spans, *codes.others]
    index = {topic: place for place, topic in enumerate(topics)}
    return _find_all(
        codes,
        topics,
        np.cumsum([0, *sizes]),
        np.arange(len(sizes)),
        np.fromiter(map(index.get, names, repeat(NOTHING)), np.int32, total),
        np.fromiter(numbers, np.int64, total),
    )


def read_assignment(previous: Assignment, places: Mapping[str, int], codes: Codes) -> Claims:
    """Read a small group's claims out of who owned what."""
    members, topics, starts, indexes, numbers = previous.flat()
    claims = Claims([], [])
    for at, member in enumerate(members):
        place = places.get(member)
        if place is not None:
            for claim in range(starts[at], starts[at + 1]):
                claims.codes.append(codes.find(topics[indexes[claim]], numbers[claim]))
                claims.claimants.append(place)
    return claims


def read_large_assignment(previous: Assignment, places: Mapping[str, int], codes: Codes) -> Claims:
    """Read a large group's claims out of who owned what; arrays of int32."""
    import numpy as np

    members, topics, starts, indexes, numbers = previous.flat()
    holders = np.array([places.get(member, NOTHING) for member in members], dtype=np.int64)
    return _find_all(
        codes,
        list(topics),
        np.array(starts, dtype=np.int64),
        holders,
        np.asarray(indexes, dtype=np.int32),
        np.asarray(numbers, dtype=np.int32),
    )


def _find_all(
    codes: Codes, topics: list[str], starts: Any, holders: Any, indexes: Any, numbers: Any
) -> Claims:
    """Find the codes of (topic's place in `topics` or NOTHING, number), as partitions.find_codes has them."""
    import numpy as np

    spans = [codes.spans.get(topic, (0, 0)) for topic in topics]
    firsts, counts = (np.array([span[end] for span in spans], dtype=np.int64) for end in (0, 1))
    found, claimants = (np.empty(len(indexes), dtype=np.int32) for _ in range(2))
    compiled().do["find_codes"](starts, holders, indexes, numbers, firsts, counts, found, claimants)
    for place, topic in enumerate(topics):
        if topic in codes.others:
            for claim in np.flatnonzero((indexes == place) & (claimants >= 0)).tolist():
                found[claim] = codes.others[topic].get(int(numbers[claim]), NOTHING)
    return Claims(found, claimants)  # type: ignore[arg-type]
