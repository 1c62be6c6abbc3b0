"""One event about a topic that 5,000 groups read: what it costs, and what finding those groups costs.

Half of them name the topic, the rest read it by a pattern. Of the others, which stand beside them in
the state, half have a pattern too, each its own, which does not match, and half name other topics. The
topic grows by a partition each round, so that every group that reads it makes a generation; the job has
to compute these groups and no more.

Finding is measured by itself over the larger state, against reading the states of all its groups.
"""

from __future__ import annotations

import statistics
import time
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from bench import Figure, Scale
from bench.running_job import (
    MEMBERS,
    PARTITIONS,
    FloorTurns,
    Samples,
    Turns,
    bench_session,
    build_state,
    copy_groups,
    event_line,
    floor_query,
    group_id_of,
    job_query,
    round_ms,
)
from streaming.tables.delta import Tables
from streaming.tables.log import Log, Tail

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    from streaming.tables.log import GroupKey

READERS = 5_000
STATE_SIZES = (10_000, 100_000)
_BUILT = 1_000
"""Groups that the job builds, every other one a reader; the rest of the state are copies of them."""
_TOPIC = "busy"
_OTHERS = 20
_WARM_UP_ROUNDS = 1
_MOST_ROUNDS = 5


def run(scale: Scale, say: Callable[[str], None]) -> list[Figure]:
    """Let the topic grow over both states by turns, then find its readers in the larger one."""
    samples = {size: Samples() for size in STATE_SIZES}
    rounds = min(scale.rounds, _MOST_ROUNDS)
    with bench_session() as (spark, root):
        small, large = STATE_SIZES
        say(f"topic-event: building the state: {small} and {large} groups of {MEMBERS}")
        topics = [_TOPIC, *(f"topic-{number}" for number in range(_OTHERS))]
        copies = small // _BUILT
        for size in STATE_SIZES:
            # A checkpoint has Spark's id of its query, so one state cannot be copied for both.
            build_state(spark, root / str(size), _BUILT, topics, _reads)
            copy_groups(root / str(size), range(1, copies))
        more = range(copies, copies + (large - small) * 2 // _BUILT)
        copy_groups(root / str(large), more, lambda group: not _is_reader(group))
        with ExitStack() as stack:
            jobs = {
                size: Turns(root / str(size), *stack.enter_context(job_query(spark, root / str(size))))
                for size in STATE_SIZES
            }
            floor = FloorTurns(root, stack.enter_context(floor_query(spark, root)))
            for number in range(_WARM_UP_ROUNDS + rounds):
                say(f"topic-event: round {number + 1} of {_WARM_UP_ROUNDS + rounds}")
                count = PARTITIONS + 1 + number
                line = event_line("topic_changed", round_ms(number), topic=_TOPIC, partitions=count)
                for size, found in samples.items():
                    name = f"{number:06d}-{size:06d}.jsonl"
                    floor_s = floor.take(name, [line])
                    seconds, stages = jobs[size].take(name, [line])
                    if stages["groups"] != READERS:
                        raise RuntimeError(
                            f"{stages['groups']} groups were computed, {READERS} read the topic"
                        )
                    if number >= _WARM_UP_ROUNDS:
                        found.floor.append(floor_s)
                        found.job.append(seconds)
                        found.stages.append(stages)
        figures = [
            found.figure("topic-event", f"a topic that {READERS} of {size} groups read")
            for size, found in samples.items()
        ]
        of_state = replace(
            figures[-1],
            case=f"{figures[-1].case}, by the smaller state",
            against=f"the same event over {small} groups",
            against_seconds=figures[0].seconds,
            details={
                f"groups computed of {size}": found.stages[-1]["groups"] for size, found in samples.items()
            },
        )
        say("topic-event: finding the readers")
        return [*figures, of_state, _finding(root / str(large))]


def _is_reader(group: int) -> bool:
    return group % 2 == 0


def _reads(group: int) -> dict[str, Any]:
    """Subscribe a group, by name or by a pattern.

    A copy's id comes in the place of its original's, in its pattern too: no two groups have one in common.
    """
    is_by_pattern = group // 2 % 2 == 0
    if not is_by_pattern:
        return {"topics": [_TOPIC if _is_reader(group) else f"topic-{group // 2 % _OTHERS}"]}
    own = f"of-{group_id_of(group)}-.*"
    return {"topics_pattern": f"{_TOPIC}|{own}" if _is_reader(group) else own}


def _finding(root: Path) -> Figure:
    """Find the readers as a batch does, and read every group's state for comparison."""
    tables = Tables(str(root / "tables"))
    tail = Tail(tables, Log(tables))
    ours: list[float] = []
    all_states: list[float] = []
    for _ in range(_WARM_UP_ROUNDS + _MOST_ROUNDS):
        began = time.perf_counter()
        found = tail.touched_groups({"default": {_TOPIC}}, {}, ())
        ours.append(time.perf_counter() - began)
        began = time.perf_counter()
        states = tables.read("groups", ["cluster", "group_id", "state"])
        all_states.append(time.perf_counter() - began)
    if states.num_rows != STATE_SIZES[-1]:
        raise RuntimeError(f"the state has {states.num_rows} groups of {STATE_SIZES[-1]}")
    return Figure(
        comparison="topic-event",
        case=f"finding the readers among {states.num_rows} groups",
        seconds=statistics.median(ours[_WARM_UP_ROUNDS:]),
        against="reading the state of every group",
        against_seconds=statistics.median(all_states[_WARM_UP_ROUNDS:]),
        samples=_MOST_ROUNDS,
        details={"groups found": len(found), **_patterns(tables, found), **_megabytes(tables)},
    )


def _patterns(tables: Tables, found: Collection[GroupKey]) -> dict[str, float]:
    """Count the groups with a pattern, those found among them, and the distinct patterns."""
    groups = tables.read("groups", ["cluster", "group_id", "topics_patterns"]).to_pylist()
    by_pattern = [row for row in groups if row["topics_patterns"]]
    return {
        "groups with a pattern": len(by_pattern),
        "found by a pattern": sum((row["cluster"], row["group_id"]) in found for row in by_pattern),
        "distinct patterns": len({name for row in by_pattern for name in row["topics_patterns"]}),
    }


def _megabytes(tables: Tables) -> dict[str, float]:
    """Say how much of the files of `groups` the states are, and how much all the rest."""
    sizes = {"MB of states": 0.0, "MB of other columns": 0.0}
    for path in tables.files("groups")["path"].to_pylist():
        metadata = pq.read_metadata(f"{tables.location('groups')}/{path}")
        for number in range(metadata.num_row_groups):
            rows = metadata.row_group(number)
            for column in map(rows.column, range(rows.num_columns)):
                kind = "MB of states" if column.path_in_schema == "state" else "MB of other columns"
                sizes[kind] += column.total_compressed_size / 1e6
    return sizes
