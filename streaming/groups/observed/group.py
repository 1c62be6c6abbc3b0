"""Observed groups: what Kafka decided, read record by record, and what it should have been.

One record that changes what the group shows makes one version; the rest is taken into
the state. What a group shows follows from the order of its records alone, so it does
not matter where a batch ends.

A tombstone of the whole group (key 2, 3 or 11) is a deletion, or the first half of a
change between the classic protocol and KIP-848. The coordinator writes such a change
in one append, whose records carry one timestamp: a tombstone followed by a record of
the other kind with the same timestamp is one history, any later timestamp seen for the
group or in its partition makes it a deletion, dated at the tombstone.

Source: GroupMetadataManager of the group coordinator 4.3.1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import orjson

from streaming.groups.applied import AppliedEvents
from streaming.groups.observed.consumer_group_records import RawGroup, TopicNames, kind_of_key
from streaming.groups.observed.expected import LeaderMemories, Verdict, judge_generation
from streaming.groups.observed.expected_connect import ConnectExpectations
from streaming.groups.observed.generations import Generation, generation_of_event, generation_of_record
from streaming.groups.observed.history import History, Place
from streaming.groups.observed.versions import (
    Shown,
    find_instance_moves,
    rebalance_protocol_of,
    rename_members,
    topic_counts,
    what_changed,
    withholds_claims,
)
from streaming.model import EventOutcome, Input, Version

if TYPE_CHECKING:
    from streaming.groups.observed.consumer_group_records import RawKind
    from streaming.model import Outcome, TopicView

Items = list[Version | EventOutcome]

TOMBSTONE_WAIT_MS = 60_000
"""After how much event time a group's tombstone counts as a deletion when its partition stays
silent. Longer than sources lag behind one another: a clock ahead of the records must not call
an upgrade a deletion."""

_GROUP_METADATA = 2
_EPOCH_KEY_TYPES = (3, 11)
_REBALANCE_PROTOCOL = {"consumer": "CONSUMER", "share": "SHARE"}
"""Kafka's names of these kinds of group: neither EAGER nor COOPERATIVE says what they do."""


class ObservedGroup:
    """One group that lives in Kafka. Mutable, lives for one group's turn in one batch.

    `raw` is there while the group is a KIP-848 or share group. `pending` is a
    tombstone that may be a deletion.
    """

    def __init__(
        self,
        cluster: str,
        group_id: str,
        *,
        plugins: Mapping[str, str] | None = None,
        dedupe_window_ms: int = 86_400_000,
    ) -> None:
        """Start with a group never seen; `plugins` maps a protocol to "module:attribute"."""
        self.cluster = cluster
        self.group_id = group_id
        self.history = History()
        self.raw: RawGroup | None = None
        self.pending: dict[str, Any] | None = None
        self.memories = LeaderMemories()
        self.connect = ConnectExpectations()
        self.topic_names = TopicNames()
        self._plugins = plugins or {}
        self._applied = AppliedEvents(dedupe_window_ms)

    # State in and out

    @classmethod
    def load(
        cls,
        state: str | None,
        cluster: str,
        group_id: str,
        *,
        plugins: Mapping[str, str] | None = None,
        dedupe_window_ms: int = 86_400_000,
    ) -> Self:
        """Take the group up where `dump` left it; None is a group never seen."""
        group = cls(cluster, group_id, plugins=plugins, dedupe_window_ms=dedupe_window_ms)
        if state is None:
            return group
        fields = orjson.loads(state)
        group.history = History.from_json(fields["history"])
        group.raw = RawGroup.from_json(fields["raw"]) if fields["raw"] else None
        group.pending = fields["pending"]
        group.memories = LeaderMemories(fields["memories"])
        group.connect = ConnectExpectations(fields.get("connect"))
        group.topic_names = TopicNames(fields["topic_names"])
        group._applied = AppliedEvents(dedupe_window_ms, fields["applied"])
        return group

    def dump(self) -> str:
        """Give everything that `load` needs as JSON text, in a fixed order."""
        fields = {
            "history": self.history.to_json(),
            "raw": self.raw.to_json() if self.raw else None,
            "pending": self.pending,
            "memories": self.memories.to_json(),
            "connect": self.connect.to_json(),
            "topic_names": self.topic_names.name_by_id,
            "applied": self._applied.to_json(),
        }
        return orjson.dumps(fields).decode()

    # Events and time

    def advance(self, event: Input, topics: TopicView) -> Items:
        """Apply one event of the group.

        Returns:
            Versions and outcomes in order; the event is in exactly one of them, as
            a version's `cause` or as an outcome. A deletion that this event has
            settled comes first and has no cause: its event is long applied.
        """
        duplicate = self._applied.why_duplicate(event)
        if duplicate is not None:
            return [_outcome(event, "duplicate", duplicate)]
        if event.type == "group_state":
            return [self.history.hear_state(event, self.describe(topics))]
        self.history.hear(event)
        items: Items = list(self._settle_pending(event))
        if event.type == "offset_commit":
            return [*items, self._learn_topic_name(event, topics)]
        if event.type == "unknown_record":
            return [*items, _outcome(event, "ignored", "a record of a type that is not known here")]
        handler = _HANDLERS.get(event.type)
        if handler is None:
            return [*items, _outcome(event, "ignored", f"{event.type} does not apply to an observed group")]
        self._applied.remember(event)
        self.history.told_state = None
        return [*items, *handler(self, event, topics)]

    def next_timer_ms(self) -> int | None:
        """Give the moment at which a pending tombstone counts as a deletion, None when none waits."""
        return None if self.pending is None else self.pending["event_time_ms"] + TOMBSTONE_WAIT_MS

    def partition_advanced(
        self, path: str, partition: int, timestamp_ms: int, topics: TopicView
    ) -> list[Version]:
        """Hear that a partition was read up to a record of this time.

        To be called after all of the group's own records up to there. The version
        that may come of it is the same whenever this is called.
        """
        pending = self.pending
        if pending is None or (pending["path"], pending["partition"]) != (path, partition):
            return []
        return self._delete_pending() if timestamp_ms > pending["event_time_ms"] else []

    def watches(self, topic: str) -> bool:
        """Say whether any member reads the topic."""
        shown = self.history.shown
        return shown is not None and any(topic in topics for topics in shown.subscribed.values())

    def topic_changed(self, topic: str, event_time_ms: int, topics: TopicView) -> Items:
        """Hear that a topic changed: Kafka has not rebalanced yet, so there is no version of it."""
        return []

    def fire_next(self, now_ms: int, topics: TopicView) -> tuple[int, Items] | None:
        """Fire the timer if it is due at `now_ms`: (the moment it counts from, what came of it).

        None when it is not due. The moment is the tombstone's own, so that nothing
        depends on what made the deletion certain: the wait, or a later record.
        """
        if self.pending is None or now_ms < self.pending["event_time_ms"] + TOMBSTONE_WAIT_MS:
            return None
        at_ms: int = self.pending["event_time_ms"]
        return at_ms, list(self._delete_pending())

    @property
    def is_seen(self) -> bool:
        """Say whether a record has told of the group; commits and the coordinator's word are none."""
        return self.history.version > 0 or self.raw is not None

    @property
    def fingerprint(self) -> None:
        """Give None: what Kafka decided is not computed here, so there is nothing to skip."""
        return None

    def describe(self, topics: TopicView) -> Version:
        """Show the group as it stands, for a `state` row; before its first version it is version 0."""
        shown = self.history.shown or Shown.of_nobody("Unknown", event_time_ms=0, reason="not seen whole yet")
        if self.raw is not None and self.raw.is_whole:
            shown = replace(shown, group_state=self.raw.group_state)
        if shown.protocol_type == "connect":
            return self.history.describe(shown, self.connect.task_counts)
        known = (name for name in shown.topics() if topics.get(name) is not None)
        return self.history.describe(shown, {name: topics.partition_count(name) for name in known})

    # Tombstones of the whole group

    def _settle_pending(self, event: Input) -> list[Version]:
        """Decide by the group's next event whether a pending tombstone is a deletion."""
        if self.pending is None:
            return []
        at_ms = self.pending["event_time_ms"]
        if event.type != "offsets_record":
            return self._delete_pending() if event.event_time_ms > at_ms else []
        value, is_classic = event.body["value"], event.body["key_type"] == _GROUP_METADATA
        if event.event_time_ms == at_ms and (value is None or self._goes_on_as(value, is_classic=is_classic)):
            return []
        return self._delete_pending()

    def _goes_on_as(self, value: Mapping[str, Any], *, is_classic: bool) -> bool:
        """Say whether a record behind the tombstone, in its append, carries the group on."""
        if not is_classic:
            return True
        generation_id: int = value["generation"]
        return self.raw is not None and generation_id >= self.history.generation_id

    def _delete_pending(self) -> list[Version]:
        pending, self.pending = self.pending, None
        return [self._delete(pending["event_time_ms"], ())] if pending and self.history.exists else []

    def _delete(self, event_time_ms: int, cause: tuple[EventOutcome, ...]) -> Version:
        self.raw, self.pending = None, None
        self.memories, self.connect = LeaderMemories(), ConnectExpectations()
        return self.history.delete(event_time_ms, cause)

    def _bury(self, event: Input) -> Items:
        """Take a tombstone of the whole group in; what it means the next record tells."""
        if self.pending is not None:
            return [_outcome(event, "applied", "one more tombstone of the group")]
        if not self.history.exists and self.raw is None:
            return [_outcome(event, "ignored", "the group does not exist")]
        self.pending = {
            "path": event.position.path,
            "partition": event.position.partition,
            "event_time_ms": event.event_time_ms,
        }
        return [_outcome(event, "applied", "a deletion, or a change of protocol: the next record tells")]

    # Handlers

    def _offsets_record(self, event: Input, topics: TopicView) -> Items:
        key_type, value = event.body["key_type"], event.body["value"]
        if key_type == _GROUP_METADATA:
            if value is None:
                return self._bury(event)
            return self._see(generation_of_record(value), event, topics)
        kind = kind_of_key(key_type)
        if kind is None:
            return [_outcome(event, "ignored", f"records of key type {key_type} are not followed")]
        return self._see_raw(kind, event, topics)

    def _generation_observed(self, event: Input, topics: TopicView) -> Items:
        if event.body["state"] == "Dead":
            return self._group_deleted(event, topics)
        return self._see(generation_of_event(event.body), event, topics)

    def _group_deleted(self, event: Input, topics: TopicView) -> Items:
        if not self.history.exists:
            return [_outcome(event, "ignored", "the group does not exist")]
        return [self._delete(event.event_time_ms, (_outcome(event, "applied"),))]

    def _learn_topic_name(self, event: Input, topics: TopicView) -> EventOutcome:
        """Take the one thing from an offset commit that it tells about groups: a topic id's name."""
        topic_id, topic = event.body.get("topicId"), event.body.get("topic")
        if topic_id and topic and self.topic_names.find(topic_id, topics) == topic_id:
            self.topic_names.name_by_id[topic_id] = topic
            return _outcome(event, "applied", f"topic id {topic_id} is {topic!r}")
        return _outcome(event, "ignored", "an offset commit tells nothing of the group's members")

    # Classic and Connect generations

    def _see(self, seen: Generation, event: Input, topics: TopicView) -> Items:
        """Compare one whole generation with the last and make a version if it shows anything new."""
        history, was_raw = self.history, self.raw is not None
        is_same = history.exists and seen.generation_id == history.generation_id
        if is_same and not was_raw and history.shown is not None and history.shown.is_same_as(seen):
            history.stretch = event.stretch
            text = f"generation {seen.generation_id} again, with the same content"
            return [_outcome(event, "ignored", text)]
        place = history.place(seen.generation_id, is_new=seen.is_creation, stretch=event.stretch)
        self.pending, self.raw = None, None
        moves = find_instance_moves(history.members, seen.members)
        at_ms, subscribed = event.event_time_ms, seen.subscribed()
        counts = topic_counts(seen.owners, subscribed, topics, event_time_ms=at_ms)
        phase = self._phase(seen, counts, place)
        is_downgrade = was_raw and place.kind == "rebalance" and place.incarnation == history.incarnation
        if is_same and moves and not was_raw and history.shown is not None:
            # The coordinator let the new member take its predecessor's place: no leader was asked.
            expected = rename_members(history.shown.expected, moves)
            verdict = Verdict(
                owners=expected, status=history.shown.expected_status, note=history.shown.expected_note
            )
            phase = history.shown.phase
        elif is_same and was_raw and seen.members:
            note = "downgraded from KIP-848: members keep what they held until the rebalance that follows"
            verdict = Verdict(owners=None, status="in_transition", note=note)
        else:
            verdict = self._judge(seen, event, topics, place)
        for topic, count in verdict.leader_counts.items():
            counts[topic] = max(count, counts.get(topic, 0))
        if seen.protocol_type == "connect":
            counts = self.connect.task_counts
        changed = what_changed(history.members, seen.members, moves)
        reason = "group_created" if seen.is_creation else changed
        if is_downgrade:
            reason = "; ".join(filter(None, ("downgraded to the classic protocol", changed)))
        reason = reason or ("second_phase" if phase == 2 else "rebalanced with the same members")
        shown = Shown(
            protocol_type=seen.protocol_type,
            protocol=seen.protocol,
            rebalance_protocol=rebalance_protocol_of(seen),
            leader_id=seen.leader_id,
            group_state=seen.group_state,
            phase=phase,
            is_final=phase != 1 and seen.is_settled and verdict.status != "in_transition",
            reason=place.explain(reason),
            event_time_ms=at_ms,
            members=seen.members,
            assignment=seen.owners,
            subscribed=subscribed,
            expected=verdict.owners,
            expected_status=verdict.status,
            expected_note=verdict.note,
        )
        self.memories.replace_members(moves)
        return [history.show(shown, place, seen.generation_id, counts, _outcome(event, "applied"), moves)]

    def _phase(self, seen: Generation, counts: Mapping[str, int], place: Place) -> int:
        """Give 1 for the generation of a move that revokes, 2 for the one behind it, 0 for any other."""
        if seen.protocol_type == "connect":
            is_first = not seen.is_settled
        else:
            is_first = withholds_claims(seen.joined, counts)
        if is_first:
            return 1
        before = self.history.shown
        follows = before is not None and before.phase == 1 and place.kind == "rebalance"
        return 2 if follows and seen.members else 0

    def _judge(self, seen: Generation, event: Input, topics: TopicView, place: Place) -> Verdict:
        """Say what was to be expected of a generation that a leader has decided."""
        if not seen.members:
            return Verdict(owners=None, status="not_applicable")
        if seen.protocol_type == "connect":
            is_same = self.history.exists and seen.generation_id == self.history.generation_id
            was_missed = is_same or not place.is_next
            return self.connect.judge(seen, recorded_ms=event.event_time_ms, was_missed=was_missed)
        if seen.protocol_type != "consumer":
            note = seen.note or f"groups of protocol type {seen.protocol_type!r} have no assignor here"
            return Verdict(owners=None, status="unknown", note=note)
        was_missed = self.history.may_hide_claims(place, seen.members)
        self.memories.keep([m.member_id for m in seen.members], was_missed=was_missed)
        verdict = judge_generation(
            seen.protocol or "",
            seen.joined,
            topics,
            generation_id=self.history.last_completed(seen.generation_id, place) + 1,
            leader_id=seen.leader_id,
            event_time_ms=event.event_time_ms,
            memory=self.memories.of(seen.leader_id),
            plugins=self._plugins,
        )
        self.memories.learn(seen.leader_id, verdict.memory)
        return verdict

    # KIP-848 and share groups

    def _see_raw(self, kind: RawKind, event: Input, topics: TopicView) -> Items:
        key_type, value = event.body["key_type"], event.body["value"]
        self.topic_names.learn_from(key_type, value)
        if self.raw is None or self.raw.kind != kind:
            if value is None:
                return [_outcome(event, "ignored", "a tombstone of something that was not known")]
            self.raw = RawGroup(kind)
        if value is not None:
            self.pending = None
        may_cut = self.raw.apply(key_type, event.body["key"], value)
        if self.raw.is_gone and key_type in _EPOCH_KEY_TYPES:
            return self._bury(event)
        return [self._cut(self.raw, event, topics) if may_cut else _outcome(event, "applied")]

    def _cut(self, raw: RawGroup, event: Input, topics: TopicView) -> Version:
        """Make a version of what the records add up to."""
        history, epoch = self.history, raw.epoch or 0
        place = history.place(epoch, is_new=raw.is_new, stretch=event.stretch)
        continues = history.exists and place.incarnation == history.incarnation
        if continues and raw.missed is not None:
            place = history.jump(raw.missed[0], raw.missed[1], event.stretch)
        elif continues and raw.shown:
            place = Place("rebalance", place.incarnation)  # all epochs were seen; some showed nothing new
        name_of = partial(self.topic_names.find, topics=topics)
        members, owners, target = raw.infos(), raw.owners(name_of), raw.target_owners(name_of)
        moves = find_instance_moves(history.members, members)
        subscribed = raw.subscribed()
        counts = topic_counts(
            owners, subscribed, topics, event_time_ms=event.event_time_ms, given_by_broker=(owners, target)
        )
        status, note = raw.compare(owners, target, raw.unready(counts, name_of))
        changed = what_changed(history.members, members, moves)
        reason = changed or raw.describe_record(event.body)
        if continues and not raw.shown and place.kind == "rebalance":
            reason = "; ".join(filter(None, (f"upgraded to the {raw.kind} protocol", changed)))
            if epoch == history.generation_id and members:  # as the coordinator converts a live group
                status = "in_transition"
                note = "upgraded from the classic protocol: members keep what they held until the next epoch"
        shown = Shown(
            protocol_type=raw.kind,
            protocol=raw.protocol,
            rebalance_protocol=_REBALANCE_PROTOCOL[raw.kind],
            leader_id=None,
            group_state=raw.group_state,
            phase=0,
            is_final=status != "in_transition",
            reason=place.explain(reason),
            event_time_ms=event.event_time_ms,
            members=members,
            assignment=owners,
            subscribed=subscribed,
            expected=target if members else None,
            expected_status=status,
            expected_note=note,
        )
        self.memories = LeaderMemories()
        raw.mark_shown()
        return history.show(shown, place, epoch, counts, _outcome(event, "applied"), moves)


_HANDLERS: Mapping[str, Callable[[ObservedGroup, Input, TopicView], Items]] = {
    "offsets_record": ObservedGroup._offsets_record,
    "generation_observed": ObservedGroup._generation_observed,
    "group_deleted": ObservedGroup._group_deleted,
}


def _outcome(event: Input, outcome: Outcome, reason: str | None = None) -> EventOutcome:
    return EventOutcome(event=event, outcome=outcome, reason=reason)
