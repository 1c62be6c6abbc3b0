"""Upkeep of the tables beside the batches: few files, short logs, no history past its time.

Every step is a commit of its own that leaves the tables' contents as they are, history past its
time excepted, so a kill between or inside any two of them costs nothing but files for the next
vacuum. A batch that commits meanwhile wins; the step is tried again in the next round.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from streaming.crash_points import reach
from streaming.tables.delta import LOG, PUBLISHED, SNAPSHOTS
from streaming.tables.found import FoundTables
from streaming.tables.log import SNAPSHOT_APP, Log
from streaming.tables.own_events import OWN_EVENTS, keep_short, last_not_needed
from streaming.tables.properties import how_to_rewrite, set_properties
from streaming.tables.publish import PUBLISH_APP, SINK_APP, SINK_TABLE
from streaming.tables.schemas import SCHEMA_BY_TABLE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from conf.settings import UpkeepSettings
    from streaming.tables.delta import Tables

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableUpkeep:
    """What one round did to one table: live files before and after, rows past their time, files deleted."""

    table: str
    files_before: int
    files_after: int
    rows_expired: int
    files_deleted: int


class Upkeep:
    """Rounds of upkeep over one deployment's tables, one at a time, in a thread of their own."""

    def __init__(
        self,
        tables: Tables,
        settings: UpkeepSettings,
        sinks: Sequence[str] = (),
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Work on the tables at these locations, through handles of its own; made before any batch.

        Args:
            tables: where they are.
            settings: what to keep and for how long.
            sinks: names of sinks that must have had a batch before the log may forget it.
            now: the time by which history is too old.
        """
        self._root = tables.root
        self._location_of = tables.location
        self._settings = settings
        self._sinks = sinks
        self._now = now
        self._expired_before: dict[str, datetime] = {}
        self._thread: threading.Thread | None = None
        self._is_stopping = threading.Event()
        # Now, because a change of a table's properties fails whoever is writing to it.
        kept = {"delta.logRetentionDuration": f"interval {settings.log_retention_h} hours"}
        for name in SCHEMA_BY_TABLE:
            set_properties(name, tables.delta_table(name), kept)

    def begin(self) -> None:
        """Begin a round, unless the last one is still at it."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._run_logged, name="upkeep", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Let a round that is at work end with the table at hand, and wait for it."""
        self._is_stopping.set()
        if self._thread is not None:
            self._thread.join()

    def _run_logged(self) -> None:
        try:
            self.run()
        except Exception:
            # The stream goes on without upkeep.
            _logger.exception("upkeep ended early; it is tried again after %g s", self._settings.every_s)

    def run(self) -> list[TableUpkeep]:
        """Do one round; what was done, by table."""
        done = []
        for name in SCHEMA_BY_TABLE:
            if self._is_stopping.is_set():
                break
            before = time.monotonic()
            kept = self._keep_up(name)
            if kept.files_before != kept.files_after or kept.rows_expired or kept.files_deleted:
                _logger.info(
                    "upkeep of %s: %d files became %d, %d rows past their time, %d files deleted, %.1f s",
                    name, kept.files_before, kept.files_after, kept.rows_expired, kept.files_deleted,
                    time.monotonic() - before,
                )  # fmt: skip
            done.append(kept)
            reach("inside_upkeep")
        if not self._is_stopping.is_set():
            done += self._keep_up_own_events()
        return done

    def _keep_up_own_events(self) -> list[TableUpkeep]:
        """Take what the stream has read from the job's own events, which have a time of their own."""
        kept = keep_short(self._location_of(OWN_EVENTS), last_not_needed(Log(FoundTables(self._root))))
        if kept is None:
            return []
        before, after, expired, deleted = kept
        return [
            TableUpkeep(
                table=OWN_EVENTS,
                files_before=before,
                files_after=after,
                rows_expired=expired,
                files_deleted=deleted,
            )
        ]

    def _keep_up(self, name: str) -> TableUpkeep:
        table = DeltaTable(self._location_of(name))
        table.create_checkpoint()
        table.cleanup_metadata()
        files_before = len(table.file_uris())
        rows_expired = self._expire(name, table)
        self._compact(name, table)
        deleted = table.vacuum(
            retention_hours=self._settings.vacuum_after_h,
            dry_run=False,
            enforce_retention_duration=False,
            # Also what a crash inside a write left, which no commit ever named.
            full=True,
        )
        return TableUpkeep(
            table=name,
            files_before=files_before,
            files_after=len(table.file_uris()),
            rows_expired=rows_expired,
            files_deleted=len(deleted),
        )

    def _expire(self, name: str, table: DeltaTable) -> int:
        """Delete rows older than their days, once a day; how many."""
        days = next((days for table, days in self._settings.keep_days.items() if table == name), 0)
        if not days:
            return 0
        # Whole days, so that a file is rewritten once for its oldest rows and not in every round.
        day = self._now().astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        before = day - timedelta(days=days)
        if self._expired_before.get(name) == before:
            return 0
        where = f"observed_at < '{before:%Y-%m-%dT%H:%M:%S}Z'"
        if name == LOG:
            # The batches' own rows stay: they say what an earlier checkpoint has read.
            where += f" AND batch_seq <= {self._last_batch_not_needed()} AND kind <> 'batch'"
        try:
            removed = table.delete(where, writer_properties=how_to_rewrite(name))
        except CommitFailedError:
            _logger.info("upkeep of %s: a batch was written meanwhile; rows expire in the next round", name)
            return 0
        self._expired_before[name] = before
        return int(removed["num_deleted_rows"] or 0)

    def _last_batch_not_needed(self) -> int:
        """Give the last batch that every snapshot, flat table and sink has: they never read it again."""
        behind = []
        for app_id, names in ((SNAPSHOT_APP, SNAPSHOTS), (PUBLISH_APP, PUBLISHED)):
            tables = (DeltaTable(self._location_of(name)) for name in names)
            behind += [table.transaction_version(app_id) or 0 for table in tables]
        notes = DeltaTable(self._location_of(SINK_TABLE))
        behind += [notes.transaction_version(f"{SINK_APP}{sink}") or 0 for sink in self._sinks]
        return min(behind)

    def _compact(self, name: str, table: DeltaTable) -> None:
        if count_small_files(table, self._settings) < self._settings.compact_from_files:
            return
        try:
            table.optimize.compact(
                target_size=self._settings.target_file_bytes,
                max_concurrent_tasks=1,
                writer_properties=how_to_rewrite(name),
            )
        except CommitFailedError:
            _logger.info("upkeep of %s: a batch rewrote files meanwhile; compacted in the next round", name)


def count_small_files(table: DeltaTable, settings: UpkeepSettings) -> int:
    """Count the live files that are worth putting together: those below half of the target."""
    sizes = pa.table(table.get_add_actions()).column("size_bytes").to_pylist()
    return sum(size < settings.target_file_bytes // 2 for size in sizes)
