"""A micro-batch of the whole job, held against the floor: its input appended once.

Both are streaming queries of one session, both read files of JSON lines, and both
are timed by Spark's own measure of a trigger, from looking for files to having
noted the batch as done. The floor's query appends the lines to one Delta table and
does nothing else; the job parses, computes, checks, commits and publishes.

The two take turns, batch by batch, and so do the cases, so that a slow minute of
the machine slows all of them. The events: in each round one member leaves every
other group of the case, of ten members, and comes back to the rest; the next round
does it the other way round. Rounds lie two minutes of event time apart, so the wait
for revocations that a return begins ends by its timer before the group's next event:
each batch holds one event a group, and makes one generation of half of them and two
of the other half.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import Figure, Scale
from conf.settings import Settings, load_settings
from streaming.job import Job
from streaming.session import start_session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

CHANGED_GROUPS = (100, 1_000)
_MEMBERS = 10
_TOPICS = 20
_PARTITIONS = 30
_START_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z; any fixed time will do
_ROUNDS_START_MS = _START_MS + 3_600_000  # after the state's own events, whatever its size
_ROUND_MS = 120_000  # longer than the default wait for revocations
_FOLD_MS = 1_000
_GROUPS_A_FILE = 400
_WARM_UP_ROUNDS = 2
_PATIENCE_S = 600.0

# Both queries look for files this often: as often as possible would be two of them
# listing directories all the time, on the cores that are measured.
_TRIGGER_S = 1.0


@dataclass(slots=True)
class _Samples:
    """What was measured of one case; `stages` are the job's own timings of each batch."""

    job: list[float] = field(default_factory=list)
    floor: list[float] = field(default_factory=list)
    stages: list[dict[str, Any]] = field(default_factory=list)


def run(scale: Scale, say: Callable[[str], None]) -> list[Figure]:
    """Measure every case of CHANGED_GROUPS over one state.

    Args:
        scale: at least as many groups of state as the cases change together.
        say: hears how far it got.
    """
    needed = sum(CHANGED_GROUPS)
    if scale.state_groups < needed:
        raise ValueError(f"state_groups is {scale.state_groups}; the cases change {needed} groups")
    with tempfile.TemporaryDirectory(prefix="counterpoise-bench-") as folder:
        root = Path(folder)
        for name in ("events", "floor"):
            (root / name).mkdir()
        spark = start_session(_settings(root))
        try:
            say(f"micro-batch: building the state: {scale.state_groups} groups of {_MEMBERS}")
            _build_state(spark, root, scale.state_groups)
            return _figures(_measure(spark, root, scale, say))
        finally:
            spark.stop()


def _settings(root: Path, *, files_at_once: int = 0, groups: Mapping[str, int] | None = None) -> Settings:
    """Give the default settings, apart from places, pace and what is given."""
    written: dict[str, dict[str, Any]] = {
        "job": {
            "tables": f"{root}/tables",
            "checkpoint_location": f"{root}/checkpoint",
            "trigger_interval_s": _TRIGGER_S,
            "tick_interval_s": 0.0,
        },
        "groups": dict(groups or {}),
    }
    lines = [
        *(
            line
            for section, values in written.items()
            for line in (f"[{section}]", *(f"{key} = {json.dumps(value)}" for key, value in values.items()))
        ),
        "[[sources]]",
        'name = "events"',
        'format = "events"',
        'from = "files"',
        f"path = {json.dumps(str(root / 'events'))}",
        f"max_files_per_trigger = {files_at_once}",
    ]
    file = root / "bench.toml"
    file.write_text("\n".join(lines), encoding="utf-8")
    return load_settings(file, {}, {})


# The input


def _line(kind: str, event_time_ms: int, **fields: Any) -> str:
    return json.dumps({"type": kind, "event_time": event_time_ms, **fields})


def _group_id(number: int) -> str:
    return f"group-{number:06d}"


def _member_id(number: int, member: int) -> str:
    return f"{_group_id(number)}-member-{member}"


def _join(number: int, member: int, event_time_ms: int) -> str:
    return _line(
        "member_joined",
        event_time_ms,
        group_id=_group_id(number),
        member_id=_member_id(number, member),
        client_id=f"client-{member}",
        client_host=f"10.0.0.{member}",
        topics=[f"topic-{number % _TOPICS}"],
    )


def _state_files(groups: int) -> Iterator[list[str]]:
    """Make every topic and group, some groups a file.

    The members of a group join within the time that is folded into one generation,
    and the file ends when that time is over.
    """
    topics = [
        _line("topic_changed", _START_MS, topic=f"topic-{topic}", partitions=_PARTITIONS)
        for topic in range(_TOPICS)
    ]
    for place, first in enumerate(range(0, groups, _GROUPS_A_FILE)):
        now_ms = _START_MS + 2 * _FOLD_MS * place
        numbers = range(first, min(first + _GROUPS_A_FILE, groups))
        joins = [
            _join(number, member, now_ms)
            for number in numbers
            for member in range(_MEMBERS if _is_leaving(number, 0) else _MEMBERS - 1)
        ]
        yield [*([] if place else topics), *joins, _line("time_advanced", now_ms + 2 * _FOLD_MS)]


def _is_leaving(number: int, round_number: int) -> bool:
    """Say whether the group's last member leaves in this round, or comes back: by turns."""
    return (number + round_number) % 2 == 0


def _change_lines(numbers: Iterable[int], round_number: int) -> list[str]:
    """Take the last member out of every other group and bring it back to the rest."""
    event_time_ms = _ROUNDS_START_MS + _ROUND_MS * round_number
    last = _MEMBERS - 1
    return [
        _line(
            "member_left",
            event_time_ms,
            group_id=_group_id(number),
            member_id=_member_id(number, last),
            reason="leave",
        )
        if _is_leaving(number, round_number)
        else _join(number, last, event_time_ms)
        for number in numbers
    ]


def _put(folder: Path, name: str, lines: Iterable[str]) -> None:
    """Put a file where a stream looks for files, whole or not at all."""
    hidden = folder / f".{name}"
    with hidden.open("w", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)
    hidden.rename(folder / name)


# The two queries


def _build_state(spark: SparkSession, root: Path, groups: int) -> None:
    """Run the job over the first events, which fold each group's joins into one generation."""
    for place, lines in enumerate(_state_files(groups)):
        _put(root / "events", f"state-{place:06d}.jsonl", lines)
    Job(spark, _settings(root, files_at_once=1, groups={"rebalance_delay_ms": _FOLD_MS})).run(once=True)


@contextmanager
def _floor_query(spark: SparkSession, root: Path) -> Iterator[StreamingQuery]:
    """Append every line of the floor's files to one Delta table, and do nothing else."""
    query = (
        spark.readStream.format("text")
        .load(str(root / "floor"))
        .writeStream.format("delta")
        .option("checkpointLocation", str(root / "floor-checkpoint"))
        .trigger(processingTime=f"{_TRIGGER_S} seconds")
        .start(str(root / "floor-table"))
    )
    try:
        yield query
    finally:
        query.stop()


@contextmanager
def _job_query(spark: SparkSession, root: Path) -> Iterator[tuple[Job, StreamingQuery]]:
    """Run the job beside this thread, as it runs in earnest, and stop it as SIGTERM would."""
    job = Job(spark, _settings(root))
    others = {query.id for query in spark.streams.active}
    stop = threading.Event()
    failures: list[BaseException] = []

    def work() -> None:
        try:
            job.run(once=False, stop=stop)
        except BaseException as error:  # noqa: BLE001 - raised again where the job's user waits
            failures.append(error)

    thread = threading.Thread(target=work, name="job")
    thread.start()
    try:
        query = None
        while query is None and not failures:
            time.sleep(0.1)
            query = next((query for query in spark.streams.active if query.id not in others), None)
        if query is not None:
            yield job, query
    finally:
        stop.set()
        thread.join()
        # In place of whoever waited in vain for the query: this is why.
        if failures:
            raise failures[0]


class _Batches:
    """The batches of one query, as Spark reports them."""

    def __init__(self, query: StreamingQuery) -> None:
        self._query = query
        self._seen = -1

    def next_of(self, rows: int) -> tuple[int, float]:
        """Wait for the next batch, of so many rows, and give its number and the seconds of its trigger."""
        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline:
            for progress in self._query.recentProgress:
                if progress.batchId > self._seen and progress.numInputRows:
                    self._seen = progress.batchId
                    if progress.numInputRows != rows:
                        found = f"batch {progress.batchId} has {progress.numInputRows} rows"
                        raise RuntimeError(f"{found}; it must have the {rows} that were put in")
                    return progress.batchId, progress.durationMs["triggerExecution"] / 1000
            if not self._query.isActive:
                raise RuntimeError(f"the query stopped: {self._query.exception()}")
            time.sleep(0.05)
        raise TimeoutError(f"no batch of {rows} rows came within {_PATIENCE_S} s")


# The comparison


def _measure(
    spark: SparkSession, root: Path, scale: Scale, say: Callable[[str], None]
) -> dict[int, _Samples]:
    """Let the job and the floor take turns over the same files, round by round, case by case."""
    samples = {case: _Samples() for case in CHANGED_GROUPS}
    with _floor_query(spark, root) as floor_query, _job_query(spark, root) as (job, job_query):
        floor, ours = _Batches(floor_query), _Batches(job_query)
        for round_number in range(_WARM_UP_ROUNDS + scale.rounds):
            say(f"micro-batch: round {round_number + 1} of {_WARM_UP_ROUNDS + scale.rounds}")
            first = 0
            for case, found in samples.items():
                lines = _change_lines(range(first, first + case), round_number)
                first += case
                name = f"{round_number:06d}-{case:06d}.jsonl"
                _put(root / "floor", name, lines)
                _, floor_s = floor.next_of(case)
                # A name above the state's, because files apply in the order of their names.
                _put(root / "events", f"turn-{name}", lines)
                batch_id, job_s = ours.next_of(case)
                if round_number >= _WARM_UP_ROUNDS:
                    found.floor.append(floor_s)
                    found.job.append(job_s)
                    found.stages.append(next(t for t in job.timings if t["batch_id"] == batch_id))
    return samples


def _figures(samples: dict[int, _Samples]) -> list[Figure]:
    """Take the medians, and for the stages the means, so that they add up."""
    return [
        Figure(
            comparison="micro-batch",
            case=f"{case} changed groups",
            seconds=statistics.median(found.job),
            against="the same lines appended once by Spark",
            against_seconds=statistics.median(found.floor),
            samples=len(found.job),
            details=_details(found),
        )
        for case, found in samples.items()
    ]


def _details(found: _Samples) -> dict[str, float]:
    """Say where the time goes: the job's own stages, the rest of the trigger, and the slowest batch."""
    count = len(found.job)
    names = dict.fromkeys(
        name for stages in found.stages for name, value in stages.items() if isinstance(value, float)
    )
    means = {name: sum(stages.get(name, 0.0) for stages in found.stages) / count for name in names}
    in_job = means.pop("total")
    return {
        **means,
        "rest of the trigger": statistics.mean(found.job) - in_job,
        "slowest": max(found.job),
        "slowest floor": max(found.floor),
    }
