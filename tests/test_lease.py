"""One job at a time: who holds the tables is said, a dead holder's place is taken, an overtaken one stops."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable
from pyspark.sql import functions

from streaming.crash_points import SLEEP_AT, reach
from streaming.job import Job
from streaming.operations.misfits import put_right
from streaming.tables.delta import LOG, JobError, Tables
from streaming.tables.lease import LEASE, LEASE_APP, Lease
from streaming.tables.log import LOG_APP
from tests.deployments import contents, make_settings, totals
from tests.kill_harness import RUN, quick_start, write_story
from tests.test_stream_plumbing import Deployment, group_row, topic_row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parent.parent
WRITE = "import sys; from tests.test_lease import write_batches; write_batches(*sys.argv[1:])"
HOLD = """
import sys, time
from streaming.tables.lease import Lease
Lease(sys.argv[1], float(sys.argv[2])).take()
print("held", flush=True)
time.sleep(60)
"""


class LeasedDeployment(Deployment):
    """Tables written under a lease, in the steps of the job."""

    def __init__(self, root: Path, lease_s: float) -> None:
        self.lease = Lease(str(root), lease_s)
        super().__init__(root)

    def restart(self) -> None:
        """Start as the job does."""
        self.lease.take()
        super().restart()
        self.tables.ask_lease = lambda: self.lease.ensure_held(ask=True)
        self.lease.fence(self.tables)
        put_right(self.tables)
        self.outbox.catch_up()


def write_batches(root: str, batches: str = "6", lease_s: str = "1") -> None:
    """Do without Spark what the job does of each batch, snapshots after every second."""
    job = LeasedDeployment(Path(root), float(lease_s))
    while (number := job.log.last_batch_seq + 1) <= int(batches):
        reach("before_log")
        rows = job.commit(topic_row("orders", 4), group_row(f"g{number % 3}", number))
        reach("after_log")
        job.outbox.catch_up((number, rows))
        if number % 2 == 0:
            job.snapshots.refresh()
            job.outbox.mark()
    job.lease.ensure_held()
    job.lease.release()


@contextmanager
def process(script: str, *arguments: str, **environ: str) -> Iterator[subprocess.Popen[str]]:
    """Run a script of ours in a process of its own, killed at the end."""
    started = subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        cwd=ROOT,
        env={**os.environ, **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield started
    finally:
        started.kill()
        started.communicate()


def wait_until_asleep(of: subprocess.Popen[str]) -> None:
    """Wait for a process to stop itself."""
    _, status = os.waitpid(of.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status), of.communicate()


def silent_holder(root: Path, **who: object) -> Lease:
    """Take a lease of a second as somebody else who does not renew it by himself."""
    lease = Lease(str(root), 1)
    lease._me = dataclasses.replace(lease._me, **who)  # type: ignore[arg-type]
    lease._lease_s = 3600
    lease.take()
    return lease


class TestTaking:
    """Who gets the lease, and when."""

    def test_a_second_job_is_told_who_holds_the_tables(self, tmp_path: Path) -> None:
        """It stops, within one renewal, with the holder's pid, host and token."""
        with process(HOLD, str(tmp_path), "1.5") as first:
            assert first.stdout is not None
            assert first.stdout.readline() == "held\n"
            with pytest.raises(
                JobError, match=rf"another job holds them .*: pid {first.pid} on host .*token 1;"
            ):
                Lease(str(tmp_path), 1.5).take()

    @pytest.mark.parametrize("is_reaped", [False, True])
    def test_a_killed_holder_s_place_is_taken_at_once(self, tmp_path: Path, is_reaped: bool) -> None:
        """The process is gone, or waits for its parent to notice: no wait for its lease of an hour."""
        with process(HOLD, str(tmp_path), "3600") as first:
            assert first.stdout is not None
            assert first.stdout.readline() == "held\n"
            first.kill()
            if is_reaped:
                first.wait()
            else:
                os.waitid(os.P_PID, first.pid, os.WEXITED | os.WNOWAIT)
            second = Lease(str(tmp_path), 3600)
            began = time.monotonic()
            second.take()
            assert time.monotonic() - began < 2
            assert second.token == 2
            second.release()

    def test_what_was_given_back_is_taken_at_once(self, tmp_path: Path) -> None:
        """A clean stop leaves nothing to wait for, and each start has a token of its own."""
        began = time.monotonic()
        for token in (1, 2, 3):
            lease = Lease(str(tmp_path), 3600)
            lease.take()
            assert lease.token == token
            lease.release()
            with pytest.raises(JobError, match="given back"):
                lease.ensure_held()
        assert time.monotonic() - began < 2

    @pytest.mark.parametrize("who", [{"host": "elsewhere"}, {"boot_id": ""}, {"pid_namespace": "pid:[1]"}])
    def test_a_holder_elsewhere_is_waited_for(self, tmp_path: Path, who: dict[str, str]) -> None:
        """Of another host, boot or container nothing is known: only a lease's time without a word counts."""
        silent_holder(tmp_path, **who)
        began = time.monotonic()
        lease = Lease(str(tmp_path), 1)
        lease.take()
        assert time.monotonic() - began >= 1
        lease.release()

    def test_a_pid_that_is_another_process_now_is_no_holder(self, tmp_path: Path) -> None:
        """The process with the holder's pid (our own) started at another time: taken at once."""
        silent_holder(tmp_path, process_started=1, lease_s=3600)
        lease = Lease(str(tmp_path), 1)
        began = time.monotonic()
        lease.take()
        assert time.monotonic() - began < 1
        lease.release()

    def test_of_many_that_start_together_one_wins(self, tmp_path: Path) -> None:
        """All find the lease free, or one silent holder; one takes it and the others are told."""
        for silent in (False, True):
            root = tmp_path / str(silent)
            if silent:
                silent_holder(root, host="elsewhere")
            leases = [Lease(str(root), 1.5) for _ in range(6)]

            def outcome(lease: Lease) -> str:
                try:
                    lease.take()
                except JobError as error:
                    return str(error)
                return "taken"

            with ThreadPoolExecutor(len(leases)) as pool:
                outcomes = list(pool.map(outcome, leases))
            for lease in leases:
                lease.release()
            assert outcomes.count("taken") == 1, outcomes
            assert sum("another job holds them" in told for told in outcomes) == 5, outcomes

    def test_who_waits_can_be_stopped(self, tmp_path: Path) -> None:
        """Ctrl-C need not wait for the lease of a machine that is gone."""
        silent_holder(tmp_path, host="elsewhere", lease_s=3600)
        stop = threading.Event()
        stop.set()
        with pytest.raises(JobError, match=r"stopped while waiting for .* pid .* on host elsewhere"):
            Lease(str(tmp_path), 1).take(stop)

    def test_a_failed_start_gives_the_lease_back(self, tmp_path: Path) -> None:
        """The next start need not wait for one that found its tables unfit."""
        lease = Lease(str(tmp_path), 3600)
        lease.take()
        with pytest.raises(ZeroDivisionError), lease.released_on_error():
            raise ZeroDivisionError
        lease = Lease(str(tmp_path), 3600)
        lease.take()
        lease.release()


class TestHolding:
    """What a holder lives through."""

    def test_months_of_renewals_leave_few_files(self, tmp_path: Path) -> None:
        """The table has no rows, and its log is cut as it grows."""
        lease = Lease(str(tmp_path), 3600)
        lease.take()
        table = DeltaTable(str(tmp_path / LEASE))
        table.alter.set_table_properties({"delta.logRetentionDuration": "interval 0 seconds"})
        for _ in range(350):
            lease._renew()
        assert DeltaTable(str(tmp_path / LEASE)).version() > 350
        assert DeltaTable(str(tmp_path / LEASE)).file_uris() == []
        files = [file for file in (tmp_path / LEASE).rglob("*") if file.is_file()]
        assert len(files) < 230
        lease.ensure_held(ask=True)
        lease.release()
        assert Lease(str(tmp_path), 1)._look().is_released

    def test_upkeep_of_the_lease_s_table_by_hand_is_nobody_s_holder(self, tmp_path: Path) -> None:
        """An OPTIMIZE over all tables neither ends the lease nor looks like a renewal."""
        lease = silent_holder(tmp_path, host="elsewhere")
        table = DeltaTable(str(tmp_path / LEASE))
        table.optimize.compact()
        table.alter.set_table_properties({"delta.appendOnly": "false"})
        lease.ensure_held(ask=True)
        lease._renew()
        lease.ensure_held(ask=True)
        table.update_incremental()
        table.alter.set_table_properties({"delta.appendOnly": "true"})
        second = Lease(str(tmp_path), 1)
        second.take()
        assert second.token == 2
        second.release()
        with pytest.raises(JobError, match=r"another has taken over: pid .* with token 2;"):
            lease.ensure_held(ask=True)

    def test_a_holder_whose_table_was_deleted_holds_on(self, tmp_path: Path) -> None:
        """It makes the table anew; the log keeps the token rising."""
        job = LeasedDeployment(tmp_path, 1)
        job.lease.release()
        job = LeasedDeployment(tmp_path, 1)
        assert job.lease.token == 2
        for file in sorted((tmp_path / LEASE).rglob("*"), reverse=True):
            file.unlink() if file.is_file() else file.rmdir()
        (tmp_path / LEASE).rmdir()
        job.lease.ensure_held(ask=True)
        job.lease._renewed_at -= 10
        job.lease._renew()
        with pytest.raises(JobError, match="another job holds them"):
            Lease(str(tmp_path), 1).take()
        job.lease.release()
        third = Lease(str(tmp_path), 1)
        third.take()
        assert third.token == 3
        third.release()


class TestCommits:
    """Every commit is made on the version that was looked at."""

    def test_an_optimize_in_between_costs_a_second_try(self, tmp_path: Path) -> None:
        """The log, a flat table and every snapshot are compacted behind the job's back; nothing is lost."""
        whole, disturbed = Deployment(tmp_path / "whole"), Deployment(tmp_path / "disturbed")
        for job in (whole, disturbed):
            for number in (1, 2, 3, 4):
                job.commit(topic_row("orders", number), group_row("g", number))
                job.outbox.catch_up()
                job.snapshots.refresh()
                if job is disturbed:
                    for name in (LOG, "events", "groups", "topics", "alerts", "assignments"):
                        by_hand = DeltaTable(job.tables.location(name))
                        by_hand.optimize.compact()
                        by_hand.alter.set_table_properties({"delta.logRetentionDuration": "interval 9 days"})
        assert disturbed.contents() == whole.contents()
        operations = {commit["operation"] for commit in disturbed.tables.delta_table(LOG).history()}
        assert "SET TBLPROPERTIES" in operations

    def test_a_predecessor_cannot_commit_to_the_log(self, tmp_path: Path) -> None:
        """It may have been stopped at any line: its commit is refused by what the new holder wrote there."""
        first = LeasedDeployment(tmp_path, 3600)
        first.commit(group_row("g", 1))
        first.lease._given_back.set()
        second = Lease(str(tmp_path), 3600)
        assert second._take_over(second._look())
        second.fence(Tables(str(tmp_path)))
        with pytest.raises(JobError, match=r"this job \(token 1\) .* another has taken over: pid .*token 2;"):
            first.commit(group_row("g", 2))
        table = DeltaTable(str(tmp_path / LOG))
        assert (table.transaction_version(LOG_APP), table.transaction_version(LEASE_APP)) == (1, 2)

    def test_a_table_restored_under_a_running_job_stops_it(self, tmp_path: Path) -> None:
        """Else the next batch would be written behind a hole."""
        job = Deployment(tmp_path)
        for number in (1, 2, 3):
            job.commit(group_row("g", number))
        DeltaTable(job.tables.location(LOG)).restore(2)
        with pytest.raises(JobError, match="restored to an older state while the job ran"):
            job.commit(group_row("g", 4))

    @pytest.mark.spark
    def test_nor_can_an_append_of_spark_that_has_begun(self, spark: SparkSession, tmp_path: Path) -> None:
        """Spark goes past other commits, but not past one that speaks of the application it writes as."""
        first = LeasedDeployment(tmp_path, 3600)
        first.commit(group_row("g", 1))
        rows = spark.read.format("delta").load(first.tables.location(LOG))

        def append(sleep_s: float) -> None:
            slow = rows.withColumn("state", functions.udf(lambda: time.sleep(sleep_s), "string")())
            writer = slow.write.format("delta").mode("append").option("txnAppId", LOG_APP)
            writer.option("txnVersion", 2).save(first.tables.location(LOG))

        second = Lease(str(tmp_path), 3600)
        with ThreadPoolExecutor(1) as pool:
            began = pool.submit(append, 5)
            time.sleep(2)
            assert second._take_over(second._look())
            second.fence(Tables(str(tmp_path)))
            with pytest.raises(Exception, match=r"DELTA_CONCURRENT_TRANSACTION"):
                began.result()
        assert DeltaTable(first.tables.location(LOG)).transaction_version(LOG_APP) == 1


class TestOvertaken:
    """A job that was stopped for longer than its lease, at any point, and then goes on."""

    @pytest.mark.parametrize("point", ["before_log:3", "after_log:3", "after_events:3", "inside_snapshot:5"])
    def test_a_sleeper_stops_and_the_tables_are_those_of_one_job(self, tmp_path: Path, point: str) -> None:
        """Real processes: the second one goes on without a gap, the first finds out at its next commit."""
        write_batches(str(tmp_path / "whole"))
        with process(WRITE, str(tmp_path / "both"), **{SLEEP_AT: point}) as sleeper:
            wait_until_asleep(sleeper)
            write_batches(str(tmp_path / "both"))
            os.kill(sleeper.pid, signal.SIGCONT)
            _, told = sleeper.communicate(timeout=60)
            assert sleeper.returncode == 1
        assert f"another has taken over: pid {os.getpid()} on host" in told
        assert Deployment(tmp_path / "both").contents() == Deployment(tmp_path / "whole").contents()

    @pytest.mark.spark
    @pytest.mark.parametrize(
        ("point", "most_local_records"),
        [
            pytest.param("after_log:2", "5000", id="driver"),
            pytest.param("before_log:2", "0", id="executors", marks=pytest.mark.slow),
            pytest.param("before_spark_commit", "5000", id="before Spark's commit", marks=pytest.mark.slow),
        ],
    )
    def test_two_whole_jobs(
        self, spark: SparkSession, tmp_path: Path, point: str, most_local_records: str
    ) -> None:
        """With Spark, checkpoint and all; the large path's commit is Spark's own."""
        write_story(tmp_path / "in", 3)
        options = {
            "batch.shards": "2",
            "batch.snapshot_every_batches": "2",
            "batch.local_max_records": most_local_records,
            "sources.events.max_files_per_trigger": "1",
            "job.lease_s": "1.5",
        }
        whole = make_settings(tmp_path / "whole", **{**options, "batch.local_max_records": "5000"})
        Job(spark, whole).run(once=True)
        both = make_settings(tmp_path / "both", **options)
        places = {"job.tables": both.job.tables, "job.checkpoint_location": both.job.checkpoint_location}
        own = options | places | quick_start(spark)
        settings = [f"{key}={value}" for key, value in own.items()]
        with process(RUN, str(tmp_path / "both" / "conf.toml"), *settings, **{SLEEP_AT: point}) as sleeper:
            wait_until_asleep(sleeper)
            Job(spark, both).run(once=True)
            os.kill(sleeper.pid, signal.SIGCONT)
            _, told = sleeper.communicate(timeout=120)
            assert sleeper.returncode == 1
        assert f"another has taken over: pid {os.getpid()} on host" in told
        assert contents(both) == contents(whole)
        assert totals(both) == totals(whole)
