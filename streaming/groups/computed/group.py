"""Computed groups: events about members become generations that Counterpoise itself decides.

One event that changes what the assignor sees makes one version. Under a cooperative
assignor a move takes two generations: the first gives nothing that another member
still holds, the second gives it on once its holder has confirmed, or the wait is over.
Under an eager one the first phase takes everything back and the second assigns; only
the second has a new generation.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from typing import TYPE_CHECKING, Any

from assignors.plugins import describe_failure
from streaming.groups.computed.leader import find_leader, get_leader, leader_names
from streaming.groups.computed.membership import Member, Members, choose_protocol, reads_topic, resolve_topics
from streaming.groups.computed.outcomes import applied, duplicate, ignored, unknown_member
from streaming.groups.computed.rebalance import (
    AssignorCall,
    Standing,
    differ_by_loads,
    fingerprint_of,
    is_as_before,
    plan_cooperative,
    plan_eager,
    without_members,
)
from streaming.groups.plugin_process import PluginTimeoutError
from streaming.groups.weights import weights_of
from streaming.model import WEIGHTED, EventOutcome, Input, Owners, Version, owned_pairs, owners_copy

if TYPE_CHECKING:
    from streaming.groups.rules import GroupRules
    from streaming.model import TopicView, VersionKind

Items = list[Version | EventOutcome]

_PLAIN_FIELDS = (
    "version", "generation_id", "incarnation", "protocol", "pinned_protocol", "assignment", "basis", "target",
    "unreleased", "revocation_generation_ids", "revocation_deadline_ms", "move", "is_interrupted", "phase",
    "is_final", "group_state", "rebalance_due_ms", "fingerprint", "reason", "event_time_ms",
)  # fmt: skip


class ComputedGroup:
    """One group that Counterpoise leads. Mutable, lives for one group's turn in one batch.

    `unreleased` are partitions that a live member was told to give up and has not confirmed: nobody else
    may have them. `move` is "eager" or "cooperative" while a second phase is due, `is_interrupted` when a
    cooperative one's inputs have changed since it began. `fingerprint` stands for all the assignor last saw;
    None after a held version, so that whatever comes next computes again.
    """

    def __init__(self, cluster: str, group_id: str, rules: GroupRules, held_versions: frozenset[int]) -> None:
        """Start an unknown group; `held_versions` are those that a critical check has refused."""
        self.cluster, self.group_id = cluster, group_id
        self._rules = rules
        self._held_versions = held_versions
        self.members = Members()
        self.version = 0
        self.generation_id = 0
        self.incarnation = 1
        self.protocol: str | None = None
        self.pinned_protocol: str | None = None
        self.assignment: Owners = {}
        self.basis: Owners | None = None
        self.target: Owners | None = None
        self.unreleased: Owners = {}
        self.revocation_generation_ids: dict[str, int] = {}
        self.revocation_deadline_ms: int | None = None
        self.move: str | None = None
        self.is_interrupted = False
        self.phase, self.is_final = 0, True
        self.group_state = "Empty"
        self.rebalance_due_ms: int | None = None
        self.fingerprint: str | None = None
        self.reason, self.event_time_ms = "", 0

    @classmethod
    def load(
        cls,
        state: Mapping[str, Any],
        cluster: str,
        group_id: str,
        rules: GroupRules,
        held_versions: frozenset[int],
    ) -> ComputedGroup:
        """Take the group up where `dump` left it."""
        group = cls(cluster, group_id, rules, held_versions)
        for name in _PLAIN_FIELDS:
            setattr(group, name, state.get(name, getattr(group, name)))
        members = (Member(**m) for m in state["members"])
        group.members = Members(members, state.get("leader_id"), state.get("most_members", 0))
        return group

    def dump(self) -> dict[str, Any]:
        """Give everything that `load` needs, JSON-able, in a fixed order."""
        plain = {name: getattr(self, name) for name in _PLAIN_FIELDS}
        of_members = {"leader_id": self.members.leader_id, "most_members": self.members.most}
        return {**plain, **of_members, "members": [m.as_dict() for m in self.members.values()]}

    def advance(self, event: Input, topics: TopicView) -> Items:
        """Apply one event of the group; every event ends in a Version's cause or as an EventOutcome."""
        handler = _HANDLERS.get(event.type)
        if handler is None:
            return [ignored(event, f"{event.type} does not apply to a computed consumer group")]
        items = handler(self, event, topics)
        is_applied = len(items) == 1 and isinstance(items[0], EventOutcome) and items[0].outcome == "applied"
        if is_applied and self._is_dirty:
            reason = f"{event.type} after a held version"
            return self._compute(topics, event.event_time_ms, reason, applied(event))
        return items

    def watches(self, topic: str) -> bool:
        """Say whether any member reads the topic, by name or by pattern."""
        return any(reads_topic(member, topic) for member in self.members.values())

    def topic_changed(self, topic: str, event_time_ms: int, topics: TopicView) -> Items:
        """Recompute if the topic, already changed in `topics`, matters to anybody here."""
        if not self.members:
            return []
        count = topics.partition_count(topic)
        return self._rebalance(topics, event_time_ms, f"topic_changed {topic} to {count} partitions", ())

    def load_told(self, topic: str, event_time_ms: int, topics: TopicView) -> Items:
        """Recompute by new loads; in a move its second phase does, after a held version the next event."""
        is_settled = self.move is None and bool(self.fingerprint)
        return self._rebalance(topics, event_time_ms, f"partition_load {topic}", ()) if is_settled else []

    def _member_joined(self, event: Input, topics: TopicView) -> Items:
        member_id = event.body["member_id"]
        member = Member.joining(member_id, event.body, event.event_time_ms)
        if not self.members and self.group_state == "Dead":
            self.incarnation += 1
            self.generation_id = 0
        known = self.members.get(member_id)
        predecessor = self.holder_of_instance(member.group_instance_id)
        if predecessor is not None and predecessor.member_id != member_id:
            return self._take_over(predecessor, member, event, topics)
        if known is not None:
            member.last_seen_ms = max(member.last_seen_ms, known.last_seen_ms)
        self.members.add(member)
        return self._rebalance(topics, event.event_time_ms, f"member_joined {member_id}", applied(event))

    def _take_over(self, old: Member, new: Member, event: Input, topics: TopicView) -> Items:
        """Let a static member's new incarnation stand in its predecessor's place (KIP-345)."""
        self.members.replace(old, new)
        for owners in (self.assignment, self.unreleased, self.basis, self.target):
            if owners and old.member_id in owners:
                renamed = {new.member_id if m == old.member_id else m: ts for m, ts in owners.items()}
                owners.clear()
                owners.update(renamed)
        if old.member_id in self.revocation_generation_ids:
            self.revocation_generation_ids[new.member_id] = self.revocation_generation_ids.pop(old.member_id)
        reason = f"static member {new.group_instance_id} replaced: {old.member_id} by {new.member_id}"
        if not old.asks_the_same_as(new):
            return self._rebalance(topics, event.event_time_ms, reason, applied(event))
        moves = {old.member_id: new.member_id}
        if self.fingerprint is not None and self.protocol is not None:
            self.fingerprint = fingerprint_of(self.protocol, self.members, self._subscribed(topics), topics)
        return self._change(topics, event.event_time_ms, reason, applied(event), instance_moves=moves)

    def _subscription_changed(self, event: Input, topics: TopicView) -> Items:
        member = self.members.get(event.body["member_id"])
        if member is None:
            return [unknown_member(event)]
        wanted = event.body.get("topics")
        member.topics = list(wanted) if wanted is not None else None
        member.topics_pattern = event.body.get("topics_pattern")
        member.last_seen_ms = max(member.last_seen_ms, event.event_time_ms)
        reason = f"subscription_changed {member.member_id}"
        return self._rebalance(topics, event.event_time_ms, reason, applied(event))

    def _member_heartbeat(self, event: Input, topics: TopicView) -> Items:
        member = self.members.get(event.body["member_id"])
        if member is None:
            return [unknown_member(event)]
        if event.event_time_ms == member.last_seen_ms and not member.is_away:
            return [duplicate(event, "this heartbeat is counted already")]
        member.last_seen_ms = max(member.last_seen_ms, event.event_time_ms)
        member.is_away = False
        return list(applied(event))

    def _member_left(self, event: Input, topics: TopicView) -> Items:
        member_id = event.body["member_id"]
        member = self.members.get(member_id)
        if member is None:
            return [unknown_member(event)]
        why = event.body.get("reason")
        if member.group_instance_id is not None and why is None:
            member.is_away = True
            member.last_seen_ms = max(member.last_seen_ms, event.event_time_ms)
            return list(applied(event, "a static member keeps its place until its session expires"))
        self._remove(member_id)
        reason = f"member_left {member_id}" + (f" ({why})" if why else "")
        return self._rebalance(topics, event.event_time_ms, reason, applied(event))

    def _partitions_revoked(self, event: Input, topics: TopicView) -> Items:
        member_id, generation_id = event.body["member_id"], event.body["generation_id"]
        if member_id not in self.members:
            return [unknown_member(event)]
        if member_id not in self.unreleased:
            return [ignored(event, f"member {member_id!r} has no open revocation")]
        asked_in = self.revocation_generation_ids[member_id]
        if not asked_in <= generation_id <= self.generation_id:
            span = f"{asked_in}" if asked_in == self.generation_id else f"{asked_in} to {self.generation_id}"
            return [ignored(event, f"generation_id is {generation_id}; the open revocation is of {span}")]
        member = self.members[member_id]
        member.last_seen_ms = max(member.last_seen_ms, event.event_time_ms)
        del self.unreleased[member_id]
        if self.unreleased:
            return list(applied(event, "waiting for " + ", ".join(sorted(self.unreleased))))
        self.revocation_deadline_ms = None
        if self.move is None:
            return list(applied(event))
        return self._compute(topics, event.event_time_ms, f"partitions_revoked {member_id}", applied(event))

    def _group_settings(self, event: Input, topics: TopicView) -> Items:
        wanted = event.body.get("assignor")
        known = leader_names(self._rules)
        if wanted is not None and wanted not in known:
            return [ignored(event, f"unknown assignor {wanted!r}; known: {', '.join(map(repr, known))}")]
        self.pinned_protocol = wanted
        if not self.members:
            return list(applied(event))
        reason = f"group_settings assignor {wanted}"
        return self._rebalance(topics, event.event_time_ms, reason, applied(event))

    def _group_deleted(self, event: Input, topics: TopicView) -> Items:
        if self.group_state == "Dead" or self.version == 0:
            return [ignored(event, "the group does not exist")]
        self.members = Members()
        fields = {**without_members("Dead"), "pinned_protocol": None}
        return self._change(
            topics, event.event_time_ms, "group_deleted", applied(event), kind="deleted", **fields
        )

    def _timers(self) -> Iterator[tuple[int, str, str, int]]:
        """Walk the running timers: (deadline_ms, member_id, what, first ms at which it is due)."""
        for member in self.members.values():
            deadline = member.session_deadline_ms(self._rules.static_session_timeout_ms)
            if deadline is not None:  # silent for *longer* than the timeout
                yield deadline, member.member_id, "session", deadline + 1
        if self.unreleased and self.revocation_deadline_ms is not None:
            yield self.revocation_deadline_ms, "", "revocation", self.revocation_deadline_ms
        if self.rebalance_due_ms is not None:
            yield self.rebalance_due_ms, "", "delay", self.rebalance_due_ms

    def next_timer_ms(self) -> int | None:
        """Give the moment at which the next timer is due, None when none runs."""
        return min((due for *_, due in self._timers()), default=None)

    def fire_next(self, now_ms: int, topics: TopicView) -> tuple[int, Items] | None:
        """Fire the earliest timer due at `now_ms`: (its deadline, what came of it); None when none is due."""
        due = [timer for timer in self._timers() if timer[3] <= now_ms]
        if not due:
            return None
        deadline, member_id, what, _ = min(due)
        if what == "session":
            self._remove(member_id)
            return deadline, self._rebalance(topics, deadline, f"session of {member_id} expired", ())
        if what == "delay":
            self.rebalance_due_ms = None
            return deadline, self._compute(topics, deadline, "rebalance_delay_ms passed", ())
        late, self.revocation_deadline_ms = sorted(self.unreleased), None
        if self._rules.revocation_timeout_action == "remove":
            for late_member in late:
                self._remove(late_member)
        self.unreleased = {}
        if self.move is None and self._rules.revocation_timeout_action == "reassign":
            return deadline, []
        return deadline, self._compute(topics, deadline, f"no partitions_revoked from {', '.join(late)}", ())

    @property
    def _is_dirty(self) -> bool:
        """Say whether the last version was held, so that the next event computes again."""
        is_waiting = self.rebalance_due_ms is not None or not self.members
        return self.fingerprint is None and self.version > 0 and not is_waiting

    def holder_of_instance(self, group_instance_id: str | None) -> Member | None:
        """Find the static member of this id, whose place a new one of the same id takes."""
        is_static = (m for m in self.members.values() if m.group_instance_id is not None)
        return next((m for m in is_static if m.group_instance_id == group_instance_id), None)

    def _remove(self, member_id: str) -> None:
        self.members.remove(member_id)
        self.unreleased.pop(member_id, None)

    def _rebalance(
        self, topics: TopicView, now_ms: int, reason: str, cause: tuple[EventOutcome, ...]
    ) -> Items:
        """Compute now, or let `rebalance_delay_ms` fold this event with those close behind it."""
        if self._rules.rebalance_delay_ms > 0:
            if self.rebalance_due_ms is None:
                self.rebalance_due_ms = now_ms + self._rules.rebalance_delay_ms
            return list(cause)
        return self._compute(topics, now_ms, reason, cause)

    def _compute(self, topics: TopicView, now_ms: int, reason: str, cause: tuple[EventOutcome, ...]) -> Items:
        if not self.members:
            fields = {**without_members("Empty"), "generation_id": self.generation_id + 1}
            return self._change(topics, now_ms, reason, cause, **fields)
        default = self._rules.default_protocols
        lists = {member_id: m.protocols or default for member_id, m in self.members.items()}
        protocol = self.pinned_protocol or choose_protocol(lists)
        if protocol is None:
            told = "; ".join(f"{m} lists {', '.join(ps)}" for m, ps in lists.items())
            problem = ("NoCommonAssignor", f"there is no assignor that all list: {told}")
            return self._hold(topics, now_ms, reason, cause, problem)
        subscribed = self._subscribed(topics)
        fingerprint = fingerprint_of(protocol, self.members, subscribed, topics)
        second_phase_due = self.move is not None and not self.unreleased
        if fingerprint == self.fingerprint and not second_phase_due:
            return [
                dataclasses.replace(o, reason=o.reason or "nothing the assignor sees has changed")
                for o in cause
            ]
        try:
            assignor = get_leader(protocol, topics, self._rules)
            call = AssignorCall(assignor, self.members, subscribed, topics, fingerprint == self.fingerprint)
            plan = plan_eager if assignor.rebalance_protocol == "EAGER" else plan_cooperative
            fields = plan(self._standing(), call, topics, now_ms + self._rules.revocation_timeout_ms)
        except PluginTimeoutError:  # asked again at each event it would make all other groups wait
            raise
        except Exception as error:  # noqa: BLE001 - whatever fails here costs its own group only
            problem = ("AssignorFailed", describe_failure(protocol, error))
            return self._hold(topics, now_ms, reason, cause, problem)
        if differ_by_loads(self.fingerprint, fingerprint) and is_as_before(self._standing(), fields):
            self.fingerprint = fingerprint
            return list(cause)
        fields |= {"protocol": protocol, "fingerprint": fingerprint}
        return self._change(topics, now_ms, reason, cause, **fields)

    def _standing(self) -> Standing:
        return Standing(**{field.name: getattr(self, field.name) for field in dataclasses.fields(Standing)})

    def _subscribed(self, topics: TopicView) -> dict[str, tuple[str, ...]]:
        return {m.member_id: resolve_topics(m, topics) for m in self.members.values()}

    def _change(
        self,
        topics: TopicView,
        now_ms: int,
        reason: str,
        cause: tuple[EventOutcome, ...],
        *,
        kind: VersionKind = "rebalance",
        instance_moves: Mapping[str, str] | None = None,
        **fields: Any,
    ) -> Items:
        """Make the next version with these fields of the group, unless a check has refused it."""
        if self.version + 1 in self._held_versions:
            refused = copy(self)
            refused._held_versions = frozenset()
            (candidate,) = refused._change(
                topics, now_ms, reason, (), kind=kind, instance_moves=instance_moves, **fields
            )
            problem = ("GenerationHeld", "a critical check refused it")
            return self._hold(topics, now_ms, reason, cause, problem, candidate)
        basis = self.basis if fields.get("is_final") and self.basis is not None else None
        before = self.unreleased
        for name, value in fields.items():
            setattr(self, name, value)
        self.revocation_generation_ids = {
            # A confirmation must be at least as new as the last thing the member was told to give up.
            m: self.revocation_generation_ids.get(m, self.generation_id)
            if set(owned_pairs({m: ts})) <= set(owned_pairs({m: before.get(m, {})}))
            else self.generation_id
            for m, ts in self.unreleased.items()
        }
        self.version += 1
        self.reason, self.event_time_ms = reason, now_ms
        return [self._describe(topics, kind, cause, instance_moves or {}, basis, None)]

    def _hold(
        self,
        topics: TopicView,
        now_ms: int,
        reason: str,
        cause: tuple[EventOutcome, ...],
        problem: tuple[str, str],
        refused: Version | EventOutcome | None = None,
    ) -> Items:
        """Keep the assignment that is in force and say why; the next event computes again."""
        self.version += 1
        # Members that agree on nothing wait for one of them to change; all else is tried again at once.
        self.fingerprint = "" if problem[0] == "NoCommonAssignor" else None
        self.reason, self.event_time_ms = reason, now_ms
        held = self._describe(topics, "held", cause, {}, None, problem)
        return [dataclasses.replace(held, refused=refused) if isinstance(refused, Version) else held]

    def describe(self, topics: TopicView) -> Version:
        """Show the group as it stands, for a `state` row: no new version, no cause."""
        return self._describe(topics, "state", (), {}, None, None)

    def _describe(
        self,
        topics: TopicView,
        kind: VersionKind,
        cause: tuple[EventOutcome, ...],
        instance_moves: Mapping[str, str],
        basis: Owners | None,
        problem: tuple[str, str] | None,
    ) -> Version:
        subscribed = {m: frozenset(ts) for m, ts in self._subscribed(topics).items()}
        names = {t for owners in (subscribed, self.assignment) for ts in owners.values() for t in ts}
        assignor = find_leader(self.protocol, topics, self._rules)
        return Version(
            kind=kind,
            version=self.version,
            generation_id=self.generation_id,
            incarnation=self.incarnation,
            group_kind="computed",
            protocol_type="consumer",
            protocol=self.protocol,
            assignor=assignor,
            rebalance_protocol=assignor.rebalance_protocol if assignor else None,
            leader_id=self.members.leader_id,
            group_state=self.group_state,
            phase=self.phase,
            is_final=self.is_final,
            reason=self.reason,
            event_time_ms=self.event_time_ms,
            members=tuple(m.info() for m in self.members.values()),
            assignment=owners_copy(self.assignment),
            subscribed=subscribed,
            topic_counts={t: topics.partition_count(t) for t in sorted(names)},
            expected=owners_copy(self.assignment if self.target is None else self.target),
            expected_status="equal" if self.target is None else "in_transition",
            cause=cause,
            instance_moves=instance_moves,
            basis=basis,
            is_interrupted=self.is_interrupted,
            problem=problem,
            weights=weights_of(topics, sorted(names)) if self.protocol == WEIGHTED else None,
        )


_HANDLERS: Mapping[str, Callable[[ComputedGroup, Input, TopicView], Items]] = {
    "member_joined": ComputedGroup._member_joined,
    "subscription_changed": ComputedGroup._subscription_changed,
    "member_heartbeat": ComputedGroup._member_heartbeat,
    "member_left": ComputedGroup._member_left,
    "partitions_revoked": ComputedGroup._partitions_revoked,
    "group_settings": ComputedGroup._group_settings,
    "group_deleted": ComputedGroup._group_deleted,
}
