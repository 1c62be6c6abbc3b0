"""What a job tells of itself as it works: its health always, its metrics where somebody asks for them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

    from streaming.operations.group_counts import GroupCounts
    from streaming.operations.group_metrics import GroupMetrics
    from streaming.operations.health import JobHealth
    from streaming.operations.metrics import JobMetrics
    from streaming.tables.delta import Tables
    from streaming.tables.lease import Lease
    from streaming.tables.log import Tail


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """The metrics that all deployments of the process share."""

    job: JobMetrics
    groups: GroupMetrics


class JobReport:
    """One deployment's report: told by its job, in the job's threads."""

    def __init__(self, health: JobHealth, metrics: Metrics | None = None) -> None:
        """Report to these; without metrics nothing is counted."""
        self.health = health
        self._metrics = metrics
        self._counts: GroupCounts | None = None

    def open(self, lease: Lease, tables: Tables, tail: Tail) -> None:
        """Tell that the tables are open, under this lease, and what they hold."""
        self.health.demand(lambda: None if lease.is_held else "its lease is lost")
        self.health.reach("tables")
        if self._metrics is not None:
            self._counts = self._metrics.groups.add(self.health.cluster, tables, tail)
            self._metrics.job.note_tables(self.health.cluster, tables)

    def end_batch(
        self,
        stages: Mapping[str, Any],
        rows: pa.Table | None,
        tables: Tables,
        tail: Tail,
        offsets_sources: Collection[str],
    ) -> None:
        """Tell of a batch that has ended.

        Args:
            stages: as Job.timings has it.
            rows: its rows of the log; None when the log held it already.
            tables: after it.
            tail: after it.
            offsets_sources: the sources of records of `__consumer_offsets`.
        """
        if self._metrics is None:
            return
        self._metrics.job.note_batch(self.health.cluster, stages, rows, tail, offsets_sources)
        self._metrics.job.note_tables(self.health.cluster, tables)
        if rows is not None and self._counts is not None:
            self._counts.take(rows)
