"""A micro-batch of the whole job, held against the floor: its input appended once (running_job.py).

The two take turns, batch by batch, and so do the cases, so that a slow minute of
the machine slows all of them. The events: at each visit one member leaves every
other group of the case, of ten members, and comes back to the rest; the next visit
does it the other way round. Rounds lie two minutes of event time apart, so the wait
for revocations that a return begins ends by its timer before the group's next event:
each batch holds one event a group, and makes one generation of half of them and two
of the other half.
"""

from __future__ import annotations

import statistics
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from bench.running_job import (
    COPY,
    MEMBERS,
    FloorTurns,
    Samples,
    Turns,
    bench_session,
    build_state,
    change_line,
    copy_groups,
    floor_query,
    job_query,
    round_ms,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench import Figure, Scale

CHANGED_GROUPS = (100, 1_000)
MANY_CHANGED = 10_000
STATE_SIZES = (10_000, 100_000)
_BUILT = 2_000
"""Groups that the job builds for the two larger cases; the rest of the state are copies of them."""
_WARM_UP_ROUNDS = 2
_FEW_ROUNDS = 4


def run(scale: Scale, say: Callable[[str], None]) -> list[Figure]:
    """Measure every case of CHANGED_GROUPS over one state.

    Args:
        scale: at least as many groups of state as the cases change together.
        say: hears how far it got.
    """
    needed = sum(CHANGED_GROUPS)
    if scale.state_groups < needed:
        raise ValueError(f"state_groups is {scale.state_groups}; the cases change {needed} groups")
    samples = {case: Samples() for case in CHANGED_GROUPS}
    with bench_session() as (spark, root):
        say(f"micro-batch: building the state: {scale.state_groups} groups of {MEMBERS}")
        build_state(spark, root, scale.state_groups)
        with floor_query(spark, root) as its_query, job_query(spark, root) as (job, query):
            floor, ours = FloorTurns(root, its_query), Turns(root, job, query)
            for number in range(_WARM_UP_ROUNDS + scale.rounds):
                say(f"micro-batch: round {number + 1} of {_WARM_UP_ROUNDS + scale.rounds}")
                first = 0
                for case, found in samples.items():
                    groups = range(first, first + case)
                    first += case
                    _turn(found, floor, ours, number, groups, number, f"{number:06d}-{case:06d}.jsonl")
    return [found.figure("micro-batch", f"{case} changed groups") for case, found in samples.items()]


def run_many(scale: Scale, say: Callable[[str], None]) -> list[Figure]:
    """Change every group of a state of 10,000 in one batch."""
    found = Samples()
    rounds = min(scale.rounds, _FEW_ROUNDS)
    with bench_session() as (spark, root):
        say(f"many-changed: building the state: {MANY_CHANGED} groups of {MEMBERS}")
        build_state(spark, root, _BUILT)
        copy_groups(root, range(1, MANY_CHANGED // _BUILT))
        groups = [_group_at(place) for place in range(MANY_CHANGED)]
        with floor_query(spark, root) as its_query, job_query(spark, root) as (job, query):
            floor, ours = FloorTurns(root, its_query), Turns(root, job, query)
            for number in range(_WARM_UP_ROUNDS + rounds):
                say(f"many-changed: round {number + 1} of {_WARM_UP_ROUNDS + rounds}")
                _turn(found, floor, ours, number, groups, number, f"{number:06d}.jsonl")
    return [found.figure("many-changed", f"{MANY_CHANGED} changed groups of as many")]


def run_state_sizes(scale: Scale, say: Callable[[str], None]) -> list[Figure]:
    """Change 1,000 groups of a small state and of a large one, whose other groups nothing touches.

    Two jobs take turns. Each round changes groups that have not changed for ten rounds, so
    what the job keeps at hand of the latest is of no use.
    """
    changed = CHANGED_GROUPS[-1]
    samples = {size: Samples() for size in STATE_SIZES}
    with bench_session() as (spark, root), ExitStack() as stack:
        say(f"state-size: building the state: {' and '.join(map(str, STATE_SIZES))} groups of {MEMBERS}")
        jobs = {}
        for size in STATE_SIZES:
            # A checkpoint has Spark's id of its query, so one state cannot be copied for both.
            build_state(spark, root / str(size), _BUILT)
            copy_groups(root / str(size), range(1, size // _BUILT))
            jobs[size] = Turns(root / str(size), *stack.enter_context(job_query(spark, root / str(size))))
        floor = FloorTurns(root, stack.enter_context(floor_query(spark, root)))
        for number in range(_WARM_UP_ROUNDS + scale.rounds):
            say(f"state-size: round {number + 1} of {_WARM_UP_ROUNDS + scale.rounds}")
            first = number * changed
            groups = [_group_at(place % STATE_SIZES[0]) for place in range(first, first + changed)]
            for size, found in samples.items():
                name = f"{number:06d}-{size:06d}.jsonl"
                _turn(found, floor, jobs[size], number, groups, first // STATE_SIZES[0], name)
    small, large = (
        samples[size].figure("state-size", f"{changed} changed of {size} groups") for size in STATE_SIZES
    )
    against = f"the same batch over {STATE_SIZES[0]} groups"
    means = {size: statistics.mean(found.job) for size, found in samples.items()}
    of_state = replace(
        large,
        case=f"{large.case}, by the smaller state",
        against=against,
        against_seconds=small.seconds,
        details={f"mean of {size}": mean for size, mean in means.items()},
    )
    return [small, large, of_state]


def _group_at(place: int) -> int:
    """Give the group at a place of the state: the built ones first, then one copy of each, and so on."""
    return place // _BUILT * COPY + place % _BUILT


def _turn(
    found: Samples,
    floor: FloorTurns,
    ours: Turns,
    round_number: int,
    groups: range | list[int],
    visit: int,
    name: str,
) -> None:
    """Let the floor and the job take the same lines; the first rounds only warm up."""
    lines = [change_line(group, visit, round_ms(round_number)) for group in groups]
    floor_s = floor.take(name, lines)
    job_s, stages = ours.take(name, lines)
    if round_number >= _WARM_UP_ROUNDS:
        found.floor.append(floor_s)
        found.job.append(job_s)
        found.stages.append(stages)
