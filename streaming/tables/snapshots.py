"""The snapshots: the latest row of each group, topic and alert, and who owns what now.

Refreshed outside a batch's path, from the rows of the log behind each table. Every
table notes the batch it stands at, so a crash between two of them leaves none wrong:
one that lags is brought forward from its own place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, write_deltalake

from streaming.crash_points import reach
from streaming.tables.delta import Tables, commit_of, quoted
from streaming.tables.log import SNAPSHOT_APP, Log, Tail
from streaming.tables.publish import flatten
from streaming.tables.schemas import ALERTS, ASSIGNMENTS, GROUPS, TOPICS

if TYPE_CHECKING:
    from streaming.model import TopicState

_ORDER = ("assignments", "topics", "alerts", "groups")

_KEYS_OF_TABLE = {
    "groups": ("cluster", "group_id"),
    "topics": ("cluster", "topic"),
    "alerts": ("cluster", "group_id", "alertname", "topic"),
}


class Snapshots:
    """Brings the snapshot tables up to the log's last batch."""

    def __init__(self, tables: Tables, log: Log, tail: Tail) -> None:
        """Work on these tables; `tail` must hold every row behind the oldest of them."""
        self._tables = tables
        self._log = log
        self._tail = tail

    def refresh(self) -> None:
        """Bring every snapshot table up to date and drop the tail."""
        last = self._log.last_batch_seq
        reach("before_snapshot")
        for name in _ORDER:
            since = self._tables.transaction_version(name, SNAPSHOT_APP)
            if since >= last:
                continue
            rows = self._tail.rows_after(since)
            if name == "assignments":
                self._replace_assignments(latest_groups(rows), last)
            else:
                self._merge(name, _latest_rows(name, rows), last)
            reach("inside_snapshot")
        reach("after_snapshot")
        self._tail.drop()

    def _merge(self, name: str, rows: pa.Table, batch_seq: int) -> None:
        if not rows.num_rows:
            self._tables.mark(name, app_id=SNAPSHOT_APP, version=batch_seq)
            return
        # Alerts of a whole group have no topic, and null equals nothing.
        same = " AND ".join(
            f"held.{key} IS NOT DISTINCT FROM fresh.{key}" if key == "topic" else f"held.{key} = fresh.{key}"
            for key in _KEYS_OF_TABLE[name]
        )
        properties = commit_of(SNAPSHOT_APP, batch_seq)

        def merge(table: DeltaTable) -> None:
            merger = table.merge(
                rows, same, source_alias="fresh", target_alias="held", commit_properties=properties
            )
            merger.when_matched_update_all().when_not_matched_insert_all().execute()

        self._commit(name, merge, batch_seq)

    def _commit(self, name: str, write: Callable[[DeltaTable], object], batch_seq: int) -> None:
        self._tables.commit(name, write, lambda: self._tables.is_due(name, SNAPSHOT_APP, batch_seq))

    def _replace_assignments(self, groups: pa.Table, batch_seq: int) -> None:
        if not groups.num_rows:
            self._tables.mark("assignments", app_id=SNAPSHOT_APP, version=batch_seq)
            return
        by_cluster: dict[str, list[str]] = {}
        for cluster, group_id in zip(
            groups["cluster"].to_pylist(), groups["group_id"].to_pylist(), strict=True
        ):
            by_cluster.setdefault(cluster, []).append(quoted(group_id))
        touched = " OR ".join(
            f"(cluster = {quoted(cluster)} AND group_id IN ({', '.join(sorted(group_ids))}))"
            for cluster, group_ids in sorted(by_cluster.items())
        )
        rows, properties = assignment_rows(groups, self._tail.topics), commit_of(SNAPSHOT_APP, batch_seq)

        def overwrite(table: DeltaTable) -> None:
            write_deltalake(table, rows, mode="overwrite", predicate=touched, commit_properties=properties)

        self._commit("assignments", overwrite, batch_seq)


def latest_groups(rows: pa.Table) -> pa.Table:
    """Keep the latest row of each group, in the order of (cluster, group_id)."""
    groups = rows.filter(pc.not_equal(rows["kind"], "topic"))
    return _latest(groups, ("cluster", "group_id"))


def _latest(rows: pa.Table, keys: tuple[str, ...]) -> pa.Table:
    # Rows come in the order of the log, so the last of a key is its latest.
    columns = [rows[name].to_pylist() for name in keys]
    last = {key: place for place, key in enumerate(zip(*columns, strict=True))}
    return rows.take(pa.array(last.values(), pa.int64())).sort_by([(key, "ascending") for key in keys])


def _latest_rows(name: str, rows: pa.Table) -> pa.Table:
    if name == "groups":
        return latest_groups(rows).select(GROUPS.names).cast(GROUPS)
    if name == "topics":
        topics = rows.filter(pc.equal(rows["kind"], "topic")).combine_chunks()
        nested = topics["topic_state"].combine_chunks()
        fields = dict(zip([field.name for field in nested.type], nested.flatten(), strict=True))
        flat = pa.table(
            [fields[column] if column in fields else topics[column] for column in TOPICS.names], schema=TOPICS
        )
        return _latest(flat, ("cluster", "topic"))
    changes = flatten(rows, "alert_events").select(ALERTS.names).cast(ALERTS)
    # A group's `state` row comes last in a batch, with changes that may have come before its versions'.
    return _latest(changes.sort_by("change_number"), ("cluster", "group_id", "alertname", "topic"))


def assignment_rows(groups: pa.Table, topics: Mapping[str, Mapping[str, TopicState]]) -> pa.Table:
    """Spread groups over their partitions: owner, expected owner, since when.

    Args:
        groups: rows of the log or of `groups`, one per group.
        topics: cluster -> topic -> state, for partitions that nobody owns and no
            expected assignment names.

    Returns:
        Rows of `assignments`, by group and resource.
    """
    columns: dict[str, list[Any]] = {name: [] for name in ASSIGNMENTS.names}
    wanted = [
        *_GROUP_COLUMNS,
        "members",
        "assignment",
        "expected",
        "subscribed_topics",
        "protocol_type",
        "group_state",
    ]
    for group in groups.select(wanted).to_pylist():
        if group["group_state"] == "Dead":
            continue
        for row in _rows_of_group(group, topics.get(group["cluster"], {})):
            for name, value in zip(ASSIGNMENTS.names, row, strict=True):
                columns[name].append(value)
    return pa.table(columns, schema=ASSIGNMENTS)


_GROUP_COLUMNS = ["cluster", "group_id", "generation_id", "version", "log_seq"]


def _rows_of_group(group: Mapping[str, Any], topics: Mapping[str, TopicState]) -> list[tuple[Any, ...]]:
    is_connect = group["protocol_type"] == "connect"
    members = {member["member_id"]: member for member in group["members"] or ()}
    expected: dict[tuple[str, int], list[str]] = {}
    for owned in group["expected"] or ():
        for partition in owned["partitions"]:
            expected.setdefault((owned["topic"], partition), []).append(owned["member_id"])
    owners: dict[tuple[str, int], list[tuple[Any, ...]]] = {place: [] for place in expected}
    if not is_connect:
        for topic in group["subscribed_topics"] or ():
            state = topics.get(topic)
            for partition in range(state.partition_count if state else 0):
                owners.setdefault((topic, partition), [])
    for owned in group["assignment"] or ():
        since = zip(owned["partitions"], owned["since_generation_ids"], owned["since_times"], strict=True)
        for partition, generation_id, time in since:
            owners.setdefault((owned["topic"], partition), []).append(
                (owned["member_id"], generation_id, time)
            )
    rows = []
    for (topic, partition), held_by in sorted(owners.items()):
        resource = "partition" if not is_connect else "connector" if partition < 0 else "task"
        should = expected.get((topic, partition), [])
        for member_id, generation_id, time in held_by or [(None, None, None)]:
            member = members.get(member_id, {})
            rows.append(
                (
                    group["cluster"],
                    group["group_id"],
                    resource,
                    topic,
                    partition,
                    member_id,
                    member_id if member_id in should else min(should, default=None),
                    member.get("group_instance_id"),
                    member.get("client_id"),
                    member.get("client_host"),
                    generation_id,
                    time,
                    group["generation_id"],
                    group["version"],
                    group["log_seq"],
                )
            )
    return rows
