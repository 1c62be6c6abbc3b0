"""What does not belong together, found at the start before any batch: tables, log and checkpoint.

The log is what everything else follows from, so a table that was put back to an earlier state, by a
copy or by RESTORE, is brought forward from the log. What the log itself lacks, or a
checkpoint that is not its own, is for the operator to decide: the error says what was found.

RESTORE keeps every application's version, so a table claims rows that it has no more. Its history
tells; a copy put back needs no such care, for its versions are as old as its rows.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from streaming.operations.checkpoint_directory import HadoopDirectory
from streaming.tables.delta import LOG, PUBLISHED, SNAPSHOTS, JobError, Tables
from streaming.tables.log import LOG_APP, SNAPSHOT_APP, BatchIdentity
from streaming.tables.own_events import check_place
from streaming.tables.publish import PUBLISH_APP

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streaming.operations.checkpoint_directory import CheckpointDirectory
    from streaming.tables.log import Log

_logger = logging.getLogger(__name__)

APP_OF_TABLE = {**dict.fromkeys(PUBLISHED, PUBLISH_APP), **dict.fromkeys(SNAPSHOTS, SNAPSHOT_APP)}

_NO_BATCH = (1 << 39) - 1
"""More than any batch's number (see ORDINAL_BITS)."""

_WRITES = frozenset({"WRITE", "MERGE", "CREATE TABLE"})
"""What the job's own commits are called; others (OPTIMIZE, VACUUM, DELETE, ...) are gone past."""


def put_right(tables: Tables) -> None:
    """Hold every table against the log, and let those that were restored be made good from it.

    Raises:
        JobError: the log lacks what others have, or what they need to be brought forward.
    """
    check_log(tables)
    for name, app_id in APP_OF_TABLE.items():
        _rewind_restored(tables, name, app_id)
    check_noted(
        tables, {name: tables.transaction_version(name, app_id) for name, app_id in APP_OF_TABLE.items()}
    )


def check_noted(tables: Tables, noted: Mapping[str, int]) -> None:
    """Hold how far each table goes against the log, from which what one lacks is written.

    Args:
        tables: for the log.
        noted: table -> the last batch that it holds.

    Raises:
        JobError: the log ends before a table does, or has forgotten what one lacks.
    """
    last = tables.transaction_version(LOG, LOG_APP)
    ahead = {name: batch_seq for name, batch_seq in noted.items() if batch_seq > last}
    if ahead:
        raise JobError(
            f"log {tables.location(LOG)} ends at batch {last}, but tables hold later ones: {_listed(ahead)}; "
            "likely the log was put back from an older copy; put back its newest copy, or move these "
            "tables away: they are made anew from the log"
        )
    behind = {name: batch_seq for name, batch_seq in noted.items() if batch_seq < last}
    if behind:
        _check_reach(tables, behind, last)


def _listed(batches: Mapping[str, int]) -> str:
    return ", ".join(f"{name} up to batch {batch_seq}" for name, batch_seq in batches.items())


def check_log(tables: Tables) -> None:
    """Compare the log's rows with the last batch that it claims to hold.

    Raises:
        JobError: rows or history are missing.
    """
    last = tables.transaction_version(LOG, LOG_APP)
    found = _last_logged(tables, last)
    if found == last:
        return
    where = f"log {tables.location(LOG)}: its rows end at batch {found}, its commits at batch {last}"
    if found > last:
        raise JobError(
            f"{where}; likely a tool wrote the table anew without its history; put back a copy of the whole "
            "directory, _delta_log included"
        )
    table = tables.delta_table(LOG)
    restored = [commit["version"] for commit in table.history() if commit["operation"] == "RESTORE"]
    if not restored:
        raise JobError(f"{where}; rows were deleted by hand; put back a copy of the whole directory")
    raise JobError(f"{where}; it was restored to an older state; {_undo(tables, LOG, restored[0])}")


def _last_logged(tables: Tables, last: int) -> int:
    """Give the last batch with rows; opens the older files only when there is none from `last` on."""
    for first in (last, 0):
        rows = tables.read(LOG, ["batch_seq"], batches=(first, _NO_BATCH))
        if rows.num_rows:
            return int(pc.max(rows["batch_seq"]).as_py())
    return 0


def _undo(tables: Tables, name: str, restored_at: int) -> str:
    return (
        'undo that with `python -c "from deltalake import DeltaTable; '
        f"DeltaTable('{tables.location(name)}').restore({restored_at - 1})\"`, or put back tables and "
        "checkpoint of one time together"
    )


def _rewind_restored(tables: Tables, name: str, app_id: str) -> None:
    """Let a restored table note how far it really goes, so that the rest is published again."""
    content = content_of_restored(tables, name)
    if content is None:
        return
    holds, claims = content.transaction_version(app_id) or 0, tables.transaction_version(name, app_id)
    if holds != claims:
        _logger.warning(
            "table %s was restored to its version %d: it holds batches up to %d, not %d; the rest is written "
            "again from the log",
            name, content.version(), holds, claims,
        )  # fmt: skip
        tables.rewind(name, app_id=app_id, version=holds)


def content_of_restored(tables: Tables, name: str) -> DeltaTable | None:
    """Open the version whose rows a RESTORE put back, None when our last commit came after it.

    Raises:
        JobError: that version is not to be found any more.
    """
    table = tables.delta_table(name)
    for limit in (1, 50, None):
        # The whole history is days long: it is read only where something else than batches was last.
        operations = [commit["operation"] for commit in table.history(limit)]
        since_ours = list(takewhile(lambda operation: operation not in _WRITES, operations))
        if len(since_ours) < len(operations):
            break
    if "RESTORE" not in since_ours:
        return None
    commits = {int(commit["version"]): commit for commit in table.history()}
    at, restored_at, content = table.version(), None, None
    while at in commits and commits[at]["operation"] not in _WRITES:
        if commits[at]["operation"] != "RESTORE":
            at -= 1
            continue
        restored_at = at
        content = _restored_version(tables.location(name), commits, at)
        if content is None:
            break
        at = content.version()
    if restored_at is not None and content is None:
        raise JobError(
            f"table {name} at {tables.location(name)} was restored to an older state that its history no "
            f"longer knows; {_undo(tables, name, restored_at)}, or move the table away: it is made anew "
            "from the log"
        )
    return content


def _restored_version(
    location: str, commits: Mapping[int, Mapping[str, Any]], restored_at: int
) -> DeltaTable | None:
    """Open the version that a RESTORE names, or for one that names a time the version with its very files."""
    try:
        named = commits[restored_at]["operationParameters"].get("version")
        if named is not None:
            return DeltaTable(location, version=int(named))
        files = set(DeltaTable(location, version=restored_at).file_uris())
        for version in sorted(commits, reverse=True):
            if version < restored_at and commits[version]["operation"] in _WRITES:
                earlier = DeltaTable(location, version=version)
                if set(earlier.file_uris()) == files:
                    return earlier
    except DeltaError:
        # Cleaned up since.
        return None
    return None


def _check_reach(tables: Tables, behind: Mapping[str, int], last: int) -> None:
    """See that the log still has the rows of every batch that a table lacks; upkeep deletes old ones."""
    first = min(behind.values()) + 1
    rows = tables.read(LOG, ["batch_seq", "kind"], pc.field("kind") != "batch", batches=(first, last))
    doubtful = {*range(first, last + 1)}.difference(rows["batch_seq"].unique().to_pylist())
    if doubtful:
        columns, of_batches = ["batch_seq", "kind", "batch", "events"], pc.field("kind") == "batch"
        doubtful -= _without_rows(
            tables.read(LOG, columns, of_batches, batches=(min(doubtful), max(doubtful)))
        )
    if not doubtful:
        return
    forgotten = max(doubtful)
    lacking = {name: batch_seq for name, batch_seq in behind.items() if batch_seq < forgotten}
    if lacking:
        raise JobError(
            f"log {tables.location(LOG)} has no rows of batch {forgotten} any more (upkeep.keep_days), "
            f"but tables lack it: {_listed(lacking)}; put back newer copies of these tables"
        )


def _without_rows(batches: pa.Table) -> set[int]:
    """Name the batches whose own row accounts for all that they read."""
    found = set()
    for row in batches.to_pylist():
        counts, told = row["batch"], row["events"] or ()
        of_others = counts["applied"] + counts["ignored"] + counts["rejected"]
        if of_others <= sum(event["outcome"] in ("applied", "ignored") for event in told):
            found.add(int(row["batch_seq"]))
    return found


def check_checkpoint(spark: SparkSession, location: str, log: Log, tables: Tables, *, adopt: bool) -> None:
    """Hold job.checkpoint_location against the log through a session; see check_directory."""
    check_directory(HadoopDirectory(spark, location), log, tables, adopt=adopt)


def check_directory(directory: CheckpointDirectory, log: Log, tables: Tables, *, adopt: bool) -> None:
    """Hold the checkpoint's directory against the log before the query starts.

    Args:
        directory: job.checkpoint_location.
        log: the log.
        tables: for its place.
        adopt: anything goes, as long as Spark can go on from it.

    Raises:
        JobError: they do not belong together.
    """
    planned, done = directory.numbers("offsets"), directory.numbers("commits")
    if done and max(done) > max(planned, default=-1):
        raise JobError(
            f"checkpoint {directory.location}: batch {max(done)} is noted as done, but the last one planned "
            f"is {max(planned, default='none')}; part of the directory is missing: put back a whole copy, or "
            "move it away and run once with --adopt"
        )
    # What Spark does: a batch that was planned and not noted as done comes again.
    comes = max(planned) + (max(planned) in done) if planned else 0
    if not adopt and (log.last_batch_seq or comes):
        _check_batch(directory, comes, log, tables)
    check_place(tables, directory.location, directory.last_place())


def _check_batch(directory: CheckpointDirectory, comes: int, log: Log, tables: Tables) -> None:
    """See that the batch that comes next is the log's last, or the one after it."""
    checkpoint_id = directory.checkpoint_id()
    if checkpoint_id is None:
        raise JobError(
            f"log {tables.location(LOG)}: there is no checkpoint in {directory.location}, or one without its "
            f"file `metadata`, and the log ({log.last_batch_seq} batches) has never seen that checkpoint; "
            "likely it was deleted, or job.checkpoint_location is another's; put back what belongs together, "
            "or run once with --adopt to go on from the log as it is (what it holds already counts as "
            "duplicate)"
        )
    last = log.last_of(checkpoint_id)
    if last is None or comes not in (last.batch_id, last.batch_id + 1):
        raise JobError(
            log.misfit(BatchIdentity(checkpoint_id=checkpoint_id, batch_id=comes, digest=""), last)
        )
