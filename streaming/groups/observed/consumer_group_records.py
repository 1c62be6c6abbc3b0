"""The state of a KIP-848 or share group, put together from its records as the broker does.

Such a group has no record that holds it whole: the group's epoch, each member, its
target and its current assignment are records of their own (key types 3-8 and 16, or
10-15), and one change of the group is several of them, appended together. When is the
group in a state worth a version? That must follow from the records alone, wherever a
batch ends. The rule:

* A version may be cut only *at* an epoch (3, 11), a finished target (6, 12) or a current
  assignment (8, 14), and only when the group is *whole*: its epoch is known, and the
  members (5, 10) are the very ones that have a current assignment. So the records of a
  member that joins or leaves, and of an upgrade, count as one.
* At an epoch it is cut when the members or what they hold changed; an epoch alone waits
  for its target. At a target when the epoch, a member or the target changed. At a current
  assignment when a member, what the members hold, or the group's state changed; a member
  that only confirms an epoch makes none.

Records in between are part of the state and lost to nobody: the next version shows them.

Source: ConsumerGroup and ShareGroup of the group coordinator 4.3.1. Left out: streams groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self

import mmh3
import orjson

from streaming.groups.observed.expected import same_owners
from streaming.groups.observed.versions import name_some
from streaming.model import MemberInfo, Owners

if TYPE_CHECKING:
    from streaming.model import TopicView

RawKind = Literal["consumer", "share"]

_EPOCH, _TARGET_DONE, _CURRENT = "epoch", "target_done", "current"
_ROLE_BY_KEY_TYPE = {
    3: _EPOCH, 11: _EPOCH, 5: "member", 10: "member", 6: _TARGET_DONE, 12: _TARGET_DONE,
    7: "target", 13: "target", 8: _CURRENT, 14: _CURRENT, 4: "topics", 15: "topics", 16: "pattern",
}  # fmt: skip
_SHARE_KEY_TYPES = frozenset(range(10, 16))
_STABLE_MEMBER = 0
_DEFAULT_SERVER_ASSIGNOR = "uniform"
"""What 4.3.1 uses where no member asks for one: the first of `group.consumer.assignors`."""
_FIRST_EPOCH = 2
"""The highest epoch that a group made just now can have: 4.3.1 starts there."""


def kind_of_key(key_type: int) -> RawKind | None:
    """Say which kind of group a record of this key type belongs to, None for neither."""
    if key_type not in _ROLE_BY_KEY_TYPE:
        return None
    return "share" if key_type in _SHARE_KEY_TYPES else "consumer"


class RawGroup:
    """What the records of one KIP-848 or share group add up to.

    `members`, `targets` and `currents` are by member_id, in the order in which the
    members first appeared. `ready` are the partitions that a share group has
    initialised: no others can be assigned; None until a record tells. `shown` are
    digests of what the last version showed; `missed` the epochs that a compacted
    topic no longer holds, as (first, last).
    """

    def __init__(self, kind: RawKind) -> None:
        """Start with nothing known."""
        self.kind: RawKind = kind
        self.epoch: int | None = None
        self.assignment_epoch: int | None = None
        self.members: dict[str, dict[str, Any]] = {}
        self.targets: dict[str, list[list[Any]]] = {}
        self.currents: dict[str, dict[str, Any]] = {}
        self.patterns: dict[str, list[str]] = {}
        self.ready: dict[str, list[int]] | None = None
        self.shown: dict[str, Any] = {}
        self.missed: list[int] | None = None

    @classmethod
    def from_json(cls, state: Mapping[str, Any]) -> Self:
        """Take up what `to_json` gave."""
        raw = cls(state["kind"])
        for name, value in state.items():
            setattr(raw, name, value)
        return raw

    def to_json(self) -> dict[str, Any]:
        """Give everything in JSON's own types."""
        return dict(vars(self))

    # Records in

    def apply(self, key_type: int, key: Mapping[str, Any], value: Mapping[str, Any] | None) -> bool:
        """Take one record in; say whether a version may be cut here."""
        role = _ROLE_BY_KEY_TYPE[key_type]
        member_id = key.get("memberId", "")
        if role == _EPOCH:
            self._set_epoch(None if value is None else value["epoch"])
        elif role == _TARGET_DONE:
            self.assignment_epoch = None if value is None else value["assignmentEpoch"]
        elif role == "pattern":
            _put(self.patterns, key["regularExpression"], value and list(value["topics"]))
        elif key_type == 15:
            self.ready = {} if value is None else _by_topic_id(value["initializedTopics"])
        elif role == "member":
            _put(self.members, member_id, value and _member(value))
        elif role == "target":
            _put(self.targets, member_id, None if value is None else _topic_ids(value["topicPartitions"]))
        elif role == _CURRENT:
            _put(self.currents, member_id, value and _current(value))
        return value is not None and self.is_whole and self._is_worth_a_version(role)

    def _set_epoch(self, epoch: int | None) -> None:
        if epoch is not None and self.epoch is not None:
            if epoch > self.epoch + 1:
                self.missed = [self.missed[0] if self.missed else self.epoch + 1, epoch - 1]
            elif epoch < self.epoch:  # made anew: what is left of the old group claims a later epoch
                gone = [m for m, current in self.currents.items() if current["epoch"] > epoch]
                for member_id in gone:
                    for records in (self.members, self.targets, self.currents):
                        records.pop(member_id, None)
                self.assignment_epoch = None
        self.epoch = epoch

    # What they add up to

    @property
    def is_whole(self) -> bool:
        """Say whether the records at hand describe one moment of the group."""
        return self.epoch is not None and self.members.keys() == self.currents.keys()

    @property
    def is_gone(self) -> bool:
        """Say whether nothing is left but tombstones."""
        return self.epoch is None and not self.members

    @property
    def is_new(self) -> bool:
        """Say whether the group was just made, so that its history is whole."""
        first = self.epoch is not None and self.epoch <= _FIRST_EPOCH
        return first and all(current["previous_epoch"] == 0 for current in self.currents.values())

    @property
    def group_state(self) -> str:
        """Derive the group's state as the broker does (Empty, Assigning, Reconciling, Stable)."""
        if not self.members:
            return "Empty"
        if self.kind == "share":
            return "Stable"
        if self.waits_for_target:
            return "Assigning"
        return "Reconciling" if self.lagging() else "Stable"

    @property
    def waits_for_target(self) -> bool:
        """Say whether the group has changed since its target was computed; an empty one waits for good."""
        return bool(self.members) and (self.epoch or 0) > (self.assignment_epoch or 0)

    def lagging(self) -> list[str]:
        """List the members that have not reached their target, in member order."""
        return [
            member_id
            for member_id in self.members
            if (current := self.currents.get(member_id)) is None
            or current["epoch"] != self.assignment_epoch
            or current["state"] != _STABLE_MEMBER
        ]

    @property
    def protocol(self) -> str | None:
        """Name the server-side assignor: what most members ask for, else the broker's default."""
        if not self.members or self.kind == "share":
            return None
        asked = [m["assignor"] for m in self.members.values() if m["assignor"]]
        return max(sorted(set(asked)), key=asked.count) if asked else _DEFAULT_SERVER_ASSIGNOR

    def infos(self) -> tuple[MemberInfo, ...]:
        """Describe the members as the tables show them."""
        return tuple(
            MemberInfo(
                member_id=member_id,
                group_instance_id=member["instance_id"],
                client_id=member["client_id"],
                client_host=member["client_host"],
                rack_id=member["rack_id"],
                topics=tuple(member["topics"]),
                topics_pattern=member["pattern"],
            )
            for member_id, member in self.members.items()
        )

    def subscribed(self) -> dict[str, list[str]]:
        """Give member_id -> the topics it may own, patterns as the broker resolved them."""
        return {
            member_id: sorted({*member["topics"], *self.patterns.get(member["pattern"] or "", ())})
            for member_id, member in self.members.items()
        }

    def owners(self, name_of: Callable[[str], str]) -> Owners:
        """Give what each member holds now; a partition it must still give up is no longer its own."""
        held = {m: current["assigned"] for m, current in self.currents.items()}
        return {m: _named(held.get(m, ()), name_of) for m in self.members}

    def target_owners(self, name_of: Callable[[str], str]) -> Owners:
        """Give what the coordinator wants each member to hold."""
        return {m: _named(self.targets.get(m, ()), name_of) for m in self.members}

    def unready(self, counts: Mapping[str, int], name_of: Callable[[str], str]) -> list[str]:
        """List a share group's topics, sorted, some partition of which it has not initialised yet."""
        if self.kind != "share" or (self.ready is None and not self.is_new):
            return []
        ready = {name_of(topic_id): partitions for topic_id, partitions in (self.ready or {}).items()}
        topics = {topic for member in self.members.values() for topic in member["topics"]}
        return sorted(t for t in topics if len(ready.get(t, ())) < max(counts.get(t, 1), 1))

    def compare(self, owners: Owners, target: Owners, unready: Sequence[str]) -> tuple[str, str | None]:
        """Compare what members hold with the coordinator's own target: (expected_status, note).

        In a share group only what they hold counts: a member that has not confirmed
        the newest epoch may share a partition all the same.
        """
        if not self.members:
            return "not_applicable", None
        if self.waits_for_target:
            note = f"epoch {self.epoch} waits for its target; the last is of {self.assignment_epoch}"
            return "in_transition", note
        if unready:
            return "in_transition", f"share partitions not yet initialised: {name_some(unready)}"
        lagging = self.lagging()
        if same_owners(owners, target) and (self.kind == "share" or not lagging):
            return "equal", None
        if lagging:
            return "in_transition", f"not yet at their target: {name_some(lagging)}"
        return "different", "every member says it has reached its target, but holds something else"

    # When to cut

    def _digests(self) -> dict[str, Any]:
        return {
            "epoch": self.epoch,
            "state": self.group_state,
            "members": _digest([self.members, self.patterns]),
            "member_ids": list(self.members),
            "held": _digest({m: _sorted_ids(c["assigned"]) for m, c in self.currents.items()}),
            "targets": _digest({m: _sorted_ids(self.targets.get(m, [])) for m in self.members}),
        }

    def _is_worth_a_version(self, role: str) -> bool:
        watched = {
            _EPOCH: ("member_ids", "held"),
            _TARGET_DONE: ("epoch", "member_ids", "members", "held", "targets"),
            _CURRENT: ("state", "member_ids", "members", "held"),
        }.get(role, ())
        now = self._digests()
        return any(now[name] != self.shown.get(name) for name in watched)

    def describe_record(self, record: Mapping[str, Any]) -> str:
        """Say what a record does at which a version is cut though no member came or went."""
        role = _ROLE_BY_KEY_TYPE[record["key_type"]]
        if role == _CURRENT:
            return f"member_reconciled {record['key']['memberId']}"
        return "target_assigned" if role == _TARGET_DONE else "epoch_raised"

    def mark_shown(self) -> None:
        """Remember what the version just cut has shown."""
        self.shown = self._digests()
        self.missed = None


class TopicNames:
    """The names behind topic ids, which is all that KIP-848 and share records hold.

    A name once found stays: a topic made anew has another id.
    """

    def __init__(self, name_by_id: Mapping[str, str] | None = None) -> None:
        """Start with what is known."""
        self.name_by_id = dict(name_by_id or {})

    def learn_from(self, key_type: int, value: Mapping[str, Any] | None) -> None:
        """Take the names out of a record that tells them (key types 4 and 15)."""
        if value is None or _ROLE_BY_KEY_TYPE[key_type] != "topics":
            return
        for name in ("topics", "initializingTopics", "initializedTopics", "deletingTopics"):
            for entry in value.get(name) or ():
                self.name_by_id[entry["topicId"]] = entry["topicName"]

    def find(self, topic_id: str, topics: TopicView) -> str:
        """Name a topic; one that nobody has named yet shows as its id."""
        if topic_id not in self.name_by_id:
            name = topics.name_of_id(topic_id)
            if name is None:
                return topic_id
            self.name_by_id[topic_id] = name
        return self.name_by_id[topic_id]


def _put(records: dict[str, Any], name: str, value: Any) -> None:
    if value is None:
        records.pop(name, None)
    else:
        records[name] = value


def _member(value: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "instance_id": value.get("instanceId"),
        "client_id": value["clientId"],
        "client_host": value["clientHost"],
        "rack_id": value.get("rackId"),
        "topics": list(value["subscribedTopicNames"] or ()),
        "pattern": value.get("subscribedTopicRegex") or None,
        "assignor": value.get("serverAssignor"),
    }


def _current(value: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "epoch": value["memberEpoch"],
        "previous_epoch": value["previousMemberEpoch"],
        "state": value["state"],
        "assigned": _topic_ids(value["assignedPartitions"]),
    }


def _by_topic_id(entries: list[Mapping[str, Any]] | None) -> dict[str, list[int]]:
    return {entry["topicId"]: list(entry["partitions"] or ()) for entry in entries or ()}


def _topic_ids(entries: list[Mapping[str, Any]] | None) -> list[list[Any]]:
    return [[entry["topicId"], list(entry["partitions"] or ())] for entry in entries or ()]


def _sorted_ids(entries: list[list[Any]]) -> list[list[Any]]:
    return sorted([topic_id, sorted(partitions)] for topic_id, partitions in entries if partitions)


def _named(entries: Iterable[list[Any]], name_of: Callable[[str], str]) -> dict[str, list[int]]:
    owned: dict[str, list[int]] = {}
    for topic_id, partitions in entries:
        owned.setdefault(name_of(topic_id), []).extend(partitions)
    return {topic: sorted(partitions) for topic, partitions in sorted(owned.items())}


def _digest(value: Any) -> str:
    return mmh3.hash_bytes(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)).hex()
