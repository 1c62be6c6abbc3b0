"""A second, independent description of `__consumer_offsets` records, and an encoder for it.

It is written from the wire description alone and shares nothing with the decoder's
tables, so that a slip in either one shows as a record that does not come back.

A field is (name, code) or (name, code, options). Codes: b h H i q integers, s string,
S nullable string, y bytes, u uuid, [code] an array of it, a tuple a struct, with "?"
before either when it may be null. Options: since, until, and tag with default.
"""

from __future__ import annotations

import base64
import struct
from typing import Any, NamedTuple

from hypothesis import strategies as st

Code = Any
Value = Any
"""A field's code (a string, list or tuple) and a value as JSON has it: both are data here."""


class Layout(NamedTuple):
    """The versions of one value: up to `newest`, flexible from `flexible_since`."""

    newest: int
    flexible_since: int
    fields: tuple[Any, ...]


_ID = ("topicId", "u")
_NUMBERS = ("partitions", ["i"])
_EPOCHS = ("assignmentEpochs", "?", {"tag": 0, "default": [], "of": ["i"]})
_TARGET = Layout(0, 0, (("topicPartitions", [(_ID, _NUMBERS)]),))
_STAMP = Layout(0, 0, (("assignmentEpoch", "i"), ("assignmentTimestamp", "q", {"tag": 0, "default": 0})))
_STATE = (("memberEpoch", "i"), ("previousMemberEpoch", "i"), ("state", "b"))
_PAIR = (("key", "s"), ("value", "s"))
_TASK = (("subtopologyId", "s"), _NUMBERS)
_TOPIC_INFO = (
    ("name", "s"),
    ("partitions", "i"),
    ("replicationFactor", "h"),
    ("topicConfigs", [_PAIR]),
)

KEYS: dict[int, tuple[Any, ...]] = {
    **dict.fromkeys((0, 1), (("group", "s"), ("topic", "s"), ("partition", "i"))),
    2: (("group", "s"),),
    **dict.fromkeys((3, 4, 6, 9, 11, 12, 15, 17, 18, 20, 23, 24), (("groupId", "s"),)),
    **dict.fromkeys((5, 7, 8, 10, 13, 14, 19, 21, 22), (("groupId", "s"), ("memberId", "s"))),
    16: (("groupId", "s"), ("regularExpression", "s")),
}

VALUES: dict[int, Layout] = {
    0: Layout(0, 9, (("offset", "q"), ("metadata", "s"), ("commitTimestamp", "q"))),
    1: Layout(
        4,
        4,
        (
            ("offset", "q"),
            ("leaderEpoch", "i", {"since": 3}),
            ("metadata", "s"),
            ("commitTimestamp", "q"),
            ("expireTimestamp", "q", {"since": 1, "until": 1}),
            ("topicId", "u", {"since": 4, "tag": 0, "default": "AAAAAAAAAAAAAAAAAAAAAA"}),
        ),
    ),
    2: Layout(
        4,
        4,
        (
            ("protocolType", "s"),
            ("generation", "i"),
            ("protocol", "S"),
            ("leader", "S"),
            ("currentStateTimestamp", "q", {"since": 2}),
            (
                "members",
                [
                    (
                        ("memberId", "s"),
                        ("groupInstanceId", "S", {"since": 3}),
                        ("clientId", "s"),
                        ("clientHost", "s"),
                        ("rebalanceTimeout", "i", {"since": 1}),
                        ("sessionTimeout", "i"),
                        ("subscription", "y"),
                        ("assignment", "y"),
                    )
                ],
            ),
        ),
    ),
    3: Layout(0, 0, (("epoch", "i"), ("metadataHash", "q", {"tag": 0, "default": 0}))),
    4: Layout(
        0,
        0,
        (
            (
                "topics",
                [
                    (
                        _ID,
                        ("topicName", "s"),
                        ("numPartitions", "i"),
                        ("partitionMetadata", [(("partition", "i"), ("racks", ["s"]))]),
                    )
                ],
            ),
        ),
    ),
    5: Layout(
        0,
        0,
        (
            ("instanceId", "S"),
            ("rackId", "S"),
            ("clientId", "s"),
            ("clientHost", "s"),
            ("subscribedTopicNames", ["s"]),
            ("subscribedTopicRegex", "S"),
            ("rebalanceTimeoutMs", "i"),
            ("serverAssignor", "S"),
            (
                "classicMemberMetadata",
                "?",
                {
                    "tag": 0,
                    "default": {"sessionTimeoutMs": 0, "supportedProtocols": []},
                    "of": (
                        ("sessionTimeoutMs", "i"),
                        ("supportedProtocols", [(("name", "s"), ("metadata", "y"))]),
                    ),
                },
            ),
        ),
    ),
    6: _STAMP,
    7: _TARGET,
    8: Layout(
        0,
        0,
        (
            *_STATE,
            ("assignedPartitions", [(_ID, _NUMBERS, _EPOCHS)]),
            ("partitionsPendingRevocation", [(_ID, _NUMBERS, _EPOCHS)]),
        ),
    ),
    10: Layout(
        0, 0, (("rackId", "S"), ("clientId", "s"), ("clientHost", "s"), ("subscribedTopicNames", ["s"]))
    ),
    11: Layout(0, 0, (("epoch", "i"), ("metadataHash", "q"))),
    12: _STAMP,
    13: _TARGET,
    14: Layout(0, 0, (*_STATE, ("assignedPartitions", [(_ID, _NUMBERS)]))),
    15: Layout(
        0,
        0,
        (
            ("initializingTopics", [(_ID, ("topicName", "s"), _NUMBERS)]),
            ("initializedTopics", [(_ID, ("topicName", "s"), _NUMBERS)]),
            ("deletingTopics", [(_ID, ("topicName", "s"))]),
        ),
    ),
    16: Layout(0, 0, (("topics", ["s"]), ("version", "q"), ("timestamp", "q"))),
    17: Layout(
        0,
        0,
        (
            ("epoch", "i"),
            ("metadataHash", "q"),
            ("validatedTopologyEpoch", "i", {"tag": 0, "default": -1}),
            ("lastAssignmentConfigs", "?", {"tag": 1, "default": [], "of": [_PAIR]}),
        ),
    ),
    19: Layout(
        0,
        0,
        (
            ("instanceId", "S"),
            ("rackId", "S"),
            ("clientId", "s"),
            ("clientHost", "s"),
            ("rebalanceTimeoutMs", "i"),
            ("topologyEpoch", "i"),
            ("processId", "s"),
            ("userEndpoint", "?", {"of": (("host", "s"), ("port", "H"))}),
            ("clientTags", [_PAIR]),
        ),
    ),
    20: _STAMP,
    21: Layout(0, 0, (("activeTasks", [_TASK]), ("standbyTasks", [_TASK]), ("warmupTasks", [_TASK]))),
    22: Layout(
        0,
        0,
        (
            *_STATE,
            *(
                (kind + "Tasks" + pending, [(*_TASK, _EPOCHS)])
                for pending in ("", "PendingRevocation")
                for kind in ("active", "standby", "warmup")
            ),
        ),
    ),
    23: Layout(
        0,
        0,
        (
            ("epoch", "i"),
            (
                "subtopologies",
                [
                    (
                        ("subtopologyId", "s"),
                        ("sourceTopics", ["s"]),
                        ("sourceTopicRegex", ["s"]),
                        ("stateChangelogTopics", [_TOPIC_INFO]),
                        ("repartitionSinkTopics", ["s"]),
                        ("repartitionSourceTopics", [_TOPIC_INFO]),
                        (
                            "copartitionGroups",
                            [
                                (
                                    ("sourceTopics", ["h"]),
                                    ("sourceTopicRegex", ["h"]),
                                    ("repartitionSourceTopics", ["h"]),
                                )
                            ],
                        ),
                    )
                ],
            ),
        ),
    ),
}

_BITS = {"b": 8, "h": 16, "i": 32, "q": 64}
_TEXT = st.text(max_size=6) | st.just("x" * 200)


def fields_of(fields: tuple[Any, ...], version: int) -> list[tuple[str, Any, dict[str, Any]]]:
    """List the fields that a version has, as (name, code, options)."""
    full = [(f[0], f[1], f[2] if len(f) > 2 else {}) for f in fields]
    return [f for f in full if f[2].get("since", 0) <= version <= f[2].get("until", 99)]


def values_of(code: Code, version: int, options: dict[str, Any] | None = None) -> st.SearchStrategy[Any]:
    """Draw a value of a code, as a decoded record shows it (bytes and uuids as text)."""
    if code == "?":
        return st.none() | values_of((options or {})["of"], version)
    if isinstance(code, list):
        return st.lists(values_of(code[0], version), max_size=2)
    if isinstance(code, tuple):
        return st.fixed_dictionaries(
            {name: values_of(inner, version, more) for name, inner, more in fields_of(code, version)}
        )
    if code in _BITS:
        half = 2 ** (_BITS[code] - 1)
        return st.integers(-half, half - 1) | st.sampled_from([-1, 0])
    if code == "H":
        return st.integers(0, 65535)
    if code == "u":
        raw = st.binary(min_size=16, max_size=16) | st.just(bytes(16))
        return raw.map(lambda drawn: base64.urlsafe_b64encode(drawn)[:22].decode())
    if code == "y":
        return (st.binary(max_size=8) | st.just(b"\1" * 130)).map(
            lambda drawn: base64.b64encode(drawn).decode()
        )
    return _TEXT if code == "s" else st.none() | _TEXT


def _uvarint(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def _sized(raw: bytes | None, flexible: bool, plain: str) -> bytes:
    if flexible:
        return _uvarint(0) if raw is None else _uvarint(len(raw) + 1) + raw
    return struct.pack(plain, -1) if raw is None else struct.pack(plain, len(raw)) + raw


def encode(
    value: Value, code: Code, version: int, flexible: bool, options: dict[str, Any] | None = None
) -> bytes:
    """Write a value of a code."""
    options = options or {}
    if code == "?":
        inner = options["of"]
        if isinstance(inner, list):
            return _uvarint(0) if value is None else encode(value, inner, version, flexible)
        mark = (b"\0", b"\1") if "tag" in options else (b"\xff", b"\1")
        return mark[0] if value is None else mark[1] + encode(value, inner, version, flexible)
    if isinstance(code, list):
        count = _uvarint(len(value) + 1) if flexible else struct.pack(">i", len(value))
        return count + b"".join(encode(item, code[0], version, flexible) for item in value)
    if isinstance(code, tuple):
        return encode_struct(value, code, version, flexible)
    if code == "u":
        return base64.urlsafe_b64decode(value + "==")
    if code == "y":
        return _sized(base64.b64decode(value), flexible, ">i")
    if code in "sS":
        return _sized(None if value is None else value.encode(), flexible, ">h")
    return struct.pack(">" + code, value)


def encode_struct(
    value: dict[str, Any], fields: tuple[Any, ...], version: int, flexible: bool, *, extra_tags: bytes = b""
) -> bytes:
    """Write a struct with its tagged block; `extra_tags` is one tagged field more, behind the known ones."""
    plain, tagged = b"", []
    for name, code, options in fields_of(fields, version):
        raw = encode(value[name], code, version, flexible, options)
        if "tag" in options:
            tagged.append(_uvarint(options["tag"]) + _uvarint(len(raw)) + raw)
        else:
            plain += raw
    if not flexible:
        return plain
    tagged += [extra_tags] if extra_tags else []
    return plain + _uvarint(len(tagged)) + b"".join(tagged)


def encode_key(key_type: int, key: dict[str, Any]) -> bytes:
    """Write a record's key."""
    return struct.pack(">h", key_type) + encode_struct(key, KEYS[key_type], 0, flexible=False)


def encode_value(key_type: int, version: int, value: dict[str, Any], *, extra_tags: bytes = b"") -> bytes:
    """Write a record's value."""
    layout = VALUES[key_type]
    flexible = version >= layout.flexible_since
    body = encode_struct(value, layout.fields, version, flexible, extra_tags=extra_tags)
    return struct.pack(">h", version) + body


def as_shown(value: Value, code: Code, version: int, options: dict[str, Any] | None = None) -> Value:
    """Give what a decoded record shows of a value: tagged fields with their default are left out."""
    if value is None:
        return None
    if code == "?":
        return as_shown(value, (options or {})["of"], version)
    if isinstance(code, list):
        return [as_shown(item, code[0], version) for item in value]
    if isinstance(code, tuple):
        return {
            name: as_shown(value[name], inner, version, more)
            for name, inner, more in fields_of(code, version)
            if "tag" not in more or value[name] != more["default"]
        }
    return value
