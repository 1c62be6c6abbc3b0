"""Connect's incremental cooperative assignor (KIP-415).

Its leader remembers: what it gave out last, what it took away, whom it waits
for and until when. Here that memory is a value, `LeaderMemory`, given and
returned, so that a stream can keep it and a replay comes to the same end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from assignors.connect_backoff import revocation_delay_ms
from assignors.connect_protocol import (
    NO_LOAD,
    ConnectorTask,
    WorkerLoad,
    configured_tasks,
    task_key,
)
from assignors.errors import AssignorError
from assignors.java_order import (
    copied_capacity,
    hash_map_order,
    hash_order,
    string_hash,
    task_hash,
    utf16_key,
)
from assignors.model import NO_GENERATION

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderMemory:
    """What one leader carries from a rebalance to the next.

    `previous` is what it believes to be assigned, `revoked` what it took away
    last. `candidates` are workers seen empty while a delay ran, in the order
    seen. `scheduled_ms` is when the delay ends, 0 when none runs.

    Source: the fields of IncrementalCooperativeAssignor.
    """

    previous: WorkerLoad = NO_LOAD
    revoked: WorkerLoad = NO_LOAD
    previous_generation_id: int = NO_GENERATION
    previous_workers: tuple[str, ...] = ()
    candidates: tuple[str, ...] = ()
    scheduled_ms: int = 0
    delay_ms: int = 0
    revoked_last_time: bool = False
    successive_revocations: int = 0

    def to_json(self) -> dict[str, Any]:
        """Give plain JSON values; `from_json` restores an equal memory."""
        return {
            "previous": _load_to_json(self.previous),
            "revoked": _load_to_json(self.revoked),
            "previous_generation_id": self.previous_generation_id,
            "previous_workers": list(self.previous_workers),
            "candidates": list(self.candidates),
            "scheduled_ms": self.scheduled_ms,
            "delay_ms": self.delay_ms,
            "revoked_last_time": self.revoked_last_time,
            "successive_revocations": self.successive_revocations,
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> LeaderMemory:
        """Restore what `to_json` gave."""
        return cls(
            previous=_load_from_json(stored["previous"]),
            revoked=_load_from_json(stored["revoked"]),
            previous_generation_id=stored["previous_generation_id"],
            previous_workers=tuple(stored["previous_workers"]),
            candidates=tuple(stored["candidates"]),
            scheduled_ms=stored["scheduled_ms"],
            delay_ms=stored["delay_ms"],
            revoked_last_time=stored["revoked_last_time"],
            successive_revocations=stored["successive_revocations"],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectAssignment:
    """One rebalance: worker -> what it starts, what it stops, and all it has after."""

    assigned: Mapping[str, WorkerLoad]
    revoked: Mapping[str, WorkerLoad]
    total: Mapping[str, WorkerLoad]


def assign_connect_incremental(
    memory: LeaderMemory,
    reports: Mapping[str, WorkerLoad],
    task_counts: Mapping[str, int | None],
    *,
    now_ms: int,
    max_delay_ms: int,
    last_completed_generation_id: int,
    generation_id: int,
    inconsistent: Collection[str] = (),
) -> tuple[ConnectAssignment, LeaderMemory]:
    """Decide what each worker starts and stops in one rebalance.

    Args:
        memory: the leader's, from its last rebalance; a new leader's is empty.
        reports: worker -> what it says it runs, in JoinGroup order; lists in
            the order in which the wire delivers them.
        task_counts: connector -> number of configured tasks, None if unknown.
        now_ms: the leader's clock.
        max_delay_ms: scheduled.rebalance.max.delay.ms.
        last_completed_generation_id: the last generation the leader synced; if
            it is not the one it computed last, the leader forgets what it
            believed to be assigned.
        generation_id: the generation being computed.
        inconsistent: connectors whose tasks cannot be assigned now.

    Returns:
        The assignment and the leader's memory after it. `delay_ms` of the
        memory is what every worker is told to wait before it joins again.

    Raises:
        AssignorError: there is no worker.

    Source: org.apache.kafka.connect.runtime.distributed
        .IncrementalCooperativeAssignor of Kafka 4.3.1; KIP-415.
    """
    if not reports:
        message = "connect-incremental: there are no workers; at least one must be in the group"
        raise AssignorError(message)
    # Twice: the leader fills a second HashMap by walking over the first.
    workers = hash_map_order(hash_map_order(reports))
    configured = set(configured_tasks(task_counts, inconsistent))
    if memory.previous_generation_id != last_completed_generation_id:
        memory = replace(memory, previous=NO_LOAD)

    connectors = _Kind(
        _CONNECTORS,
        memory.previous.connectors,
        memory.revoked.connectors,
        set(task_counts),
        {w: reports[w].connectors for w in workers},
    )
    tasks = _Kind(
        _TASKS,
        memory.previous.tasks,
        memory.revoked.tasks,
        configured,
        {w: reports[w].tasks for w in workers},
    )
    if connectors.revocation_failed or tasks.revocation_failed:
        connectors.believe_reports()
        tasks.believe_reports()
    connectors.derive()
    tasks.derive()

    memory, lost_to_deal = _wait_for_lost(
        memory, connectors, tasks, workers, now_ms=now_ms, max_delay_ms=max_delay_ms
    )
    memory = _revoke_for_balance(memory, connectors, tasks, now_ms=now_ms, max_delay_ms=max_delay_ms)
    connectors.deal(connectors.lost if lost_to_deal else [])
    tasks.deal(tasks.lost if lost_to_deal else [])

    def together(of: str) -> dict[str, WorkerLoad]:
        by_connector, by_task = getattr(connectors, of)(), getattr(tasks, of)()
        return {w: WorkerLoad(tuple(by_connector[w]), tuple(by_task[w])) for w in reports}

    assignment = ConnectAssignment(
        assigned=together("assigned"), revoked=together("revoked"), total=together("total")
    )
    memory = replace(
        memory,
        previous=WorkerLoad(tuple(connectors.assumed()), tuple(tasks.assumed())),
        revoked=WorkerLoad(tuple(connectors.all_revoked()), tuple(tasks.all_revoked())),
        previous_generation_id=generation_id,
        previous_workers=tuple(workers),
    )
    return assignment, memory


@dataclass(frozen=True, slots=True)
class _Order(Generic[T]):
    """How Java orders connectors, or tasks."""

    compare_key: Callable[[T], Any]
    hash_of: Callable[[T], int]


_CONNECTORS: _Order[str] = _Order(utf16_key, string_hash)
_TASKS: _Order[ConnectorTask] = _Order(task_key, lambda task: task_hash(*task))


class _Kind(Generic[T]):
    """The sets of one rebalance for one kind of thing, connectors or tasks."""

    def __init__(
        self,
        order: _Order[T],
        previous: Iterable[T],
        revoked_before: Iterable[T],
        configured: set[T],
        reports: Mapping[str, tuple[T, ...]],
    ) -> None:
        self._order = order
        self._previous = set(previous)
        self._configured = configured
        self._reports = {worker: list(dict.fromkeys(r)) for worker, r in reports.items()}
        self._active = {thing for report in reports.values() for thing in report}
        self.revocation_failed = not self._active.isdisjoint(revoked_before)
        self._to_revoke: dict[str, dict[T, None]] = {}
        self.next: dict[str, dict[T, None]] = {}
        self.lost: list[T] = []
        self._created: list[T] = []
        self._deleted: set[T] = set()

    def believe_reports(self) -> None:
        """Take what workers report as given: an earlier revocation did not arrive."""
        self._previous = set(self._active)

    def derive(self) -> None:
        """Find what is deleted, lost and new, and take away what must not run."""
        self._deleted = self._previous - self._configured
        self.lost = self._sorted(self._previous - self._active - self._deleted)
        self._created = self._sorted(self._configured - self._previous - self._active)
        counts = Counter(thing for report in self._reports.values() for thing in report)
        doubled = {thing for thing, count in counts.items() if count > 1}
        for worker, report in self._reports.items():
            walked = hash_order(
                report,
                self._order.hash_of,
                self._order.compare_key,
                capacity=copied_capacity(len(report)),
            )
            stopped = [thing for thing in walked if thing in self._deleted]
            stopped += [thing for thing in walked if thing in doubled]
            self._to_revoke[worker] = dict.fromkeys(stopped)
            self.next[worker] = {t: None for t in report if t not in self._to_revoke[worker]}

    def _sorted(self, things: set[T]) -> list[T]:
        return sorted(things, key=self._order.compare_key)

    @property
    def is_configured(self) -> bool:
        return bool(self._configured)

    def excess(self) -> dict[str, list[T]]:
        """Find what each worker runs beyond its share, the first in its list first."""
        least, extras = divmod(len(self._configured), len(self.next))
        sizes = Counter(len(load) for load in self.next.values())
        if sizes[least + 1] == extras and sizes[least] + sizes[least + 1] == len(self.next):
            return {}
        excess: dict[str, list[T]] = {}
        for worker, load in self.next.items():
            if len(load) <= least:
                continue
            most = least
            if extras > 0:
                extras -= 1
                most += 1
            if len(load) > most:
                excess[worker] = list(load)[: len(load) - most]
        return excess

    def take_away(self, excess: Mapping[str, list[T]]) -> None:
        """Revoke what `excess` named."""
        for worker, things in excess.items():
            for thing in things:
                self._to_revoke[worker][thing] = None
                del self.next[worker][thing]

    def hand_lost_to(self, candidates: list[str]) -> None:
        """Deal the lost things to the workers that were seen empty."""
        for i, thing in enumerate(self.lost):
            self.next[candidates[i % len(candidates)]][thing] = None

    def deal(self, lost: list[T]) -> None:
        """Give new and lost things to the least loaded workers, in turns."""
        pending = iter([*self._created, *lost])
        order = sorted(self.next, key=lambda worker: (len(self.next[worker]), utf16_key(worker)))
        loads = [self.next[worker] for worker in order]
        thing = next(pending, None)
        while thing is not None:
            level = len(loads[0])
            for load in loads:
                if thing is None or len(load) > level:
                    break
                load[thing] = None
                thing = next(pending, None)

    def assigned(self) -> dict[str, list[T]]:
        """List what each worker starts."""
        running = {w: {t for t in r if t not in self._deleted} for w, r in self._reports.items()}
        return {w: [t for t in load if t not in running[w]] for w, load in self.next.items()}

    def revoked(self) -> dict[str, list[T]]:
        """List what each worker stops."""
        return {worker: list(things) for worker, things in self._to_revoke.items()}

    def total(self) -> dict[str, list[T]]:
        """List all that each worker has after the rebalance."""
        return {w: [t for t in load if t not in self._to_revoke[w]] for w, load in self.next.items()}

    def all_revoked(self) -> list[T]:
        """List what was taken from anybody."""
        return self._sorted({thing for things in self._to_revoke.values() for thing in things})

    def assumed(self) -> list[T]:
        """List what the leader will believe to be assigned, lost things included."""
        held = {thing for load in self.next.values() for thing in load}
        return self._sorted((held - set(self.all_revoked())) | set(self.lost))


def _wait_for_lost(
    memory: LeaderMemory,
    connectors: _Kind[str],
    tasks: _Kind[ConnectorTask],
    workers: list[str],
    *,
    now_ms: int,
    max_delay_ms: int,
) -> tuple[LeaderMemory, bool]:
    """Wait for workers that went, or stop waiting; tell whether to deal what is lost."""
    settled = replace(memory, candidates=(), scheduled_ms=0, delay_ms=0)
    if not (connectors.lost or tasks.lost or memory.revoked_last_time):
        return settled, False
    nobody_left = set(memory.previous_workers) <= set(workers)
    if (memory.scheduled_ms <= 0 and nobody_left) or max_delay_ms == 0:
        return memory, True
    if 0 < memory.scheduled_ms <= now_ms:
        candidates = [worker for worker in memory.candidates if worker in connectors.next]
        if candidates:
            connectors.hand_lost_to(candidates)
            tasks.hand_lost_to(candidates)
        return replace(settled, revoked_last_time=False), not candidates
    idle = [w for w in workers if not connectors.next[w] and not tasks.next[w]]
    seen = dict.fromkeys([*memory.candidates, *hash_map_order(idle)])
    left = memory.scheduled_ms - now_ms
    delay = min(left, max_delay_ms) if left > 0 else max_delay_ms
    waiting = replace(memory, candidates=tuple(seen), scheduled_ms=now_ms + delay, delay_ms=delay)
    return waiting, False


def _revoke_for_balance(
    memory: LeaderMemory,
    connectors: _Kind[str],
    tasks: _Kind[ConnectorTask],
    *,
    now_ms: int,
    max_delay_ms: int,
) -> LeaderMemory:
    """Take from workers with more than their share, unless it must wait."""
    if memory.delay_ms != 0:
        return replace(memory, revoked_last_time=False)
    is_idle = not any(connectors.next.values()) and not any(tasks.next.values())
    nothing_to_do = is_idle or not (connectors.is_configured or tasks.is_configured)
    excess_connectors = {} if nothing_to_do else connectors.excess()
    excess_tasks = {} if nothing_to_do else tasks.excess()
    if not excess_connectors and not excess_tasks:
        if memory.revoked_last_time:
            return replace(memory, revoked_last_time=False, successive_revocations=0)
        return memory
    if memory.revoked_last_time:
        successive = memory.successive_revocations + 1
        delay = revocation_delay_ms(successive, max_delay_ms)
        memory = replace(memory, successive_revocations=successive, delay_ms=delay)
        if delay != 0:
            return replace(memory, scheduled_ms=now_ms + delay)
    connectors.take_away(excess_connectors)
    tasks.take_away(excess_tasks)
    return replace(memory, revoked_last_time=True)


def _load_to_json(load: WorkerLoad) -> dict[str, Any]:
    return {"connectors": list(load.connectors), "tasks": [list(task) for task in load.tasks]}


def _load_from_json(stored: Mapping[str, Any]) -> WorkerLoad:
    return WorkerLoad.of(stored["connectors"], stored["tasks"])
