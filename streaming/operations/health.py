"""What one deployment's job is at: what /healthz and /readyz ask, and what its log lines belong to."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from streaming.log_context import telling

_MISSING = {
    "tables": "its tables are not open",
    "sinks": "its sinks are not connected",
    "batch": "no batch and no trigger without news has ended",
}


class JobHealth:
    """Told by the job, asked by the endpoint, from threads of their own."""

    def __init__(self, cluster: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Start with a job that has done nothing yet.

        Args:
            cluster: the deployment's name.
            clock: seconds, never going back.
        """
        self.cluster = cluster
        self._clock = clock
        self._lock = threading.Lock()
        self._missing = dict(_MISSING)
        self._demands: list[Callable[[], str | None]] = []
        self._batch: tuple[int, float] | None = None
        self._query_id: str | None = None
        self._end: str | None = None

    def demand(self, why_not: Callable[[], str | None]) -> None:
        """Let readiness depend on one thing more, asked each time: why it is missing, None if it is not."""
        with self._lock:
            self._demands.append(why_not)

    def reach(self, step: str) -> None:
        """Note that the job got so far: "tables", "sinks" or "batch"."""
        with self._lock:
            self._missing.pop(step, None)

    def begin(self, query_id: str) -> None:
        """Note that the query runs."""
        with self._lock:
            self._query_id = query_id

    def end(self, why: str) -> None:
        """Note that the job has ended or is about to; the first reason stays."""
        with self._lock:
            self._end = self._end or why

    @property
    def query_id(self) -> str | None:
        """Give the id of the job's query, None before it runs."""
        return self._query_id

    @property
    def is_running(self) -> bool:
        """Say whether the query runs and nothing has ended it."""
        with self._lock:
            return self._query_id is not None and self._end is None

    @contextmanager
    def running(self) -> Iterator[None]:
        """Cover the job's whole life: its log lines name the cluster, and its end is noted."""
        why = "it has stopped"
        try:
            with telling(cluster=self.cluster):
                yield
        except BaseException as error:
            why = f"it has ended with {type(error).__name__}: {_first_line(error)}"
            raise
        finally:
            self.end(why)

    @contextmanager
    def batch(self, batch_id: int) -> Iterator[None]:
        """Cover one batch, from Spark's call to its end: its log lines name it."""
        with self._lock:
            self._batch = (batch_id, self._clock())
        try:
            with telling(cluster=self.cluster, batch_id=batch_id):
                yield
            self.reach("batch")
        finally:
            with self._lock:
                self._batch = None

    def why_ended(self) -> str | None:
        """Say why the job runs no longer, None while it does or will."""
        with self._lock:
            return self._end

    def why_stuck(self, after_s: float) -> str | None:
        """Say which batch has run for longer than so many seconds, None for none; 0 = none ever does."""
        with self._lock:
            if self._batch is None or not after_s:
                return None
            batch_id, began = self._batch
        took_s = self._clock() - began
        return f"batch {batch_id} has run for {took_s:.0f} s" if took_s > after_s else None

    def why_not_ready(self) -> list[str]:
        """List what is missing until the job does its work; [] when it does."""
        with self._lock:
            if self._end is not None:
                return [self._end]
            missing, demands = list(self._missing.values()), list(self._demands)
        return [*missing, *(why for demand in demands if (why := demand()) is not None)]


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), "")
