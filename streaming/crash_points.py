"""Places where a test may kill the process or make it sleep: recovery is tested with a real `kill -9`.

For tests only: nothing happens unless the environment variable COUNTERPOISE_CRASH_AT
names a point, as `after_log` or, for the third time it is reached, `after_log:3`.
With COUNTERPOISE_SLEEP_AT the process stops there until it gets a SIGCONT.
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

Before the first batch:

    after_take             the lease is taken, the tables are as the one before left them
    after_fence            the log has the new holder's token, nothing is put right or caught up

Beside the batches:

    inside_upkeep          the upkeep of at least one table is done, of others not
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable

CRASH_AT = "COUNTERPOISE_CRASH_AT"
SLEEP_AT = "COUNTERPOISE_SLEEP_AT"

_reached: Counter[str] = Counter()


def reach(point: str, leave_behind: Callable[[], object] | None = None) -> None:
    """Die here with SIGKILL, or stop with SIGSTOP, when the environment says so.

    Args:
        point: the name of this place.
        leave_behind: called just before dying, to leave what a crash inside a
            library's call would leave (a data file that no commit names).
    """
    dies, sleeps = (_is_here(name, point) for name in (CRASH_AT, SLEEP_AT))
    if dies or sleeps:
        if leave_behind is not None:
            leave_behind()
        os.kill(os.getpid(), signal.SIGKILL if dies else signal.SIGSTOP)


def _is_here(name: str, point: str) -> bool:
    """Say whether the variable names this point, and the time that it is reached."""
    wanted, _, count = os.environ.get(name, "").partition(":")
    if wanted != point:
        return False
    _reached[f"{name}:{point}"] += 1
    return _reached[f"{name}:{point}"] == int(count or "1")
