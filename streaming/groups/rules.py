"""What the functions that advance groups need to know of the settings, and no more."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from assignors.plugins import find_plugins
from streaming.events.limits import DEFAULT_LIMITS, Limits
from streaming.groups.plugin_process import LimitedPlugins, find_load_failures

if TYPE_CHECKING:
    from conf.settings import Settings

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRule:
    """One alert rule. Times are milliseconds of event time; `numbers` are its thresholds by name."""

    alertname: str
    severity: str
    for_ms: int = 0
    keep_firing_for_ms: int = 0
    numbers: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRules:
    """The rules by which groups advance; picklable, the same on every executor.

    `default_protocols` are the assignors of a member that lists none, most
    wanted first; `connect_assignor` that of a Connect group that pins none.
    `scheduled_rebalance_max_delay_ms` is for how long a lost worker's tasks wait
    for it. `revocation_timeout_action` says what happens when a member has
    not confirmed its revocations in time: "reassign" gives them on all the same,
    "remove" takes the member out of the group first. A group that was set aside is tried
    again after `set_aside_retry_ms`, then after twice as long; at most `set_aside_max_bytes`
    of its events wait with it. A group whose generations of one batch hold more than
    `max_turn_bytes` of state goes on with the next. `plugins` maps a protocol
    name to "module:attribute", never the assignor itself, so that each executor
    imports its own. `weighted_most_moves` (None: any number) and `weighted_hysteresis` are
    those of assignors.optimal.assign_weighted, for groups that go by it. `alerts` maps
    alertname to rule; a rule that is switched off is absent.
    """

    default_protocols: tuple[str, ...] = ("cooperative-sticky",)
    connect_assignor: Literal["connect-incremental", "connect-eager"] = "connect-incremental"
    scheduled_rebalance_max_delay_ms: int = 300_000
    revocation_timeout_ms: int = 60_000
    revocation_timeout_action: Literal["reassign", "remove"] = "reassign"
    static_session_timeout_ms: int = 45_000
    rebalance_delay_ms: int = 0
    dedupe_window_ms: int = 86_400_000
    set_aside_retry_ms: int = 30_000
    set_aside_max_bytes: int = 16_777_216
    max_turn_bytes: int = 134_217_728
    limits: Limits = DEFAULT_LIMITS
    plugins: Mapping[str, str] = field(default_factory=dict)
    weighted_most_moves: int | None = None
    weighted_hysteresis: float = 0.1
    alerts: Mapping[str, AlertRule] = field(default_factory=dict)

    @classmethod
    def from_settings(cls, settings: Settings) -> GroupRules:
        """Take the rules out of the settings, with the plug-ins that installed packages offer.

        To be called once, in the driver: what is found here is what every executor
        gets. A plug-in that cannot be used is logged; it costs the groups that choose it.
        """
        groups = settings.groups
        found, left_out = find_plugins(groups.plugins)
        plugins = LimitedPlugins(found, groups.plugin_timeout_s)
        for problem in (*left_out, *find_load_failures(plugins)):
            _logger.warning("%s", problem)
        return cls(
            default_protocols=tuple(groups.assignors),
            connect_assignor=groups.connect_assignor,
            scheduled_rebalance_max_delay_ms=groups.scheduled_rebalance_max_delay_ms,
            revocation_timeout_ms=groups.revocation_timeout_ms,
            revocation_timeout_action=groups.revocation_timeout_action,
            static_session_timeout_ms=groups.static_session_timeout_ms,
            rebalance_delay_ms=groups.rebalance_delay_ms,
            dedupe_window_ms=groups.dedupe_window_ms,
            set_aside_retry_ms=groups.set_aside_retry_ms,
            set_aside_max_bytes=groups.set_aside_max_bytes,
            max_turn_bytes=groups.max_turn_bytes,
            limits=limits_of(settings),
            plugins=plugins,
            weighted_most_moves=settings.weighted.most_moves or None,
            weighted_hysteresis=settings.weighted.hysteresis,
            alerts={
                name: AlertRule(
                    alertname=name,
                    severity=rule.severity,
                    for_ms=round(rule.for_s * 1000),
                    keep_firing_for_ms=round(rule.keep_firing_for_s * 1000),
                    numbers=rule.numbers(),
                )
                for name, rule in settings.alerts.rules().items()
                if rule.enabled
            },
        )


def limits_of(settings: Settings) -> Limits:
    """Take the limits of events and groups out of the settings."""
    groups = settings.groups
    return Limits(
        max_members=groups.max_members, max_topics=groups.max_topics, max_partitions=groups.max_partitions
    )
