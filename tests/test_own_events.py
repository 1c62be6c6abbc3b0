"""What the job tells itself is read exactly, and leaves no list that grows for ever."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from deltalake import DeltaTable

import streaming.job
from streaming.job import Job
from streaming.sources.records import Source
from streaming.sources.streams import sources_of
from streaming.tables.delta import JobError, Tables
from streaming.tables.log import Log
from streaming.tables.own_events import OWN_EVENTS, OwnEvents, check_place, keep_short, last_not_needed
from tests.deployments import START_MS, make_settings, story, totals, write_lines
from tests.kill_harness import ROOT, RUN
from tests.test_stream_plumbing import Deployment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from conf.settings import Settings

STORY = sum(map(len, story().values()))


def tick(second: int) -> dict[str, Any]:
    """Make the event that tells the time so many seconds after the story began."""
    return {"type": "time_advanced", "event_time": START_MS + second * 1000, "cluster": "default"}


def tell(settings: Settings, *seconds: int) -> None:
    """Tell the time as a job does, each in a commit of its own."""
    tables = Tables(settings.job.tables)
    own = OwnEvents(tables, Log(tables))
    for second in seconds:
        own.write([tick(second)])


def told(settings: Settings) -> list[tuple[str, str]]:
    """List the job's own events that were taken in: (path, outcome), by path."""
    rows = Tables(settings.job.tables).read("events", ["source", "path", "outcome"]).to_pylist()
    return sorted((row["path"], row["outcome"]) for row in rows if row["source"] == OWN_EVENTS)


def numbered(*numbers: int) -> list[tuple[str, str]]:
    """Give what `told` says when these were applied, once each."""
    return [(f"{number:013d}", "applied") for number in numbers]


def let_hours_pass(settings: Settings) -> None:
    """Make the files of the table's own log two hours older."""
    hours_ago = time.time() - 7200
    for file in Path(settings.job.tables, OWN_EVENTS, "_delta_log").iterdir():
        os.utime(file, (hours_ago, hours_ago))


def shorten(settings: Settings) -> None:
    """Do what a round of upkeep does to the table, without keeping files for an hour."""
    log = Log(Tables(settings.job.tables))
    keep_short(f"{settings.job.tables}/{OWN_EVENTS}", last_not_needed(log), kept_h=0)


def commits_of(settings: Settings) -> set[int]:
    """List the versions whose commits the table's own log still has."""
    return {int(file.stem) for file in Path(settings.job.tables, OWN_EVENTS, "_delta_log").glob("*.json")}


def files_below(directory: Path) -> int:
    """Count the files."""
    return sum(path.is_file() for path in directory.rglob("*"))


def log_batch(deployment: Deployment, files: Mapping[str, int], last: str) -> None:
    """Log a batch that has read these of the job's own events."""
    sources = {OWN_EVENTS: {"files": files, "last": last}}
    deployment.commit(source_end=deployment.log.source_end(sources))
    deployment.restart()


class TestTable:
    """The table by itself."""

    @pytest.fixture
    def deployment(self, tmp_path: Path) -> Deployment:
        """Give empty tables."""
        return Deployment(tmp_path / "tables")

    def rows(self, deployment: Deployment) -> list[tuple[int, int]]:
        """Give (number, seconds told), by number."""
        rows = DeltaTable(deployment.tables.location(OWN_EVENTS)).to_pyarrow_table().to_pylist()
        told = ((row["number"], orjson.loads(row["value"])["event_time"] - START_MS) for row in rows)
        return sorted((number, ms // 1000) for number, ms in told)

    def test_events_appear_together_and_numbers_go_on(self, deployment: Deployment) -> None:
        """Each write is a commit with the next number, also after a restart; no events are no commit."""
        own = OwnEvents(deployment.tables, deployment.log)
        own.write([tick(1), tick(2)])
        own.write([])
        OwnEvents(deployment.tables, deployment.log).write([tick(3)])
        # The first does not know of the second's commit yet.
        own.write([tick(4)])
        assert self.rows(deployment) == [(1, 1), (1, 2), (2, 3), (3, 4)]
        assert DeltaTable(deployment.tables.location(OWN_EVENTS)).version() == 3

    def test_a_number_that_was_read_never_comes_again(self, deployment: Deployment) -> None:
        """With the table deleted numbers go on behind the log's, or --adopt would take new events for old."""
        log_batch(deployment, {f"{41:013d}": 1}, f"{41:013d}")
        OwnEvents(deployment.tables, deployment.log).write([tick(1)])
        assert self.rows(deployment) == [(42, 1)]

    def test_what_the_last_batch_read_stays(self, deployment: Deployment) -> None:
        """Upkeep deletes what earlier batches read; the last may come again, and later ones are unread."""
        own = OwnEvents(deployment.tables, deployment.log)
        for second in range(1, 7):
            own.write([tick(second)])
        location = deployment.tables.location(OWN_EVENTS)
        assert keep_short(location, last_not_needed(deployment.log)) == (6, 6, 0, 0)
        log_batch(deployment, {f"{number:013d}": 1 for number in (1, 2, 3, 4)}, f"{4:013d}")
        assert last_not_needed(deployment.log) == 0
        log_batch(deployment, {f"{5:013d}": 1}, f"{5:013d}")
        before, after, rows, _ = keep_short(location, last_not_needed(deployment.log)) or (0, 0, 0, 0)
        assert (before, after, rows) == (6, 2, 4)
        assert self.rows(deployment) == [(5, 5), (6, 6)]
        log_batch(deployment, {}, f"{5:013d}")
        assert last_not_needed(deployment.log) == 5

    def test_commits_that_are_not_read_stay_however_old(self, deployment: Deployment) -> None:
        """A stream that waits for a sink for hours still finds the commits from its last batch on."""
        settings = make_settings(deployment.root.parent)
        own = OwnEvents(deployment.tables, deployment.log)
        location = deployment.tables.location(OWN_EVENTS)
        own.write([tick(1)])
        for _ in range(2):
            keep_short(location, 1, kept_h=0)
            own.write([tick(2)])
            let_hours_pass(settings)
        before = commits_of(settings)
        for _ in range(2):
            keep_short(location, 1, kept_h=0)
            let_hours_pass(settings)
        # The table was made at version 0; number 1 came with 1.
        assert commits_of(settings) >= before - {0, 1}
        keep_short(location, 3, kept_h=0)
        assert not before & commits_of(settings) - {max(before)}

    @pytest.mark.parametrize(
        ("place", "words"),
        [
            ({"logOffset": 7}, "written by an earlier release"),
            ({"reservoirId": "other", "reservoirVersion": 1}, "made anew since"),
            ({"reservoirId": None, "reservoirVersion": 9}, "ends at version 1: it was put back"),
        ],
    )
    def test_a_place_that_the_table_does_not_have_is_told(
        self, deployment: Deployment, place: dict[str, Any], words: str
    ) -> None:
        """Each way in which Spark's place and the table do not fit is an error that names --adopt."""
        OwnEvents(deployment.tables, deployment.log).write([tick(1)])
        own_id = DeltaTable(deployment.tables.location(OWN_EVENTS)).metadata().id
        if place.get("reservoirId", "") is None:
            place["reservoirId"] = own_id
        with pytest.raises(JobError, match=rf"checkpoint /c .*{words}.*--adopt"):
            check_place(deployment.tables, "/c", place)
        check_place(deployment.tables, "/c", {"reservoirId": own_id, "reservoirVersion": 2})
        check_place(deployment.tables, "/c", None)
        shutil.rmtree(deployment.tables.location(OWN_EVENTS))
        with pytest.raises(JobError, match=r"--adopt"):
            check_place(deployment.tables, "/c", place)

    def test_only_files_of_earlier_releases_are_removed(self, deployment: Deployment) -> None:
        """The directory of ticks goes; one that holds anything else is not ours and stays."""
        earlier = deployment.root / "_ticks"
        earlier.mkdir()
        for name in ("tick-1795225094000.jsonl", ".tick-1795225094001", "notes.txt"):
            (earlier / name).write_text("")
        OwnEvents(deployment.tables, deployment.log)
        assert len(list(earlier.iterdir())) == 3
        (earlier / "notes.txt").unlink()
        OwnEvents(deployment.tables, deployment.log)
        assert not earlier.exists()


def sources_of_earlier_release(spark: SparkSession, settings: Settings, tables_root: str) -> list[Source]:
    """Let the job read its own events from files, as the first releases did."""
    directory = f"{tables_root}/_ticks"
    ticks = Source(
        name="_ticks",
        format="events",
        kind="files",
        location=directory,
        root=f"file:{directory}",
        cluster="c",
    )
    return [*sources_of(spark, settings, tables_root)[:-1], ticks]


@pytest.mark.spark
class TestStream:
    """The table as a source of the stream."""

    @pytest.fixture
    def settings(self, tmp_path: Path) -> Settings:
        """Give a deployment with the story as its input."""
        write_lines(tmp_path / "in", story())
        return make_settings(tmp_path / "job")

    def run(self, spark: SparkSession, settings: Settings, *, adopt: bool = False) -> None:
        """Take in what there is."""
        Job(spark, settings, adopt=adopt).run(once=True)

    def test_three_hundred_ticks_leave_a_bounded_number_of_files(
        self, spark: SparkSession, settings: Settings
    ) -> None:
        """After upkeep 300 ticks leave as much in the checkpoint as 150, and few files in the table."""
        counts = []
        for first in (1, 152):
            tell(settings, *range(first, first + 150))
            self.run(spark, settings)
            shorten(settings)
            let_hours_pass(settings)
            # What the last batch read stays, so there is one more.
            tell(settings, first + 150)
            self.run(spark, settings)
            shorten(settings)
            at = (Path(settings.job.checkpoint_location) / "sources", Path(settings.job.tables, OWN_EVENTS))
            counts.append([*map(files_below, at)])
        assert told(settings) == numbered(*range(1, 303))
        # No list of files that were read; and of 302 events the last one's file, some commits, a checkpoint.
        assert counts[1][0] == counts[0][0]
        assert max(in_table for _, in_table in counts) < 20

    @pytest.mark.parametrize(
        "point", [pytest.param("before_log", marks=pytest.mark.slow), "before_spark_commit"]
    )
    def test_a_batch_that_comes_again_finds_the_same_events(
        self, spark: SparkSession, settings: Settings, point: str
    ) -> None:
        """Killed before the log has them or before Spark notes them, with upkeep between: each comes once."""
        self.run(spark, settings)
        tell(settings, 500, 530)
        options = [
            f"job.tables={settings.job.tables}",
            f"job.checkpoint_location={settings.job.checkpoint_location}",
            "batch.shards=2",
        ]
        conf = Path(settings.job.tables).parent / "conf.toml"
        died = subprocess.run(
            [sys.executable, "-c", RUN, str(conf), *options],
            env={**os.environ, "COUNTERPOISE_CRASH_AT": point},
            cwd=ROOT,
            capture_output=True,
            timeout=600,
        )
        assert died.returncode == -9, died.stderr[-2000:]
        tell(settings, 560)
        shorten(settings)
        self.run(spark, settings)
        assert told(settings) == numbered(1, 2, 3)
        assert totals(settings)["records_read"] == STORY + 3

    def test_a_checkpoint_of_an_earlier_release_is_refused_and_adopted_anew(
        self, spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its source of files does not fit: the error says what to do, and that done nothing comes twice."""
        earlier = Path(settings.job.tables) / "_ticks"
        with monkeypatch.context() as patched:
            patched.setattr(streaming.job, "sources_of", sources_of_earlier_release)
            # Making a job removes the directory.
            job = Job(spark, settings)
            earlier.mkdir()
            (earlier / "tick-1795225594000.jsonl").write_bytes(orjson.dumps(tick(500)) + b"\n")
            job.run(once=True)
        for adopt in (False, True):
            with pytest.raises(
                JobError, match=r"earlier release.*move that directory away and run .*--adopt"
            ):
                Job(spark, settings, adopt=adopt)
        assert earlier.exists()
        checkpoint = Path(settings.job.checkpoint_location)
        checkpoint.rename(checkpoint.with_name("earlier"))
        self.run(spark, settings, adopt=True)
        assert not earlier.exists()
        tell(settings, 600)
        self.run(spark, settings)
        assert told(settings) == numbered(1)
        counts = totals(settings)
        assert (counts["records_read"], counts["duplicate"]) == (2 * STORY + 2, STORY + 1)

    def test_a_new_checkpoint_takes_only_what_the_log_lacks(
        self, spark: SparkSession, settings: Settings
    ) -> None:
        """Under --adopt own events that are still there count as duplicates; unread ones are applied."""
        tell(settings, 500, 530)
        self.run(spark, settings)
        tell(settings, 560)
        shutil.rmtree(settings.job.checkpoint_location)
        self.run(spark, settings, adopt=True)
        assert told(settings) == numbered(1, 2, 3)
        assert totals(settings)["duplicate"] == 1 + STORY + 2

    def test_a_job_that_stood_still_for_a_month_goes_on(
        self, spark: SparkSession, settings: Settings
    ) -> None:
        """Upkeep by hand meanwhile takes what was read, commits included, and the checkpoint still fits."""
        for second in (500, 530):
            tell(settings, second)
            self.run(spark, settings)
        shorten(settings)
        # A batch that sees what upkeep did, and nothing else.
        self.run(spark, settings)
        for _ in range(3):
            let_hours_pass(settings)
            shorten(settings)
        tell(settings, 560)
        self.run(spark, settings)
        assert told(settings) == numbered(1, 2, 3)
