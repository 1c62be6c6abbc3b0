"""How a process of the job gives memory back: how often Python looks for cycles, how soon delta-rs does."""

from __future__ import annotations

import gc
import os

_THRESHOLDS = (50_000, 20, 10)
"""New objects, then rounds of the young, then of the middle-aged; Python's own are 700, 10 and 10."""


def look_for_cycles_rarely() -> None:
    """Let this process look for garbage in cycles less often than Python does by itself.

    A batch is some hundred thousand small values that all live to its end, and no
    cycle among them. With Python's own thresholds looking through them again and again
    takes a quarter of the time of a backlog. What counts references is not touched.
    """
    gc.set_threshold(*_THRESHOLDS)


def give_memory_back_soon() -> None:
    """Let delta-rs give the memory that it no longer uses back to the system after a second, not after ten.

    It brings an allocator of its own, jemalloc, which reads this once, when the library is
    loaded. Under steady commits ten seconds of what they threw away were half of the process
    (docs/sizing.md). What the environment says already stands.
    """
    os.environ.setdefault("_RJEM_MALLOC_CONF", "dirty_decay_ms:1000")
