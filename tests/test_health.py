"""Health over HTTP: what a probe hears at each point of a job's life, and how a real job ends on SIGTERM."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from conf.settings import load_settings
from streaming.operations.endpoint import Endpoint
from streaming.operations.health import JobHealth
from streaming.tables.delta import JobError
from streaming.tables.log import LOG_APP, SNAPSHOT_APP
from tests.deployments import event, write_lines
from tests.kill_harness import quick_start

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from conf.operations import HttpSettings

ROOT = Path(__file__).parents[1]
READY = ("tables", "sinks", "batch")


class Clock:
    """Gives the seconds that a test says."""

    now_s = 0.0

    def __call__(self) -> float:
        """Give them."""
        return self.now_s


class TestJobHealth:
    """One job's health."""

    def test_ready_when_all_steps_are_reached(self) -> None:
        """Each step that is missing is named; with none missing nothing is."""
        health = JobHealth("prod")
        for step in READY:
            assert len(health.why_not_ready()) == len(READY) - READY.index(step)
            health.reach(step)
        assert health.why_not_ready() == []

    def test_what_is_demanded_is_asked_each_time(self) -> None:
        """A lease that is lost later makes the job unready again."""
        health = JobHealth("prod")
        for step in READY:
            health.reach(step)
        held = [True]
        health.demand(lambda: None if held[0] else "its lease is lost")
        assert health.why_not_ready() == []
        held[0] = False
        assert health.why_not_ready() == ["its lease is lost"]

    def test_a_batch_is_stuck_after_its_time(self) -> None:
        """Within it nothing is wrong; after it the batch is named; when it has ended all is well again."""
        clock = Clock()
        health = JobHealth("prod", clock=clock)
        with health.batch(7):
            clock.now_s = 60.0
            assert health.why_stuck(60.0) is None
            clock.now_s = 61.0
            assert health.why_stuck(60.0) == "batch 7 has run for 61 s"
            assert health.why_stuck(0.0) is None
        assert health.why_stuck(60.0) is None

    def test_a_batch_that_fails_makes_nothing_ready(self) -> None:
        """Only one that ended well counts."""
        health = JobHealth("prod")
        health.reach("tables")
        health.reach("sinks")
        with pytest.raises(JobError), health.batch(0):
            raise JobError("no")
        assert health.why_not_ready() == ["no batch and no trigger without news has ended"]

    def test_the_end_is_told_with_its_reason(self) -> None:
        """A job that failed says why, one that was stopped that it has stopped."""
        failed, stopped = JobHealth("prod"), JobHealth("prod")
        failed.begin("q")
        assert failed.is_running
        with pytest.raises(JobError), failed.running():
            raise JobError("the log was deleted\nand more")
        with stopped.running():
            pass
        assert not failed.is_running
        assert failed.why_ended() == "it has ended with JobError: the log was deleted"
        assert stopped.why_not_ready() == ["it has stopped"]


def http_settings(**more: str) -> HttpSettings:
    """Give the settings of an endpoint on any free port of loopback."""
    changed = {f"http.{name}": value for name, value in {"bind": "127.0.0.1:0", **more}.items()}
    return load_settings(None, {}, changed).http


def ask(port: int, path: str, method: str = "GET", host: str = "127.0.0.1") -> tuple[int, str]:
    """Send one request: (status, body)."""
    connection = HTTPConnection(host, port, timeout=10)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


@contextmanager
def served(**more: str) -> Iterator[Endpoint]:
    """Serve an endpoint of two clusters."""
    settings = load_settings(None, {}, {})
    endpoint = Endpoint(http_settings(**more), {"east": settings, "west": settings})
    with endpoint.serving():
        yield endpoint


class TestEndpoint:
    """The HTTP server, asked by a client."""

    def test_probes_of_two_clusters(self) -> None:
        """Ready when both are; one that ends fails /readyz, and /healthz only when no other goes on."""
        with served() as endpoint:
            assert ask(endpoint.port, "/healthz") == (200, "ok\n")
            for cluster, health in endpoint.health.items():
                status, told = ask(endpoint.port, "/readyz")
                assert status == 503
                assert f"cluster {cluster}: its tables are not open\n" in told
                for step in READY:
                    health.reach(step)
            assert ask(endpoint.port, "/readyz") == (200, "ok\n")
            endpoint.health["east"].end("it has ended with JobError: no")
            assert ask(endpoint.port, "/healthz") == (200, "ok\n")
            east = "cluster east: it has ended with JobError: no\n"
            assert ask(endpoint.port, "/readyz") == (503, east)
            endpoint.health["west"].end("it has stopped")
            assert ask(endpoint.port, "/healthz") == (503, f"{east}cluster west: it has stopped\n")

    def test_a_stuck_batch_fails_healthz(self) -> None:
        """For as long as it runs."""
        with served(stuck_after_s="0.01") as endpoint, endpoint.health["west"].batch(3):
            time.sleep(0.05)
            status, told = ask(endpoint.port, "/healthz")
            assert (status, told) == (503, "cluster west: batch 3 has run for 0 s\n")

    def test_metrics_of_both_clusters_are_one_page(self) -> None:
        """One family each, told apart by the label cluster."""
        with served() as endpoint:
            status, told = ask(endpoint.port, "/metrics")
        assert status == 200
        assert told.count("# TYPE counterpoise_query_running gauge") == 1
        assert {line for line in told.splitlines() if line.startswith("counterpoise_query_running")} == {
            'counterpoise_query_running{cluster="east"} 0.0',
            'counterpoise_query_running{cluster="west"} 0.0',
        }

    def test_other_requests_are_refused(self) -> None:
        """Another path is not found, another method not allowed."""
        with served() as endpoint:
            assert ask(endpoint.port, "/")[0] == 404
            assert ask(endpoint.port, "/healthz", "POST")[0] == 405
            assert ask(endpoint.port, "/metrics", "POST")[0] == 405

    def test_a_client_that_says_nothing_keeps_nobody_waiting(self) -> None:
        """Others are answered while its connection stands open."""
        with served() as endpoint, socket.create_connection(("127.0.0.1", endpoint.port)) as silent:
            silent.sendall(b"GET /healthz HT")
            assert ask(endpoint.port, "/healthz")[0] == 200

    def test_a_fault_of_ours_is_logged_and_answered(
        self, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
    ) -> None:
        """With 500, the trace in the log and nothing on stderr; a client that goes away says nothing."""
        with served() as endpoint:
            endpoint.health["east"].demand(lambda: str(1 // 0))
            assert ask(endpoint.port, "/readyz") == (500, "see the log\n")
            with socket.create_connection(("127.0.0.1", endpoint.port)) as hasty:
                hasty.sendall(b"GET /metrics HT")
        assert "no answer for /readyz" in caplog.text
        assert "ZeroDivisionError" in caplog.text
        assert capfd.readouterr().err == ""

    def test_an_address_that_is_taken_is_told(self) -> None:
        """Before Spark starts, with the setting's name."""
        with served() as endpoint:
            taken = f"127.0.0.1:{endpoint.port}"
            told = rf"http\.bind '{taken}': .*choose another address"
            with pytest.raises(JobError, match=told), served(bind=taken):
                pass

    def test_without_an_address_nothing_is_served(self) -> None:
        """The default opens no port."""
        assert load_settings(None, {}, {}).http.bind == ""
        with served(bind="") as endpoint:
            assert endpoint.port == 0

    def test_the_port_is_free_again_afterwards(self) -> None:
        """A restart gets it."""
        with served() as endpoint:
            port = endpoint.port
        with served(bind=f"127.0.0.1:{port}") as endpoint:
            assert ask(port, "/healthz")[0] == 200


@pytest.mark.parametrize("bind", ["9464", "127.0.0.1", "127.0.0.1:66000", ":9464", "host:port", "a b:1"])
def test_a_bind_that_is_no_address_is_refused(bind: str) -> None:
    """With what it must be."""
    with pytest.raises(ValueError, match=r"http\.bind is .*; (it|its port) must be"):
        http_settings(bind=bind)


def free_port() -> int:
    """Find a port of loopback that nobody has now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@pytest.mark.spark
def test_a_real_job_becomes_ready_and_ends_with_0_on_sigterm(spark: SparkSession, tmp_path: Path) -> None:
    """Two clusters, one endpoint: alive from the start, ready after both's first batch; then SIGTERM.

    Both end in good order: what was logged is what was committed, the snapshots stand at it, and every
    line of the log is a JSON object.
    """
    port = free_port()
    text = (
        f'[job]\ntables = "{tmp_path}/{{cluster}}/tables"\n'
        f'checkpoint_location = "{tmp_path}/{{cluster}}/checkpoint"\n'
        "trigger_interval_s = 0.5\ntick_interval_s = 1.0\n"
        f'[http]\nbind = "127.0.0.1:{port}"\n'
        f'[log]\nformat = "json"\njvm_output = "{tmp_path}/jvm.log"\n'
    )
    clusters = ("east", "west")
    for cluster in clusters:
        broken = ["{broken"] * (1 + clusters.index(cluster))
        topic = event("topic_changed", 0, topic="t", partitions=4)
        write_lines(tmp_path / cluster / "in", {"a.jsonl": [topic, *broken]})
        text += (
            f'[[sources]]\nname = "{cluster}"\nformat = "events"\nfrom = "files"\n'
            f'cluster = "{cluster}"\npath = "{tmp_path}/{cluster}/in"\n'
        )
    (tmp_path / "job.toml").write_text(text)
    environ = {name: value for name, value in os.environ.items() if not name.startswith("COUNTERPOISE_")}
    quick = [part for key, value in quick_start(spark).items() for part in ("--set", f"{key}={value}")]
    process = subprocess.Popen(
        [sys.executable, "-m", "console.cli", "run", "--conf", str(tmp_path / "job.toml"), *quick],
        cwd=ROOT,
        env=environ,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        heard: list[int] = []
        deadline = time.monotonic() + 240
        while not heard or heard[-1] != 200:
            assert process.poll() is None, process.stderr and process.stderr.read()[-3000:]
            assert time.monotonic() < deadline, f"not ready: {heard[-1:]}"
            time.sleep(0.3)
            try:
                assert ask(port, "/healthz")[0] == 200
                heard.append(ask(port, "/readyz")[0])
            except ConnectionRefusedError:
                assert not heard, "the endpoint was there and is gone"
        assert heard[0] == 503
        metrics = ask(port, "/metrics")[1].splitlines()
        for count, cluster in enumerate(clusters, start=1):
            labels = f'{{cluster="{cluster}",outcome="rejected"}}'
            assert f"counterpoise_records_total{labels} {count}.0" in metrics
            assert f'counterpoise_query_running{{cluster="{cluster}"}} 1.0' in metrics
        process.send_signal(signal.SIGTERM)
        _, logged = process.communicate(timeout=120)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, logged[-3000:]
    lines = [json.loads(line) for line in logged.splitlines()]
    assert {"time", "level", "logger", "message"} <= set.intersection(*(set(line) for line in lines))
    for cluster in clusters:
        batches = [line for line in lines if "total_s" in line and line["cluster"] == cluster]
        assert [line["batch_id"] for line in batches] == list(range(len(batches)))
        assert [line["batch_seq"] for line in batches] == list(range(1, len(batches) + 1))
        log, groups = (DeltaTable(tmp_path / cluster / "tables" / name) for name in ("generations", "groups"))
        assert log.transaction_version(LOG_APP) == len(batches)
        assert groups.transaction_version(SNAPSHOT_APP) == len(batches)
