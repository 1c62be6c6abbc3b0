"""What partitions weigh in groups that go by their loads, and how evenly that lies on the members."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import fsum
from typing import TYPE_CHECKING, Any

from assignors import Assignment, Subscription, TopicMetadata
from assignors.optimal import assign_weighted, find_bound

if TYPE_CHECKING:
    from streaming.model import TopicView, Version

Weights = dict[str, tuple[float, ...]]
"""topic -> the weight of each of its partitions, from 0; an absent one weighs 1 a partition."""


def weights_of(topics: TopicView, names: Iterable[str]) -> Weights:
    """Weigh the partitions of these topics by what was told last.

    A partition that was not there then weighs the mean of those that were, which is what a
    keyed topic's partitions come to; a load of one that is gone is left out.
    """
    weights: Weights = {}
    for name in names:
        state = topics.get(name)
        if state is not None and state.loads:
            more = state.partition_count - len(state.loads)
            mean = fsum(state.loads) / len(state.loads)
            weights[name] = (*state.loads[: state.partition_count], *[mean] * more)
    return weights


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadNumbers:
    """The highest sum of a member's weights, what it cannot be below, and the share by which it is above."""

    highest: float
    bound: float
    distance: float


def measure_loads(version: Version) -> LoadNumbers | None:
    """Measure how evenly loads lie.

    None for a group that does not go by them, has no members, or is in the middle of a move.
    """
    if version.weights is None or not version.members or not version.is_final:
        return None
    highest = max(
        fsum(_weighed(version, topic, partitions) for topic, partitions in owned.items())
        for owned in ({}, *version.assignment.values())
    )
    # The bound is right to a billionth, so that it may come out above.
    bound = min(find_bound(**_group_of(version)), highest)
    distance = round(highest / bound - 1, 6) if bound else 0.0
    return LoadNumbers(highest=highest, bound=bound, distance=distance)


def load_columns(version: Version) -> dict[str, float | None]:
    """Give what was measured as columns of schemas._BALANCE."""
    loads = measure_loads(version)
    if loads is None:
        return {"load_highest": None, "load_bound": None, "load_distance": None}
    return {"load_highest": loads.highest, "load_bound": loads.bound, "load_distance": loads.distance}


def reachable_load(version: Version) -> float:
    """Search for an assignment from here with any number of moves, and give its highest load."""
    previous = {
        member: [(topic, partition) for topic, partitions in owned.items() for partition in partitions]
        for member, owned in version.assignment.items()
    }
    found = assign_weighted(**_group_of(version), previous=Assignment.of(previous))
    return max(found.loads.values())


def _weighed(version: Version, topic: str, partitions: Iterable[int]) -> float:
    weights = (version.weights or {}).get(topic)
    if weights is None:
        return float(len(list(partitions)))
    return fsum(weights[partition] for partition in partitions if partition < len(weights))


def _group_of(version: Version) -> dict[str, Any]:
    """Put a version with members and weights into the words of the assignors."""
    wanted: Mapping[str, frozenset[str]] = version.subscribed
    names = sorted(frozenset[str]().union(*wanted.values()))
    counts = {name: version.topic_counts.get(name, 0) for name in names}
    return {
        "topics": {name: TopicMetadata.of_count(count) for name, count in counts.items() if count},
        "subscriptions": {m: Subscription(topics=tuple(sorted(topics))) for m, topics in wanted.items()},
        "weights": {name: weights for name, weights in (version.weights or {}).items() if counts.get(name)},
    }
