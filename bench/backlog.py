"""A backlog of `__consumer_offsets` read to its end, held against the same read with no processing.

A real broker holds a topic of generated records (offsets_topic.py), nine in ten of them offset commits.
The job reads it once from the first record to the last, over tables that are empty; then Spark reads the
same records with the same options and gives them to nobody. The two take turns. A broker lets nobody
write to its own `__consumer_offsets`, so the topic has another name.

A second topic is about size: ten thousand groups, and two of 5,000 members, one classic, one KIP-848.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import Producer, TopicCollection

from bench import Figure, Scale
from bench.offsets_topic import PARTITIONS, Record, commit_records, records_of_groups
from conf.settings import Settings, load_settings
from streaming.job import Job
from streaming.session import start_session
from streaming.sources.streams import raw_stream, sources_of
from streaming.tables.delta import LOG
from tests.kafka_cluster import KafkaBroker, KafkaUnavailableError, build_kafka

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_RECORD_PARTITIONS = 8
_TOPICS = [f"topic-{number}" for number in range(8)]
_LARGE_TOPIC = "large"
_LARGE_MEMBERS = 5_000
_LARGE_PARTITIONS = 1_000
_MANY_GROUPS = 10_000
_GENERATIONS = 50
_COMMITS_PER_RECORD = 9
_ROUNDS = 2
_LONGEST_RECORD_BYTES = 4_194_304

_Topics = Mapping[str, str]
"""Topic -> its id."""


class _Case(NamedTuple):
    """A topic of records: its name in the figures, how its records are made, how often it is read."""

    topic: str
    name: str
    make: Callable[[_Topics], Iterable[Record]]
    rounds: int


@dataclass(slots=True)
class _Use:
    """What a block took: each process's peak of resident memory and its processor time, in seconds."""

    peak_bytes: dict[str, int] = field(default_factory=dict)
    cpu_s: dict[str, float] = field(default_factory=dict)


class _Run(NamedTuple):
    """One run of the job: its seconds, those of its stages, what its batch rows count, what it took."""

    seconds: float
    stages: Counter[str]
    counts: Counter[str]
    use: _Use


def run(scale: Scale, say: Callable[[str], None]) -> list[Figure]:
    """Measure the backlog, and the large and many groups.

    Args:
        scale: how many records the backlog has.
        say: hears how far it got, and what is missing where no broker can be built.
    """
    try:
        build_kafka()
    except KafkaUnavailableError as error:
        say(f"backlog: not measured: {error}")
        return []
    with tempfile.TemporaryDirectory(prefix="counterpoise-bench-") as name:
        folder = Path(name)
        with KafkaBroker(folder / "kafka") as broker:
            return _measure(broker, folder, scale, say)


def _measure(broker: KafkaBroker, folder: Path, scale: Scale, say: Callable[[str], None]) -> list[Figure]:
    cases = [_backlog(scale), _many_and_large()]
    for topic in _TOPICS:
        broker.create_topic(topic, PARTITIONS)
    broker.create_topic(_LARGE_TOPIC, _LARGE_PARTITIONS)
    topics = _topic_ids(broker, [*_TOPICS, _LARGE_TOPIC])
    written = {}
    for case in cases:
        say(f"backlog: writing {case.name}")
        written[case.topic] = _write(broker, case, topics)
    spark = start_session(_settings(folder, broker, cases[0].topic, "session"))
    try:
        # The JVM compiles what both do, Python's workers start and import.
        _write(broker, warm_up := _few(), topics)
        _run_job(spark, _settings(folder, broker, warm_up.topic, "warm-up"))
        _read_only(spark, _settings(folder, broker, warm_up.topic, "warm-up-floor"))
        figures = []
        for case in cases:
            runs, floors = [], []
            for turn in range(case.rounds):
                say(f"backlog: {case.name}: round {turn + 1} of {case.rounds}")
                runs.append(_run_job(spark, _settings(folder, broker, case.topic, f"{case.topic}-{turn}")))
                if runs[-1].counts["records_read"] < written[case.topic]:
                    raise RuntimeError(f"{runs[-1].counts} of {written[case.topic]} records")
                floors.append(
                    _read_only(spark, _settings(folder, broker, case.topic, f"{case.topic}-floor-{turn}"))
                )
            figures.append(_figure(case, written[case.topic], runs, floors))
        return figures
    finally:
        spark.stop()


def _figure(case: _Case, written: int, runs: list[_Run], floors: list[tuple[float, float]]) -> Figure:
    seconds = statistics.median(each.seconds for each in runs)
    names = dict.fromkeys(name for each in runs for name in each.stages)
    stages = {name: statistics.mean(each.stages[name] for each in runs) for name in names}
    in_batches = stages.pop("total")
    last = runs[-1]
    counted = {name.replace("_", " "): float(last.counts[name]) for name in (*_COUNTED, *_OWN_COUNTS)}
    cpu_s = {name: statistics.median(each.use.cpu_s[name] for each in runs) for name in last.use.cpu_s}
    return Figure(
        comparison="backlog",
        case=case.name,
        seconds=seconds,
        against="the same read by Spark, given to nobody",
        against_seconds=statistics.median(floor for floor, _ in floors),
        samples=len(runs),
        details={
            **stages,
            "outside the batches": statistics.mean(each.seconds for each in runs) - in_batches,
            **{f"processor time of {name}": each for name, each in cpu_s.items()},
            "processor time of the read": statistics.median(floor for _, floor in floors),
            "records a second": written / seconds,
            **counted,
            **{f"peak MB of {name}": size / 1e6 for name, size in last.use.peak_bytes.items()},
        },
    )


def _backlog(scale: Scale) -> _Case:
    """Describe the backlog: 90 % commits, 9 % of classic groups, 1 % of KIP-848 groups."""
    count = scale.backlog_records
    groups = max(count * 9 // 100 // _GENERATIONS, 1)
    others = count // 100

    def make(topics: _Topics) -> Iterator[Record]:
        ids = {topic: topics[topic] for topic in _TOPICS}
        classic = records_of_groups(range(groups), _GENERATIONS, ids, _RECORD_PARTITIONS, is_classic=True)
        # So many groups that their records suffice; the last epoch may be cut short.
        more = range(groups, groups + 1 + others // (8 * _GENERATIONS))
        consumer = records_of_groups(more, _GENERATIONS, ids, _RECORD_PARTITIONS, is_classic=False)
        commits = commit_records(count - groups * _GENERATIONS - others, groups, ids, _RECORD_PARTITIONS)
        return _mixed(commits, chain(classic, islice(consumer, others)))

    return _Case("backlog", f"{count:,} records, 90 % commits, {groups:,} groups", make, _ROUNDS)


def _many_and_large() -> _Case:
    """Describe ten thousand groups of two generations, and three generations of each large group."""

    def make(topics: _Topics) -> Iterator[Record]:
        ids = {topic: topics[topic] for topic in _TOPICS}
        large = partial(
            records_of_groups,
            generations=3,
            topics={_LARGE_TOPIC: topics[_LARGE_TOPIC]},
            partitions=_RECORD_PARTITIONS,
            members=_LARGE_MEMBERS,
            topic_partitions=_LARGE_PARTITIONS,
        )
        return chain(
            records_of_groups(range(_MANY_GROUPS), 2, ids, _RECORD_PARTITIONS, is_classic=True),
            large(range(_MANY_GROUPS, _MANY_GROUPS + 1), is_classic=True),
            large(range(_MANY_GROUPS + 1, _MANY_GROUPS + 2), is_classic=False),
        )

    return _Case("size", f"{_MANY_GROUPS:,} groups, and two of {_LARGE_MEMBERS:,} members", make, 1)


def _few() -> _Case:
    """Describe records enough for both of the job's ways to run once."""

    def make(topics: _Topics) -> Iterator[Record]:
        ids = {topic: topics[topic] for topic in _TOPICS}
        return records_of_groups(range(600), 10, ids, _RECORD_PARTITIONS, is_classic=True)

    return _Case("warm-up", "", make, 1)


def _mixed(commits: Iterator[Record], others: Iterable[Record]) -> Iterator[Record]:
    for other in others:
        yield from islice(commits, _COMMITS_PER_RECORD)
        yield other
    yield from commits


def _topic_ids(broker: KafkaBroker, names: list[str]) -> dict[str, str]:
    described = broker.admin.describe_topics(TopicCollection(names))
    ids = {name: str(each.result(timeout=20).topic_id) for name, each in described.items()}
    return dict(sorted(ids.items()))


def _write(broker: KafkaBroker, case: _Case, topics: _Topics) -> int:
    """Make the topic and write its records; gives back how many."""
    longest = str(_LONGEST_RECORD_BYTES)
    broker.create_topic(case.topic, _RECORD_PARTITIONS, max_message_bytes=longest)
    errors: list[Any] = []

    def note(error: Any, _message: Any) -> None:
        if error is not None:
            errors.append(error)

    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "linger.ms": 50,
            "message.max.bytes": longest,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    count = 0
    for record in case.make(topics):
        count += 1
        producer.produce(case.topic, record.value, record.key, record.partition, on_delivery=note)
        if count % 10_000 == 0:
            producer.poll(0)
            while len(producer) > 500_000:
                producer.poll(0.1)
    remaining = producer.flush(120)
    if errors or remaining:
        raise RuntimeError(f"{remaining} records of {case.topic!r} did not arrive, errors: {errors[:3]}")
    return count


def _settings(folder: Path, broker: KafkaBroker, topic: str, name: str) -> Settings:
    """Give the default settings over tables of their own."""
    root = folder / name
    root.mkdir(exist_ok=True)
    lines = [
        "[job]",
        f"tables = {json.dumps(f'{root}/tables')}",
        f"checkpoint_location = {json.dumps(f'{root}/checkpoint')}",
        "[clusters.default]",
        "[clusters.default.kafka]",
        f'"bootstrap.servers" = {json.dumps(broker.bootstrap_servers)}',
        "[source]",
        f"max_record_bytes = {_LONGEST_RECORD_BYTES}",
        "[[sources]]",
        'name = "offsets"',
        'format = "offsets"',
        'from = "kafka"',
        f"topic = {json.dumps(topic)}",
    ]
    file = root / "bench.toml"
    file.write_text("\n".join(lines), encoding="utf-8")
    return load_settings(file, {}, {})


def _run_job(spark: SparkSession, settings: Settings) -> _Run:
    """Run the job once over the whole topic."""
    job = Job(spark, settings)
    with _watched(spark) as use:
        began = time.perf_counter()
        job.run(once=True)
        seconds = time.perf_counter() - began
    stages: Counter[str] = Counter()
    for timing in job.timings:
        stages.update({name: value for name, value in timing.items() if isinstance(value, float)})
    counts: Counter[str] = Counter()
    for row in job.tables.delta_table(LOG).to_pyarrow_dataset().to_table(["kind", "batch"]).to_pylist():
        if row["kind"] == "batch":
            counts.update({name: row["batch"][name] for name in _COUNTED})
            counts["batches"] += 1
        elif row["kind"] in _VERSIONS:
            counts["versions"] += 1
    return _Run(seconds, stages, counts, use)


_COUNTED = ("records_read", "applied", "ignored", "duplicate", "rejected", "filtered")
_OWN_COUNTS = ("versions", "batches")
_VERSIONS = {"rebalance", "baseline", "gap", "held", "deleted"}


def _read_only(spark: SparkSession, settings: Settings) -> tuple[float, float]:
    """Read the same raw records and give them to nobody; the seconds it took, and of processor time."""
    sources = [each for each in sources_of(spark, settings, settings.job.tables) if each.kind == "kafka"]

    def drop(frame: DataFrame, _batch_id: int) -> None:
        frame.write.format("noop").mode("overwrite").save()

    with _watched(spark) as use:
        began = time.perf_counter()
        query = (
            raw_stream(spark, sources, settings)
            .writeStream.foreachBatch(drop)
            .option("checkpointLocation", settings.job.checkpoint_location)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        seconds = time.perf_counter() - began
    return seconds, sum(use.cpu_s.values())


@contextmanager
def _watched(spark: SparkSession) -> Iterator[_Use]:
    """Look at the driver's process, its JVM and all of Python's workers; empty where there is no /proc.

    Memory is looked at several times a second. Another program that is busy slows a clock, not these seconds.
    """
    use = _Use()
    if not Path("/proc/self/stat").exists():
        yield use
        return
    jvm: Any = spark._jvm
    java = int(jvm.java.lang.ProcessHandle.current().pid())
    before = _processes(java)
    stop = threading.Event()

    def look() -> None:
        while not stop.wait(0.25):
            for name, (_, size) in _processes(java).items():
                use.peak_bytes[name] = max(size, use.peak_bytes.get(name, 0))

    thread = threading.Thread(target=look, name="memory")
    thread.start()
    try:
        yield use
    finally:
        stop.set()
        thread.join()
        use.cpu_s = {name: cpu_s - before[name][0] for name, (cpu_s, _) in _processes(java).items()}


def _processes(java: int) -> dict[str, tuple[float, int]]:
    """Give the processor seconds and resident bytes of the driver, its JVM and the workers below that."""
    found: dict[int, tuple[int, float, float, int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        own, waited = (sum(map(int, fields[first : first + 2])) / _TICKS_A_SECOND for first in (11, 13))
        found[int(stat.parent.name)] = (int(fields[1]), own, own + waited, int(fields[21]) * _PAGE_BYTES)
    below, front = set[int](), {java}
    while front:
        front = {pid for pid, (parent, *_) in found.items() if parent in front}
        below |= front
    gone = (0, 0.0, 0.0, 0)
    return {
        "driver": found.get(os.getpid(), gone)[1::2],
        "its JVM": found.get(java, gone)[1::2],
        # A worker that has ended is in what its parent, or the JVM, waited for.
        "Python workers": (
            sum(found[pid][2] for pid in below) + found.get(java, gone)[2] - found.get(java, gone)[1],
            sum(found[pid][3] for pid in below),
        ),
    }


_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
