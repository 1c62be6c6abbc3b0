"""Upkeep keeps tables small and says nothing else about them: their contents stay, whenever it is killed."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from conf.settings import UpkeepSettings
from streaming.tables.delta import LOG, PUBLISHED, SNAPSHOTS, Tables
from streaming.tables.log import SNAPSHOT_APP
from streaming.tables.publish import PUBLISH_APP, SINK_APP, SINK_TABLE
from streaming.tables.schemas import SCHEMA_BY_TABLE
from streaming.tables.upkeep import Upkeep
from tests.kafka_cluster import wait_until

NOW = datetime(2026, 11, 21, 13, 30, tzinfo=UTC)


def settings(**more: Any) -> UpkeepSettings:
    """Make settings under which everything is worth doing."""
    plain = {
        "every_s": 1.0,
        "compact_from_files": 4,
        "target_file_bytes": 1 << 20,
        "vacuum_after_h": 1,
        "log_retention_h": 1,
        "keep_days": {},
    }
    return UpkeepSettings.model_validate(plain | more)


def days_ago(days: int) -> datetime:
    """Give a time so many days before."""
    return NOW - timedelta(days=days)


def fill(tables: Tables, name: str, batches: int) -> None:
    """Append so many small files, batch 1 the oldest, one day apart, the last one today."""
    schema = SCHEMA_BY_TABLE[name]
    for batch_seq in range(1, batches + 1):
        kinds = ["rebalance", "batch"] if name == LOG else [None]
        rows = [
            {
                "log_seq": batch_seq << 20 | place,
                "batch_seq": batch_seq,
                "observed_at": days_ago(batches - batch_seq),
                "group_id": f"g{batch_seq}",
                **({"kind": kind} if kind else {}),
            }
            for place, kind in enumerate(kinds)
        ]
        tables.append(
            name, pa.Table.from_pylist(rows, schema=schema), app_id="counterpoise-test", version=batch_seq
        )


def note(tables: Tables, batch_seq: int) -> None:
    """Let every snapshot and flat table have all batches up to this one."""
    for app_id, names in ((SNAPSHOT_APP, SNAPSHOTS), (PUBLISH_APP, PUBLISHED)):
        for name in names:
            tables.mark(name, app_id=app_id, version=batch_seq)


def rows_of(tables: Tables, name: str) -> list[str]:
    """Give a table's rows as a fresh reader sees them, sorted."""
    fresh = Tables(tables.root)
    return sorted(map(repr, fresh.read(name, SCHEMA_BY_TABLE[name].names).to_pylist()))


def batches_of(tables: Tables, name: str, kind: str | None = None) -> list[int]:
    """Give the batches that a table still has rows of."""
    rows = Tables(tables.root).read(name, ["batch_seq", *(["kind"] if kind else [])]).to_pylist()
    return sorted(row["batch_seq"] for row in rows if kind is None or row["kind"] == kind)


def test_many_small_files_become_few_and_the_rows_stay(tmp_path: Path) -> None:
    """Compaction and vacuum change the files of a table, not its rows; what is large enough is left alone."""
    tables = Tables(str(tmp_path))
    fill(tables, "events", 12)
    fill(tables, "checks", 3)
    before = {name: rows_of(tables, name) for name in ("events", "checks")}
    done = {each.table: each for each in Upkeep(tables, settings(), now=lambda: NOW).run()}
    assert set(done) == set(SCHEMA_BY_TABLE)
    assert (done["events"].files_before, done["events"].files_after) == (12, 1)
    assert (done["checks"].files_before, done["checks"].files_after) == (3, 3)
    assert {name: rows_of(tables, name) for name in before} == before
    again = {each.table: each for each in Upkeep(tables, settings(), now=lambda: NOW).run()}
    assert again["events"].files_after == 1


@pytest.mark.parametrize(("name", "most"), [(LOG, 1_000), ("events", 100_000)])
def test_a_file_can_be_read_a_part_at_a_time(tmp_path: Path, name: str, most: int) -> None:
    """What upkeep puts together, or leaves of what expires, has rows with states in small row groups."""
    tables = Tables(str(tmp_path))
    fill(tables, name, 4)
    rows = tables.read(name, SCHEMA_BY_TABLE[name].names).slice(0, 1)
    tables.append(name, pa.concat_tables([rows] * 2_500), app_id="counterpoise-test", version=5)
    before = rows_of(tables, name)
    Upkeep(tables, settings(), now=lambda: NOW).run()
    assert rows_of(tables, name) == before
    assert row_groups_of(tables, name) == [[most] * (2_500 // most) + [len(before) % most]]
    note(tables, 9)
    Upkeep(tables, settings(keep_days={name: 2}), now=lambda: NOW).run()
    assert max(map(max, row_groups_of(tables, name))) <= most


def row_groups_of(tables: Tables, name: str) -> list[list[int]]:
    """Count the rows of each row group of each live file."""
    files = (pq.ParquetFile(path).metadata for path in DeltaTable(tables.location(name)).file_uris())
    return [[file.row_group(place).num_rows for place in range(file.num_row_groups)] for file in files]


def test_vacuum_takes_what_nobody_needs_and_spares_what_is_new(tmp_path: Path) -> None:
    """Files past the retention go, a crash's orphans too; a file that is being written now stays."""
    import os

    tables = Tables(str(tmp_path))
    fill(tables, "events", 6)
    old = Path(tables.location("events")) / "part-00000-orphan-of-a-crash.parquet"
    tables.leave_orphan("events", SCHEMA_BY_TABLE["events"].empty_table())
    young = next(Path(tables.location("events")).glob("*uncommitted*"))
    old.write_bytes(young.read_bytes())
    hours_ago = (datetime.now(UTC) - timedelta(hours=2)).timestamp()
    os.utime(old, (hours_ago, hours_ago))
    before = rows_of(tables, "events")
    Upkeep(tables, settings(), now=lambda: NOW).run()
    assert not old.exists()
    assert young.exists()
    assert rows_of(tables, "events") == before


def test_history_past_its_days_goes_in_whole_days(tmp_path: Path) -> None:
    """A table keeps its own number of days; one that has none keeps everything."""
    tables = Tables(str(tmp_path))
    for name in ("events", "balance"):
        fill(tables, name, 10)
    done = {e.table: e for e in Upkeep(tables, settings(keep_days={"events": 3}), now=lambda: NOW).run()}
    # Midnight three days ago: yesterday, the day before and its day before are whole.
    assert batches_of(tables, "events") == [7, 8, 9, 10]
    assert done["events"].rows_expired == 6
    assert batches_of(tables, "balance") == list(range(1, 11))


@pytest.mark.parametrize("behind", ["assignments", "checks", "a sink"])
def test_the_log_keeps_what_somebody_still_needs(tmp_path: Path, behind: str) -> None:
    """Rows that a snapshot, a flat table or a sink has not taken are older than their days and stay."""
    tables = Tables(str(tmp_path))
    fill(tables, LOG, 10)
    for app_id, names in ((SNAPSHOT_APP, SNAPSHOTS), (PUBLISH_APP, PUBLISHED)):
        for name in names:
            tables.mark(name, app_id=app_id, version=4 if name == behind else 9)
    tables.mark(SINK_TABLE, app_id=f"{SINK_APP}deltas", version=4 if behind == "a sink" else 9)
    upkeep = Upkeep(tables, settings(keep_days={LOG: 1}), ["deltas"], now=lambda: NOW)
    upkeep.run()
    assert batches_of(tables, LOG, "rebalance") == [5, 6, 7, 8, 9, 10]
    assert batches_of(tables, LOG, "batch") == list(range(1, 11))
    # With everybody up to date the rest goes too, the day after.
    note(tables, 10)
    tables.mark(SINK_TABLE, app_id=f"{SINK_APP}deltas", version=10)
    later = NOW + timedelta(days=1)
    Upkeep(tables, settings(keep_days={LOG: 1}), ["deltas"], now=lambda: later).run()
    assert batches_of(tables, LOG, "rebalance") == [10]
    assert batches_of(tables, LOG, "batch") == list(range(1, 11))


def test_a_tables_own_log_stays_short(tmp_path: Path) -> None:
    """Each round leaves a checkpoint, and commits past their hours go; the application versions stay."""
    tables = Tables(str(tmp_path))
    fill(tables, "events", 30)
    Upkeep(tables, settings(), now=lambda: NOW).run()
    log = Path(tables.location("events")) / "_delta_log"
    old = (datetime.now(UTC) - timedelta(hours=50)).timestamp()
    import os

    for commit in log.glob("*.json"):
        os.utime(commit, (old, old))
    before = rows_of(tables, "events")
    Upkeep(tables, settings(), now=lambda: NOW).run()
    Upkeep(tables, settings(), now=lambda: NOW).run()
    assert len(list(log.glob("*.json"))) < 10
    assert list(log.glob("*.checkpoint.parquet"))
    assert rows_of(tables, "events") == before
    assert Tables(tables.root).transaction_version("events", "counterpoise-test") == 30


def test_batches_go_on_while_upkeep_works(tmp_path: Path) -> None:
    """Appends and rounds at the same time: every row is there in the end, once."""
    tables = Tables(str(tmp_path))
    upkeep = Upkeep(tables, settings(compact_from_files=2), now=lambda: NOW)
    stop, rounds = threading.Event(), 0

    def append_all() -> Iterator[None]:
        own = Tables(tables.root)
        for batch_seq in range(1, 61):
            rows = pa.Table.from_pylist(
                [{"batch_seq": batch_seq, "log_seq": batch_seq, "observed_at": NOW}],
                schema=SCHEMA_BY_TABLE["events"],
            )
            own.append("events", rows, app_id=PUBLISH_APP, version=batch_seq)
        stop.set()
        yield

    thread = threading.Thread(target=lambda: list(append_all()))
    thread.start()
    while not stop.is_set() and thread.is_alive():
        upkeep.run()
        rounds += 1
    thread.join()
    assert rounds
    assert batches_of(tables, "events") == list(range(1, 61))


def test_a_round_that_fails_is_told_and_does_not_spread(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """With a table gone the round ends, the log says so, and the thread that asked goes on."""
    import shutil

    tables = Tables(str(tmp_path))
    upkeep = Upkeep(tables, settings(), now=lambda: NOW)
    shutil.rmtree(tables.location("events"))
    with caplog.at_level(logging.ERROR):
        upkeep.begin()
        wait_until(lambda: "upkeep ended" in caplog.text, 10, "nothing was told")
        upkeep.stop()
    assert "upkeep ended early; it is tried again after 1 s" in caplog.text


def test_only_tables_with_a_time_of_their_own_can_expire() -> None:
    """The names that keep_days takes are those of the tables with observed_at, snapshots left out."""
    field = UpkeepSettings.model_fields["keep_days"].annotation
    named = set(get_args(get_args(field)[0]))
    timed = {name for name, schema in SCHEMA_BY_TABLE.items() if "observed_at" in schema.names}
    assert named == timed - set(SNAPSHOTS)
