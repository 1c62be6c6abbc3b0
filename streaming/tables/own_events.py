"""The job's own events as a table: ticks, and what clusters' metadata says, until the stream has read them.

`_own_events` is a Delta table beside the others, appended to by the job and read by Spark's Delta
source, which keeps one version number in its checkpoint however many events there were; a source of
files keeps the name of each file for ever (docs/adr/0016).

    number bigint  which write of the job's it was, from 1; the `path` of the events' positions
    value string   one event as JSON

one row per event, all rows of one number in one data file, in order. Rows that no batch can need any more
are deleted by upkeep, from the front only.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa
import pyarrow.fs as pafs
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError

from streaming.tables.delta import JobError, Tables, commit_on_last_version, open_table

if TYPE_CHECKING:
    from streaming.tables.log import Log

OWN_EVENTS = "_own_events"
"""The table's name, and that of the source in positions: hidden, and none of the public ones."""

_APP = "counterpoise-own-events"

_SCHEMA = pa.schema([("number", pa.int64()), ("value", pa.string())])

KEPT_H = 1
"""Hours for which files and commits stay that nothing needs: Spark may be about to list or open one."""

_CONFIGURATION = {
    "delta.deletedFileRetentionDuration": f"interval {KEPT_H} hours",
    # By age alone a commit could go that the stream, waiting for a sink, has still to read.
    "delta.enableExpiredLogCleanup": "false",
}

_AFTER_A_COMMIT = PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=False)

_COMMIT_OR_CHECKPOINT = re.compile(r"([0-9]{20})\.(json|checkpoint\.parquet)")

_EARLIER = "_ticks"
_EARLIER_FILES = re.compile(r"\.?tick-[0-9]+(\.jsonl)?")
"""Where the first releases kept the same as files."""


class OwnEvents:
    """Appends what the job tells itself, each time in one commit with a number of its own."""

    def __init__(self, tables: Tables, log: Log) -> None:
        """Open the table, or make it; remove the files that earlier releases kept instead.

        Args:
            tables: for their place, and the lease.
            log: numbers go on behind the last that its batches have read, though the table be new.
        """
        location = tables.location(OWN_EVENTS)
        if not DeltaTable.is_deltatable(location):
            DeltaTable.create(location, _SCHEMA, mode="ignore", configuration=_CONFIGURATION)
        self._table = open_table(OWN_EVENTS, location)
        self._location = location
        self._ask_lease = tables.ask_lease
        self._last = int(log.sources.get(OWN_EVENTS, {}).get("last") or 0)
        _remove_earlier(tables.location(_EARLIER))

    def write(self, events: Iterable[Mapping[str, Any]]) -> None:
        """Append the events, if any: they appear all at once or not at all.

        Raises:
            JobError: another job has taken over, or others commit without end.
        """
        values = [orjson.dumps(event).decode() for event in events]
        if not values:
            return

        def append(table: DeltaTable) -> None:
            number = max(table.transaction_version(_APP) or 0, self._last) + 1
            write_deltalake(
                table,
                pa.table({"number": [number] * len(values), "value": values}, schema=_SCHEMA),
                mode="append",
                commit_properties=_commit_of(number),
                post_commithook_properties=_AFTER_A_COMMIT,
            )

        commit_on_last_version(
            OWN_EVENTS, self._location, self._table, append, lambda: True, lambda _: self._ask_lease()
        )


def _commit_of(number: int) -> CommitProperties:
    """Make the properties of a commit on the version last seen only; its history tells the number."""
    return CommitProperties(
        custom_metadata={"number": str(number)},
        app_transactions=[Transaction(_APP, number)],
        max_commit_retries=0,
    )


def _remove_earlier(location: str) -> None:
    filesystem, base = pafs.FileSystem.from_uri(location)
    if filesystem.get_file_info(base).type != pafs.FileType.Directory:
        return
    files = filesystem.get_file_info(pafs.FileSelector(base))
    if all(_EARLIER_FILES.fullmatch(file.base_name) for file in files):
        filesystem.delete_dir(base)


def check_place(tables: Tables, checkpoint: str, place: Mapping[str, Any] | None) -> None:
    """Hold the place in the own events that a checkpoint has noted against their table.

    Args:
        tables: for their place.
        checkpoint: the checkpoint's location, for the message.
        place: the offset that Spark noted, None where it has none yet.

    Raises:
        JobError: Spark could not go on from there, or would leave events out.
    """
    if place is None:
        return
    advice = "move that directory away and run once with --adopt: the job goes on from the log as it is"
    if "reservoirId" not in place:
        raise JobError(
            f"checkpoint {checkpoint} was written by an earlier release, which kept the job's own events as "
            f"files in {tables.location(_EARLIER)}; this one keeps them in the table {OWN_EVENTS}, and Spark "
            f"cannot go on from the one to the other; {advice}"
        )
    location = tables.location(OWN_EVENTS)
    version = int(place["reservoirVersion"])
    if not DeltaTable.is_deltatable(location):
        found = "that table is missing"
    else:
        table = open_table(OWN_EVENTS, location)
        if table.metadata().id != place["reservoirId"]:
            found = "that table was made anew since"
        elif version > table.version() + 1:
            found = f"that table ends at version {table.version()}: it was put back from an older copy"
        elif 0 < version <= (first := table.history()[-1]["version"]):
            found = f"that table's own log begins at version {first}: the checkpoint is an older copy"
        else:
            return
    raise JobError(
        f"checkpoint {checkpoint} has read the job's own events in {location} before version {version}, but "
        f"{found}; put back its newest copy, or {advice}"
    )


def last_not_needed(log: Log) -> int:
    """Give the number up to which no batch needs the own events any more.

    The last batch may come again, so what it read stays.
    """
    end = log.sources.get(OWN_EVENTS, {})
    return min(map(int, end["files"])) - 1 if end.get("files") else int(end.get("last") or 0)


def keep_short(location: str, last: int, kept_h: int = KEPT_H) -> tuple[int, int, int, int] | None:
    """Take what nobody needs from the table's rows, files and own log; commits only if there is any.

    Args:
        location: the table's path or URI.
        last: from `last_not_needed`.
        kept_h: for how long a file that is no longer the table's stays, hours.

    Returns:
        Live files before and after, rows and files deleted; None where there is no such table.
    """
    if not DeltaTable.is_deltatable(location):
        return None
    table = open_table(OWN_EVENTS, location)
    files_before = len(table.file_uris())
    rows_deleted = 0
    if _has_rows_up_to(table, last):
        try:
            rows_deleted = int(table.delete(f"number <= {last}")["num_deleted_rows"] or 0)
        except CommitFailedError:
            # An event was written meanwhile; the next round takes them.
            rows_deleted = 0
    table.create_checkpoint()
    _clean_up_log(location, _first_needed(table, last))
    deleted = _vacuum(table, kept_h, dry_run=True)
    if deleted:
        _vacuum(table, kept_h, dry_run=False)
    return files_before, len(table.file_uris()), rows_deleted, len(deleted)


def _vacuum(table: DeltaTable, kept_h: int, *, dry_run: bool) -> list[str]:
    # Full: also what a kill inside a write left, which no commit ever named.
    return table.vacuum(kept_h, dry_run=dry_run, enforce_retention_duration=False, full=True)


def _has_rows_up_to(table: DeltaTable, last: int) -> bool:
    files = pa.table(table.get_add_actions(flatten=True))
    return any(number <= last for number in (files["min.number"].to_pylist() if files.num_rows else ()))


def _first_needed(table: DeltaTable, last: int) -> int:
    """Give the version behind the commit of number `last`.

    When it starts, Spark looks once more at the commits of its last batch, rows in them or not.
    """
    history = table.history()
    for commit in history:
        if int(commit.get("number", last + 1)) <= last:
            return int(commit["version"]) + 1
    return int(history[-1]["version"])


def _clean_up_log(location: str, needed: int) -> None:
    """Delete old commits and checkpoints that no version from `needed` on is built of, the oldest first.

    delta-rs's own `cleanup_metadata` goes by age alone, whatever is needed.
    """
    filesystem, base = pafs.FileSystem.from_uri(f"{location}/_delta_log")
    before = time.time() - KEPT_H * 3600
    old = [
        (int(found[1]), found[2], file.path)
        for file in filesystem.get_file_info(pafs.FileSelector(base))
        if (found := _COMMIT_OR_CHECKPOINT.fullmatch(file.base_name)) and file.mtime.timestamp() < before
    ]
    whole = [version for version, kind, _ in old if kind != "json" and version <= needed]
    for version, _, path in sorted(old):
        if version < max(whole, default=0):
            filesystem.delete_file(path)
