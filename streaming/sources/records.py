"""What sources hand on: records before they are parsed, and what parsing needs to know of their source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streaming.events.limits import DEFAULT_LIMITS, Limits

if TYPE_CHECKING:
    from streaming.model import Position


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One source as the executors need to know it; picklable.

    `kind` is "files", "delta", "kafka" or, of the job's own events, "own". `location` is the directory
    or table, or the Kafka topic; `root` is the directory as Spark spells it in a row's path.
    """

    name: str
    format: str
    kind: str
    location: str
    root: str
    cluster: str
    max_files_per_trigger: int = 0


@dataclass(frozen=True, slots=True)
class RawRecord:
    """One record before parsing; `size` is its full length in bytes, `key` and `value` may be cut.

    `value` is None only for a tombstone in Kafka, where alone there are a key and a time.
    `row` is how many records of its partition the batch has before it, None where nobody counts.
    """

    position: Position
    value: bytes | None
    size: int
    key: bytes | None = None
    timestamp_ms: int | None = None
    row: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ParseRules:
    """What parsing needs to know of the sources and settings; picklable."""

    sources: Mapping[str, Source]
    max_record_bytes: int
    rejected_raw_bytes: int
    limits: Limits = DEFAULT_LIMITS
