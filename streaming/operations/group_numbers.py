"""The latest row of every group, as numbers: what the gauges of groups show.

Read from the tables as any reader would, snapshot and tail, and computed column by
column: ten thousand groups take a fraction of a second, most of it without the
interpreter's lock.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, QueryBuilder

from streaming.tables.delta import LOG, quoted
from streaming.tables.log import GROUP_KINDS, SNAPSHOT_APP
from streaming.tables.schemas import GROUPS, TOPICS

_PLACE = ["group", "topic", "partition"]

_COLUMNS = (
    "cluster",
    "group_id",
    "generation_id",
    "group_state",
    "protocol_type",
    "members",
    "assignment",
    "expected",
    "subscribed_topics",
)

_TOPIC_COLUMNS = ("cluster", "topic", "partition_count")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupNumbers:
    """Groups in the order of (cluster, group_id), and their topics.

    In a Connect group a topic is a connector, its partitions the connector itself and its tasks.

    Attributes:
        total: how many groups there are, those left out included.
        groups: cluster, group_id, group_state, generation_id, members,
            members_without_partitions, skew_ratio (null where nothing is owned),
            expected_diff (null where nothing is expected) and duplicate_owners (null
            of a share group); one row a group.
        topics: cluster, group_id, topic, members that own some of it, partitions assigned, and
            unassigned (null where their number is not known); one row a group and topic.
    """

    total: int
    groups: pa.Table
    topics: pa.Table


class GroupReader:
    """Reads one deployment's tables; not for two threads at once."""

    def __init__(self, root: str) -> None:
        """Open nothing yet; `root` is where the tables lie."""
        self._root = root
        self._open: dict[str, DeltaTable] = {}

    def read(self, most_groups: int) -> GroupNumbers:
        """Read the groups as they stand, the first `most_groups` of them by cluster and name.

        Raises:
            DeltaError: a table is not there or cannot be read.
        """
        # The snapshots first: a tail read later is never the older of the two.
        groups, topics = self._table("groups"), self._table("topics")
        log = self._table(LOG)
        kinds = ", ".join(map(quoted, GROUP_KINDS))
        columns = ", ".join(_COLUMNS)
        topic_columns = ", ".join(f"topic_state['{name}'] AS {name}" for name in _TOPIC_COLUMNS[1:])
        of_groups, of_topics = (pa.schema([schema.field(n) for n in names]) for schema, names in _KNOWN)
        rows = [
            _query(groups, columns, "TRUE", of_groups),
            _query(log, columns, f"{_behind(groups)} AND kind IN ({kinds}) ORDER BY log_seq", of_groups),
        ]
        counts = [
            _query(topics, ", ".join(_TOPIC_COLUMNS), "TRUE", of_topics),
            _query(
                log,
                f"cluster, {topic_columns}",
                f"{_behind(topics)} AND kind = 'topic' ORDER BY log_seq",
                of_topics,
            ),
        ]
        latest = _last_of(pa.concat_tables(rows), "cluster", "group_id")
        living = latest.filter(pc.not_equal(latest["group_state"], "Dead"))
        first = living.take(pa.array(range(min(most_groups, living.num_rows)), pa.int64()))
        return _numbers(first, _last_of(pa.concat_tables(counts), "cluster", "topic"), living.num_rows)

    def _table(self, name: str) -> DeltaTable:
        table = self._open.get(name)
        if table is None:
            table = self._open[name] = DeltaTable(f"{self._root}/{name}")
        else:
            table.update_incremental()
        return table


_KNOWN = ((GROUPS, _COLUMNS), (TOPICS, _TOPIC_COLUMNS))


def _behind(snapshot: DeltaTable) -> str:
    return f"batch_seq > {snapshot.transaction_version(SNAPSHOT_APP) or 0}"


def _query(table: DeltaTable, columns: str, where: str, schema: pa.Schema) -> pa.Table:
    # Names and conditions are ours.
    sql = f"SELECT {columns} FROM wanted WHERE {where}"  # noqa: S608
    found = QueryBuilder().register("wanted", table).execute(sql)
    return pa.RecordBatchReader.from_stream(found).read_all().cast(schema)


def _last_of(rows: pa.Table, *keys: str) -> pa.Table:
    """Keep the last row of each key, in the order of the keys."""
    places = zip(*(rows[key].to_pylist() for key in keys), strict=True)
    last = {key: place for place, key in enumerate(places)}
    return rows.take(pa.array([last[key] for key in sorted(last)], pa.int64()))


def _numbers(groups: pa.Table, counts: pa.Table, total: int) -> GroupNumbers:
    numbers = pa.array(range(groups.num_rows), pa.int32())
    members = pc.fill_null(pc.list_value_length(groups["members"].combine_chunks()), 0)
    owned, expected = _pairs(groups["assignment"]), _pairs(groups["expected"])
    loads = owned.group_by(["group", "member_id"]).aggregate([([], "count_all")])
    busiest = loads.group_by("group").aggregate(
        [("count_all", "max"), ("count_all", "sum"), ("count_all", "count")]
    )
    most, partitions, busy = (
        _spread_out(busiest, f"count_all_{what}", groups.num_rows) for what in ("max", "sum", "count")
    )
    places = owned.group_by(_PLACE).aggregate([([], "count_all")])
    shared = _count(places.filter(pc.greater(places["count_all"], 1)), ["group"])
    is_expected = pc.is_valid(groups["expected"].combine_chunks())
    diff = _count(_differences(owned, expected, pc.indices_nonzero(is_expected)), ["group"])
    is_share = pc.equal(groups["protocol_type"].combine_chunks(), "share")
    none = pa.scalar(None, pa.int64())
    is_connect = pc.fill_null(pc.equal(groups["protocol_type"].combine_chunks(), "connect"), False)
    connect, others = pc.indices_nonzero(is_connect), pc.indices_nonzero(pc.invert(is_connect))
    unassigned = pa.concat_tables(
        [_unowned(groups, places, counts, others), _unrun(expected, places, connect)]
    )
    return GroupNumbers(
        total=total,
        groups=groups.select(["cluster", "group_id", "group_state", "generation_id"])
        .append_column("members", members)
        .append_column("members_without_partitions", pc.max_element_wise(pc.subtract(members, busy), 0))
        .append_column("skew_ratio", _ratio(pc.multiply(most, members), partitions))
        .append_column("expected_diff", pc.if_else(is_expected, _spread_out(diff, "n", len(numbers)), none))
        .append_column(
            "duplicate_owners",
            pc.if_else(pc.fill_null(is_share, False), none, _spread_out(shared, "n", len(numbers))),
        ),
        topics=_by_topic(groups, owned, places, unassigned),
    )


def _pairs(column: pa.ChunkedArray) -> pa.Table:
    """Spread a column of owners out: group (the row), member_id, topic, partition."""
    entries = column.combine_chunks()
    groups, entries = pc.list_parent_indices(entries), pc.list_flatten(entries)
    lists = pc.struct_field(entries, "partitions")
    parents = pc.list_parent_indices(lists)
    return pa.table(
        {
            "group": groups.take(parents).cast(pa.int32()),
            "member_id": pc.struct_field(entries, "member_id").take(parents),
            "topic": pc.struct_field(entries, "topic").take(parents),
            "partition": pc.list_flatten(lists),
        }
    )


def _differences(owned: pa.Table, expected: pa.Table, groups: pa.Array) -> pa.Table:
    """Find the places of these groups that have not exactly the owners they should have."""
    owned = owned.filter(pc.is_in(owned["group"], groups.cast(pa.int32())))
    sides = [
        table.append_column("side", pa.repeat(pa.scalar(side, pa.int8()), table.num_rows))
        for side, table in enumerate((owned, expected))
    ]
    found = (
        pa.concat_tables(sides).group_by([*_PLACE, "member_id"]).aggregate([("side", "min"), ("side", "max")])
    )
    one_sided = found.filter(pc.equal(found["side_min"], found["side_max"]))
    return one_sided.group_by(_PLACE).aggregate([])


def _unowned(groups: pa.Table, places: pa.Table, counts: pa.Table, wanted: pa.Array) -> pa.Table:
    """Count for these groups the partitions of each subscribed topic that nobody owns; null if unknown."""
    lists = groups["subscribed_topics"].combine_chunks()
    parents = pc.list_parent_indices(lists).cast(pa.int32())
    subscribed = pa.table(
        {
            "group": parents,
            "cluster": groups["cluster"].combine_chunks().take(parents),
            "topic": pc.list_flatten(lists),
        }
    )
    subscribed = subscribed.filter(pc.is_in(parents, wanted.cast(pa.int32())))
    subscribed = subscribed.join(counts, ["cluster", "topic"]).select(["group", "topic", "partition_count"])
    existing = places.join(subscribed, ["group", "topic"], join_type="inner")
    existing = existing.filter(pc.less(existing["partition"], existing["partition_count"]))
    joined = subscribed.join(_count(existing, ["group", "topic"]), ["group", "topic"])
    unowned = pc.subtract(joined["partition_count"].cast(pa.int64()), pc.fill_null(joined["n"], 0))
    return joined.select(["group", "topic"]).append_column("unassigned", unowned)


def _unrun(expected: pa.Table, places: pa.Table, wanted: pa.Array) -> pa.Table:
    """Count for these Connect groups the parts of each expected connector that nobody runs."""
    should = expected.filter(pc.is_in(expected["group"], wanted.cast(pa.int32())))
    should = should.group_by(_PLACE).aggregate([])
    missing = _count(should.join(places, _PLACE, join_type="left anti"), ["group", "topic"])
    every = should.group_by(["group", "topic"]).aggregate([]).join(missing, ["group", "topic"])
    return every.select(["group", "topic"]).append_column("unassigned", pc.fill_null(every["n"], 0))


def _by_topic(groups: pa.Table, owned: pa.Table, places: pa.Table, unassigned: pa.Table) -> pa.Table:
    owners = owned.group_by(["group", "topic"]).aggregate([("member_id", "count_distinct")])
    found = owners.join(_count(places, ["group", "topic"]), ["group", "topic"])
    found = found.join(unassigned, ["group", "topic"], join_type="full outer")
    found = found.sort_by([("group", "ascending"), ("topic", "ascending")])
    return pa.table(
        {
            "cluster": groups["cluster"].take(found["group"]),
            "group_id": groups["group_id"].take(found["group"]),
            "topic": found["topic"],
            "members": pc.fill_null(found["member_id_count_distinct"], 0),
            "assigned": pc.fill_null(found["n"], 0),
            "unassigned": found["unassigned"],
        }
    )


def _count(rows: pa.Table, keys: list[str]) -> pa.Table:
    """Count the rows of each key, as `n`."""
    return rows.group_by(keys).aggregate([([], "count_all")]).rename_columns([*keys, "n"])


def _spread_out(by_group: pa.Table, column: str, groups: int) -> pa.Array:
    """Put a column's values at their groups' places, 0 at all others."""
    values = np.zeros(groups, np.int64)
    values[by_group["group"].to_numpy()] = by_group[column].to_numpy()
    return pa.array(values)


def _ratio(above: pa.Array, below: pa.Array) -> pa.Array:
    """Divide; null where there is nothing to divide by."""
    divisor = pc.if_else(pc.equal(below, 0), pa.scalar(None, pa.int64()), below)
    return pc.divide(above.cast(pa.float64()), divisor.cast(pa.float64()))
