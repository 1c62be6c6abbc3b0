"""How the tables lie in files: their Delta properties, and how upkeep writes what it puts together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltalake import WriterProperties

from streaming.tables.schemas import SCHEMA_BY_TABLE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deltalake import DeltaTable

STATISTICS = ("batch_seq", "log_seq", "observed_at", "event_time", "cluster", "group_id")
"""The columns by which somebody looks for rows of a table that has them: batches by `Tables.read`, time by
upkeep's deletion, groups by the snapshots' merges and whoever asks for one. Of any other, and of every field
within a list or struct, smallest, largest and nulls of each file would only fill commits and the memory of
whoever opens the table: 0.3 MB a file of `generations`."""

_ROWS_AT_ONCE = {"generations": 1_000, "groups": 1_000}
"""Rows of a row group in the tables whose rows carry states: some kilobytes each, and many more in a large
group. Who reads or rewrites such a file holds some row groups in memory, and without a limit there is one
in all of a file (docs/sizing.md)."""
_ROWS_AT_MOST = 100_000


def properties_of(name: str) -> dict[str, str]:
    """Say what every table of this name has, whatever the settings."""
    columns = (column for column in STATISTICS if column in SCHEMA_BY_TABLE[name].names)
    return {"delta.dataSkippingStatsColumns": ",".join(columns)}


def set_properties(name: str, table: DeltaTable, of_settings: Mapping[str, str]) -> None:
    """Give a table what it lacks of its properties, in one commit; none when it has them.

    Fails whoever is writing to the table, so it is done before any batch. Files that are there keep
    the statistics that they have until upkeep puts them together.

    Args:
        name: the table.
        table: its handle.
        of_settings: property -> value, beside those that every such table has.
    """
    wanted = {**properties_of(name), **of_settings}
    if not table.metadata().configuration.items() >= wanted.items():
        table.alter.set_table_properties(wanted)


def how_to_rewrite(name: str) -> WriterProperties:
    """Say how upkeep writes a table's files anew: as delta-rs does by itself, but in row groups that fit."""
    rows = _ROWS_AT_ONCE.get(name, _ROWS_AT_MOST)
    return WriterProperties(compression="ZSTD", compression_level=4, max_row_group_size=rows)
