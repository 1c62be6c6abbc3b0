"""Numbers of rows in what Spark reads: no shuffle, no order but that of each task."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

if TYPE_CHECKING:
    from pyspark.sql import Column


def row_in_task() -> Column:
    """Give a row's number in its task: the lower bits of what Spark calls its increasing id."""
    return F.monotonically_increasing_id().bitwiseAND(F.lit((1 << 33) - 1))
