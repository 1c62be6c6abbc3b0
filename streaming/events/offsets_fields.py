"""The fields of every record type of `__consumer_offsets`, version by version.

A record's key is its type (int16) and the fields of `KEYS`; its value a version
(int16) and the fields of `VALUES`. Keys are never flexible; values are from the
version given on. Names and order are Kafka's own, so that a decoded record can be
compared with what Kafka's tools print.

Source: the message definitions of kafka-group-coordinator 4.3.1. Type 9 (early-access
share groups), 18 (early streams groups) and 24 (Kafka's trunk) have no released value
format: their keys are read, their values are not.
"""

from __future__ import annotations

from typing import NamedTuple

from streaming.events.offsets_wire import ZERO_UUID, Field

OFFSET_COMMIT_TYPES = frozenset({0, 1})
GROUP_METADATA_TYPE = 2

_NEVER = 32767


class ValueLayout(NamedTuple):
    """The fields of a value, its newest version and its first flexible one."""

    newest: int
    flexible_since: int
    fields: tuple[Field, ...]


def _string(name: str, *, nullable: bool = False, since: int = 0) -> Field:
    return Field(name=name, kind="string", nullable=nullable, since=since)


def _strings(name: str) -> Field:
    return Field(name=name, kind="string", many=True)


def _int32(name: str, *, since: int = 0) -> Field:
    return Field(name=name, kind="int32", since=since)


def _int64(name: str, *, since: int = 0, until: int = _NEVER) -> Field:
    return Field(name=name, kind="int64", since=since, until=until)


def _structs(name: str, *fields: Field) -> Field:
    return Field(name=name, many=True, fields=fields)


_PARTITIONS = Field(name="partitions", kind="int32", many=True)
_TOPIC_ID = Field(name="topicId", kind="uuid")
_ASSIGNMENT_EPOCHS = Field(name="assignmentEpochs", kind="int32", many=True, nullable=True, tag=0, default=[])
_EPOCHS_OF_MEMBER = (
    _int32("memberEpoch"),
    _int32("previousMemberEpoch"),
    Field(name="state", kind="int8"),
)
_KEY_VALUE = (_string("key"), _string("value"))

_CLASSIC_MEMBER = Field(
    name="classicMemberMetadata",
    nullable=True,
    tag=0,
    default={"sessionTimeoutMs": 0, "supportedProtocols": []},
    fields=(
        _int32("sessionTimeoutMs"),
        _structs("supportedProtocols", _string("name"), Field(name="metadata", kind="bytes")),
    ),
)
_ASSIGNMENT_METADATA = ValueLayout(
    0,
    0,
    (_int32("assignmentEpoch"), Field(name="assignmentTimestamp", kind="int64", tag=0, default=0)),
)
_TARGET_OF_MEMBER = ValueLayout(0, 0, (_structs("topicPartitions", _TOPIC_ID, _PARTITIONS),))
_OWNED_WITH_EPOCHS = (_TOPIC_ID, _PARTITIONS, _ASSIGNMENT_EPOCHS)
_NAMED_PARTITIONS = (_TOPIC_ID, _string("topicName"), _PARTITIONS)
_TASKS = (_string("subtopologyId"), _PARTITIONS)
_TASKS_WITH_EPOCHS = (*_TASKS, _ASSIGNMENT_EPOCHS)
_STREAMS_TOPIC = (
    _string("name"),
    _int32("partitions"),
    Field(name="replicationFactor", kind="int16"),
    _structs("topicConfigs", *_KEY_VALUE),
)

_GROUP = (_string("group"),)
_GROUP_ID = (_string("groupId"),)
_GROUP_MEMBER = (_string("groupId"), _string("memberId"))
_COMMIT_KEY = (_string("group"), _string("topic"), _int32("partition"))

KEYS: dict[int, tuple[Field, ...]] = {
    0: _COMMIT_KEY,
    1: _COMMIT_KEY,
    2: _GROUP,
    3: _GROUP_ID,
    4: _GROUP_ID,
    5: _GROUP_MEMBER,
    6: _GROUP_ID,
    7: _GROUP_MEMBER,
    8: _GROUP_MEMBER,
    9: _GROUP_ID,
    10: _GROUP_MEMBER,
    11: _GROUP_ID,
    12: _GROUP_ID,
    13: _GROUP_MEMBER,
    14: _GROUP_MEMBER,
    15: _GROUP_ID,
    16: (_string("groupId"), _string("regularExpression")),
    17: _GROUP_ID,
    18: _GROUP_ID,
    19: _GROUP_MEMBER,
    20: _GROUP_ID,
    21: _GROUP_MEMBER,
    22: _GROUP_MEMBER,
    23: _GROUP_ID,
    24: _GROUP_ID,
}
"""Key type -> the fields of its key."""

VALUES: dict[int, ValueLayout] = {
    0: ValueLayout(0, _NEVER, (_int64("offset"), _string("metadata"), _int64("commitTimestamp"))),
    1: ValueLayout(
        4,
        4,
        (
            _int64("offset"),
            _int32("leaderEpoch", since=3),
            _string("metadata"),
            _int64("commitTimestamp"),
            _int64("expireTimestamp", since=1, until=1),
            Field(name="topicId", kind="uuid", since=4, tag=0, default=ZERO_UUID),
        ),
    ),
    2: ValueLayout(
        4,
        4,
        (
            _string("protocolType"),
            _int32("generation"),
            _string("protocol", nullable=True),
            _string("leader", nullable=True),
            _int64("currentStateTimestamp", since=2),
            _structs(
                "members",
                _string("memberId"),
                _string("groupInstanceId", nullable=True, since=3),
                _string("clientId"),
                _string("clientHost"),
                _int32("rebalanceTimeout", since=1),
                _int32("sessionTimeout"),
                Field(name="subscription", kind="bytes"),
                Field(name="assignment", kind="bytes"),
            ),
        ),
    ),
    3: ValueLayout(0, 0, (_int32("epoch"), Field(name="metadataHash", kind="int64", tag=0, default=0))),
    4: ValueLayout(
        0,
        0,
        (
            _structs(
                "topics",
                _TOPIC_ID,
                _string("topicName"),
                _int32("numPartitions"),
                _structs("partitionMetadata", _int32("partition"), _strings("racks")),
            ),
        ),
    ),
    5: ValueLayout(
        0,
        0,
        (
            _string("instanceId", nullable=True),
            _string("rackId", nullable=True),
            _string("clientId"),
            _string("clientHost"),
            _strings("subscribedTopicNames"),
            _string("subscribedTopicRegex", nullable=True),
            _int32("rebalanceTimeoutMs"),
            _string("serverAssignor", nullable=True),
            _CLASSIC_MEMBER,
        ),
    ),
    6: _ASSIGNMENT_METADATA,
    7: _TARGET_OF_MEMBER,
    8: ValueLayout(
        0,
        0,
        (
            *_EPOCHS_OF_MEMBER,
            _structs("assignedPartitions", *_OWNED_WITH_EPOCHS),
            _structs("partitionsPendingRevocation", *_OWNED_WITH_EPOCHS),
        ),
    ),
    10: ValueLayout(
        0,
        0,
        (
            _string("rackId", nullable=True),
            _string("clientId"),
            _string("clientHost"),
            _strings("subscribedTopicNames"),
        ),
    ),
    11: ValueLayout(0, 0, (_int32("epoch"), _int64("metadataHash"))),
    12: _ASSIGNMENT_METADATA,
    13: _TARGET_OF_MEMBER,
    14: ValueLayout(0, 0, (*_EPOCHS_OF_MEMBER, _structs("assignedPartitions", _TOPIC_ID, _PARTITIONS))),
    15: ValueLayout(
        0,
        0,
        (
            _structs("initializingTopics", *_NAMED_PARTITIONS),
            _structs("initializedTopics", *_NAMED_PARTITIONS),
            _structs("deletingTopics", _TOPIC_ID, _string("topicName")),
        ),
    ),
    16: ValueLayout(0, 0, (_strings("topics"), _int64("version"), _int64("timestamp"))),
    17: ValueLayout(
        0,
        0,
        (
            _int32("epoch"),
            _int64("metadataHash"),
            Field(name="validatedTopologyEpoch", kind="int32", tag=0, default=-1),
            Field(
                name="lastAssignmentConfigs",
                many=True,
                nullable=True,
                tag=1,
                default=[],
                fields=_KEY_VALUE,
            ),
        ),
    ),
    19: ValueLayout(
        0,
        0,
        (
            _string("instanceId", nullable=True),
            _string("rackId", nullable=True),
            _string("clientId"),
            _string("clientHost"),
            _int32("rebalanceTimeoutMs"),
            _int32("topologyEpoch"),
            _string("processId"),
            Field(
                name="userEndpoint",
                nullable=True,
                fields=(_string("host"), Field(name="port", kind="uint16")),
            ),
            _structs("clientTags", *_KEY_VALUE),
        ),
    ),
    20: _ASSIGNMENT_METADATA,
    21: ValueLayout(
        0,
        0,
        (
            _structs("activeTasks", *_TASKS),
            _structs("standbyTasks", *_TASKS),
            _structs("warmupTasks", *_TASKS),
        ),
    ),
    22: ValueLayout(
        0,
        0,
        (
            *_EPOCHS_OF_MEMBER,
            _structs("activeTasks", *_TASKS_WITH_EPOCHS),
            _structs("standbyTasks", *_TASKS_WITH_EPOCHS),
            _structs("warmupTasks", *_TASKS_WITH_EPOCHS),
            _structs("activeTasksPendingRevocation", *_TASKS_WITH_EPOCHS),
            _structs("standbyTasksPendingRevocation", *_TASKS_WITH_EPOCHS),
            _structs("warmupTasksPendingRevocation", *_TASKS_WITH_EPOCHS),
        ),
    ),
    23: ValueLayout(
        0,
        0,
        (
            _int32("epoch"),
            _structs(
                "subtopologies",
                _string("subtopologyId"),
                _strings("sourceTopics"),
                _strings("sourceTopicRegex"),
                _structs("stateChangelogTopics", *_STREAMS_TOPIC),
                _strings("repartitionSinkTopics"),
                _structs("repartitionSourceTopics", *_STREAMS_TOPIC),
                _structs(
                    "copartitionGroups",
                    Field(name="sourceTopics", kind="int16", many=True),
                    Field(name="sourceTopicRegex", kind="int16", many=True),
                    Field(name="repartitionSourceTopics", kind="int16", many=True),
                ),
            ),
        ),
    ),
}
"""Key type -> the layout of its value."""
