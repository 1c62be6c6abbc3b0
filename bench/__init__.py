"""Benchmarks: one file per comparison, one command for all (`python -m bench`).

A comparison measures something of ours and something to hold it against, taking
turns, and gives a `Figure` for each case. Nothing here judges; who reads does.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import asdict, dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How large to measure: smaller numbers give an answer sooner, and another one.

    `state_groups` are the groups that exist before anything is measured, `rounds`
    how often each case is measured; its figures are medians over them. `backlog_records`
    are the records of `__consumer_offsets` that are read in one go; `partitions` are those
    of the largest group that `optimal` assigns.
    """

    state_groups: int = 2_000
    rounds: int = 12
    backlog_records: int = 1_000_000
    partitions: int = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One case of one comparison.

    `seconds` is ours and `against_seconds` that of `against`, both medians of
    `samples`. `details` are further numbers in seconds unless their name says
    otherwise; where they say how the time divides, they are means over the samples.
    """

    comparison: str
    case: str
    seconds: float
    against: str
    against_seconds: float
    samples: int
    details: Mapping[str, float] = field(default_factory=dict)

    @property
    def ratio(self) -> float:
        """Say how many times as long ours takes."""
        return self.seconds / self.against_seconds

    def as_json(self) -> dict[str, Any]:
        """Give plain values, the ratio included, rounded to what was measured."""
        found = {**asdict(self), "ratio": self.ratio}
        return {key: _rounded(value) for key, value in found.items()}


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    # Digits, not decimals: some of what is measured takes microseconds.
    return float(f"{value:.4g}") if isinstance(value, float) else value


def growth_exponent(sizes: Iterable[float], seconds: Iterable[float]) -> float:
    """Fit seconds ~ size ** exponent by least squares of their logarithms; of two points or more."""
    fit = statistics.linear_regression(list(map(math.log, sizes)), list(map(math.log, seconds)))
    return fit.slope


_RUNS = {
    "micro-batch": "bench.micro_batch:run",
    "many-changed": "bench.micro_batch:run_many",
    "state-size": "bench.micro_batch:run_state_sizes",
    "topic-event": "bench.topic_event:run",
    "latency": "bench.latency:run",
    "assignors": "bench.assignors:run",
    "optimal": "bench.optimal:run",
    "decode": "bench.decode:run",
    "backlog": "bench.backlog:run",
}
"""Comparison -> the function that runs it, imported only when it is asked for."""

NAMES = tuple(_RUNS)


def run_comparison(name: str, scale: Scale, say: Callable[[str], None]) -> list[Figure]:
    """Run one comparison of NAMES; `say` hears how far it got."""
    module, function = _RUNS[name].split(":")
    figures: list[Figure] = getattr(import_module(module), function)(scale, say)
    return figures
