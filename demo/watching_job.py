"""The job of the demo: `counterpoise run` over the broker's `__consumer_offsets`, in a child process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from console.errors import TablesError
from console.tables import latest_groups
from tests.kafka_cluster import ROOT, wait_until

CLUSTER = "demo"

_SETTINGS: Mapping[str, Mapping[str, object]] = MappingProxyType(
    {
        # A view that is looked at each second wants short batches.
        "job": {"cluster": CLUSTER, "trigger_interval_s": 0.5, "tick_interval_s": 3.0},
        f"clusters.{CLUSTER}": {"metadata_interval_s": 2.0},
        # Alerts that a deployment would wait minutes for.
        "alerts.UnassignedPartitions": {"for_s": 3.0},
        "alerts.GroupEmpty": {"for_s": 4.0},
        "log": {"level": "WARNING"},
    }
)

# Mostly Spark's start, which on a new machine fetches its packages.
_STARTS_WITHIN_S = 300
_ENDS_WITHIN_S = 30


class JobEndedError(RuntimeError):
    """The job ended by itself; the message has the end of its log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchingJob:
    """The running job, its tables and its log."""

    process: subprocess.Popen[bytes]
    tables: Path
    log: Path

    def check(self) -> None:
        """Make sure that it still runs.

        Raises:
            JobEndedError: it does not.
        """
        code = self.process.poll()
        if code is not None:
            raise JobEndedError(f"the job ended with code {code}: {self._log_end()}")

    def wait_for_groups(self) -> None:
        """Wait until the tables tell of a group.

        Raises:
            JobEndedError: the job ended before.
            TimeoutError: it took too long; with the end of its log.
        """
        wait_until(self._has_groups, _STARTS_WITHIN_S, lambda: f"the job found no groups: {self._log_end()}")

    def _has_groups(self) -> bool:
        self.check()
        try:
            return bool(latest_groups(str(self.tables)))
        except TablesError:
            return False

    def _log_end(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")[-1500:]


@contextmanager
def running_job(folder: Path, bootstrap_servers: str) -> Iterator[WatchingJob]:
    """Run the job, with all that it writes below a folder that exists; end it and its JVM when left."""
    conf, log, temporary = folder / "job.toml", folder / "job.log", folder / "tmp"
    conf.write_text(_settings_text(folder, bootstrap_servers, temporary), encoding="utf-8")
    temporary.mkdir()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COUNTERPOISE_")}
    environment |= {"PYTHONPATH": str(ROOT), "TMPDIR": str(temporary)}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "demo.tethered", "run", "--conf", str(conf)],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            # A terminal's Ctrl-C is for the demo, which then ends the job itself.
            process_group=0,
        )
    try:
        yield WatchingJob(process=process, tables=folder / "tables", log=log)
    finally:
        _end(process)


def _settings_text(folder: Path, bootstrap_servers: str, temporary: Path) -> str:
    """Write the job's settings as TOML."""
    paths = {"tables": str(folder / "tables"), "checkpoint_location": str(folder / "checkpoint")}
    sections: dict[str, Mapping[str, object]] = {
        **_SETTINGS,
        "job": {**_SETTINGS["job"], **paths},
        f"clusters.{CLUSTER}.kafka": {"bootstrap.servers": bootstrap_servers},
        "spark.options": {
            "spark.driver.memory": "1g",
            "spark.local.dir": str(temporary),
            # The JVM knows nothing of TMPDIR.
            "spark.driver.extraJavaOptions": f'"-Djava.io.tmpdir={temporary}"',
        },
    }
    lines = ["[[sources]]", 'name = "groups"', 'format = "offsets"', 'from = "kafka"']
    lines.append(f'cluster = "{CLUSTER}"')
    for section, values in sections.items():
        lines.append(f"[{section}]")
        # What JSON writes for these texts and numbers is TOML too.
        lines += [f"{json.dumps(name)} = {json.dumps(value)}" for name, value in values.items()]
    return "\n".join(lines) + "\n"


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ask the job to end after the batch at hand, and insist; its JVM lingers and is ended with it."""
    process.terminate()
    try:
        process.wait(_ENDS_WITHIN_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    assert process.stdin is not None
    process.stdin.close()
