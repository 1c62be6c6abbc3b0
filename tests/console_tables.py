"""Builds small tables as the job leaves them: a snapshot, and a log that has gone on since."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from streaming.tables.log import SNAPSHOT_APP
from streaming.tables.schemas import SCHEMA_BY_TABLE

BEGIN = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def write_rows(tables: Path, name: str, rows: list[dict[str, Any]], *, batch_seq: int = 0) -> None:
    """Append rows to a table, made if need be; `batch_seq` is what a snapshot table notes."""
    schema = SCHEMA_BY_TABLE[name]
    location = str(tables / name)
    DeltaTable.create(location, schema, mode="ignore")
    noted = CommitProperties(app_transactions=[Transaction(SNAPSHOT_APP, batch_seq)])
    write_deltalake(
        location, pa.Table.from_pylist(rows, schema=schema), mode="append", commit_properties=noted
    )


def write_empty(tables: Path) -> None:
    """Make every table, as a job does when it starts."""
    for name in SCHEMA_BY_TABLE:
        write_rows(tables, name, [])


def group_row(group_id: str, batch: int, owners: dict[str, list[int]], **other: Any) -> dict[str, Any]:
    """Make a group's row of one topic "t", as `generations` and `groups` have it.

    Args:
        group_id: the group, of cluster "c" unless `other` says so.
        batch: number of its batch; version and generation_id too.
        owners: member -> partitions of "t".
        other: columns that differ.
    """
    since = BEGIN + timedelta(minutes=batch)
    row = {
        "log_seq": batch << 24,
        "batch_seq": batch,
        "kind": "rebalance",
        "cluster": "c",
        "group_id": group_id,
        "event_time": since,
        "version": batch,
        "generation_id": batch,
        "group_kind": "computed",
        "group_state": "Stable",
        "protocol_type": "consumer",
        "protocol": "range",
        "expected_status": "equal",
        "reason": f"reason {batch}",
        "subscribed_topics": ["t"],
        "members": [
            {
                "member_id": m,
                "group_instance_id": None,
                "client_id": f"client-{m}",
                "client_host": "/10.0.0.1",
                "topics": ["t"],
            }
            for m in owners
        ],
        "assignment": [
            {
                "member_id": member,
                "topic": "t",
                "partitions": partitions,
                "since_generation_ids": [batch] * len(partitions),
                "since_times": [since] * len(partitions),
            }
            for member, partitions in owners.items()
        ],
        "expected": [
            {"member_id": member, "topic": "t", "partitions": partitions}
            for member, partitions in owners.items()
        ],
    }
    return {**row, **other}


def topic_row(batch: int, partition_count: int) -> dict[str, Any]:
    """Make the log's row of topic "t" of cluster "c"."""
    state = {"topic": "t", "partition_count": partition_count}
    return {
        "log_seq": (batch << 24) + 1,
        "batch_seq": batch,
        "kind": "topic",
        "cluster": "c",
        "topic_state": state,
    }


def alert_change(group_id: str, status: str, batch: int) -> dict[str, Any]:
    """Make one change of the alert GroupEmpty, as `alerts` has it."""
    return {
        "cluster": "c",
        "group_id": group_id,
        "version": batch,
        "log_seq": batch << 24,
        **alert_struct(status),
    }


def alert_struct(status: str) -> dict[str, Any]:
    """Make one change of the alert GroupEmpty, as a log row's `alerts` has it."""
    return {
        "change_number": ["pending", "firing", "resolved"].index(status),
        "alertname": "GroupEmpty",
        "severity": "warning",
        "status": status,
        "since": BEGIN,
        "summary": "no members [at all]",
    }
