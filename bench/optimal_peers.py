"""Who is held against the optimal assignor, each asked for an answer and for the time of it.

Everybody gets the same group as strings and maps and gives such back. A clock starts once
the group is there in a peer's own classes; user data is decoded on the way by Kafka's
sticky and franz-go's, whose users do. Processor time is one thread's; of Java's the
collector's is not in it.
"""

from __future__ import annotations

import gc
import json
import os
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

from assignors.optimal import assign_optimal, find_optimum
from bench import kafka_python
from bench.optimal_groups import GENERATION, Case, Given
from tests.parity.oracle import Oracle

if TYPE_CHECKING:
    from assignors import Assignment

LIMIT_S = 20
"""Processor time after which a peer is stopped at its first answer, the reading of its input included."""


class Sample(NamedTuple):
    """Seconds of one call: of the processor and on the wall."""

    cpu: float
    wall: float


class PeerUnavailableError(RuntimeError):
    """A peer cannot be had here, or has no answer; the message says why."""


class PeerStoppedError(RuntimeError):
    """A peer did not answer within LIMIT_S."""


class Peer(Protocol):
    """One assignor of another house, with one group before it; a context manager."""

    def __enter__(self) -> Self:
        """Start it."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it."""

    def answer(self) -> Given:
        """Compute the group's assignment, for the first time.

        Raises:
            PeerStoppedError: that takes too long.
            PeerUnavailableError: it has none.
        """

    def sample(self) -> Sample:
        """Compute it again, as often as the case says, and give one call's time."""

    def peak_mb(self) -> float | None:
        """Say how much memory its process ever held; None where it is this process."""


def call_time(work: Callable[[], object], repeats: int) -> Sample:
    """Measure one call of ours, as the mean of some."""
    gc.collect()
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(repeats):
        work()
    return Sample((time.process_time() - cpu) / repeats, (time.perf_counter() - wall) / repeats)


def our_work(case: Case) -> Callable[[], Assignment]:
    """Prepare our own call.

    A small group comes with owned partitions; a large one with the Assignment before, as
    the job has it, and tuples are made of neither.
    """
    topics = case.topics
    subscriptions = case.subscriptions(with_owned=case.is_small)
    if case.is_small:
        return lambda: assign_optimal(topics, subscriptions)
    return lambda: find_optimum(topics, subscriptions, case.before).assignment


def our_work_in_tuples(case: Case) -> Callable[[], object]:
    """Prepare our own call with tuples in and out."""
    topics, subscriptions = case.topics, case.subscriptions(with_owned=True)
    return lambda: dict(assign_optimal(topics, subscriptions))


def resident_peak_mb(pid: int | str) -> float | None:
    """Read the most memory that a process held; None where /proc does not tell."""
    status = Path(f"/proc/{pid}/status")
    if not status.exists():
        return None
    fields = dict(line.split(":", 1) for line in status.read_text(encoding="ascii").splitlines())
    return int(fields["VmHWM"].split()[0]) / 1_000


class KafkaPython:
    """kafka-python's sticky assignor, in this process."""

    def __init__(self, case: Case) -> None:
        """Describe the group in its classes.

        Raises:
            PeerUnavailableError: it is not installed.
        """
        try:
            self._assign = kafka_python.prepare(
                "sticky", case.partitions, case.topics_by_member, case.owned, GENERATION
            )
        except ImportError as error:
            raise PeerUnavailableError("kafka-python is not installed") from error
        self._repeats = max(1, case.repeats // 10)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def answer(self) -> Given:
        """Compute the group's assignment."""
        return by_topic({member: given.partitions() for member, given in self._assign().items()})

    def sample(self) -> Sample:
        """Compute it again; a tenth as often as the others, for it takes longer."""
        return call_time(self._assign, self._repeats)

    def peak_mb(self) -> float | None:
        """Say nothing: it is this process."""
        return None


class Java:
    """One of Kafka's own classes, in a JVM of its own."""

    def __init__(self, case: Case, kind: str) -> None:
        """Describe the group to the oracle."""
        self._lines = java_lines(case, kind)
        self._case = case
        self._oracle = Oracle()

    def __enter__(self) -> Self:
        os.environ.setdefault("ORACLE_JAVA_OPTIONS", "-Xmx4g -XX:+UseSerialGC")
        self._oracle.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._oracle.__exit__(*error)

    def answer(self) -> Given:
        """Compute the group's assignment, then as often as its compiler needs."""
        with _stopped_after(LIMIT_S, self._oracle._process):
            given = java_answer(self._oracle, self._lines)
        if self._case.java_warm_up:
            self._oracle.ask({"again": True, "timing": self._case.java_warm_up})
        return given

    def sample(self) -> Sample:
        """Compute it again; the median of the calls."""
        timed = self._oracle.ask({"again": True, "timing": self._case.repeats})
        return Sample(*(statistics.median(timed[clock]) / 1e9 for clock in ("cpu_ns", "wall_ns")))

    def peak_mb(self) -> float | None:
        """Give the JVM's peak: how far it let its heap grow."""
        return resident_peak_mb(self._oracle._process.pid)


def java_lines(case: Case, kind: str) -> dict[str, Any]:
    """Describe a case to the oracle."""
    members: list[dict[str, Any]] = []
    for member, topics in case.topics_by_member.items():
        told: dict[str, Any] = {"id": member, "topics": topics}
        if member in case.owned:
            pairs = [(topic, number) for topic, owned in case.owned[member].items() for number in owned]
            told |= {"owned": pairs, "generation": GENERATION}
        members.append(told)
    return {"id": 0, "assignor": kind, "topics": dict(case.partitions), "members": members}


def java_answer(oracle: Oracle, lines: dict[str, Any]) -> Given:
    """Ask the oracle for one assignment.

    Raises:
        PeerUnavailableError: Java has none, as where its heap is too small.
    """
    answer = oracle.ask(lines)
    if "error" in answer:
        raise PeerUnavailableError(f"it ended with {answer['error']}: {answer['message']}")
    return by_topic(answer["result"])


def by_topic(pairs_by_member: Mapping[str, Iterable[tuple[str, int]]]) -> Given:
    """Group an answer of pairs by topic."""
    given: dict[str, dict[str, list[int]]] = {}
    for member, pairs in pairs_by_member.items():
        own = given.setdefault(member, {})
        for topic, number in pairs:
            own.setdefault(topic, []).append(number)
    return given


class FranzGo:
    """franz-go's sticky balancer behind its public interface, in a Go process of its own."""

    def __init__(self, case: Case | None, program: Path) -> None:
        """Take the group along; None to be told later."""
        self._case = case
        self._program = program
        self._told: dict[str, float] = {}

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [self._program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
        )
        return self

    def __exit__(self, *error: object) -> None:
        self._process.communicate()

    def _ask(self, request: dict[str, Any]) -> Any:
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise RuntimeError("the Go program was started without pipes")
        stdin.write(json.dumps(request) + "\n")
        stdin.flush()
        line = stdout.readline()
        if not line:
            raise RuntimeError(f"the Go program ended with code {self._process.wait()}")
        return json.loads(line)

    def take(self, case: Case) -> None:
        """Turn to a group: topics that nobody reads are unknown to a client, which asks for its own."""
        self._case = case
        read = {topic for topics in case.topics_by_member.values() for topic in topics}
        members = [
            {"id": member, "topics": topics, "owned": case.owned.get(member, {})}
            for member, topics in case.topics_by_member.items()
        ]
        self._ask({"topics": {t: n for t, n in case.partitions.items() if t in read}, "members": members})

    def answer(self) -> Given:
        """Compute the group's assignment."""
        with _stopped_after(LIMIT_S, self._process):
            if self._case is not None:
                self.take(self._case)
            given: Given = self._ask({"plan": True})
        return given

    def sample(self) -> Sample:
        """Compute it again."""
        repeats = self._case.repeats if self._case is not None else 1
        timed = self._ask({"timing": repeats * 5 if repeats > 1 else 1})
        self._told = timed
        return Sample(timed["cpu"], timed["wall"])

    def peak_mb(self) -> float | None:
        """Give the peak of the Go process."""
        return resident_peak_mb(self._process.pid)

    def decoding_s(self) -> float:
        """Say how much processor time decoding all user data took at the last sample."""
        return self._told["decoding"]


@contextmanager
def _stopped_after(seconds: float, process: subprocess.Popen[str]) -> Iterator[None]:
    """End a process of ours that takes more processor time than this for what is done inside.

    Raises:
        PeerStoppedError: it was ended.
    """
    most = _used_s(process.pid) + seconds
    is_done, is_late = threading.Event(), threading.Event()

    def watch() -> None:
        while not is_done.wait(0.2):
            if _used_s(process.pid) > most:
                is_late.set()
                process.kill()
                return

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    except (RuntimeError, OSError) as error:
        if is_late.is_set():
            raise PeerStoppedError(f"stopped after {seconds:.0f} s of processor time") from error
        raise
    finally:
        is_done.set()
        watcher.join()


def _used_s(pid: int) -> float:
    """Read a process's processor time; 0 where /proc does not tell, and nothing is stopped."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return 0.0
    user, system = stat.rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / float(os.sysconf("SC_CLK_TCK"))
