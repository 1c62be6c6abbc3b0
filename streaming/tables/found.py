"""The tables as they are, for one who only looks: nothing is made, mended or written."""

from __future__ import annotations

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from streaming.tables.delta import (
    LOG,
    PUBLISHED,
    SNAPSHOTS,
    JobError,
    Tables,
    absolute_location,
    lacks_columns,
    open_table,
)

_SOON = {"max_retries": "1", "timeout": "10s"}
"""For the first question to a store: without it one that does not answer is asked for minutes."""


class FoundTables(Tables):
    """What lies below a root.

    `problems` says of each table why it cannot be used, `missing` names those that are not there,
    `older` those to which the job will add columns. A table with no part in the first two can be read.
    """

    def __init__(self, root: str) -> None:
        """Open what is there.

        Args:
            root: the directory or URI.

        Raises:
            JobError: the log is missing while tables made from it are there.
            OSError: the place cannot be reached.
        """
        self.root = absolute_location(root)
        self.ask_lease = lambda: None
        self._tables = {}
        self._datasets = {}
        self.problems: dict[str, str] = {}
        self.missing: list[str] = []
        self.older: list[str] = []
        # The log comes last: a job that writes meanwhile puts it ahead of the tables, never behind.
        for name in (*PUBLISHED, *SNAPSHOTS, LOG):
            self._look_at(name, self.location(name))
        if LOG in self.missing:
            self._refuse_headless()

    def _look_at(self, name: str, location: str) -> None:
        try:
            if not DeltaTable.is_deltatable(location, _SOON if "://" in location else None):
                self.missing.append(name)
                return
            table = open_table(name, location)
            if lacks_columns(name, location, table):
                self.older.append(name)
        except (JobError, DeltaError) as error:
            self.problems[name] = str(error)
        except OSError as error:
            if "://" in location:
                # The others are on the same store, and each would be waited for.
                raise
            self.problems[name] = f"{location} cannot be read: {' '.join(str(error).split())}; see its rights"
        else:
            self._tables[name] = table

    def has(self, name: str) -> bool:
        """Say whether the table is there and can be read."""
        return name in self._tables

    def transaction_version(self, name: str, app_id: str) -> int:
        """Give the last version that this application committed, 0 for none or a missing table."""
        return super().transaction_version(name, app_id) if self.has(name) else 0
