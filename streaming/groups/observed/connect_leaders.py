"""What the leader of an observed Connect group may remember, and what a round of it then comes to.

The incremental assignor is run with each memory that is possible. How long a leader
waits, and until when, the records say; what they leave open is by how much its clock
differed from theirs, and whether it waits for lost workers at all.

Source: IncrementalCooperativeAssignor of Kafka 4.3.1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from assignors.connect_incremental import LeaderMemory, assign_connect_incremental
from streaming.groups.observed.connect_evidence import NO_THINGS, load_of, things_of

if TYPE_CHECKING:
    from streaming.groups.observed.connect_evidence import Guesses, Round, TaskCounts, Things

_SOME_DELAY_MS = 300_000
"""Any greatest delay but 0: the records say how long a wait is, its length decides nothing else."""
_NO_GENERATION = -2
"""Matches no completed generation, not even a new worker's -1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """One memory that a leader may have.

    Its delay ends, by the clock of the records, from `delay_ends_from_ms` to
    `memory.scheduled_ms`. `waits` is False for a leader whose greatest delay is
    0, None while that is not known. `is_doubtful` is set while something that is
    held back may have been deleted, and so no longer be remembered.
    """

    memory: LeaderMemory = field(default_factory=LeaderMemory)
    delay_ends_from_ms: int = 0
    waits: bool | None = None
    is_doubtful: bool = False

    def to_json(self) -> list[Any]:
        """Give JSON's own types; `from_json` restores an equal value."""
        return [self.memory.to_json(), self.delay_ends_from_ms, self.waits, self.is_doubtful]

    @classmethod
    def from_json(cls, stored: Sequence[Any]) -> Remembered:
        """Restore what `to_json` gave."""
        memory, from_ms, waits, is_doubtful = stored
        return cls(
            memory=LeaderMemory.from_json(memory),
            delay_ends_from_ms=from_ms,
            waits=waits,
            is_doubtful=is_doubtful,
        )

    def believes(self, seen: Round) -> bool:
        """Say whether the leader knew of all that the workers reported."""
        is_current = self.memory.previous_generation_id == seen.generation_id - 1
        return is_current and seen.active <= things_of(self.memory.previous)

    def lost(self, seen: Round) -> Things:
        """Give what the leader misses among the reports; one that was not last to lead misses nothing."""
        is_current = self.memory.previous_generation_id == seen.generation_id - 1
        return things_of(self.memory.previous) - seen.active if is_current else NO_THINGS

    def trials(self, seen: Round) -> Iterator[Trial]:
        """Walk the ways in which the round may have gone with this memory: delay over, not over, no delay."""
        memory, ends_ms = self.memory, self.memory.scheduled_ms
        clocks = [seen.latest_ms]
        if ends_ms > 0:
            clocks = [ends_ms] if seen.latest_ms >= self.delay_ends_from_ms else []
            clocks += [ends_ms - max(seen.delay_ms, 1)] if seen.earliest_ms < ends_ms else []
        matters = memory.revoked_last_time or bool(self.lost(seen))
        if seen.delay_ms > 0:
            waits = [True]
        elif self.waits is None and matters:
            waits = [True, False]
        else:
            waits = [self.waits is not False]
        for now_ms in clocks:
            for does_wait in waits:
                yield Trial(before=self, now_ms=now_ms, waits=does_wait, is_told=matters or seen.delay_ms > 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One way in which a round may have gone; `is_told` where its end tells whether the leader waits."""

    before: Remembered
    now_ms: int
    waits: bool
    is_told: bool

    def run(self, seen: Round, task_counts: TaskCounts) -> Result:
        """Let the leader decide with this configuration."""
        given, memory = assign_connect_incremental(
            self.before.memory,
            seen.reports,
            task_counts,
            now_ms=self.now_ms,
            max_delay_ms=_SOME_DELAY_MS if self.waits else 0,
            last_completed_generation_id=seen.generation_id - 1,
            generation_id=seen.generation_id,
        )
        running = {
            w: (things_of(load) - things_of(given.revoked[w])) | things_of(given.assigned[w])
            for w, load in seen.reports.items()
        }
        return Result(
            trial=self,
            task_counts=task_counts,
            running=running,
            memory=memory,
            is_match=running == seen.running and (memory.delay_ms > 0) == (seen.delay_ms > 0),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What one trial came to; `is_match` where the record says the same."""

    trial: Trial
    task_counts: TaskCounts
    running: Mapping[str, Things]
    memory: LeaderMemory
    is_match: bool

    def remembered(self, seen: Round, *, is_doubtful: bool) -> Remembered:
        """Give the leader's memory after a round that went so; a doubt lasts as long as the delay."""
        before = self.trial.before
        waits = self.trial.waits if self.trial.is_told else before.waits
        memory = replace(self.memory, delay_ms=seen.delay_ms, successive_revocations=0)
        if not seen.delay_ms:
            return Remembered(memory=memory, waits=waits)
        from_ms, until_ms = seen.earliest_ms + seen.delay_ms, seen.latest_ms + seen.delay_ms
        goes_on = self.trial.now_ms < before.memory.scheduled_ms
        if goes_on and before.delay_ends_from_ms <= until_ms and from_ms <= before.memory.scheduled_ms:
            from_ms = max(from_ms, before.delay_ends_from_ms)
            until_ms = min(until_ms, before.memory.scheduled_ms)
        return Remembered(
            memory=replace(memory, scheduled_ms=until_ms),
            delay_ends_from_ms=from_ms,
            waits=waits,
            is_doubtful=is_doubtful or before.is_doubtful,
        )

    def distance(self, seen: Round) -> int:
        """Count how many places differ from the record's."""
        return sum(len(things ^ seen.running[w]) for w, things in self.running.items())


FRESH = (Remembered(),)
"""The memory of a worker whose process has never led."""


def learn_from_record(seen: Round, before: Iterable[Remembered] = ()) -> tuple[Remembered, ...]:
    """Read a leader's memory off a round that holds nothing back, one without a delay.

    All that the leader then believes in runs, and nobody is waited for. Only whether
    it was for balance that it took something away may stay open. Whether it waits
    for lost workers is what all its possible memories `before` said.
    """
    told = {known.waits for known in before}
    does_wait = told.pop() if len(told) == 1 else None
    memory = LeaderMemory(
        previous=load_of(seen.held),
        revoked=load_of(seen.revoked),
        previous_generation_id=seen.generation_id,
        previous_workers=tuple(seen.reports),
    )
    after = [memory, replace(memory, revoked_last_time=True)] if seen.revoked else [memory]
    return tuple(Remembered(memory=each, waits=does_wait) for each in after)


def extremes(seen: Round) -> tuple[Remembered, ...]:
    """Give the two ends of what a leader may remember that holds nothing back: nothing, and all that runs."""
    nothing = LeaderMemory(
        previous_generation_id=seen.generation_id - 1, previous_workers=tuple(seen.reports)
    )
    everything = replace(nothing, previous=load_of(seen.active))
    return Remembered(memory=nothing), Remembered(memory=everything)


def run_all(seen: Round, guesses: Guesses, trials: Sequence[Trial]) -> list[list[Result]]:
    """Run each trial with each configuration, until two configurations explain the record."""
    tried: list[list[Result]] = []
    fitting = 0
    for task_counts in guesses.task_counts:
        tried.append([trial.run(seen, task_counts) for trial in trials])
        fitting += all(result.is_match for result in tried[-1])
        if fitting > 1:
            break
    return tried


def as_forgotten(seen: Round, guesses: Guesses, remembered: Iterable[Remembered]) -> list[Result]:
    """Find how the round can have gone if the leader failed to sync the generation before."""
    results = []
    for known in remembered:
        memory = replace(known.memory, previous_generation_id=_NO_GENERATION)
        trials = list(replace(known, memory=memory).trials(seen))
        results += [r for tried in run_all(seen, guesses, trials) for r in tried if r.is_match]
    return results
