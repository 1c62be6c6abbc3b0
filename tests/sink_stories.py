"""Logs for tests of sinks, made without Spark: played events, appended batch by batch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from streaming.batches.batch import rows_to_log
from streaming.tables.delta import LOG, Tables
from streaming.tables.log import LOG_APP
from tests.playing import Player, event, join, tick, topic

if TYPE_CHECKING:
    import pyarrow as pa

_BATCH_ROW = {"kind": "batch", "batch": {"source_end": '{"adopted_after": 0, "sources": {}}'}}


def story() -> list[list[dict[str, Any]]]:
    """Tell of two groups, a batch each: a cooperative move, an eager one, one that ends, one silent batch."""
    coop = {"protocols": ["cooperative-sticky"], "client_id": "till", "session_timeout_ms": 5000}
    return [
        [topic("orders", 4), join("a", 1, "orders", **coop)],
        [join("b", 2, "orders", **coop), join("x", 2, "orders", group_id="h", protocols=["range"])],
        [event("partitions_revoked", 3, "a", generation_id=2)],
        [event("member_heartbeat", 4, "a"), event("member_heartbeat", 4, "b")],
        [topic("orders", 6, 5), event("partitions_revoked", 5, "x", "h", generation_id=1)],
        [tick(60)],
        [event("group_deleted", 61, group_id="h")],
    ]


def log_batches(batches: Iterable[Iterable[Mapping[str, Any]]]) -> list[pa.Table]:
    """Play batches of events and give each one's rows of the log."""
    player = Player()
    return [
        rows_to_log([*player.play(list(events)), _BATCH_ROW], number, 0)
        for number, events in enumerate(batches, start=1)
    ]


def write_log(tables: Tables, batches: Iterable[pa.Table]) -> None:
    """Commit batches to the log as the job does."""
    for number, rows in enumerate(batches, start=tables.transaction_version(LOG, LOG_APP) + 1):
        tables.append(LOG, rows, app_id=LOG_APP, version=number)
