"""Places where a test may kill the process, so that recovery is tested with a real `kill -9`.

For tests only: nothing happens unless the environment variable COUNTERPOISE_CRASH_AT
names a point, as `after_log` or, for the third time it is reached, `after_log:3`.
The points of a batch, in order:

    before_log             computed, nothing written
    log_files_written      a data file of the log lies there, no commit names it
    after_log              the log's commit stands, nothing is published
    after_<table>          that flat table is published (only batches with rows for it)
    before_sink            every table is published, nothing is sent to a sink (only batches with messages)
    after_sink             the sink's cluster has every message, nothing notes that it has
    before_snapshot        a snapshot is due, none of its tables written
    inside_snapshot        at least one snapshot table written, others not
    after_snapshot         all written, the tail not yet dropped
    before_spark_commit    all done, Spark has not noted the batch as finished
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable

CRASH_AT = "COUNTERPOISE_CRASH_AT"

_reached: Counter[str] = Counter()


def reach(point: str, leave_behind: Callable[[], object] | None = None) -> None:
    """Die here with SIGKILL when the environment says so.

    Args:
        point: the name of this place.
        leave_behind: called just before dying, to leave what a crash inside a
            library's call would leave (a data file that no commit names).
    """
    wanted, _, count = os.environ.get(CRASH_AT, "").partition(":")
    if wanted != point:
        return
    _reached[point] += 1
    if _reached[point] != int(count or "1"):
        return
    if leave_behind is not None:
        leave_behind()
    os.kill(os.getpid(), signal.SIGKILL)
