"""What the functions that advance groups need to know of the settings, and no more."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from assignors.plugins import find_load_failures, find_plugins

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
    "remove" takes the member out of the group first. `plugins` maps a protocol
    name to "module:attribute", never the assignor itself, so that each executor
    imports its own. `alerts` maps alertname to rule; a rule that is
    switched off is absent.
    """

    default_protocols: tuple[str, ...] = ("cooperative-sticky",)
    connect_assignor: Literal["connect-incremental", "connect-eager"] = "connect-incremental"
    scheduled_rebalance_max_delay_ms: int = 300_000
    revocation_timeout_ms: int = 60_000
    revocation_timeout_action: Literal["reassign", "remove"] = "reassign"
    static_session_timeout_ms: int = 45_000
    rebalance_delay_ms: int = 0
    dedupe_window_ms: int = 86_400_000
    plugins: Mapping[str, str] = field(default_factory=dict)
    alerts: Mapping[str, AlertRule] = field(default_factory=dict)

    @classmethod
    def from_settings(cls, settings: Settings) -> GroupRules:
        """Take the rules out of the settings, with the plug-ins that installed packages offer.

        To be called once, in the driver: what is found here is what every executor
        gets. A plug-in that cannot be used is logged; it costs the groups that choose it.
        """
        groups = settings.groups
        plugins, left_out = find_plugins(groups.plugins)
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
            plugins=plugins,
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
