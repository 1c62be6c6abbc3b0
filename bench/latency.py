"""From a file landing to its rows in `assignment_deltas`, at 1, 10 and 100 changed groups a second.

Files land whether the job keeps up or not, up to ten a second, and each line changes another group of the
state. A line is done when the commit stands in the table's log that holds the group's deltas of that moment
of event time. The floor is the time until the same lines stand in a Delta table to which Spark appends them
and does nothing else, measured in a run before. Both look for files every TRIGGER_S.
"""

from __future__ import annotations

import json
import statistics
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from bench import Figure, Scale
from bench.running_job import (
    MEMBERS,
    bench_session,
    build_state,
    change_line,
    floor_query,
    group_id_of,
    job_query,
    put,
    round_ms,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

RATES = (1, 10, 100)
TRIGGER_S = 0.2
_FILES_A_SECOND = 10
_STATE = 2_000
_WARM_UP_S = 5
_MEASURED_S = 60
_FLOOR_S = 30
_PATIENCE_S = 300.0

_Change = tuple[str, int]
"""(group_id, event_time_ms): no group changes twice in one moment."""


class _Changes:
    """The changes in their order: group after group of the state, and then all of them once more."""

    def __init__(self) -> None:
        self._count = 0

    def take(self, count: int) -> dict[_Change, str]:
        """Give the next changes and their lines."""
        places = range(self._count, self._count + count)
        self._count += count
        found = {}
        for visit, group in (divmod(place, _STATE) for place in places):
            found[group_id_of(group), round_ms(visit)] = change_line(group, visit, round_ms(visit))
        return found


def run(scale: Scale, say: Callable[[str], None]) -> list[Figure]:
    """Measure every rate, the floor first."""
    figures = []
    with bench_session() as (spark, root):
        say(f"latency: building the state: {_STATE} groups of {MEMBERS}")
        build_state(spark, root, _STATE)
        floors = {}
        with floor_query(spark, root, TRIGGER_S):
            changes = _Changes()
            for rate in RATES:
                say(f"latency: the floor at {rate} a second")
                table = _Table(root / "floor-table", ["value"], _of_lines)
                floors[rate] = _latencies(root / "floor", changes, rate, _FLOOR_S, table)
        with job_query(spark, root, TRIGGER_S) as (job, _):
            changes = _Changes()
            for rate in RATES:
                say(f"latency: the job at {rate} a second")
                earlier = {stages["batch_id"] for stages in job.timings}
                table = _Table(root / "tables" / "assignment_deltas", ["group_id", "event_time"], _of_deltas)
                found = _latencies(root / "events", changes, rate, _MEASURED_S, table)
                stages = [stages for stages in job.timings if stages["batch_id"] not in earlier]
                figures.append(_figure(rate, found, floors[rate], stages))
    return figures


def _latencies(folder: Path, changes: _Changes, rate: int, seconds: int, table: _Table) -> list[float]:
    """Let changes land at a rate and give, of each, the seconds until the table has what came of it."""
    files_a_second = min(rate, _FILES_A_SECOND)
    landed: dict[_Change, float] = {}
    warm_ups: set[_Change] = set()
    began = time.time()
    for number in range((_WARM_UP_S + seconds) * files_a_second):
        lines = changes.take(rate // files_a_second)
        time.sleep(max(0.0, began + number / files_a_second - time.time()))
        put(folder, f"turn-{rate:06d}-{number:06d}.jsonl", lines.values())
        now = time.time()
        landed.update(dict.fromkeys(lines, now))
        if number < _WARM_UP_S * files_a_second:
            warm_ups.update(lines)
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        seen = table.look()
        missing = len(landed.keys() - seen.keys())
        if not missing:
            return [seen[change] - at for change, at in landed.items() if change not in warm_ups]
        if time.monotonic() > deadline:
            raise TimeoutError(f"{missing} of {len(landed)} changes did not come within {_PATIENCE_S} s")
        time.sleep(1)


class _Table:
    """A Delta table that is written, and when each change was first to be seen in it."""

    def __init__(
        self, path: Path, columns: list[str], changes_of: Callable[[pa.Table], Iterable[_Change]]
    ) -> None:
        self._path, self._columns, self._changes_of = path, columns, changes_of
        self._seen: dict[_Change, float] = {}
        self._read = {file.name for file in self._commits()}

    def _commits(self) -> list[Path]:
        return sorted((self._path / "_delta_log").glob("*.json"))

    def look(self) -> dict[_Change, float]:
        """Read the commits since the last look."""
        for commit in self._commits():
            if commit.name in self._read:
                continue
            self._read.add(commit.name)
            at = commit.stat().st_mtime
            actions = map(json.loads, commit.read_text(encoding="utf-8").splitlines())
            for added in (action["add"] for action in actions if "add" in action):
                rows = pq.read_table(self._path / unquote(added["path"]), columns=self._columns)
                for change in self._changes_of(rows):
                    self._seen.setdefault(change, at)
        return self._seen


def _of_lines(rows: pa.Table) -> Iterable[_Change]:
    events = map(json.loads, rows["value"].to_pylist())
    return [(event["group_id"], event["event_time"]) for event in events]


def _of_deltas(rows: pa.Table) -> Iterable[_Change]:
    times = rows["event_time"].cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64())
    return set(zip(rows["group_id"].to_pylist(), times.to_pylist(), strict=True))


def _figure(rate: int, found: list[float], floor: list[float], stages: list[dict[str, Any]]) -> Figure:
    names = dict.fromkeys(
        name for batch in stages for name, value in batch.items() if isinstance(value, float)
    )
    means = {name: sum(batch.get(name, 0.0) for batch in stages) / len(stages) for name in names}
    return Figure(
        comparison="latency",
        case=f"{rate} changed groups a second, p50",
        seconds=statistics.median(found),
        against="the same lines appended by Spark, p50",
        against_seconds=statistics.median(floor),
        samples=len(found),
        details={
            "p99": _p99(found),
            "p99 of the floor": _p99(floor),
            "slowest": max(found),
            "batches": len(stages),
            **{f"{name} of a batch": mean for name, mean in means.items()},
        },
    )


def _p99(found: list[float]) -> float:
    """Give the value that one in a hundred is above; of fewer than a hundred the highest."""
    return sorted(found)[max(0, -(-len(found) * 99 // 100) - 1)]
