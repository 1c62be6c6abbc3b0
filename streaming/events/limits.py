"""How large one event and one group may be; what lies beyond is refused, with the number that is allowed.

A record is short before it is anything else (`source.max_record_bytes`), a name has at most
32,767 characters (Kafka writes its length as an int16) and a topic at most a million partitions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streaming.events.fields import EventError
from streaming.events.types import MAX_PARTITIONS

if TYPE_CHECKING:
    from streaming.model import Input


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits that are settings, under the same names in [groups]; picklable.

    Attributes:
        max_members: of one group.
        max_topics: of one member's subscription.
        max_partitions: owned by, or given to, the members in one event together.
    """

    max_members: int = 20_000
    max_topics: int = 10_000
    max_partitions: int = 1_000_000

    def check(self, event: Input) -> None:
        """Look at the sizes in an event whose fields are in order.

        Raises:
            EventError: one is over its limit; with the field, the number and the setting.
        """
        body = event.body
        value = body.get("value") if event.type == "offsets_record" else None
        for field, count, what, most in self._sizes_of_event(body) if value is None else self._sizes(value):
            if count > most:
                setting = "" if what in ("racks", "loads") else f" (groups.max_{what})"
                raise EventError(f"has {count} {what}", f"it must have at most {most}{setting}", field)

    def _sizes_of_event(self, body: Mapping[str, Any]) -> Iterable[tuple[str, int, str, int]]:
        """Walk (field, number, of what, how many are allowed) of a JSON event."""
        members = body.get("members") or ()
        yield "members", len(members), "members", self.max_members
        yield "topics", len(body.get("topics") or ()), "topics", self.max_topics
        yield "partition_racks", len(body.get("partition_racks") or ()), "racks", MAX_PARTITIONS
        yield "loads", len(body.get("loads") or ()), "loads", MAX_PARTITIONS
        owned = _count((body.get("owned_partitions") or {}).values())
        yield "owned_partitions", owned, "partitions", self.max_partitions
        given = 0
        for i, member in enumerate(members):
            yield f"members[{i}].topics", len(member["topics"]), "topics", self.max_topics
            claimed = _count((member.get("owned_partitions") or {}).values())
            given += max(claimed, _count(member["assigned"].values()))
        yield "members", given, "partitions", self.max_partitions

    def _sizes(self, value: Mapping[str, Any]) -> Iterable[tuple[str, int, str, int]]:
        """Walk the same of the value of a record of `__consumer_offsets`."""
        yield "members", len(value.get("members") or ()), "members", self.max_members
        names = value.get("subscribedTopicNames") or ()
        yield "subscribedTopicNames", len(names), "topics", self.max_topics
        for field in ("topicPartitions", "assignedPartitions"):
            count = _count(topic["partitions"] for topic in value.get(field) or ())
            yield field, count, "partitions", self.max_partitions

    def why_full(self, joins: str, members: Collection[str]) -> str | None:
        """Say why a group with these members cannot take one more in, None where it can."""
        if len(members) < self.max_members or joins in members:
            return None
        most = f"it must have at most {self.max_members} (groups.max_members)"
        return f"the group has {len(members)} members; {most}"


DEFAULT_LIMITS = Limits()


def _count(lists: Iterable[Any]) -> int:
    return sum(map(len, lists))
