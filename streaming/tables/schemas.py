"""The columns, types and grain of every table: the part of them that others rely on.

Schemas are Arrow's, because the small path writes with delta-rs and the large one
with Spark, and both take them from here. Every nested field is nullable. Times are
UTC microseconds.
"""

from __future__ import annotations

import pyarrow as pa

TIME = pa.timestamp("us", tz="UTC")

OWNERS = pa.list_(
    pa.struct(
        [
            ("member_id", pa.string()),
            ("topic", pa.string()),
            ("partitions", pa.list_(pa.int32())),
            ("since_generation_ids", pa.list_(pa.int32())),
            ("since_times", pa.list_(TIME)),
        ]
    )
)
"""One entry per (member, topic); the three lists run in parallel. In a Connect group
`topic` is the connector and partition -1 the connector itself, others its tasks."""

EXPECTED_OWNERS = pa.list_(
    pa.struct(
        [
            ("member_id", pa.string()),
            ("topic", pa.string()),
            ("partitions", pa.list_(pa.int32())),
        ]
    )
)

MEMBERS = pa.list_(
    pa.struct(
        [
            ("member_id", pa.string()),
            ("group_instance_id", pa.string()),
            ("client_id", pa.string()),
            ("client_host", pa.string()),
            ("rack_id", pa.string()),
            ("topics", pa.list_(pa.string())),
            ("topics_pattern", pa.string()),
        ]
    )
)

_EVENT = [
    ("event_id", pa.string()),
    ("type", pa.string()),
    ("cluster", pa.string()),
    ("group_id", pa.string()),
    ("topic", pa.string()),
    ("event_time", TIME),
    ("source", pa.string()),
    ("path", pa.string()),
    ("partition", pa.int32()),
    ("offset", pa.int64()),
    ("outcome", pa.string()),
    ("reason", pa.string()),
    ("raw", pa.binary()),
    ("raw_bytes", pa.int64()),
]

_DELTA = [
    ("delta_id", pa.string()),
    ("phase", pa.int32()),
    ("member_id", pa.string()),
    ("group_instance_id", pa.string()),
    ("resource_type", pa.string()),
    ("topic", pa.string()),
    ("partition", pa.int32()),
    ("change", pa.string()),
    ("from_member_id", pa.string()),
    ("to_member_id", pa.string()),
]

_BALANCE = [
    ("members", pa.int32()),
    ("partitions", pa.int32()),
    ("min", pa.int32()),
    ("max", pa.int32()),
    ("spread", pa.int32()),
    ("standard_deviation", pa.float64()),
    ("moved", pa.int32()),
    ("kept", pa.int32()),
    ("revoked", pa.int32()),
    ("assigned", pa.int32()),
    ("lost", pa.int32()),
    ("unowned", pa.int32()),
    ("stickiness", pa.float64()),
    ("optimal_moves", pa.int32()),
    ("optimal_spread", pa.int32()),
    ("load_highest", pa.float64()),
    ("load_bound", pa.float64()),
    ("load_distance", pa.float64()),
]

_CHECK_INPUTS = [
    ("duplicate_owners", pa.int32()),
    ("foreign_owners", pa.int32()),
    ("unsubscribed_owners", pa.int32()),
    ("unknown_partitions", pa.int32()),
    ("delta_mismatches", pa.int32()),
    ("unowned_partitions", pa.int32()),
    ("excess_spread", pa.int32()),
    ("excess_moves", pa.int32()),
]
"""What the checks look at, one row per (group, version). All are counts, null where the
check does not apply (e.g. `unowned_partitions` of a generation that is not final)."""

_CHECK = [
    ("check", pa.string()),
    ("severity", pa.string()),
    ("expectation", pa.string()),
    ("success", pa.bool_()),
    ("observed", pa.string()),
    ("expected", pa.string()),
]

_ALERT = [
    ("alert_event_id", pa.string()),
    ("change_number", pa.int64()),
    ("incident_id", pa.string()),
    ("alertname", pa.string()),
    ("severity", pa.string()),
    ("topic", pa.string()),
    ("status", pa.string()),
    ("event_time", TIME),
    ("since", TIME),
    ("value", pa.float64()),
    ("summary", pa.string()),
    ("description", pa.string()),
]

_TOPIC_STATE = [
    ("topic", pa.string()),
    ("topic_id", pa.string()),
    ("partition_count", pa.int32()),
    ("partition_racks", pa.list_(pa.list_(pa.string()))),
    ("history", pa.list_(pa.struct([("until", TIME), ("partition_count", pa.int32())]))),
    ("recent_ids", pa.list_(pa.struct([("event_id", pa.string()), ("event_time", TIME)]))),
    ("partition_loads", pa.list_(pa.float64())),
    ("loads_time", TIME),
]

_BATCH = [
    ("batch_id", pa.int64()),
    ("checkpoint_id", pa.string()),
    ("source_end", pa.string()),
    ("input_digest", pa.string()),
    ("records_read", pa.int64()),
    ("applied", pa.int64()),
    ("duplicate", pa.int64()),
    ("ignored", pa.int64()),
    ("rejected", pa.int64()),
    ("event_time_went_back", pa.int64()),
    ("late_files", pa.int64()),
    ("filtered", pa.int64()),
]

_GROUP = [
    ("version", pa.int64()),
    ("generation_id", pa.int32()),
    ("incarnation", pa.int32()),
    ("group_kind", pa.string()),
    ("protocol_type", pa.string()),
    ("protocol", pa.string()),
    ("rebalance_protocol", pa.string()),
    ("leader_id", pa.string()),
    ("group_state", pa.string()),
    ("phase", pa.int32()),
    ("is_final", pa.bool_()),
    ("reason", pa.string()),
    ("members", MEMBERS),
    ("assignment", OWNERS),
    ("expected", EXPECTED_OWNERS),
    ("expected_status", pa.string()),
    ("expected_note", pa.string()),
    ("balance", pa.struct(_BALANCE)),
    ("subscribed_topics", pa.list_(pa.string())),
    ("has_pattern", pa.bool_()),
    ("next_timer", TIME),
    ("fingerprint", pa.string()),
    ("state", pa.string()),
]

_HEARS_BY = ("topics_patterns", pa.list_(pa.string()))
"""Sorted and distinct: the patterns by which a group hears of topics, beside `subscribed_topics`; null
where they are not known, and then a group with `has_pattern` hears of every topic. Empty for an observed
group, whose broker resolves them. It stands last, where tables of a release before can grow it."""

GENERATIONS = pa.schema(
    [
        ("log_seq", pa.int64()),
        ("batch_seq", pa.int64()),
        ("kind", pa.string()),
        ("cluster", pa.string()),
        ("group_id", pa.string()),
        ("event_time", TIME),
        ("observed_at", TIME),
        *_GROUP,
        ("deltas", pa.list_(pa.struct(_DELTA))),
        ("check_inputs", pa.struct(_CHECK_INPUTS)),
        ("checks", pa.list_(pa.struct(_CHECK))),
        ("alerts", pa.list_(pa.struct(_ALERT))),
        ("events", pa.list_(pa.struct(_EVENT))),
        ("topic_state", pa.struct(_TOPIC_STATE)),
        ("batch", pa.struct(_BATCH)),
        _HEARS_BY,
        ("certificate", pa.string()),
    ]
)
"""The log. Grain by `kind`: rebalance, held, baseline, gap, deleted and state: one row per
new version of (cluster, group_id), a `state` row keeping the version (at most one a group
and batch); topic: one row per changed (cluster, topic); rejected: one row per up to 256
rejected records, in `events`; batch: exactly one row a batch, whose `events` are its
time_advanced events. `certificate` is assignors.optimal's proof of a group that goes by it, as JSON.
`log_seq` rises with every later row of one group or topic."""

_WHERE = [("cluster", pa.string()), ("group_id", pa.string())]
_WHEN = [("version", pa.int64()), ("generation_id", pa.int32()), ("event_time", TIME)]
_FROM_BATCH = [("observed_at", TIME), ("batch_seq", pa.int64()), ("log_seq", pa.int64())]

EVENTS = pa.schema([*(f for f in _EVENT if f[0] != "raw_bytes"), ("version", pa.int64()), *_FROM_BATCH])
"""One row per accepted event; `version` is the group's version after it, null for topic and time events.
An event of a group that was set aside has a row with outcome kept when it comes, and another when it is
known what became of it, whose reason begins with log_rows.WAITED."""

REJECTED_EVENTS = pa.schema(
    [
        ("source", pa.string()),
        ("path", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("reason", pa.string()),
        ("raw", pa.binary()),
        ("raw_bytes", pa.int64()),
        ("observed_at", TIME),
        ("batch_seq", pa.int64()),
        ("log_seq", pa.int64()),
    ]
)
"""One row per rejected record; `raw` is cut at `source.rejected_raw_bytes`, `raw_bytes` is its length."""

ASSIGNMENT_DELTAS = pa.schema([*_WHERE, *_WHEN, *_DELTA, *_FROM_BATCH])
"""One row per (cluster, group_id, version, phase, member_id, topic, partition)."""

BALANCE = pa.schema(
    [*_WHERE, *_WHEN, ("protocol", pa.string()), *_BALANCE[:-4], *_FROM_BATCH, *_BALANCE[-4:]]
)
"""One row per (cluster, group_id, version) of kind rebalance, held or baseline. `optimal_moves` and
`optimal_spread` are what an optimal assignment would have moved and how even it would have been, null
where that is not known. Of a group that goes by its partitions' loads (optimal-weighted) `load_highest` is
the highest sum of a member, `load_bound` what it cannot be below, `load_distance` the share by which it is
above; null of others. (The last four came after the first release: a table of that one can grow them.)"""

CHECKS = pa.schema([*_WHERE, *_WHEN, *_CHECK, *_FROM_BATCH])
"""One row per (check, cluster, group_id, version)."""

ALERT_EVENTS = pa.schema([*_WHERE, ("version", pa.int64()), *_ALERT, *_FROM_BATCH])
"""One row per change of an alert; `change_number` counts a group's changes in their order."""

GROUPS = pa.schema(
    [
        *_WHERE,
        ("log_seq", pa.int64()),
        ("kind", pa.string()),
        ("event_time", TIME),
        ("observed_at", TIME),
        *_GROUP,
        _HEARS_BY,
    ]
)
"""The latest row of each (cluster, group_id)."""

TOPICS = pa.schema(
    [
        ("cluster", pa.string()),
        *_TOPIC_STATE[:-2],
        ("event_time", TIME),
        ("log_seq", pa.int64()),
        *_TOPIC_STATE[-2:],
    ]
)
"""The latest row of each (cluster, topic). `partition_loads` are what its partitions weigh, from 0, told at
`loads_time`; empty where nobody has told. (Both came after the first release.)"""

ALERTS = pa.schema([*_WHERE, ("version", pa.int64()), *_ALERT, ("log_seq", pa.int64())])
"""The latest change of each (cluster, group_id, alertname, topic)."""

ASSIGNMENTS = pa.schema(
    [
        *_WHERE,
        ("resource_type", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("member_id", pa.string()),
        ("expected_member_id", pa.string()),
        ("group_instance_id", pa.string()),
        ("client_id", pa.string()),
        ("client_host", pa.string()),
        ("since_generation_id", pa.int32()),
        ("since_time", TIME),
        ("generation_id", pa.int32()),
        ("version", pa.int64()),
        ("log_seq", pa.int64()),
    ]
)
"""One row per (cluster, group_id, resource_type, topic, partition, member_id): resource_type
is partition, connector or task. A partition that a member subscribes to and nobody owns has
one row whose member_id is null; share groups may have several owners of one partition."""

SCHEMA_BY_TABLE = {
    "generations": GENERATIONS,
    "events": EVENTS,
    "rejected_events": REJECTED_EVENTS,
    "assignment_deltas": ASSIGNMENT_DELTAS,
    "balance": BALANCE,
    "checks": CHECKS,
    "alert_events": ALERT_EVENTS,
    "groups": GROUPS,
    "topics": TOPICS,
    "alerts": ALERTS,
    "assignments": ASSIGNMENTS,
}
