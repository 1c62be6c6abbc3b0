"""One group's turn in one batch: its events, its timers, and what both make of it, as rows of the log."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import orjson

from streaming.groups.advice import advise
from streaming.groups.alerts import GroupAlerts
from streaming.groups.computed.connect_group import ConnectGroup
from streaming.groups.computed.connect_rounds import WIRE_NAMES
from streaming.groups.computed.group import ComputedGroup
from streaming.groups.deltas import diff_versions, inspect_version, measure_balance
from streaming.groups.log_rows import Row, event_row, version_columns
from streaming.groups.observed.group import ObservedGroup
from streaming.groups.set_aside import ALERT, UNREADABLE, Heard, SetAside
from streaming.model import WEIGHTED, EventOutcome, Input, Owners, TopicState, TopicView, Version, owned_pairs

if TYPE_CHECKING:
    from streaming.groups.advice import Advice
    from streaming.groups.broadcast import BatchBroadcast
    from streaming.groups.rules import GroupRules

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


class GroupTurn:
    """One group's turn in one batch."""

    def __init__(self, work: GroupWork, view: TopicView, rules: GroupRules, held: frozenset[int]) -> None:
        """Prepare it.

        Args:
            work: the group, with the state from which it starts.
            view: the topics as they are then.
            rules: the settings that decide.
            held: versions of the group that a critical check refused.
        """
        self._work = work
        self._view = view
        self._rules = rules
        self._held = held
        self._alerts = GroupAlerts(work.cluster, work.group_id, rules.alerts)
        self._group: _Group | None = None
        self._ids: dict[str, int] = {}
        self._clock_ms = 0
        self._owned: Owners = {}
        self._since: dict[str, dict[str, list[tuple[int, int]]]] = {}
        self._rows: list[Row] = []
        self._loose: list[EventOutcome] = []
        self._loose_alerts: list[Row] = []
        self._went_back_ms: dict[str, int] = {}
        self._is_changed = False
        self._waited: Collection[int] = ()
        self._state_bytes = 0
        self.at: Input | None = None
        """What it has come to."""

    def rows(self, heard: Sequence[Heard]) -> list[Row]:
        """Advance over all that the group hears, in order, and give its rows."""
        self._restore()
        return self._go_through(heard)

    def rows_again(self, aside: SetAside, waited: Collection[int], now_ms: int) -> list[Row]:
        """Advance a group whose events have waited.

        Args:
            aside: what it has heard since then, this batch's part included.
            waited: the id() of each event that earlier batches have kept.
            now_ms: what time it is; the alert ends then.
        """
        self._restore()
        self._waited, self._is_changed = waited, True
        self._loose_alerts += aside.end_alert(self._alerts, now_ms)
        return self._go_through(aside.heard)

    def _go_through(self, heard: Sequence[Heard]) -> list[Row]:
        for place, (event, topic_state) in enumerate(heard):
            if self._state_bytes > self._rules.max_turn_bytes:
                self._leave(heard[place:])
                break
            self.at = event
            if event.group_id is None:
                self._hear(event, topic_state)
            else:
                self._take(event)
        else:
            self._close_partitions()
            if self._loose or self._loose_alerts or self._is_changed:
                self._add_state_row()
        return [{**row, "ordinal": ordinal} for ordinal, row in enumerate(self._rows)]

    def _leave(self, rest: Sequence[Heard]) -> None:
        """Let the next batch go on with the rest: its rows must fit into memory too."""
        changed = {state.topic for _, state in rest if state is not None}
        topics = {topic: self._view.get(topic) for topic in changed}
        aside = SetAside(before=None, topics=topics, heard=list(rest))
        given_up = aside.give_up(self._rules.set_aside_max_bytes, None)
        if given_up:
            self._loose_alerts += self._alerts.raise_one(ALERT, aside.describe(), self._clock_ms)
        aside.before = self._dump()
        self._add_state_row()
        fresh = [item for item in rest if id(item[0]) not in self._waited]
        events = self._rows[-1]["events"] + aside.event_rows(fresh, given_up)
        self._rows[-1] |= {**aside.columns(), "events": events}

    def show(self, heard: Iterable[Heard]) -> Row:
        """Show the group as it stands, before what it hears; of one whose state cannot be read, nothing."""
        try:
            self._restore()
            if self._group is None:
                self._group = self._new_group(next(e for e, _ in heard if e.group_id is not None))
            version = self._group.describe(self._view)
            balance = measure_balance(self._owned, version, ())
            return {**version_columns(version, self._since), "balance": balance}
        except Exception:  # noqa: BLE001 - what made its turn fail may lie in its state
            return {**version_columns(UNREADABLE, {}), "balance": None}

    def _hear(self, event: Input, topic_state: TopicState | None) -> None:
        """Meet a tick, a topic change or a load; what does not matter to anybody here only becomes known."""
        group = self._group
        if topic_state is None:
            if group is not None:
                self._fire_timers(event.event_time_ms)
            return
        concerned = group is not None and group.watches(topic_state.topic)
        is_load = event.type == "partition_load"
        is_weighed = isinstance(group, ComputedGroup) and group.protocol == WEIGHTED
        if is_load and not is_weighed:
            concerned = False
        # The first sight of a topic by the admin client says since 1970: to this group it is news of now.
        at_ms = event.event_time_ms or self._clock_ms
        if concerned:
            self._fire_timers(at_ms)
        self._view.apply(topic_state)
        if group is None or not concerned:
            return
        if is_load and isinstance(group, ComputedGroup):
            items = group.load_told(topic_state.topic, at_ms, self._view)
        else:
            items = group.topic_changed(topic_state.topic, at_ms, self._view)
        self._keep(items)
        if not items and isinstance(group, ComputedGroup) and group.rebalance_due_ms is not None:
            # It waits for others close behind it, which may come with a later batch.
            self._is_changed = True
        if not items and (is_weighed or isinstance(group, ObservedGroup)):
            # No new generation, but the numbers that alerts look at have changed.
            self._is_changed = True
            self._loose_alerts += self._alerts.observe(group.describe(self._view), at_ms)

    def _take(self, event: Input) -> None:
        """Apply one event of the group itself."""
        if self._group is None or self._is_blank(self._group, event):
            self._group = self._new_group(event)
        self._fire_timers(event.event_time_ms)
        full = self._why_full(self._group, event)
        if full is not None:
            self._loose.append(EventOutcome(event=event, outcome="ignored", reason=full))
            return
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

    def _why_full(self, group: _Group, event: Input) -> str | None:
        """Say why nobody more can join, None where somebody can or nobody does."""
        limits, body = self._rules.limits, event.body
        if isinstance(group, ConnectGroup) and event.type == "worker_joined":
            return limits.why_full(body["worker_id"], group.workers)
        if isinstance(group, ComputedGroup) and event.type == "member_joined":
            full = limits.why_full(body["member_id"], group.members)
            # A static member that comes back takes its predecessor's place.
            return full if full and not group.holder_of_instance(body.get("group_instance_id")) else None
        if isinstance(group, ObservedGroup) and event.type == "offsets_record" and group.raw is not None:
            joins = body["key"].get("memberId")
            if joins is not None and body["value"] is not None:
                return limits.why_full(joins, group.raw.members)
        return None

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

    def _restore(self) -> None:
        if self._work.state is None:
            return
        state = orjson.loads(self._work.state)
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
            member_id: {topic: [] for topic in topics} for member_id, topics in self._owned.items()
        }
        for (member_id, topic, _), start in zip(owned_pairs(self._owned), state["since"], strict=True):
            self._since[member_id][topic].append(tuple(start))

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
            "since": [
                start for topics in self._since.values() for starts in topics.values() for start in starts
            ],
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
        advice = self._advise(old, version)
        balance = measure_balance(old, version, deltas, advice)
        inspected, inspected_deltas, inspected_balance = version, deltas, balance
        if version.refused is not None:
            inspected = version.refused
            inspected_deltas = diff_versions(old, inspected, **where)
            advice = self._advise(old, inspected)
            inspected_balance = measure_balance(old, inspected, inspected_deltas, advice)
        check_inputs = inspect_version(old, inspected, inspected_deltas, inspected_balance, advice)
        if version.refused is not None:
            wrong = ", ".join(f"{name} is {count}" for name, count in check_inputs.items() if count)
            text = f"a critical check refused the computed generation: {wrong or 'see the table checks'}"
            version = replace(version, problem=("GenerationHeld", text))
        alerts = self._alerts.observe(version, version.event_time_ms)
        self._set_owned(version)
        state = self._dump()
        self._state_bytes += len(state)
        has_checks = version.kind in {"rebalance", "baseline"} or version.refused is not None
        self._rows.append(
            {
                **self._columns(version),
                "balance": balance,
                "certificate": None if advice is None or version.refused is not None else advice.certificate,
                "deltas": deltas,
                "check_inputs": check_inputs if has_checks else None,
                "alerts": alerts,
                "events": self._event_rows(version.cause),
                "state": state,
            }
        )

    def _advise(self, old: Owners, version: Version) -> Advice | None:
        """Say what would have been enough by number; a group that goes by loads moves for their sake."""
        return advise(old, version, self._view) if version.weights is None else None

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
        since: dict[str, dict[str, list[tuple[int, int]]]] = {}
        for member_id, topics in version.assignment.items():
            before = renamed.get(member_id, member_id)
            owned, starts = self._owned.get(before, {}), self._since.get(before, {})
            since[member_id] = {}
            for topic, partitions in topics.items():
                if owned.get(topic) == partitions:
                    since[member_id][topic] = starts[topic]
                    continue
                earlier = dict(zip(owned.get(topic, ()), starts.get(topic, ()), strict=True))
                since[member_id][topic] = [earlier.get(partition, now) for partition in partitions]
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
        return [
            event_row(o, self._went_back_ms.get(o.event.event_id), has_waited=id(o.event) in self._waited)
            for o in outcomes
        ]
