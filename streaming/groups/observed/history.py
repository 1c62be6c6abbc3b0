"""The history of one observed group: its versions, generations and incarnations, counted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from streaming.groups.observed.versions import Shown, describe_gap, describe_unfinished, rename_members
from streaming.model import EventOutcome

if TYPE_CHECKING:
    from streaming.model import Input, MemberInfo, Owners, Version, VersionKind


class Place(NamedTuple):
    """What a newly seen generation is to the history; `reason` is "" where nothing is out of order.

    `unfinished` says which generations before it never completed, "" where none is known to be so.
    """

    kind: VersionKind
    incarnation: int
    reason: str = ""
    unfinished: str = ""

    @property
    def is_next(self) -> bool:
        """Say whether nothing lies between the generation before and this one, not even one begun in vain.

        A leader that has decided in vain may have forgotten what it decided before, as Connect's does.
        """
        return self.kind == "rebalance" and not self.unfinished

    def explain(self, cause: str) -> str:
        """Say why there is this version; `cause` is what the generation itself tells of that."""
        return "; ".join(filter(None, (self.reason or cause, self.unfinished)))


class History:
    """How far a group's history has come, and what its last version showed.

    `basis` is the assignment of the last final version while versions are not
    final, so that a move over several of them can be counted. `told_state` is the
    coordinator's own word on the group's state, until the group's next record.
    `stretch` is that of the record which last told of `generation_id` (Input.stretch).
    """

    def __init__(self) -> None:
        """Start with a group never seen."""
        self.version = 0
        self.generation_id = -1
        self.incarnation = 1
        self.is_dead = False
        self.basis: Owners | None = None
        self.told_state: str | None = None
        self.stretch: str | None = None
        self.shown: Shown | None = None

    @classmethod
    def from_json(cls, state: Mapping[str, Any]) -> Self:
        """Take up what `to_json` gave."""
        history = cls()
        for name, value in state.items():
            setattr(history, name, value)
        history.shown = Shown.from_json(state["shown"]) if state["shown"] else None
        return history

    def to_json(self) -> dict[str, Any]:
        """Give everything in JSON's own types."""
        return {**vars(self), "shown": self.shown.to_json() if self.shown else None}

    @property
    def exists(self) -> bool:
        """Say whether there is a group to delete."""
        return self.version > 0 and not self.is_dead

    @property
    def members(self) -> tuple[MemberInfo, ...]:
        """The members that the last version showed."""
        return self.shown.members if self.shown else ()

    def place(self, generation_id: int, *, is_new: bool, stretch: str | None = None) -> Place:
        """Say what a generation at a newer position, in this stretch, is to the history.

        The first sight of a group is a baseline, unless it is the making of it; for a
        jump see `jump`; a lower generation is the group made anew. Of a group made
        anew the history is whole when its making was seen, or when its deletion was
        and this is its first generation with members.
        """
        if self.version == 0:
            return Place("rebalance", self.incarnation) if is_new else Place("baseline", 1, "first_seen")
        if self.is_dead or generation_id < self.generation_id:
            if is_new or (self.is_dead and generation_id <= 1):
                return Place("rebalance", self.incarnation + 1)
            text = f"gap: made anew, its generations before {generation_id} were not seen"
            return Place("gap", self.incarnation + 1, text)
        if generation_id > self.generation_id + 1:
            return self.jump(self.generation_id + 1, generation_id - 1, stretch)
        return Place("rebalance", self.incarnation)

    def jump(self, first: int, last: int, stretch: str | None) -> Place:
        """Say what it means that no record told of these generations before one in this stretch.

        A gap; but a rebalance where no record can be missing. The coordinator counts a
        generation when all have joined and records it when the leader has sent its
        assignment; one who joins in between makes it begin again with the next number.

        Source: GroupMetadataManager (completeClassicGroupJoin, classicGroupSyncToClassicGroup),
        ClassicGroup.initNextGeneration of the group coordinator 4.3.1.
        """
        if stretch is not None and stretch == self.stretch:
            return Place("rebalance", self.incarnation, unfinished=describe_unfinished(first, last))
        return Place("gap", self.incarnation, describe_gap(first, last))

    def last_completed(self, generation_id: int, place: Place) -> int:
        """Give the generation before this one: the highest that a member can claim, or a leader remember."""
        return self.generation_id if place.unfinished else generation_id - 1

    def hear(self, event: Input) -> None:
        """Let a stretch end at an event that is in none, or not understood: it may tell of a generation."""
        if event.stretch is None or event.type == "unknown_record":
            self.stretch = None

    def may_hide_claims(self, place: Place, members: Iterable[MemberInfo]) -> bool:
        """Say whether a leader may have decided on claims before this generation that nobody here shows.

        A leader remembers the highest generation that a member has ever claimed. One that
        never completed leaves the claims as they were; so where all its members are here, whatever
        its leader can have seen is seen again.
        """
        is_one_gone = not {m.member_id for m in self.members} <= {m.member_id for m in members}
        return place.kind != "rebalance" or (bool(place.unfinished) and is_one_gone)

    def show(
        self,
        shown: Shown,
        place: Place,
        generation_id: int,
        topic_counts: Mapping[str, int],
        cause: EventOutcome,
        instance_moves: Mapping[str, str],
    ) -> Version:
        """Make the next version."""
        if place.kind != "rebalance" or place.incarnation != self.incarnation or self.shown is None:
            self.basis = None
        elif self.basis is None and not shown.is_final:
            self.basis = self.shown.assignment
        basis = rename_members(self.basis, instance_moves)
        self.basis = None if shown.is_final else basis
        self.generation_id, self.incarnation, self.is_dead = generation_id, place.incarnation, False
        self.stretch = cause.event.stretch
        before = basis if shown.is_final else None
        return self._next(shown, place.kind, topic_counts, (cause,), dict(instance_moves), before)

    def delete(self, event_time_ms: int, cause: tuple[EventOutcome, ...]) -> Version:
        """Make the version that ends this incarnation."""
        self.is_dead, self.basis = True, None
        protocol_type = self.shown.protocol_type if self.shown else "consumer"
        shown = Shown.of_nobody(
            "Dead", event_time_ms=event_time_ms, reason="group_deleted", protocol_type=protocol_type
        )
        return self._next(shown, "deleted", {}, cause, {}, None)

    def describe(self, shown: Shown, topic_counts: Mapping[str, int]) -> Version:
        """Show this for a `state` row, which keeps the version; the coordinator's word on the state goes."""
        told = replace(shown, group_state=self.told_state or shown.group_state)
        return self._version(told, "state", topic_counts, (), {}, None)

    def hear_state(self, event: Input, now: Version) -> EventOutcome:
        """Take a `group_state` in: no version, and nothing that a record is compared with.

        Args:
            event: the coordinator's word.
            now: the group as it stands.
        """
        reason = None
        if not self.exists:
            reason = "no generation of the group has been seen"
        elif event.event_time_ms < now.event_time_ms:
            reason = "the coordinator said so before the group's last version"
        elif event.body["state"] == now.group_state:
            reason = f"the group is known to be {now.group_state}"
        else:
            self.told_state = event.body["state"]
        return EventOutcome(event=event, outcome="ignored" if reason else "applied", reason=reason)

    def _next(
        self,
        shown: Shown,
        kind: VersionKind,
        topic_counts: Mapping[str, int],
        cause: tuple[EventOutcome, ...],
        instance_moves: Mapping[str, str],
        basis: Owners | None,
    ) -> Version:
        self.version += 1
        self.shown, self.told_state = shown, None
        return self._version(shown, kind, topic_counts, cause, instance_moves, basis)

    def _version(
        self,
        shown: Shown,
        kind: VersionKind,
        topic_counts: Mapping[str, int],
        cause: tuple[EventOutcome, ...],
        instance_moves: Mapping[str, str],
        basis: Owners | None,
    ) -> Version:
        return shown.as_version(
            kind,
            version=self.version,
            generation_id=self.generation_id,
            incarnation=self.incarnation,
            topic_counts=topic_counts,
            cause=cause,
            instance_moves=instance_moves,
            basis=basis,
        )
