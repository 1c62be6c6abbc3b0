"""The Delta tables as files: made, checked, appended to once per batch, read without Spark.

delta-rs writes here (60 times cheaper than a Spark commit of the same rows). It
records an application's transaction version but does not enforce it, so every commit
looks first, and is made on the very version of the table that it looked at: when another
has committed meanwhile it is refused, and looks again (docs/adr/0006, 0013).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, QueryBuilder, Transaction, write_deltalake
from deltalake.exceptions import DeltaError

from streaming.tables.properties import properties_of
from streaming.tables.schemas import SCHEMA_BY_TABLE

LOG = "generations"
PUBLISHED = ("events", "rejected_events", "assignment_deltas", "balance", "checks", "alert_events")
SNAPSHOTS = ("groups", "topics", "alerts", "assignments")

FORMAT = 1
"""Rises when a release writes what the one before would read wrongly though the columns are its own."""

FORMAT_APP = "counterpoise-format"

_READER_FEATURES = frozenset({"timestampNtz", "v2Checkpoint"})
_WRITER_FEATURES = _READER_FEATURES | {
    *("appendOnly", "changeDataFeed", "checkConstraints", "generatedColumns", "invariants")
}
"""The Delta features with which delta-rs writes a table and its Parquet files still say all there is."""

_PARQUET = ds.ParquetFileFormat(read_options=ds.ParquetReadOptions(coerce_int96_timestamp_unit="us"))
"""Other writers' times may be INT96, which Arrow reads as nanoseconds: those end in the year 2262."""

_MOST_TRIES = 10
"""How often a commit is tried while others keep committing: a round of upkeep makes four."""


class JobError(RuntimeError):
    """The job cannot go on without a decision of its operator; the message says which."""


def absolute_location(location: str) -> str:
    """Make a local path absolute and leave any other URI as it is, without a closing slash."""
    parts = urlsplit(location)
    if parts.scheme in ("", "file"):
        return str(Path(unquote(parts.path) if parts.scheme else location).resolve())
    return location.rstrip("/")


class Tables:
    """All tables of one deployment, below one directory or URI."""

    def __init__(self, root: str, ask_lease: Callable[[], None] = lambda: None) -> None:
        """Make every table that is missing and check the schema of every one that is there.

        Args:
            root: the directory or URI.
            ask_lease: called when another's commit was in the way of ours; raises when the
                tables are another job's now. By default any other is welcome.
        """
        self.root = absolute_location(root)
        self.ask_lease = ask_lease
        """Also for what is written by other means than `commit`."""
        if "://" not in self.root:
            Path(self.root).mkdir(parents=True, exist_ok=True)
        self._refuse_headless()
        # The log comes first, so that its absence beside others always means that it was taken away.
        self._tables = {name: self._open(name, schema) for name, schema in SCHEMA_BY_TABLE.items()}
        self._datasets: dict[str, tuple[int, ds.Dataset | None]] = {}

    def location(self, name: str) -> str:
        """Give the path or URI of one table."""
        return f"{self.root}/{name}"

    def _refuse_headless(self) -> None:
        if DeltaTable.is_deltatable(self.location(LOG)):
            return
        locations = {name: self.location(name) for name in (*PUBLISHED, *SNAPSHOTS)}
        there = [name for name, at in locations.items() if DeltaTable.is_deltatable(at)]
        if any(open_table(name, locations[name]).version() > 0 for name in there):
            raise JobError(
                f"log {self.location(LOG)} is missing while tables made from it are there "
                f"({', '.join(there)}); it was deleted or moved: put it back, or move these tables and the "
                "checkpoint away to begin anew"
            )

    def _open(self, name: str, schema: pa.Schema) -> DeltaTable:
        location = self.location(name)
        if not DeltaTable.is_deltatable(location):
            return DeltaTable.create(location, schema, mode="ignore", configuration=properties_of(name))
        table = open_table(name, location)
        if lacks_columns(name, location, table):
            # What is there stays as it is, and reads as null.
            write_deltalake(table, schema.empty_table(), mode="append", schema_mode="merge")
            table = DeltaTable(location)
        return table

    def delta_table(self, name: str) -> DeltaTable:
        """Give the open table, at the version last written or refreshed."""
        return self._tables[name]

    def refresh(self, name: str) -> None:
        """See what another writer (Spark, on the large path) has committed."""
        self._tables[name].update_incremental()

    def transaction_version(self, name: str, app_id: str) -> int:
        """Give the last version that this application committed to the table, 0 for none."""
        return self._tables[name].transaction_version(app_id) or 0

    def append(self, name: str, rows: pa.Table, *, app_id: str, version: int) -> None:
        """Append the rows in one commit, unless this version of the application is there already.

        Raises:
            JobError: the table already holds a higher version: somebody else writes to it.
        """
        properties = commit_of(app_id, version)
        self.commit(
            name,
            lambda table: write_deltalake(table, rows, mode="append", commit_properties=properties),
            lambda: self.is_due(name, app_id, version),
        )

    def mark(self, name: str, *, app_id: str, version: int) -> None:
        """Note that the application got as far as this version, with no rows to show for it."""
        self._note(name, app_id, version, lambda: self.is_due(name, app_id, version))

    def rewind(self, name: str, *, app_id: str, version: int) -> None:
        """Note that the table holds what the application committed up to this version, and nothing later."""
        self._note(name, app_id, version, lambda: self.transaction_version(name, app_id) != version)

    def _note(self, name: str, app_id: str, version: int, is_due: Callable[[], bool]) -> None:
        properties = commit_of(app_id, version)
        self.commit(
            name,
            lambda table: table.create_write_transaction(
                [], "append", table.schema(), commit_properties=properties
            ),
            is_due,
        )
        self.refresh(name)

    def commit(self, name: str, write: Callable[[DeltaTable], object], is_due: Callable[[], bool]) -> None:
        """Make one commit while it is due, as commit_on_last_version does, and the tables are ours.

        Raises:
            JobError: another job has taken over, the table was restored while the job runs, or
                others commit without end.
        """
        table, location = self._tables[name], self.location(name)

        def give_way(seen: int) -> None:
            self.ask_lease()
            for theirs in table.history(table.version() - seen):
                if theirs["operation"] == "RESTORE":
                    raise JobError(
                        f"table {name} at {location} was restored to an older state while the job ran "
                        f"(version {theirs['version']}); start the job again: it says then what is to be done"
                    )
            if name == LOG and not is_due():
                # Spark's commit of an overtaken job, in the moment that no lease covers: not our rows.
                again = "another job wrote this batch in the same moment; start again: what is there counts"
                raise JobError(f"log {location}: {again}") from None

        commit_on_last_version(name, location, table, write, is_due, give_way)

    def is_due(self, name: str, app_id: str, version: int) -> bool:
        """Say whether the application's version is still to be committed to the table.

        Raises:
            JobError: the table already holds a higher version: somebody else writes to it.
        """
        there = self.transaction_version(name, app_id)
        if there > version:
            raise JobError(
                f"table {name} at {self.location(name)} holds version {there} of {app_id!r} while "
                f"version {version} is being written; another job writes to these tables: stop one"
            )
        return there < version

    def read(
        self,
        name: str,
        columns: Sequence[str],
        where: pc.Expression | None = None,
        *,
        batches: tuple[int, int] | None = None,
    ) -> pa.Table:
        """Read columns of a table, in no particular order.

        Args:
            name: the table.
            columns: what to read.
            where: a filter over these columns.
            batches: for tables with `batch_seq`: only rows of the batches from the first to
                the last of these; only files whose statistics speak of such are opened.
        """
        schema = pa.schema([SCHEMA_BY_TABLE[name].field(column) for column in columns])
        within = None
        if batches is not None:
            within = (pc.field("batch_seq") >= batches[0]) & (pc.field("batch_seq") <= batches[1])
            dataset = self._dataset_of(name, self._files_of(name, *batches))
        else:
            dataset = self._whole(name)
        if dataset is None:
            return schema.empty_table()
        rows = dataset.to_table(columns=list(columns), filter=within).cast(schema)
        # Not while scanning: files that a merge wrote hold string_view, and Arrow fails to compare the
        # bounds in their statistics with a string.
        return rows if where is None else rows.filter(where)

    def states_of(self, cluster: str, group_ids: Sequence[str]) -> dict[str, str | None]:
        """Look up the logged state of groups in the snapshot `groups`.

        Asked of DataFusion, which decodes the wide state only of rows that match;
        Arrow's own scan would decode every group's.
        """
        # Table and column names are ours; the values are quoted.
        names = ", ".join(map(quoted, group_ids))
        sql = (
            "SELECT group_id, state FROM groups "  # noqa: S608
            f"WHERE cluster = {quoted(cluster)} AND group_id IN ({names})"
        )
        rows = pa.table(QueryBuilder().register("groups", self._tables["groups"]).execute(sql).read_all())
        return dict(zip(rows["group_id"].to_pylist(), rows["state"].to_pylist(), strict=True))

    def _whole(self, name: str) -> ds.Dataset | None:
        version = self._tables[name].version()
        known = self._datasets.get(name)
        if known is None or known[0] != version:
            known = (version, self._dataset_of(name, self.files(name)["path"].to_pylist()))
            self._datasets[name] = known
        return known[1]

    def files(self, name: str) -> pa.Table:
        """List the live data files: `path` relative to the table, and its statistics if any."""
        return pa.table(self._tables[name].get_add_actions(flatten=True))

    def _files_of(self, name: str, first: int, last: int) -> list[str]:
        files = self.files(name)
        unknown = [None] * files.num_rows
        least, most = (
            files[column].to_pylist() if column in files.column_names else unknown
            for column in ("min.batch_seq", "max.batch_seq")
        )
        return [
            path
            for path, low, high in zip(files["path"].to_pylist(), least, most, strict=True)
            if low is None or high is None or (low <= last and high >= first)
        ]

    def _dataset_of(self, name: str, paths: list[str]) -> ds.Dataset | None:
        # deltalake's own to_pyarrow_dataset lets Arrow's threads call into Rust's, and the
        # process then aborts at exit; our tables are plain Parquet, so Arrow reads them itself.
        if not paths:
            return None
        filesystem, base = pafs.FileSystem.from_uri(self.location(name))
        return ds.dataset(
            [f"{base}/{unquote(path)}" for path in sorted(paths)],
            schema=SCHEMA_BY_TABLE[name],
            filesystem=filesystem,
            format=_PARQUET,
        )

    def leave_orphan(self, name: str, rows: pa.Table) -> None:
        """Write a data file that no commit names, as a crash inside a write leaves it (tests only)."""
        filesystem, base = pafs.FileSystem.from_uri(self.location(name))
        pq.write_table(rows, f"{base}/part-00000-uncommitted.parquet", filesystem=filesystem)


def commit_on_last_version(
    name: str,
    location: str,
    table: DeltaTable,
    write: Callable[[DeltaTable], object],
    is_due: Callable[[], bool],
    give_way: Callable[[int], object],
) -> None:
    """Make one commit while it is due, on the version of the table that says so.

    `write` makes it on the handle, with `commit_of` properties. Another's commit in between makes it fail (an
    OPTIMIZE by hand, upkeep in its thread, a job that has taken over). Then `give_way` is called with the
    version that it was tried on, raises where it must not be, and all is looked at again.

    Raises:
        JobError: others commit without end.
    """
    for _ in range(_MOST_TRIES):
        if not is_due():
            return
        seen = table.version()
        try:
            write(table)
        except DeltaError:
            table.update_incremental()
            if table.version() == seen:
                raise
            give_way(seen)
        else:
            return
    raise JobError(
        f"table {name} at {location}: others committed to it {_MOST_TRIES} times while one commit was tried; "
        "stop what writes to it all the time"
    )


def quoted(text: str) -> str:
    """Write a text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def commit_of(app_id: str, version: int) -> CommitProperties:
    """Make the commit properties that record an application's version, on the version last seen only."""
    return CommitProperties(app_transactions=[Transaction(app_id, version)], max_commit_retries=0)


def open_table(name: str, location: str) -> DeltaTable:
    """Open a table that is there.

    Raises:
        JobError: it needs something of Delta's that this release does not know, or cannot be read.
    """
    try:
        table = DeltaTable(location)
    except DeltaError as error:
        raise JobError(
            f"table {name} at {location} cannot be opened: {error}; put back a whole copy of it, or use the "
            "release that wrote it"
        ) from error
    protocol = table.protocol()
    unknown = {*(protocol.reader_features or ())} - _READER_FEATURES
    unknown |= {*(protocol.writer_features or ())} - _WRITER_FEATURES
    if protocol.min_reader_version == 2:
        unknown.add("columnMapping")
    if protocol.min_writer_version == 6:
        unknown.add("identityColumns")
    if unknown:
        raise JobError(
            f"table {name} at {location} has the Delta features {sorted(unknown)}, which this release does "
            f"not read or write; drop them (ALTER TABLE delta.`{location}` DROP FEATURE ...), or use the "
            "release that wrote it"
        )
    return table


def lacks_columns(name: str, location: str, table: DeltaTable) -> bool:
    """Say whether an earlier release wrote the table, and only columns were added since.

    Raises:
        JobError: it differs in another way, or a newer release wrote it.
    """
    found, schema = pa.schema(table.schema().to_arrow()), SCHEMA_BY_TABLE[name]
    is_older = not found.equals(schema) and _is_older(pa.struct(found), pa.struct(schema))
    if not is_older and not found.equals(schema):
        raise JobError(
            f"table {name} at {location}: {_schema_difference(found, schema)}; "
            "move the table away or use the release that wrote it"
        )
    written_as = table.transaction_version(FORMAT_APP) or 0
    if written_as > FORMAT:
        raise JobError(
            f"table {name} at {location}: a newer release wrote it, in format {written_as}; this one "
            f"knows formats up to {FORMAT}; use that release, or put back a copy from before it"
        )
    return is_older


def _is_older(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Say whether an earlier release's type grew into this one by fields added at the end."""
    if pa.types.is_struct(found) and pa.types.is_struct(wanted):
        names = [field.name for field in wanted]
        return [field.name for field in found] == names[: found.num_fields] and all(
            _is_older(field.type, wanted.field(field.name).type) for field in found
        )
    if pa.types.is_list(found) and pa.types.is_list(wanted):
        return _is_older(found.value_type, wanted.value_type)
    return bool(found.equals(wanted))


def _schema_difference(found: pa.Schema, wanted: pa.Schema) -> str:
    """Say in words what differs first."""
    for field in wanted:
        index = found.get_field_index(field.name)
        if index < 0:
            return f"column {field.name!r} is missing"
        if found.field(index).type != field.type:
            return f"column {field.name!r} is {found.field(index).type}, this release writes {field.type}"
    extra = sorted(set(found.names) - set(wanted.names))
    if extra:
        return f"column {extra[0]!r} is unknown to this release"
    return f"columns stand in another order: {found.names}"
