"""Counts over the rows that the executors computed, so that the driver need not see the rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from streaming.groups.log_rows import WAITED, WENT_BACK

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


@dataclass(kw_only=True)
class Tally:
    """Counts over computed rows: rows per task, events by outcome, and rows with something to check."""

    rows_by_task: dict[int, int] = field(default_factory=dict)
    outcomes: Counter[str] = field(default_factory=Counter)
    checked: int = 0

    def starts(self, after: int) -> tuple[dict[int, int], int]:
        """Say at which number each task's rows begin, and where the numbers end."""
        starts, total = {}, after
        for task, count in sorted(self.rows_by_task.items()):
            starts[task] = total
            total += count
        return starts, total


def count_rows(rows: DataFrame) -> Tally:
    """Count all that is needed of computed rows in one job of Spark; see also batch.count_outcomes."""
    outcomes = ("applied", "duplicate", "ignored")

    def events_with(condition: Callable[[Column], Column]) -> Column:
        return F.sum(F.size(F.filter("events", condition)))

    counts = (
        rows.groupBy(F.spark_partition_id().alias("task"))
        .agg(
            F.count("*").alias("rows"),
            F.count("check_inputs").alias("checked"),
            *(events_with(_has_outcome(outcome)).alias(outcome) for outcome in outcomes),
            events_with(lambda e: F.coalesce(e["reason"], F.lit("")).contains(WENT_BACK)).alias("went_back"),
        )
        .collect()
    )
    tally = Tally()
    for row in counts:
        tally.rows_by_task[row["task"]] = row["rows"]
        tally.checked += row["checked"]
        for outcome in (*outcomes, "went_back"):
            tally.outcomes[outcome] += row[outcome]
    return tally


def _has_outcome(outcome: str) -> Callable[[Column], Column]:
    counted = [outcome, "kept"] if outcome == "applied" else [outcome]

    # A lambda inside the loop would need a second argument, which Spark takes for the element's index.
    def is_counted(event: Column) -> Column:
        has_waited = F.coalesce(event["reason"], F.lit("")).startswith(WAITED)
        return event["outcome"].isin(counted) & ~has_waited

    return is_counted
