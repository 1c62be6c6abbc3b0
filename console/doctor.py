"""`counterpoise doctor`: what ails a deployment, found without Spark and without changing anything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table
from rich.text import Text

from console.findings import Finding, ok, problem, problem_told

if TYPE_CHECKING:
    from rich.console import Console

    from conf.layers import SettingsError
    from conf.settings import Settings

_STYLES = {"ok": "green", "warning": "yellow", "problem": "bold red"}


def examine(settings: Settings, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Look at everything that the settings speak of, as the user who runs this.

    Args:
        settings: all settings.
        environ: the environment, for Java and for what the clusters' options take from it.

    Yields:
        Findings, good ones too: machine, sources, clusters, then each deployment's tables.
    """
    from console.examine_clusters import examine_cluster
    from console.examine_machine import examine_machine, examine_source
    from console.examine_tables import examine_deployment

    deployments = settings.by_cluster()
    if settings.sources:
        yield ok("settings", "all", f"sources: {len(settings.sources)}, sinks: {len(settings.sinks)}")
    else:
        yield problem("settings", "sources", "it is empty", "describe at least one [[sources]] to read")
    yield from examine_machine(settings, environ)
    for source in settings.sources:
        if source.from_ != "kafka":
            yield from examine_source(source)
    clusters = {source.cluster for source in settings.sources if source.from_ == "kafka"}
    for sink in settings.sinks:
        clusters.update([sink.cluster] if sink.cluster else deployments)
    for cluster in sorted(clusters):
        yield from examine_cluster(cluster, settings, environ)
    for cluster, own in deployments.items():
        yield from examine_deployment(own, where=f"{cluster}: " if len(deployments) > 1 else "")


def examine_without_settings(error: SettingsError, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Say what is wrong with the settings, and look at what does not depend on them."""
    from console.examine_machine import examine_java, examine_python

    for told in error.problems:
        yield problem_told("settings", "all", told)
    yield from examine_python()
    yield from examine_java(environ)


def describe_findings(findings: Iterable[Finding]) -> dict[str, Any]:
    """Write findings as plain values: `findings`, and how many are `problems` and `warnings`."""
    rows = [asdict(finding) for finding in findings]
    counts = Counter(row["level"] for row in rows)
    return {"problems": counts["problem"], "warnings": counts["warning"], "findings": rows}


def print_findings(described: Mapping[str, Any], console: Console) -> None:
    """Print the findings as a table, and a line that counts them."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column("", no_wrap=True)
    table.add_column("check", no_wrap=True)
    for name, ratio in (("of", 2), ("found", 5), ("what to do", 5)):
        table.add_column(name, overflow="fold", ratio=ratio)
    for row in described["findings"]:
        level = Text(row["level"], style=_STYLES[row["level"]])
        # Text, because a message may hold what Rich would take for its markup.
        texts = (Text(row[name]) for name in ("check", "about", "found", "advice"))
        table.add_row(level, *texts)
    console.print(table)
    console.print(f"problems: {described['problems']}, warnings: {described['warnings']}")
