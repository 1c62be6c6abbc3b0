"""The settings of one source of records: [[sources]] in the file."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from conf.sections import CountOrNone, Name, NotEmpty, Section

OFFSETS_TOPIC = "__consumer_offsets"
_ONLY_KAFKA = ("topic", "starting", "max_records_per_trigger")
_ONLY_FILES = ("path", "max_files_per_trigger")


class SourceSettings(Section):
    """One source of records. `from_` is `from` in the file.

    Of a Kafka source `cluster` names its section in [clusters], and `topic` is
    `__consumer_offsets` unless said; any other source has a `path`.
    """

    name: Name
    format: Literal["events", "offsets"]
    from_: Annotated[Literal["files", "delta", "kafka"], Field(alias="from")]
    cluster: NotEmpty
    path: str = ""
    max_files_per_trigger: CountOrNone = 0
    topic: str = ""
    starting: str = "earliest"
    max_records_per_trigger: CountOrNone = 100_000

    @field_validator("starting")
    @classmethod
    def _is_a_place(cls, starting: str) -> str:
        if starting not in ("earliest", "latest"):
            try:
                is_moment = datetime.fromisoformat(starting).tzinfo is not None
            except ValueError:
                is_moment = False
            if not is_moment:
                raise ValueError(
                    f"is {starting!r}; it must be 'earliest', 'latest' or an RFC 3339 time with offset "
                    "such as '2026-01-31T12:00:00Z'"
                )
        return starting

    @model_validator(mode="after")
    def _fit_together(self) -> SourceSettings:
        is_kafka = self.from_ == "kafka"
        alien = [name for name in (_ONLY_FILES if is_kafka else _ONLY_KAFKA) if name in self.model_fields_set]
        if alien:
            raise ValueError(f"has {alien[0]}, which no source from {self.from_!r} has; leave it out")
        if is_kafka:
            if not self.topic and self.format == "events":
                raise ValueError("has no topic; a source of events from 'kafka' needs one")
            if not self.topic:
                return self.model_copy(update={"topic": OFFSETS_TOPIC})
        elif not self.path:
            raise ValueError(f"has no path; a source from {self.from_!r} needs one that is not empty")
        return self
