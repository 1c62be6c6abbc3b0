"""A job at work on groups of ten members: its input, its state, and the floor that it is held against.

Both are streaming queries of one session, both read files of JSON lines, and both
are timed by Spark's own measure of a trigger, from looking for files to having
noted the batch as done. The floor's query appends the lines to one Delta table and
does nothing else; the job parses, computes, checks, commits and publishes.

A group is a number: `copy * COPY + built`, where `built` is one that the job itself has
computed, and a copy of it stands beside it in the snapshot tables under an id of its own.
"""

from __future__ import annotations

import json
import re
import statistics
import tempfile
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import write_deltalake

from bench import Figure
from conf.settings import Settings, load_settings
from streaming.job import Job
from streaming.session import start_session
from streaming.tables.delta import Tables
from streaming.tables.schemas import SCHEMA_BY_TABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

MEMBERS = 10
TOPICS = 20
_TOPIC_NAMES = tuple([f"topic-{number}" for number in range(TOPICS)])
PARTITIONS = 30
COPY = 1_000_000
_START_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z; any fixed time will do
_ROUNDS_START_MS = _START_MS + 3_600_000  # after the state's own events, whatever its size
_ROUND_MS = 120_000  # longer than the default wait for revocations
_FOLD_MS = 1_000
_GROUPS_A_FILE = 400
_ROWS_A_COPY = 10_000
_PATIENCE_S = 600.0

# Both queries look for files this often: as often as possible would be two of them
# listing directories all the time, on the cores that are measured.
TRIGGER_S = 1.0


@contextmanager
def bench_session() -> Iterator[tuple[SparkSession, Path]]:
    """Start Spark over a directory that goes when it ends."""
    with tempfile.TemporaryDirectory(prefix="counterpoise-bench-") as folder:
        spark = start_session(settings_of(Path(folder)))
        try:
            yield spark, Path(folder)
        finally:
            spark.stop()


@dataclass(slots=True)
class Samples:
    """What was measured of one case; `stages` are the job's own timings of each batch."""

    job: list[float] = field(default_factory=list)
    floor: list[float] = field(default_factory=list)
    stages: list[dict[str, Any]] = field(default_factory=list)

    def figure(self, comparison: str, case: str) -> Figure:
        """Take the medians, and for the stages the means, so that they add up."""
        return Figure(
            comparison=comparison,
            case=case,
            seconds=statistics.median(self.job),
            against="the same lines appended once by Spark",
            against_seconds=statistics.median(self.floor),
            samples=len(self.job),
            details=self.details(),
        )

    def details(self) -> dict[str, float]:
        """Say where the time goes: the job's own stages, the rest of the trigger, and the slowest batch."""
        count = len(self.job)
        names = dict.fromkeys(
            name for stages in self.stages for name, value in stages.items() if isinstance(value, float)
        )
        means = {name: sum(stages.get(name, 0.0) for stages in self.stages) / count for name in names}
        in_job = means.pop("total")
        return {
            **means,
            "rest of the trigger": statistics.mean(self.job) - in_job,
            "slowest": max(self.job),
            "slowest floor": max(self.floor),
        }


def settings_of(
    root: Path,
    *,
    files_at_once: int = 0,
    groups: Mapping[str, int] | None = None,
    trigger_s: float = TRIGGER_S,
) -> Settings:
    """Give the default settings, apart from places, pace and what is given."""
    written: dict[str, dict[str, Any]] = {
        "job": {
            "tables": f"{root}/tables",
            "checkpoint_location": f"{root}/checkpoint",
            "trigger_interval_s": trigger_s,
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


def event_line(kind: str, event_time_ms: int, **fields: Any) -> str:
    """Write one event."""
    return json.dumps({"type": kind, "event_time": event_time_ms, **fields})


def round_ms(round_number: int) -> int:
    """Say when a round's events happen: so far behind the last that every wait it began is over."""
    return _ROUNDS_START_MS + _ROUND_MS * round_number


def group_id_of(group: int) -> str:
    """Name a group; all names are equally long, so that one can be put in another's place."""
    return f"group-{group % COPY:06d}-{group // COPY:03d}"


def reads_one_topic(group: int) -> dict[str, Any]:
    """Subscribe a group to one of TOPICS topics."""
    return {"topics": [f"topic-{group % TOPICS}"]}


def _member_id(group: int, member: int) -> str:
    return f"{group_id_of(group)}-member-{member}"


def _join(group: int, member: int, event_time_ms: int, reads: Callable[[int], Mapping[str, Any]]) -> str:
    return event_line(
        "member_joined",
        event_time_ms,
        group_id=group_id_of(group),
        member_id=_member_id(group, member),
        client_id=f"client-{member}",
        client_host=f"10.0.0.{member}",
        **reads(group),
    )


def _state_files(
    groups: int, topics: Sequence[str], reads: Callable[[int], Mapping[str, Any]]
) -> Iterator[list[str]]:
    """Make every topic and group, some groups a file.

    The members of a group join within the time that is folded into one generation,
    and the file ends when that time is over.
    """
    known = [event_line("topic_changed", _START_MS, topic=topic, partitions=PARTITIONS) for topic in topics]
    for place, first in enumerate(range(0, groups, _GROUPS_A_FILE)):
        now_ms = _START_MS + 2 * _FOLD_MS * place
        joins = [
            _join(group, member, now_ms, reads)
            for group in range(first, min(first + _GROUPS_A_FILE, groups))
            for member in range(MEMBERS if _is_leaving(group, 0) else MEMBERS - 1)
        ]
        yield [*([] if place else known), *joins, event_line("time_advanced", now_ms + 2 * _FOLD_MS)]


def _is_leaving(group: int, visit: int) -> bool:
    """Say whether the group's last member leaves at this visit, or comes back: by turns."""
    return (group + visit) % 2 == 0


def change_line(group: int, visit: int, event_time_ms: int) -> str:
    """Take the last member out of a group, or bring it back: by turns, visit by visit."""
    last = MEMBERS - 1
    if not _is_leaving(group, visit):
        return _join(group, last, event_time_ms, reads_one_topic)
    return event_line(
        "member_left",
        event_time_ms,
        group_id=group_id_of(group),
        member_id=_member_id(group, last),
        reason="leave",
    )


def put(folder: Path, name: str, lines: Iterable[str]) -> None:
    """Put a file where a stream looks for files, whole or not at all."""
    hidden = folder / f".{name}"
    with hidden.open("w", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)
    hidden.rename(folder / name)


# The state


def build_state(
    spark: SparkSession,
    root: Path,
    groups: int,
    topics: Sequence[str] = _TOPIC_NAMES,
    reads: Callable[[int], Mapping[str, Any]] = reads_one_topic,
) -> None:
    """Run the job over the first events, which fold each group's joins into one generation."""
    (root / "events").mkdir(parents=True)
    for place, lines in enumerate(_state_files(groups, topics, reads)):
        put(root / "events", f"state-{place:06d}.jsonl", lines)
    Job(spark, settings_of(root, files_at_once=1, groups={"rebalance_delay_ms": _FOLD_MS})).run(once=True)


def copy_groups(root: Path, copies: range, wanted: Callable[[int], bool] = lambda _: True) -> None:
    """Add copies of the built groups to the snapshots, which is where the job looks groups up.

    Every file of a table spans all built groups, so none can be passed over when some are looked up.

    Args:
        root: where the job has built its state, and stopped.
        copies: the numbers of the copies; 0 are the built ones themselves.
        wanted: says of which built groups there shall be copies.
    """
    tables = Tables(str(root / "tables"))
    for name in ("groups", "assignments"):
        rows = tables.read(name, SCHEMA_BY_TABLE[name].names)
        # Earlier copies end otherwise.
        built = [group_id.endswith("-000") for group_id in rows["group_id"].to_pylist()]
        rows = rows.filter(pa.array(built, pa.bool_()))
        groups = [int(group_id[6:12]) for group_id in rows["group_id"].to_pylist()]
        rows = rows.filter(pa.array([wanted(group) for group in groups], pa.bool_()))
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_table(rows)
        written = sink.getvalue().to_pybytes()
        at_once = max(1, _ROWS_A_COPY // max(1, rows.num_rows))
        for first in range(copies.start, copies.stop, at_once):
            these = [
                # Ids are all of one length, so the buffers they lie in stay what they are.
                pa.ipc.open_stream(re.sub(rb"(group-\d{6})-000", rb"\1-%03d" % copy, written)).read_all()
                for copy in range(first, min(first + at_once, copies.stop))
            ]
            write_deltalake(tables.delta_table(name), pa.concat_tables(these), mode="append")


# The two queries


@contextmanager
def floor_query(spark: SparkSession, root: Path, trigger_s: float = TRIGGER_S) -> Iterator[StreamingQuery]:
    """Append every line of the files in `root/floor` to one Delta table, and do nothing else."""
    (root / "floor").mkdir(parents=True)
    query = (
        spark.readStream.format("text")
        .load(str(root / "floor"))
        .writeStream.format("delta")
        .option("checkpointLocation", str(root / "floor-checkpoint"))
        .trigger(processingTime=f"{round(trigger_s * 1000)} milliseconds")
        .start(str(root / "floor-table"))
    )
    try:
        yield query
    finally:
        query.stop()


@contextmanager
def job_query(
    spark: SparkSession, root: Path, trigger_s: float = TRIGGER_S
) -> Iterator[tuple[Job, StreamingQuery]]:
    """Run the job beside this thread, as it runs in earnest, and stop it as SIGTERM would."""
    job = Job(spark, settings_of(root, trigger_s=trigger_s))
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


class Batches:
    """The batches of one query, as Spark reports them."""

    def __init__(self, query: StreamingQuery) -> None:
        """Begin with the first batch of a query that has just been started."""
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


class Turns:
    """One job under measurement: gives it files and takes the times of the batches that come of them."""

    def __init__(self, root: Path, job: Job, query: StreamingQuery) -> None:
        """Measure this job, which reads `root/events`."""
        self._root, self._job, self._batches = root, job, Batches(query)

    def take(self, name: str, lines: Sequence[str]) -> tuple[float, dict[str, Any]]:
        """Let the job take one batch of these lines: the seconds of its trigger, and its stages."""
        # A name above the state's, because files apply in the order of their names.
        put(self._root / "events", f"turn-{name}", lines)
        batch_id, seconds = self._batches.next_of(len(lines))
        return seconds, next(t for t in self._job.timings if t["batch_id"] == batch_id)


class FloorTurns:
    """The floor under measurement."""

    def __init__(self, root: Path, query: StreamingQuery) -> None:
        """Measure this query, which reads `root/floor`."""
        self._root, self._batches = root, Batches(query)

    def take(self, name: str, lines: Sequence[str]) -> float:
        """Let the floor append these lines: the seconds of its trigger."""
        put(self._root / "floor", name, lines)
        return self._batches.next_of(len(lines))[1]
