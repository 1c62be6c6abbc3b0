"""The job's own metrics: counted after each batch, in the thread that ran it.

Names and labels are a contract; README.md lists them.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from prometheus_client import Counter, Gauge, Histogram

from streaming.events.parsing import UNKNOWN_RECORD
from streaming.tables.own_events import OWN_EVENTS
from streaming.tables.schemas import SCHEMA_BY_TABLE

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from streaming.tables.delta import Tables
    from streaming.tables.log import Tail

_SECONDS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)

_NOT_STAGES = ("batch_id", "records", "groups", "path")

_OUTCOMES = ("applied", "duplicate", "ignored", "rejected", "filtered")

_OWN_SOURCES = (OWN_EVENTS, "_metadata")
"""Sources of events that the job makes itself, at its own clock's times."""

_MOST_ERROR_KINDS = 100
"""Key types and versions come from bytes that may be anything: further pairs go under "other"."""

_TOLD = (re.compile(r"key type (?:is )?(-?\d+)"), re.compile(r"value version (?:is )?(-?\d+)"))
_HELD = (
    re.compile(rb'"key_hex"\s*:\s*"([0-9A-Fa-f]{4})'),
    re.compile(rb'"value_hex"\s*:\s*"([0-9A-Fa-f]{4})'),
)
"""How a reason names key type and value version, and where a captured record holds them."""


class JobMetrics:
    """Counters and gauges of all deployments of the process, by their cluster."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Register them."""
        cluster = ["cluster"]
        self._batches = Counter(
            "counterpoise_batches",
            "Batches by path: driver, executors, or replay of one that the log held already",
            [*cluster, "path"],
            registry=registry,
        )
        self._stages = Histogram(
            "counterpoise_batch_stage_seconds",
            "Seconds of each stage of a batch; stage total is the batch",
            [*cluster, "stage"],
            buckets=_SECONDS,
            registry=registry,
        )
        self._records = Counter(
            "counterpoise_records", "Records by outcome", [*cluster, "outcome"], registry=registry
        )
        self._rows = Counter(
            "counterpoise_log_rows", "Rows of the log by kind", [*cluster, "kind"], registry=registry
        )
        self._commits = Counter(
            "counterpoise_commits", "Commits of each table", [*cluster, "table"], registry=registry
        )
        self._tail_rows = Gauge(
            "counterpoise_tail_rows", "Rows of the log behind the snapshots", cluster, registry=registry
        )
        self._state_bytes = Gauge(
            "counterpoise_state_bytes",
            "Memory that the driver holds of the tail and of groups' states",
            cluster,
            registry=registry,
        )
        self._last_batch = Gauge(
            "counterpoise_last_batch_timestamp_seconds", "When a batch last ended", cluster, registry=registry
        )
        self._decode_errors = Counter(
            "kafka_group_monitor_decode_errors",
            "Records of __consumer_offsets that could not be read, or of a type or version not known",
            [*cluster, "key_type", "version"],
            registry=registry,
        )
        self._last_record = Gauge(
            "kafka_group_monitor_last_record_timestamp_seconds",
            "Event time of the newest record",
            cluster,
            registry=registry,
        )
        self._error_kinds: set[tuple[str, str]] = set()
        self._versions: dict[tuple[str, str], int] = {}
        self._newest_s: dict[str, float] = {}

    def note_tables(self, cluster: str, tables: Tables) -> None:
        """Count the commits of each table since this was last asked; the first time none."""
        for name in SCHEMA_BY_TABLE:
            version = tables.delta_table(name).version()
            commits = version - self._versions.get((cluster, name), version)
            self._versions[cluster, name] = version
            # A table that was put back to an older copy has fewer.
            self._commits.labels(cluster, name).inc(max(commits, 0))

    def note_batch(
        self,
        cluster: str,
        stages: Mapping[str, Any],
        rows: pa.Table | None,
        tail: Tail,
        offsets_sources: Collection[str],
    ) -> None:
        """Count one batch that has ended.

        Args:
            cluster: the deployment's.
            stages: as Job.timings has it.
            rows: the batch's rows of the log; None when the log held it already.
            tail: after the batch.
            offsets_sources: the sources of records of `__consumer_offsets`.
        """
        self._batches.labels(cluster, stages.get("path", "replay")).inc()
        for stage, seconds in stages.items():
            if stage not in _NOT_STAGES:
                self._stages.labels(cluster, stage).observe(seconds)
        self._tail_rows.labels(cluster).set(tail.row_count)
        self._state_bytes.labels(cluster).set(tail.byte_count)
        self._last_batch.labels(cluster).set(time.time())
        if rows is None:
            return
        for count in pc.value_counts(rows["kind"]).to_pylist():
            self._rows.labels(cluster, count["values"]).inc(count["counts"])
        (batch,) = rows.filter(pc.equal(rows["kind"], "batch"))["batch"].to_pylist()
        for outcome in _OUTCOMES:
            self._records.labels(cluster, outcome).inc(batch[outcome] or 0)
        self._look_at_events(cluster, rows, offsets_sources)

    def _look_at_events(self, cluster: str, rows: pa.Table, offsets_sources: Collection[str]) -> None:
        """Find the newest event of each cluster, and what could not be read."""
        events = rows["events"].combine_chunks()
        names = [field.name for field in events.type.value_type]
        fields = dict(zip(names, pc.list_flatten(events).flatten(), strict=True))
        told = pa.table(
            {name: fields[name] for name in ("cluster", "source", "type", "outcome", "event_time")}
        )
        is_own = pc.is_in(told["source"], pa.array(_OWN_SOURCES))
        newest = told.filter(pc.invert(is_own)).group_by("cluster").aggregate([("event_time", "max")])
        for row in newest.to_pylist():
            if row["cluster"] is not None and row["event_time_max"] is not None:
                newest_s = max(row["event_time_max"].timestamp(), self._newest_s.get(row["cluster"], 0.0))
                self._newest_s[row["cluster"]] = newest_s
                self._last_record.labels(row["cluster"]).set(newest_s)
        from_offsets = pc.is_in(told["source"], pa.array(sorted(offsets_sources), pa.string()))
        is_rejected = pc.and_(pc.equal(told["outcome"], "rejected"), from_offsets)
        is_unread = pc.or_kleene(is_rejected, pc.equal(told["type"], UNKNOWN_RECORD))
        places = pc.indices_nonzero(is_unread)
        if len(places):
            for reason, raw in zip(
                fields["reason"].take(places).to_pylist(), fields["raw"].take(places).to_pylist(), strict=True
            ):
                kind = self._bounded(unread_kind(reason or "", raw or b""))
                self._decode_errors.labels(cluster, *kind).inc()

    def _bounded(self, kind: tuple[str, str]) -> tuple[str, str]:
        if len(self._error_kinds) >= _MOST_ERROR_KINDS and kind not in self._error_kinds:
            return "other", "other"
        self._error_kinds.add(kind)
        return kind


def unread_kind(reason: str, raw: bytes) -> tuple[str, str]:
    """Say of what key type and value version an unread record is, each "" where that is not known.

    Args:
        reason: why it was rejected or ignored.
        raw: the record, as a line that a capture wrote; other bytes tell nothing.

    >>> unread_kind("record cannot be decoded (key type 2, value version 3: ...)", b"")
    ('2', '3')
    >>> unread_kind("a record of a type that is not known here", b'{"key_hex":"0028ff","value_hex":"0001"}')
    ('40', '1')
    """
    key_type, version = (
        told[1] if (told := in_reason.search(reason)) else str(int(held[1], 16)) if held else ""
        for in_reason, held in zip(_TOLD, (pattern.search(raw) for pattern in _HELD), strict=True)
    )
    return key_type, version
