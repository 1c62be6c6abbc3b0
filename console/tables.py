"""The Delta tables for people: read without a JVM, and never stale.

The snapshot tables are refreshed at intervals; what happened since is in the log. Every
`latest_*` here lays that tail over the snapshot, so it shows the last committed batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaError

from console.errors import TablesError

Row = dict[str, Any]

SNAPSHOT_APP = "counterpoise-snapshot"
"""The application under which the job notes, in each snapshot table, the batch that it stands at."""

_GROUP_ROWS = "kind IN ('rebalance', 'state', 'held', 'baseline', 'gap', 'deleted')"
"""The rows of the log that carry a group's whole state."""


def read_table(
    tables: str, name: str, columns: Sequence[str] | None = None, where: str | None = None
) -> pa.Table:
    """Read one Delta table as it stands now.

    DataFusion reads, through delta-rs: files and columns that the query does
    not need are not opened. (A process that read the same tables through an
    Arrow dataset was once seen to abort at its exit.)

    Args:
        tables: directory or URI of all tables.
        name: the table.
        columns: what to read, in this order; None for all.
        where: a SQL condition over the table's columns; use `quoted` for values.

    Raises:
        TablesError: there is no such table, or it cannot be read.
    """
    table = _open(tables, name)
    schema = pa.schema(table.schema().to_arrow())
    if columns is not None:
        schema = pa.schema([schema.field(column) for column in columns])
    wanted = ", ".join(f'"{column}"' for column in columns) if columns is not None else "*"
    condition = f" WHERE {where}" if where else ""
    # The names are ours, and `where` is ours with quoted values.
    sql = f"SELECT {wanted} FROM wanted{condition}"  # noqa: S608
    found = QueryBuilder().register("wanted", table).execute(sql)
    # Not pa.table(): asked to take any object, it imports pandas to see whether this is one of its frames.
    return pa.RecordBatchReader.from_stream(found).read_all().cast(schema)


def quoted(value: str) -> str:
    """Write a text as a SQL literal.

    >>> quoted("it's")
    "'it''s'"
    """
    return "'" + value.replace("'", "''") + "'"


def latest_groups(tables: str, group_id: str | None = None) -> list[Row]:
    """Give the latest row of each group that is not deleted, by cluster and group_id.

    Args:
        tables: directory or URI of all tables.
        group_id: only groups of this name (one in each cluster at most).
    """
    names = pa.schema(_open(tables, "groups").schema().to_arrow()).names
    columns = [name for name in names if name not in ("state", "fingerprint")]
    only = None if group_id is None else f"group_id = {quoted(group_id)}"
    held = read_table(tables, "groups", columns, only).to_pylist()
    tail = _tail(tables, "groups", columns, _both(_GROUP_ROWS, only))
    latest: dict[tuple[str, str], Row] = {}
    # The tail is read after the snapshot, so it is never the older of the two.
    for row in (*held, *tail):
        latest[row["cluster"], row["group_id"]] = row
    return [latest[key] for key in sorted(latest) if latest[key]["group_state"] != "Dead"]


def latest_topics(tables: str) -> dict[tuple[str, str], int]:
    """Give the partition count of each topic: (cluster, topic) -> number, 0 for a deleted one."""
    held = read_table(tables, "topics", ["cluster", "topic", "partition_count"]).to_pylist()
    counts = {(row["cluster"], row["topic"]): int(row["partition_count"]) for row in held}
    for row in _tail(tables, "topics", ["cluster", "topic_state"], "kind = 'topic'"):
        counts[row["cluster"], row["topic_state"]["topic"]] = row["topic_state"]["partition_count"]
    return counts


def latest_alerts(tables: str, group_id: str | None = None) -> list[Row]:
    """Give the latest change of each alert, resolved ones included, by cluster, group and name."""
    only = None if group_id is None else f"group_id = {quoted(group_id)}"
    latest = {_alert_key(row): row for row in read_table(tables, "alerts", where=only).to_pylist()}
    columns = ["cluster", "group_id", "version", "alerts"]
    for row in _tail(tables, "alerts", columns, _both(_GROUP_ROWS, only)):
        for change in row["alerts"] or ():
            flat = {**{name: row[name] for name in columns[:3]}, **change, "log_seq": row["log_seq"]}
            known = latest.get(_alert_key(flat))
            # A group's `state` row comes last in a batch, with changes from before its versions.
            if known is None or known["change_number"] < flat["change_number"]:
                latest[_alert_key(flat)] = flat
    return [latest[key] for key in sorted(latest, key=lambda key: tuple(map(str, key)))]


def latest_assignments(tables: str, group_id: str | None = None) -> list[Row]:
    """Give who owns what now, by cluster, group, topic and partition.

    Rows have the columns of the table `assignments`; a partition that somebody
    subscribes to and nobody owns has one row whose member_id is None.
    """
    return assignments_of(tables, latest_groups(tables, group_id), group_id)


def assignments_of(tables: str, latest: Iterable[Row], group_id: str | None = None) -> list[Row]:
    """Give who owns what in these groups, whose latest rows `latest_groups` has read."""
    groups = {(row["cluster"], row["group_id"]): row for row in latest}
    only = None if group_id is None else f"group_id = {quoted(group_id)}"
    rows = []
    current = set()
    for row in read_table(tables, "assignments", where=only).to_pylist():
        key = (row["cluster"], row["group_id"])
        if key in groups and groups[key]["log_seq"] == row["log_seq"]:
            current.add(key)
            rows.append(row)
    behind = [row for key, row in groups.items() if key not in current]
    if behind:
        counts = latest_topics(tables)
        for group in behind:
            rows.extend(assignment_rows(group, counts))
    return sorted(
        rows, key=lambda r: (r["cluster"], r["group_id"], r["topic"], r["partition"], r["member_id"] or "")
    )


def assignment_rows(group: Row, counts: Mapping[tuple[str, str], int]) -> Iterable[Row]:
    """Spread one group's row over its partitions: owner, expected owner, since when.

    Args:
        group: a row of `groups`.
        counts: (cluster, topic) -> number of partitions, for those that nobody owns.
    """
    is_connect = group["protocol_type"] == "connect"
    members = {member["member_id"]: member for member in group["members"] or ()}
    expected: dict[tuple[str, int], list[str]] = {}
    for entry in group["expected"] or ():
        for partition in entry["partitions"]:
            expected.setdefault((entry["topic"], partition), []).append(entry["member_id"])
    owners: dict[tuple[str, int], list[tuple[Any, ...]]] = {place: [] for place in expected}
    for topic in () if is_connect else group["subscribed_topics"] or ():
        for partition in range(counts.get((group["cluster"], topic), 0)):
            owners.setdefault((topic, partition), [])
    for entry in group["assignment"] or ():
        lists = (entry["partitions"], entry["since_generation_ids"], entry["since_times"])
        for partition, generation_id, time in zip(*lists, strict=True):
            place = owners.setdefault((entry["topic"], partition), [])
            place.append((entry["member_id"], generation_id, time))
    same = {name: group[name] for name in ("cluster", "group_id", "generation_id", "version", "log_seq")}
    for topic, partition in sorted(owners):
        resource = "partition" if not is_connect else "connector" if partition < 0 else "task"
        should = expected.get((topic, partition), [])
        for member_id, generation_id, time in owners[topic, partition] or [(None, None, None)]:
            member = members.get(member_id, {})
            yield {
                **same,
                "resource_type": resource,
                "topic": topic,
                "partition": partition,
                "member_id": member_id,
                "expected_member_id": member_id if member_id in should else min(should, default=None),
                "group_instance_id": member.get("group_instance_id"),
                "client_id": member.get("client_id"),
                "client_host": member.get("client_host"),
                "since_generation_id": generation_id,
                "since_time": time,
            }


def _tail(tables: str, snapshot: str, columns: Sequence[str], where: str) -> list[Row]:
    """Read the log's rows behind a snapshot table, in the order of the log."""
    since = _open(tables, snapshot).transaction_version(SNAPSHOT_APP) or 0
    wanted = list(dict.fromkeys([*columns, "log_seq"]))
    rows = read_table(tables, "generations", wanted, _both(f"batch_seq > {since}", where)).to_pylist()
    return sorted(rows, key=lambda row: int(row["log_seq"]))


def _open(tables: str, name: str) -> DeltaTable:
    location = f"{tables.rstrip('/')}/{name}"
    try:
        return DeltaTable(location)
    except (DeltaError, OSError) as error:
        problem = f"{location}: {str(error).splitlines()[0]}"
    raise TablesError(f"{problem}; give the tables' directory with --tables or --conf, or run the job first")


def _both(one: str, other: str | None) -> str:
    return f"({one}) AND ({other})" if other else one


def _alert_key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return row["cluster"], row["group_id"], row["alertname"], row["topic"]
