"""What one record tells of a round of Connect's leader: what went in, what came out, what was configured.

The configuration lies in another topic. What is handed out shows it all the same: in
each round everything configured is dealt, kept, taken away to be dealt in the next
round, or held back while a delay runs. What is in none of these was deleted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, islice, product
from typing import TYPE_CHECKING

from assignors.connect_protocol import WorkerLoad

if TYPE_CHECKING:
    from streaming.events.client_protocols import ConnectAssignment, ConnectMetadata, TopicPartitionLists

Thing = tuple[str, int]
"""(connector, task number); -1 is the connector itself."""
Things = frozenset[Thing]
TaskCounts = dict[str, int]
"""connector -> its number of tasks."""

CONNECTOR_ITSELF = -1
NO_THINGS: Things = frozenset()

_MOST_TRIED = 16
"""How many configurations are tried where one changed while things were taken away. Each
costs a whole assignment; rarely is more than one connector deleted in one round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedWorker:
    """One worker of one observed generation: what it said as it joined, and what it was given."""

    member_id: str
    said: ConnectMetadata
    given: ConnectAssignment | None

    @property
    def is_new(self) -> bool:
        """Say whether its process has never completed a rebalance: it speaks of no allocation at all.

        Under the eager protocol nobody does, so there it cannot be told.

        Source: WorkerCoordinator.metadata; IncrementalCooperativeConnectProtocol.serializeAssignment.
        """
        return self.said.version > 0 and self.said.allocation is None

    @property
    def report(self) -> WorkerLoad:
        """What it says it runs, in the order of the wire."""
        return _load(self.said.allocation.assigned if self.said.allocation else ())

    @property
    def started(self) -> Things:
        """What it is to start."""
        return things_of(_load(self.given.assigned)) if self.given else NO_THINGS

    @property
    def revoked(self) -> Things:
        """What it is to stop."""
        return things_of(_load(self.given.revoked)) if self.given else NO_THINGS


@dataclass(frozen=True, kw_only=True)
class Round:
    """One generation under an incremental protocol.

    `workers` stand in the order of the record. The leader's clock, when it
    decided, showed something from `earliest_ms` to `latest_ms`: from when the
    coordinator asked for the assignment to when it recorded it.
    """

    generation_id: int
    leader_id: str | None
    workers: tuple[JoinedWorker, ...]
    earliest_ms: int
    latest_ms: int

    @cached_property
    def reports(self) -> dict[str, WorkerLoad]:
        """Give worker -> what it says it runs."""
        return {w.member_id: w.report for w in self.workers}

    @cached_property
    def active(self) -> Things:
        """Everything that some worker says it runs."""
        return frozenset(thing for load in self.reports.values() for thing in things_of(load))

    @cached_property
    def given(self) -> Things:
        """Everything that is started now."""
        return NO_THINGS.union(*(worker.started for worker in self.workers))

    @cached_property
    def revoked(self) -> Things:
        """Everything that is stopped now."""
        return NO_THINGS.union(*(worker.revoked for worker in self.workers))

    @cached_property
    def running(self) -> dict[str, Things]:
        """Give worker -> what it runs after the round."""
        return {w.member_id: (things_of(w.report) - w.revoked) | w.started for w in self.workers}

    @cached_property
    def held(self) -> Things:
        """Everything that runs after the round."""
        return NO_THINGS.union(*self.running.values())

    @property
    def delay_ms(self) -> int:
        """How long the workers are told to wait before they join again, 0 when they need not."""
        return max((w.given.delay_ms for w in self.workers if w.given), default=0)

    @property
    def error(self) -> int:
        """The leader's error code, 0 for none."""
        return max((w.given.error for w in self.workers if w.given), default=0)

    @property
    def config_offset(self) -> int | None:
        """How far the leader had read the configuration, None where no worker was told."""
        return max((w.given.config_offset for w in self.workers if w.given), default=None)


def things_of(load: WorkerLoad) -> Things:
    """Give a load's connectors and tasks as one set."""
    return frozenset([(c, CONNECTOR_ITSELF) for c in load.connectors] + [(t, n) for t, n in load.tasks])


def load_of(things: Iterable[Thing]) -> WorkerLoad:
    """Give a set of things as a load, sorted."""
    ordered = sorted(things)
    return WorkerLoad.of(
        [c for c, n in ordered if n == CONNECTOR_ITSELF], [t for t in ordered if t[1] != CONNECTOR_ITSELF]
    )


def task_counts_of(things: Iterable[Thing]) -> TaskCounts:
    """Give the smallest configuration that has all these things.

    Tasks are numbered from 0, and a task's connector is configured too, so what is
    missing in between is configured and runs nowhere.

    >>> task_counts_of({("a", 1), ("b", -1)})
    {'a': 2, 'b': 0}
    """
    counts: TaskCounts = {}
    for connector, number in sorted(things):
        counts[connector] = max(counts.get(connector, 0), number + 1)
    return counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Guesses:
    """Configurations that may have been the leader's; `are_all` is False where more were possible."""

    task_counts: tuple[TaskCounts, ...]
    are_all: bool


def guess_configurations(seen: Round, held_back: Collection[Thing], *, was_believed: bool) -> Guesses:
    """List what may have been configured in this round, the likeliest first.

    Args:
        seen: the round.
        held_back: what the leader may keep for a lost worker.
        was_believed: whether the leader knew all that workers reported. If not it
            does not stop what was deleted, so that only what it gives out is surely configured.

    Returns:
        First that everything seen is configured; then that what was taken away was
        deleted, in part or whole. What is held back and was deleted meanwhile moves
        nothing now, so it counts as configured.
    """
    everything = seen.held | seen.revoked | frozenset(held_back)
    numbers: dict[str, set[int]] = {connector: set() for connector, _ in sorted(everything)}
    for connector, number in everything:
        numbers[connector].add(number)
    # Connectors lose their last tasks, or all: what stands before all that is stopped may still be there.
    stopped: dict[str, int] = {}
    for connector, number in seen.revoked:
        stopped[connector] = min(number, stopped.get(connector, number))
    sure = set(seen.held if was_believed else seen.given)
    sure |= {(c, n) for c, n in held_back if n < stopped.get(c, n + 1) and _is_complete(numbers[c])}
    kept: dict[str, set[int]] = {connector: set() for connector in numbers}
    for connector, number in sure:
        kept[connector].add(number)
    options = {c: _counts(numbers[c], kept[c], was_believed=was_believed) for c in numbers}
    found = list(islice(_combine(options), _MOST_TRIED + 1))
    distinct: list[TaskCounts] = []
    for task_counts in found[:_MOST_TRIED]:
        if task_counts not in distinct:
            distinct.append(task_counts)
    return Guesses(task_counts=tuple(distinct), are_all=len(found) <= _MOST_TRIED)


def _counts(numbers: set[int], kept: set[int], *, was_believed: bool) -> list[int | None]:
    """List the numbers of tasks that a connector may have: all seen, None for deleted, fewer."""
    most = max(numbers) + 1
    if not was_believed and _is_complete(numbers):
        return [most]
    least = max(kept, default=CONNECTOR_ITSELF) + 1
    return [most, *([] if kept else [None]), *range(least, most)[:_MOST_TRIED]]


def _is_complete(numbers: set[int]) -> bool:
    """Say whether the connector itself and all tasks up to the last are there."""
    return len(numbers) == max(numbers) + 2


def _combine(options: Mapping[str, list[int | None]]) -> Iterator[TaskCounts]:
    """Walk the configurations: all as seen, all as little as can be, then ever more that differ."""
    first = {connector: counts[0] for connector, counts in options.items()}
    doubtful = [connector for connector, counts in options.items() if len(counts) > 1]
    yield _known(first)
    if len(doubtful) > 1:
        yield _known(first | {connector: options[connector][1] for connector in doubtful})
    for size in range(1, len(doubtful) + 1):
        for chosen in combinations(doubtful, size):
            for counts in product(*(options[connector][1:] for connector in chosen)):
                yield _known(first | dict(zip(chosen, counts, strict=True)))


def _known(counts: Mapping[str, int | None]) -> TaskCounts:
    return {connector: count for connector, count in counts.items() if count is not None}


def _load(lists: TopicPartitionLists) -> WorkerLoad:
    return WorkerLoad.of(
        [connector for connector, tasks in lists if CONNECTOR_ITSELF in tasks],
        [(connector, n) for connector, tasks in lists for n in tasks if n != CONNECTOR_ITSELF],
    )
