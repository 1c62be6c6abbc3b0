"""`counterpoise upkeep`: one round of streaming.tables.upkeep, for those whose job ends when all is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich import box
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from rich.console import Console

    from conf.settings import Settings
    from streaming.tables.upkeep import TableUpkeep

_NUMBERS = ("files_before", "files_after", "rows_expired", "files_deleted")


def keep_up(settings: Settings) -> dict[str, list[TableUpkeep]]:
    """Do one round on the tables of each deployment; a job that runs meanwhile goes on.

    Returns:
        cluster -> what was done, by table.

    Raises:
        JobError: a table is missing or cannot be used; nothing was done in that deployment then.
    """
    from streaming.tables.delta import JobError
    from streaming.tables.found import FoundTables
    from streaming.tables.upkeep import Upkeep

    done = {}
    sinks = [sink.name for sink in settings.sinks]
    for cluster, own in settings.by_cluster().items():
        try:
            tables = FoundTables(own.job.tables)
        except OSError as error:
            raise JobError(f"tables {own.job.tables}: {error}; see `counterpoise doctor`") from error
        for problem in tables.problems.values():
            raise JobError(problem)
        if tables.missing:
            raise JobError(
                f"tables {tables.root}: {', '.join(sorted(tables.missing))} missing; correct job.tables, or "
                "run the job first: it makes them"
            )
        done[cluster] = Upkeep(tables, own.upkeep, sinks).run()
    return done


def describe_upkeep(done: Mapping[str, Sequence[TableUpkeep]]) -> dict[str, Any]:
    """Write what was done as plain values: {"tables": [a dict for each]}."""
    return {
        "tables": [
            {"cluster": cluster, **asdict(kept)} for cluster, tables in done.items() for kept in tables
        ]
    }


def print_upkeep(described: Mapping[str, Any], console: Console) -> None:
    """Print a row for each table; clusters only where there are several."""
    rows = described["tables"]
    names = ["cluster", "table"] if len({row["cluster"] for row in rows}) > 1 else ["table"]
    table = Table(box=box.SIMPLE_HEAD, title="Upkeep", title_justify="left", title_style="bold")
    for name in names:
        table.add_column(name)
    for name in _NUMBERS:
        table.add_column(name.replace("_", " "), justify="right")
    for row in rows:
        table.add_row(*(escape(row[name]) for name in names), *(str(row[name]) for name in _NUMBERS))
    console.print(table)
