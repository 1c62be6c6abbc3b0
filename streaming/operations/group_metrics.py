"""What Prometheus sees of groups: gauges computed as it asks, and counters since the process started.

Nothing of this is kept for each group but the counters, and those of a bounded number
of groups. A group that is gone leaves no series behind.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from deltalake.exceptions import DeltaError
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from streaming.operations.group_counts import MOVES, GroupCounts
from streaming.operations.group_numbers import GroupNumbers, GroupReader

if TYPE_CHECKING:
    from prometheus_client import Metric

    from streaming.tables.delta import Tables
    from streaming.tables.log import Tail

_logger = logging.getLogger(__name__)

_GROUP = ["cluster", "group"]
_TOPIC = [*_GROUP, "topic"]

_GAUGES = {
    "members": ("members", "Members"),
    "members_without_partitions": ("members_without_partitions", "Members that own nothing"),
    "generation": ("generation_id", "The group's generation; KIP-848: its epoch"),
    "assignment_skew_ratio": ("skew_ratio", "Partitions of the busiest member by the mean"),
    "expected_diff_partitions": (
        "expected_diff",
        "Partitions that are not where the assignor would have them",
    ),
    "duplicate_owner_partitions": (
        "duplicate_owners",
        "Partitions with more than one owner; not of share groups",
    ),
}

_TOPIC_GAUGES = {
    "topic_members": ("members", "Members that own partitions of the topic"),
    "topic_assigned_partitions": ("assigned", "Partitions of the topic that have an owner"),
    "unassigned_partitions": ("unassigned", "Partitions of a subscribed topic that nobody owns"),
}


class _Deployment:
    """One deployment's tables and counters."""

    def __init__(self, root: str, counts: GroupCounts) -> None:
        self.reader = GroupReader(root)
        self.counts = counts
        self.numbers: GroupNumbers | None = None
        self.read_at = 0.0


class GroupMetrics(Collector):
    """Collects kafka_group_* of all deployments of the process."""

    def __init__(
        self, *, max_groups: int, cache_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Start with no deployment.

        Args:
            max_groups: how many groups of each deployment are shown.
            cache_s: for how long what was read of the tables is good enough.
            clock: seconds, never going back.
        """
        self._max_groups = max_groups
        self._cache_s = cache_s
        self._clock = clock
        self._deployments: dict[str, _Deployment] = {}
        self._lock = threading.Lock()

    def add(self, cluster: str, tables: Tables, tail: Tail) -> GroupCounts:
        """Show the groups of these tables from now on; gives the counters that its batches are to feed."""
        counts = GroupCounts(self._max_groups)
        counts.begin(tables, tail)
        with self._lock:
            self._deployments[cluster] = _Deployment(tables.root, counts)
        return counts

    def collect(self) -> Iterator[Metric]:
        """Make the families; tables that cannot be read now are left out and logged."""
        with self._lock:
            read = [
                (cluster, self._read(cluster, own), own.counts) for cluster, own in self._deployments.items()
            ]
        found = [(cluster, numbers, counts) for cluster, numbers, counts in read if numbers is not None]
        yield from _sizes(found)
        yield from _gauges([numbers for _, numbers, _ in found])
        yield from _counters(found)

    def _read(self, cluster: str, own: _Deployment) -> GroupNumbers | None:
        if own.numbers is not None and self._clock() - own.read_at < self._cache_s:
            return own.numbers
        try:
            own.numbers = own.reader.read(self._max_groups)
        except (DeltaError, OSError) as error:
            _logger.warning("metrics of cluster %s: %s", cluster, str(error).splitlines()[0])
            own.numbers = None
        own.read_at = self._clock()
        return own.numbers


Found = Sequence[tuple[str, GroupNumbers, GroupCounts]]


def _sizes(found: Found) -> Iterator[Metric]:
    known = GaugeMetricFamily("counterpoise_groups", "Groups in the tables", labels=["cluster"])
    left_out = GaugeMetricFamily(
        "counterpoise_groups_left_out", "Groups beyond http.max_groups, not shown here", labels=["cluster"]
    )
    for cluster, numbers, _ in found:
        known.add_metric([cluster], numbers.total)
        left_out.add_metric([cluster], numbers.total - numbers.groups.num_rows)
    yield known
    yield left_out


def _gauges(found: Sequence[GroupNumbers]) -> Iterator[Metric]:
    state = GaugeMetricFamily(
        "kafka_group_state", "1 for the state that the group is in", labels=[*_GROUP, "state"]
    )
    for numbers in found:
        for labels in _rows(numbers.groups, "cluster", "group_id", "group_state"):
            state.add_metric(labels, 1)
    yield state
    for name, (column, told) in _GAUGES.items():
        family = GaugeMetricFamily(f"kafka_group_{name}", told, labels=_GROUP)
        for numbers in found:
            _fill(family, numbers.groups, ("cluster", "group_id"), column)
        yield family
    for name, (column, told) in _TOPIC_GAUGES.items():
        family = GaugeMetricFamily(f"kafka_group_{name}", told, labels=_TOPIC)
        for numbers in found:
            _fill(family, numbers.topics, ("cluster", "group_id", "topic"), column)
        yield family


def _counters(found: Found) -> Iterator[Metric]:
    rebalances = CounterMetricFamily(
        "kafka_group_rebalances", "Generations with an assignment", labels=_GROUP
    )
    joins = CounterMetricFamily("kafka_group_member_joins", "Members that came", labels=_GROUP)
    leaves = CounterMetricFamily("kafka_group_member_leaves", "Members that went", labels=_GROUP)
    moves = CounterMetricFamily(
        "kafka_group_partitions_moved",
        "Partitions by what became of them; what moved is also revoked and assigned",
        labels=[*_GROUP, "kind"],
    )
    for _, numbers, counts in found:
        for labels in _rows(numbers.groups, "cluster", "group_id"):
            count = counts.of((labels[0], labels[1]))
            rebalances.add_metric(labels, count.rebalances)
            joins.add_metric(labels, count.joins)
            leaves.add_metric(labels, count.leaves)
            for kind in MOVES:
                moves.add_metric([*labels, kind], count.moves[kind])
    yield from (rebalances, joins, leaves, moves)


def _fill(family: GaugeMetricFamily, rows: Any, labels: Sequence[str], column: str) -> None:
    for named, value in zip(_rows(rows, *labels), rows[column].to_pylist(), strict=True):
        if value is not None:
            family.add_metric(named, value)


def _rows(table: Any, *columns: str) -> Iterator[list[str]]:
    return map(list, zip(*(table[column].to_pylist() for column in columns), strict=True))
