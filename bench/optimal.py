"""The optimal assignor held against Kafka's own, franz-go's sticky and, in small groups, kafka-python's.

All of them take turns within one run, on the same groups, and one judge scores every
answer: the sum of squared loads, then the partitions that left a live owner. Ours is never
worse, or the run fails. Ours leaves out the making of tuples in large groups, as the job
does; the details say what it takes with tuples in and out, which is what the others do.
librdkafka is not asked: its library exports no assignor, only members of real groups.
"""

from __future__ import annotations

import itertools
import random
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path

from assignors import Assignment
from assignors.optimal import assign_optimal
from bench import Figure, Scale, growth_exponent
from bench.go_programs import GoUnavailableError, build_go
from bench.optimal_groups import (
    Case,
    Given,
    Score,
    growing_cases,
    hostile_cases,
    large_cases,
    small_cases,
)
from bench.optimal_peers import (
    LIMIT_S,
    FranzGo,
    Java,
    KafkaPython,
    Peer,
    PeerStoppedError,
    PeerUnavailableError,
    Sample,
    call_time,
    java_answer,
    java_lines,
    our_work,
    our_work_in_tuples,
    resident_peak_mb,
)
from tests.parity.optimal import owners_before, random_group
from tests.parity.oracle import Oracle, OracleUnavailableError, build_oracle

FRANZ_GO = "franz-go's sticky"
KAFKA_PYTHON = "kafka-python's sticky"
_JAVA = {"Kafka's Java sticky": "sticky", "Kafka's Java server uniform": "server-uniform"}
_RANDOM_GROUPS = 1_000
_VERDICTS = ("more even", "as even with fewer moves", "the same")


@dataclass(slots=True)
class _Bench:
    """What a run has: who can be asked, and who took too long in a smaller group of those that grow."""

    rounds: int
    say: Callable[[str], None]
    franz_go: Path | None = None
    has_java: bool = False
    stopped: dict[str, str] = field(default_factory=dict)

    def peers(self, case: Case) -> Iterator[tuple[str, Callable[[], Peer]]]:
        """List who is to be asked about a case."""
        if self.has_java:
            for name, kind in _JAVA.items():
                yield name, lambda kind=kind: Java(case, kind)  # type: ignore[misc]
        if (program := self.franz_go) is not None:
            yield FRANZ_GO, lambda: FranzGo(case, program)
        if case.is_small:
            yield KAFKA_PYTHON, lambda: KafkaPython(case)


def run(scale: Scale, say: Callable[[str], None]) -> list[Figure]:
    """Measure every case against whoever is there; who is not is said and left out.

    Raises:
        RuntimeError: an answer is no assignment, or somebody's is better than ours.
    """
    bench = _Bench(rounds=scale.rounds, say=say)
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="counterpoise-bench-") as folder:
        try:
            bench.franz_go = build_go("balance", Path(folder))
        except GoUnavailableError as error:
            say(f"optimal: without franz-go: {error}")
        try:
            build_oracle()
            bench.has_java = True
        except OracleUnavailableError as error:
            say(f"optimal: without Java: {error}")
        figures += _random_groups(bench)
        kinds = (small_cases(), large_cases(), growing_cases(scale.partitions), hostile_cases())
        for cases in itertools.chain.from_iterable(kinds):
            if max(sum(case.partitions.values()) for case in cases) <= scale.partitions:
                figures += _kind(bench, cases)
    return figures


def _kind(bench: _Bench, cases: list[Case]) -> list[Figure]:
    """Measure groups of one kind; where they grow, who took too long at one is not asked at the next."""
    bench.stopped.clear()
    figures = [figure for case in cases for figure in _measure(bench, case)]
    return _with_exponents(cases, figures) if cases[0].exponent_of else figures


def _measure(bench: _Bench, case: Case) -> list[Figure]:
    """Judge everybody's answer, then let all take turns."""
    bench.say(f"optimal: {case.name}")
    work = our_work(case)
    in_tuples = None if case.is_small else our_work_in_tuples(case)
    score = case.score(_given(work()))
    scores: dict[str, Score] = {}
    peaks: dict[str, float | None] = {}
    ours: list[Sample] = []
    tuples: list[Sample] = []
    samples: dict[str, list[Sample]] = {}
    decoding: list[float] = []
    stopped: list[str] = []
    figures: list[Figure] = []
    with ExitStack() as stack:
        peers: dict[str, Peer] = {}
        for name, make in bench.peers(case):
            if name in bench.stopped or name in case.excluded:
                why = case.excluded.get(name) or f"it was {bench.stopped[name]} before"
                bench.say(f"optimal: {case.name}: without {name}: {why}")
                continue
            try:
                peer = stack.enter_context(make())
                given = peer.answer()
            except PeerStoppedError as error:
                if case.exponent_of:
                    bench.stopped[name] = str(error)
                stopped.append(f"{name}: {error}")
                continue
            except PeerUnavailableError as error:
                bench.say(f"optimal: {case.name}: without {name}: {error}")
                continue
            scores[name], peaks[name] = _not_better(case, name, case.score(given), score), peer.peak_mb()
            peers[name] = peer
        for _ in range(min(bench.rounds, case.rounds)):
            ours.append(call_time(work, case.repeats))
            if in_tuples is not None:
                tuples.append(call_time(in_tuples, 1))
            for name, peer in peers.items():
                samples.setdefault(name, []).append(peer.sample())
                if isinstance(peer, FranzGo):
                    decoding.append(peer.decoding_s())
    peak = _our_peak_mb(case) if case.has_peak else None
    for name, theirs in samples.items():
        details: dict[str, float] = {"wall": _median(ours).wall, "wall against": _median(theirs).wall}
        if tuples:
            details["with tuples in and out"] = _median(tuples).cpu
        if name == FRANZ_GO and case.owned and not case.is_small:
            details["decoding user data against"] = statistics.median(decoding)
        details |= _scores(score, scores[name])
        against_peak = peaks[name]
        if peak is not None and against_peak is not None:
            details |= {"peak MB": peak, "peak MB against": against_peak}
        figures.append(_figure(case, _median(ours).cpu, name, _median(theirs).cpu, len(ours), details))
    figures += [
        _figure(case, _median(ours).cpu, against, LIMIT_S, len(ours), _scores(score, None))
        for against in stopped
    ]
    return figures


def _given(assignment: Assignment) -> Given:
    return {member: assignment.by_topic(member) for member in assignment}


def _not_better(case: Case, name: str, theirs: Score, ours: Score) -> Score:
    if theirs < ours:
        raise RuntimeError(f"{case.name}: {name} has {theirs}, ours {ours}: ours is not optimal")
    return theirs


def _median(samples: list[Sample]) -> Sample:
    return Sample(
        statistics.median(sample.cpu for sample in samples),
        statistics.median(sample.wall for sample in samples),
    )


def _scores(ours: Score, theirs: Score | None) -> dict[str, float]:
    found: dict[str, float] = {"squares": ours.squares, "moves": ours.moves}
    return found if theirs is None else found | {f"{k} against": v for k, v in theirs._asdict().items()}


def _figure(
    case: Case, seconds: float, against: str, against_seconds: float, samples: int, details: dict[str, float]
) -> Figure:
    return Figure(
        comparison="optimal",
        case=case.name,
        seconds=seconds,
        against=against,
        against_seconds=against_seconds,
        samples=samples,
        details=details,
    )


def _our_peak_mb(case: Case) -> float | None:
    """Measure the most memory that a process needs which does this case alone, its input included."""
    with get_context("spawn").Pool(1) as pool:
        # A copy, so that nothing goes along which was worked out for the others.
        return pool.apply(peak_mb_of, (replace(case),))


def peak_mb_of(case: Case) -> float | None:
    """Do one case and say how much memory this process ever held; None where /proc does not tell."""
    our_work(case)()
    return resident_peak_mb("self")


def _with_exponents(cases: list[Case], figures: list[Figure]) -> list[Figure]:
    """Say everywhere what grows, at each peer's largest how time does, ours over the same sizes."""
    sizes = {case.name: case.size for case in cases}
    grows = cases[0].exponent_of
    found = [replace(f, details={grows: sizes[f.case], **f.details}) for f in figures]
    for against in dict.fromkeys(figure.against for figure in figures):
        places = [place for place, figure in enumerate(figures) if figure.against == against]
        if len(places) > 1 and ":" not in against:
            own = [sizes[figures[place].case] for place in places]
            exponents = {}
            for name, seconds in (
                ("", [figures[place].seconds for place in places]),
                (" against", [figures[place].against_seconds for place in places]),
            ):
                exponents[f"exponent{name}"] = growth_exponent(own, seconds)
                # A fit over all sizes hides that ours goes another way from LEAST_LARGE on.
                exponents[f"exponent of the last step{name}"] = growth_exponent(own[-2:], seconds[-2:])
            last = found[places[-1]]
            found[places[-1]] = replace(last, details={**last.details, **exponents})
    return found


def _random_groups(bench: _Bench) -> list[Figure]:
    """Count over random small groups how often ours is more even, as even with fewer moves, or the same."""
    verdicts: dict[str, Counter[str]] = {}
    ours: list[float] = []
    theirs: dict[str, list[float]] = {}
    with ExitStack() as stack:
        oracle = stack.enter_context(Oracle()) if bench.has_java else None
        franz_go = stack.enter_context(FranzGo(None, bench.franz_go)) if bench.franz_go else None
        bench.say(f"optimal: {_RANDOM_GROUPS} random groups")
        for case in random_cases(_RANDOM_GROUPS):
            topics, subscriptions = case.topics, case.subscriptions(with_owned=True)
            began = time.process_time()
            assignment = assign_optimal(topics, subscriptions)
            ours.append(time.process_time() - began)
            score = case.score(_given(assignment))
            if oracle is not None:
                for name, kind in _JAVA.items():
                    lines = java_lines(case, kind)
                    _note(verdicts, name, case, score, java_answer(oracle, lines))
                    timed = oracle.ask({"again": True, "timing": 1})["cpu_ns"]
                    theirs.setdefault(name, []).append(timed[0] / 1e9)
            if franz_go is not None:
                franz_go.take(case)
                _note(verdicts, FRANZ_GO, case, score, franz_go.answer())
                theirs.setdefault(FRANZ_GO, []).append(franz_go.sample().cpu)
    return [
        Figure(
            comparison="optimal",
            case=f"{_RANDOM_GROUPS} random groups of up to 16 members and topics",
            seconds=statistics.median(ours),
            against=name,
            against_seconds=statistics.median(theirs[name]),
            samples=_RANDOM_GROUPS,
            details={f"share {verdict}": counts[verdict] / _RANDOM_GROUPS for verdict in _VERDICTS},
        )
        for name, counts in verdicts.items()
    ]


def _note(verdicts: dict[str, Counter[str]], name: str, case: Case, ours: Score, given: Given) -> None:
    theirs = _not_better(case, name, case.score(given), ours)
    if theirs.squares > ours.squares:
        verdict = "more even"
    else:
        verdict = "as even with fewer moves" if theirs.moves > ours.moves else "the same"
    verdicts.setdefault(name, Counter())[verdict] += 1


def random_cases(count: int) -> Iterator[Case]:
    """Make small groups of any kind without racks, whose claims are all good and disputed by nobody.

    Every member reads something: where one reads nothing, Kafka's sticky gives it
    partitions that it did not ask for.
    """
    found = 0
    for number in itertools.count():
        rng = random.Random(f"optimal/{number}")
        topics, subscriptions = random_group(rng, 16, 16)
        partitions = {topic: len(metadata) for topic, metadata in topics.items() if len(metadata)}
        wanted = {
            member: topics_of_member
            for member, told in subscriptions.items()
            if (topics_of_member := tuple(topic for topic in told.topics if topic in partitions))
        }
        if not wanted:
            continue
        owned: dict[str, list[tuple[str, int]]] = {member: [] for member in wanted}
        for pair, owner in owners_before(topics, subscriptions).items():
            if pair.partition < partitions.get(pair.topic, 0):
                owned[owner].append(pair)
        yield Case(
            name=f"random group {number}",
            partitions=partitions,
            topics_by_member=wanted,
            before=Assignment.of(owned),
            is_small=True,
        )
        found += 1
        if found == count:
            return
