"""The outbox: from the log's rows to the flat tables, each batch once per table, after the commit.

Every table notes, as an application's transaction version, the last batch it holds. What a
crash left unpublished is caught up from the log at the next start or with the next batch.
Sinks come after the tables. How far one got is noted only with the snapshots and at a stop,
so a crash repeats what it sent since then, with the same ids.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from streaming.crash_points import reach
from streaming.tables.delta import PUBLISHED, Tables
from streaming.tables.schemas import SCHEMA_BY_TABLE

if TYPE_CHECKING:
    from streaming.sinks.kafka import KafkaSink
    from streaming.tables.log import Log

PUBLISH_APP = "counterpoise-publish"

SINK_APP = "counterpoise-sink-"
SINK_TABLE = "assignment_deltas"
"""Notes how far each sink got, as the version of an application named after it."""

_COLUMN_OF_TABLE = {
    "events": "events",
    "rejected_events": "events",
    "assignment_deltas": "deltas",
    "balance": "balance",
    "checks": "checks",
    "alert_events": "alerts",
}

_BALANCE_KINDS = ("rebalance", "held", "baseline")


def flatten(rows: pa.Table, table: str) -> pa.Table:
    """Take one flat table's rows out of rows of the log.

    A column comes from the nested value where it has such a field, else from the
    log's row around it (`version`, `batch_seq`, ...).

    Args:
        rows: rows of `generations`.
        table: one of the published tables.

    Returns:
        The rows in the table's own schema, in the order of the log.
    """
    schema, column = SCHEMA_BY_TABLE[table], _COLUMN_OF_TABLE[table]
    type_ = rows.schema.field(column).type
    is_list = pa.types.is_list(type_)
    own = {field.name for field in (type_.value_type if is_list else type_)}
    of_parent = [name for name in schema.names if name not in own]
    # No column more: a large group's state would be copied for each of its deltas, thousands of megabytes,
    # and every state of the batch for each table.
    rows = rows.select(list(dict.fromkeys([*of_parent, "kind", column])))
    rows = rows.filter(_concerns(rows, table)).combine_chunks()
    nested = rows.column(column).combine_chunks()
    if isinstance(nested, pa.ChunkedArray):
        nested = nested.chunk(0) if nested.num_chunks else pa.array([], type=nested.type)
    parents = rows.select(of_parent)
    if is_list:
        parents = parents.take(pc.list_parent_indices(nested))
        nested = pc.list_flatten(nested)
    fields = dict(zip([field.name for field in nested.type], nested.flatten(), strict=True))
    return pa.table(
        [fields[name] if name in fields else parents.column(name) for name in schema.names], schema=schema
    )


def _concerns(rows: pa.Table, table: str) -> pa.ChunkedArray:
    """Say which rows of the log have something for the table."""
    kind = rows["kind"]
    if table == "rejected_events":
        return pc.equal(kind, "rejected")
    if table == "events":
        return pc.not_equal(kind, "rejected")
    if table == "balance":
        is_wanted = pc.is_in(kind, pa.array(_BALANCE_KINDS))
        return pc.and_(is_wanted, pc.is_valid(rows["balance"]))
    return pc.is_valid(rows[_COLUMN_OF_TABLE[table]])


class Outbox:
    """Publishes what is logged and not yet published, in order."""

    def __init__(self, tables: Tables, log: Log) -> None:
        """Find out how far each table got."""
        self._tables = tables
        self._log = log
        self._published = {name: tables.transaction_version(name, PUBLISH_APP) for name in PUBLISHED}
        self._sinks: dict[str, KafkaSink] = {}
        self._sent: dict[str, int] = {}

    def connect(self, sinks: Iterable[KafkaSink]) -> None:
        """Let these sinks have every batch too, and send them at once what the log holds for them."""
        self._sinks = {sink.name: sink for sink in sinks}
        self._sent = {
            name: self._tables.transaction_version(SINK_TABLE, f"{SINK_APP}{name}") for name in self._sinks
        }
        self.catch_up()

    def catch_up(self, fresh: tuple[int, pa.Table] | None = None) -> None:
        """Publish every batch up to the log's last.

        Args:
            fresh: (batch_seq, rows) of the batch just committed, to spare reading it back.
        """
        last = self._log.last_batch_seq
        first = min([*self._published.values(), *self._sent.values()]) + 1
        for batch_seq in range(first, last + 1):
            rows = fresh[1] if fresh and fresh[0] == batch_seq else self._log.rows_of(batch_seq)
            for name in PUBLISHED:
                if self._published[name] >= batch_seq:
                    continue
                flat = flatten(rows, name)
                if flat.num_rows:
                    self._tables.append(name, flat, app_id=PUBLISH_APP, version=batch_seq)
                    reach(f"after_{name}")
                self._published[name] = batch_seq
            if self._sinks:
                # A message cannot be refused as a commit can.
                self._tables.ask_lease()
            for name, sink in self._sinks.items():
                # One that gave up a batch because the job stops must not have the next.
                if self._sent[name] == batch_seq - 1 and sink.send(rows):
                    self._sent[name] = batch_seq

    def mark(self) -> None:
        """Note in every table how far it got, so that the next start need not read the log from further back.

        A table with nothing to publish for many batches would otherwise still
        name the last batch that had rows for it.
        """
        for name, batch_seq in self._published.items():
            if batch_seq:
                self._tables.mark(name, app_id=PUBLISH_APP, version=batch_seq)
        for name, batch_seq in self._sent.items():
            if batch_seq:
                self._tables.mark(SINK_TABLE, app_id=f"{SINK_APP}{name}", version=batch_seq)
