"""The settings for those who run the job: what it serves over HTTP, and its log."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator

from conf.sections import Count, Seconds, Section

_HIGHEST_PORT = 65_535


class HttpSettings(Section):
    """Metrics and health over HTTP; see default.toml."""

    bind: Annotated[
        str,
        Field(
            pattern=r"^$|^(\[[0-9A-Fa-f:.]+\]|[^:/\s\[\]]+):[0-9]{1,5}$",
            description="'' or an address and a port such as '127.0.0.1:9464' or '[::1]:9464'",
        ),
    ]
    max_groups: Count
    cache_s: Seconds
    stuck_after_s: Seconds

    @field_validator("bind")
    @classmethod
    def _has_a_port(cls, bind: str) -> str:
        if bind and int(bind.rpartition(":")[2]) > _HIGHEST_PORT:
            raise ValueError(f"is {bind!r}; its port must be from 0 (any that is free) to {_HIGHEST_PORT}")
        return bind

    def address(self) -> tuple[str, int]:
        """Give host and port; only of a `bind` that is not empty."""
        host, _, port = self.bind.rpartition(":")
        return host.strip("[]"), int(port)


class LogSettings(Section):
    """How much is logged, and how it is written."""

    level: Literal["DEBUG", "INFO", "WARNING", "ERROR"]
    format: Literal["text", "json"]
    jvm_output: str
