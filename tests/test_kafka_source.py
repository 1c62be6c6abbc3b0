"""What the Kafka source tells Spark, and which records it only counts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from streaming.batches.batch import Intake
from streaming.model import Position
from streaming.sources.kafka import GROUP_PREFIX, is_only_counted
from streaming.tables.delta import LOG, JobError, Tables
from streaming.tables.schemas import GENERATIONS
from tests.offsets_encoder import encode_key

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COMMIT = {"topic": "orders", "partition": 0}
KEYS: list[tuple[bytes | None, bool]] = [
    (encode_key(0, {"group": "g", **COMMIT}), True),
    (encode_key(1, {"group": "g", **COMMIT}), True),
    (encode_key(1, {"group": "", **COMMIT}), True),
    (encode_key(2, {"group": "g"}), False),
    (encode_key(2, {"group": "\x00\x01"}), False),
    (encode_key(2, {"group": f"{GROUP_PREFIX}-5f1c-driver-0"}), True),
    (encode_key(5, {"groupId": f"{GROUP_PREFIX}-5f1c-driver-0", "memberId": "m"}), True),
    (encode_key(2, {"group": f"my-{GROUP_PREFIX}"}), False),
    (encode_key(2, {"group": GROUP_PREFIX[:-1]}), False),
    (encode_key(16, {"groupId": "g", "regularExpression": ".*"}), False),
    (b"\x00\x63what comes with a later Kafka", False),
    (b"\x00", False),
    (b"", False),
    (None, False),
]
"""Keys, and whether their records are only counted."""


@pytest.mark.spark
def test_commits_and_our_own_groups_are_only_counted(spark: SparkSession) -> None:
    """Told by the key's first bytes, whatever else it holds; what is damaged or new is read."""
    frame = spark.createDataFrame([(n, key) for n, (key, _) in enumerate(KEYS)], "n int, key binary")
    told = frame.select("n", is_only_counted().alias("is_filtered")).collect()
    assert {row["n"]: row["is_filtered"] for row in told} == dict(enumerate(only for _, only in KEYS))


def test_positions_of_kafka_go_by_partition_and_offset() -> None:
    """A batch's end is the offset behind the last record of each partition, kept from batch to batch."""
    intake = Intake()
    for partition, offset in ((0, 7), (3, 0), (0, 5)):
        intake.reach(Position("k", "t", partition, offset))
    intake.reach(Position("f", "a.jsonl", -1, 2))
    before = {"k": {"partitions": {"t-0": 6, "t-1": 9}}, "f": {"files": {"0.jsonl": 3}, "last": "0.jsonl"}}
    end, late = intake.source_end(before)
    assert end == {
        "f": {"files": {"a.jsonl": 2}, "last": "a.jsonl"},
        "k": {"partitions": {"t-0": 8, "t-1": 9, "t-3": 1}},
    }
    assert late == 0


def without(schema: pa.Schema, column: str, field: str) -> pa.Schema:
    """Take a field out of a struct column, as an earlier release had it."""
    place = schema.get_field_index(column)
    kept = pa.struct([inner for inner in schema.field(column).type if inner.name != field])
    return schema.set(place, pa.field(column, kept))


def test_tables_of_an_earlier_release_grow(tmp_path: Path) -> None:
    """Columns that this release adds are null in old rows; nothing is rewritten, and readers see both."""
    old = without(GENERATIONS, "batch", "filtered")
    table = DeltaTable.create(tmp_path / LOG, old)
    row = {"log_seq": 1, "batch_seq": 1, "kind": "batch", "batch": {"batch_id": 0, "records_read": 3}}
    write_deltalake(table, pa.Table.from_pylist([row], schema=old), mode="append")
    tables = Tables(str(tmp_path))
    (found,) = tables.read(LOG, ["batch"])["batch"].to_pylist()
    assert (found["records_read"], found["filtered"]) == (3, None)
    again = Tables(str(tmp_path)).delta_table(LOG)
    assert again.version() == tables.delta_table(LOG).version(), "opened twice, changed once"


def test_a_table_of_a_later_release_is_refused(tmp_path: Path) -> None:
    """A column that this release does not know is named: writing without it would lose it."""
    newer = GENERATIONS.append(pa.field("from_the_future", pa.string()))
    DeltaTable.create(tmp_path / LOG, newer)
    with pytest.raises(JobError, match=r"generations at .*'from_the_future'"):
        Tables(str(tmp_path))
