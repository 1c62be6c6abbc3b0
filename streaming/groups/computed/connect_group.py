"""Computed Connect groups: events about workers and connectors become generations that Counterpoise decides.

Counterpoise is the group's leader, and its memory is part of the group's state. A
rebalance that takes something from a worker, or that waits for a lost one, is
followed by another: once the workers have stopped what they gave up, or when the
leader's delay is over, in event time. Events that come while workers are still
stopping join the rebalance under way: they make a version, and no generation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import mmh3
import orjson

from assignors.connect_incremental import LeaderMemory
from assignors.connect_protocol import NO_LOAD, WorkerLoad
from streaming.groups.computed.connect_rounds import (
    WIRE_NAMES,
    BeforeRound,
    plan_round,
    plan_wait,
    without_workers,
)
from streaming.groups.computed.outcomes import applied, ignored
from streaming.model import EventOutcome, Input, MemberInfo, Owners, Version, owners_copy

if TYPE_CHECKING:
    from streaming.groups.computed.connect_rounds import ConnectAssignor
    from streaming.groups.rules import GroupRules
    from streaming.model import TopicView, VersionKind

Items = list[Version | EventOutcome]

_PLAIN_FIELDS = (
    "version", "generation_id", "incarnation", "assignor", "pinned_assignor", "workers", "task_counts",
    "assignment", "basis", "target", "unreleased", "revocation_deadline_ms", "scheduled_ms", "phase",
    "is_final", "group_state", "rebalance_due_ms", "fingerprint", "reason", "event_time_ms", "clock_ms",
)  # fmt: skip


class ConnectGroup:
    """One Connect cluster that Counterpoise leads. Mutable, lives for one group's turn in one batch.

    `workers` maps the workers to their URLs, `running` to what they would report
    if they joined now. `unreleased` is what workers were told to stop and have not
    confirmed. `scheduled_ms` is when the leader's delay ends. `clock_ms` is the
    leader's clock, which never goes back. `fingerprint` stands for what the
    assignor last saw; None after a held version, so that the next event computes again.
    """

    def __init__(self, cluster: str, group_id: str, rules: GroupRules, held_versions: frozenset[int]) -> None:
        """Start an unknown group; `held_versions` are those that a critical check has refused."""
        self.cluster = cluster
        self.group_id = group_id
        self._rules = rules
        self._held_versions = held_versions
        self.workers: dict[str, str] = {}
        self.task_counts: dict[str, int] = {}
        self.running: dict[str, WorkerLoad] = {}
        self.memory = LeaderMemory()
        self.version = 0
        self.generation_id = 0
        self.incarnation = 1
        self.assignor: ConnectAssignor | None = None
        self.pinned_assignor: ConnectAssignor | None = None
        self.assignment: Owners = {}
        self.basis: Owners | None = None
        self.target: Owners | None = None
        self.unreleased: Owners = {}
        self.revocation_deadline_ms: int | None = None
        self.scheduled_ms: int | None = None
        self.phase = 0
        self.is_final = True
        self.group_state = "Empty"
        self.rebalance_due_ms: int | None = None
        self.fingerprint: str | None = None
        self.reason = ""
        self.event_time_ms = 0
        self.clock_ms = 0

    @classmethod
    def load(
        cls,
        state: Mapping[str, Any],
        cluster: str,
        group_id: str,
        rules: GroupRules,
        held_versions: frozenset[int],
    ) -> ConnectGroup:
        """Take the group up where `dump` left it."""
        group = cls(cluster, group_id, rules, held_versions)
        for name in _PLAIN_FIELDS:
            setattr(group, name, state[name])
        group.running = {w: WorkerLoad.of(*load) for w, load in state["running"].items()}
        group.memory = LeaderMemory.from_json(state["memory"])
        return group

    def dump(self) -> dict[str, Any]:
        """Give everything that `load` needs, JSON-able, in a fixed order."""
        plain = {name: getattr(self, name) for name in _PLAIN_FIELDS}
        running = {
            w: [list(load.connectors), [list(t) for t in load.tasks]] for w, load in self.running.items()
        }
        return {**plain, "running": running, "memory": self.memory.to_json()}

    # Events

    def advance(self, event: Input, topics: TopicView) -> Items:
        """Apply one event of the group; every event ends in a Version's cause or as an EventOutcome."""
        handler = _HANDLERS.get(event.type)
        if handler is None:
            return [ignored(event, f"{event.type} does not apply to a computed Connect group")]
        self.clock_ms = max(self.clock_ms, event.event_time_ms)
        items = handler(self, event)
        is_applied = len(items) == 1 and isinstance(items[0], EventOutcome) and items[0].outcome == "applied"
        if is_applied and self._is_dirty:
            return self._compute(event.event_time_ms, f"{event.type} after a held version", applied(event))
        return items

    def watches(self, topic: str) -> bool:
        """Say that no topic matters: what a Connect group deals out are connectors and tasks."""
        return False

    def topic_changed(self, topic: str, event_time_ms: int, topics: TopicView) -> Items:
        """Do nothing, for the same reason."""
        return []

    def _worker_joined(self, event: Input) -> Items:
        worker, url = event.body["worker_id"], event.body.get("url")
        if worker in self.workers:
            self.workers[worker] = url or self.workers[worker]
            return list(applied(event, "the worker is in the group already"))
        if self.group_state == "Dead":
            self.incarnation += 1
            self.generation_id = 0
        self.workers[worker] = url or ""
        self.running[worker] = NO_LOAD
        return self._rebalance(event, f"worker_joined {worker}")

    def _worker_left(self, event: Input) -> Items:
        worker = event.body["worker_id"]
        if worker not in self.workers:
            return [ignored(event, f"worker {worker!r} is not in the group")]
        self._remove(worker)
        return self._rebalance(event, f"worker_left {worker}")

    def _connector_configured(self, event: Input) -> Items:
        connector, count = event.body["connector"], event.body["tasks"]
        if self.task_counts.get(connector) == count:
            return list(applied(event, "the connector has that many tasks already"))
        self.task_counts[connector] = count
        return self._rebalance(event, f"connector_configured {connector} with {count} tasks")

    def _connector_deleted(self, event: Input) -> Items:
        connector = event.body["connector"]
        if connector not in self.task_counts:
            return [ignored(event, f"connector {connector!r} is not configured")]
        del self.task_counts[connector]
        return self._rebalance(event, f"connector_deleted {connector}")

    def _partitions_revoked(self, event: Input) -> Items:
        worker, generation_id = event.body["member_id"], event.body["generation_id"]
        if worker not in self.workers:
            return [ignored(event, f"worker {worker!r} is not in the group")]
        if worker not in self.unreleased:
            return [ignored(event, f"worker {worker!r} has no open revocation")]
        # Nothing is revoked anew before all have stopped, so an open revocation is of the last generation.
        if generation_id != self.generation_id:
            text = f"generation_id is {generation_id}; the open revocation is of {self.generation_id}"
            return [ignored(event, text)]
        del self.unreleased[worker]
        if self.unreleased:
            return list(applied(event, "waiting for " + ", ".join(sorted(self.unreleased))))
        return self._compute(event.event_time_ms, f"partitions_revoked {worker}", applied(event))

    def _group_settings(self, event: Input) -> Items:
        wanted = event.body.get("assignor")
        if wanted is not None and wanted not in WIRE_NAMES:
            known = ", ".join(repr(name) for name in sorted(WIRE_NAMES))
            return [ignored(event, f"unknown assignor {wanted!r} of a Connect group; known: {known}")]
        before, self.pinned_assignor = self._chosen_assignor, wanted
        if self._chosen_assignor == before:
            return list(applied(event))
        return self._rebalance(event, f"group_settings assignor {wanted}")

    def _group_deleted(self, event: Input) -> Items:
        if self.group_state == "Dead" or self.version == 0:
            return [ignored(event, "the group does not exist")]
        self.workers, self.task_counts, self.running, self.pinned_assignor = {}, {}, {}, None
        fields = {**without_workers("Dead"), "rebalance_due_ms": None}
        return self._change(event.event_time_ms, "group_deleted", applied(event), kind="deleted", **fields)

    # Timers

    def _timers(self) -> Iterator[tuple[int, str]]:
        """Walk the running timers: (deadline_ms, what)."""
        if self.rebalance_due_ms is not None:
            yield self.rebalance_due_ms, "fold"
        if self.unreleased and self.revocation_deadline_ms is not None:
            yield self.revocation_deadline_ms, "revocation"
        elif self.scheduled_ms is not None:
            yield self.scheduled_ms, "scheduled"

    def next_timer_ms(self) -> int | None:
        """Give the moment at which the next timer is due, None when none runs."""
        return min((deadline for deadline, _ in self._timers()), default=None)

    def fire_next(self, now_ms: int, topics: TopicView) -> tuple[int, Items] | None:
        """Fire the earliest timer due at `now_ms`: (its deadline, what came of it); None when none is due."""
        due = [timer for timer in self._timers() if timer[0] <= now_ms]
        if not due:
            return None
        deadline, what = min(due)
        self.clock_ms = max(self.clock_ms, deadline)
        if what == "fold":
            return deadline, self._compute(deadline, "rebalance_delay_ms passed", ())
        if what == "scheduled":
            return deadline, self._compute(deadline, "the scheduled rebalance is due", ())
        late = sorted(self.unreleased)
        if self._rules.revocation_timeout_action == "remove":
            for worker in late:
                self._remove(worker)
        self.unreleased = {}
        return deadline, self._compute(deadline, f"no partitions_revoked from {', '.join(late)}", ())

    # The rebalance

    @property
    def _is_dirty(self) -> bool:
        """Say whether the last version was held, so that the next event computes again."""
        waits = self.rebalance_due_ms is not None
        return self.fingerprint is None and self.version > 0 and bool(self.workers) and not waits

    @property
    def _chosen_assignor(self) -> ConnectAssignor:
        return self.pinned_assignor or self._rules.connect_assignor

    def _remove(self, worker: str) -> None:
        del self.workers[worker], self.running[worker]
        self.unreleased.pop(worker, None)

    def _rebalance(self, event: Input, reason: str) -> Items:
        """Compute now, or let `rebalance_delay_ms` fold this event with those close behind it."""
        cause = applied(event)
        if not self.workers and not self.assignment:
            return list(cause)
        if self._rules.rebalance_delay_ms > 0:
            if self.rebalance_due_ms is None:
                self.rebalance_due_ms = event.event_time_ms + self._rules.rebalance_delay_ms
            return list(cause)
        return self._compute(event.event_time_ms, reason, cause)

    def _compute(self, now_ms: int, reason: str, cause: tuple[EventOutcome, ...]) -> Items:
        # Whatever called for this, it takes in all that has happened, and a held version must not fire again.
        self.rebalance_due_ms = None
        if not self.workers:
            fields = {**without_workers("Empty"), "generation_id": self.generation_id + 1}
            return self._change(now_ms, reason, cause, **fields)
        assignor = self._chosen_assignor
        try:
            start = BeforeRound(
                assignor=assignor,
                running=self.running,
                memory=self.memory,
                task_counts=self.task_counts,
                now_ms=self.clock_ms,
                max_delay_ms=self._rules.scheduled_rebalance_max_delay_ms,
                generation_id=self.generation_id,
            )
            if self.unreleased:
                fields = plan_wait(start, self.assignment, self.basis)
            else:
                timeout_ms = self._rules.revocation_timeout_ms
                fields = plan_round(start, self.assignment, self.basis, timeout_ms)
        except Exception as error:  # noqa: BLE001 - whatever fails here costs its own group only
            text = f"assignor {assignor!r} raised {type(error).__name__}: {error}"
            return self._hold(now_ms, reason, cause, ("AssignorFailed", text))
        seen = [assignor, list(self.workers), sorted(self.task_counts.items())]
        fields |= {"assignor": assignor, "fingerprint": mmh3.hash_bytes(orjson.dumps(seen)).hex()}
        return self._change(now_ms, reason, cause, **fields)

    # Versions

    def _change(
        self,
        now_ms: int,
        reason: str,
        cause: tuple[EventOutcome, ...],
        *,
        kind: VersionKind = "rebalance",
        **fields: Any,
    ) -> Items:
        """Make the next version with these fields of the group, unless a check has refused it."""
        if self.version + 1 in self._held_versions:
            refused = copy(self)
            refused._held_versions = frozenset()
            (candidate,) = refused._change(now_ms, reason, (), kind=kind, **fields)
            return self._hold(
                now_ms, reason, cause, ("GenerationHeld", "a critical check refused it"), candidate
            )
        basis = self.basis if fields["is_final"] else None
        for name, value in fields.items():
            setattr(self, name, value)
        self.version += 1
        self.reason, self.event_time_ms = reason, now_ms
        return [self._describe(kind, cause, basis, None)]

    def _hold(
        self,
        now_ms: int,
        reason: str,
        cause: tuple[EventOutcome, ...],
        problem: tuple[str, str],
        refused: Version | EventOutcome | None = None,
    ) -> Items:
        """Keep the assignment that is in force and say why; the next event computes again."""
        self.version += 1
        self.fingerprint = None
        self.scheduled_ms = None
        self.reason, self.event_time_ms = reason, now_ms
        held = self._describe("held", cause, None, problem)
        return [replace(held, refused=refused) if isinstance(refused, Version) else held]

    def describe(self, topics: TopicView) -> Version:
        """Show the group as it stands, for a `state` row: no new version, no cause."""
        return self._describe("state", (), None, None)

    def _describe(
        self,
        kind: VersionKind,
        cause: tuple[EventOutcome, ...],
        basis: Owners | None,
        problem: tuple[str, str] | None,
    ) -> Version:
        protocol, rebalance_protocol = WIRE_NAMES[self.assignor] if self.assignor else (None, None)
        return Version(
            kind=kind,
            version=self.version,
            generation_id=self.generation_id,
            incarnation=self.incarnation,
            group_kind="computed",
            protocol_type="connect",
            protocol=protocol,
            rebalance_protocol=rebalance_protocol,
            leader_id=None,
            group_state=self.group_state,
            phase=self.phase,
            is_final=self.is_final,
            reason=self.reason,
            event_time_ms=self.event_time_ms,
            members=tuple(MemberInfo(member_id=w, client_host=url) for w, url in self.workers.items()),
            assignment=owners_copy(self.assignment),
            subscribed={},
            topic_counts=dict(self.task_counts),
            expected=owners_copy(self.assignment if self.target is None else self.target),
            expected_status="equal" if self.target is None else "in_transition",
            cause=cause,
            basis=basis,
            problem=problem,
        )


_HANDLERS: Mapping[str, Callable[[ConnectGroup, Input], Items]] = {
    "worker_joined": ConnectGroup._worker_joined,
    "worker_left": ConnectGroup._worker_left,
    "connector_configured": ConnectGroup._connector_configured,
    "connector_deleted": ConnectGroup._connector_deleted,
    "partitions_revoked": ConnectGroup._partitions_revoked,
    "group_settings": ConnectGroup._group_settings,
    "group_deleted": ConnectGroup._group_deleted,
}
