"""The doctor says of a good deployment that it is good, finds what ails another, and changes neither."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from conf.settings import Settings, load_settings
from console.doctor import examine
from console.examine_machine import judge_space
from streaming.job import Job
from streaming.tables.delta import FORMAT, FORMAT_APP, LOG
from streaming.tables.lease import LEASE
from streaming.tables.schemas import SCHEMA_BY_TABLE
from tests.deployments import make_settings, story, write_lines
from tests.test_lease import LeasedDeployment, silent_holder
from tests.test_stream_plumbing import Deployment, group_row, topic_row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from console.findings import Finding

ROOT = Path(__file__).parent.parent
BATCHES = 6
GIB = 1 << 30

PR_CAPBSET_DROP = 24
CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 1, 2
"""Linux's numbers (linux/prctl.h, linux/capability.h)."""


def counterpoise(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the command as a user does."""
    environ = {k: v for k, v in os.environ.items() if not k.startswith("COUNTERPOISE_")}
    return subprocess.run(
        [sys.executable, "-m", "console.cli", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**environ, **options.pop("environ", {})},
        **options,
    )


class Patient:
    """A deployment on disk, made without Spark: six batches, a checkpoint as Spark leaves it, one input.

    Where the folder has batches already, only what is missing is written, as after a restart.
    """

    def __init__(self, folder: Path, batches: int = BATCHES) -> None:
        self.folder = folder
        self.settings = make_settings(folder / "job")
        self.conf = folder / "job" / "all.toml"
        self.conf.write_text(
            f"""
            [job]
            tables = "{self.settings.job.tables}"
            checkpoint_location = "{self.settings.job.checkpoint_location}"
            [[sources]]
            name = "events"
            format = "events"
            from = "files"
            path = "{folder / "in"}"
            """
        )
        self.tables = Path(self.settings.job.tables)
        self.checkpoint = Path(self.settings.job.checkpoint_location)
        write_lines(folder / "in", {"a.jsonl": ["{}"]})
        for part in ("offsets", "commits"):
            (self.checkpoint / part).mkdir(parents=True, exist_ok=True)
        (self.checkpoint / "metadata").write_text('{"id":"one"}')
        self.job = LeasedDeployment(self.tables, 3600)
        self.advance(batches)
        self.job.lease.release()

    def advance(self, upto: int) -> None:
        """Do without Spark what the job does of each batch, snapshots after every second."""
        while (number := self.job.log.last_batch_seq + 1) <= upto:
            (self.checkpoint / "offsets" / str(number - 1)).write_text("v1")
            rows = self.job.commit(topic_row("orders", 4), group_row(f"g{number % 3}", number), applied=1)
            self.job.outbox.catch_up((number, rows))
            (self.checkpoint / "commits" / str(number - 1)).write_text("v1")
            if number % 2 == 0:
                self.job.snapshots.refresh()
                self.job.outbox.mark()

    def ails(self, settings: Settings | None = None) -> list[Finding]:
        """Ask the doctor, and give what is not as it should be."""
        return ailing(examine(settings or self.settings, os.environ))

    def table(self, name: str) -> DeltaTable:
        """Open a table anew."""
        return DeltaTable(str(self.tables / name))

    def log_of(self, name: str) -> Path:
        """Give a table's own log."""
        return self.tables / name / "_delta_log"

    def content(self) -> dict[str, tuple[int, int, int]]:
        """Tell everything below the folder apart from what it may become: size, mode, time of change."""
        return {
            str(path): (status.st_size, status.st_mode, status.st_mtime_ns)
            for path in sorted(self.folder.rglob("*"))
            if (status := path.stat())
        }


def ailing(findings: Iterator[Finding]) -> list[Finding]:
    """Leave out what is as it should be."""
    return [finding for finding in findings if finding.level != "ok"]


def told(finding: Finding) -> str:
    """Write a finding as one line."""
    return f"{finding.level} {finding.check} {finding.about}: {finding.found}; {finding.advice}"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a good deployment, to be copied."""
    return Patient(tmp_path_factory.mktemp("written")).folder


@pytest.fixture
def patient(written: Path, tmp_path: Path) -> Patient:
    """Give a good deployment of a test's own."""
    shutil.copytree(written, tmp_path, dirs_exist_ok=True)
    return Patient(tmp_path)


def test_a_good_deployment_is_called_good_and_left_as_it_is(patient: Patient) -> None:
    """Everything is looked at, exit code 0; no file is made, changed or touched, the lease's included."""
    before = patient.content()
    finished = counterpoise("doctor", "--conf", str(patient.conf), "--json")
    described = json.loads(finished.stdout)
    assert (finished.returncode, finished.stderr) == (0, ""), finished.stdout
    assert (described["problems"], described["warnings"]) == (0, 0)
    assert {row["level"] for row in described["findings"]} == {"ok"}
    looked_at = {(row["check"], row["about"]) for row in described["findings"]}
    assert {("table", name) for name in SCHEMA_BY_TABLE} <= looked_at
    assert {check for check, _ in looked_at} == {
        *("settings", "python", "java", "packages", "source", "space", "lease", "log", "checkpoint", "table")
    }
    found = {row["check"]: row["found"] for row in described["findings"]}
    assert found["checkpoint"] == "one, at batch 5 as the log has it"
    assert found["log"].startswith("batch 6 is its last, ")
    assert "given back by pid" in found["lease"]
    assert patient.content() == before


def test_people_get_a_table(patient: Patient) -> None:
    """Without --json there is a row for each finding, whatever brackets it holds, and a line that counts."""
    finished = counterpoise("doctor", "--conf", str(patient.conf), "--set", "job.tables=[red]x[/red]")
    assert finished.returncode == 0, finished.stdout
    assert "[red]x[/red]" in finished.stdout.replace("\n", "")
    assert finished.stdout.splitlines()[-1] == "problems: 0, warnings: 0"


def test_before_the_first_start_there_is_nothing_to_find(tmp_path: Path) -> None:
    """Neither tables nor checkpoint: good, and the doctor makes none."""
    write_lines(tmp_path / "in", {"a.jsonl": ["{}"]})
    settings = make_settings(tmp_path / "job")
    findings = list(examine(settings, os.environ))
    assert ailing(iter(findings)) == []
    assert "none yet; the first start makes them" in [finding.found for finding in findings]
    assert not Path(settings.job.tables).exists()


@pytest.mark.spark
def test_a_job_s_own_deployment_is_good(spark: SparkSession, tmp_path: Path) -> None:
    """What the job leaves behind after a run, checkpoint included."""
    write_lines(tmp_path / "in", story())
    settings = make_settings(tmp_path / "job")
    Job(spark, settings).run(once=True)
    findings = list(examine(settings, os.environ))
    assert list(map(told, ailing(iter(findings)))) == []
    assert {f.check for f in findings} >= {"log", "checkpoint", "lease"}


def _restore_log(patient: Patient) -> None:
    patient.table(LOG).restore(3)


def _older_log(patient: Patient) -> None:
    older = Patient(patient.folder / "older", 4)
    shutil.rmtree(patient.tables / LOG)
    shutil.copytree(older.tables / LOG, patient.tables / LOG)


def _no_log(patient: Patient) -> None:
    shutil.rmtree(patient.tables / LOG)


def _restore_table(patient: Patient) -> None:
    patient.table("events").restore(1)


def _no_table(patient: Patient) -> None:
    shutil.rmtree(patient.tables / "balance")


def _newer_release(patient: Patient) -> None:
    table = patient.table("checks")
    newer = CommitProperties(app_transactions=[Transaction(FORMAT_APP, FORMAT + 1)])
    table.create_write_transaction([], "append", table.schema(), commit_properties=newer)


def _newer_delta(patient: Patient) -> None:
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7}
    features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
    version = patient.table("groups").version() + 1
    (patient.log_of("groups") / f"{version:020d}.json").write_text(
        json.dumps({"protocol": protocol | features}) + "\n"
    )


def _other_columns(patient: Patient) -> None:
    shutil.rmtree(patient.tables / "topics")
    write_deltalake(patient.tables / "topics", pa.table({"a": [1]}))


def _garbage_commit(patient: Patient) -> None:
    (patient.log_of("events") / f"{2:020d}.json").write_bytes(b"\xff\0garbage")


def _hole_in_the_log(patient: Patient) -> None:
    (patient.log_of("events") / f"{2:020d}.json").unlink()


def _log_is_a_file(patient: Patient) -> None:
    shutil.rmtree(patient.log_of("events"))
    patient.log_of("events").write_text("x")


def _table_is_a_file(patient: Patient) -> None:
    shutil.rmtree(patient.tables / "events")
    (patient.tables / "events").write_text("x")


def _broken_delta_checkpoint(patient: Patient) -> None:
    patient.table("events").create_checkpoint()
    [file] = patient.log_of("events").glob("*.checkpoint.parquet")
    file.write_bytes(b"no parquet")


def _data_file_gone(patient: Patient) -> None:
    next((patient.tables / "events").glob("*.parquet")).unlink()


def _data_file_of_the_log_gone(patient: Patient) -> None:
    for file in (patient.tables / LOG).glob("*.parquet"):
        file.unlink()


def _data_file_of_the_log_broken(patient: Patient) -> None:
    for file in (patient.tables / LOG).glob("*.parquet"):
        file.write_bytes(b"PAR1")


def _large_own_log(patient: Patient) -> None:
    with (patient.log_of("events") / "left.json.tmp").open("wb") as file:
        file.truncate(2 * GIB)


def _no_checkpoint(patient: Patient) -> None:
    shutil.rmtree(patient.checkpoint)


def _another_s_checkpoint(patient: Patient) -> None:
    (patient.checkpoint / "metadata").write_text('{"id":"of-another"}')


def _older_checkpoint(patient: Patient) -> None:
    for part in ("offsets", "commits"):
        for number in range(2, BATCHES):
            (patient.checkpoint / part / str(number)).unlink()


def _half_a_checkpoint(patient: Patient) -> None:
    shutil.rmtree(patient.checkpoint / "offsets")


def _checkpoint_no_json(patient: Patient) -> None:
    (patient.checkpoint / "metadata").write_text("\0")


def _checkpoint_metadata_is_a_directory(patient: Patient) -> None:
    (patient.checkpoint / "metadata").unlink()
    (patient.checkpoint / "metadata").mkdir()


def _tables_is_a_file(patient: Patient) -> None:
    shutil.rmtree(patient.tables)
    patient.tables.write_text("x")


def _checkpoint_is_a_file(patient: Patient) -> None:
    shutil.rmtree(patient.checkpoint)
    patient.checkpoint.write_text("x")


def _broken_lease(patient: Patient) -> None:
    for file in (patient.tables / LEASE / "_delta_log").glob("*.json"):
        file.write_text("garbage")


def _dead_holder(patient: Patient) -> None:
    silent_holder(patient.tables, process_started=1, lease_s=3600)


def _silent_holder(patient: Patient) -> None:
    silent_holder(patient.tables, host="elsewhere", lease_s=0.0)


def _no_source(patient: Patient) -> None:
    shutil.rmtree(patient.folder / "in")


def _source_is_a_file(patient: Patient) -> None:
    _no_source(patient)
    (patient.folder / "in").write_text("x")


AILMENTS: dict[Callable[[Patient], None], tuple[str, str]] = {
    _restore_log: ("problem log generations", "restored to an older state; undo that with `python -c"),
    _older_log: ("problem log generations", "ends at batch 4, but tables hold later ones: "),
    _no_log: ("problem tables ", "is missing while tables made from it are there"),
    _restore_table: (
        "warning table events",
        "restored to its version 1: it holds batches up to 1, not 6; the",
    ),
    _no_table: ("warning table balance", "it is missing; the next start makes it anew from the log"),
    _newer_release: ("problem table checks", "a newer release wrote it, in format 2"),
    _newer_delta: ("problem table groups", "has the Delta features ['deletionVectors']"),
    _other_columns: ("problem table topics", "is missing; move the table away or use the release"),
    _garbage_commit: ("problem table events", "cannot be opened: Kernel error: Json error"),
    _hole_in_the_log: ("problem table events", "cannot be opened: Kernel error: "),
    _log_is_a_file: ("problem table events", "is not a directory"),
    _table_is_a_file: ("problem table events", "Not a directory"),
    _broken_delta_checkpoint: ("problem table events", "Corrupt footer"),
    _data_file_gone: ("problem table events", "1 of its "),
    _data_file_of_the_log_gone: ("problem table generations", "put back a whole copy of it"),
    _data_file_of_the_log_broken: ("problem table generations", "its files cannot be read: "),
    _large_own_log: ("warning table events", "its own log has 2.0 GiB"),
    _no_checkpoint: ("problem checkpoint ", "there is no checkpoint in "),
    _another_s_checkpoint: ("problem checkpoint ", "checkpoint of-another is at batch 6, and the log (6"),
    _older_checkpoint: ("problem checkpoint ", "is at batch 2, the log has it up to batch 5; "),
    _half_a_checkpoint: ("problem checkpoint ", "batch 5 is noted as done, but the last one planned is none"),
    _checkpoint_no_json: ("problem checkpoint ", "its file `metadata` is '\\x00', not what Spark writes"),
    _checkpoint_metadata_is_a_directory: ("problem checkpoint ", "it cannot be read: "),
    _tables_is_a_file: (
        "problem directory job.tables",
        "tables is not a directory; move it away or name",
    ),
    _checkpoint_is_a_file: ("problem directory job.checkpoint_location", "checkpoint is not a directory"),
    _broken_lease: ("problem lease _lease", "cannot be read: Kernel error: Json error"),
    _dead_holder: ("warning lease _lease", "dead: pid "),
    _silent_holder: ("warning lease _lease", f"silent: pid {os.getpid()} on host elsewhere"),
    _no_source: ("problem source events", "does not exist; create it or correct the path"),
    _source_is_a_file: ("problem source events", "in is not a directory; create it"),
}


@pytest.mark.parametrize("harm", AILMENTS, ids=lambda harm: harm.__name__.strip("_"))
def test_what_ails_is_found_and_named(patient: Patient, harm: Callable[[Patient], None]) -> None:
    """One harm is done to a good deployment: it is found, with its word, and nothing is made worse."""
    harm(patient)
    where, word = AILMENTS[harm]
    before = patient.content()
    found = patient.ails()
    assert [f for f in found if told(f).startswith(where) and word in told(f)], list(map(told, found))
    assert all(finding.advice for finding in found)
    assert patient.content() == before


def test_a_restored_table_is_no_problem_and_exit_codes_say_so(patient: Patient) -> None:
    """A warning leaves the exit code at 0, a problem makes it 1."""
    _restore_table(patient)
    assert counterpoise("doctor", "--conf", str(patient.conf)).returncode == 0
    _restore_log(patient)
    assert counterpoise("doctor", "--conf", str(patient.conf)).returncode == 1


def test_a_job_at_work_is_seen_alive(tmp_path: Path) -> None:
    """The holder of the lease is named; only of a live one it is told that its last batch is long ago."""
    patient = Patient(tmp_path)
    job = LeasedDeployment(patient.tables, 3600)
    held = [finding for finding in examine(patient.settings, os.environ) if finding.check == "lease"]
    assert [f.level for f in held] == ["ok"]
    assert held[0].found.startswith(f"live: pid {os.getpid()} on host ")
    assert held[0].found.endswith(f"token {job.lease.token}")
    assert [f.found.partition("last,")[2].partition("ago")[2] for f in patient.ails()] == [
        ", though a job holds the lease"
    ]
    job.lease.release()
    assert patient.ails() == []


def test_tables_and_sinks_that_lag_are_told(patient: Patient) -> None:
    """Of what is more batches behind than a snapshot's interval it is said how far."""
    for _ in range(3):
        patient.job.commit(group_row("g1", 9), applied=1)
    for number in range(6, 9):
        for part in ("offsets", "commits"):
            (patient.checkpoint / part / str(number)).write_text("v1")
    sink = '[[sinks]]\nname = "out"\nto = "kafka"\ntopic = "t"\n[clusters.default.kafka]\n'
    patient.conf.write_text(patient.conf.read_text() + sink + '"bootstrap.servers" = "127.0.0.1:1"\n')
    settings = load_settings(patient.conf, {}, {"batch.snapshot_every_batches": "2"})
    from console.examine_tables import examine_deployment

    found = ailing(examine_deployment(settings, where=""))
    lagging = {f.about: f.found for f in found}
    assert lagging["out"] == "it lags: it has had batches up to 0, the log goes up to 9"
    assert lagging["groups"] == "it lags: it holds batches up to 6, the log up to 9"
    assert len(lagging) == 11
    assert patient.ails() == []


def test_a_writer_at_work_is_never_taken_for_ailing(tmp_path: Path) -> None:
    """The doctor looks again and again while batches are planned, logged, published and noted as done."""
    patient = Patient(tmp_path)
    job = patient.job = LeasedDeployment(patient.tables, 3600)
    writer = threading.Thread(target=lambda: patient.advance(40))
    writer.start()
    rounds = 0
    while writer.is_alive():
        found = [f for f in patient.ails() if f.level == "problem"]
        assert found == [], list(map(told, found))
        rounds += 1
    writer.join()
    job.lease.release()
    assert job.log.last_batch_seq == 40
    assert rounds > 1


def test_many_small_files_are_found_and_upkeep_helps(patient: Patient) -> None:
    """`counterpoise upkeep` does one round and says what it did; the doctor is content then."""
    options = ["--conf", str(patient.conf), "--set", "upkeep.compact_from_files=4"]
    settings = load_settings(patient.conf, {}, {"upkeep.compact_from_files": "4"})
    small = [f for f in patient.ails(settings) if "small" in f.found]
    assert "events" in {f.about for f in small}
    assert {(f.level, f.check) for f in small} == {("warning", "table")}
    assert all(f.advice.startswith("run `counterpoise upkeep`") for f in small)
    before = {name: patient.job.tables.read(name, ["cluster"]).num_rows for name in ("events", LOG)}
    finished = counterpoise("upkeep", *options, "--json")
    assert (finished.returncode, finished.stderr) == (0, "")
    done = {row["table"]: row for row in json.loads(finished.stdout)["tables"]}
    assert set(done) == set(SCHEMA_BY_TABLE)
    assert (done["events"]["files_before"], done["events"]["files_after"]) == (6, 1)
    assert patient.ails(settings) == []
    again = Deployment(patient.tables)
    assert {name: again.tables.read(name, ["cluster"]).num_rows for name in before} == before
    shown = counterpoise("upkeep", *options)
    assert shown.returncode == 0
    assert "files before" in shown.stdout
    assert "events" in shown.stdout


def test_upkeep_makes_no_tables(tmp_path: Path) -> None:
    """With a wrong directory, or a table that it cannot use, it ends with 2 and has changed nothing."""
    patient = Patient(tmp_path)
    nowhere = counterpoise("upkeep", "--conf", str(patient.conf), "--set", f"job.tables={tmp_path}/none")
    assert (nowhere.returncode, nowhere.stdout) == (2, "")
    assert "missing; correct job.tables, or run the job first" in nowhere.stderr
    assert not (tmp_path / "none").exists()
    _newer_release(patient)
    before = patient.content()
    newer = counterpoise("upkeep", "--conf", str(patient.conf))
    assert (newer.returncode, newer.stdout) == (2, "")
    assert "a newer release wrote it" in newer.stderr
    assert patient.content() == before


@pytest.mark.parametrize(
    ("text", "code", "found"),
    [
        ("[job]\ntabels = 'x'\n", 2, "did you mean"),
        ("[job\n", 2, "is not TOML"),
        ("", 1, "it is empty"),
    ],
    ids=["unknown key", "no TOML", "no sources"],
)
def test_settings_that_cannot_be_used_are_findings_too(
    tmp_path: Path, text: str, code: int, found: str
) -> None:
    """Wrong settings end with 2 as everywhere, with what is wrong as findings; the machine is looked at."""
    file = tmp_path / "job.toml"
    file.write_text(text)
    finished = counterpoise("doctor", "--conf", str(file), "--json")
    assert (finished.returncode, finished.stderr) == (code, ""), finished.stderr
    findings = json.loads(finished.stdout)["findings"]
    assert [row["check"] for row in findings if row["level"] == "problem"] == ["settings"]
    assert found in findings[0]["found"] + findings[0]["advice"]
    assert "python" in {row["check"] for row in findings}


def test_wrong_usage_ends_with_2(tmp_path: Path) -> None:
    """No --conf, or one with no '=' in a --set: a line on stderr."""
    assert counterpoise("doctor").returncode == 2
    file = tmp_path / "job.toml"
    file.write_text("")
    finished = counterpoise("doctor", "--conf", str(file), "--set", "job.tables")
    assert (finished.returncode, finished.stdout) == (2, "")
    assert "there is no '='" in finished.stderr


def test_each_of_several_deployments_is_looked_at(tmp_path: Path) -> None:
    """With {cluster} in job.tables a finding says which cluster's tables it is about."""
    conf = tmp_path / "job.toml"
    sources = "".join(
        f'[[sources]]\nname = "{name}"\nformat = "events"\nfrom = "files"\npath = "{tmp_path}"\n'
        f'cluster = "{name}"\n'
        for name in ("east", "west")
    )
    places = f'tables = "{tmp_path}/{{cluster}}/t"\ncheckpoint_location = "{tmp_path}/{{cluster}}/c"\n'
    conf.write_text(f"[job]\n{places}{sources}")
    (tmp_path / "west").write_text("in the way")
    findings = list(examine(load_settings(conf, {}, {}), os.environ))
    assert {f.about for f in ailing(iter(findings))} == {
        "west: job.tables",
        "west: job.checkpoint_location",
    }
    assert "east: job.tables" in {f.about for f in findings if f.level == "ok"}


class TestMachine:
    """What is not the deployment's own."""

    @pytest.mark.parametrize(
        ("script", "found"),
        [
            ("echo 'openjdk version \"11.0.2\" 2019-01-15' >&2", "11.0.2"),
            ("echo 'java version \"1.8.0_392\"' >&2", "1.8.0_392"),
            ("exit 3", "it says 'nothing'"),
            (None, "there is no java"),
        ],
    )
    def test_another_java_is_named(
        self, patient: Patient, tmp_path: Path, script: str | None, found: str
    ) -> None:
        """JAVA_HOME goes before the path, as for Spark; what its java says is shown."""
        home = tmp_path / "jdk"
        (home / "bin").mkdir(parents=True)
        if script:
            java = home / "bin" / "java"
            java.write_text(f"#!/bin/sh\n{script}\n")
            java.chmod(0o755)
        ailing_ = ailing(examine(patient.settings, {**os.environ, "JAVA_HOME": str(home)}))
        assert [f.check for f in ailing_] == ["java"]
        assert found in ailing_[0].found
        assert "install a JDK 17 or 21" in ailing_[0].advice

    @pytest.mark.parametrize(
        ("packages", "found"),
        [
            (
                '["io.delta:delta-spark_4.0_2.13:4.1.0"]',
                "delta-spark_4.0_2.13:4.1.0: installed are delta-spark",
            ),
            ('["io.delta:delta-spark_4.1_2.13:4.4.0"]', "and pyspark 4.0"),
            ('["org.example:other:1"]', "delta-spark is not among them"),
        ],
    )
    def test_packages_that_do_not_fit_what_is_installed(
        self, patient: Patient, packages: str, found: str
    ) -> None:
        """A jar of another release than the Python package makes Spark fail long after its start."""
        settings = load_settings(patient.conf, {}, {"spark.packages": packages})
        [finding] = patient.ails(settings)
        assert (finding.level, finding.check) == ("problem", "packages")
        assert found in told(finding)

    def test_packages_on_the_cluster_are_not_judged(self, patient: Patient) -> None:
        """Without packages there is nothing to compare."""
        assert patient.ails(load_settings(patient.conf, {}, {"spark.packages": "[]"})) == []

    @pytest.mark.parametrize(
        ("total", "free", "level"),
        [
            (100 * GIB, 50 * GIB, "ok"),
            (100 * GIB, 4 * GIB, "warning"),
            (4 * GIB, GIB // 2, "warning"),
            (100 * GIB, 1 << 20, "problem"),
        ],
    )
    def test_a_disk_that_fills_up(self, total: int, free: int, level: str) -> None:
        """Less than a twentieth or 1 GiB is a warning; less than a batch may need, a problem."""
        assert judge_space("job.tables", "/x", total, free).level == level

    @pytest.mark.parametrize("uri", ["s3a://bucket/tables", "dbfs:///tables", "az://container/tables"])
    def test_a_store_that_not_all_readers_know(self, patient: Patient, uri: str) -> None:
        """Arrow reads the tables too: a URI that it does not know is named before any start."""
        settings = load_settings(patient.conf, {}, {"job.tables": uri})
        [finding] = patient.ails(settings)
        assert (finding.level, finding.check, finding.about) == ("problem", "storage", "job.tables")
        assert f"{uri}: Unrecognized filesystem type" in finding.found

    def test_a_delta_table_as_source(self, patient: Patient) -> None:
        """Good with a column value; without one, or without a table, a problem."""
        place = patient.folder / "delta"
        more = f'[[sources]]\nname = "table"\nformat = "events"\nfrom = "delta"\npath = "{place}"\n'
        patient.conf.write_text(patient.conf.read_text() + more)
        settings = load_settings(patient.conf, {}, {})
        [finding] = patient.ails(settings)
        assert "cannot be opened" in finding.found
        write_deltalake(place, pa.table({"value": ["{}"]}))
        assert patient.ails(settings) == []
        shutil.rmtree(place)
        write_deltalake(place, pa.table({"values": ["{}"]}))
        [finding] = patient.ails(settings)
        assert "has no column value" in finding.found


def like_anybody() -> None:
    """Let the process that comes next have no more rights to files than their modes give, root's too."""
    prctl = ctypes.CDLL(None).prctl
    for capability in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
        prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)


@pytest.mark.parametrize(
    "closed",
    [
        *("tables", "tables/events/_delta_log", "tables/checks/_delta_log/00000000000000000001.json"),
        *("checkpoint", "checkpoint/metadata", "../in", "../in/a.jsonl"),
    ],
)
def test_places_that_the_user_may_not_enter(patient: Patient, closed: str) -> None:
    """One directory or file is closed to who asks: it is named, with what to do."""
    place = patient.folder / "job" / closed
    place.chmod(0)
    try:
        finished = counterpoise("doctor", "--conf", str(patient.conf), "--json", preexec_fn=like_anybody)
    finally:
        place.chmod(0o755)
    assert finished.returncode == 1, finished.stderr
    found = [row for row in json.loads(finished.stdout)["findings"] if row["level"] == "problem"]
    assert len(found) == 1, found
    assert "may not" in found[0]["found"] or "ermission denied" in found[0]["found"]
    assert found[0]["advice"]
