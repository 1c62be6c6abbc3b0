"""The stream end to end: what it promises of bad input, of cheating assignors, and of both its paths."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from conf.settings import Settings, load_settings
from streaming.job import Job
from streaming.tables.delta import Tables
from tests.corrupt_lines import corrupt_lines
from tests.deployments import contents, event, make_settings, totals
from tests.kill_harness import write_in_order

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[1]
DEMO = ROOT / "console" / "demo"
PATHS = {"driver": "5000", "executors": "0"}


def rows_of(settings: Settings, table: str, *columns: str) -> list[dict[str, Any]]:
    """Read some columns of a table."""
    return Tables(settings.job.tables).read(table, columns).to_pylist()


@pytest.mark.parametrize("path", PATHS)
def test_corrupt_lines_are_rejected_and_the_good_between_them_applied(
    spark: SparkSession, tmp_path: Path, path: str
) -> None:
    """A thousand provably bad lines land in rejected_events, each with reason and place; nothing is lost."""
    bad = corrupt_lines(seed=3, count=1000)
    good = [event("topic_changed", 0, topic="orders", partitions=4)]
    good += [
        event("member_joined", i, group_id=f"g{i % 20}", member_id=f"m{i}", topics=["orders"])
        for i in range(100)
    ]
    lines: list[bytes] = []
    for i, line in enumerate(bad):
        lines.append(line)
        if i % 10 == 0:
            lines.append(good[i // 10].encode())
    lines.append(good[-1].encode())
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "mixed.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    settings = make_settings(tmp_path / "job", batch__local_max_records=PATHS[path])
    Job(spark, settings).run(once=True)
    counts = totals(settings)
    assert counts == {
        "records_read": len(lines), "applied": len(good), "duplicate": 0, "ignored": 0, "rejected": len(bad),
    }  # fmt: skip
    rejected = rows_of(settings, "rejected_events", "path", "offset", "reason", "raw", "raw_bytes")
    assert [row for row in rejected if not row["reason"]] == []
    wanted = {i + 1: line for i, line in enumerate(lines) if line in set(bad)}
    assert {row["offset"] for row in rejected} == set(wanted)
    for row in rejected:
        line = wanted[row["offset"]]
        assert row["raw_bytes"] == len(line)
        assert line.startswith(row["raw"])
    assert len(rows_of(settings, "groups", "group_id")) == 20


def strict_suite(file: Path) -> Path:
    """Write a suite of a user's own, in which the spread that an assignor promises is critical."""
    suite = json.loads((ROOT / "checkpoints" / "balance.json").read_text())
    (spread,) = [e for e in suite["expectations"] if e["meta"]["check"] == "excess_spread"]
    spread["severity"] = "critical"
    file.write_text(json.dumps(suite))
    return file


@pytest.mark.parametrize("path", PATHS)
def test_a_cheating_assignor_is_held_and_costs_its_own_group_only(
    spark: SparkSession, tmp_path: Path, path: str
) -> None:
    """What breaks the rules is refused where the plug-in is asked, what breaks a check by Great Expectations.

    Both before the commit: held, told, and nothing emitted, until the group goes by another assignor.
    """
    alert_of = {"cheated": "AssignorFailed", "uneven": "GenerationHeld"}
    story = [event("topic_changed", 0, topic="orders", partitions=2)]
    for group, protocol in (("cheated", "cheat"), ("uneven", "uneven"), ("fine", "range")):
        for member in ("C0", "C1"):
            more = {"member_id": member, "topics": ["orders"], "protocols": [protocol]}
            story.append(event("member_joined", 1, group_id=group, **more))
    story += [
        event("group_settings", 300, group_id=group, assignor="cooperative-sticky") for group in alert_of
    ]
    story.append(event("time_advanced", 900))
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text("\n".join(story) + "\n")
    plugins = {
        "groups.plugins.cheat": "tests.test_plugins:give_all_to_everybody",
        "groups.plugins.uneven": "tests.test_plugins:uneven",
        "checks.suite": str(strict_suite(tmp_path / "strict.json")),
    }
    settings = make_settings(tmp_path / "job", batch__local_max_records=PATHS[path], **plugins)
    Job(spark, settings).run(once=True)
    log = sorted(
        rows_of(settings, "generations", "log_seq", "group_id", "kind", "version", "generation_id", "deltas"),
        key=lambda row: row["log_seq"],
    )
    held = [row for row in log if row["kind"] == "held"]
    assert [row["deltas"] for row in held] == [[]] * len(held)
    assert {row["group_id"] for row in held} == set(alert_of)
    for group in alert_of:
        kinds = [row["kind"] for row in log if row["group_id"] == group and row["kind"] != "state"]
        # Alone, the first member may have everything.
        assert (kinds[0], kinds[-1]) == ("rebalance", "rebalance")
    assert {row["kind"] for row in log if row["group_id"] == "fine"} <= {"rebalance", "state"}
    told = rows_of(settings, "checks", "group_id", "version", "check", "success", "observed")
    failed = {(r["group_id"], r["version"], r["check"]) for r in told if not r["success"]}
    assert failed == {("uneven", r["version"], "excess_spread") for r in held if r["group_id"] == "uneven"}
    alerts = rows_of(
        settings, "alert_events", "group_id", "alertname", "status", "change_number", "description"
    )
    for group, alertname in alert_of.items():
        changes = [a for a in alerts if a["alertname"] == alertname]
        assert {a["group_id"] for a in changes} == {group}
        changes.sort(key=lambda a: a["change_number"])
        assert [a["status"] for a in changes] == ["firing", "resolved"]
    (why,) = [a["description"] for a in alerts if (a["group_id"], a["status"]) == ("cheated", "firing")]
    assert why.startswith("assignor 'cheat' gave 'C1' partition 0 of topic 'orders', which 'C0' has already")


def demo_settings(root: Path, local_max_records: str) -> Settings:
    """Make settings that read the demo's records."""
    root.mkdir(parents=True)
    file = root / "conf.toml"
    file.write_text(
        "".join(
            f'[[sources]]\nname = "{name}"\nformat = "{form}"\nfrom = "files"\npath = "{DEMO / name}"\n'
            for name, form in (("events", "events"), ("captured", "offsets"))
        )
    )
    overrides = {
        "job.tables": str(root / "tables"),
        "job.checkpoint_location": str(root / "checkpoint"),
        "batch.shards": "2",
        "batch.local_max_records": local_max_records,
    }
    return load_settings(file, {}, overrides)


def test_real_records_come_out_alike_on_both_paths(spark: SparkSession, tmp_path: Path) -> None:
    """Captured groups, topics of another source and the story: driver and executors fill equal tables."""
    found = {}
    for path, most in PATHS.items():
        settings = demo_settings(tmp_path / path, most)
        Job(spark, settings).run(once=True)
        found[path] = contents(settings)
    assert found["driver"] == found["executors"]
    assert len(found["driver"]["groups"]) == 9


@pytest.mark.parametrize("size", [1, 7])
def test_versions_do_not_depend_on_the_micro_batches(spark: SparkSession, tmp_path: Path, size: int) -> None:
    """One ordered source, so many lines a batch or all at once, gives the same versions."""
    lines = (DEMO / "events" / "2-story.jsonl").read_text().splitlines()
    versions = []
    for name, chunk in (("whole", len(lines)), ("cut", size)):
        settings = make_settings(tmp_path / name / "job", **{"sources.events.max_files_per_trigger": "1"})
        source, firsts = tmp_path / name / "in", range(0, len(lines), chunk)
        write_in_order(source, {f"{first:04d}.jsonl": lines[first : first + chunk] for first in firsts})
        job = Job(spark, settings)
        job.run(once=True)
        assert len(job.timings) == len(firsts)
        log = rows_of(
            settings, "generations", "kind", "cluster", "group_id", "event_time", "version", "generation_id",
            "phase", "is_final", "reason", "members", "assignment", "expected", "balance", "deltas", "checks",
            "alerts", "fingerprint", "state",
        )  # fmt: skip
        kinds = {"rebalance", "held", "baseline", "gap", "deleted"}
        versions.append(sorted(json.dumps(row, default=str) for row in log if row["kind"] in kinds))
        shutil.rmtree(source)
    assert versions[0] == versions[1]
    assert len(versions[0]) > 20
