"""The job for half an hour under churn: memory, files and the time of a batch stay where they are.

SOAK_MINUTES chooses another length. What was measured is printed (`make soak PYTEST_ARGS="-s ..."`).
"""

from __future__ import annotations

import json
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from deltalake import DeltaTable

from streaming.tables.delta import Tables
from streaming.tables.schemas import SCHEMA_BY_TABLE

pytestmark = [pytest.mark.spark, pytest.mark.slow]

MINUTES = float(os.environ.get("SOAK_MINUTES", "30"))
GROUPS = 200
EVENTS_A_SECOND = 25

CONF = """
[job]
tables = "{root}/tables"
checkpoint_location = "{root}/checkpoint"
trigger_interval_s = 2.0
tick_interval_s = 10.0
[[sources]]
name = "events"
format = "events"
from = "files"
path = "{root}/in"
[groups]
dedupe_window_ms = 120000
[batch]
snapshot_every_s = 20.0
[upkeep]
every_s = 60.0
compact_from_files = 20
vacuum_after_h = 1
[log]
format = "json"
[spark.options]
# A heap that is full after minutes: what the JVM takes beyond it would be a leak.
"spark.driver.memory" = "512m"
"""


def line(type_: str, event_time_ms: int, **fields: object) -> str:
    """Write one event."""
    return json.dumps({"type": type_, "event_time": event_time_ms, **fields})


def churn(seed: int) -> Iterator[str]:
    """Tell of members that come and go in many groups for ever, and now and then of a topic that changes."""
    rng = random.Random(seed)
    start_ms = time.time_ns() // 1_000_000
    members: dict[str, set[str]] = {f"g{group}": set() for group in range(GROUPS)}
    for topic in ("orders", "bills"):
        yield line("topic_changed", start_ms, topic=topic, partitions=12)
    number = 0
    while True:
        number += 1
        group_id = rng.choice(list(members))
        there = members[group_id]
        now_ms = max(time.time_ns() // 1_000_000, start_ms)
        if rng.random() < 0.001:
            topic = rng.choice(("orders", "bills"))
            yield line("topic_changed", now_ms, topic=topic, partitions=rng.randrange(8, 24))
        elif len(there) < 2 or (len(there) < 8 and rng.random() < 0.5):
            member_id = f"m{number}"
            there.add(member_id)
            topics = ["orders", "bills"][: rng.randrange(1, 3)]
            yield line("member_joined", now_ms, group_id=group_id, member_id=member_id, topics=topics)
        else:
            member_id = rng.choice(sorted(there))
            there.discard(member_id)
            yield line("member_left", now_ms, group_id=group_id, member_id=member_id)


def processes(root_pid: int) -> dict[str, list[int]]:
    """Find the job's processes by what they are: its own Python, the JVM, and Python workers."""
    parents: dict[int, int] = {}
    names: dict[int, str] = {}
    for directory in Path("/proc").iterdir():
        if not directory.name.isdigit():
            continue
        try:
            stat = (directory / "stat").read_text()
        except OSError:
            continue  # it has ended meanwhile
        name, rest = stat.partition("(")[2].rpartition(")")[::2]
        parents[int(directory.name)], names[int(directory.name)] = int(rest.split()[1]), name
    found: dict[str, list[int]] = {"driver": [root_pid], "jvm": [], "workers": []}
    below = {root_pid}
    while more := {pid for pid, parent in parents.items() if parent in below} - below:
        below |= more
    for pid in below - {root_pid}:
        found["jvm" if names[pid] == "java" else "workers"].append(pid)
    return found


def resident_mb(pids: list[int]) -> float:
    """Add up the resident memory of processes that no file is behind, in MB.

    Pages of libraries are theirs alone or shared as other processes come and go that use them too.
    """
    total = 0
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(field.split()[1]) for field in fields if field.startswith("Anonymous:"))
    return total / 1024


def slope(points: list[tuple[float, float]]) -> float:
    """Fit a line by least squares: the rise of the second number by the first."""
    return statistics.linear_regression(*zip(*points, strict=True)).slope


class Sample(NamedTuple):
    """What was seen at a moment, in hours from the start: memory by kind of process in MB, files by table."""

    hours: float
    memory_mb: dict[str, float]
    files: dict[str, int]


def live_files(tables: Path) -> dict[str, int]:
    """Count the files that each table is made of now; none before it is there."""
    there = (name for name in SCHEMA_BY_TABLE if DeltaTable.is_deltatable(str(tables / name)))
    return {name: len(DeltaTable(str(tables / name)).file_uris()) for name in there}


def batch_seconds(log: Path) -> list[float]:
    """Read from the job's log how long each batch took."""
    lines = [json.loads(line) for line in log.read_bytes().splitlines() if line.startswith(b"{")]
    return [line["total_s"] for line in lines if "total_s" in line]


def sixths(samples: list[Sample]) -> list[list[Sample]]:
    """Cut the samples into six parts of one length, in order."""
    size = len(samples) // 6
    return [samples[number * size : (number + 1) * size] for number in range(6)]


def test_half_an_hour_of_churn_leaves_nothing_behind(tmp_path: Path) -> None:
    """Memory hardly rises, no table gathers files, and the last batches take as long as the first.

    Caches fill and the JVM compiles for minutes, so the last sixth of the time is held against the one
    before it: at most a tenth more. The slopes are printed, for a run of hours.
    """
    (tmp_path / "in").mkdir()
    conf = tmp_path / "conf.toml"
    conf.write_text(CONF.format(root=tmp_path))
    log = (tmp_path / "log").open("wb")
    job = subprocess.Popen(
        [sys.executable, "-c", "from console.cli import main; main()", "run", "--conf", str(conf)],
        cwd=Path(__file__).parents[1],
        stderr=log,
        stdout=log,
    )
    story, written = churn(7), 0
    samples: list[Sample] = []
    began = time.monotonic()
    try:
        while (passed := time.monotonic() - began) < MINUTES * 60:
            lines = [next(story) for _ in range(EVENTS_A_SECOND)]
            hidden = tmp_path / "in" / f".{written:09d}"
            hidden.write_text("\n".join(lines) + "\n")
            hidden.rename(tmp_path / "in" / f"{written:09d}.jsonl")
            written += 1
            # As an operator would: what was read long ago need not lie there.
            (tmp_path / "in" / f"{written - 120:09d}.jsonl").unlink(missing_ok=True)
            assert job.poll() is None, (tmp_path / "log").read_text()[-3000:]
            if written % 10 == 0:
                found = processes(job.pid)
                memory = {name: resident_mb(pids) for name, pids in found.items()}
                samples.append(Sample(passed / 3600, memory, live_files(tmp_path / "tables")))
            time.sleep(max(0.0, 1 - (time.monotonic() - began - passed)))
        job.send_signal(signal.SIGTERM)
        assert job.wait(timeout=120) == 0
    finally:
        job.kill()
        log.close()
    later = [sample for sample in samples if sample.hours >= samples[-1].hours / 2]
    memory = {
        kind: [round(statistics.median(s.memory_mb[kind] for s in part)) for part in sixths(samples)]
        for kind in ("driver", "jvm", "workers")
    }
    slopes = {
        kind: slope([(sample.hours, sample.memory_mb[kind]) for sample in later])
        for kind in ("driver", "jvm", "workers")
    }
    seconds = batch_seconds(tmp_path / "log")
    quarter = len(seconds) // 4
    second, last = (statistics.median(part) for part in (seconds[quarter : 2 * quarter], seconds[-quarter:]))
    most_files = {name: max(sample.files.get(name, 0) for sample in later) for name in SCHEMA_BY_TABLE}
    report = [
        f"{MINUTES:g} min, {written * EVENTS_A_SECOND} events, {len(seconds)} batches",
        *(f"{kind}, MB, median of each sixth: {by_sixth}" for kind, by_sixth in memory.items()),
        "slopes, MB an hour: " + ", ".join(f"{kind} {rise:+.1f}" for kind, rise in slopes.items()),
        f"median batch: {second:.3f} s in the second quarter, {last:.3f} s in the last",
        f"most live files: {most_files}",
    ]
    sys.stdout.write("\n".join(["", *report, ""]))
    assert last < 1.5 * second
    assert max(most_files.values()) <= 100
    for kind, by_sixth in memory.items():
        assert by_sixth[-1] <= 1.1 * by_sixth[-2] + 10, (kind, by_sixth)
    totals = Tables(str(tmp_path / "tables")).read("generations", ["batch"]).to_pylist()
    read = [row["batch"] for row in totals if row["batch"]]
    assert sum(batch["rejected"] for batch in read) == 0
    assert sum(batch["records_read"] for batch in read) >= (written - 10) * EVENTS_A_SECOND
