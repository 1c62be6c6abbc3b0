"""The settings: one validated model, one way to load it.

Defaults are in default.toml, each setting once. A file overrides them, the
environment the file, the command line the environment. Whatever is wrong is
found before Spark starts, all of it at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)

from conf.layers import Layers, SettingsError

__all__ = ["DEMO_FILE", "Settings", "SettingsError", "load_settings"]

DEFAULT_FILE = Path(__file__).with_name("default.toml")
DEMO_FILE = Path(__file__).with_name("demo.toml")

NotEmpty = Annotated[str, Field(min_length=1)]
Count = Annotated[int, Field(ge=1)]
CountOrNone = Annotated[int, Field(ge=0)]
Milliseconds = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Severity = Literal["critical", "warning", "info"]


class Section(BaseModel):
    """What all sections have in common: no unknown keys, exact types, no change after loading."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, hide_input_in_errors=True)


class JobSettings(Section):
    """Where the job keeps its tables and how often it works; see default.toml."""

    tables: NotEmpty
    checkpoint_location: NotEmpty
    cluster: NotEmpty
    trigger_interval_s: Seconds
    tick_interval_s: Seconds

    @model_validator(mode="after")
    def _keep_apart(self) -> JobSettings:
        # Everything below `tables` is a table's, and upkeep may delete what no table needs.
        tables, checkpoint = (f"{text.rstrip('/')}/" for text in (self.tables, self.checkpoint_location))
        if checkpoint.startswith(tables):
            raise ValueError(
                f"has checkpoint_location {self.checkpoint_location!r} inside tables {self.tables!r}; "
                "keep them apart"
            )
        return self


class SourceSettings(Section):
    """One source of records. `from_` is `from` in the file."""

    name: Annotated[
        str,
        Field(
            pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$",
            description="a name of letters, digits, '-' and '_' that begins with a letter or digit",
        ),
    ]
    format: Literal["events", "offsets"]
    from_: Annotated[Literal["files", "delta"], Field(alias="from")]
    path: NotEmpty
    cluster: NotEmpty
    max_files_per_trigger: CountOrNone = 0

    @field_validator("from_", mode="before")
    @classmethod
    def _say_when_kafka(cls, value: object) -> object:
        if value == "kafka":
            raise ValueError(
                "is 'kafka', which this release does not read yet; it must be one of 'files', 'delta' "
                "(captured records of __consumer_offsets are read with format 'offsets')"
            )
        return value


class RecordSettings(Section):
    """Limits for single records, whatever source they come from: [source] in the file."""

    max_record_bytes: Count
    rejected_raw_bytes: CountOrNone


class GroupSettings(Section):
    """How computed groups are led."""

    assignors: Annotated[tuple[NotEmpty, ...], Field(min_length=1)]
    revocation_timeout_ms: Milliseconds
    revocation_timeout_action: Literal["reassign", "remove"]
    static_session_timeout_ms: Count
    rebalance_delay_ms: Milliseconds
    connect_assignor: Literal["connect-incremental", "connect-eager"]
    scheduled_rebalance_max_delay_ms: Milliseconds
    dedupe_window_ms: Milliseconds
    plugins: dict[
        NotEmpty,
        Annotated[
            str, Field(pattern=r"^[\w.]+:[\w.]+$", description="a text like 'package.module:function'")
        ],
    ]


class BatchSettings(Section):
    """How a micro-batch is computed and when snapshots are refreshed."""

    local_max_records: CountOrNone
    shards: Count
    snapshot_every_batches: Count
    snapshot_every_s: Seconds
    snapshot_every_rows: Count


class CheckSettings(Section):
    """Which Great Expectations suite guards the generations."""

    enabled: bool
    suite: NotEmpty


class AlertSettings(Section):
    """What every alert rule has."""

    enabled: bool
    severity: Severity
    for_s: Seconds
    keep_firing_for_s: Seconds

    def numbers(self) -> dict[str, float]:
        """Give the rule's own thresholds: name -> number; empty for most rules."""
        shared = AlertSettings.model_fields
        return {name: float(getattr(self, name)) for name in type(self).model_fields if name not in shared}


class ImbalanceSettings(AlertSettings):
    """AssignmentImbalanced: both numbers must be reached."""

    max_over_mean: Annotated[float, Field(ge=1, allow_inf_nan=False)]
    min_spread: Count


class UnexpectedSettings(AlertSettings):
    """UnexpectedAssignment: how many generations in a row."""

    generations: Count


class AlertsSettings(Section):
    """The alert rules; in the file each is [alerts.NAME] with the alert's own name."""

    unassigned_partitions: Annotated[AlertSettings, Field(alias="UnassignedPartitions")]
    assignment_imbalanced: Annotated[ImbalanceSettings, Field(alias="AssignmentImbalanced")]
    unexpected_assignment: Annotated[UnexpectedSettings, Field(alias="UnexpectedAssignment")]
    group_empty: Annotated[AlertSettings, Field(alias="GroupEmpty")]
    generation_held: Annotated[AlertSettings, Field(alias="GenerationHeld")]
    no_common_assignor: Annotated[AlertSettings, Field(alias="NoCommonAssignor")]
    assignor_failed: Annotated[AlertSettings, Field(alias="AssignorFailed")]

    def rules(self) -> dict[str, AlertSettings]:
        """Give every rule, switched off or not: alertname -> its settings."""
        fields = type(self).model_fields.items()
        return {str(field.alias): getattr(self, name) for name, field in fields}


class SparkSettings(Section):
    """The Spark session. Any option may be a password, so all are kept like one."""

    master: NotEmpty
    app_name: NotEmpty
    packages: tuple[NotEmpty, ...]
    options: dict[
        Annotated[str, Field(pattern=r"^spark\.", description="a name that begins with 'spark.'")], SecretStr
    ]

    def option_values(self) -> dict[str, str]:
        """Give the options in clear, for the session's builder and nobody else."""
        return {name: value.get_secret_value() for name, value in self.options.items()}


class LogSettings(Section):
    """How much is logged."""

    level: Literal["DEBUG", "INFO", "WARNING", "ERROR"]
    jvm_output: str


class Settings(Section):
    """All settings, one attribute a section."""

    job: JobSettings
    sources: tuple[SourceSettings, ...] = ()
    source: RecordSettings
    groups: GroupSettings
    batch: BatchSettings
    checks: CheckSettings
    alerts: AlertsSettings
    spark: SparkSettings
    log: LogSettings

    @field_validator("sources")
    @classmethod
    def _name_once(cls, sources: tuple[SourceSettings, ...]) -> tuple[SourceSettings, ...]:
        names = [source.name for source in sources]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(
                f"has the name {twice[0]!r} twice; it is part of each record's position, so give each its own"
            )
        return sources


def load_settings(path: Path | None, environ: Mapping[str, str], overrides: Mapping[str, str]) -> Settings:
    """Load the defaults, then a file, then the environment, then the command line.

    Args:
        path: a TOML file with what differs from the defaults; None for none.
        environ: the process's environment. Variables named
            COUNTERPOISE_SECTION__KEY are settings, in any case; those without
            the double underscore are not ours to judge (Kubernetes sets
            COUNTERPOISE_SERVICE_HOST for a service of our name).
        overrides: "section.key" -> text, from the command line.

    Raises:
        SettingsError: with every problem found, not the first only.
    """
    layers = Layers(Settings)
    layers.add_file(DEFAULT_FILE, where="conf/default.toml")
    if path is not None:
        layers.add_file(path, where=str(path))
    layers.add_environment(environ)
    layers.add_options(overrides)
    values = layers.values()
    sources, job = values.get("sources"), values["job"]
    if isinstance(sources, tuple) and isinstance(job, dict):
        for source in sources:
            if isinstance(source, dict):
                source.setdefault("cluster", job["cluster"])
    details: list[Any] = []
    settings = None
    try:
        settings = Settings.model_validate(values)
    except ValidationError as error:
        # Only what is needed leaves this block: a chained ValidationError would print the values.
        details = list(error.errors(include_url=False))
    problems = [*layers.problems, *(layers.describe(detail) for detail in details)]
    if settings is None or problems:
        raise SettingsError(problems)
    return settings
