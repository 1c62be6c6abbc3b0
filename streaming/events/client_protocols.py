"""What clients put into a group's records: subscriptions, assignments and the assignors' own bytes.

To the broker these bytes are opaque; what they mean follows from the group's
protocol type ("consumer" or "connect"). Kafka's rule for versions is kept: a newer
version is read as the newest known here and the rest is ignored.

Source: ConsumerProtocol, StickyAssignor, CooperativeStickyAssignor; ConnectProtocol
and IncrementalCooperativeConnectProtocol. Left out: the streams protocol.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Literal

from streaming.events.offsets_wire import Field, Reader, WireError, read_int16, struct_reader

UserDataLayout = Literal["sticky-v1", "sticky-v0", "kafka-python", "generation"]

_NEWEST_CONSUMER_VERSION = 3
_NEWEST_CONNECT_VERSION = 2
_GENERATION_BYTES = 4
_NO_GENERATION = -1

_TOPIC_PARTITIONS = (Field(name="topic", kind="string"), Field(name="partitions", kind="int32", many=True))
_SUBSCRIPTION = (
    Field(name="topics", kind="string", many=True),
    Field(name="userData", kind="bytes", nullable=True),
    Field(name="ownedPartitions", many=True, since=1, fields=_TOPIC_PARTITIONS),
    Field(name="generationId", kind="int32", since=2),
    Field(name="rackId", kind="string", nullable=True, since=3),
)
_ASSIGNMENT = (
    Field(name="assignedPartitions", many=True, fields=_TOPIC_PARTITIONS),
    Field(name="userData", kind="bytes", nullable=True),
)
_STICKY = Field(name="previousAssignment", many=True, fields=_TOPIC_PARTITIONS)
_STICKY_V0 = (_STICKY,)
_STICKY_V1 = (_STICKY, Field(name="generation", kind="int32"))
_GENERATION = (Field(name="generation", kind="int32"),)

_CONNECTOR_TASKS = (
    Field(name="connector", kind="string"),
    Field(name="tasks", kind="int32", many=True, nullable=True),
)
_CONNECT_METADATA = (
    Field(name="url", kind="string"),
    Field(name="configOffset", kind="int64"),
    Field(name="allocation", kind="bytes", nullable=True, since=1),
)
_CONNECT_ASSIGNMENT = (
    Field(name="error", kind="int16"),
    Field(name="leader", kind="string", nullable=True),
    Field(name="leaderUrl", kind="string", nullable=True),
    Field(name="configOffset", kind="int64"),
    Field(name="assignment", many=True, nullable=True, fields=_CONNECTOR_TASKS),
    Field(name="revoked", many=True, nullable=True, since=1, fields=_CONNECTOR_TASKS),
    Field(name="delay", kind="int32", since=1),
)

TopicPartitionLists = tuple[tuple[str, tuple[int, ...]], ...]
"""(topic, its partition numbers) as on the wire: order and repeated topics are kept,
because Kafka's assignors depend on both. In Connect: (connector, its tasks), where
task -1 is the connector itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UserData:
    """What an assignor put into `userData` to remember its last assignment.

    `owned_partitions` is None in the layout "generation", which holds none.
    `generation_id` is -1 where the layout (or its writer) gives none.
    """

    layout: UserDataLayout
    owned_partitions: TopicPartitionLists | None
    generation_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSubscription:
    """What one consumer asked for when it joined; `topics` keeps order and duplicates.

    Fields that `version` does not have hold Kafka's defaults: (), -1, None.
    """

    version: int
    topics: tuple[str, ...]
    user_data: bytes | None
    owned_partitions: TopicPartitionLists = ()
    generation_id: int = _NO_GENERATION
    rack_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerAssignment:
    """What one consumer was given by the leader of its group."""

    version: int
    partitions: TopicPartitionLists
    user_data: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectAssignment:
    """What one worker was given: newly, under the incremental protocols (version 1 and 2).

    There the running set is the worker's allocation less `revoked` plus `assigned`;
    under the eager protocol (version 0) `assigned` is everything.
    `delay_ms` is KIP-415's wait for a lost worker.
    """

    version: int
    error: int
    leader_id: str | None
    leader_url: str | None
    config_offset: int
    assigned: TopicPartitionLists
    revoked: TopicPartitionLists = ()
    delay_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectMetadata:
    """What one worker said when it joined; `allocation` is what it runs, None when it says nothing."""

    version: int
    url: str
    config_offset: int
    allocation: ConnectAssignment | None = None


_LONGEST_KEPT = 512
"""Bytes; with the count below, what is kept of clients' bytes stays below a few megabytes."""

_KEPT = 2_048


@cache
def _reader(fields: tuple[Field, ...], version: int) -> Reader:
    return struct_reader(fields, version, flexible=False, raw_bytes=True)


def _read_versioned(
    raw: bytes, fields: tuple[Field, ...], newest: int, *, may_end_early: bool = False
) -> tuple[int, dict[str, Any]]:
    """Read an int16 version and the fields of that version; bytes behind them are ignored."""
    if len(raw) < 2:
        raise WireError("the bytes end inside it", 0, "version")
    version, at = read_int16(raw, 0)
    if version < 0:
        raise WireError(f"it is {version}; it must be 0 or more", 0, "version")
    known = min(version, newest)
    if not may_end_early:
        return version, _reader(fields, known)(raw, at)[0]
    values: dict[str, Any] = {}
    for field in fields:
        if field.since > known or at == len(raw):
            continue
        read, at = _reader((field,), known)(raw, at)
        values.update(read)
    return version, values


def _lists(
    entries: list[dict[str, Any]] | None, key: str = "topic", items: str = "partitions"
) -> TopicPartitionLists:
    return tuple((entry[key], tuple(entry[items] or ())) for entry in entries or ())


def decode_subscription(raw: bytes) -> ConsumerSubscription:
    """Decode a consumer's subscription. The members of a group mostly send the same: short ones are kept.

    Raises:
        WireError: the bytes do not hold one.

    Source: ConsumerProtocol.deserializeSubscription.

    >>> decode_subscription(bytes.fromhex("0000 00000001 0002 7430 ffffffff")).topics
    ('t0',)
    """
    return _subscription(raw) if len(raw) > _LONGEST_KEPT else _kept_subscription(raw)


def _subscription(raw: bytes) -> ConsumerSubscription:
    version, values = _read_versioned(raw, _SUBSCRIPTION, _NEWEST_CONSUMER_VERSION)
    return ConsumerSubscription(
        version=version,
        topics=tuple(values["topics"]),
        user_data=values["userData"],
        owned_partitions=_lists(values.get("ownedPartitions")),
        generation_id=values.get("generationId", _NO_GENERATION),
        rack_id=values.get("rackId"),
    )


def decode_consumer_assignment(raw: bytes) -> ConsumerAssignment | None:
    """Decode what a consumer was given; no bytes at all mean that it was given nothing yet.

    Raises:
        WireError: there are bytes and they do not hold an assignment.

    Source: ConsumerProtocol.deserializeAssignment.
    """
    if not raw:
        return None
    return _assignment(raw) if len(raw) > _LONGEST_KEPT else _kept_assignment(raw)


def _assignment(raw: bytes) -> ConsumerAssignment:
    version, values = _read_versioned(raw, _ASSIGNMENT, _NEWEST_CONSUMER_VERSION)
    return ConsumerAssignment(
        version=version,
        partitions=_lists(values["assignedPartitions"]),
        user_data=values["userData"],
    )


_kept_subscription = lru_cache(_KEPT)(_subscription)
_kept_assignment = lru_cache(_KEPT)(_assignment)


def decode_connect_assignment(raw: bytes) -> ConnectAssignment | None:
    """Decode what a worker was given; no bytes at all mean that it was given nothing yet.

    Trailing fields that are missing hold their defaults, as in Kafka's own reader.

    Raises:
        WireError: there are bytes and they do not hold an assignment.

    Source: ConnectProtocol, IncrementalCooperativeConnectProtocol.deserializeAssignment.
    """
    if not raw:
        return None
    version, values = _read_versioned(raw, _CONNECT_ASSIGNMENT, _NEWEST_CONNECT_VERSION, may_end_early=True)
    return ConnectAssignment(
        version=version,
        error=values.get("error", 0),
        leader_id=values.get("leader"),
        leader_url=values.get("leaderUrl"),
        config_offset=values.get("configOffset", -1),
        assigned=_lists(values.get("assignment"), "connector", "tasks"),
        revoked=_lists(values.get("revoked"), "connector", "tasks"),
        delay_ms=values.get("delay", 0),
    )


def decode_connect_metadata(raw: bytes) -> ConnectMetadata:
    """Decode what a worker said of itself when it joined.

    Raises:
        WireError: the bytes do not hold it.

    Source: ConnectProtocol, IncrementalCooperativeConnectProtocol.deserializeMetadata.
    """
    version, values = _read_versioned(raw, _CONNECT_METADATA, _NEWEST_CONNECT_VERSION, may_end_early=True)
    allocation = values.get("allocation")
    try:
        running = decode_connect_assignment(allocation) if allocation else None
    except WireError as error:
        raise error.inside("allocation") from None
    return ConnectMetadata(
        version=version,
        url=values.get("url", ""),
        config_offset=values.get("configOffset", -1),
        allocation=running,
    )


def decode_user_data(protocol: str, raw: bytes | None) -> UserData | None:
    """Decode an assignor's own bytes in whichever layout they are, None when in none.

    They are advice to the next leader: nobody loses a member over them, so nothing
    is raised. The layout does not follow from the protocol's name, because clients
    differ: librdkafka sends the sticky layout under "cooperative-sticky", and
    kafka-python puts a version before it. Layouts are tried in a fixed order, each
    must use up all bytes: for "cooperative-sticky" four bytes are a generation;
    then sticky version 1, version 0, and kafka-python's.

    Kafka's Java assignors read *their* layout only, so whoever computes what a Java
    leader saw must look at the bytes, not at this.

    Source: StickyAssignor, CooperativeStickyAssignor; librdkafka and kafka-python as seen.

    >>> decode_user_data("cooperative-sticky", bytes([0, 0, 0, 7])).generation_id
    7
    """
    if not raw:
        return None
    if protocol == "cooperative-sticky" and len(raw) == _GENERATION_BYTES:
        values, _ = _reader(_GENERATION, 0)(raw, 0)
        return UserData(layout="generation", owned_partitions=None, generation_id=values["generation"])
    if protocol not in ("sticky", "cooperative-sticky"):
        return None
    candidates: tuple[tuple[UserDataLayout, tuple[Field, ...], int], ...] = (
        ("sticky-v1", _STICKY_V1, 0),
        ("sticky-v0", _STICKY_V0, 0),
        ("kafka-python", _STICKY_V1, 2),
    )
    for layout, fields, start in candidates:
        try:
            values, end = _reader(fields, 0)(raw, start)
        except WireError:
            continue
        if end == len(raw):
            return UserData(
                layout=layout,
                owned_partitions=_lists(values["previousAssignment"]),
                generation_id=values.get("generation", _NO_GENERATION),
            )
    return None
