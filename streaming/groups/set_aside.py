"""Groups set aside: what cannot be computed now waits in the group's own state, and the others go on.

A group whose turn fails keeps the state that it had before, the topics as it knew them, and
all that it hears from then on, in order. When it is tried again all of it is gone through as if
nothing had happened, so a group whose fault goes away ends where one that never failed ends.
"""

from __future__ import annotations

import dataclasses
import traceback
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import orjson

from assignors.errors import PluginError
from assignors.plugins import tell
from streaming.groups.alerts import GroupAlerts
from streaming.groups.log_rows import Row, event_row
from streaming.model import EventOutcome, Input, Position, TopicState, Version

if TYPE_CHECKING:
    from streaming.groups.rules import GroupRules

Heard = tuple[Input, TopicState | None]
"""An event of the group, a tick, or a change of a topic with the topic's state after it."""

ALERT = "GroupSetAside"

UNREADABLE = Version(
    kind="state", version=0, generation_id=-1, incarnation=0, group_kind="computed", protocol_type="",
    protocol=None, rebalance_protocol=None, leader_id=None, group_state="Unknown", phase=0, is_final=False,
    reason="", event_time_ms=0, members=(), assignment={}, subscribed={}, topic_counts={},
    expected_status="unknown",
)  # fmt: skip
"""What is shown of a group whose own state cannot be read."""

_BEGINNING = '{"kind":"set_aside"'
_MOST_DOUBLINGS = 6


@dataclass(slots=True, kw_only=True)
class SetAside:
    """A group that waits to be tried again; the group's state holds all of it.

    Attributes:
        before: its state before the turn that failed, None at its first sight.
        topics: topics that have changed since, as they were before (None: unknown).
        heard: what it has heard since, in order.
        failures: how often it was tried in vain.
        given_up: how many of its events were given up for lack of room.
        tried_ms: event time of the last attempt.
        retry_ms: event time from which on it is tried again.
        reason: why the last attempt failed, in one line.
        alerts: the memory of the alert that says so.
    """

    before: str | None
    topics: dict[str, TopicState | None] = field(default_factory=dict)
    heard: list[Heard] = field(default_factory=list)
    failures: int = 0
    given_up: int = 0
    tried_ms: int = 0
    retry_ms: int = 0
    reason: str = ""
    alerts: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def load(cls, state: str | None, cluster: str, group_id: str) -> Self | None:
        """Read a group's logged state; None when it is that of a group in good order."""
        if state is None or not state.startswith(_BEGINNING):
            return None
        fields = orjson.loads(state)
        del fields["kind"]
        topics = {name: None if old is None else _topic_of(old) for name, old in fields.pop("topics").items()}
        heard = [_heard_of(item, cluster, group_id) for item in fields.pop("heard")]
        return cls(**fields, topics=topics, heard=heard)

    def dump(self) -> str:
        """Give everything that `load` needs as JSON text."""
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        topics = {name: None if old is None else _topic_json(old) for name, old in self.topics.items()}
        heard = [orjson.Fragment(_encode(item)) for item in self.heard]
        return orjson.dumps({"kind": "set_aside", **fields, "topics": topics, "heard": heard}).decode()

    def hear(self, items: Iterable[Heard], known: Mapping[str, TopicState]) -> None:
        """Take in what a batch brings; `known` are the topics before that batch."""
        for event, state in items:
            if state is not None:
                self.topics.setdefault(state.topic, known.get(state.topic))
            elif event.type == "time_advanced" and self.heard and self.heard[-1][0].type == "time_advanced":
                # Of ticks with nothing in between only the latest can fire a timer that the others do not.
                if event.event_time_ms >= self.heard[-1][0].event_time_ms:
                    self.heard[-1] = (event, None)
                continue
            self.heard.append((event, state))

    def topics_then(self, known: Mapping[str, TopicState]) -> dict[str, TopicState]:
        """Give the topics as they were when it was set aside, `known` being those of now."""
        then = {name: state for name, state in known.items() if name not in self.topics}
        return then | {name: state for name, state in self.topics.items() if state is not None}

    def is_due(self, now_ms: int) -> bool:
        """Say whether it is to be tried again; also when time has gone back, for then the last was wrong."""
        return not self.tried_ms <= now_ms < self.retry_ms

    def fail(self, reason: str, now_ms: int, retry_ms: int) -> None:
        """Note one more attempt in vain: the next batch tries again, then ever longer waits pass.

        Args:
            reason: why, in one line.
            now_ms: event time of the attempt.
            retry_ms: the first wait; each is twice the one before, up to 64 times this.
        """
        self.failures += 1
        self.reason, self.tried_ms = reason, now_ms
        wait_ms = retry_ms << min(self.failures - 2, _MOST_DOUBLINGS) if self.failures > 1 else 0
        self.retry_ms = now_ms + wait_ms

    def give_up(self, max_bytes: int, culprit: Input | None) -> list[Input]:
        """Let go of as much as lies over `max_bytes`: the event at which it failed, then the oldest.

        The newest event always stays. A change of a topic is not lost: it counts as known from the beginning.
        """
        sizes = [len(_encode(item)) for item in self.heard]
        over = sum(sizes) - max_bytes
        if over <= 0:
            return []
        own = [place for place, (event, _) in enumerate(self.heard) if event.group_id is not None]
        order = sorted(range(len(sizes)), key=lambda place: self.heard[place][0] is not culprit)
        dropped: set[int] = set()
        for place in order:
            if over <= 0 or not own:
                break
            if place != own[-1]:
                dropped.add(place)
                over -= sizes[place]
        given_up = []
        for place in sorted(dropped):
            event, state = self.heard[place]
            if state is not None:
                self.topics[state.topic] = state
            elif event.group_id is not None:
                given_up.append(event)
        self.heard = [item for place, item in enumerate(self.heard) if place not in dropped]
        if given_up:
            # One of them may have told of a generation: none of the rest can claim that nothing is missing.
            self.heard = [(dataclasses.replace(event, stretch=None), state) for event, state in self.heard]
        self.given_up += len(given_up)
        return given_up

    def event_rows(self, fresh: Iterable[Heard], given_up: Iterable[Input]) -> list[Row]:
        """Say what became of a batch's events, all of which wait, and of those that were given up."""
        why = f"its group {'is ' if self.failures else ''}{self.describe()}"
        lost = "given up: more events wait than groups.set_aside_max_bytes holds"
        waits = [
            EventOutcome(event=e, outcome="kept", reason=why) for e, _ in fresh if e.group_id is not None
        ]
        gone = [EventOutcome(event=event, outcome="ignored", reason=lost) for event in given_up]
        return [*map(event_row, waits), *(event_row(outcome, has_waited=True) for outcome in gone)]

    def row(
        self,
        shown: Row,
        events: list[Row],
        cluster: str,
        group_id: str,
        rules: GroupRules,
        now_ms: int,
    ) -> Row:
        """Make the group's `state` row.

        Args:
            shown: the columns that show it as it stood, and its balance.
            events: rows of what became of events.
            cluster: its cluster.
            group_id: the group.
            rules: the settings that decide.
            now_ms: what time it is.
        """
        alerts = self._tell(cluster, group_id, rules, now_ms)  # before the state is written, which holds them
        return {
            **shown,
            **self.columns(),
            "cluster": cluster,
            "group_id": group_id,
            "event_time": now_ms * 1000,
            "fingerprint": None,
            "topic_state": None,
            "batch": None,
            "deltas": [],
            "check_inputs": None,
            "alerts": alerts,
            "events": events,
            "ordinal": 0,
        }

    def columns(self) -> Row:
        """Give the columns of its row that make it wait, whatever else the row shows."""
        return {
            "reason": self.describe(),
            # Whatever happens in its cluster it must hear, and every tick may try it again.
            "has_pattern": True,
            "topics_patterns": None,
            "next_timer": 0,
            "state": self.dump(),
        }

    def _waiting(self) -> int:
        """Count the events of the group that wait."""
        return sum(event.group_id is not None for event, _ in self.heard)

    def describe(self) -> str:
        """Say in one line what the matter is."""
        lost = f", {self.given_up} given up for lack of room" if self.given_up else ""
        waiting = f"{self._waiting()} of its events wait{lost}"
        if not self.failures:
            return f"goes on with the next batch: more than groups.max_turn_bytes in one, {waiting}"
        tried = "once" if self.failures == 1 else f"{self.failures} times"
        return f"set aside: {self.reason}; tried {tried}, {waiting}"

    def end_alert(self, alerts: GroupAlerts, now_ms: int) -> list[Row]:
        """Let its alert end among the group's own; the changes."""
        return alerts.end_one(ALERT, self.alerts, now_ms) if self.alerts else []

    def _tell(self, cluster: str, group_id: str, rules: GroupRules, now_ms: int) -> list[Row]:
        """Raise or keep up the alert: its changes, rows of schemas._ALERT."""
        alerts = GroupAlerts(cluster, group_id, {n: r for n, r in rules.alerts.items() if n == ALERT})
        known = self.alerts or _alerts_in(self.before)
        if known is not None:
            alerts.restore(known, only=ALERT)
        changes = alerts.raise_one(ALERT, self.describe(), now_ms)
        while (fired := alerts.fire_next(now_ms)) is not None:
            changes += fired[1]
        self.alerts = alerts.dump()
        return changes


def latest_ms(items: Sequence[Heard]) -> int:
    """Say what time it is for a group by what it hears: by the latest tick, or by its events."""
    ticks = [event.event_time_ms for event, _ in items if event.type == "time_advanced"]
    return max(ticks or (event.event_time_ms for event, _ in items), default=0)


def why_failed(error: Exception, culprit: Input | None) -> str:
    """Say in one line what was raised, where in the program, and at which event."""
    at = ""
    if culprit is not None and culprit.group_id is not None:
        place = culprit.position
        at = f", at {culprit.type} {place.stream}:{place.offset}"
    if isinstance(error, PluginError):
        return f"{error}{at}"
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{tell(error)}{where}{at}"


def _alerts_in(state: str | None) -> dict[str, Any] | None:
    """Read the alerts out of the state of a group in good order; None where nothing can be read."""
    try:
        found: dict[str, Any] = orjson.loads(state or "")["alerts"]
    except (ValueError, LookupError, TypeError):
        return None
    return found


def _encode(item: Heard) -> bytes:
    event, state = item
    if event.type == "time_advanced":
        return orjson.dumps({"type": event.type, "event_time_ms": event.event_time_ms})
    fields: dict[str, Any] = {f.name: getattr(event, f.name) for f in dataclasses.fields(event)}
    place = event.position
    fields["position"] = [place.source, place.path, place.partition, place.offset]
    for name in ("cluster", "group_id"):
        del fields[name]
    if state is None:
        fields["raw"] = event.raw.decode("utf-8", "replace")
    else:
        # Of a topic's change a group only hears when it was and what came of it.
        fields |= {"raw": "", "body": {}, "state": _topic_json(state)}
    return orjson.dumps(fields)


def _heard_of(item: dict[str, Any], cluster: str, group_id: str) -> Heard:
    state = item.pop("state", None)
    if item["type"] == "time_advanced":
        item |= {"event_id": "", "position": ("", "", -1, 0), "body": {}, "raw": ""}
    elif state is None:
        item["group_id"] = group_id
    item |= {"position": Position(*item["position"]), "raw": item["raw"].encode()}
    return Input(cluster=cluster, **item), None if state is None else _topic_of(state)


def _topic_json(state: TopicState) -> dict[str, Any]:
    fields = {f.name: getattr(state, f.name) for f in dataclasses.fields(state)}
    # Which events of a topic were applied matters to the topic, not to a group.
    del fields["recent_ids"]
    return fields


def _topic_of(fields: dict[str, Any]) -> TopicState:
    racks = tuple(map(tuple, fields.pop("racks")))
    history = tuple((until_ms, count) for until_ms, count in fields.pop("history"))
    loads = tuple(fields.pop("loads", ()))
    return TopicState(**fields, racks=racks, history=history, loads=loads)
