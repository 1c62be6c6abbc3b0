"""The values that pass between the stations of the stream.

Nothing here knows Spark or Delta: the stations that decide (computed groups,
observed groups, deltas, alerts) are functions over these values, and the
stations that read and write turn them into rows at the edge.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from assignors import Assignor

Owners = dict[str, dict[str, list[int]]]
"""member_id -> topic -> partition numbers. In a Connect group: worker ->
connector -> task numbers, where -1 stands for the connector itself, as on the wire."""

VersionKind = Literal["rebalance", "state", "held", "baseline", "gap", "deleted"]
Outcome = Literal["applied", "duplicate", "ignored", "rejected", "kept"]
"""Kept is an event that waits with its group until that can be computed again (set_aside.py)."""

WEIGHTED = "optimal-weighted"
"""The assignor that goes by the partitions' loads: the only one that a `partition_load` concerns."""


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """Where a record stood in its source.

    `path` is a file's name below the source's directory, a Kafka topic or a
    Delta table's data file; `partition` is -1 where there are none; `offset` is
    a Kafka offset or a 1-based line or row number. Within one `source` positions
    order by (path, partition, offset).
    """

    source: str
    path: str
    partition: int
    offset: int

    @property
    def stream(self) -> str:
        """Name the ordered stream below the source: a file, or a topic's partition as Kafka writes it."""
        return self.path if self.partition < 0 else f"{self.path}-{self.partition}"

    @property
    def ordinal(self) -> int:
        """Say how far the stream is read with this record: the line, or the offset behind it."""
        return self.offset if self.partition < 0 else self.offset + 1

    def follows_stream_of(self, other: Position) -> bool:
        """Say whether the two lie in one ordered stream, so that comparing them means something."""
        return (
            self.source == other.source
            and self.partition == other.partition
            and (self.partition < 0 or self.path == other.path)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """One accepted event, as the stations after parsing see it.

    `body` holds the event's own fields without the common ones. `type` is a
    type of events.py, or "offsets_record" for a decoded record of
    `__consumer_offsets` (then `body` is the decoded record: key_type, key,
    value_version, value). `event_time_ms` is epoch milliseconds. `group_id` is
    None for topic_changed, partition_load and time_advanced; `topic` only set for the first two.
    `stretch` names the part of its Kafka partition in which no offset is missing around the
    record (stretches.py), None where that is not known.
    """

    type: str
    cluster: str
    event_time_ms: int
    event_id: str
    position: Position
    body: Mapping[str, Any]
    raw: bytes
    group_id: str | None = None
    topic: str | None = None
    stretch: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EventOutcome:
    """What became of one event: applied, duplicate, ignored or kept, and why."""

    event: Input
    outcome: Outcome
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicState:
    """A topic of one cluster as the log knows it.

    `partition_count` is 0 for a deleted topic. `history` holds earlier counts,
    oldest first, as (event_time_ms when that count *ended*, count), at most eight.
    `recent_ids` are the event ids of the dedupe window, event_id -> event_time_ms.
    `loads` are what its partitions weigh, from 0, told at `loads_ms`; empty where nobody has told.
    """

    topic: str
    partition_count: int
    topic_id: str | None = None
    racks: tuple[tuple[str | None, ...], ...] = ()
    event_time_ms: int = 0
    history: tuple[tuple[int, int], ...] = ()
    recent_ids: Mapping[str, int] = field(default_factory=dict)
    loads: tuple[float, ...] = ()
    loads_ms: int | None = None


class TopicView:
    """The topics of one cluster as one group sees them, at its place in the stream.

    A view shares its base with every other group and lays the changes that this
    group has met over it, so that advancing one group never changes another's.
    """

    def __init__(self, base: Mapping[str, TopicState]) -> None:
        """Look at `base` (topic -> state), which is never changed."""
        self._base = base
        self._changed: dict[str, TopicState] = {}

    def apply(self, state: TopicState) -> None:
        """Let the topic have a new state from here on."""
        self._changed[state.topic] = state

    def get(self, topic: str) -> TopicState | None:
        """Give the topic's state, None when it was never seen."""
        return self._changed.get(topic) or self._base.get(topic)

    def partition_count(self, topic: str) -> int:
        """Give the number of partitions, 0 for a topic unknown or deleted."""
        state = self.get(topic)
        return state.partition_count if state else 0

    def racks(self, topic: str, count: int) -> tuple[tuple[str | None, ...], ...]:
        """Give the racks of each of the first `count` partitions, () where not all are known."""
        state = self.get(topic)
        return state.racks[:count] if state is not None and len(state.racks) >= count else ()

    def names(self) -> list[str]:
        """List the topics that exist (one partition or more), sorted."""
        names = {*self._base, *self._changed}
        return sorted(name for name in names if self.partition_count(name) > 0)

    def name_of_id(self, topic_id: str) -> str | None:
        """Find the topic with this id (base64 as Kafka prints it), deleted ones included."""
        for states in (self._changed, self._base):
            for state in states.values():
                if state.topic_id == topic_id:
                    return state.topic
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberInfo:
    """A member as the tables show it."""

    member_id: str
    group_instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rack_id: str | None = None
    topics: tuple[str, ...] = ()
    topics_pattern: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """One new version of a group, before deltas, numbers and alerts are added.

    `subscribed` maps each member to the topics it may own (patterns resolved),
    empty for Connect. `topic_counts` are the partition counts used for every
    topic somebody subscribes to or owns (Connect groups: connector -> number of tasks, as
    far as known). `expected` is what the assignor should
    have given, None where that is not known; for a computed group it is the
    target that the assignment moves towards.

    `expected_status` is one of equal, different, stale_metadata, other_algorithm,
    in_transition, unknown, not_applicable; `expected_note` says in words why, and names the
    likely cause of a difference. `is_final` is False in the middle generation of
    a cooperative move and while an eager group has revoked but not yet assigned.
    `phase` is 1 for the generation that revokes, 2 for the one that gives on, 0
    where there is only one. `reason` is what caused the version, e.g.
    "member_joined C2". `cause` are the events that this version, and nothing else, applied.
    `instance_moves` maps a replaced static member's old member_id to its new one.
    `basis` is the assignment before a move began, so that the second generation of a
    cooperative or eager move counts what moved across both; None: the previous version's.
    `is_interrupted` says that the assignor's inputs changed within a cooperative move: it was asked again
    by what was owned then, and knew no more of `basis`.
    `assignor` is the one that a computed group goes by, with what it declares; None where
    the protocol's name must tell.
    `weights` are what the partitions weigh in a group that goes by it, topic -> one for each, absent
    for 1 each; None where the group does not.
    `refused` is the version that a critical check refused, on the row that holds it back.
    `problem` names the alert that this version raises at once and says why: a held
    generation, no common assignor, an assignor that failed.
    """

    kind: VersionKind
    version: int
    generation_id: int
    incarnation: int
    group_kind: Literal["computed", "observed"]
    protocol_type: str
    protocol: str | None
    rebalance_protocol: str | None
    leader_id: str | None
    group_state: str
    phase: int
    is_final: bool
    reason: str
    event_time_ms: int
    members: tuple[MemberInfo, ...]
    assignment: Owners
    subscribed: Mapping[str, frozenset[str]]
    topic_counts: Mapping[str, int]
    expected: Owners | None = None
    expected_status: str = "not_applicable"
    expected_note: str | None = None
    cause: tuple[EventOutcome, ...] = ()
    instance_moves: Mapping[str, str] = field(default_factory=dict)
    basis: Owners | None = None
    is_interrupted: bool = False
    problem: tuple[str, str] | None = None
    refused: Version | None = None
    assignor: Assignor | None = None
    weights: Mapping[str, Sequence[float]] | None = None


def owners_copy(owners: Owners) -> Owners:
    """Copy deeply enough that changing the copy leaves the original alone."""
    return {m: {t: list(ps) for t, ps in topics.items()} for m, topics in owners.items()}


def owned_pairs(owners: Mapping[str, Mapping[str, Iterable[int]]]) -> Iterable[tuple[str, str, int]]:
    """Walk an assignment: (member_id, topic, partition), in its own order."""
    for member_id, topics in owners.items():
        for topic, partitions in topics.items():
            for partition in partitions:
                yield member_id, topic, partition
