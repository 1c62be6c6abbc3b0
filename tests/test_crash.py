"""A real kill -9 at every point of a batch: the tables end as if the job had never stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deployments import contents, event, make_settings, totals, write_lines

pytestmark = pytest.mark.spark

RUN = """
import sys
from pathlib import Path
from conf.settings import load_settings
from streaming.run import run_job
options = dict(option.split("=", 1) for option in sys.argv[2:])
run_job(load_settings(Path(sys.argv[1]), {}, options), once=True, adopt=False)
"""

DRIVER_POINTS = (
    "before_log",
    "log_files_written",
    "after_log",
    "after_events",
    "after_assignment_deltas",
    "before_snapshot",
    "inside_snapshot",
    "inside_snapshot:3",
    "after_snapshot",
    "before_spark_commit",
)
EXECUTOR_POINTS = ("before_log", "after_log")


def lives(root: Path, points: tuple[str, ...], most_local_records: str) -> None:
    """Start the job again and again, each life killed at the next point, the last one to the end."""
    options = {
        "job.tables": str(root / "tables"),
        "job.checkpoint_location": str(root / "checkpoint"),
        "batch.shards": "2",
        "batch.snapshot_every_batches": "2",
        "batch.local_max_records": most_local_records,
        "sources.events.max_files_per_trigger": "1",
    }
    for point in (*points, ""):
        done = subprocess.run(
            [sys.executable, "-c", RUN, str(root / "conf.toml"), *(f"{k}={v}" for k, v in options.items())],
            env={**os.environ, "COUNTERPOISE_CRASH_AT": point},
            cwd=Path(__file__).parent.parent,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        wanted = -signal.SIGKILL if point else 0
        assert done.returncode == wanted, f"{point or 'last life'}: {done.stderr[-3000:]}"


def write_story(directory: Path, files: int) -> None:
    """Write files, each a batch of its own: members join, topics grow, lines are broken."""
    lines_by_file = {}
    for number in range(files):
        lines = [
            event(
                "member_joined",
                10 * number + group,
                group_id=f"g{group}",
                member_id=f"m{number}",
                topics=["orders"],
                protocols=["cooperative-sticky"],
            )
            for group in range(4)
        ]
        grown = event("topic_changed", 10 * number, topic="orders", partitions=4 + number)
        lines_by_file[f"{number:02d}.jsonl"] = [grown, *lines, "{broken"]
    write_lines(directory, lines_by_file)
    for number, name in enumerate(sorted(lines_by_file)):
        # Spark takes files in the order of their modification times.
        os.utime(directory / name, (1_795_225_000 + number, 1_795_225_000 + number))


@pytest.mark.parametrize(
    ("points", "most_local_records"),
    [
        pytest.param(DRIVER_POINTS, "5000", id="driver"),
        pytest.param(EXECUTOR_POINTS, "0", id="executors", marks=pytest.mark.slow),
    ],
)
def test_killed_at_every_point_the_tables_end_the_same(
    tmp_path: Path, points: tuple[str, ...], most_local_records: str
) -> None:
    """Each life is killed one point further and recovers what the life before it left behind."""
    files = 10
    write_story(tmp_path / "in", files)
    # What the killed lives must equal is computed by the small path, undisturbed.
    whole = make_settings(tmp_path / "whole")
    lives(tmp_path / "whole", (), "5000")
    killed = make_settings(tmp_path / "killed")
    lives(tmp_path / "killed", points, most_local_records)
    assert contents(killed) == contents(whole)
    assert totals(killed) == totals(whole)
    assert totals(whole)["records_read"] == 6 * files
