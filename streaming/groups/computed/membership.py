"""Members of a computed group: what they asked for, and which assignor they agree on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from assignors.java_order import capacity_for, hash_map_order, hash_order, string_hash, utf16_key
from streaming.events.patterns import compiled, matches
from streaming.model import MemberInfo

if TYPE_CHECKING:
    from streaming.model import TopicView


@dataclass(slots=True, kw_only=True)
class Member:
    """One member as the group's state keeps it; JSON-able through `as_dict`.

    Exactly one of `topics` and `topics_pattern` is set. `claims` are the
    partitions it said it owned when it joined, topic -> numbers, of generation
    `claim_generation_id`. `is_away` marks a static member that left without a
    reason and keeps its place until its session expires.
    """

    member_id: str
    topics: list[str] | None = None
    topics_pattern: str | None = None
    group_instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rack_id: str | None = None
    protocols: list[str] = field(default_factory=list)
    session_timeout_ms: int | None = None
    last_seen_ms: int = 0
    user_data: str | None = None
    claims: dict[str, list[int]] = field(default_factory=dict)
    claim_generation_id: int = -1
    is_away: bool = False

    @classmethod
    def joining(cls, member_id: str, body: Mapping[str, Any], now_ms: int) -> Member:
        """Build a member from the fields of a member_joined event."""
        topics = body.get("topics")
        return cls(
            member_id=member_id,
            topics=list(topics) if topics is not None else None,
            topics_pattern=body.get("topics_pattern"),
            group_instance_id=body.get("group_instance_id"),
            client_id=body.get("client_id") or "",
            client_host=body.get("client_host") or "",
            rack_id=body.get("rack_id"),
            protocols=list(body.get("protocols") or ()),
            session_timeout_ms=body.get("session_timeout_ms"),
            last_seen_ms=now_ms,
            user_data=body.get("user_data"),
            claims={t: list(ps) for t, ps in (body.get("owned_partitions") or {}).items()},
            claim_generation_id=body.get("generation_id", -1),
        )

    def as_dict(self) -> dict[str, Any]:
        """Give the fields that differ from a fresh member's, for the state's JSON."""
        values = zip(self.__slots__, _values_of(self), _FRESH_VALUES, strict=True)
        return {name: value for name, value, fresh in values if value != fresh}

    def info(self) -> MemberInfo:
        """Give the member as the tables show it."""
        return MemberInfo(
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rack_id=self.rack_id,
            topics=tuple(self.topics or ()),
            topics_pattern=self.topics_pattern,
        )

    def asks_the_same_as(self, other: Member) -> bool:
        """Say whether a takeover by `other` changes nothing that the assignor sees (KIP-345)."""
        return (self.topics, self.topics_pattern, self.protocols, self.rack_id, self.user_data) == (
            other.topics,
            other.topics_pattern,
            other.protocols,
            other.rack_id,
            other.user_data,
        )

    def session_deadline_ms(self, static_session_timeout_ms: int) -> int | None:
        """Give the last moment at which the member still counts as alive, None when it never expires."""
        timeout_ms = self.session_timeout_ms
        if timeout_ms is None and self.group_instance_id is not None:
            timeout_ms = static_session_timeout_ms
        return None if timeout_ms is None else self.last_seen_ms + timeout_ms


_values_of = attrgetter(*Member.__slots__)
_FRESH_VALUES = _values_of(Member(member_id=""))


class Members(dict[str, Member]):
    """The members of a group in join order, and who of them would lead it in Kafka.

    The first to join leads. When the leader goes, the next is the first in the order of the
    coordinator's HashMap, whose size goes by `most`, the most members that it ever held.

    Source: ClassicGroup.add, remove and replaceStaticMember.
    """

    def __init__(self, members: Iterable[Member] = (), leader_id: str | None = None, most: int = 0) -> None:
        """Start with nobody, or where an earlier batch left off."""
        super().__init__((member.member_id, member) for member in members)
        self.leader_id = leader_id
        self.most = max(most, len(self))

    def add(self, member: Member) -> None:
        """Let a member in, or take its newer subscription."""
        self[member.member_id] = member
        self.most = max(self.most, len(self))
        self.leader_id = self.leader_id or member.member_id

    def remove(self, member_id: str) -> None:
        """Let a member go, if it is there."""
        self.pop(member_id, None)
        if member_id == self.leader_id:
            order = hash_order(list(self), string_hash, utf16_key, capacity=capacity_for(self.most))
            self.leader_id = order[0] if order else None

    def replace(self, old: Member, new: Member) -> None:
        """Let a static member's new incarnation come for its predecessor, as the last to join."""
        leader_id = new.member_id if self.leader_id == old.member_id else self.leader_id
        del self[old.member_id]
        self.pop(new.member_id, None)
        self[new.member_id] = new
        self.leader_id = leader_id


def resolve_topics(member: Member, topics: TopicView) -> tuple[str, ...]:
    """List the topics a member reads: its own list as given, or all existing that its pattern matches whole.

    Patterns are RE2's (as in KIP-848 on the broker): linear in the length of the
    name, whatever the pattern. Matches come sorted by name.
    """
    if member.topics_pattern is None:
        return tuple(member.topics or ())
    pattern = compiled(member.topics_pattern)
    return tuple(name for name in topics.names() if pattern.fullmatch(name))


def reads_topic(member: Member, topic: str) -> bool:
    """Say whether a member's list or pattern takes in this topic, whether or not it exists."""
    if member.topics_pattern is None:
        return topic in (member.topics or ())
    return matches(member.topics_pattern, topic)


def choose_protocol(members: Mapping[str, Sequence[str]]) -> str | None:
    """Choose the assignor among the members' lists as Kafka's coordinator does.

    Args:
        members: member_id -> its protocols, most wanted first; in join order.

    Returns:
        The protocol that most members put first among those that all of them
        list; on a tie the first in the order of Java's HashMap of the votes.
        None when there is no protocol that all list.

    Source: ClassicGroup.selectProtocol, ClassicGroupMember.vote.

    >>> choose_protocol({"A": ["range", "sticky"], "B": ["sticky", "range"], "C": ["sticky", "range"]})
    'sticky'
    """
    if not members:
        return None
    first, *rest = members.values()
    if rest.count(first) == len(rest):
        return first[0] if first else None
    candidates = set(first).intersection(*rest)
    if not candidates:
        return None
    votes: dict[str, int] = {}
    for member_id in hash_map_order(members):
        choice = next(p for p in members[member_id] if p in candidates)
        votes[choice] = votes.get(choice, 0) + 1
    return max(hash_map_order(votes), key=votes.__getitem__)
