"""What a version of an observed group shows, and how it differs from the one before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Self

from assignors import REGISTRY
from streaming.groups.observed.expected import JoinedMember, counts_in_force
from streaming.model import EventOutcome, MemberInfo, Owners, Version, owned_pairs

if TYPE_CHECKING:
    from streaming.groups.observed.generations import Generation
    from streaming.model import TopicView, VersionKind

_NAMED_AT_MOST = 5
_AS_ASSIGNED = "as assigned"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What the last version showed: a Version less its place in the history.

    `subscribed` maps each member to the topics it may own, patterns resolved.
    """

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
    subscribed: Mapping[str, Sequence[str]]
    expected: Owners | None
    expected_status: str
    expected_note: str | None

    @classmethod
    def of_nobody(
        cls, group_state: str, *, event_time_ms: int, reason: str, protocol_type: str = "consumer"
    ) -> Self:
        """Show a group that is no more, or not yet."""
        return cls(
            protocol_type=protocol_type,
            protocol=None,
            rebalance_protocol=None,
            leader_id=None,
            group_state=group_state,
            phase=0,
            is_final=True,
            reason=reason,
            event_time_ms=event_time_ms,
            members=(),
            assignment={},
            subscribed={},
            expected=None,
            expected_status="not_applicable",
            expected_note=None,
        )

    @classmethod
    def from_json(cls, state: Mapping[str, Any]) -> Self:
        """Take up what `to_json` gave."""
        members = tuple(MemberInfo(**{**m, "topics": tuple(m["topics"])}) for m in state["members"])
        subscribed = {m.member_id: list(m.topics) for m in members} | state["subscribed"]
        if state["protocol_type"] == "connect":
            subscribed = {}
        expected = state["assignment"] if state["expected"] == _AS_ASSIGNED else state["expected"]
        return cls(**{**state, "members": members, "subscribed": subscribed, "expected": expected})

    def to_json(self) -> dict[str, Any]:
        """Give everything as orjson writes it, members as they are, what follows from the rest left out."""
        # asdict would copy every value, a third of the time that a version takes.
        state: dict[str, Any] = {name: getattr(self, name) for name in _SHOWN_FIELDS}
        topics = {m.member_id: list(m.topics) for m in self.members}
        state["subscribed"] = {m: list(ts) for m, ts in self.subscribed.items() if list(ts) != topics.get(m)}
        if self.expected is not None and list(self.expected.items()) == list(self.assignment.items()):
            state["expected"] = _AS_ASSIGNED
        return state

    def as_version(
        self,
        kind: VersionKind,
        *,
        version: int,
        generation_id: int,
        incarnation: int,
        topic_counts: Mapping[str, int],
        cause: tuple[EventOutcome, ...],
        instance_moves: Mapping[str, str],
        basis: Owners | None,
    ) -> Version:
        """Give this its place in the group's history."""
        return Version(
            kind=kind,
            version=version,
            generation_id=generation_id,
            incarnation=incarnation,
            group_kind="observed",
            protocol_type=self.protocol_type,
            protocol=self.protocol,
            rebalance_protocol=self.rebalance_protocol,
            leader_id=self.leader_id,
            group_state=self.group_state,
            phase=self.phase,
            is_final=self.is_final,
            reason=self.reason,
            event_time_ms=self.event_time_ms,
            members=self.members,
            assignment=self.assignment,
            subscribed={m: frozenset(ts) for m, ts in self.subscribed.items()},
            topic_counts=dict(topic_counts),
            expected=self.expected,
            expected_status=self.expected_status,
            expected_note=self.expected_note,
            cause=cause,
            instance_moves=instance_moves,
            basis=basis,
        )

    def is_same_as(self, seen: Generation) -> bool:
        """Say whether a generation shows nothing that this did not."""
        return (
            (self.protocol_type, self.protocol, self.leader_id, self.group_state)
            == (seen.protocol_type, seen.protocol, seen.leader_id, seen.group_state)
            and self.members == seen.members
            and self.assignment == seen.owners
        )

    def topics(self) -> list[str]:
        """List the topics that somebody subscribes to or owns, sorted."""
        return sorted(_topics_of(self.assignment, self.subscribed))


_SHOWN_FIELDS = tuple(field.name for field in fields(Shown))


def _topics_of(owners: Owners, subscribed: Mapping[str, Iterable[str]]) -> set[str]:
    owned = (topic for topics in owners.values() for topic, partitions in topics.items() if partitions)
    return set(owned).union(*subscribed.values())


def topic_counts(
    owners: Owners,
    subscribed: Mapping[str, Sequence[str]],
    topics: TopicView,
    *,
    event_time_ms: int,
    given_by_broker: Sequence[Owners] = (),
) -> dict[str, int]:
    """Give the partition count of every topic concerned; one never heard of is absent.

    Counts are those in force at the time, except where the coordinator itself gave
    out a partition that we have not heard of.
    """
    counts = counts_in_force(topics, sorted(_topics_of(owners, subscribed)), event_time_ms)
    for known in given_by_broker:
        for _, topic, partition in owned_pairs(known):
            if topic in counts:
                counts[topic] = max(counts[topic], partition + 1)
    return counts


def find_instance_moves(before: Iterable[MemberInfo], after: Iterable[MemberInfo]) -> dict[str, str]:
    """Find static members that came back under a new member_id: old -> new."""
    old = {m.group_instance_id: m.member_id for m in before if m.group_instance_id is not None}
    return {
        old[m.group_instance_id]: m.member_id
        for m in after
        if m.group_instance_id in old and old[m.group_instance_id] != m.member_id
    }


def what_changed(
    before: Sequence[MemberInfo], after: Sequence[MemberInfo], instance_moves: Mapping[str, str]
) -> str:
    """Say in words how the members differ before and after, "" when they do not."""
    old, new = {m.member_id: m for m in before}, {m.member_id: m for m in after}
    arrived = set(instance_moves.values())
    found = {
        "static_member_replaced": [m.group_instance_id or "" for m in after if m.member_id in arrived],
        "member_joined": [i for i in new if i not in old and i not in arrived],
        "member_left": [i for i in old if i not in new and i not in instance_moves],
        "subscription_changed": [i for i in new if i in old and _asks(new[i]) != _asks(old[i])],
    }
    return "; ".join(f"{what} {name_some(who)}" for what, who in found.items() if who)


def _asks(member: MemberInfo) -> tuple[frozenset[str], str | None]:
    return frozenset(member.topics), member.topics_pattern


def withholds_claims(joined: Sequence[JoinedMember], counts: Mapping[str, int]) -> bool:
    """Say whether partitions that a member claims were given to nobody.

    That is the middle generation of a cooperative move: they are given on in the
    next one, when their owner has let go of them.
    """
    subscriptions = [m.subscription for m in joined if m.subscription]
    claimed = {pair for subscription in subscriptions for pair in subscription.owned_partitions}
    if not claimed:
        return False
    wanted = {topic for subscription in subscriptions for topic in subscription.topics}
    given = {(topic, partition) for m in joined for topic, ps in m.assigned.items() for partition in ps}
    return any(
        topic in wanted and partition < counts.get(topic, partition + 1)
        for topic, partition in claimed - given
    )


def rebalance_protocol_of(seen: Generation) -> str | None:
    """Name the rebalance protocol: EAGER, COOPERATIVE, or Connect's compatible and sessioned."""
    if seen.protocol is None:
        return None
    if seen.protocol_type == "connect":
        return "EAGER" if seen.protocol == "default" else seen.protocol
    assignor = REGISTRY.get(seen.protocol)
    if assignor is not None:
        return assignor.rebalance_protocol
    # An eager member has given everything up before it joins, so only a cooperative one claims.
    claims = any(m.subscription.owned_partitions for m in seen.joined if m.subscription)
    return "COOPERATIVE" if claims else None


def rename_members(owners: Owners | None, instance_moves: Mapping[str, str]) -> Owners | None:
    """Let replaced static members own under their new ids what they owned under the old."""
    if not owners or not instance_moves:
        return owners
    return {instance_moves.get(m, m): topics for m, topics in owners.items()}


def describe_gap(first: int, last: int) -> str:
    """Say which generations are missing."""
    return f"gap: {_span(first, last)} not seen (compacted, or never completed)"


def describe_unfinished(first: int, last: int) -> str:
    """Say which generations were begun but never completed."""
    return f"{_span(first, last)} never completed"


def _span(first: int, last: int) -> str:
    return f"generation {first}" if first == last else f"generations {first} to {last}"


def name_some(names: Sequence[str]) -> str:
    """List the first few names and count the rest."""
    more = len(names) - _NAMED_AT_MOST
    return ", ".join(names[:_NAMED_AT_MOST]) + (f" and {more} more" if more > 0 else "")
