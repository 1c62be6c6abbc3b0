"""How often a process of the job looks for garbage that only cycles keep alive."""

from __future__ import annotations

import gc

_THRESHOLDS = (50_000, 20, 10)
"""New objects, then rounds of the young, then of the middle-aged; Python's own are 700, 10 and 10."""


def look_for_cycles_rarely() -> None:
    """Let this process look for garbage in cycles less often than Python does by itself.

    A batch is some hundred thousand small values that all live to its end, and no
    cycle among them. With Python's own thresholds looking through them again and again
    takes a quarter of the time of a backlog. What counts references is not touched.
    """
    gc.set_threshold(*_THRESHOLDS)
