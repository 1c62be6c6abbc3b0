"""Group state to assignments: advance each group over its events and make the rows of the log.

Pure functions over plain values, called with the same arguments in the driver's
process for a small batch and on executors for a large one, so both give the same rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import orjson

from streaming.alerts import GroupAlerts
from streaming.broadcast import BatchBroadcast, precedes
from streaming.computed_groups import ComputedGroup
from streaming.connect_groups import ConnectGroup
from streaming.connect_rounds import WIRE_NAMES
from streaming.deltas import diff_versions, inspect_version, measure_balance
from streaming.log_rows import Row, event_row, version_columns
from streaming.model import EventOutcome, Input, Owners, TopicState, TopicView, Version, owned_pairs
from streaming.observed_groups import ObservedGroup

if TYPE_CHECKING:
    from streaming.rules import GroupRules

_OBSERVED_TYPES = {"offsets_record", "offset_commit", "unknown_record", "generation_observed", "group_state"}
_CONNECT_TYPES = {"worker_joined", "worker_left", "connector_configured", "connector_deleted"}

_Group = ComputedGroup | ConnectGroup | ObservedGroup
_STATE_KINDS = {ComputedGroup: "computed", ConnectGroup: "connect", ObservedGroup: "observed"}


@dataclass(frozen=True, slots=True)
class GroupWork:
    """One group's share of a batch: its logged `state` (None at first sight), its events in source order."""

    cluster: str
    group_id: str
    state: str | None
    inputs: Sequence[Input]
    broadcast: BatchBroadcast


def advance_groups(
    work: Iterable[GroupWork],
    topics: Mapping[str, Mapping[str, TopicState]],
    rules: GroupRules,
    holds: frozenset[tuple[str, str, int]],
) -> Iterator[Row]:
    """Advance groups over their part of a batch.

    Args:
        work: each group at most once.
        topics: cluster -> topic -> state, before the batch.
        rules: the settings that decide.
        holds: (cluster, group_id, version) that a critical check refused; these are held.

    Returns:
        Rows of schemas.GENERATIONS without log_seq, batch_seq, observed_at and
        checks, and with `ordinal`, the row's place among its group's rows of this
        batch. A `state` row comes last where anything changed that no version carries.
    """
    for item in work:
        held = frozenset(v for c, g, v in holds if (c, g) == (item.cluster, item.group_id))
        view = TopicView(topics.get(item.cluster, {}))
        yield from _GroupTurn(item, view, rules, held).rows()


class _GroupTurn:
    """One group's turn in one batch."""

    def __init__(self, work: GroupWork, view: TopicView, rules: GroupRules, held: frozenset[int]) -> None:
        self._work = work
        self._view = view
        self._rules = rules
        self._held = held
        self._alerts = GroupAlerts(work.cluster, work.group_id, rules.alerts)
        self._group: _Group | None = None
        self._ids: dict[str, int] = {}
        self._clock_ms = 0
        self._owned: Owners = {}
        self._since: dict[tuple[str, str, int], tuple[int, int]] = {}
        self._rows: list[Row] = []
        self._loose: list[EventOutcome] = []
        self._loose_alerts: list[Row] = []
        self._went_back_ms: dict[str, int] = {}
        self._is_changed = False
        if work.state is not None:
            self._restore(orjson.loads(work.state))

    def rows(self) -> Iterator[Row]:
        """Advance over all inputs in order and give the group's rows."""
        for event, topic_state in self._merged():
            if event.group_id is None:
                self._hear(event, topic_state)
            else:
                self._take(event)
        self._close_partitions()
        if self._loose or self._loose_alerts or self._is_changed:
            self._add_state_row()
        for ordinal, row in enumerate(self._rows):
            yield {**row, "ordinal": ordinal}

    def _merged(self) -> Iterator[tuple[Input, TopicState | None]]:
        """Walk the group's events with the batch's topic changes and ticks where they belong."""
        waiting = list(self._work.broadcast.changes.get(self._work.cluster, ()))
        waiting.reverse()
        for event in self._work.inputs:
            while waiting and precedes(waiting[-1][0], event):
                yield waiting.pop()
            yield event, None
        while waiting:
            yield waiting.pop()

    def _hear(self, event: Input, topic_state: TopicState | None) -> None:
        """Meet a tick or a topic change; a change of a topic that nobody here reads only becomes known."""
        group = self._group
        if topic_state is None:
            if group is not None:
                self._fire_timers(event.event_time_ms)
            return
        concerned = group is not None and group.watches(topic_state.topic)
        # The first sight of a topic by the admin client says since 1970: to this group it is news of now.
        at_ms = event.event_time_ms or self._clock_ms
        if concerned:
            self._fire_timers(at_ms)
        self._view.apply(topic_state)
        if group is None or not concerned:
            return
        items = group.topic_changed(topic_state.topic, at_ms, self._view)
        self._keep(items)
        if not items and isinstance(group, ObservedGroup):
            # No new generation, but the numbers that alerts look at have changed.
            self._is_changed = True
            self._loose_alerts += self._alerts.observe(group.describe(self._view), at_ms)

    def _take(self, event: Input) -> None:
        """Apply one event of the group itself."""
        if self._group is None or self._is_blank(self._group, event):
            self._group = self._new_group(event)
        self._fire_timers(event.event_time_ms)
        # A heartbeat's time is its identity, and observed groups know what they have applied.
        if not isinstance(self._group, ObservedGroup) and event.type != "member_heartbeat":
            horizon = max(self._clock_ms, event.event_time_ms) - self._rules.dedupe_window_ms
            while self._ids and next(iter(self._ids.values())) < horizon:
                del self._ids[next(iter(self._ids))]
            if self._ids.get(event.event_id, horizon - 1) >= horizon:
                reason = f"event_id {event.event_id!r} was applied before"
                self._loose.append(EventOutcome(event=event, outcome="duplicate", reason=reason))
                return
            self._ids[event.event_id] = event.event_time_ms
        if event.event_time_ms < self._clock_ms:
            self._went_back_ms[event.event_id] = self._clock_ms - event.event_time_ms
        self._clock_ms = max(self._clock_ms, event.event_time_ms)
        self._keep(self._group.advance(event, self._view))

    def _close_partitions(self) -> None:
        """Tell an observed group how far its partition of `__consumer_offsets` has come."""
        if not isinstance(self._group, ObservedGroup):
            return
        for (cluster, path, partition), end_ms in sorted(self._work.broadcast.partition_ends.items()):
            if cluster == self._work.cluster:
                self._keep(self._group.partition_advanced(path, partition, end_ms, self._view))

    def _fire_timers(self, now_ms: int) -> None:
        group = self._group
        if group is None:
            return
        while True:
            of_group, of_alerts = group.next_timer_ms(), self._alerts.next_timer_ms()
            if of_group is not None and of_group <= now_ms and (of_alerts is None or of_group <= of_alerts):
                fired = group.fire_next(now_ms, self._view)
                if fired is None:
                    return
                deadline, items = fired
                self._is_changed = True
                self._clock_ms = max(self._clock_ms, deadline)
                self._keep(items)
                continue
            changed = self._alerts.fire_next(now_ms)
            if changed is None:
                return
            self._clock_ms = max(self._clock_ms, changed[0])
            self._loose_alerts += changed[1]

    def _new_group(self, event: Input) -> _Group:
        cluster, group_id = self._work.cluster, self._work.group_id
        if event.type in _OBSERVED_TYPES:
            return self._observed(None)
        if event.type in _CONNECT_TYPES or event.body.get("assignor") in WIRE_NAMES:
            return ConnectGroup(cluster, group_id, self._rules, self._held)
        return ComputedGroup(cluster, group_id, self._rules, self._held)

    @staticmethod
    def _is_blank(group: _Group, event: Input) -> bool:
        """Say whether nothing has applied but settings or hearsay: then this event may tell another kind."""
        if isinstance(group, ObservedGroup):
            return event.type in {"member_joined", *_CONNECT_TYPES} and not group.is_seen
        is_empty = isinstance(group, ComputedGroup) and group.version == 0 and not group.members
        return event.type in _CONNECT_TYPES and is_empty

    def _observed(self, state: str | None) -> ObservedGroup:
        return ObservedGroup.load(
            state,
            self._work.cluster,
            self._work.group_id,
            plugins=self._rules.plugins,
            dedupe_window_ms=self._rules.dedupe_window_ms,
        )

    def _restore(self, state: Mapping[str, Any]) -> None:
        cluster, group_id = self._work.cluster, self._work.group_id
        if state["kind"] == "observed":
            self._group = self._observed(state["group"])
        elif state["kind"] == "connect":
            self._group = ConnectGroup.load(state["group"], cluster, group_id, self._rules, self._held)
        else:
            self._group = ComputedGroup.load(state["group"], cluster, group_id, self._rules, self._held)
        self._alerts.restore(state["alerts"])
        self._ids, self._clock_ms, self._owned = state["ids"], state["clock_ms"], state["owned"]
        self._since = {
            triple: tuple(since)
            for triple, since in zip(owned_pairs(self._owned), state["since"], strict=True)
        }

    def _present(self) -> _Group:
        """Give the group; rows are only made of one that an event or a state has brought in."""
        if self._group is None:
            raise RuntimeError(f"group {self._work.group_id!r} makes a row before its first event")
        return self._group

    def _dump(self) -> str:
        group = self._present()
        state = {
            "kind": _STATE_KINDS[type(group)],
            "group": group.dump(),
            "alerts": self._alerts.dump(),
            "ids": self._ids,
            "clock_ms": self._clock_ms,
            "owned": self._owned,
            "since": [self._since[triple] for triple in owned_pairs(self._owned)],
        }
        return orjson.dumps(state).decode()

    def _keep(self, items: Iterable[Version | EventOutcome]) -> None:
        for item in items:
            if isinstance(item, EventOutcome):
                self._loose.append(item)
            else:
                self._add_version_row(item)

    def _add_version_row(self, version: Version) -> None:
        where = {"cluster": self._work.cluster, "group_id": self._work.group_id}
        old = self._owned
        deltas = diff_versions(old, version, **where)
        balance = measure_balance(old, version, deltas)
        inspected, inspected_deltas, inspected_balance = version, deltas, balance
        if version.refused is not None:
            inspected = version.refused
            inspected_deltas = diff_versions(old, inspected, **where)
            inspected_balance = measure_balance(old, inspected, inspected_deltas)
        check_inputs = inspect_version(old, inspected, inspected_deltas, inspected_balance)
        if version.refused is not None:
            wrong = ", ".join(f"{name} is {count}" for name, count in check_inputs.items() if count)
            text = f"a critical check refused the computed generation: {wrong or 'see the table checks'}"
            version = replace(version, problem=("GenerationHeld", text))
        alerts = self._alerts.observe(version, version.event_time_ms)
        self._set_owned(version)
        has_checks = version.kind in {"rebalance", "baseline"} or version.refused is not None
        self._rows.append(
            {
                **self._columns(version),
                "balance": balance,
                "deltas": deltas,
                "check_inputs": check_inputs if has_checks else None,
                "alerts": alerts,
                "events": self._event_rows(version.cause),
                "state": self._dump(),
            }
        )

    def _add_state_row(self) -> None:
        group = self._present()
        version = group.describe(self._view)
        row = {
            **self._columns(version),
            "event_time": self._clock_ms * 1000,
            "balance": measure_balance(self._owned, version, ()),
            "deltas": [],
            "check_inputs": None,
            "alerts": self._loose_alerts,
            "events": self._event_rows(self._loose),
        }
        self._rows.append({**row, "state": self._dump()})

    def _set_owned(self, version: Version) -> None:
        """Remember who owns what now, and since which generation and time."""
        renamed = {new: old for old, new in version.instance_moves.items()}
        now = (version.generation_id, version.event_time_ms)
        since = {}
        for member_id, topic, partition in owned_pairs(version.assignment):
            earlier = self._since.get((renamed.get(member_id, member_id), topic, partition))
            since[member_id, topic, partition] = earlier or now
        self._owned, self._since = version.assignment, since

    def _columns(self, version: Version) -> Row:
        group = self._present()
        timers = [t for t in (group.next_timer_ms(), self._alerts.next_timer_ms()) if t is not None]
        return {
            **version_columns(version, self._since),
            "cluster": self._work.cluster,
            "group_id": self._work.group_id,
            "next_timer": min(timers) * 1000 if timers else None,
            "fingerprint": group.fingerprint,
            "topic_state": None,
            "batch": None,
        }

    def _event_rows(self, outcomes: Iterable[EventOutcome]) -> list[Row]:
        return [event_row(outcome, self._went_back_ms.get(outcome.event.event_id)) for outcome in outcomes]
