"""Play a list of events through the pure stations, with no Spark and no tables.

What the job does with a batch, in the order in which it does it, so that a test
can say in a few lines what happens to a group.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from streaming.events.parsing import Rejection, parse_record
from streaming.groups.advance import GroupWork, advance_groups
from streaming.groups.broadcast import BatchBroadcast, advance_topics, order_broadcast
from streaming.groups.rules import GroupRules
from streaming.model import Input, Position, TopicState

START_MS = 1_795_225_200_000
"""2026-11-21T01:40:00Z, where the times of the tests begin."""


def at(seconds: float) -> int:
    """Give the event time so many seconds after the start."""
    return START_MS + int(seconds * 1000)


def topic(name: str, partitions: int, seconds: float = 0, **more: Any) -> dict[str, Any]:
    """Make a topic_changed event."""
    count = {} if "partition_racks" in more else {"partitions": partitions}
    return {"type": "topic_changed", "event_time": at(seconds), "topic": name, **count, **more}


def load(name: str, seconds: float, *loads: float) -> dict[str, Any]:
    """Make a partition_load event."""
    return {"type": "partition_load", "event_time": at(seconds), "topic": name, "loads": list(loads)}


def event(
    kind: str, seconds: float, member_id: str | None = None, group_id: str = "g", **more: Any
) -> dict[str, Any]:
    """Make an event of a group, of a member if one is named."""
    member = {} if member_id is None else {"member_id": member_id}
    return {"type": kind, "event_time": at(seconds), "group_id": group_id, **member, **more}


def join(member_id: str, seconds: float, *topics: str, **more: Any) -> dict[str, Any]:
    """Make a member_joined event; without topics give `topics_pattern`."""
    wanted = {"topics": list(topics)} if topics else {}
    return event("member_joined", seconds, member_id, **wanted, **more)


def tick(seconds: float) -> dict[str, Any]:
    """Make a time_advanced event."""
    return {"type": "time_advanced", "event_time": at(seconds)}


class Player:
    """The log of a job without a job: plays batches, keeps states, collects rows."""

    def __init__(self, rules: GroupRules | None = None) -> None:
        """Start with nothing known."""
        self.rules = rules or GroupRules()
        self.rows: list[dict[str, Any]] = []
        self.rejections: list[Rejection] = []
        self.topic_outcomes: list[Any] = []
        self._states: dict[tuple[str, str], str] = {}
        self._topics: dict[str, dict[str, TopicState]] = {}
        self._line = 0

    def play(
        self, events: Iterable[Mapping[str, Any] | bytes], holds: Iterable[int] = ()
    ) -> list[dict[str, Any]]:
        """Play one batch; returns its rows. `holds` are versions of group "g" that a check refuses."""
        inputs = []
        for item in events:
            self._line += 1
            raw = item if isinstance(item, bytes) else json.dumps(item).encode()
            parsed = parse_record(
                raw,
                position=Position("events", "story.jsonl", -1, self._line),
                format="events",
                default_cluster="default",
                max_record_bytes=1_048_576,
            )
            if isinstance(parsed, Rejection):
                self.rejections.append(parsed)
            else:
                inputs.append(parsed)
        return self.play_inputs(inputs, frozenset(("default", "g", v) for v in holds))

    def play_inputs(
        self, inputs: Sequence[Input], holds: frozenset[tuple[str, str, int]] = frozenset()
    ) -> list[dict[str, Any]]:
        """Play one batch of parsed events."""
        by_group: dict[tuple[str, str], list[Input]] = {}
        broadcasts: dict[str, list[Input]] = {}
        ends: dict[tuple[str, str, int], int] = {}
        for item in inputs:
            if item.group_id is None:
                broadcasts.setdefault(item.cluster, []).append(item)
                continue
            by_group.setdefault((item.cluster, item.group_id), []).append(item)
            if item.position.partition >= 0:
                key = (item.cluster, item.position.path, item.position.partition)
                ends[key] = max(ends.get(key, 0), item.event_time_ms)
        changes, base = {}, {cluster: dict(topics) for cluster, topics in self._topics.items()}
        for cluster, items in broadcasts.items():
            ordered = order_broadcast(items)
            of_topics = [i for i in ordered if i.topic is not None]
            topics = self._topics.setdefault(cluster, {})
            results = advance_topics(topics, of_topics, dedupe_window_ms=self.rules.dedupe_window_ms)
            after = {}
            for state, outcome in results:
                self.topic_outcomes.append(outcome)
                if outcome.outcome == "applied":
                    topics[state.topic] = state
                    after[outcome.event.position] = state
            changes[cluster] = tuple(
                (i, after.get(i.position))
                for i in ordered
                if i.type == "time_advanced" or i.position in after
            )
        broadcast = BatchBroadcast(changes, ends)
        touched = sorted({*by_group, *self._states})
        work = [
            GroupWork(c, g, self._states.get((c, g)), tuple(by_group.get((c, g), ())), broadcast)
            for c, g in touched
        ]
        rows = list(advance_groups(work, base, self.rules, holds))
        for row in rows:
            self._states[row["cluster"], row["group_id"]] = row["state"]
        self.rows += rows
        return rows

    def versions(self, group_id: str = "g") -> list[dict[str, Any]]:
        """List the rows of a group that are versions, not `state` rows."""
        return [r for r in self.rows if r["group_id"] == group_id and r["kind"] != "state"]

    def latest(self, group_id: str = "g") -> dict[str, Any]:
        """Give the group's latest row."""
        return [r for r in self.rows if r["group_id"] == group_id][-1]

    def alerts(self, alertname: str | None = None) -> list[tuple[str, str]]:
        """List alert changes as (alertname, status) in order."""
        changes = [a for row in self.rows for a in row["alerts"]]
        return [(a["alertname"], a["status"]) for a in changes if alertname in (None, a["alertname"])]


def owned(row: Mapping[str, Any]) -> dict[str, list[str]]:
    """Show a row's assignment as member_id -> ["t0p1", ...], sorted."""
    shown: dict[str, list[str]] = {m["member_id"]: [] for m in row["members"]}
    for entry in row["assignment"]:
        shown.setdefault(entry["member_id"], []).extend(f"{entry['topic']}p{p}" for p in entry["partitions"])
    return {member_id: sorted(pairs) for member_id, pairs in shown.items()}


def moves(row: Mapping[str, Any]) -> list[str]:
    """Show a row's deltas as ["C0 -t0p1", "C1 +t0p1", "C2 xt0p2" (lost)]."""
    signs = {"assigned": "+", "revoked": "-", "lost": "x"}
    return [f"{d['member_id']} {signs[d['change']]}{d['topic']}p{d['partition']}" for d in row["deltas"]]
