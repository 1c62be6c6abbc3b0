"""Alert rules and their lifecycle, on event time, as part of each group's state.

A rule looks at one version of one group. An alert whose condition holds is
`pending` until it has held for the rule's time, then `firing`, then `resolved`
when the condition has been gone for `keep_firing_for`. All of it is a function of
the group's events, so a replay makes the same changes with the same ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import mmh3

from assignors.balance import better_assignment_exists
from streaming.groups.deltas import unowned_by_topic, unrun_by_connector
from streaming.groups.observed.versions import name_some
from streaming.groups.weights import measure_loads, reachable_load
from streaming.model import owned_pairs

if TYPE_CHECKING:
    from streaming.groups.rules import AlertRule
    from streaming.model import Version

_AT_ONCE = ("GenerationHeld", "NoCommonAssignor", "AssignorFailed", "GroupSetAside")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a rule sees in a version: a number, a line for the table and a sentence for a person."""

    value: float
    summary: str
    description: str


class GroupAlerts:
    """The alerts of one group, and what their rules remember between versions.

    `_alerts` maps alertname to {status, since, deadline, incident, value, summary,
    description}; `status` is pending, firing or keeping (firing, condition gone).
    """

    def __init__(self, cluster: str, group_id: str, rules: Mapping[str, AlertRule]) -> None:
        """Start with nothing pending."""
        self._cluster = cluster
        self._group_id = group_id
        self._rules = rules
        self._alerts: dict[str, dict[str, Any]] = {}
        self._had_members = False
        self._unexpected_run = 0
        self._judged_generation: list[int] = []
        self._changes = 0

    def restore(self, state: Mapping[str, Any], *, only: str | None = None) -> None:
        """Take up where `dump` left it, with all alerts or `only` one."""
        alerts = state["alerts"].items()
        self._alerts = {name: dict(alert) for name, alert in alerts if only in (None, name)}
        self._had_members = state["had_members"]
        self._unexpected_run = state["unexpected_run"]
        self._judged_generation = list(state["judged_generation"])
        self._changes = state["changes"]

    def dump(self) -> dict[str, Any]:
        """Give the state, JSON-able, in a fixed order."""
        return {
            "alerts": {name: self._alerts[name] for name in sorted(self._alerts)},
            "had_members": self._had_members,
            "unexpected_run": self._unexpected_run,
            "judged_generation": self._judged_generation,
            "changes": self._changes,
        }

    def observe(self, version: Version, now_ms: int) -> list[dict[str, Any]]:
        """Judge a version by every rule: the alert changes it makes, rows of schemas._ALERT."""
        if version.kind == "deleted":
            changes = [self._clear(name, now_ms, "the group was deleted") for name in sorted(self._alerts)]
            self._had_members, self._unexpected_run, self._judged_generation = False, 0, []
            return [row for rows in changes for row in rows]
        switched_off = sorted(self._alerts.keys() - self._rules.keys())
        changes = [self._clear(name, now_ms, "the rule was switched off") for name in switched_off]
        for name, rule in sorted(self._rules.items()):
            applies, finding = self._judge(name, rule, version)
            if not applies:
                continue
            if finding is not None:
                changes.append(self._hold_true(name, rule, finding, now_ms))
            elif name in self._alerts:
                changes.append(self._hold_false(name, rule, now_ms))
        self._had_members = self._had_members or bool(version.members)
        return [row for rows in changes for row in rows]

    def raise_one(self, name: str, description: str, now_ms: int) -> list[dict[str, Any]]:
        """Let an alert hold by itself, whatever the versions show; its changes, none where it is off."""
        if name not in self._rules:
            return []
        finding = Finding(value=1.0, summary=f"{self._group_id}: {name}", description=description)
        return self._hold_true(name, self._rules[name], finding, now_ms)

    def end_one(self, name: str, state: Mapping[str, Any], now_ms: int) -> list[dict[str, Any]]:
        """Let an alert end that was kept in a state of its own, `dump` of other GroupAlerts; its changes."""
        self._changes = max(self._changes, state["changes"])
        if name not in state["alerts"]:
            return []
        self._alerts[name] = dict(state["alerts"][name])
        if name not in self._rules:
            return self._clear(name, now_ms, "the rule was switched off")
        return self._hold_false(name, self._rules[name], now_ms)

    def next_timer_ms(self) -> int | None:
        """Give when the next pending alert fires or a gone one resolves, None when nothing waits."""
        return min((a["deadline"] for a in self._alerts.values() if a["deadline"] is not None), default=None)

    def fire_next(self, now_ms: int) -> tuple[int, list[dict[str, Any]]] | None:
        """Carry out the earliest change due at `now_ms`: (its time, rows); None when none is due."""
        due = [(a["deadline"], name) for name, a in self._alerts.items() if a["deadline"] is not None]
        if not due or min(due)[0] > now_ms:
            return None
        deadline, name = min(due)
        alert = self._alerts[name]
        alert["deadline"] = None
        if alert["status"] == "keeping":
            return deadline, self._clear(name, deadline, "the condition has gone")
        alert["status"] = "firing"
        return deadline, [self._row(name, alert, "firing", deadline)]

    def _judge(self, name: str, rule: AlertRule, version: Version) -> tuple[bool, Finding | None]:
        """Say whether the rule can tell anything of this version, and what it found."""
        if name in _AT_ONCE:
            if version.kind == "state":
                return False, None
            problem = version.problem
            if problem is None or problem[0] != name:
                return True, None
            return True, Finding(value=1.0, summary=f"{self._group_id}: {name}", description=problem[1])
        if name == "GroupEmpty":
            empty = not version.members and self._had_members
            text = f"{self._group_id} has no members"
            finding = Finding(value=0.0, summary=text, description=f"{text}: {version.reason}")
            return True, finding if empty else None
        if name == "UnexpectedAssignment":
            return self._judge_expected(rule, version)
        if not version.is_final:  # in Connect also while a lost worker's tasks wait for it
            return False, None
        if not version.members:
            return True, None
        is_connect = version.protocol_type == "connect"
        if name == "UnassignedPartitions":
            return True, self._find_unrun(version) if is_connect else self._find_unassigned(version)
        return True, self._find_uneven(rule, version) if is_connect else self._find_imbalance(rule, version)

    def _find_unassigned(self, version: Version) -> Finding | None:
        counts = unowned_by_topic(version)
        total = sum(counts.values())
        if not total:
            return None
        where = ", ".join(f"{topic} ({count})" for topic, count in counts.items())
        summary = f"{self._group_id}: {total} subscribed partition{'s' if total > 1 else ''} without an owner"
        return Finding(value=float(total), summary=summary, description=f"Nobody owns partitions of {where}.")

    def _find_unrun(self, version: Version) -> Finding | None:
        """Look for connectors and tasks that are configured and that no worker runs."""
        unrun = unrun_by_connector(version)
        tasks = {c: sum(part >= 0 for part in parts) for c, parts in unrun.items()}
        connectors = [c for c, parts in unrun.items() if parts[0] < 0]
        total = sum(tasks.values())
        if not connectors and not total:
            return None
        named = [f"connector {connector}" for connector in connectors]
        named += [f"{_count(n, 'task')} of {connector}" for connector, n in tasks.items() if n]
        kinds = ((len(connectors), "connector"), (total, "task"))
        counted = " and ".join(_count(n, what) for n, what in kinds if n)
        return Finding(
            value=float(len(connectors) + total),
            summary=f"{self._group_id}: {counted} that nobody runs",
            description=f"No worker runs {name_some(named)}.",
        )

    def _find_uneven(self, rule: AlertRule, version: Version) -> Finding | None:
        """Look at connectors and at tasks apart, as Connect's assignors do: each kind is dealt evenly."""
        for what, is_connector in (("task", False), ("connector", True)):
            loads = dict.fromkeys((m.member_id for m in version.members), 0)
            for worker, _, number in owned_pairs(version.assignment):
                loads[worker] = loads.get(worker, 0) + ((number < 0) == is_connector)
            high, low = max(loads.values()), min(loads.values())
            if high - low < rule.numbers.get("min_spread", 2):
                continue
            busiest = min(worker for worker, load in loads.items() if load == high)
            ratio = high * len(loads) / sum(loads.values())
            text = f"{busiest} runs {_count(high, what)}, the least loaded worker {low}; no delay is running."
            summary = f"{self._group_id}: worker with the most {what}s at {ratio:.2f} of the mean"
            return Finding(value=round(ratio, 4), summary=summary, description=text)
        return None

    def _find_imbalance(self, rule: AlertRule, version: Version) -> Finding | None:
        if version.protocol_type != "consumer":
            return None
        if version.weights is not None:
            return self._find_overload(rule, version)
        loads = {m: sum(len(ps) for ps in ts.values()) for m, ts in version.assignment.items()}
        total = sum(loads.values())
        if not total:
            return None
        high, low = max(loads.values()), min(loads.values())
        ratio = high / (total / len(loads))
        if ratio <= rule.numbers.get("max_over_mean", 1.1) or high - low < rule.numbers.get("min_spread", 2):
            return None
        if not better_assignment_exists(version.assignment, version.subscribed):
            return None
        busiest = min(m for m, load in loads.items() if load == high)
        text = f"{busiest} owns {high} partitions, the least loaded member {low}; subscriptions allow better."
        summary = f"{self._group_id}: most loaded member at {ratio:.2f} of the mean"
        return Finding(value=round(ratio, 4), summary=summary, description=text)

    def _find_overload(self, rule: AlertRule, version: Version) -> Finding | None:
        """Look at the sums of weights of a group that goes by them; by number it may be uneven."""
        loads, most = measure_loads(version), rule.numbers.get("max_over_best", 1.25)
        if loads is None or loads.highest <= most * loads.bound:
            return None
        best = reachable_load(version)
        if loads.highest <= most * best:
            return None
        ratio = loads.highest / best
        text = f"The highest load of a member is {loads.highest:g}; {best:g} can be had."
        summary = f"{self._group_id}: highest load at {ratio:.2f} of what can be had"
        return Finding(value=round(ratio, 4), summary=summary, description=text)

    def _judge_expected(self, rule: AlertRule, version: Version) -> tuple[bool, Finding | None]:
        if version.expected_status in {"in_transition", "unknown"} or version.kind == "state":
            return False, None
        generation = [version.incarnation, version.generation_id]
        if generation != self._judged_generation:
            self._judged_generation = generation
            self._unexpected_run = self._unexpected_run + 1 if version.expected_status == "different" else 0
        elif version.expected_status != "different":
            self._unexpected_run = 0
        if self._unexpected_run < rule.numbers.get("generations", 2):
            return True, None
        text = version.expected_note or "the observed assignment is not what its assignor gives"
        summary = f"{self._group_id}: unexpected assignment, {self._unexpected_run} generations in a row"
        return True, Finding(value=float(self._unexpected_run), summary=summary, description=text)

    def _hold_true(self, name: str, rule: AlertRule, finding: Finding, now_ms: int) -> list[dict[str, Any]]:
        alert = self._alerts.get(name)
        found = {"value": finding.value, "summary": finding.summary, "description": finding.description}
        if alert is not None:
            alert.update(found)
            if alert["status"] == "keeping":
                alert.update(status="firing", deadline=None)
            return []
        incident = mmh3.hash_bytes(f"{self._cluster}\0{self._group_id}\0{name}\0{now_ms}").hex()
        waits = rule.for_ms > 0
        alert = {
            "status": "pending" if waits else "firing",
            "since": now_ms,
            "deadline": now_ms + rule.for_ms if waits else None,
            "incident": incident,
            **found,
        }
        self._alerts[name] = alert
        return [self._row(name, alert, alert["status"], now_ms)]

    def _hold_false(self, name: str, rule: AlertRule, now_ms: int) -> list[dict[str, Any]]:
        alert = self._alerts[name]
        if alert["status"] == "firing" and rule.keep_firing_for_ms > 0:
            alert.update(status="keeping", deadline=now_ms + rule.keep_firing_for_ms)
            return []
        if alert["status"] == "keeping":
            return []
        return self._clear(name, now_ms, "the condition has gone")

    def _clear(self, name: str, now_ms: int, why: str) -> list[dict[str, Any]]:
        alert = self._alerts.pop(name)
        if alert["status"] == "pending":
            why = f"{why}, before the alert fired"
        return [self._row(name, {**alert, "description": why}, "resolved", now_ms)]

    def _row(self, name: str, alert: Mapping[str, Any], status: str, now_ms: int) -> dict[str, Any]:
        self._changes += 1
        identity = f"{alert['incident']}\0{status}\0{now_ms}"
        return {
            "alert_event_id": mmh3.hash_bytes(identity).hex(),
            "change_number": self._changes,
            "incident_id": alert["incident"],
            "alertname": name,
            "severity": self._rules[name].severity if name in self._rules else "none",
            "topic": None,
            "status": status,
            "event_time": now_ms * 1000,
            "since": alert["since"] * 1000,
            "value": alert["value"],
            "summary": alert["summary"],
            "description": alert["description"],
        }


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
