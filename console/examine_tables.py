"""The doctor's look at one deployment's tables: the job's own checks at its start, without what it mends.

What belongs together is decided by streaming.operations.misfits, who holds the lease by
streaming.tables.lease; here it is only told, together with what slows a deployment down: files, logs,
tables that lag.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from console.examine_machine import examine_directory, examine_storage
from console.findings import Finding, lasting, ok, problem, problem_told, sized, warning

if TYPE_CHECKING:
    from conf.settings import Settings
    from streaming.tables.found import FoundTables
    from streaming.tables.log import Log

_TRIES = 3
_TRY_AGAIN_S = 1.0
"""A job at work goes on between two looks, so what does not fit is looked at again."""

_LARGE_LOG_BYTES = 1 << 30
_MANY_COMMITS = 1000
"""Each open reads the commits since the last Delta checkpoint, of which delta-rs makes one every 100."""

_SILENT_INTERVALS = 5
"""A job at work has a batch at each tick; so many without one are no coincidence."""


def examine_deployment(settings: Settings, where: str) -> Iterator[Finding]:
    """Look at the tables, checkpoint and lease of one deployment.

    Args:
        settings: the deployment's, from `Settings.by_cluster`.
        where: what stands before each thing's name, "" where there is one deployment.
    """
    yield from _Deployment(settings, where).examine()


class _Deployment:
    """One deployment, looked at from the outside in."""

    def __init__(self, settings: Settings, where: str) -> None:
        from streaming.tables.delta import absolute_location

        self._settings = settings
        self._where = where
        self._root = absolute_location(settings.job.tables)
        self._is_at_work = False

    def examine(self) -> Iterator[Finding]:
        """Go on as long as there is something to look at."""
        import pyarrow as pa
        from deltalake.exceptions import DeltaError

        from streaming.tables.delta import LOG, JobError, absolute_location
        from streaming.tables.found import FoundTables

        checkpoint = absolute_location(self._settings.job.checkpoint_location)
        places = {"job.tables": self._root, "job.checkpoint_location": checkpoint}
        is_reached = True
        for about, location in places.items():
            for finding in self._examine_place(f"{self._where}{about}", location):
                is_reached = is_reached and (finding.level != "problem" or finding.check == "space")
                yield finding
        if not is_reached:
            return
        yield self._examine_lease()
        try:
            tables = FoundTables(self._root)
        except (JobError, OSError) as error:
            yield problem_told("tables", self._root, error)
            return
        for name, told in tables.problems.items():
            yield problem_told("table", f"{self._where}{name}", told)
        if not tables.has(LOG):
            if LOG in tables.missing:
                yield ok("tables", f"{self._where}{self._root}", "none yet; the first start makes them")
            return
        try:
            yield from self._examine_log(tables)
        except JobError as error:
            yield problem_told("log", f"{self._where}{LOG}", error)
        except (OSError, ValueError, DeltaError, pa.ArrowException) as error:
            yield self._unreadable(LOG, error)
        for name in sorted(tables.missing):
            about = f"{self._where}{name}"
            faults = self._faults_of_rights(tables, name)
            advice = "the next start makes it anew from the log"
            yield from faults or [warning("table", about, "it is missing", advice)]
        for name in (LOG, *sorted(_names_of(tables))):
            yield from self._examine_table(tables, name)

    def _examine_place(self, about: str, location: str) -> Iterator[Finding]:
        if "://" in location:
            yield from examine_storage(about, location, self._settings.spark.option_values())
        else:
            yield from examine_directory(about, location)

    def _unreadable(self, name: str, error: Exception) -> Finding:
        return problem(
            "table",
            f"{self._where}{name}",
            f"its files cannot be read: {_first_line(error)}",
            "put back a whole copy of it",
        )

    def _examine_lease(self) -> Finding:
        """Say who holds the lease, and whether it is heard of."""
        from streaming.tables.delta import JobError
        from streaming.tables.lease import LEASE, look_at_lease

        about = f"{self._where}{LEASE}"
        try:
            seen = look_at_lease(self._root)
        except JobError as error:
            return problem_told("lease", about, error)
        except (OSError, ValueError, TypeError, KeyError) as error:
            advice = "stop every job on these tables and delete it: the next start makes it anew"
            return problem("lease", about, f"it cannot be read: {_first_line(error)}", advice)
        if seen is None or seen.holder is None:
            return ok("lease", about, "nobody has held it yet")
        silent_s = max(time.time() - seen.renewed_ms / 1000, 0)
        if seen.is_released:
            return ok("lease", about, f"free for {lasting(silent_s)}, given back by {seen.holder}")
        if seen.holder.is_dead():
            return warning(
                "lease",
                about,
                f"dead: {seen.holder} runs no more and did not give it back",
                "see why it ended; the next start takes over at once",
            )
        if silent_s > seen.holder.lease_s:
            return warning(
                "lease",
                about,
                f"silent: {seen.holder} has not renewed it for {lasting(silent_s)} (job.lease_s "
                f"{seen.holder.lease_s:g})",
                "if it was stopped or its machine is gone, another start takes over; else see its log",
            )
        self._is_at_work = True
        held = f"live: {seen.holder}, renewed {lasting(silent_s)} ago, token {seen.token}"
        return ok("lease", about, held)

    def _examine_log(self, tables: FoundTables) -> Iterator[Finding]:
        """Hold log, tables and checkpoint against one another as the job does at its start."""
        from streaming.operations.misfits import APP_OF_TABLE, check_log, check_noted, content_of_restored
        from streaming.tables.delta import JobError
        from streaming.tables.log import Log

        check_log(tables)
        log = Log(tables)
        yield self._examine_age(tables, log)
        noted = {name: tables.transaction_version(name, app_id) for name, app_id in APP_OF_TABLE.items()}
        restored = False
        for name, app_id in APP_OF_TABLE.items():
            content = content_of_restored(tables, name) if tables.has(name) else None
            holds = noted[name] if content is None else content.transaction_version(app_id) or 0
            if content is not None and holds != noted[name]:
                restored = True
                yield warning(
                    "table",
                    f"{self._where}{name}",
                    f"it was restored to its version {content.version()}: it holds batches up to {holds}, "
                    f"not {noted[name]}",
                    "the next start writes the rest again from the log",
                )
                noted[name] = holds
        check_noted(tables, noted)
        if not restored:
            yield from self._examine_lags(tables, noted, log.last_batch_seq)
        about = f"{self._where}{self._settings.job.checkpoint_location}"
        try:
            yield self._examine_checkpoint(log, tables, about)
        except JobError as error:
            yield problem_told("checkpoint", about, error)
        except (OSError, ValueError) as error:
            yield problem("checkpoint", about, f"it cannot be read: {_first_line(error)}", "see its rights")

    def _examine_age(self, tables: FoundTables, log: Log) -> Finding:
        """Say when the last batch was, and whether a job that holds the lease should have had another."""
        from streaming.tables.delta import LOG

        about, last = f"{self._where}{LOG}", log.last_batch_seq
        if not last:
            return ok("log", about, "no batch yet")
        times = tables.read(LOG, ["batch_seq", "observed_at"], batches=(last, last))["observed_at"]
        observed = max(moment.timestamp() for moment in times.drop_null().to_pylist())
        age_s = time.time() - observed
        found = f"batch {last} is its last, {lasting(max(age_s, 0))} ago"
        job = self._settings.job
        interval_s = max(job.tick_interval_s, job.trigger_interval_s, self._settings.job.lease_s)
        if self._is_at_work and job.tick_interval_s and age_s > _SILENT_INTERVALS * interval_s:
            advice = "see the job's log for what it waits for: a sink's cluster, a long batch"
            return warning("log", about, f"{found}, though a job holds the lease", advice)
        return ok("log", about, found)

    def _examine_lags(self, tables: FoundTables, noted: dict[str, int], last: int) -> Iterator[Finding]:
        """Say which tables and sinks are far behind the log."""
        from streaming.tables.publish import SINK_APP, SINK_TABLE

        allowed = self._settings.batch.snapshot_every_batches
        advice = "the job brings it forward with its next batches; if it does not, see its log"
        for name, batch_seq in noted.items():
            if tables.has(name) and last - batch_seq > allowed:
                found = f"it lags: it holds batches up to {batch_seq}, the log up to {last}"
                yield warning("table", f"{self._where}{name}", found, advice)
        for sink in self._settings.sinks:
            sent = tables.transaction_version(SINK_TABLE, f"{SINK_APP}{sink.name}")
            if last - sent > allowed:
                found = f"it lags: it has had batches up to {sent}, the log goes up to {last}"
                yield warning("sink", f"{self._where}{sink.name}", found, advice)

    def _examine_checkpoint(self, log: Log, tables: FoundTables, about: str) -> Finding:
        """Hold the checkpoint's directory against the log; raises JobError when they do not fit."""
        from streaming.operations.checkpoint_directory import ArrowDirectory
        from streaming.operations.misfits import check_directory
        from streaming.tables.delta import JobError
        from streaming.tables.found import FoundTables
        from streaming.tables.log import Log

        location = self._settings.job.checkpoint_location
        for tries_left in reversed(range(_TRIES)):
            try:
                directory = ArrowDirectory(location)
                check_directory(directory, log, tables, adopt=False)
                checkpoint_id = directory.checkpoint_id()
            except JobError:
                if not (tries_left and self._is_at_work):
                    raise
                time.sleep(_TRY_AGAIN_S)
                tables = FoundTables(self._root)
                log = Log(tables)
            else:
                break
        last = log.last_of(checkpoint_id) if checkpoint_id is not None else None
        if last is None:
            return ok("checkpoint", about, "none yet, and nothing in the log")
        return ok("checkpoint", about, f"{last.checkpoint_id}, at batch {last.batch_id} as the log has it")

    def _examine_table(self, tables: FoundTables, name: str) -> Iterator[Finding]:
        """Look at one table's files, its own log, and this user's rights."""
        about = f"{self._where}{name}"
        files = tables.files(name)
        paths = files["path"].to_pylist()
        if "://" not in self._root:
            directory = Path(tables.location(name))
            faults = self._faults_of_rights(tables, name)
            lost = [path for path in paths if not os.access(directory / unquote(path), os.R_OK)]
            if lost and not faults:
                found = f"{len(lost)} of its {len(paths)} data files are gone or may not be read: {lost[0]}"
                faults = [problem("table", about, found, "put back a whole copy of it, or give the right")]
            yield from faults
            if faults:
                return
        small = self._count_small(tables, name)
        log_bytes, commits = _log_of(tables, name)
        if small > self._most_small():
            yield warning(
                "table",
                about,
                f"{len(paths)} files, {small} of them small",
                "run `counterpoise upkeep`, or set upkeep.every_s for a job that goes on",
            )
        elif log_bytes > _LARGE_LOG_BYTES or commits > _MANY_COMMITS:
            yield warning(
                "table",
                about,
                f"its own log has {sized(log_bytes)} and {commits} commits since its last checkpoint",
                "run `counterpoise upkeep`; upkeep.log_retention_h says how much of it is kept",
            )
        else:
            older = "; the next start adds columns of this release" if name in tables.older else ""
            yield ok(
                "table",
                about,
                f"version {tables.delta_table(name).version()}, {len(paths)} files ({small} small), "
                f"its own log {sized(log_bytes)}{older}",
            )

    def _faults_of_rights(self, tables: FoundTables, name: str) -> list[Finding]:
        """See whether this user can work in a table's directories, as far as they are local and there."""
        if "://" in self._root:
            return []
        directory = Path(tables.location(name))
        found = [
            finding
            for place in (directory, directory / "_delta_log")
            for finding in examine_directory(f"{self._where}{name}", str(place))
        ]
        return [replace(finding, check="table") for finding in found if finding.check == "directory"]

    def _count_small(self, tables: FoundTables, name: str) -> int:
        from streaming.tables.upkeep import count_small_files

        return count_small_files(tables.delta_table(name), self._settings.upkeep)

    def _most_small(self) -> float:
        """Say how many small files are in order: those a round leaves, and the batches until the next."""
        upkeep, job = self._settings.upkeep, self._settings.job
        if not self._is_at_work:
            return upkeep.compact_from_files
        return upkeep.compact_from_files + upkeep.every_s / max(job.trigger_interval_s, 1.0)


def _names_of(tables: FoundTables) -> list[str]:
    from streaming.tables.delta import PUBLISHED, SNAPSHOTS

    return [name for name in (*PUBLISHED, *SNAPSHOTS) if tables.has(name)]


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


def _log_of(tables: FoundTables, name: str) -> tuple[int, int]:
    """Measure a table's own log: (bytes, commits since its last checkpoint)."""
    import pyarrow.fs as pafs

    filesystem, base = pafs.FileSystem.from_uri(tables.location(name))
    found: list[Any] = filesystem.get_file_info(pafs.FileSelector(f"{base}/_delta_log"))
    names = [file.base_name.partition(".checkpoint") for file in found]
    checkpoints = [int(number) for number, dot, _ in names if dot and number.isdecimal()]
    version = tables.delta_table(name).version()
    return sum(file.size or 0 for file in found), version - max(checkpoints, default=-1)
