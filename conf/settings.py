"""The settings: one validated model, one way to load it.

Defaults are in default.toml, each setting once. A file overrides them, the
environment the file, the command line the environment. Whatever is wrong is
found before Spark starts, all of it at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from conf.clusters import ClusterSettings
from conf.layers import Layers, SettingsError
from conf.operations import HttpSettings, LogSettings
from conf.sections import Count, CountOrNone, Milliseconds, Name, NotEmpty, Seconds, Section
from conf.sinks import SinkSettings
from conf.sources import SourceSettings

__all__ = ["DEMO_FILE", "Settings", "SettingsError", "load_settings"]

DEFAULT_FILE = files("conf") / "default.toml"
"""Where it lies, on disk or in a zip that was shipped to a cluster (`--py-files`)."""

DEMO_FILE = Path(__file__).with_name("demo.toml")

Severity = Literal["critical", "warning", "info"]

CLUSTER = "{cluster}"
"""Stands for a cluster's name in job.tables and job.checkpoint_location."""


TAKEN_NAMES = frozenset(
    {
        *("cooperative-sticky", "range", "roundrobin", "server-range", "server-uniform", "sticky"),
        *("optimal", "optimal-cooperative", "optimal-weighted"),
        *("connect-eager", "connect-incremental"),
    }
)
"""Assignors that no plug-in can replace. `conf` imports no other package of ours, so a test compares."""


class JobSettings(Section):
    """Where the job keeps its tables and how often it works; see default.toml."""

    tables: NotEmpty
    checkpoint_location: NotEmpty
    cluster: NotEmpty
    trigger_interval_s: Seconds
    tick_interval_s: Seconds
    lease_s: Annotated[float, Field(ge=1, allow_inf_nan=False)]

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
    set_aside_retry_ms: Count
    set_aside_max_bytes: Count
    plugin_timeout_s: Seconds
    max_turn_bytes: Count
    max_members: Count
    max_topics: Count
    max_partitions: Count
    plugins: dict[
        NotEmpty,
        Annotated[
            str, Field(pattern=r"^[\w.]+:[\w.]+$", description="a text like 'package.module:function'")
        ],
    ]

    @field_validator("plugins")
    @classmethod
    def _leave_kafkas_names(cls, plugins: dict[str, str]) -> dict[str, str]:
        taken = sorted(TAKEN_NAMES & plugins.keys())
        if taken:
            raise ValueError(f"has the name {taken[0]!r}, which is Kafka's own; give your assignor another")
        return plugins


class WeightedSettings(Section):
    """How groups that go by their partitions' loads (optimal-weighted) are balanced."""

    most_moves: CountOrNone
    hysteresis: Annotated[float, Field(ge=0, allow_inf_nan=False)]


class BatchSettings(Section):
    """How a micro-batch is computed and when snapshots are refreshed."""

    local_max_records: CountOrNone
    shards: Count
    snapshot_every_batches: Count
    snapshot_every_s: Seconds
    snapshot_every_rows: Count


class UpkeepSettings(Section):
    """How the tables are kept small, beside the batches; see default.toml."""

    every_s: Seconds
    compact_from_files: Annotated[int, Field(ge=2)]
    target_file_bytes: Count
    vacuum_after_h: Count
    log_retention_h: Count
    keep_days: dict[
        Literal[
            "generations",
            "events",
            "rejected_events",
            "assignment_deltas",
            "balance",
            "checks",
            "alert_events",
        ],
        CountOrNone,
    ]


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
    """AssignmentImbalanced: the first two numbers must be reached, or by weight the third."""

    max_over_mean: Annotated[float, Field(ge=1, allow_inf_nan=False)]
    min_spread: Count
    max_over_best: Annotated[float, Field(ge=1, allow_inf_nan=False)]


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
    group_set_aside: Annotated[AlertSettings, Field(alias="GroupSetAside")]

    def rules(self) -> dict[str, AlertSettings]:
        """Give every rule, switched off or not: alertname -> its settings."""
        fields = type(self).model_fields.items()
        return {str(field.alias): getattr(self, name) for name, field in fields}


class SparkSettings(Section):
    """The Spark session. Any option may be a password, so all are kept like one."""

    master: NotEmpty
    app_name: NotEmpty
    packages: tuple[NotEmpty, ...]
    kafka_packages: tuple[NotEmpty, ...]
    options: dict[
        Annotated[str, Field(pattern=r"^spark\.", description="a name that begins with 'spark.'")], SecretStr
    ]

    def option_values(self) -> dict[str, str]:
        """Give the options in clear, for the session's builder and nobody else."""
        return {name: value.get_secret_value() for name, value in self.options.items()}


class Settings(Section):
    """All settings, one attribute a section."""

    job: JobSettings
    clusters: dict[Name, ClusterSettings]
    sources: tuple[SourceSettings, ...] = ()
    sinks: tuple[SinkSettings, ...] = ()
    source: RecordSettings
    groups: GroupSettings
    weighted: WeightedSettings
    batch: BatchSettings
    upkeep: UpkeepSettings
    checks: CheckSettings
    alerts: AlertsSettings
    spark: SparkSettings
    http: HttpSettings
    log: LogSettings

    @field_validator("clusters")
    @classmethod
    def _tell_names(cls, clusters: dict[str, ClusterSettings]) -> dict[str, ClusterSettings]:
        return {name: cluster.called(name) for name, cluster in clusters.items()}

    @field_validator("sources")
    @classmethod
    def _name_once(cls, sources: tuple[SourceSettings, ...]) -> tuple[SourceSettings, ...]:
        _refuse_twice((source.name for source in sources), "it is part of each record's position")
        return sources

    @field_validator("sinks")
    @classmethod
    def _name_sinks_once(cls, sinks: tuple[SinkSettings, ...]) -> tuple[SinkSettings, ...]:
        _refuse_twice((sink.name for sink in sinks), "the tables note under it how far the sink got")
        return sinks

    @field_validator("sources")
    @classmethod
    def _know_clusters(
        cls, sources: tuple[SourceSettings, ...], info: ValidationInfo
    ) -> tuple[SourceSettings, ...]:
        clusters, job = info.data.get("clusters"), info.data.get("job")
        of_kafka = [source for source in sources if source.from_ == "kafka"]
        if clusters is None or job is None:
            return sources  # they have an error of their own
        for source in of_kafka:
            _demand_cluster(f"{source.name!r} of", source.cluster, clusters)
        names = sorted({source.cluster for source in of_kafka})
        if len(names) > 1 and not (CLUSTER in job.tables and CLUSTER in job.checkpoint_location):
            raise ValueError(
                f"has the Kafka clusters {', '.join(map(repr, names))}, each of which needs its own tables "
                f"and checkpoint; put {CLUSTER} into job.tables and job.checkpoint_location, e.g. "
                f"'data/{CLUSTER}/tables' and 'data/{CLUSTER}/checkpoint'"
            )
        return sources

    @field_validator("sinks")
    @classmethod
    def _reach_sinks(cls, sinks: tuple[SinkSettings, ...], info: ValidationInfo) -> tuple[SinkSettings, ...]:
        clusters, job, sources = (info.data.get(name) for name in ("clusters", "job", "sources"))
        if clusters is None or job is None or sources is None:
            return sinks  # they have an error of their own
        read = {(source.cluster, source.topic): source.name for source in sources if source.from_ == "kafka"}
        for sink in sinks:
            for cluster in [sink.cluster] if sink.cluster else _deployments(job, sources):
                _demand_cluster(f"{sink.name!r} to", cluster, clusters)
                if (cluster, sink.topic) in read:
                    raise ValueError(
                        f"has {sink.name!r} write to topic {sink.topic!r}, from which source "
                        f"{read[cluster, sink.topic]!r} reads; give the sink a topic of its own"
                    )
        return sinks

    def by_cluster(self) -> dict[str, Settings]:
        """Give each cluster's own deployment: its name -> its sources, tables and checkpoint.

        Where job.tables does not name {cluster}, all sources are one deployment.
        """
        if CLUSTER not in self.job.tables:
            return {self.job.cluster: self}
        return {name: self._of_cluster(name) for name in _deployments(self.job, self.sources)}

    def _of_cluster(self, name: str) -> Settings:
        job = self.job.model_copy(
            update={
                "cluster": name,
                "tables": self.job.tables.replace(CLUSTER, name),
                "checkpoint_location": self.job.checkpoint_location.replace(CLUSTER, name),
            }
        )
        sources = tuple(source for source in self.sources if source.cluster == name)
        return self.model_copy(update={"job": job, "sources": sources})


def _deployments(job: JobSettings, sources: tuple[SourceSettings, ...]) -> list[str]:
    """Name the clusters that have tables of their own: one for all, unless job.tables names {cluster}."""
    if CLUSTER not in job.tables:
        return [job.cluster]
    return sorted({source.cluster for source in sources} or {job.cluster})


def _refuse_twice(names: Iterable[str], use: str) -> None:
    """Refuse a name that stands twice in a list; `use` says what it is good for."""
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise ValueError(f"has the name {twice[0]!r} twice; {use}, so give each its own")


def _demand_cluster(who: str, cluster: str, clusters: Collection[str]) -> None:
    """Refuse a source or sink of a cluster that is not described."""
    if cluster not in clusters:
        known = ", ".join(map(repr, sorted(clusters))) or "none"
        raise ValueError(
            f"has {who} cluster {cluster!r}, which has no section [clusters.{cluster}.kafka]; known: {known}"
        )


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
