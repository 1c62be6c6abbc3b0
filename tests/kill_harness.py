"""The real job through many lives: started as its operator does, killed with -9, started again.

A life is a process `counterpoise run`, with `--once` or without, over input that lies there from the
start, one file of each source a batch. So the tables after any number of kills can be held against
those of one run that nobody disturbed. Lives may be forked (tests/forked_lives.py) where the reading of
code is not what is to be killed.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, BinaryIO, Self

from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from conf.settings import Settings, load_settings
from streaming.job import Job
from streaming.tables.delta import LOG, Tables
from streaming.tables.lease import look_at_lease
from streaming.tables.log import LOG_APP
from tests.deployments import Row, contents, event, totals, write_lines
from tests.forked_lives import ForkedLife, ForkingProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[1]
CAPTURED = ROOT / "console" / "demo" / "captured" / "consumer-offsets.jsonl"

RUN = """
import sys
from pathlib import Path
from conf.settings import load_settings
from streaming.run import run_job
options = dict(option.split("=", 1) for option in sys.argv[2:])
run_job(load_settings(Path(sys.argv[1]), {}, options), once=True, adopt=False)
"""

SOURCES = ("events", "offsets")
Cuts = tuple[tuple[tuple[str, tuple[str, ...]], ...], ...]
"""For each batch: for each source its name and its files."""

_SOURCE = (
    '[[sources]]\nname = "{0}"\nformat = "{0}"\nfrom = "files"\npath = "{1}"\nmax_files_per_trigger = {2}\n'
)

_OFTEN = {
    "job.trigger_interval_s": "0",
    # Ticks tell the time of day, which no two runs share.
    "job.tick_interval_s": "0",
    "batch.shards": "2",
    "batch.snapshot_every_batches": "2",
    "upkeep.every_s": "0.5",
    "upkeep.compact_from_files": "3",
}
"""What makes everything that can be killed happen within the few batches of a life."""

_QUICK_START = {
    "spark.master": "local[1]",
    "spark.options.spark.driver.memory": "512m",
    "spark.options.spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
"""Most of a life is the start of a JVM: these halve it."""

_JARS, _JAVA = "spark.options.spark.jars", "spark.options.spark.driver.extraJavaOptions"

Life = subprocess.Popen[bytes] | ForkedLife

_LONGEST_S = 600.0
_LONGEST_END_S = 30.0


def write_story(directory: Path, files: int) -> int:
    """Tell of four groups in so many files: members come and go, topics grow, lines are broken or come twice.

    Returns:
        How many lines there are.
    """
    lines_by_file: dict[str, list[str]] = {}
    lines: list[str] = []
    for number in range(files):
        second, before = 100 * number, lines[:2]
        lines = [event("topic_changed", second, topic="orders", partitions=4 + number % 20)]
        for group in range(4):
            # Now and then one comes that has no assignor in common with the others.
            odd = group == 3 and number % 3 == 2
            more = {"topics": ["orders"], "protocols": ["range" if odd else "cooperative-sticky"]}
            lines.append(
                event("member_joined", second + group, group_id=f"g{group}", member_id=f"m{number}", **more)
            )
            if number > 2:
                gone = {"group_id": f"g{group}", "member_id": f"m{number - 3}"}
                lines.append(event("member_left", second + 5 + group, **gone))
        lines += ["{broken", *before, event("time_advanced", second + 90)]
        lines_by_file[f"{number:03d}.jsonl"] = lines
    write_in_order(directory, lines_by_file)
    return sum(map(len, lines_by_file.values()))


def write_captured(directory: Path, files: int) -> int:
    """Deal the demo's captured records of `__consumer_offsets` out to so many files; how many they are."""
    lines = CAPTURED.read_text(encoding="utf-8").splitlines()
    bounds = [len(lines) * number // files for number in range(files + 1)]
    parts = {f"{number:03d}.jsonl": lines[bounds[number] : bounds[number + 1]] for number in range(files)}
    write_in_order(directory, parts)
    return len(lines)


def write_in_order(directory: Path, lines_by_file: Mapping[str, list[str]]) -> None:
    """Write files that Spark takes in the order of their names."""
    write_lines(directory, lines_by_file)
    for number, name in enumerate(sorted(lines_by_file)):
        # Spark goes by their modification times.
        os.utime(directory / name, (1_795_225_000 + number, 1_795_225_000 + number))


def cuts_of(settings: Settings) -> Cuts:
    """Read from the log which files each batch took."""
    rows = Tables(settings.job.tables).read(LOG, ["batch_seq", "batch"]).to_pylist()
    ends = sorted((row["batch_seq"], row["batch"]["source_end"]) for row in rows if row["batch"])
    return tuple(
        tuple(
            (name, tuple(sorted(end["files"]))) for name, end in sorted(json.loads(text)["sources"].items())
        )
        for _, text in ends
    )


def quick_start(spark: SparkSession) -> dict[str, str]:
    """Give the settings with which a job on files starts a small JVM of its own quickly.

    Its jars are those of the session: looking them up in Maven's way takes seconds of each start.
    """
    jars = spark.sparkContext.getConf().get("spark.jars", "").split(",")
    return {**_QUICK_START, "spark.packages": "[]", _JARS: ",".join(jar for jar in jars if "/io." in jar)}


def with_archive(quick: Mapping[str, str], java_option: str) -> dict[str, str]:
    """Put the jars on Java's own class path, the only one whose classes an archive takes."""
    paths = (jar.removeprefix("file:").replace("///", "/") for jar in quick[_JARS].split(","))
    return {
        _JARS: "",
        "spark.options.spark.driver.extraClassPath": ":".join(paths),
        _JAVA: f"{quick[_JAVA]} {java_option}",
    }


class Recording:
    """Input of two sources, and the tables of one undisturbed run over it."""

    def __init__(self, spark: SparkSession, directory: Path, files: int) -> None:
        """Write so many files of each source and run over them once, on the driver's path."""
        self.directory = directory
        self.batches = files
        self.records = write_story(directory / "events", files) + write_captured(directory / "offsets", files)
        self.quick_start = quick_start(spark)
        settings = self.settings(directory / "whole")
        Job(spark, settings).run(once=True)
        self._spark = spark
        self._whole_by_cuts = {cuts_of(settings): (contents(settings), totals(settings))}

    def whole(self, cuts: Cuts) -> tuple[dict[str, list[str]], Row]:
        """Give all tables and counts of an undisturbed run with these batches.

        Spark's file source notes which file comes next before Spark notes the batch: killed between the
        two, it puts that file and the one after it into one batch, and sources meet elsewhere.
        """
        if cuts not in self._whole_by_cuts:
            root = self.directory / f"cut-{len(self._whole_by_cuts)}"
            settings = self.settings(root, root)
            for cut in cuts:
                for source, files in cut:
                    (root / source).mkdir(exist_ok=True)
                    for file in files:
                        shutil.copy2(self.directory / source / file, root / source / file)
                Job(self._spark, settings).run(once=True)
            self._whole_by_cuts[cuts] = contents(settings), totals(settings)
        return self._whole_by_cuts[cuts]

    def settings(self, root: Path, directory: Path | None = None, **more: str) -> Settings:
        """Make settings for tables below `root`, whose file conf.toml the command line can be given.

        Args:
            root: where tables and checkpoint go.
            directory: where there is input other than the whole, then as much of it in a batch as is there.
            more: further settings, with __ for the dot.
        """
        root.mkdir(parents=True, exist_ok=True)
        file, most = root / "conf.toml", 0 if directory else 1
        sources = [_SOURCE.format(name, (directory or self.directory) / name, most) for name in SOURCES]
        file.write_text("".join(sources))
        return load_settings(file, {}, self.options(root, **more))

    def options(self, root: Path, **more: str) -> dict[str, str]:
        """Give the options beside that file."""
        places = {"job.tables": f"{root}/tables", "job.checkpoint_location": f"{root}/checkpoint"}
        return {**_OFTEN, **places, **{key.replace("__", "."): value for key, value in more.items()}}


class Lives:
    """The lives of one job on one set of tables, one after another."""

    def __init__(self, recording: Recording, root: Path, *, classes: Path | None = None, **more: str) -> None:
        """Begin with no tables.

        Args:
            recording: what is read.
            root: where the tables and what the lives say go.
            classes: what `archive_classes` made; then lives are forked.
            more: further settings, with __ for the dot.
        """
        self._settings = recording.settings(root, **more)
        self._recording = recording
        self._root = root
        self._options = {**recording.options(root, **more), **recording.quick_start}
        self._classes = classes
        self._running = ExitStack()
        self._forking: ForkingProcess | None = None
        self._start_s = 5.0
        self._groups: list[int] = []
        self.kills = 0
        self.stops = 0

    def __enter__(self) -> Self:
        """Give itself."""
        if self._classes is not None:
            self._forking = self._running.enter_context(ForkingProcess())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait until nothing that a killed life started is left; what does not end is killed."""
        self._running.close()
        self._wait_for_the_dead(_LONGEST_END_S)

    def _wait_for_the_dead(self, patience_s: float) -> None:
        patience_until = time.monotonic() + patience_s
        for group in self._groups:
            with suppress(ProcessLookupError):
                while time.monotonic() < patience_until:
                    os.killpg(group, 0)
                    time.sleep(0.1)
                os.killpg(group, signal.SIGKILL)

    def die_at(self, point: str, *, once: bool) -> None:
        """Live until a point of streaming.crash_points, and die there by its own hand."""
        with self._log() as log:
            life = self._begin(log, once=once, crash_at=point)
            self._expect(life, -signal.SIGKILL, f"at {point}")
        self.kills += 1

    def kill(self, moment: float, *, once: bool, whole_group: bool) -> None:
        """Live until a moment and be killed; a life with `--once` may have ended before.

        Args:
            moment: in times that a start takes, so that machines of any speed are killed at work:
                up to 1 while it starts, from 1 on counted from when it has the lease.
            once: `--once`.
            whole_group: the JVM is killed too, as when a container is. Else it lives on for a moment,
                with whatever it had begun, beside the next life.
        """
        with self._log() as log:
            life = self._begin(log, once=once)
            self._wait(life, moment)
            if life.poll() is None:
                (os.killpg if whole_group else os.kill)(life.pid, signal.SIGKILL)
                self.kills += 1
            ends = (-signal.SIGKILL, 0) if once else (-signal.SIGKILL,)
            self._expect(life, ends, f"killed at {moment:.2f}")

    def stop(self, moment: float) -> None:
        """Live, without `--once`, until a moment and be asked to stop by SIGTERM: exit code 0.

        While Python still loads its modules SIGTERM ends the process as any other. Then the job has not
        taken the lease, and so has written nothing.
        """
        token = self._token()
        with self._log() as log:
            life = self._begin(log, once=False)
            self._wait(life, moment)
            life.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                life.wait(_LONGEST_S)
            has_begun = self._token() > token
            self._expect(life, (0,) if has_begun else (0, -signal.SIGTERM), f"stopped at {moment:.2f}")
        self.stops += 1

    def end_randomly(self, rng: random.Random) -> None:
        """End one life in one of all the ways above, seven of eight by a kill."""
        moment = rng.choice((rng.uniform(0.3, 1.0), rng.uniform(1.0, 2.5)))
        if rng.random() < 1 / 8:
            self.stop(moment)
        else:
            self.kill(moment, once=rng.random() < 0.5, whole_group=rng.random() < 0.5)

    def batches_left(self) -> int:
        """Count the batches that no life has logged yet."""
        try:
            logged = DeltaTable(f"{self._settings.job.tables}/{LOG}").transaction_version(LOG_APP) or 0
        except TableNotFoundError:
            logged = 0
        return self._recording.batches - logged

    def finish(self) -> None:
        """Live undisturbed to the end of the input, and hold every table against the undisturbed run's."""
        self.live_on()
        self.hold_tables_against_the_whole()

    def live_on(self) -> None:
        """Live undisturbed to the end of the input."""
        with self._log() as log:
            self._expect(self._begin(log, once=True), 0, "the last life")

    def archive_classes(self) -> Path:
        """Live undisturbed to the end of the input, and put all classes of the JVM into an archive.

        Source: JEP 350 (dynamic class data sharing); a JVM that cannot use the archive goes without.
        """
        file = self._root / "classes.jsa"
        self._options |= with_archive(self._options, f"-XX:ArchiveClassesAtExit={file}")
        self.live_on()
        self._wait_for_the_dead(_LONGEST_S)
        assert file.exists(), self._told()
        return file

    def hold_tables_against_the_whole(self) -> None:
        """Hold every table against the undisturbed run's."""
        found = contents(self._settings)
        whole, counts = self._recording.whole(cuts_of(self._settings))
        for table, rows in whole.items():
            missing, extra = (
                [row[:400] for row in these if row not in others][:3]
                for these, others in ((rows, set(found[table])), (found[table], set(rows)))
            )
            assert found[table] == rows, f"{table}: {len(found[table])} rows, {missing=}, {extra=}"
        assert totals(self._settings) == counts
        assert counts["records_read"] == self._recording.records

    def _log(self) -> BinaryIO:
        return (self._root / "lives.log").open("ab")

    def _begin(self, log: BinaryIO, *, once: bool, crash_at: str = "") -> Life:
        settings = dict(self._options)
        if self._forking is not None:
            settings |= with_archive(settings, f"-XX:SharedArchiveFile={self._classes}")
        options = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
        arguments = ["run", "--conf", str(self._root / "conf.toml"), *options, *(["--once"] if once else [])]
        environ = {**os.environ, "COUNTERPOISE_CRASH_AT": crash_at}
        if self._forking is not None:
            forked = self._forking.begin(arguments, environ, Path(log.name))
            self._groups.append(forked.pid)
            return forked
        life = subprocess.Popen(
            [str(Path(sys.executable).with_name("counterpoise")), *arguments],
            env=environ,
            cwd=ROOT,
            stdout=log,
            stderr=log,
            # A group of its own: one signal reaches the JVM too, and none of ours.
            start_new_session=True,
        )
        self._groups.append(life.pid)
        return life

    def _wait(self, life: Life, moment: float) -> None:
        if moment <= 1:
            self._sleep(life, moment * self._start_s)
            return
        began, token = time.monotonic(), self._token()
        while life.poll() is None and self._token() == token:
            assert time.monotonic() - began < _LONGEST_S, self._told()
            time.sleep(0.1)
        self._start_s = time.monotonic() - began
        self._sleep(life, (moment - 1) * self._start_s)

    def _sleep(self, life: Life, seconds: float) -> None:
        with suppress(subprocess.TimeoutExpired):
            life.wait(seconds)

    def _token(self) -> int:
        seen = look_at_lease(self._settings.job.tables)
        return seen.token if seen else 0

    def _expect(self, life: Life, codes: int | tuple[int, ...], what: str) -> None:
        try:
            code = life.wait(_LONGEST_S)
        finally:
            if life.poll() is None:
                os.killpg(life.pid, signal.SIGKILL)
                life.wait(_LONGEST_END_S)
        allowed = codes if isinstance(codes, tuple) else (codes,)
        assert code in allowed, f"{what}: exit code {code}, not {allowed}: {self._told()}"

    def _told(self) -> str:
        return (self._root / "lives.log").read_text(encoding="utf-8", errors="replace")[-4000:]
