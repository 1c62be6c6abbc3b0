"""Stretches of a Kafka partition: records that were read with no offset missing between them.

A record that is not there was compacted away, or it was never written. Compaction leaves its offset
out; so where no offset is missing between two records of a group, every record in between was read,
and a generation that none of them tells of never was whole (docs/adr/0012).

How many offsets are missing before a record is its own offset less the records of its partition that
were read before it, those that are only counted included: two records with the same number lie in
one stretch. A control record of a transaction is missing like a compacted one, for no consumer is
given it. A record that is read but rejected counts as missing too: nobody knows what it told.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streaming.model import Position
    from streaming.sources.records import RawRecord

Records = dict[str, dict[str, int]]
"""source -> topic-partition (see Position.stream) -> a number of records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadBefore:
    """How many records earlier batches have read; picklable.

    `records` has an entry for every source whose records are counted; a partition
    begins with none. Numbers of one `adopted_after` go on from each other; a checkpoint
    that was adopted may have begun anywhere, so there the count begins anew. A job of
    an earlier release did not count: with none before it, a record's number is at
    least its offset, and so above every number of an earlier count.
    """

    adopted_after: int = 0
    records: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def and_now(self, read: Records, rejected: Records) -> Records:
        """Count on by what a batch has read and what of that was rejected."""
        total: Records = {}
        for source, known in self.records.items():
            new, lost = read.get(source, {}), rejected.get(source, {})
            streams = sorted({*known, *new})
            total[source] = {s: known.get(s, 0) + new.get(s, 0) - lost.get(s, 0) for s in streams}
        return total


class Stretches:
    """Names the stretch of every record of a batch; each partition's records must come in their order."""

    def __init__(self, before: ReadBefore) -> None:
        """Begin a batch."""
        self._before = before
        self.rejected: Records = {}

    def name(self, record: RawRecord) -> str | None:
        """Name the record's stretch; None where its source's records are not counted."""
        at = record.position
        before = self._before.records.get(at.source)
        if before is None or record.row is None:
            return None
        stream = at.stream
        read = before.get(stream, 0) + record.row - self.rejected.get(at.source, {}).get(stream, 0)
        return f"{at.source}/{stream}/{self._before.adopted_after}/{at.offset - read}"

    def reject(self, at: Position) -> None:
        """Note that the record at this position could not be read."""
        of_source = self.rejected.setdefault(at.source, {})
        of_source[at.stream] = of_source.get(at.stream, 0) + 1
