"""Deployments for tests of the stream: input files, settings, and what the tables hold in the end."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from conf.settings import Settings, load_settings
from streaming.tables.delta import Tables
from streaming.tables.schemas import SCHEMA_BY_TABLE

Row = dict[str, Any]
START_MS = 1_795_225_094_000


def event(type_: str, second: int, **fields: Any) -> str:
    """Write one event as a line."""
    return json.dumps({"type": type_, "event_time": START_MS + second * 1000, **fields})


def story() -> dict[str, list[str]]:
    """Tell of twelve groups: members join, a topic grows, one leaves, some lines are broken or come twice."""
    first = [event("topic_changed", 0, topic="orders", partitions=4)]
    for group in range(12):
        for member in range(3):
            more = {"member_id": f"m{member}", "topics": ["orders"], "protocols": ["cooperative-sticky"]}
            first.append(event("member_joined", 1 + member, group_id=f"g{group}", **more))
    first[7:7] = ["{broken", event("member_joined", 3, group_id="g1")]
    second = [
        event("topic_changed", 20, topic="orders", partitions=7),
        event("member_left", 30, group_id="g3", member_id="m0"),
        first[2],
        event("time_advanced", 400),
    ]
    return {"a.jsonl": first, "b.jsonl": second}


def write_lines(directory: Path, lines_by_file: Mapping[str, list[str]]) -> None:
    """Write files of lines, older names first."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, lines in lines_by_file.items():
        (directory / name).write_text("\n".join(lines) + "\n")


def make_settings(root: Path, **more: str) -> Settings:
    """Make settings for a deployment below `root` that reads `root/../in`."""
    root.mkdir(parents=True, exist_ok=True)
    file = root / "conf.toml"
    source = f'name = "events"\nformat = "events"\nfrom = "files"\npath = "{root.parent / "in"}"\n'
    file.write_text(f"[[sources]]\n{source}")
    return load_settings(
        file,
        {},
        {
            "job.tables": str(root / "tables"),
            "job.checkpoint_location": str(root / "checkpoint"),
            "batch.shards": "2",
            **{key.replace("__", "."): value for key, value in more.items()},
        },
    )


def contents(settings: Settings) -> dict[str, list[str]]:
    """Read every table without what may differ between runs: log numbers, observation times, checkpoint."""
    tables = Tables(settings.job.tables)
    found = {}
    for name, schema in SCHEMA_BY_TABLE.items():
        rows = tables.read(name, schema.names).to_pylist()
        for row in rows:
            for column in ("log_seq", "batch_seq", "observed_at"):
                row.pop(column, None)
            if row.get("batch"):
                row["batch"].pop("checkpoint_id")
        found[name] = sorted(map(repr, rows))
    return found


def totals(settings: Settings) -> Row:
    """Add up the counts of all batch rows."""
    batches = [row["batch"] for row in Tables(settings.job.tables).read("generations", ["batch"]).to_pylist()]
    names = ("records_read", "applied", "duplicate", "ignored", "rejected")
    return {name: sum(batch[name] for batch in batches if batch) for name in names}
