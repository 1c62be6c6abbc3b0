"""What the leader of an observed Connect group should have given out, and why it may have done otherwise.

The eager assignor is a function of the workers and the configuration. The incremental
one remembers, so it is run along with the group: from a worker that came while we
watched, or from a round that left nothing open, its memory follows from the records.
Where something that matters is not known (what the leader remembers, whether its
delay was over), the answer is `unknown`; what the record shows then settles which of
the possible memories go on.

Source: EagerAssignor, IncrementalCooperativeAssignor, WorkerCoordinator of Kafka 4.3.1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from assignors.connect_eager import assign_connect_eager
from streaming.groups.computed.connect_rounds import owners_of
from streaming.groups.observed.connect_evidence import (
    CONNECTOR_ITSELF,
    NO_THINGS,
    Guesses,
    Round,
    TaskCounts,
    Things,
    guess_configurations,
    load_of,
    task_counts_of,
    things_of,
)
from streaming.groups.observed.connect_leaders import (
    FRESH,
    Remembered,
    as_forgotten,
    extremes,
    learn_from_record,
    run_all,
)
from streaming.groups.observed.expected import Verdict, same_owners
from streaming.groups.observed.versions import name_some
from streaming.model import owned_pairs

if TYPE_CHECKING:
    from streaming.groups.observed.connect_evidence import JoinedWorker
    from streaming.groups.observed.connect_leaders import Result
    from streaming.groups.observed.generations import Generation
    from streaming.model import Owners

_INCREMENTAL = ("compatible", "sessioned")
_MOST_MEMORIES = 8
_MOST_TASKS = 100_000
"""A record that names task 2147483647 must not cost the memory for all below it."""
_MEMORY_MATTERS = "what the leader remembers of earlier generations is not known, and it matters here"


class ConnectExpectations:
    """What is known of an observed Connect group's leaders and its configuration.

    A worker's assignor remembers as long as its process lives, whoever leads in
    between. A worker without an entry was there before we looked.
    """

    def __init__(self, state: Mapping[str, Any] | None = None) -> None:
        """Start with nothing, or where `to_json` left off."""
        state = state or {}
        self.task_counts: TaskCounts = dict(state.get("task_counts", {}))
        self._config_offset: int | None = state.get("config_offset")
        self._is_config_certain: bool = state.get("is_config_certain", False)
        self._members: list[str] = list(state.get("members", ()))
        self._leader_id: str | None = state.get("leader_id")
        self._recorded_ms: int = state.get("recorded_ms", 0)
        self._remembered: dict[str, tuple[Remembered, ...]] = {
            worker: tuple(map(Remembered.from_json, stored)) or FRESH
            for worker, stored in state.get("remembered", {}).items()
        }

    def to_json(self) -> dict[str, Any]:
        """Give everything in JSON's own types; an empty list is a worker that remembers nothing."""
        return {
            "task_counts": self.task_counts,
            "config_offset": self._config_offset,
            "is_config_certain": self._is_config_certain,
            "members": self._members,
            "leader_id": self._leader_id,
            "recorded_ms": self._recorded_ms,
            "remembered": {
                worker: [] if known == FRESH else [r.to_json() for r in known]
                for worker, known in self._remembered.items()
            },
        }

    def judge(self, seen: Generation, *, recorded_ms: int, was_missed: bool) -> Verdict:
        """Recompute what the leader should have given, and name the likely cause of a difference.

        Args:
            seen: a generation with workers in it.
            recorded_ms: when it was recorded.
            was_missed: whether this is a first sight, comes after a gap, or is a
                generation told a second time with other content.

        Returns:
            Status equal, different, in_transition (the leader had not read the
            configuration that a worker knew) or unknown.
        """
        began_ms = self._recorded_ms if seen.began_ms is None or seen.began_ms < 0 else seen.began_ms
        self._keep(seen, was_missed=was_missed)
        things = {(connector, n) for _, connector, n in owned_pairs(seen.owners)}
        problem = _why_unreadable(seen, things)
        if problem is not None:
            self._remembered, self.task_counts, self._is_config_certain = {}, {}, False
            verdict = _unknown(problem)
        elif seen.protocol == "default":
            verdict = self._judge_eager(seen, things)
        else:
            round_ = Round(
                generation_id=seen.generation_id,
                leader_id=seen.leader_id,
                workers=seen.workers,
                earliest_ms=min(began_ms, recorded_ms),
                latest_ms=recorded_ms,
            )
            verdict = self._judge_incremental(round_, seen.owners)
        self._members = [m.member_id for m in seen.members]
        self._leader_id, self._recorded_ms = seen.leader_id, recorded_ms
        return verdict

    def _keep(self, seen: Generation, *, was_missed: bool) -> None:
        """Forget the workers that went; one that comes new, with nothing to report, remembers nothing."""
        if was_missed:
            self._remembered, self._leader_id = {}, None
            return
        fresh = {w.member_id: FRESH for w in seen.workers if w.is_new and w.member_id not in self._members}
        present = {m.member_id for m in seen.members}
        kept = {w: known for w, known in self._remembered.items() if w in present}
        self._remembered = fresh | kept

    def _judge_eager(self, seen: Generation, things: set[tuple[str, int]]) -> Verdict:
        offsets = [w.given.config_offset for w in seen.workers if w.given is not None]
        if any(w.given is not None and w.given.error for w in seen.workers):
            return _not_read(max(offsets))
        offset = max(offsets, default=None)
        if not self._knows(offset):
            self._learn_configuration(task_counts_of(things), offset, is_certain=True)
        expected = owners_of(assign_connect_eager(self.task_counts, seen.owners))
        if same_owners(expected, seen.owners):
            return Verdict(owners=expected, status="equal")
        self._is_config_certain &= things <= _configured(self.task_counts)
        return Verdict(owners=expected, status="different", note=_likely_cause(seen.workers, seen.leader_id))

    def _judge_incremental(self, seen: Round, observed: Owners) -> Verdict:
        if seen.error:
            return _not_read(seen.config_offset)
        leader_id = seen.leader_id or ""
        remembered = self._remembered.pop(leader_id, None)
        is_known = remembered is not None
        if remembered is None:
            if self._may_hide(seen):
                self._learn_configuration(task_counts_of(seen.held | seen.revoked), seen.config_offset)
                if not seen.delay_ms:
                    self._remembered[leader_id] = learn_from_record(seen)
                return _unknown(_MEMORY_MATTERS)
            remembered = extremes(seen)
        was_believed = all(r.believes(seen) for r in remembered)
        is_pinned = self._knows(seen.config_offset)
        held_back = NO_THINGS.union(*(r.lost(seen) for r in remembered)) if seen.delay_ms else NO_THINGS
        if is_pinned:
            guesses = Guesses(task_counts=(self.task_counts,), are_all=True)
        else:
            guesses = guess_configurations(seen, held_back, was_believed=was_believed)
        is_plain = guesses.are_all and not held_back and (was_believed or not seen.active)
        is_sure = is_pinned or is_plain
        is_sure &= not any(r.is_doubtful for r in remembered)
        trials = [trial for r in remembered for trial in r.trials(seen)]
        tried = run_all(seen, guesses, trials)
        fitting = [results for results in tried if all(r.is_match for r in results)]
        possible = [r for results in tried for r in results if r.is_match]
        is_sole = is_sure and sum(any(r.is_match for r in results) for results in tried) == 1
        if not is_pinned:
            task_counts = (fitting or tried)[0][0].task_counts
            is_certain = bool(fitting) and is_sole
            self._learn_configuration(task_counts, seen.config_offset, is_certain=is_certain)
        if fitting:
            verdict = Verdict(owners=observed, status="equal")
        elif possible:
            verdict = _unknown(_what_matters(possible, tried))
        elif not is_sure:
            verdict = _unknown("the configuration changed in more ways than the record can tell apart")
        elif not is_known and any(r.running != tried[0][0].running for r in tried[0]):
            verdict = _unknown(_MEMORY_MATTERS)
        else:
            possible = as_forgotten(seen, guesses, remembered) if is_known else []
            verdict = _explain(seen, tried, has_forgotten=bool(possible))
            self._is_config_certain &= seen.given <= _configured(self.task_counts)
            is_sole = bool(possible)
        # Where several configurations fit, what was taken away may have been deleted or not.
        if is_known and possible and (is_sole or (seen.delay_ms and guesses.are_all)):
            is_doubtful = bool(held_back) and not is_pinned
            self._remember(leader_id, [r.remembered(seen, is_doubtful=is_doubtful) for r in possible])
        elif verdict.status != "different" and not seen.delay_ms:
            self._remembered[leader_id] = learn_from_record(seen, remembered)
        return verdict

    def _may_hide(self, seen: Round) -> bool:
        """Say whether a leader of whom nothing is known may know of things that no worker reports.

        Not if another led the generation before: it then believes in nothing that is not reported.
        A member id that is new may be the former leader's process. What a leader gives to its
        only worker is the same either way.
        """
        another_led = self._leader_id not in (None, seen.leader_id) and (
            seen.leader_id in self._members or self._leader_id in seen.reports
        )
        return seen.delay_ms > 0 or (bool(seen.given) and len(seen.workers) > 1 and not another_led)

    def _knows(self, config_offset: int | None) -> bool:
        return self._is_config_certain and config_offset is not None and config_offset == self._config_offset

    def _learn_configuration(
        self, task_counts: TaskCounts, config_offset: int | None, *, is_certain: bool = False
    ) -> None:
        self.task_counts, self._config_offset = task_counts, config_offset
        self._is_config_certain = is_certain

    def _remember(self, leader_id: str, possible: Iterable[Remembered]) -> None:
        """Take over the memories with which a round can have gone as it did, unless they are too many."""
        waits_by_memory: dict[Remembered, set[bool | None]] = {}
        for known in possible:
            waits_by_memory.setdefault(replace(known, waits=None), set()).add(known.waits)
        if len(waits_by_memory) <= _MOST_MEMORIES:
            self._remembered[leader_id] = tuple(
                replace(known, waits=next(iter(waits)) if len(waits) == 1 else None)
                for known, waits in waits_by_memory.items()
            )


def _explain(seen: Round, tried: Sequence[Sequence[Result]], *, has_forgotten: bool) -> Verdict:
    """Show what comes closest to the record, and name the likely cause of the difference."""
    closest = min((r for results in tried for r in results), key=lambda result: result.distance(seen))
    if has_forgotten:
        note = (
            f"the leader decided as one that has forgotten generation {seen.generation_id - 1}:"
            " its own sync of it must have failed"
        )
    elif closest.running == seen.running:
        waits = f"waits {seen.delay_ms} ms where nothing is to be waited for"
        note = f"the leader {waits if seen.delay_ms else 'gives nothing out, but waits for nobody'}"
    else:
        note = _likely_cause(seen.workers, seen.leader_id)
    return Verdict(owners=_as_owners(closest.running), status="different", note=note)


def _what_matters(possible: Sequence[Result], tried: Sequence[Sequence[Result]]) -> str:
    """Name what is not known where only some of the ways explain the record."""
    explained = possible[0].task_counts
    results = next(each for each in tried if each[0].task_counts == explained)
    if len({r.trial.waits for r in results}) > 1:
        return "whether this leader waits for lost workers is not known yet, and it matters here"
    if any(len({r.trial.now_ms for r in results if r.trial.before == b}) > 1 for b in _befores(results)):
        return "whether the leader's delay was over when it decided lies within its clock's uncertainty"
    return _MEMORY_MATTERS


def _befores(results: Iterable[Result]) -> set[Remembered]:
    return {result.trial.before for result in results}


def _likely_cause(workers: Sequence[JoinedWorker], leader_id: str | None) -> str:
    """Say what most likely made a leader decide otherwise."""
    stale = [w.member_id for w in workers if w.given and w.given.leader_id not in (None, leader_id)]
    if stale:
        return f"what {name_some(stale)} got names another leader than {leader_id}"
    versions = sorted({w.said.version for w in workers})
    if len(versions) > 1:
        spoken = ", ".join(map(str, versions))
        return f"the workers speak versions {spoken} of Connect's protocol, so they are of different releases"
    empty = [w.member_id for w in workers if w.given is None]
    if empty:
        return f"{name_some(empty)} got no assignment at all: the leader did not know of it"
    return "no cause found in the record: the leader may run a release of Connect that balances otherwise"


def _why_unreadable(seen: Generation, things: set[tuple[str, int]]) -> str | None:
    """Say why a generation cannot be judged, None when it can."""
    if seen.note is not None:
        return seen.note
    if seen.protocol not in ("default", *_INCREMENTAL):
        return f"protocol {seen.protocol!r} of Connect is not known here"
    if seen.protocol != "default" and not seen.workers:
        return "the event does not say what the workers reported, on which an incremental leader decides"
    named = things.union(*(things_of(w.report) | w.revoked for w in seen.workers))
    if any(n < CONNECTOR_ITSELF for _, n in named):
        return "a task has a negative number"
    if sum(task_counts_of(named).values()) > _MOST_TASKS:
        return f"task numbers speak of more than {_MOST_TASKS} tasks"
    return None


def _configured(task_counts: TaskCounts) -> Things:
    return frozenset((c, n) for c, count in task_counts.items() for n in range(CONNECTOR_ITSELF, count))


def _as_owners(running: Mapping[str, Things]) -> Owners:
    return owners_of({worker: load_of(things) for worker, things in running.items()})


def _not_read(config_offset: int | None) -> Verdict:
    note = f"the leader had not read the configuration up to offset {config_offset}: all are to join again"
    return Verdict(owners=None, status="in_transition", note=note)


def _unknown(note: str) -> Verdict:
    return Verdict(owners=None, status="unknown", note=note)
