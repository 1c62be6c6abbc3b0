"""What the leader of an observed group should have decided, and why it may have decided otherwise.

The assignor is run again on the very inputs the leader had: subscriptions as they
were sent, members in the order of the record, which is the order of the JoinGroup
answer. What the record does not hold is how many partitions each topic had in the
*leader's* metadata; the counts in force at the record's time are tried first, then
those that a leader may have had who heard of a change late, or before us.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, product
from typing import TYPE_CHECKING

from assignors import REGISTRY, Assignor, AssignorMemory
from assignors.errors import AssignorError, UnknownAssignorError
from assignors.model import NO_GENERATION, Subscription, TopicMetadata
from assignors.plugins import describe_failure
from streaming.groups.plugin_process import get_assignor

if TYPE_CHECKING:
    from streaming.model import MemberInfo, Owners, TopicState, TopicView

AnyOwners = Mapping[str, Mapping[str, Sequence[int]]]

JAVA, LIBRDKAFKA, KAFKA_PYTHON = "Java", "librdkafka", "kafka-python"

_MOST_TRIED_COUNTS = 12
"""How many combinations of other partition counts are tried before a difference is called one.
Each costs a whole assignment; a leader is rarely behind on more than one topic at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedMember:
    """One member of one observed generation of a consumer group.

    `subscription` is None when the member's bytes could not be read. The versions
    and the assignment's user data are None where the source does not carry bytes
    (`generation_observed`); they only serve to recognise the client library.
    """

    info: MemberInfo
    subscription: Subscription | None
    assigned: Mapping[str, Sequence[int]]
    subscription_version: int | None = None
    assignment_version: int | None = None
    assignment_user_data: bytes | None = None

    @property
    def member_id(self) -> str:
        """The id that the coordinator gave."""
        return self.info.member_id


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderMemory:
    """What is known of the highest generation that a leader's assignor remembers.

    `is_known` is False for a leader that was there before we looked: it may
    remember any generation before its present one.
    """

    max_generation: int = NO_GENERATION
    is_known: bool = True


class LeaderMemories:
    """What the assignors of a group's present members remember, by member.

    An assignor remembers as long as its process lives, whoever leads in between.
    A member that is not mentioned came while we looked and never led: nothing.
    """

    _UNKNOWN = -2

    def __init__(self, state: Mapping[str, int] | None = None) -> None:
        """Start with nothing, or where `to_json` left off."""
        self._generation_by_member = dict(state or {})

    def to_json(self) -> dict[str, int]:
        """Give everything in JSON's own types."""
        return self._generation_by_member

    def keep(self, member_ids: Sequence[str], *, was_missed: bool) -> None:
        """Drop all others; after a first sight or a gap nothing is known of anybody."""
        known = dict.fromkeys(member_ids, self._UNKNOWN) if was_missed else self._generation_by_member
        self._generation_by_member = {m: known[m] for m in member_ids if m in known}

    def of(self, leader_id: str | None) -> LeaderMemory:
        """Give what the leader's assignor remembers."""
        generation_id = self._generation_by_member.get(leader_id or "", NO_GENERATION)
        is_known = generation_id != self._UNKNOWN
        return LeaderMemory(max_generation=generation_id if is_known else NO_GENERATION, is_known=is_known)

    def learn(self, leader_id: str | None, memory: LeaderMemory) -> None:
        """Take note of what a leader remembers after it has led."""
        if leader_id is not None and memory != LeaderMemory():
            generation_id = memory.max_generation if memory.is_known else self._UNKNOWN
            self._generation_by_member[leader_id] = generation_id

    def replace_members(self, instance_moves: Mapping[str, str]) -> None:
        """Forget static members that restarted: a new process remembers nothing."""
        for old in instance_moves:
            self._generation_by_member.pop(old, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The expected assignment and how the observed one compares with it.

    `owners` is None where nothing can be expected. `leader_counts` holds the
    partition counts of topics on which the leader's metadata differed from those
    in force. `memory` is the leader's after this generation.
    """

    owners: Owners | None
    status: str
    note: str | None = None
    leader_counts: Mapping[str, int] = field(default_factory=dict)
    memory: LeaderMemory = LeaderMemory()


def count_at(state: TopicState, event_time_ms: int) -> int:
    """Give the topic's partition count in force at a moment, by its history."""
    for until_ms, count in state.history:
        if event_time_ms < until_ms:
            return count
    return state.partition_count


def counts_in_force(topics: TopicView, names: Sequence[str], event_time_ms: int) -> dict[str, int]:
    """Give topic -> partition count at that moment; a topic never heard of is absent."""
    states = ((name, topics.get(name)) for name in names)
    return {name: count_at(state, event_time_ms) for name, state in states if state is not None}


def same_owners(left: AnyOwners, right: AnyOwners) -> bool:
    """Say whether every member owns the same partitions; order and empty lists do not count."""
    return left == right or _as_sets(left) == _as_sets(right)


def _as_sets(owners: AnyOwners) -> dict[str, dict[str, frozenset[int]]]:
    return {
        member_id: {topic: frozenset(ps) for topic, ps in by_topic.items() if ps}
        for member_id, by_topic in owners.items()
    }


def recognise_client(member: JoinedMember) -> str | None:
    """Tell the client library from the layout of what it wrote, None when that fits none.

    Of a leader this names who computed the assignment, because a leader encodes
    everybody's: Java writes the subscription's version and null user data,
    librdkafka always version 0, kafka-python empty user data, not null, on both.

    Source: offsets of Kafka 4.3.1, librdkafka 2.16 and kafka-python 3.0 clients as captured.
    """
    sent, given = member.subscription_version, member.assignment_version
    if member.subscription is None or sent is None or given is None:
        return None
    if member.assignment_user_data is None:
        return JAVA if sent == given else None
    if sent == given and sent <= 1:
        return KAFKA_PYTHON
    return LIBRDKAFKA if given == 0 else None


def judge_generation(
    protocol: str,
    members: Sequence[JoinedMember],
    topics: TopicView,
    *,
    generation_id: int,
    leader_id: str | None,
    event_time_ms: int,
    memory: LeaderMemory = LeaderMemory(),
    plugins: Mapping[str, str] | None = None,
) -> Verdict:
    """Recompute what the leader should have given, and name the likely cause of a difference.

    Args:
        protocol: the assignor's name as on the wire.
        members: in the order of the record.
        topics: the topics at the group's place in the stream.
        generation_id: this generation; members claim partitions of earlier ones.
        leader_id: who computed the observed assignment.
        event_time_ms: when the generation was recorded.
        memory: what the leader's assignor remembers from before.
        plugins: protocol -> "module:attribute" of the settings and entry points.

    Returns:
        Status equal, stale_metadata, other_algorithm (the leader's library is known not to
        compute as Java does), different, unknown or (no members) not_applicable.
    """
    if not members:
        return Verdict(owners=None, status="not_applicable", memory=memory)
    subscriptions = {m.member_id: m.subscription for m in members if m.subscription is not None}
    unread = [m.member_id for m in members if m.subscription is None]
    if unread:
        return _unknown(f"the subscription of {', '.join(unread)} could not be read", memory)
    names = sorted({topic for s in subscriptions.values() for topic in s.topics})
    counts = counts_in_force(topics, names, event_time_ms)
    unheard = [name for name in names if name not in counts]
    if unheard:
        return _unknown(f"no partition count is known of {', '.join(map(repr, unheard))}", memory)
    try:
        assignor = get_assignor(protocol, plugins)
    except UnknownAssignorError:
        return _unknown(f"assignor {protocol!r} is not known here: a plug-in of the clients", memory)
    except AssignorError as error:
        return _unknown(describe_failure(protocol, error), memory)
    trial = _Trial(assignor, subscriptions, topics, generation_id, memory)
    observed = {m.member_id: m.assigned for m in members}
    try:
        owners, memory_after = trial.run(counts)
    except Exception as error:  # noqa: BLE001 - a plug-in may raise anything; it costs its own group only
        return _unknown(describe_failure(protocol, error), memory)
    if owners is None:
        note = "what the leader remembers of earlier generations is not known, and it matters here"
        return _unknown(note, memory_after)
    if same_owners(owners, observed):
        return Verdict(owners=owners, status="equal", memory=memory_after)
    for other in _other_counts(topics, counts, observed):
        try:
            stale, stale_memory = trial.run(other)
        except Exception:  # noqa: BLE001,S112 - these counts were not the leader's
            continue
        if stale is not None and same_owners(stale, observed):
            changed = {name: n for name, n in other.items() if n != counts[name]}
            note = "; ".join(_stale_note(name, n, counts[name]) for name, n in changed.items())
            return Verdict(
                owners=stale, status="stale_metadata", note=note, leader_counts=changed, memory=stale_memory
            )
    leader = next((m for m in members if m.member_id == leader_id), None)
    client = recognise_client(leader) if leader is not None and protocol in REGISTRY else None
    if client in (LIBRDKAFKA, KAFKA_PYTHON):
        note = f"the leader {leader_id} is a {client} client: its {protocol} is another algorithm than Java's"
        return Verdict(owners=owners, status="other_algorithm", note=note, memory=memory_after)
    note = _likely_cause(protocol, leader, topics, names)
    return Verdict(owners=owners, status="different", note=note, memory=memory_after)


class _Trial:
    """One assignor on one set of subscriptions, to be run with several partition counts."""

    def __init__(
        self,
        assignor: Assignor,
        subscriptions: Mapping[str, Subscription],
        topics: TopicView,
        generation_id: int,
        memory: LeaderMemory,
    ) -> None:
        self._assignor = assignor
        self._subscriptions = subscriptions
        self._topics = topics
        self._generation_id = generation_id
        self._memory = memory

    def run(self, counts: Mapping[str, int]) -> tuple[Owners | None, LeaderMemory]:
        """Assign with these counts: (owners, the leader's memory after it).

        An unknown memory lies between "nothing" and the generation before this
        one. When both give the same it does not matter which it was; when not,
        owners are None. Afterwards it is known as soon as a member claimed a
        partition of that latest generation, since nothing higher can be remembered.
        """
        if not self._assignor.is_sticky:
            return self._assign(counts, AssignorMemory()), self._memory
        least = AssignorMemory(max_generation=self._memory.max_generation)
        owners = self._assign(counts, least)
        if self._memory.is_known:
            return owners, LeaderMemory(max_generation=least.max_generation)
        latest = self._generation_id - 1
        same = same_owners(owners, self._assign(counts, AssignorMemory(max_generation=latest)))
        after = LeaderMemory(max_generation=least.max_generation, is_known=least.max_generation >= latest)
        return (owners if same else None), after

    def _assign(self, counts: Mapping[str, int], memory: AssignorMemory) -> Owners:
        metadata = {
            name: TopicMetadata(range(count), self._topics.racks(name, count))
            for name, count in counts.items()
            if count > 0
        }
        assignment = self._assignor.function(metadata, self._subscriptions, memory)
        given = {member_id: assignment.by_topic(member_id) for member_id in assignment}
        return {member_id: given.get(member_id, {}) for member_id in self._subscriptions}


def _other_counts(
    topics: TopicView, counts: Mapping[str, int], observed: AnyOwners
) -> Iterator[dict[str, int]]:
    """Walk the counts that the leader may have had instead, fewest differing topics first.

    A topic may have any count it had before or has had since; and at least as many
    partitions as were given out, which tells of a growth that we have not heard of.
    """
    highest: dict[str, int] = {}
    for by_topic in observed.values():
        for topic, partitions in by_topic.items():
            highest[topic] = max([highest.get(topic, -1), *partitions])
    choices: list[list[int]] = []
    for name, count in counts.items():
        state = topics.get(name)
        heard = {n for _, n in state.history} | {state.partition_count} if state is not None else set()
        least = highest.get(name, -1) + 1
        # A leader that had no metadata of a topic at all gave nothing of it out.
        fitting = {n for n in {0, *heard, max(least, count)} if n >= least and n != count}
        nearest_first = sorted(fitting, key=lambda n, count=count: (abs(n - count), n))  # type: ignore[misc]
        choices.append([count, *nearest_first] if count >= least else nearest_first)
    in_force = tuple(counts.values())
    combinations = (c for c in islice(product(*choices), 4096) if c != in_force)
    by_changes = sorted(combinations, key=lambda c: sum(a != b for a, b in zip(c, in_force, strict=True)))
    for combination in by_changes[:_MOST_TRIED_COUNTS]:
        yield dict(zip(counts, combination, strict=True))


def _stale_note(topic: str, leader_count: int, count: int) -> str:
    if leader_count == 0:
        return f"the leader knew nothing yet of topic {topic!r}, which has {count} partitions"
    if leader_count < count:
        return f"the leader had not yet seen topic {topic!r} grow from {leader_count} to {count} partitions"
    return f"the leader already saw {leader_count} partitions of topic {topic!r} where {count} are known here"


def _likely_cause(protocol: str, leader: JoinedMember | None, topics: TopicView, names: Sequence[str]) -> str:
    """Say what most likely made the leader decide otherwise."""
    if protocol not in REGISTRY:
        return f"{protocol!r} is a plug-in; the clients' own version of it may be another"
    changed = [name for name in names if (state := topics.get(name)) is not None and state.history]
    if changed:
        named = ", ".join(map(repr, changed))
        return f"the partition count of {named} changed, but none that it had explains this"
    if leader is None:
        return "the leader is not known, so its client may have another algorithm"
    return "no cause found: the inputs are known and the leader looks like a Java client"


def _unknown(note: str, memory: LeaderMemory) -> Verdict:
    return Verdict(owners=None, status="unknown", note=note, memory=memory)
