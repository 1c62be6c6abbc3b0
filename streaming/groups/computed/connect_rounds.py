"""One rebalance of a computed Connect group: what its workers run after it, and what must follow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from assignors.connect_eager import assign_connect_eager
from assignors.connect_incremental import LeaderMemory, assign_connect_incremental
from assignors.connect_protocol import NO_LOAD, WorkerLoad

if TYPE_CHECKING:
    from streaming.model import Owners

ConnectAssignor = Literal["connect-incremental", "connect-eager"]
Fields = dict[str, Any]
"""New values of a ConnectGroup's attributes, by name."""
Running = Mapping[str, WorkerLoad]
"""worker -> what it runs, in the order of its own lists; workers in the order in which they joined."""

WIRE_NAMES: Mapping[str, tuple[str, str]] = {
    "connect-incremental": ("sessioned", "sessioned"),
    "connect-eager": ("default", "EAGER"),
}
"""Assignor -> (protocol as on Connect's wire, rebalance protocol)."""

_FOLLOWED_AT_MOST = 16
_CONNECTOR_ITSELF = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class BeforeRound:
    """What a rebalance starts from.

    `running` is what each worker reports; at least one worker. `memory` is the
    leader's, after generation `generation_id`, the last. `task_counts` maps
    connector to number of tasks. `now_ms` is the leader's clock, `max_delay_ms`
    scheduled.rebalance.max.delay.ms.
    """

    assignor: ConnectAssignor
    running: Running
    memory: LeaderMemory
    task_counts: Mapping[str, int]
    now_ms: int
    max_delay_ms: int
    generation_id: int

    def after(self, held: ConnectRound) -> BeforeRound:
        """Start from what a round came to, once all is stopped or else the delay is over."""
        later_ms = None if held.revoked else held.scheduled_ms
        return replace(
            self,
            running=held.running,
            memory=held.memory,
            now_ms=self.now_ms if later_ms is None else later_ms,
            generation_id=held.generation_id,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectRound:
    """What one rebalance came to.

    `running` is what each worker has after it. `revoked` names, worker by worker,
    what must be stopped before anything else is given out. `scheduled_ms` is when
    the workers join again by themselves, None when they need not. `generation_id`
    has not risen after the first phase of an eager rebalance.
    """

    running: Running
    revoked: Owners
    memory: LeaderMemory
    scheduled_ms: int | None
    generation_id: int

    @property
    def is_final(self) -> bool:
        """Say whether no further rebalance is due."""
        return not self.revoked and self.scheduled_ms is None


def rebalance_workers(start: BeforeRound) -> ConnectRound:
    """Hold one rebalance, as Connect's leader and workers do.

    Source: EagerAssignor, IncrementalCooperativeAssignor, WorkerCoordinator.onJoinComplete.
    """
    running, generation_id = start.running, start.generation_id
    if start.assignor == "connect-eager":
        stopped = {worker: topics for worker, topics in owners_of(running).items() if topics}
        return ConnectRound(
            running=dict.fromkeys(running, NO_LOAD)
            if stopped
            else assign_connect_eager(start.task_counts, running),
            revoked=stopped,
            memory=LeaderMemory(),
            scheduled_ms=None,
            generation_id=generation_id if stopped else generation_id + 1,
        )
    given, memory = assign_connect_incremental(
        start.memory,
        {worker: load.as_sent() for worker, load in running.items()},
        start.task_counts,
        now_ms=start.now_ms,
        max_delay_ms=start.max_delay_ms,
        last_completed_generation_id=generation_id,
        generation_id=generation_id + 1,
    )
    # With a greatest delay of 0 a leader keeps the delay it had before, though it is over.
    is_waiting = memory.delay_ms > 0 and memory.scheduled_ms > start.now_ms
    return ConnectRound(
        running={w: load.after(given.assigned[w], given.revoked[w]) for w, load in running.items()},
        revoked={worker: topics for worker, topics in owners_of(given.revoked).items() if topics},
        memory=memory,
        scheduled_ms=memory.scheduled_ms if is_waiting else None,
        generation_id=generation_id + 1,
    )


def settle_workers(start: BeforeRound) -> Owners:
    """Find where rebalances lead if all workers do as told and nothing else happens.

    What was revoked before counts as stopped; a lost worker as one that does not return.
    """
    for _ in range(_FOLLOWED_AT_MOST):
        held = rebalance_workers(start)
        start = start.after(held)
        if held.is_final:
            break
    return owners_of(start.running)


def owners_of(loads: Running) -> Owners:
    """Show loads as owners: worker -> connector -> task numbers, -1 for the connector itself, sorted.

    >>> owners_of({"w0": WorkerLoad.of(["c"], [("c", 1), ("b", 0)]), "w1": NO_LOAD})
    {'w0': {'b': [0], 'c': [-1, 1]}, 'w1': {}}
    """
    owners: Owners = {}
    for worker, load in loads.items():
        pairs = sorted([(c, _CONNECTOR_ITSELF) for c in load.connectors] + [(t, n) for t, n in load.tasks])
        owners[worker] = {}
        for connector, number in pairs:
            owners[worker].setdefault(connector, []).append(number)
    return owners


def plan_round(
    start: BeforeRound, assignment: Owners, basis: Owners | None, revocation_timeout_ms: int
) -> Fields:
    """Hold a rebalance; where another must follow, this one is the first phase.

    Args:
        start: the group as it is.
        assignment: what is in force.
        basis: what was in force before the move that is under way, None without one.
        revocation_timeout_ms: how long to wait for workers to stop what they give up.
    """
    held = rebalance_workers(start)
    fields = {
        "generation_id": held.generation_id,
        "running": dict(held.running),
        "memory": held.memory,
        "assignment": owners_of(held.running),
        "unreleased": held.revoked,
        "revocation_deadline_ms": start.now_ms + revocation_timeout_ms if held.revoked else None,
        "scheduled_ms": held.scheduled_ms,
        "group_state": "PreparingRebalance" if held.revoked else "Stable",
    }
    if not held.is_final:
        return {**fields, **_unfinished(start.after(held), assignment, basis)}
    phase = 0 if basis is None else 2
    return {**fields, "phase": phase, "is_final": True, "basis": None, "target": None}


def plan_wait(start: BeforeRound, assignment: Owners, basis: Owners | None) -> Fields:
    """Let what happened join the rebalance that waits for workers to stop what they gave up.

    As in Kafka, where the next generation begins when all have joined again.
    Takes the same arguments as `plan_round`.
    """
    return {"assignment": owners_of(start.running), **_unfinished(start, assignment, basis)}


def _unfinished(following: BeforeRound, assignment: Owners, basis: Owners | None) -> Fields:
    return {
        "phase": 1,
        "is_final": False,
        "basis": assignment if basis is None else basis,
        "target": settle_workers(following),
    }


def without_workers(group_state: str) -> Fields:
    """Leave the group with nobody in it. The leader's memory goes with the last worker, as in Kafka."""
    return {
        "memory": LeaderMemory(),
        "assignment": {},
        "unreleased": {},
        "basis": None,
        "target": None,
        "phase": 0,
        "is_final": True,
        "group_state": group_state,
        "assignor": None,
        "fingerprint": None,
        "revocation_deadline_ms": None,
        "scheduled_ms": None,
    }
