"""What the job does now and then beside its batches: ticks, looks at clusters, upkeep."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(slots=True)
class _Duty:
    every_s: float
    action: Callable[[], object]
    due_at: float


class Duties:
    """Actions that are due every so many seconds, carried out by whoever asks, one after another."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Start with none; `clock` gives seconds and never goes back."""
        self._clock = clock
        self._duties: list[_Duty] = []

    def add(self, every_s: float, action: Callable[[], object]) -> None:
        """Let an action be due every so many seconds, the first time after as many; 0 = never."""
        if every_s:
            self._duties.append(_Duty(every_s, action, self._clock() + every_s))

    def run_due(self) -> None:
        """Carry out what is due. One that comes late is not made up for: its next turn counts from now."""
        for duty in self._duties:
            if self._clock() >= duty.due_at:
                duty.action()
                duty.due_at = self._clock() + duty.every_s
