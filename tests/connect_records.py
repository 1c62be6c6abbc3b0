"""Records of Connect groups, made up by hand or by a cluster that runs our own assignor in every worker."""

from __future__ import annotations

import base64
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from assignors.connect_incremental import LeaderMemory, assign_connect_incremental
from assignors.connect_protocol import NO_LOAD, WorkerLoad
from streaming.groups.computed.connect_rounds import owners_of
from tests.observed_inputs import classic

if TYPE_CHECKING:
    from streaming.model import Input

DELAY_MS = 300_000
START_MS = 1_795_225_200_000
Lists = Mapping[str, Sequence[int]]


def text(value: str | None) -> bytes:
    """Write a nullable string."""
    return struct.pack(">h", -1) if value is None else struct.pack(">h", len(value)) + value.encode()


def lists_of(load: WorkerLoad) -> dict[str, list[int]]:
    """Group a load by connector as Connect's wire does: connectors first, then the tasks."""
    lists: dict[str, list[int]] = {connector: [-1] for connector in load.connectors}
    for connector, number in load.tasks:
        lists.setdefault(connector, []).append(number)
    return lists


def written(lists: Lists) -> bytes:
    """Write connectors and their tasks."""
    entries = (text(c) + struct.pack(f">i{len(ns)}i", len(ns), *ns) for c, ns in lists.items())
    return struct.pack(">i", len(lists)) + b"".join(entries)


def assignment(
    leader: str | None, offset: int, assigned: Lists, revoked: Lists, delay_ms: int, *, error: int = 0
) -> bytes:
    """Write an assignment of version 2."""
    head = struct.pack(">hh", 2, error) + text(leader) + text("url") + struct.pack(">q", offset)
    return head + written(assigned) + written(revoked) + struct.pack(">i", delay_ms)


@dataclass
class Sent:
    """What one worker said and got in one generation; `report` is None for a new process."""

    report: dict[str, list[int]] | None
    assigned: dict[str, list[int]] = field(default_factory=dict)
    revoked: dict[str, list[int]] = field(default_factory=dict)


def record(
    generation_id: int,
    workers: Mapping[str, Sent],
    *,
    time_ms: int,
    leader: str | None = None,
    offset: int = 1,
    delay_ms: int = 0,
    error: int = 0,
    began_ms: int | None = None,
    protocol: str = "sessioned",
) -> Input:
    """Make the record of a generation; the first worker leads unless another is named."""
    leader = leader or next(iter(workers), None)
    members = []
    for worker, sent in workers.items():
        said = struct.pack(">h", 2) + text("url") + struct.pack(">q", offset)
        allocation = None if sent.report is None else assignment(leader, offset, sent.report, {}, 0)
        said += (
            struct.pack(">i", -1) if allocation is None else struct.pack(">i", len(allocation)) + allocation
        )
        given_bytes = assignment(leader, offset, sent.assigned, sent.revoked, delay_ms, error=error)
        if protocol == "default":
            said = struct.pack(">h", 0) + text("url") + struct.pack(">q", offset)
            given_bytes = (
                struct.pack(">hh", 0, error) + text(leader) + text("url") + struct.pack(">q", offset)
            )
            given_bytes += written(sent.assigned)
        members.append(
            {
                "memberId": worker,
                "groupInstanceId": None,
                "clientId": "w",
                "clientHost": "/h",
                "rebalanceTimeout": 1,
                "sessionTimeout": 1,
                "subscription": base64.b64encode(said).decode(),
                "assignment": base64.b64encode(given_bytes).decode(),
            }
        )
    value = {
        "protocolType": "connect" if generation_id else "",
        "generation": generation_id,
        "protocol": protocol if members else None,
        "leader": leader,
        "currentStateTimestamp": time_ms if began_ms is None else began_ms,
        "members": members,
    }
    return classic("g", generation_id, time_ms, value)


class Cluster:
    """A Connect cluster that runs our own assignor in every worker and writes what a broker would."""

    def __init__(self, max_delay_ms: int = DELAY_MS) -> None:
        """Start with the making of the group."""
        self.max_delay_ms = max_delay_ms
        self.now_ms = START_MS
        self.generation_id = 0
        self.config: dict[str, int] = {}
        self.offset = 0
        self.memories: dict[str, LeaderMemory] = {}
        self.running: dict[str, WorkerLoad | None] = {}
        self.leader: str | None = None
        self.told: list[dict[str, Any]] = [{"workers": {}, "time_ms": self.now_ms}]
        self.owners: list[Any] = [{}]

    def configure(self, connector: str, tasks: int | None) -> None:
        """Create, change or (None) delete a connector; the workers hear of it in the next rebalance."""
        if tasks is None:
            self.config.pop(connector, None)
        else:
            self.config[connector] = tasks
        self.offset += 1

    def join(self, worker: str) -> None:
        """Start a worker."""
        self.running[worker] = None
        self.memories[worker] = LeaderMemory()

    def leave(self, worker: str) -> None:
        """Stop a worker."""
        del self.running[worker], self.memories[worker]

    def rebalance(self, after_ms: int = 1000, *, jitter_ms: int = 0, leader_forgets: bool = False) -> bool:
        """Hold a rebalance; says whether another must follow at once."""
        self.now_ms += after_ms
        self.generation_id += 1
        if not self.running:
            self.leader = None
            self.told.append({"workers": {}, "time_ms": self.now_ms})
            self.owners.append({})
            return False
        if self.leader not in self.running:
            self.leader = next(iter(self.running))
        reports = {w: (load or NO_LOAD).as_sent() for w, load in self.running.items()}
        decided, memory = assign_connect_incremental(
            self.memories[self.leader],
            reports,
            self.config,
            now_ms=self.now_ms,
            max_delay_ms=self.max_delay_ms,
            last_completed_generation_id=-1 if leader_forgets else self.generation_id - 1,
            generation_id=self.generation_id,
        )
        self.memories[self.leader] = memory
        sent = {
            w: Sent(
                report=None if load is None else lists_of(reports[w]),
                assigned=lists_of(decided.assigned[w]),
                revoked=lists_of(decided.revoked[w]),
            )
            for w, load in self.running.items()
        }
        self.told.append(
            {
                "workers": sent,
                "time_ms": self.now_ms + jitter_ms,
                "began_ms": self.now_ms - jitter_ms,
                "leader": self.leader,
                "offset": self.offset,
                "delay_ms": memory.delay_ms,
            }
        )
        self.running = {
            w: (load or NO_LOAD).after(decided.assigned[w], decided.revoked[w])
            for w, load in self.running.items()
        }
        self.owners.append(owners_of({w: load or NO_LOAD for w, load in self.running.items()}))
        return any(load.connectors or load.tasks for load in decided.revoked.values())

    def settle(self) -> None:
        """Rebalance until nothing is left to stop."""
        while self.rebalance():
            pass

    @property
    def records(self) -> list[Input]:
        """The records of all generations, in order."""
        return [record(generation_id, **told) for generation_id, told in enumerate(self.told)]

    @property
    def ends_ms(self) -> int:
        """How long the leader's delay still takes, 0 when none runs."""
        memory = self.memories.get(self.leader or "", LeaderMemory())
        return max(memory.scheduled_ms - self.now_ms, 0)
