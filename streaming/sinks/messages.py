"""Deltas and generations as messages for the world: key, headers, JSON (docs/schemas).

A message is a function of the log's row alone, its id too, so whoever sends a batch
twice sends the same messages twice.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import mmh3
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from streaming.tables.schemas import EXPECTED_OWNERS

DELTA_SCHEMA = "assignment_delta.v1"
GENERATION_SCHEMA = "generation.v1"

SCHEMA_HEADER = "counterpoise-schema"
DELTA_HEADER = "counterpoise-delta-id"
GENERATION_HEADER = "counterpoise-generation-key"

SENT_KINDS = ("rebalance", "held", "baseline", "gap", "deleted")

_SAME_IN_GENERATION = (
    "cluster", "group_id", "incarnation", "version", "generation_id", "kind", "group_kind", "protocol_type",
    "protocol", "rebalance_protocol", "leader_id", "group_state", "phase", "is_final", "reason", "event_time",
    "expected_status", "expected_note",
)  # fmt: skip
_SAME_IN_DELTA = ("cluster", "group_id", "incarnation", "version", "generation_id", "event_time")
_COLUMNS = (*_SAME_IN_GENERATION, "members", "assignment", "expected", "deltas")

_RFC3339 = "%Y-%m-%dT%H:%M:%SZ"


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message; `id_header` is the header that holds its id."""

    key: bytes
    value: bytes
    schema: str
    id_header: str
    id: str

    @property
    def headers(self) -> list[tuple[str, str | bytes | None]]:
        """Give the headers as a producer takes them."""
        return [(SCHEMA_HEADER, self.schema.encode()), (self.id_header, self.id.encode())]


def messages_of(rows: pa.Table, what: Collection[str]) -> Iterator[Message]:
    """Make the messages of rows of the log, in the log's order.

    A version's deltas come before its generation, which thereby says that they are all there.

    Args:
        rows: rows of `generations`, of any kind.
        what: "deltas", "generations" or both.
    """
    for row in _versions(rows):
        deltas = row.pop("deltas") or ()
        if "deltas" in what:
            yield from _delta_messages(row, deltas)
        if "generations" in what:
            yield _generation_message(row, len(deltas))


def generation_key(cluster: str, group_id: str, incarnation: int, version: int) -> str:
    """Give the id of a version: 128-bit mmh3, hexadecimal."""
    return mmh3.hash_bytes(f"{cluster}\0{group_id}\0{incarnation}\0{version}").hex()


def _versions(rows: pa.Table) -> Iterator[dict[str, Any]]:
    """Give the rows that are versions, with times as texts and owners without since when."""
    versions = rows.filter(pc.is_in(rows["kind"], pa.array(SENT_KINDS))).select(list(_COLUMNS))
    times = pc.strftime(versions["event_time"].cast(pa.timestamp("ms", tz="UTC")), format=_RFC3339)
    columns = {
        **{name: versions[name] for name in _COLUMNS},
        "event_time": times,
        "assignment": versions["assignment"].cast(EXPECTED_OWNERS),
    }
    for batch in pa.table(columns).to_batches(max_chunksize=1000):
        yield from batch.to_pylist()


def _delta_messages(row: Mapping[str, Any], deltas: Sequence[Mapping[str, Any]]) -> Iterator[Message]:
    shared = {name: row[name] for name in _SAME_IN_DELTA}
    for number, delta in enumerate(deltas, start=1):
        body = {**shared, "number": number, "count": len(deltas), **delta}
        yield Message(
            key=row["group_id"].encode(),
            value=orjson.dumps(body),
            schema=DELTA_SCHEMA,
            id_header=DELTA_HEADER,
            id=delta["delta_id"],
        )


def _generation_message(row: Mapping[str, Any], delta_count: int) -> Message:
    key = generation_key(row["cluster"], row["group_id"], row["incarnation"], row["version"])
    expected = row["expected"]
    body = {
        "generation_key": key,
        **{name: row[name] for name in _SAME_IN_GENERATION},
        "deltas": delta_count,
        "members": row["members"] or [],
        "assignment": _by_member(row["assignment"] or ()),
        "expected": None if expected is None else _by_member(expected),
    }
    return Message(
        key=row["group_id"].encode(),
        value=orjson.dumps(body),
        schema=GENERATION_SCHEMA,
        id_header=GENERATION_HEADER,
        id=key,
    )


def _by_member(owners: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, list[int]]]:
    """Give member_id -> topic -> partitions; of a Connect group worker -> connector -> tasks."""
    by_member: dict[str, dict[str, list[int]]] = {}
    for owned in owners:
        by_member.setdefault(owned["member_id"], {})[owned["topic"]] = owned["partitions"]
    return by_member
