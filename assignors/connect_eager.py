"""Connect's eager assignor: every change stops everything and deals afresh."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import cycle

from assignors.connect_protocol import ConnectorTask, WorkerLoad, configured_tasks
from assignors.errors import AssignorError
from assignors.java_order import utf16_sorted


def assign_connect_eager(
    task_counts: Mapping[str, int | None],
    workers: Iterable[str],
    *,
    inconsistent: Collection[str] = (),
) -> dict[str, WorkerLoad]:
    """Deal connectors to the sorted workers in a circle, then go on with the tasks.

    Args:
        task_counts: connector -> number of tasks, None where unknown.
        workers: worker ids; their order decides only the order of the result.
        inconsistent: connectors whose tasks cannot be assigned now.

    Returns:
        worker -> what it is sent, in the order in which the wire carries it.

    Raises:
        AssignorError: there is no worker.

    Source: org.apache.kafka.connect.runtime.distributed.EagerAssignor.

    >>> load = assign_connect_eager({"c": 2}, ["w1", "w0"])
    >>> load["w0"].connectors, load["w0"].tasks, load["w1"].tasks
    (('c',), (ConnectorTask(connector='c', task=1),), (ConnectorTask(connector='c', task=0),))
    """
    named = list(workers)
    if not named:
        message = "connect-eager: there are no workers; at least one must be in the group"
        raise AssignorError(message)
    connectors: dict[str, list[str]] = {worker: [] for worker in named}
    tasks: dict[str, list[ConnectorTask]] = {worker: [] for worker in named}
    turn = cycle(utf16_sorted(connectors))
    for connector in utf16_sorted(task_counts):
        connectors[next(turn)].append(connector)
    for task in configured_tasks(task_counts, inconsistent):
        tasks[next(turn)].append(task)
    return {
        worker: WorkerLoad(tuple(connectors[worker]), tuple(tasks[worker])).as_sent() for worker in connectors
    }
