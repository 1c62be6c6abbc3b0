"""One rebalance of a computed group: what the assignor wants, and how far the group may go at once."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import mmh3
import orjson

from assignors import Subscription, TopicMetadata, TopicPartition, encode_sticky_user_data
from streaming.groups.weights import weights_of
from streaming.model import WEIGHTED, Owners, owners_copy

if TYPE_CHECKING:
    from assignors import Assignor
    from streaming.groups.computed.membership import Member
    from streaming.model import TopicView

Fields = dict[str, Any]
"""New values of a ComputedGroup's attributes, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where a group stands before a rebalance; what each is, ComputedGroup says."""

    members: Mapping[str, Member]
    generation_id: int
    assignment: Owners
    basis: Owners | None
    target: Owners | None
    unreleased: Owners
    move: str | None
    is_interrupted: bool
    revocation_deadline_ms: int | None


def fingerprint_of(
    protocol: str,
    members: Mapping[str, Member],
    subscribed: Mapping[str, tuple[str, ...]],
    topics: TopicView,
) -> str:
    """Hash all that the assignor sees but for what is owned: 128-bit mmh3, hexadecimal.

    Members in join order with their subscriptions, static ids, racks and user
    data; the partition counts and racks of the topics they subscribe to; the
    assignor. A group whose fingerprint stays the same is not computed again. Where the
    assignor goes by loads a hash of theirs follows behind a colon.
    """
    names = sorted({t for ts in subscribed.values() for t in ts})
    states = [topics.get(name) for name in names]
    seen = [
        protocol,
        [[s.topic, s.partition_count, s.racks] for s in states if s is not None],
        [
            [m.member_id, m.group_instance_id, m.rack_id, m.protocols, m.user_data, subscribed[m.member_id]]
            for m in members.values()
        ],
    ]
    fingerprint = mmh3.hash_bytes(orjson.dumps(seen)).hex()
    if protocol != WEIGHTED:
        return fingerprint
    return f"{fingerprint}:{mmh3.hash_bytes(orjson.dumps(list(weights_of(topics, names).items()))).hex()}"


def differ_by_loads(before: str | None, now: str) -> bool:
    """Say whether of all that the assignor sees only loads have changed between two fingerprints."""
    return before is not None and ":" in now and before != now and before.split(":")[0] == now.split(":")[0]


def is_as_before(group: Standing, fields: Fields) -> bool:
    """Say whether a rebalance of a settled group takes nothing from anybody and gives nothing."""
    before = (group.assignment, group.unreleased, group.move)
    return bool(fields["is_final"]) and (fields["assignment"], fields["unreleased"], fields["move"]) == before


@dataclass(frozen=True, slots=True)
class AssignorCall:
    """An assignor with a group's members and topics, to be asked for one or more sets of owners.

    `is_as_planned` says that nothing the assignor sees has changed since a move began.
    """

    assignor: Assignor
    members: Mapping[str, Member]
    subscribed: Mapping[str, tuple[str, ...]]
    topics: TopicView
    is_as_planned: bool = False

    def target(self, owned: Owners, generation_id: int) -> Owners:
        """Ask what the members should own, who now own `owned` since `generation_id`.

        A member that `owned` does not know counts with what it claimed on joining.
        Returns every member as a key, and any other that the assignor came up with.
        """
        metadata = {}
        for name in sorted({t for ts in self.subscribed.values() for t in ts}):
            state = self.topics.get(name)
            if state is not None and state.partition_count > 0:
                metadata[name] = TopicMetadata(range(state.partition_count), state.racks)
        subscriptions = {
            m: self._subscription(member, owned, generation_id)
            for m, member in self.members.items()
            # Kafka's sticky classes may hand partitions to a member that subscribes to nothing.
            if self.subscribed[m]
        }
        if not subscriptions:
            return {m: {} for m in self.members}
        result = self.assignor.function(metadata, subscriptions, None)
        found = {m: result.by_topic(m) for m in result}
        return found | {m: {} for m in self.members if m not in found}

    def _subscription(self, member: Member, owned: Owners, generation_id: int) -> Subscription:
        is_known = member.member_id in owned
        held = owned[member.member_id] if is_known else member.claims
        # Kafka's sticky classes hand ghosts on: a partition beyond its topic's count is left out here.
        counts = {t: self.topics.partition_count(t) for t in held}
        pairs = tuple([TopicPartition(t, p) for t, ps in held.items() for p in ps if p < counts[t]])
        of_generation = generation_id if is_known else member.claim_generation_id
        user_data = base64.b64decode(member.user_data) if member.user_data else None
        if self.assignor.name == "sticky" and pairs:
            user_data = encode_sticky_user_data(pairs, of_generation)
        is_told = self.assignor.is_sticky or self.assignor.rebalance_protocol == "COOPERATIVE"
        return Subscription(
            topics=self.subscribed[member.member_id],
            # Under the eager protocol members have given up everything before they join; an assignor that
            # moves little is told all the same, as Kafka's is by its user data.
            owned_partitions=pairs if is_told else (),
            generation_id=of_generation,
            group_instance_id=member.group_instance_id,
            rack_id=member.rack_id,
            user_data=user_data,
        )


def plan_eager(group: Standing, call: AssignorCall, topics: TopicView, deadline_ms: int) -> Fields:
    """Take everything back from whoever owns anything; assign once nobody does.

    The target is computed before anything is taken, so that an assignor that
    raises revokes nothing.
    """
    held = {m: ts for m, ts in group.assignment.items() if m in group.members and any(ts.values())}
    before = (group.basis if group.move else group.assignment) or {}
    target = call.target(before, group.generation_id)
    waiting = {m: ts for m, ts in group.unreleased.items() if m in group.members} | held
    if not waiting:
        return _settle(group, target, phase=2 if group.move else 0)
    return {
        "assignment": {m: {} for m in group.members},
        "unreleased": owners_copy(waiting),
        "basis": before,
        "target": target,
        "move": "eager",
        "phase": 1,
        "is_final": False,
        "group_state": "PreparingRebalance",
        "revocation_deadline_ms": deadline_ms if held else group.revocation_deadline_ms,
    }


def plan_cooperative(group: Standing, call: AssignorCall, topics: TopicView, deadline_ms: int) -> Fields:
    """Give every member what the assignor wants for it, but for what another live member still holds.

    What is withheld makes this the first of two generations. A joining member's
    claims count as held by it, as in Kafka. An assignor that goes by loads is asked once for both
    generations: what the second gave anew would not count as moved, and its budget would be had twice.

    Source: KIP-429; CooperativeStickyAssignor.adjustAssignment.
    """
    asks_once = call.assignor.name == WEIGHTED
    wanted = group.target if asks_once and call.is_as_planned else None
    if wanted is None:
        wanted = call.target(group.assignment, group.generation_id)
    holders = _holders(group, topics)
    given: Owners = {m: {} for m in wanted}
    owners_of: dict[tuple[str, int], list[str]] = {}
    for member_id, wanted_topics in wanted.items():
        alone = [member_id]
        for topic, partitions in wanted_topics.items():
            free = [p for p in partitions if holders.get((topic, p), alone) == alone]
            if free:
                given[member_id][topic] = free
            for partition in free:
                owners_of.setdefault((topic, partition), []).append(member_id)
    unreleased: Owners = {}
    for (topic, partition), held_by in holders.items():
        owners = owners_of.get((topic, partition), ())
        if owners != held_by:
            for holder in held_by:
                if holder not in owners:
                    unreleased.setdefault(holder, {}).setdefault(topic, []).append(partition)
    names = frozenset[str]().union(*call.subscribed.values())
    is_withheld = any(pair[0] in names and pair not in owners_of for pair in holders)
    is_interrupted = group.move is not None and (group.is_interrupted or not call.is_as_planned)
    if not is_withheld:
        settled = _settle(group, given, phase=2 if group.basis is not None else 0)
        settled["is_interrupted"] = is_interrupted
        if not unreleased:
            return settled
        # Given up with nobody to give it to: still nobody else's until it is confirmed.
        return settled | {"unreleased": unreleased, "revocation_deadline_ms": deadline_ms}
    return {
        "generation_id": group.generation_id + 1,
        "assignment": given,
        "unreleased": unreleased,
        "basis": group.assignment if group.basis is None else group.basis,
        "target": wanted if asks_once else call.target(given, group.generation_id + 1),
        "move": "cooperative",
        "is_interrupted": is_interrupted,
        "phase": 1,
        "is_final": False,
        "group_state": "PreparingRebalance",
        "revocation_deadline_ms": deadline_ms,
    }


def _holders(group: Standing, topics: TopicView) -> dict[tuple[str, int], list[str]]:
    """Map each existing partition to the live members that hold it, have not let go of it, or claim it."""
    claims = {m: member.claims for m, member in group.members.items() if m not in group.assignment}
    holders: dict[tuple[str, int], list[str]] = {}
    for owners in (group.assignment, group.unreleased, claims):
        for member_id, owned in owners.items():
            if member_id not in group.members:
                continue
            for topic, partitions in owned.items():
                count = topics.partition_count(topic)
                for partition in partitions:
                    if partition >= count:
                        continue
                    held_by = holders.setdefault((topic, partition), [])
                    if member_id not in held_by:
                        held_by.append(member_id)
    return holders


def _settle(group: Standing, assignment: Owners, *, phase: int) -> Fields:
    return {
        "generation_id": group.generation_id + 1,
        "assignment": assignment,
        "unreleased": {},
        "basis": None,
        "target": None,
        "move": None,
        "is_interrupted": False,
        "phase": phase,
        "is_final": True,
        "group_state": "Stable",
        "revocation_deadline_ms": None,
    }


def without_members(group_state: str) -> Fields:
    """Leave the group with nobody in it: Empty, or Dead when it is deleted."""
    return {
        "assignment": {},
        "unreleased": {},
        "basis": None,
        "target": None,
        "move": None,
        "is_interrupted": False,
        "phase": 0,
        "is_final": True,
        "group_state": group_state,
        "protocol": None,
        "fingerprint": None,
        "revocation_deadline_ms": None,
        "rebalance_due_ms": None,
    }
