"""A real kill -9 at every point of a batch and at any moment: the tables end as if nothing had been."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.kill_harness import Lives, Recording

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

DRIVER = {"batch__local_max_records": "20000"}
EXECUTORS = {"batch__local_max_records": "0"}

DRIVER_POINTS = (
    "after_take",
    "after_fence",
    "before_log",
    "log_files_written",
    "after_log",
    "after_events",
    "after_rejected_events",
    "after_assignment_deltas",
    "after_balance",
    "after_alert_events",
    "before_snapshot",
    "inside_snapshot",
    "inside_snapshot:3",
    "after_snapshot",
    "before_spark_commit",
    "before_spark_commit:3",
)
UPKEEP_POINTS = ("inside_upkeep", "inside_upkeep:5")
EXECUTOR_POINTS = (
    "after_fence", "before_log", "after_log", "after_events", "inside_snapshot", "before_spark_commit"
)  # fmt: skip
HALF = 9
FILES = 24
FILES_OF_A_HALF = 14
LONG = 80
KILLS = 200
"""At random moments in `make soak`; each costs the start of a JVM."""


def first_half(lives: Lives) -> None:
    """Be killed at each of the first points in turn, in upkeep and at work, be stopped, and live on."""
    for number, point in enumerate(DRIVER_POINTS[:HALF]):
        lives.die_at(point, once=number % 2 == 0)
    lives.die_at(UPKEEP_POINTS[0], once=False)
    lives.kill(1.2, once=False, whole_group=False)
    lives.stop(0.9)
    lives.live_on()


def second_half(lives: Lives) -> None:
    """Likewise at the other points, in upkeep, stopped at work and killed at the start."""
    for number, point in enumerate(DRIVER_POINTS[HALF:]):
        lives.die_at(point, once=number % 2 == 0)
    lives.die_at(UPKEEP_POINTS[1], once=False)
    lives.stop(1.3)
    lives.kill(0.8, once=False, whole_group=True)
    lives.live_on()


def test_killed_at_every_point_the_tables_end_the_same(spark: SparkSession, tmp_path: Path) -> None:
    """Each life is killed one point further, or stopped, and recovers what the life before it left behind.

    Every other life is one of `counterpoise run` without end; upkeep goes on in those only. Two jobs live
    side by side, each on tables of its own.
    """
    small = Recording(spark, tmp_path / "small", 2)
    with Lives(small, tmp_path / "archived") as lives, ThreadPoolExecutor(1) as pool:
        archived = pool.submit(lives.archive_classes)
        recording = Recording(spark, tmp_path / "in", FILES_OF_A_HALF)
        classes = archived.result()
    with (
        Lives(recording, tmp_path / "first", classes=classes, **DRIVER) as first,
        Lives(recording, tmp_path / "second", classes=classes, **DRIVER) as second,
        ThreadPoolExecutor(2) as pool,
    ):
        for ended in [pool.submit(first_half, first), pool.submit(second_half, second)]:
            ended.result()
    classes.unlink()  # More than a hundred megabytes.
    for lives in (first, second):
        lives.hold_tables_against_the_whole()
    assert first.kills + second.kills == 20


@pytest.mark.slow
def test_killed_at_every_point_of_a_large_batch(spark: SparkSession, tmp_path: Path) -> None:
    """On the executors' path, whose commit is Spark's own; held against what the driver's path computes."""
    recording = Recording(spark, tmp_path / "in", FILES)
    with Lives(recording, tmp_path / "killed", **EXECUTORS) as lives:
        for once in (True, False):
            for point in EXECUTOR_POINTS:
                lives.die_at(point, once=once)
        for point in UPKEEP_POINTS:
            lives.die_at(point, once=False)
        rng = random.Random(1)
        for _ in range(10):
            lives.end_randomly(rng)
        lives.finish()


@pytest.mark.slow
def test_killed_at_any_moment_the_tables_end_the_same(spark: SparkSession, tmp_path: Path) -> None:
    """Two hundred kills, seeded, in any of a life's moments, the JVM with it or left over, and stops between.

    One chain of lives after another, each as long as its input lasts.
    """
    recording = Recording(spark, tmp_path / "in", LONG)
    rng, kills, chains = random.Random(2), 0, 0
    while kills < KILLS:
        chains += 1
        with Lives(recording, tmp_path / f"killed-{chains}", **DRIVER) as lives:
            while lives.batches_left() and kills + lives.kills < KILLS:
                lives.end_randomly(rng)
            lives.finish()
            kills += lives.kills
            print(f"chain {chains}: {lives.kills} kills, {lives.stops} stops; {kills} kills so far")  # noqa: T201
    assert kills == KILLS
