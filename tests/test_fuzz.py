"""Rubbish in both formats: nothing crashes, nothing stops, and every record is accounted for."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from conf.settings import load_settings
from streaming.job import Job
from streaming.tables.delta import Tables
from tests.mutations import Line, mutated_events, mutated_records
from tests.test_events import GOOD

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from conf.settings import Settings

pytestmark = pytest.mark.spark

CAPTURED = Path(__file__).parents[1] / "console" / "demo" / "captured" / "consumer-offsets.jsonl"
OUTCOMES = ("applied", "duplicate", "ignored", "filtered", "rejected")
FILES = 10

SIZES = [
    pytest.param(3_000, "20000", id="driver"),
    pytest.param(50_000, "20000", id="driver-at-length", marks=pytest.mark.slow),
    pytest.param(50_000, "0", id="executors-at-length", marks=pytest.mark.slow),
]


def write_in_files(directory: Path, lines: list[Line]) -> None:
    """Write the lines into files that Spark takes one after another."""
    directory.mkdir(parents=True)
    share = -(-len(lines) // FILES)
    for number in range(FILES):
        file = directory / f"{number:02d}.jsonl"
        file.write_bytes(b"\n".join(lines[number * share : (number + 1) * share]) + b"\n")
        os.utime(file, (1_795_225_000 + number, 1_795_225_000 + number))


def fuzz_settings(root: Path, local_max_records: str) -> Settings:
    """Read both directories, a few files in each batch."""
    file = root / "conf.toml"
    source = (
        '[[sources]]\nname = "{0}"\nformat = "{0}"\nfrom = "files"\npath = "{1}"\nmax_files_per_trigger = 2\n'
    )
    file.write_text("".join(source.format(name, root / name) for name in ("events", "offsets")))
    overrides = {
        "job.tables": str(root / "tables"),
        "job.checkpoint_location": str(root / "checkpoint"),
        "batch.shards": "2",
        "batch.local_max_records": local_max_records,
    }
    return load_settings(file, {}, overrides)


@pytest.mark.parametrize(("each", "local_max_records"), SIZES)
def test_rubbish_is_accounted_for_and_stops_nothing(
    spark: SparkSession, tmp_path: Path, each: int, local_max_records: str
) -> None:
    """Applied + duplicate + ignored + filtered + rejected = read, in every batch; rejections have reasons."""
    events = mutated_events(seed=each, good=GOOD, count=each)
    records = mutated_records(seed=each, captured=CAPTURED.read_bytes().splitlines(), count=each)
    write_in_files(tmp_path / "events", events)
    write_in_files(tmp_path / "offsets", records)
    settings = fuzz_settings(tmp_path, local_max_records)
    Job(spark, settings).run(once=True)
    tables = Tables(settings.job.tables)
    batches = [r["batch"] for r in tables.read("generations", ["batch"]).to_pylist() if r["batch"]]
    total: Counter[str] = Counter()
    for batch in batches:
        assert sum(batch[outcome] for outcome in OUTCOMES) == batch["records_read"], batch
        total.update({name: batch[name] for name in (*OUTCOMES, "records_read")})
    assert total["records_read"] == 2 * each
    # The input is of the kind that was wanted: all of this happens, and much of it.
    assert min(total["applied"], total["rejected"]) > each // 5
    assert total["ignored"]
    rejected = tables.read("rejected_events", ["source", "reason"]).to_pylist()
    assert len(rejected) == total["rejected"]
    assert {row["source"] for row in rejected} == {"events", "offsets"}
    assert all(row["reason"] for row in rejected)
    accepted = tables.read("events", ["outcome"]).to_pylist()
    # Commits among captured records are told of in `events` or filtered; nothing else is missing.
    assert len(accepted) == total["applied"] + total["duplicate"] + total["ignored"]
