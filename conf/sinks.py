"""The settings of one sink, where deltas and generations go besides the tables: [[sinks]] in the file."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator

from conf.sections import Name, NotEmpty, Seconds, Section


class SinkSettings(Section):
    """One sink.

    `cluster` names the section of [clusters] whose broker has the topic. Without one
    the sink belongs to every deployment and writes to the deployment's own cluster
    (`job.cluster`, or what {cluster} stands for); with one, every deployment writes there.
    """

    name: Name
    to: Literal["kafka"]
    cluster: str = ""
    topic: NotEmpty
    what: Annotated[tuple[Literal["deltas", "generations"], ...], Field(min_length=1)] = (
        "deltas",
        "generations",
    )
    flush_timeout_s: Annotated[Seconds, Field(gt=0, description="a number over 0")] = 30.0

    @field_validator("what")
    @classmethod
    def _each_once(cls, what: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(what)) != len(what):
            raise ValueError(f"is {list(what)!r}; name each of 'deltas' and 'generations' once at most")
        return what
