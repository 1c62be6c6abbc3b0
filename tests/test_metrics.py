"""What Prometheus is told: the tables' own numbers, and counters that account for every row of the log."""

from __future__ import annotations

import json
import random
import re
import shutil
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from conf.settings import load_settings
from console.tables import latest_groups
from streaming.job import Job
from streaming.operations.endpoint import Endpoint
from streaming.operations.group_metrics import GroupMetrics
from streaming.operations.group_numbers import GroupReader
from streaming.operations.progress import ProgressListener, lag_records
from streaming.tables.delta import Tables
from streaming.tables.log import Log, Tail
from streaming.tables.schemas import GENERATIONS
from tests.console_tables import BEGIN, group_row, write_empty, write_rows
from tests.deployments import event, make_settings, story, totals, write_lines
from tests.kafka_cluster import wait_until
from tests.observed_inputs import DATA
from tests.test_health import Clock, ask

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from conf.settings import Settings
    from streaming.operations.group_counts import GroupCounts
    from tests.kafka_cluster import KafkaBroker

Row = dict[str, Any]
Series = dict[tuple[str, ...], float]

COUNTS = {"t": 6, "u": 3}
LISTED = (Path(__file__).parents[1] / "docs/deploy/metrics.md").read_text(encoding="utf-8")


def owners_of(row: Row, column: str) -> list[tuple[str, str, int]]:
    """Spread a column of owners out: (member, topic, partition)."""
    return [(e["member_id"], e["topic"], p) for e in row[column] or () for p in e["partitions"]]


def random_row(number: int, batch: int, rng: random.Random) -> Row:
    """Make any group: some members idle, some partitions owned twice or by nobody, of any kind."""
    members = [f"m{n}" for n in range(rng.randrange(5))]

    def entries() -> list[Row]:
        found = []
        for member in members:
            for topic in rng.sample(["t", "u", "gone"], rng.randrange(3)):
                partitions = sorted(rng.sample(range(-1, 8), rng.randrange(4)))
                found.append({"member_id": member, "topic": topic, "partitions": partitions})
        return found

    assignment = [
        {
            **entry,
            "since_generation_ids": [1] * len(entry["partitions"]),
            "since_times": [BEGIN] * len(entry["partitions"]),
        }
        for entry in entries()
    ]
    return group_row(
        f"g{number:03d}",
        batch,
        {member: [] for member in members},
        assignment=assignment,
        expected=rng.choice([None, entries(), assignment]),
        protocol_type=rng.choice(["consumer", "share", "connect", None]),
        subscribed_topics=rng.choice([None, [], ["t"], ["t", "u"], ["t", "unheard"]]),
        group_state=rng.choice(["Stable", "Empty", "Stable", "Dead"]),
    )


def numbers_of(row: Row) -> Row:
    """Compute one group's numbers the slow way."""
    owned, expected = owners_of(row, "assignment"), owners_of(row, "expected")
    loads = Counter(member for member, _, _ in owned)
    owners = Counter((topic, partition) for _, topic, partition in owned)
    differing = {pair[1:] for pair in set(owned) ^ set(expected)}
    members = len(row["members"])
    topics: dict[str, Row] = {}
    for topic in {topic for topic, _ in owners}:
        topics[topic] = {
            "members": len({member for member, of, _ in owned if of == topic}),
            "assigned": len([1 for of, _ in owners if of == topic]),
            "unassigned": None,
        }
    empty = {"members": 0, "assigned": 0}
    if row["protocol_type"] == "connect":
        for topic in {topic for _, topic, _ in expected}:
            should = {partition for _, of, partition in expected if of == topic}
            unrun = len([p for p in should if (topic, p) not in owners])
            topics[topic] = {**topics.get(topic, empty), "unassigned": unrun}
    else:
        for topic in row["subscribed_topics"] or ():
            count = COUNTS.get(topic)
            held = len([p for of, p in owners if of == topic and count is not None and p < count])
            unowned = None if count is None else count - held
            topics[topic] = {**topics.get(topic, empty), "unassigned": unowned}
    return {
        "members": members,
        "members_without_partitions": members - len(loads),
        "skew_ratio": pytest.approx(max(loads.values()) * members / len(owned)) if owned else None,
        "expected_diff": None if row["expected"] is None else len(differing),
        "duplicate_owners": None
        if row["protocol_type"] == "share"
        else len([1 for count in owners.values() if count > 1]),
        "topics": topics,
    }


def write_groups(tables: Path, seed: int) -> dict[str, Row]:
    """Write 150 groups, a third of them changed behind the snapshot: group_id -> its latest row."""
    rng = random.Random(seed)
    write_empty(tables)
    topics = [
        {"cluster": "c", "topic": "t", "partition_count": 2, "log_seq": 1},
        {"cluster": "c", "topic": "u", "partition_count": COUNTS["u"], "log_seq": 2},
    ]
    write_rows(tables, "topics", topics, batch_seq=1)
    rows = {row["group_id"]: row for row in (random_row(number, 1, rng) for number in range(120))}
    snapshot = [{name: value for name, value in row.items() if name != "batch_seq"} for row in rows.values()]
    write_rows(tables, "groups", snapshot, batch_seq=1)
    grown = {"topic": "t", "partition_count": COUNTS["t"]}
    tail = [{"log_seq": 2 << 24, "batch_seq": 2, "kind": "topic", "cluster": "c", "topic_state": grown}]
    for batch in (2, 3):
        for number in rng.sample(range(150), 40):
            row = random_row(number, batch, rng)
            tail.append({**row, "log_seq": (batch << 24) + number + 1})
            rows[row["group_id"]] = tail[-1]
    write_rows(tables, "generations", tail)
    return rows


def test_the_gauges_are_the_tables_own_numbers(tmp_path: Path) -> None:
    """Of every kind of group, from snapshot and tail; a group that is gone is not there."""
    rows = write_groups(tmp_path, seed=4)
    found = GroupReader(str(tmp_path)).read(1000)
    living = {name: row for name, row in sorted(rows.items()) if row["group_state"] != "Dead"}
    assert 100 < len(living) == found.total
    assert found.groups["group_id"].to_pylist() == list(living)
    topics: dict[str, dict[str, Row]] = {name: {} for name in living}
    for row in found.topics.to_pylist():
        numbers = {name: row[name] for name in ("members", "assigned", "unassigned")}
        topics[row["group_id"]][row["topic"]] = numbers
    for row in found.groups.to_pylist():
        name = row["group_id"]
        expected = numbers_of(living[name])
        assert {key: row.get(key, topics[name]) for key in expected} == expected, living[name]
        assert row["generation_id"] == living[name]["generation_id"]
        assert row["group_state"] == living[name]["group_state"]


def scrape(metrics: GroupMetrics) -> dict[str, Series]:
    """Let Prometheus' own parser read what is collected: name -> labels' values -> value."""
    registry = CollectorRegistry()
    registry.register(metrics)
    return parsed(generate_latest(registry).decode())


def parsed(text: str) -> dict[str, Series]:
    """Parse a page of metrics: name of the sample -> labels' values, in order of their names -> value."""
    found: dict[str, Series] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = tuple(sample.labels[name] for name in sorted(sample.labels))
            assert labels not in found.setdefault(sample.name, {}), f"{sample.name} {labels} comes twice"
            found[sample.name][labels] = sample.value
    return found


def over(tables: Path, **limits: Any) -> tuple[GroupMetrics, GroupCounts]:
    """Collect over these tables."""
    metrics = GroupMetrics(**{"max_groups": 1000, "cache_s": 0.0, **limits})
    opened = Tables(str(tables))
    return metrics, metrics.add("c", opened, Tail(opened, Log(opened)))


def test_groups_beyond_the_limit_are_counted(tmp_path: Path) -> None:
    """The first by name are shown, and how many are not."""
    rows = write_groups(tmp_path, seed=5)
    living = sorted(name for name, row in rows.items() if row["group_state"] != "Dead")
    found = scrape(over(tmp_path, max_groups=10)[0])
    assert found["counterpoise_groups"] == {("c",): len(living)}
    assert found["counterpoise_groups_left_out"] == {("c",): len(living) - 10}
    for name in ("kafka_group_state", "kafka_group_members", "kafka_group_rebalances_total"):
        assert {labels[1] for labels in found[name]} == set(living[:10]), name


def test_an_answer_serves_for_a_while(tmp_path: Path) -> None:
    """Within http.cache_s the tables are not read again; a deleted group leaves no series behind."""
    clock = Clock()
    write_empty(tmp_path)
    write_rows(tmp_path, "generations", [group_row("a", 1, {"m": [0]}), group_row("b", 1, {"m": [1]})])
    metrics, counts = over(tmp_path, cache_s=10.0, clock=clock)
    assert set(scrape(metrics)["kafka_group_members"]) == {("c", "a"), ("c", "b")}
    gone = group_row("a", 2, {}, kind="deleted", group_state="Dead")
    write_rows(tmp_path, "generations", [gone])
    counts.take(log_rows([gone]))
    clock.now_s = 9.0
    assert ("c", "a") in scrape(metrics)["kafka_group_members"]
    clock.now_s = 10.0
    for name, series in scrape(metrics).items():
        assert not [labels for labels in series if "a" in labels], name


def test_tables_that_cannot_be_read_cost_their_own_groups(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The rest of the page is there, and the log says why something is missing."""
    write_empty(tmp_path / "whole")
    write_empty(tmp_path / "lost")
    write_rows(tmp_path / "whole", "generations", [group_row("a", 1, {"m": [0]})])
    metrics, _ = over(tmp_path / "whole")
    lost = Tables(str(tmp_path / "lost"))
    metrics.add("lost", lost, Tail(lost, Log(lost)))
    shutil.rmtree(tmp_path / "lost")
    assert set(scrape(metrics)["counterpoise_groups"]) == {("c",)}
    assert "metrics of cluster lost: " in caplog.text


def log_rows(rows: Sequence[Row]) -> pa.Table:
    """Make rows of the log."""
    return pa.Table.from_pylist(list(rows), schema=GENERATIONS)


class TestCounters:
    """What came and went, from rows of the log."""

    def test_members_come_and_go(self, tmp_path: Path) -> None:
        """Those known from the tables are no newcomers; a new group's members are."""
        write_empty(tmp_path)
        write_rows(tmp_path, "groups", [{**group_row("old", 1, {"m": [], "n": []}), "batch_seq": None}])
        counts = over(tmp_path)[1]
        counts.take(log_rows([group_row("old", 2, {"n": [], "o": []}), group_row("new", 2, {"x": []})]))
        old, new = counts.of(("c", "old")), counts.of(("c", "new"))
        assert (old.joins, old.leaves, old.rebalances) == (1, 1, 1)
        assert (new.joins, new.leaves, new.rebalances) == (1, 0, 1)

    def test_the_first_sight_of_an_observed_group_counts_for_nothing(self, tmp_path: Path) -> None:
        """Its members were there before."""
        write_empty(tmp_path)
        counts = over(tmp_path)[1]
        counts.take(log_rows([group_row("g", 1, {"m": []}, kind="baseline")]))
        counts.take(log_rows([group_row("g", 2, {"m": [], "n": []}, kind="gap")]))
        count = counts.of(("c", "g"))
        assert (count.joins, count.leaves, count.rebalances) == (1, 0, 0)

    def test_only_so_many_groups_are_kept(self, tmp_path: Path) -> None:
        """Those that changed last; another starts from 0 again, without taking its members for new."""
        write_empty(tmp_path)
        counts = over(tmp_path, max_groups=2)[1]
        for group_id in ("a", "b", "c"):
            counts.take(log_rows([group_row(group_id, 1, {"m": []})]))
        assert [counts.of(("c", g)).rebalances for g in ("a", "b", "c")] == [0, 1, 1]
        counts.take(log_rows([group_row("a", 2, {"m": []})]))
        assert (counts.of(("c", "a")).joins, counts.of(("c", "a")).rebalances) == (0, 1)


def bad_lines() -> list[str]:
    """Take a captured record of a group and spoil it: an unknown type, an unknown version, a torn value."""
    record = next(
        found
        for line in (DATA / "consumer-offsets.jsonl").read_bytes().splitlines()
        if (found := json.loads(line))["key_hex"].startswith("0002") and found["value_hex"]
    )
    key, value = record["key_hex"], record["value_hex"]
    changes = (
        {"key_hex": f"0028{key[4:]}"},
        {"value_hex": f"007f{value[4:]}"},
        {"value_hex": value[:-2]},
    )
    return [json.dumps({**record, "offset": 10_000 + n, **new}) for n, new in enumerate(changes)]


@contextmanager
def watched(settings: Settings, spark: SparkSession) -> Iterator[tuple[Job, Endpoint]]:
    """Open a job whose report is served on a free port."""
    http = load_settings(None, {}, {"http.bind": "127.0.0.1:0", "http.cache_s": "0"}).http
    cluster = settings.job.cluster
    endpoint = Endpoint(http, {cluster: settings})
    with endpoint.serving(), endpoint.listening(spark), endpoint.health[cluster].running():
        yield Job(spark, settings, report=endpoint.report_of(cluster)), endpoint


@pytest.mark.spark
def test_a_job_s_metrics_account_for_all_that_it_wrote(spark: SparkSession, tmp_path: Path) -> None:
    """Every record, row, commit, rebalance, move and member of the tables; after a restart what is new."""
    lines = (DATA / "consumer-offsets.jsonl").read_text().splitlines()
    write_lines(tmp_path / "in", story())
    write_lines(tmp_path / "captured", {"offsets.jsonl": [*lines, *bad_lines()]})
    settings = make_settings(tmp_path / "job")
    captured = settings.sources[0].model_copy(
        update={"name": "captured", "format": "offsets", "path": str(tmp_path / "captured")}
    )
    settings = settings.model_copy(update={"sources": (*settings.sources, captured)})
    with watched(settings, spark) as (job, endpoint):
        assert endpoint.why_not_ready() == [
            "cluster default: its sinks are not connected",
            "cluster default: no batch and no trigger without news has ended",
        ]
        job.run(once=True)
        found = parsed(ask(endpoint.port, "/metrics")[1])
    tables = Tables(settings.job.tables)
    counts = totals(settings)
    outcomes = {key[1]: value for key, value in found["counterpoise_records_total"].items()}
    assert sum(outcomes.values()) == counts.pop("records_read")
    assert {**counts, "filtered": 0} == outcomes
    log = tables.read("generations", ["kind", "cluster", "group_id", "balance"]).to_pylist()
    rows = {key[1]: value for key, value in found["counterpoise_log_rows_total"].items()}
    assert rows == Counter(row["kind"] for row in log)
    assert sum(found["counterpoise_batches_total"].values()) == rows["batch"] == len(job.timings)
    commits = {key[1]: value for key, value in found["counterpoise_commits_total"].items()}
    assert commits["generations"] == rows["batch"]
    groups = {(row["cluster"], row["group_id"]): row for row in latest_groups(settings.job.tables)}
    assert set(found["kafka_group_members"]) == set(groups)
    rebalances: Counter[tuple[str, str]] = Counter()
    moves: Counter[tuple[str, str, str]] = Counter()
    for row in log:
        key = (row["cluster"], row["group_id"])
        if row["kind"] == "rebalance" and key in groups:
            rebalances[key] += 1
            for kind in ("moved", "assigned", "revoked", "lost"):
                moves[(*key, kind)] += row["balance"][kind]
    nonzero = {key: n for key, n in found["kafka_group_rebalances_total"].items() if n}
    assert nonzero == rebalances
    moved = found["kafka_group_partitions_moved_total"]
    assert {key: n for key, n in moved.items() if n} == {key: n for key, n in moves.items() if n}
    for key, group in groups.items():
        joined, left = (found[f"kafka_group_member_{what}_total"][key] for what in ("joins", "leaves"))
        assert joined - left == len(group["members"]) == found["kafka_group_members"][key], key
        assert found["kafka_group_state"][(*key, group["group_state"])] == 1
    assert found["kafka_group_monitor_decode_errors_total"] == {
        ("default", "40", "3"): 1,
        ("default", "2", "127"): 1,
        ("default", "2", "3"): 1,
    }
    times = tables.read("events", ["event_time", "source"]).to_pylist()
    newest = max(row["event_time"].timestamp() for row in times if row["source"] != "_own_events")
    assert found["kafka_group_monitor_last_record_timestamp_seconds"] == {("default",): newest}

    left = event("member_left", 500, group_id="g5", member_id="m1")
    write_lines(tmp_path / "in", {"c.jsonl": [left]})
    with watched(settings, spark) as (job, endpoint):
        job.run(once=True)
        found = parsed(ask(endpoint.port, "/metrics")[1])
    assert {k: n for k, n in found["kafka_group_member_leaves_total"].items() if n} == {("default", "g5"): 1}
    assert not any(found["kafka_group_member_joins_total"].values())
    assert sum(found["counterpoise_records_total"].values()) == 1


@pytest.mark.spark
def test_a_job_with_nothing_to_read_becomes_ready(spark: SparkSession, tmp_path: Path) -> None:
    """A trigger that found nothing is as good as a batch; the first one of all may be a batch of nothing."""
    (tmp_path / "in").mkdir()
    settings = make_settings(tmp_path / "job", job__tick_interval_s="0", job__trigger_interval_s="0.2")
    stop = threading.Event()
    with watched(settings, spark) as (job, endpoint), ThreadPoolExecutor(1) as pool:
        running = pool.submit(job.run, once=False, stop=stop)
        try:
            wait_until(lambda: running.done() or not endpoint.why_not_ready(), 60, "it is not ready")
        finally:
            stop.set()
        running.result()
        # Where the table of own events begins counts as news to Spark, once.
        assert len(job.timings) <= 1
        assert not job.tables.read("events", ["event_id"]).num_rows
    assert endpoint.why_not_ready() == ["cluster default: it has stopped"]


@pytest.mark.spark
@pytest.mark.live
def test_the_lag_of_a_kafka_source_is_what_the_batch_left(
    spark: SparkSession, kafka: KafkaBroker, tmp_path: Path
) -> None:
    """Of 250 records, a hundred a batch: 150 are left, then 50, then none; of files nothing is said."""
    topic = "metrics-lag"
    kafka.create_topic(topic, 2)
    lines = [event("time_advanced", second).encode() for second in range(250)]
    kafka.produce(topic, {0: lines[:125], 1: lines[125:]})
    (tmp_path / "in").mkdir()
    (tmp_path / "job.toml").write_text(
        f'[job]\ntables = "{tmp_path}/tables"\ncheckpoint_location = "{tmp_path}/checkpoint"\n'
        f'[[sources]]\nname = "files"\nformat = "events"\nfrom = "files"\npath = "{tmp_path}/in"\n'
        f'[[sources]]\nname = "topic"\nformat = "events"\nfrom = "kafka"\ntopic = "{topic}"\n'
        "max_records_per_trigger = 100\n"
        f'[clusters.default.kafka]\n"bootstrap.servers" = "{kafka.bootstrap_servers}"\n'
    )
    settings = load_settings(tmp_path / "job.toml", {}, {"clusters.default.metadata_interval_s": "0"})
    heard: list[dict[str, Any]] = []

    class Noting(ProgressListener):
        def note(self, progress: str) -> None:
            super().note(progress)
            heard.append(json.loads(progress))

    listener = Noting(lambda _query_id: None)
    spark.streams.addListener(listener)
    try:
        Job(spark, settings).run(once=True)
        wait_until(lambda: len(heard) >= 3, 30, "Spark told of fewer than three batches")
    finally:
        spark.streams.removeListener(listener)
    told = [[lag_records(source) for source in progress["sources"]] for progress in heard]
    assert [lags[:2] for lags in told] == [[None, 150], [None, 50], [None, 0]]


def test_every_metric_is_described(tmp_path: Path) -> None:
    """Name by name, in docs/deploy/metrics.md: a name is a contract."""
    settings = make_settings(tmp_path / "job")
    http = load_settings(None, {}, {"http.bind": "127.0.0.1:0"}).http
    endpoint = Endpoint(http, {"default": settings})
    with endpoint.serving():
        page = ask(endpoint.port, "/metrics")[1]
    families = text_string_to_metric_families(page)
    served = {f"{f.name}_total" if f.type == "counter" else f.name for f in families}
    listed = set(re.findall(r"`((?:kafka_group|counterpoise)_[a-z_]+)", LISTED))
    assert {name for name in served if not name.endswith("_created")} == listed
