"""What Kafka Connect's workers run, report and receive.

Connect assigns two kinds of thing: connectors, and the tasks of connectors. The
protocol that carries them groups tasks by connector, so a list comes out of it
in another order than it went in; which item a leader takes away from a worker
hangs on that order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from assignors.java_order import copied_capacity, hash_order, string_hash, utf16_key, utf16_sorted


class ConnectorTask(NamedTuple):
    """One task of one connector (ConnectorTaskId)."""

    connector: str
    task: int


@dataclass(frozen=True, slots=True)
class WorkerLoad:
    """The connectors and tasks of one worker, in the order of its own lists."""

    connectors: tuple[str, ...] = ()
    tasks: tuple[ConnectorTask, ...] = ()

    @classmethod
    def of(cls, connectors: Iterable[str], tasks: Iterable[tuple[str, int]]) -> WorkerLoad:
        """Build from any iterables; a task is (connector, number)."""
        return cls(tuple(connectors), tuple(ConnectorTask(*task) for task in tasks))

    def as_sent(self) -> WorkerLoad:
        """Give the lists as they come out of Connect's wire format.

        Source: ConnectProtocol.Assignment.asMap and ExtendedAssignment.fromStruct.

        >>> WorkerLoad.of(["b", "a"], [("z", 1), ("a", 0), ("z", 0)]).as_sent()
        WorkerLoad(connectors=('a', 'b'), tasks=(ConnectorTask(connector='a', task=0), \
ConnectorTask(connector='z', task=1), ConnectorTask(connector='z', task=0)))
        """
        tasks_by_connector: dict[str, list[ConnectorTask]] = {}
        connectors = copied_set_order(self.connectors)
        for connector in connectors:
            tasks_by_connector[connector] = []
        for task in self.tasks:
            tasks_by_connector.setdefault(task.connector, []).append(task)
        grouped = (task for tasks in tasks_by_connector.values() for task in tasks)
        return WorkerLoad(tuple(connectors), tuple(grouped))

    def after(self, assigned: WorkerLoad, revoked: WorkerLoad) -> WorkerLoad:
        """Give what a worker runs after a sync: what is new first, then what it keeps.

        Source: WorkerCoordinator.onJoinComplete.
        """
        received = assigned.as_sent()
        lost_connectors, lost_tasks = set(revoked.connectors), set(revoked.tasks)
        return WorkerLoad(
            (*received.connectors, *(c for c in self.connectors if c not in lost_connectors)),
            (*received.tasks, *(t for t in self.tasks if t not in lost_tasks)),
        )


NO_LOAD = WorkerLoad()
"""What a worker runs that has just come."""


def configured_tasks(
    task_counts: Mapping[str, int | None], inconsistent: Collection[str] = ()
) -> list[ConnectorTask]:
    """List the tasks that a configuration asks for, by connector, then number.

    Args:
        task_counts: connector -> number of tasks; None while its task
            configurations are not known.
        inconsistent: connectors whose task configurations are incomplete; they
            count as having none.

    Source: ClusterConfigState.tasks.
    """
    return [
        ConnectorTask(connector, number)
        for connector in utf16_sorted(task_counts)
        if connector not in inconsistent
        for number in range(task_counts[connector] or 0)
    ]


def task_key(task: ConnectorTask) -> tuple[bytes, int]:
    """Give a key that sorts like ConnectorTaskId.compareTo."""
    return (utf16_key(task.connector), task.task)


def copied_set_order(connectors: Collection[str]) -> list[str]:
    """Order names as `new HashSet<>(collection)` iterates over them."""
    distinct = list(dict.fromkeys(connectors))
    return hash_order(distinct, string_hash, utf16_key, capacity=copied_capacity(len(connectors)))
