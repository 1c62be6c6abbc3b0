"""Where records come from: every source as one stream of raw records with exact positions.

A raw record has the columns

    source string        the source's name in the settings
    path string          the file it stands in, as Spark names it (URI-encoded), the Kafka topic, or of an
                         event of the job's own its number, 13 digits
    block bigint         where the file's block begins that this row was read from; Kafka: -1
    partition int        Kafka's partition, -1 for a line or row
    offset bigint        Kafka's offset, -1 for a line or row
    timestamp_ms bigint  Kafka's timestamp of the record, epoch milliseconds; else null
    key binary           the record's key in Kafka, cut like its value; else null
    value binary         its bytes, cut behind `max_record_bytes`; null only for a tombstone
    bytes bigint         how many it had, key and value
    is_filtered boolean  whether it is only counted (kafka.py says which those are)
    row bigint           its number in its task of Spark, from 0, those that are only counted
                         included; the job adds it where a source has such records

one row per line, table row or Kafka record. Spark reads a large file in blocks and does not say
which line a row is, but it does say the block, and keeps the order of a block's rows: so the line
number is the rows of all earlier blocks and those before it in its own.

The text source hands the bytes of a line on untouched (NUL and bytes that are not UTF-8
included); lines end in LF, the last one may lack it, and what follows a closing LF is no line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from itertools import repeat
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import mmh3
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from streaming.events.parsing import Rejection, parse_record
from streaming.model import Input, Position
from streaming.sources.kafka import read_kafka
from streaming.sources.records import ParseRules, RawRecord, Source
from streaming.tables.delta import JobError, absolute_location
from streaming.tables.own_events import OWN_EVENTS

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

    from conf.settings import Settings
    from streaming.events.stretches import Stretches

_DIGEST_BYTES = 65_536
_MODULUS = 1 << 64

Block = tuple[str, str, int]
"""(source, path, block start): the unit in which Spark keeps the order of a file's rows."""

RAW_COLUMNS = (
    "source",
    "path",
    "block",
    "partition",
    "offset",
    "timestamp_ms",
    "key",
    "value",
    "bytes",
    "is_filtered",
)


def sources_of(spark: SparkSession, settings: Settings, tables_root: str) -> list[Source]:
    """List the sources of the settings, then the job's own events, which check_directory takes for last."""
    sources = [
        Source(
            name=source.name,
            format=source.format,
            kind=source.from_,
            location=source.topic if source.from_ == "kafka" else absolute_location(source.path),
            root="" if source.from_ == "kafka" else _as_spark_spells(spark, source.path),
            cluster=source.cluster,
            max_files_per_trigger=source.max_files_per_trigger,
        )
        for source in settings.sources
    ]
    own = Source(
        name=OWN_EVENTS,
        format="events",
        kind="own",
        location=f"{tables_root}/{OWN_EVENTS}",
        root="",
        cluster=settings.job.cluster,
    )
    return [*sources, own]


def _as_spark_spells(spark: SparkSession, location: str) -> str:
    # PySpark has no public way to ask Hadoop about a path.
    jvm: Any = spark._jvm
    path = jvm.org.apache.hadoop.fs.Path(absolute_location(location))
    hadoop = spark._jsc.hadoopConfiguration()
    return str(path.getFileSystem(hadoop).makeQualified(path).toString())


def raw_stream(spark: SparkSession, sources: Sequence[Source], settings: Settings) -> DataFrame:
    """Read all sources as one stream of raw records.

    Raises:
        JobError: a source is not there, or not what the settings say.
    """
    most = settings.source.max_record_bytes
    frames = [_READERS[source.kind](spark, source, settings) for source in sources]
    length = F.coalesce(F.octet_length("value"), F.lit(0)) + F.coalesce(F.octet_length("key"), F.lit(0))
    return (
        reduce(lambda left, right: left.unionByName(right), frames)
        .withColumn("bytes", length.cast("long"))
        .withColumns({name: F.substring(name, 1, most + 1) for name in ("key", "value")})
        .select(*RAW_COLUMNS)
    )


def _read_files(spark: SparkSession, source: Source, _settings: Settings) -> DataFrame:
    # Spark picks the files of a batch by modification time; within a batch we order by name.
    reader = spark.readStream.format("text").option("lineSep", "\n").option("recursiveFileLookup", "true")
    if source.max_files_per_trigger:
        reader = reader.option("maxFilesPerTrigger", source.max_files_per_trigger)
    metadata = F.col("_metadata")
    return _lines(reader.load(source.location), source, metadata["file_path"], metadata["file_block_start"])


def _read_delta(spark: SparkSession, source: Source, _settings: Settings) -> DataFrame:
    reader = spark.readStream.format("delta").option("ignoreDeletes", "true")
    if source.max_files_per_trigger:
        reader = reader.option("maxFilesPerTrigger", source.max_files_per_trigger)
    rows = reader.load(source.location)
    found = dict(rows.dtypes).get("value")
    if found not in ("string", "binary"):
        raise JobError(
            f"source {source.name!r}: table {source.location} has "
            + (f"column value as {found}" if found else f"columns {rows.columns}")
            + "; it needs a column value, string or binary, with one record a row"
        )
    # Delta's stream offers no _metadata; these two functions read the same of the task's split.
    return _lines(rows, source, F.input_file_name(), F.input_file_block_start())


def _read_own(spark: SparkSession, source: Source, _settings: Settings) -> DataFrame:
    # Upkeep deletes rows that every batch has behind it, which is no news.
    rows = spark.readStream.format("delta").option("skipChangeCommits", "true").load(source.location)
    return _lines(rows, source, F.format_string("%013d", "number"), F.input_file_block_start())


def _lines(rows: DataFrame, source: Source, path: Column, block: Column) -> DataFrame:
    """Make raw records of lines or rows, which have nothing of what Kafka says of its own."""
    return rows.select(
        F.lit(source.name).alias("source"),
        path.alias("path"),
        block.alias("block"),
        F.lit(-1).alias("partition"),
        F.lit(-1).cast("long").alias("offset"),
        F.lit(None).cast("long").alias("timestamp_ms"),
        F.lit(None).cast("binary").alias("key"),
        F.col("value").cast("binary").alias("value"),
        F.lit(False).alias("is_filtered"),
    )


def _read_kafka(spark: SparkSession, source: Source, settings: Settings) -> DataFrame:
    return read_kafka(spark, source.name, settings)


_READERS: Mapping[str, Callable[[SparkSession, Source, Settings], DataFrame]] = {
    "files": _read_files,
    "delta": _read_delta,
    "kafka": _read_kafka,
    "own": _read_own,
}


def file_names(
    spark: SparkSession, sources: Mapping[str, Source], paths: Iterable[tuple[str, str]]
) -> dict[tuple[str, str], str]:
    """Name each (source, path) as positions do, so that names sort in the order of application.

    A Kafka topic goes by its name, an event of the job's own by its number, a file by its name below
    the source's directory. A Delta table's data files have random names, so the time when the file
    was written, as 13 digits of milliseconds, stands before it.
    """
    names = {}
    jvm: Any = spark._jvm
    hadoop = spark._jsc.hadoopConfiguration()
    for name, path in paths:
        source = sources[name]
        if source.kind in ("kafka", "own"):
            names[(name, path)] = path
            continue
        plain = unquote(path)
        below = plain.removeprefix(source.root).lstrip("/")
        if source.kind == "delta":
            file = jvm.org.apache.hadoop.fs.Path(jvm.java.net.URI(path))
            written_ms = file.getFileSystem(hadoop).getFileStatus(file).getModificationTime()
            below = f"{written_ms:013d}/{below}"
        names[(name, path)] = below
    return names


def lines_before(counts: Mapping[Block, int]) -> dict[Block, int]:
    """Turn rows per block into the number of lines that stand before each block in its file."""
    before: dict[Block, int] = {}
    total = 0
    file: tuple[str, str] | None = None
    for block in sorted(counts):
        if block[:2] != file:
            file, total = block[:2], 0
        before[block] = total
        total += counts[block]
    return before


def count_blocks(rows: pa.Table | pa.RecordBatch) -> dict[Block, int]:
    """Count the rows of each block."""
    counts: dict[Block, int] = {}
    for block in _blocks(rows):
        counts[block] = counts.get(block, 0) + 1
    return counts


def number_records(
    rows: pa.Table | pa.RecordBatch,
    names: Mapping[tuple[str, str], str],
    next_line: dict[Block, int],
) -> Iterator[RawRecord]:
    """Give each row its position, in the rows' order.

    Args:
        rows: raw records, every block's in the order in which Spark read them.
        names: (source, path) -> name, from `file_names`.
        next_line: lines already seen of each block's file before the next row of that
            block; it is counted on here, so that a block may go on in the next call's rows.
    """
    columns: list[Any] = [rows.column(name).to_pylist() for name in _RECORD_COLUMNS]
    # Spark makes one task of each Kafka partition of a batch, so this counts within the partition.
    numbers = rows.column("row").to_pylist() if "row" in rows.schema.names else repeat(None, rows.num_rows)
    for source, path, block, partition, offset, timestamp_ms, key, value, length, row in zip(
        *columns, numbers, strict=True
    ):
        name = names[(source, path)]
        if partition >= 0:
            place = Position(source, name, partition, offset)
            yield RawRecord(place, value, length, key, timestamp_ms, row)
            continue
        block_at = (source, path, block)
        next_line[block_at] = line = next_line.get(block_at, 0) + 1
        yield RawRecord(Position(source, name, -1, line), value, length)


_RECORD_COLUMNS = RAW_COLUMNS[:-1]


def _blocks(rows: pa.Table | pa.RecordBatch) -> Iterator[Block]:
    columns: list[Any] = [rows.column(name).to_pylist() for name in ("source", "path", "block")]
    return zip(*columns, strict=True)


def parse_raw(record: RawRecord, rules: ParseRules, stretches: Stretches) -> Input | Rejection:
    """Parse one raw record by its source's format, and say in which stretch of its partition it lies."""
    stretch = stretches.name(record)
    parsed = _parse(record, rules)
    if isinstance(parsed, Rejection):
        stretches.reject(record.position)
        return parsed
    return parsed if stretch is None else replace(parsed, stretch=stretch)


def _parse(record: RawRecord, rules: ParseRules) -> Input | Rejection:
    if record.size > rules.max_record_bytes:
        return Rejection(
            position=record.position,
            reason=f"the record has {record.size} bytes; at most {rules.max_record_bytes} are read "
            "(source.max_record_bytes)",
            raw=(record.value or b"")[: rules.rejected_raw_bytes],
            raw_bytes=record.size,
        )
    source = rules.sources[record.position.source]
    return parse_record(
        record.value,
        position=record.position,
        format=source.format,  # type: ignore[arg-type]  # the settings allow only the two
        default_cluster=source.cluster,
        max_record_bytes=rules.max_record_bytes,
        kafka_key=record.key,
        kafka_timestamp_ms=record.timestamp_ms,
        limits=rules.limits,
    )


def digest_of(record: RawRecord) -> int:
    """Hash one record and its place; a batch's digest is the sum, so that order does not matter."""
    at = record.position
    place = f"{at.source}\0{at.path}\0{at.partition}\0{at.offset}\0{record.size}\0".encode()
    content = (record.key or b"") + (record.value or b"")[:_DIGEST_BYTES]
    return int(mmh3.hash64(place + content, signed=False)[0])


def add_digests(digests: Iterable[int]) -> int:
    """Add digests as the batch row keeps them, modulo 2^64."""
    return sum(digests) % _MODULUS
