"""What does not belong together is mended from the log, or the error at the start says what to do."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from streaming.job import Job
from streaming.operations.misfits import put_right
from streaming.tables.delta import FORMAT, FORMAT_APP, LOG, PUBLISHED, SNAPSHOTS, JobError, Tables
from streaming.tables.schemas import SCHEMA_BY_TABLE
from tests.deployments import contents, make_settings, story, totals, write_lines
from tests.test_stream_plumbing import Deployment, batch_row, group_row, topic_row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from conf.settings import Settings

BATCHES = 6


def advance(job: Deployment, upto: int = BATCHES) -> None:
    """Write batches as the job does, snapshots after every second."""
    while (number := job.log.last_batch_seq + 1) <= upto:
        rejected = {"kind": "rejected", "events": [{"event_id": f"r{number}", "outcome": "rejected"}]}
        alerts = [{"alertname": "GroupEmpty", "status": "firing", "change_number": number}]
        counts = {**batch_row(number)["batch"], "records_read": 3, "applied": 2, "rejected": 1}
        group = group_row(f"g{number % 3}", number, alerts=alerts)
        rows = job.commit(topic_row("orders", 4), group, rejected, batch=counts)
        job.outbox.catch_up((number, rows))
        if number % 2 == 0:
            job.snapshots.refresh()
            job.outbox.mark()


def start(root: Path) -> Deployment:
    """Start as the job does, without its lease."""
    put_right(Tables(str(root)))
    job = Deployment(root)
    job.outbox.catch_up()
    job.snapshots.refresh()
    job.outbox.mark()
    return job


def rfc_3339(epoch_ms: int) -> str:
    """Write the moment just after a commit."""
    return datetime.fromtimestamp((epoch_ms + 1) / 1000, UTC).isoformat()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Deployment:
    """Write tables of six batches, for all tests here: none may change them."""
    job = Deployment(tmp_path_factory.mktemp("undisturbed") / "tables")
    advance(job)
    return job


@pytest.fixture
def whole(undisturbed: Deployment, tmp_path: Path) -> Deployment:
    """Give a copy of tables after six batches, as a restart finds them."""
    shutil.copytree(undisturbed.root, tmp_path / "tables")
    return Deployment(tmp_path / "tables")


class TestMended:
    """A table that lost rows is brought forward from the log."""

    @pytest.mark.parametrize("how", ["RESTORE", "RESTORE by time", "RESTORE twice", "older copy", "deleted"])
    def test_every_table_but_the_log(self, undisturbed: Deployment, tmp_path: Path, how: str) -> None:
        """Each has its rows again, and none twice; nor do later starts and batches change that."""
        job = Deployment(tmp_path / "tables")
        advance(job, 2)
        version = {name: job.tables.delta_table(name).version() for name in SCHEMA_BY_TABLE}
        if how == "older copy":
            shutil.copytree(tmp_path / "tables", tmp_path / "copy")
        advance(job, 5)
        job.snapshots.refresh()
        wanted = job.contents()
        for name in (*PUBLISHED, *SNAPSHOTS):
            location = job.tables.location(name)
            table = DeltaTable(location)
            if how in ("older copy", "deleted"):
                shutil.rmtree(location)
            if how == "older copy":
                shutil.copytree(tmp_path / "copy" / name, location)
            if how in ("RESTORE", "RESTORE twice"):
                table.restore(version[name])
                table.optimize.compact()
            if how == "RESTORE twice":
                table.restore(table.version() - 1)
            if how == "RESTORE by time":
                [written] = {c["timestamp"] for c in table.history() if c["version"] == version[name]}
                table.restore(rfc_3339(written))
        job = start(tmp_path / "tables")
        assert job.contents() == wanted
        assert start(tmp_path / "tables").contents() == wanted
        advance(job)
        assert job.contents() == undisturbed.contents()

    def test_a_restore_that_its_operator_has_undone(self, whole: Deployment) -> None:
        """The rows are all there again: nothing is published twice, before a start in between or after."""
        wanted = whole.contents()
        for starts_between in (False, True):
            for name in ("events", "groups"):
                table = DeltaTable(whole.tables.location(name))
                version = table.version()
                table.restore(1)
                if starts_between:
                    put_right(Tables(str(whole.root)))
                    table.update_incremental()
                table.restore(version)
            assert start(whole.root).contents() == wanted

    def test_an_optimize_is_no_restore(self, whole: Deployment) -> None:
        """Nor is any other upkeep behind the last batch: nothing is written."""
        table = DeltaTable(whole.tables.location("events"))
        table.optimize.compact()
        table.vacuum(0, dry_run=False, enforce_retention_duration=False)
        table.alter.set_table_properties({"delta.appendOnly": "false"})
        version = table.version()
        put_right(Tables(str(whole.root)))
        table.update_incremental()
        assert table.version() == version


class TestRefused:
    """What the log cannot mend is said at the start, with what to do."""

    def test_a_restored_log_and_the_command_that_undoes_it(self, whole: Deployment) -> None:
        """The error's own command, run as it stands, lets the job go on with nothing lost."""
        wanted = whole.contents()
        DeltaTable(whole.tables.location(LOG)).restore(3)
        with pytest.raises(
            JobError, match=r"its rows end at batch 3, its commits at batch 6; it was restored"
        ) as told:
            start(whole.root)
        command = re.search(r"`python -c \"(.*)\"`", str(told.value))
        assert command is not None
        subprocess.run([sys.executable, "-c", command[1]], check=True)
        assert start(whole.root).contents() == wanted

    def test_a_log_put_back_from_an_older_copy(self, whole: Deployment, tmp_path: Path) -> None:
        """The tables ahead of it are named; once moved away they are made anew from it."""
        older = Deployment(tmp_path / "older")
        advance(older, 4)
        shutil.rmtree(whole.root / LOG)
        shutil.copytree(tmp_path / "older" / LOG, whole.root / LOG)
        with pytest.raises(JobError, match=r"ends at batch 4, but .* later ones: events up to batch 6"):
            start(whole.root)
        for name in (*PUBLISHED, *SNAPSHOTS):
            shutil.rmtree(whole.root / name)
        assert start(whole.root).contents() == older.contents()

    def test_a_deleted_log(self, whole: Deployment) -> None:
        """No empty one is made in its place, which would be in the way when it is put back."""
        wanted = whole.contents()
        (whole.root / LOG).rename(whole.root / "aside")
        with pytest.raises(JobError, match=r"log .*generations is missing while tables made from it"):
            start(whole.root)
        assert not (whole.root / LOG).exists()
        (whole.root / "aside").rename(whole.root / LOG)
        assert start(whole.root).contents() == wanted

    def test_a_log_written_anew_without_its_history(self, whole: Deployment) -> None:
        """As a tool does that copies rows and not `_delta_log`."""
        copied = whole.tables.read(LOG, SCHEMA_BY_TABLE[LOG].names)
        shutil.rmtree(whole.root / LOG)
        write_deltalake(whole.root / LOG, copied)
        with pytest.raises(JobError, match=r"rows end at batch 6, its commits at batch 0; likely a tool"):
            start(whole.root)

    def test_rows_that_the_log_has_forgotten(self, whole: Deployment, tmp_path: Path) -> None:
        """A table older than what upkeep has left of the log is not brought forward; a younger one is."""
        older = Deployment(tmp_path / "older")
        advance(older, 4)
        DeltaTable(whole.tables.location(LOG)).delete("batch_seq <= 3 AND kind <> 'batch'")
        shutil.rmtree(whole.root / "events")
        shutil.copytree(tmp_path / "older" / "events", whole.root / "events")
        assert len(start(whole.root).contents()["events"]) == 2 * BATCHES
        shutil.rmtree(whole.root / "balance")
        with pytest.raises(JobError, match=r"no rows of batch 3 any more .*balance up to batch 0; put"):
            start(whole.root)

    def test_a_restored_table_whose_history_was_cleaned_up(self, whole: Deployment) -> None:
        """What it holds cannot be known any more: the error says how to undo it and how to do without."""
        table = DeltaTable(whole.tables.location("events"))
        table.restore(1)
        for version in range(table.version()):
            (whole.root / "events" / "_delta_log" / f"{version:020d}.json").unlink()
        table.create_checkpoint()
        with pytest.raises(JobError, match=r"history no longer knows; undo that .*\.restore\(\d+\).* move"):
            start(whole.root)

    def test_tables_of_a_newer_release(self, whole: Deployment) -> None:
        """One whose columns are ours, but who says that they mean something else."""
        newer = CommitProperties(app_transactions=[Transaction(FORMAT_APP, FORMAT + 1)])
        table = DeltaTable(whole.tables.location(LOG))
        table.create_write_transaction([], "append", table.schema(), commit_properties=newer)
        with pytest.raises(JobError, match=r"table generations .* newer release wrote it, in format 2; this"):
            start(whole.root)

    @pytest.mark.parametrize(
        ("protocol", "told"),
        [
            (
                {"minReaderVersion": 3, "readerFeatures": ["deletionVectors"]},
                r"features \['deletionVectors'\]",
            ),
            (
                {"minReaderVersion": 1, "writerFeatures": ["rowTracking"]},
                r"\['rowTracking'\], .*DROP FEATURE",
            ),
            ({"minReaderVersion": 2, "minWriterVersion": 5}, r"features \['columnMapping'\]"),
            (
                {"minReaderVersion": 3, "readerFeatures": ["brandNew"]},
                r"cannot be opened: .*'brandNew'",
            ),
        ],
        ids=["deletion vectors", "row tracking", "column mapping", "unknown"],
    )
    def test_what_delta_has_that_we_do_not_read(
        self, whole: Deployment, protocol: dict[str, object], told: str
    ) -> None:
        """Deletion vectors would even be read wrongly without a word: rows that were deleted."""
        features = protocol.get("readerFeatures", [])
        wanted = {"minWriterVersion": 7, "writerFeatures": features, **protocol}
        if wanted["minWriterVersion"] != 7:
            del wanted["writerFeatures"]
        log = whole.root / "events" / "_delta_log"
        version = whole.tables.delta_table("events").version() + 1
        (log / f"{version:020d}.json").write_text(json.dumps({"protocol": wanted}) + "\n")
        with pytest.raises(JobError, match=rf"table events at .*{told}"):
            start(whole.root)


@pytest.fixture(scope="module")
def after_three(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a deployment of three batches, with copies of it after the first and the second."""
    root = tmp_path_factory.mktemp("deployment")
    for number, name in enumerate(("one", "two", "now")):
        first, second = story().values()
        write_lines(root / "in", {f"{number}.jsonl": [first, second, second[:1]][number]})
        Job(spark, make_settings(root / "job")).run(once=True)
        shutil.copytree(root / "job", root / name)
    return root


@pytest.mark.spark
class TestCheckpoints:
    """A checkpoint's directory is held against the log before the query starts, with no input to read."""

    def settings(self, after_three: Path, tmp_path: Path, tables: str, checkpoint: str) -> Settings:
        """Put tables and checkpoint of two moments together."""
        shutil.copytree(after_three / tables / "tables", tmp_path / "job" / "tables")
        shutil.copytree(after_three / checkpoint / "checkpoint", tmp_path / "job" / "checkpoint")
        (tmp_path / "in").symlink_to(after_three / "in")
        settings = make_settings(tmp_path / "job")
        [source] = settings.sources
        # The files must have the names that the checkpoint knows.
        return settings.model_copy(
            update={"sources": (source.model_copy(update={"path": str(after_three / "in")}),)}
        )

    @pytest.mark.parametrize(
        ("tables", "checkpoint", "told"),
        [
            (
                "one",
                "now",
                r"is at batch 3, the log has it only up to batch 0; likely the tables",
            ),
            (
                "now",
                "one",
                r"is at batch 1, the log has it up to batch 2; .*likely the checkpoint",
            ),
        ],
    )
    def test_of_two_moments(
        self, spark: SparkSession, after_three: Path, tmp_path: Path, tables: str, checkpoint: str, told: str
    ) -> None:
        """Older tables under a checkpoint, or an older one over tables; --adopt goes on from the log."""
        settings = self.settings(after_three, tmp_path, tables, checkpoint)
        with pytest.raises(JobError, match=told):
            Job(spark, settings)
        if tables == "now":
            before = contents(settings)["assignment_deltas"]
            Job(spark, settings, adopt=True).run(once=True)
            assert contents(settings)["assignment_deltas"] == before

    def test_a_checkpoint_one_batch_old_fits(
        self, spark: SparkSession, after_three: Path, tmp_path: Path
    ) -> None:
        """It is what a crash leaves too: the batch comes again and is known."""
        settings = self.settings(after_three, tmp_path, "now", "two")
        before = contents(settings)
        Job(spark, settings).run(once=True)
        assert contents(settings) == before

    @pytest.mark.parametrize(
        ("gone", "told"),
        [
            ("metadata", r"there is no checkpoint in .*has never seen that checkpoint.*--adopt"),
            ("offsets", r"batch 2 is noted as done, but the last one planned is none; part"),
        ],
    )
    def test_of_which_a_part_is_gone(
        self, spark: SparkSession, after_three: Path, tmp_path: Path, gone: str, told: str
    ) -> None:
        """Spark would begin anew without a word."""
        settings = self.settings(after_three, tmp_path, "now", "now")
        part = tmp_path / "job" / "checkpoint" / gone
        part.unlink() if part.is_file() else shutil.rmtree(part)
        with pytest.raises(JobError, match=told):
            Job(spark, settings)

    def test_of_other_tables_and_unreadable(
        self, spark: SparkSession, after_three: Path, tmp_path: Path
    ) -> None:
        """A checkpoint that another deployment's log knows, and one that is no longer JSON."""
        settings = self.settings(after_three, tmp_path, "now", "now")
        metadata = tmp_path / "job" / "checkpoint" / "metadata"
        metadata.write_text("\0")
        with pytest.raises(JobError, match=r"its file `metadata` cannot be read: .*Checksum.*; put back"):
            Job(spark, settings)
        (metadata.parent / ".metadata.crc").unlink()
        metadata.write_text('{"id":"of-another"}')
        with pytest.raises(JobError, match=r"checkpoint of-another is at batch 3, and the log \(3 batches"):
            Job(spark, settings)
        metadata.write_text("\0")
        with pytest.raises(JobError, match=r"its file `metadata` is '\\x00', not what Spark writes"):
            Job(spark, settings)
        shutil.rmtree(tmp_path / "job" / "tables")
        metadata.write_text('{"id":"of-another"}')
        with pytest.raises(JobError, match="or the tables were deleted"):
            Job(spark, settings)

    def test_a_restored_table_is_made_good_by_the_job(
        self, spark: SparkSession, after_three: Path, tmp_path: Path
    ) -> None:
        """RESTORE as people do it, with Spark, by version and by time."""
        settings = self.settings(after_three, tmp_path, "now", "now")
        before = contents(settings)
        spark.sql(f"RESTORE TABLE delta.`{settings.job.tables}/groups` TO VERSION AS OF 0")
        assert contents(settings)["groups"] == []
        location = f"{settings.job.tables}/events"
        written = DeltaTable(location).history()[-2]["timestamp"]
        spark.sql(f"RESTORE TABLE delta.`{location}` TO TIMESTAMP AS OF '{rfc_3339(written)}'")
        Job(spark, settings).run(once=True)
        assert contents(settings) == before
        assert totals(settings)["records_read"] > 0
