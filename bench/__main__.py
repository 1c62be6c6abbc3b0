"""Run the comparisons: `python -m bench [--json FILE] [--picture FILE] [--only NAME]`."""

from __future__ import annotations

import json
import os
import platform
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from bench import NAMES, Figure, Scale, run_comparison


def main(
    *,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the JSON here instead of to stdout.")
    ] = None,
    picture: Annotated[
        Path | None, typer.Option(help="Draw here how `optimal` grows, as `python -m bench.plot` does.")
    ] = None,
    only: Annotated[list[str] | None, typer.Option(help=f"Run these only: {', '.join(NAMES)}.")] = None,
    state_groups: Annotated[
        int, typer.Option(min=1_100, help="Groups that exist before anything is measured.")
    ] = Scale().state_groups,
    rounds: Annotated[int, typer.Option(min=2, help="How often each case is measured.")] = Scale().rounds,
    backlog_records: Annotated[
        int, typer.Option(min=1_000, help="Records of __consumer_offsets that are read in one go.")
    ] = Scale().backlog_records,
    partitions: Annotated[
        int, typer.Option(min=1_000, help="Partitions of the largest group of `optimal`.")
    ] = Scale().partitions,
) -> None:
    """Measure, and print the figures as a table and as JSON."""
    messages = Console(stderr=True)
    for name in only or ():
        if name not in NAMES:
            messages.print(f"--only {name!r}; known: {', '.join(map(repr, NAMES))}")
            raise typer.Exit(2)
    if picture is not None and "optimal" not in (only or NAMES):
        messages.print("--picture shows how 'optimal' grows; run it too")
        raise typer.Exit(2)
    scale = Scale(
        state_groups=state_groups, rounds=rounds, backlog_records=backlog_records, partitions=partitions
    )
    figures: list[Figure] = []
    for name in only or NAMES:
        with messages.status(name) as status:
            figures += run_comparison(name, scale, status.update)
    # Where there is no terminal (a pipe, a file) wide enough for a case a line.
    results = Console(width=None if sys.stdout.isatty() else 150)
    results.print(_table(figures))
    text = json.dumps({"machine": _machine(), "figures": [figure.as_json() for figure in figures]}, indent=2)
    if json_file is None:
        typer.echo(text)
    else:
        json_file.write_text(f"{text}\n", encoding="utf-8")
        messages.print(f"wrote {json_file}")
    if picture is not None:
        from bench.plot import draw  # the only thing here that needs matplotlib

        picture.write_text(draw(json.loads(text)["figures"]), encoding="utf-8")
        messages.print(f"wrote {picture}")


def _machine() -> dict[str, Any]:
    """Say on what this was measured: without it a number means little."""
    names = ("pyspark", "delta-spark", "deltalake", "pyarrow", "great-expectations")
    return {
        "cpus": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        **{name: version(name) for name in names},
    }


def _table(figures: list[Figure]) -> Table:
    table = Table(title="Medians, in seconds")
    table.add_column("comparison")
    table.add_column("case")
    table.add_column("ours", justify="right")
    table.add_column("against", justify="right")
    table.add_column("ratio", justify="right")
    table.add_column("held against, and where our time goes")
    for figure in figures:
        parts = ", ".join(f"{name} {_shown(seconds)}" for name, seconds in figure.details.items())
        table.add_row(
            figure.comparison,
            f"{figure.case} (n={figure.samples})",
            _shown(figure.seconds),
            _shown(figure.against_seconds),
            f"{figure.ratio:.2f}",
            f"{figure.against}\n{parts}",
        )
    return table


def _shown(number: float) -> str:
    """Write three digits of a number, more of a large one, a count whole, never as a power of ten."""
    if isinstance(number, int):
        return f"{number:,}"
    return f"{number:.3f}" if number >= 0.1 else f"{float(f'{number:.3g}'):f}"


if __name__ == "__main__":
    typer.run(main)
