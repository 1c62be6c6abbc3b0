"""From settings to running queries: one for each cluster with tables of its own, until told to stop."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from streaming.job import Job
from streaming.operations.endpoint import Endpoint
from streaming.session import start_session
from streaming.tables.delta import JobError, absolute_location

if TYPE_CHECKING:
    from conf.settings import Settings

_logger = logging.getLogger(__name__)


def run_job(settings: Settings, *, once: bool, adopt: bool) -> None:
    """Run the job that the settings describe: one query for each cluster that has tables of its own.

    Args:
        settings: all settings.
        once: take what there is, refresh the snapshots and end; else run until
            SIGTERM or Ctrl-C, finish the batch at hand, refresh the snapshots and end.
        adopt: go on over the log with a checkpoint that does not fit it.

    Raises:
        JobError: tables, checkpoint or sources need a decision of the operator. With
            several clusters the others go on; it is raised when they have ended.
    """
    for source in settings.sources:
        if source.from_ == "kafka":
            continue
        location = absolute_location(source.path)
        if "://" not in location and not Path(location).exists():
            raise JobError(
                f"source {source.name!r}: {location} does not exist; create it or correct the path"
            )
    deployments = settings.by_cluster()
    endpoint = Endpoint(settings.http, deployments)
    # From before Spark's start to after its end, so that a stop in either is a stop as well: exit code 0.
    with endpoint.serving(), _stop_on_signal() as stop:
        is_own_session = SparkSession.getActiveSession() is None
        spark = start_session(settings)
        try:
            with endpoint.listening(spark):

                def run(cluster: str, own: Settings) -> None:
                    report = endpoint.report_of(cluster)
                    with report.health.running():
                        Job(spark, own, adopt=adopt, stop=stop, report=report).run(once=once, stop=stop)

                if len(deployments) == 1:
                    for cluster, own in deployments.items():
                        run(cluster, own)
                else:
                    _run_side_by_side(deployments, run)
        finally:
            if is_own_session:
                spark.stop()


def _run_side_by_side(deployments: dict[str, Settings], run: Callable[[str, Settings], None]) -> None:
    """Run each cluster's job in a thread of its own; one that fails does not stop the others."""

    def run_one(cluster: str, settings: Settings) -> None:
        try:
            run(cluster, settings)
        except BaseException:
            _logger.exception("cluster %s: its job has ended; the other clusters go on", cluster)
            raise

    with ThreadPoolExecutor(len(deployments), thread_name_prefix="cluster") as pool:
        running = [pool.submit(run_one, cluster, settings) for cluster, settings in deployments.items()]
        wait(running)
    for job in running:
        job.result()


@contextmanager
def _stop_on_signal() -> Iterator[threading.Event]:
    """Turn SIGTERM and Ctrl-C into a request to stop after the batch at hand."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {
        number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
