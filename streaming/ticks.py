"""What time it is, as an input: the live job writes it down and reads it back like any other event.

A timer must fire when no event comes, and must fire at the same place when the batch
is replayed. So the clock never enters a computation: it is written as a `time_advanced`
line into a directory that is one more source, logged, and gone through in source order.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import orjson
import pyarrow.fs as pafs


class TickWriter:
    """Writes one small file for each tick; Spark deletes those it has read."""

    def __init__(self, directory: str) -> None:
        """Make the directory."""
        self._filesystem, self._directory = pafs.FileSystem.from_uri(directory)
        self._filesystem.create_dir(self._directory, recursive=True)
        self._last_ms = 0

    def write(self, clusters: Sequence[str]) -> None:
        """Tell these clusters the present time, in a file that appears whole or not at all."""
        # Names must rise, so a clock set back waits until it has caught up.
        self._last_ms = now_ms = max(time.time_ns() // 1_000_000, self._last_ms + 1)
        lines = [
            orjson.dumps({"type": "time_advanced", "event_time": now_ms, "cluster": cluster}) + b"\n"
            for cluster in clusters
        ]
        hidden = f"{self._directory}/.tick-{now_ms:013d}"
        with self._filesystem.open_output_stream(hidden) as file:
            file.write(b"".join(lines))
        self._filesystem.move(hidden, f"{self._directory}/tick-{now_ms:013d}.jsonl")
