"""The proof that an assignment is optimal, and a check of it that knows nothing of how it was found.

A certificate divides members and topics into classes, in ascending order of load, each with a box
[least, most] of loads, `most` at most one above `least`, and gives every member, topic and class a
potential. It proves an assignment when

* each member's load lies in its class's box, and no class's box reaches below the one before it;
* a topic is read in its own class and in higher ones only, and only its own class has partitions of it:
  so no chain of moves leads from a load to one that is lower by two, and in every other assignment
  with loads as even each class has the very same partitions;
* of what it owned of a topic a member keeps as many as it has of it after;
* within a class no partition can change hands, and no load rise in the box for another that falls,
  at less than nothing: the cost of each such step plus the potential where it begins is not below
  that where it ends. A partition costs its holder 1 when it did not own it, and FAR when it is out
  of the holder's racks while another subscriber is within.

All of it is looked at once, arc by arc. Where racks matter, what is said of a topic holds of each of its
rows: the partitions that lie in the same of the members' racks.

Source: complementary slackness for minimum-cost flows (Ahuja, Magnanti, Orlin); the canonical
partition of decreasing minimisation (Frank and Murota).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from assignors.optimal.steps import FAR

if TYPE_CHECKING:
    from assignors.model import Assignment, Subscription, TopicMetadata

Row = tuple[str, tuple[str, ...]]
"""(topic, the members' racks that its partitions lie in, by name)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadClass:
    """Members whose loads lie in [least, most], and the rows whose partitions are all theirs.

    `members` and `rows` map to their potentials; `potential` is the class's own.
    """

    least: int
    most: int
    potential: int
    members: Mapping[str, int]
    rows: Mapping[Row, int]


@dataclass(frozen=True, slots=True)
class Certificate:
    """The classes, in ascending order of load."""

    classes: tuple[LoadClass, ...]

    def to_json(self) -> dict[str, Any]:
        """Write it as JSON's values.

        `classes` of `least`, `most`, `potential`, `members` (name -> potential) and `topics`
        ([topic, potential], and the racks third where they matter).
        """
        return {
            "classes": [
                {
                    "least": one.least,
                    "most": one.most,
                    "potential": one.potential,
                    "members": dict(one.members),
                    "topics": [
                        [topic, potential, list(racks)] if racks else [topic, potential]
                        for (topic, racks), potential in one.rows.items()
                    ],
                }
                for one in self.classes
            ]
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Certificate:
        """Read what to_json wrote.

        Raises:
            KeyError, TypeError, ValueError: it did not write this.
        """
        return cls(
            tuple(
                LoadClass(
                    least=int(one["least"]),
                    most=int(one["most"]),
                    potential=int(one["potential"]),
                    members={str(member): int(potential) for member, potential in one["members"].items()},
                    rows={(str(t), tuple(*racks)): int(potential) for t, potential, *racks in one["topics"]},
                )
                for one in value["classes"]
            )
        )


def check_certificate(
    certificate: Certificate,
    topics: Mapping[str, TopicMetadata],
    subscriptions: Mapping[str, Subscription],
    assignment: Mapping[str, Any],
    previous: Assignment | None = None,
) -> list[str]:
    """Check that a certificate proves an assignment optimal, in time linear in arcs and partitions.

    Args:
        certificate: the proof.
        topics: topic -> its partitions and racks.
        subscriptions: member_id -> Subscription.
        assignment: member_id -> its (topic, partition) pairs.
        previous: who owned what, where it was not read from `owned_partitions`.

    Returns:
        What does not hold, [] for a proof.
    """
    return list(_Check(topics, subscriptions, assignment, previous).faults_of(certificate))


class _Check:
    def __init__(
        self,
        topics: Mapping[str, TopicMetadata],
        subscriptions: Mapping[str, Subscription],
        assignment: Mapping[str, Any],
        previous: Assignment | None,
    ) -> None:
        self._subscriptions = subscriptions
        self._read = {member: frozenset(s.topics) for member, s in subscriptions.items()}
        self._rows_of: dict[str, list[Row]] = {}
        self._row_of: dict[tuple[str, int], Row] = {}
        racks = frozenset(s.rack_id for s in subscriptions.values() if s.rack_id is not None)
        for topic in frozenset[str]().union(*self._read.values()):
            if topic not in topics:
                continue
            known = topics[topic].racks
            for place, partition in enumerate(topics[topic].partitions):
                near = sorted(racks.intersection(known[place])) if known else ()
                row = (topic, tuple(str(rack) for rack in near))
                if row not in self._rows_of.setdefault(topic, []):
                    self._rows_of[topic].append(row)
                self._row_of[topic, partition] = row
        self._assignment = assignment
        self._owners_before = self._owners(previous)
        self._owned = self._count(self._owners_before)
        self._has: dict[tuple[str, Row], int] = {}
        self._kept: dict[tuple[str, Row], int] = {}

    def _owners(self, previous: Assignment | None) -> dict[tuple[str, int], str]:
        """Say who owned what: the highest generation's claim, if it is but one."""
        newest: dict[tuple[str, int], int] = {}
        claimants: dict[tuple[str, int], set[str]] = {}
        for member, subscription in self._subscriptions.items():
            claims = subscription.owned_partitions
            generation = subscription.generation_id
            if previous is not None:
                claims, generation = previous.get(member, ()), 0
            for topic, partition in claims:
                place = (topic, partition)
                if place in self._row_of:
                    if generation > newest.get(place, generation - 1):
                        newest[place], claimants[place] = generation, set()
                    if generation == newest[place]:
                        claimants[place].add(member)
        return {
            place: member
            for place, (member, *others) in claimants.items()
            if not others and place[0] in self._read[member]
        }

    def _count(self, owners: Mapping[tuple[str, int], str]) -> dict[tuple[str, Row], int]:
        counts: dict[tuple[str, Row], int] = {}
        for place, member in owners.items():
            arc = (member, self._row_of[place])
            counts[arc] = counts.get(arc, 0) + 1
        return counts

    def faults_of(self, certificate: Certificate) -> Iterator[str]:
        """List what does not hold."""
        given = list(self._given())
        yield from given
        classes = list(self._classes(certificate))
        yield from classes
        if not given and not classes:
            yield from self._arcs(certificate)

    def _given(self) -> Iterator[str]:
        """Each partition is with one subscriber."""
        owners: dict[tuple[str, int], str] = {}
        for member, partitions in self._assignment.items():
            if member not in self._subscriptions:
                yield f"{member!r} has partitions but is no member"
                continue
            for topic, partition in partitions:
                place = (topic, partition)
                if place not in self._row_of:
                    yield f"{topic}-{partition} of {member!r} is no partition of a subscribed topic"
                elif place in owners:
                    yield f"{topic}-{partition} has two owners, {owners[place]!r} and {member!r}"
                elif topic not in self._read[member]:
                    yield f"{topic}-{partition} is with {member!r}, which does not subscribe to it"
                else:
                    owners[place] = member
        missing = self._row_of.keys() - owners.keys()
        if missing:
            topic, partition = min(missing)
            yield f"{len(missing)} partitions are with nobody, {topic}-{partition} the first"
        self._has = self._count(owners)
        self._kept = self._count(dict(owners.items() & self._owners_before.items()))

    def _classes(self, certificate: Certificate) -> Iterator[str]:
        """Each member and row is in one class, with a load in its box; boxes ascend."""
        members = [member for one in certificate.classes for member in one.members]
        rows = [row for one in certificate.classes for row in one.rows]
        all_rows = [row for of_topic in self._rows_of.values() for row in of_topic]
        if sorted(members) != sorted(self._subscriptions):
            yield "the classes' members are not the group's, each once"
        if sorted(rows) != sorted(all_rows):
            yield "the classes' topics are not those subscribed to, each once"
        before = 0
        for number, one in enumerate(certificate.classes):
            if not 0 <= one.most - one.least <= 1:
                yield f"class {number} has the box [{one.least}, {one.most}]; it may span one at most"
            if one.least < before:
                yield f"class {number} reaches below the one before it: {one.least} is less than {before}"
            before = one.most
            for member in one.members:
                load = len(self._assignment.get(member, ()))
                if not one.least <= load <= one.most:
                    yield f"{member!r} has {load} partitions, outside [{one.least}, {one.most}]"

    def _arcs(self, certificate: Certificate) -> Iterator[str]:
        """No row is read below its class or held above it; within a class no step costs less than nothing."""
        class_of: dict[Row, int] = {}
        potential_of: dict[Row, int] = {}
        for number, one in enumerate(certificate.classes):
            for row, potential in one.rows.items():
                class_of[row], potential_of[row] = number, potential
        has_near = {
            row
            for member, topics in self._read.items()
            for topic in topics
            for row in self._rows_of.get(topic, ())
            if self._is_near(member, row)
        }
        for number, one in enumerate(certificate.classes):
            for member, potential in one.members.items():
                load = len(self._assignment.get(member, ()))
                if load < one.most and potential < one.potential:
                    yield f"{member!r} may have one more and its potential is below its class's"
                if load > one.least and potential > one.potential:
                    yield f"{member!r} may have one less and its potential is above its class's"
                for topic in self._read[member]:
                    for row in self._rows_of.get(topic, ()):
                        has, had = self._has.get((member, row), 0), self._owned.get((member, row), 0)
                        if self._kept.get((member, row), 0) < min(has, had):
                            yield f"{member!r} has partitions of {topic!r} that are not those it owned"
                        if class_of[row] > number:
                            yield f"{member!r} reads {topic!r} of a higher class"
                        elif class_of[row] < number:
                            if has:
                                yield f"{member!r} has partitions of {topic!r}, of a lower class"
                        else:
                            out = FAR if row in has_near and not self._is_near(member, row) else 0
                            if out + (has >= had) + potential_of[row] < potential:
                                yield f"{member!r} could take a partition of {topic!r} for less"
                            if has and out + (has > had) + potential_of[row] > potential:
                                yield f"{member!r} could give a partition of {topic!r} for less"

    def _is_near(self, member: str, row: Row) -> bool:
        rack = self._subscriptions[member].rack_id
        return rack is None or not row[1] or rack in row[1]
