"""Each record becomes the event it says, or a rejection that tells its writer what to change."""

from __future__ import annotations

import json
import pickle
from typing import Any

import mmh3
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.events.parsing import Rejection
from streaming.events.types import EVENT_TYPES
from streaming.model import Position
from tests.event_parsing import LINE, MAX_BYTES, accepted, parse, reason

JOINED: dict[str, Any] = {
    "type": "member_joined",
    "event_time": "2026-03-01T10:00:00Z",
    "group_id": "g",
    "member_id": "C1",
    "topics": ["orders"],
}
MEMBER: dict[str, Any] = {
    "member_id": "C1",
    "client_id": "c",
    "client_host": "/10.0.0.1",
    "topics": ["orders"],
    "assigned": {"orders": [0, 1]},
}
OBSERVED: dict[str, Any] = {
    "type": "generation_observed",
    "event_time": 5,
    "group_id": "g",
    "generation_id": 3,
    "protocol_type": "consumer",
    "protocol": "range",
    "state": "Stable",
    "members": [MEMBER],
}
GOOD: list[dict[str, Any]] = [
    JOINED,
    {
        **JOINED,
        "group_instance_id": "i1",
        "client_id": "",
        "client_host": "/10.0.0.1",
        "rack_id": "",
        "protocols": ["cooperative-sticky", "range"],
        "owned_partitions": {"orders": [0, 2**31 - 1], "empty": []},
        "generation_id": -1,
        "session_timeout_ms": 1,
        "user_data": "AAE=",
    },
    {k: v for k, v in JOINED.items() if k != "topics"} | {"topics_pattern": "orders-.*"},
    {**JOINED, "topics": []},
    {**JOINED, "type": "subscription_changed"},
    {"type": "member_heartbeat", "event_time": 5, "group_id": "g", "member_id": "C1"},
    {"type": "member_left", "event_time": 5, "group_id": "g", "member_id": "C1"},
    {"type": "member_left", "event_time": 5, "group_id": "g", "member_id": "C1", "reason": "fenced"},
    {"type": "partitions_revoked", "event_time": 5, "group_id": "g", "member_id": "C1", "generation_id": 0},
    {"type": "topic_changed", "event_time": 5, "topic": "t", "partitions": 0},
    {"type": "topic_changed", "event_time": 5, "topic": "t", "partitions": 1_000_000},
    {
        "type": "topic_changed",
        "event_time": 5,
        "topic": "t",
        "partitions": 1,
        "topic_id": "Hf_N4lx3QQOy1qprBqwfHw",
    },
    {
        "type": "topic_changed",
        "event_time": 5,
        "topic": "t",
        "partitions": 2,
        "partition_racks": [["a", None], []],
    },
    {"type": "partition_load", "event_time": 5, "topic": "t", "loads": [0, 1.5, 10**18]},
    {"type": "partition_load", "event_time": 5, "topic": "t", "loads": []},
    {"type": "group_settings", "event_time": 5, "group_id": "g", "assignor": "range"},
    {"type": "group_settings", "event_time": 5, "group_id": "g"},
    {"type": "group_deleted", "event_time": 5, "group_id": "g"},
    {"type": "time_advanced", "event_time": 5},
    {"type": "worker_joined", "event_time": 5, "group_id": "g", "worker_id": "w", "url": "http://w/"},
    {"type": "worker_left", "event_time": 5, "group_id": "g", "worker_id": "w"},
    {"type": "connector_configured", "event_time": 5, "group_id": "g", "connector": "c", "tasks": 0},
    {"type": "connector_deleted", "event_time": 5, "group_id": "g", "connector": "c"},
    OBSERVED,
    {**OBSERVED, "protocol": None, "state": "Empty", "members": [], "leader_id": ""},
    {
        **OBSERVED,
        "members": [
            {
                **MEMBER,
                "group_instance_id": "i",
                "owned_partitions": {"orders": [1]},
                "member_generation_id": -1,
                "rack_id": "r",
                "user_data": "",
            }
        ],
    },
    {
        **OBSERVED,
        "protocol_type": "connect",
        "members": [{**MEMBER, "topics": [], "assigned": {"jdbc": [-1, 0]}}],
    },
    {"type": "group_state", "event_time": 5, "group_id": "g", "state": "PreparingRebalance"},
    {
        "type": "group_state",
        "event_time": 5,
        "group_id": "g",
        "state": "Reconciling",
        "protocol_type": "consumer",
        "group_type": "consumer",
    },
]


@pytest.mark.parametrize("event", GOOD, ids=lambda e: e["type"])
def test_each_type_of_event_is_accepted_with_its_own_fields(event: dict[str, Any]) -> None:
    """The body holds the type's fields as written, group and topic stand beside it, the raw text is kept."""
    parsed = accepted({**event, "unknown": {"deep": [1]}})
    common = {"type", "event_time"}
    assert parsed.body == {k: v for k, v in event.items() if k not in common}
    assert (parsed.type, parsed.group_id, parsed.topic) == (
        event["type"],
        event.get("group_id"),
        event.get("topic"),
    )
    assert (parsed.cluster, parsed.position) == ("main", LINE)
    assert json.loads(parsed.raw)["unknown"] == {"deep": [1]}
    assert pickle.loads(pickle.dumps(parsed)) == parsed


def test_every_type_has_a_good_example_here() -> None:
    """A type that is added needs an example, or its rules go untested."""
    assert {event["type"] for event in GOOD} == set(EVENT_TYPES)


@pytest.mark.parametrize("type_name", sorted(EVENT_TYPES))
def test_a_missing_field_is_named(type_name: str) -> None:
    """Each required field is asked for by name, with the type that needs it."""
    event = next(e for e in GOOD if e["type"] == type_name)
    for field in EVENT_TYPES[type_name].required:
        got = reason({k: v for k, v in event.items() if k != field})
        assert got == f"{field} is missing; type {type_name!r} needs it"
    for field in ("type", "event_time"):
        assert reason({k: v for k, v in event.items() if k != field}).startswith(f"{field} is missing; ")


@pytest.mark.parametrize("event", GOOD, ids=lambda e: e["type"])
def test_null_is_refused_where_a_field_is_needed_and_absence_elsewhere(event: dict[str, Any]) -> None:
    """Many writers put null for what they do not have; in a field that must be there it is an error."""
    event_type = EVENT_TYPES[event["type"]]
    for field in event_type.required:
        if field not in event_type.nullable:
            assert reason({**event, field: None}).startswith(f"{field} is null; it must be ")
    spare = [f for f in event_type.may_have if f not in event]
    assert accepted({**event, **dict.fromkeys(spare)}).body == accepted(event).body


NAME = "it must be a string of 1 to 32767 characters, none of them NUL"
NUMBER = "it must be an integer from 0 to 2147483647"
COUNT = "it must be an integer from 0 to 1000000"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"group_id": ""}, f"group_id is ''; {NAME}"),
        ({"group_id": 7}, f"group_id is 7; {NAME}"),
        ({"member_id": "a\0b"}, f"member_id is 'a\\x00b'; {NAME}"),
        ({"topics": "orders"}, "topics is 'orders'; it must be a list of topic names"),
        ({"topics": ["orders", ""]}, f"topics[1] is ''; {NAME}"),
        ({"topics": None}, "topics is missing; a member has exactly one of topics and topics_pattern"),
        (
            {"topics_pattern": "o.*"},
            "topics_pattern is there besides topics; a member has exactly one of the two",
        ),
        (
            {"topics": None, "topics_pattern": "(?=x)"},
            "topics_pattern is '(?=x)'; it must be a regular expression of RE2 "
            "('invalid perl operator: (?=')",
        ),
        ({"protocols": []}, "protocols is []; it must be a list of 1 or more protocol names"),
        ({"owned_partitions": {"t": [0, -3]}}, f"owned_partitions['t'][1] is -3; {NUMBER}"),
        ({"owned_partitions": {"t": [True]}}, f"owned_partitions['t'][0] is true; {NUMBER}"),
        ({"owned_partitions": {"": []}}, f"owned_partitions[''] is ''; {NAME}"),
        ({"generation_id": -2}, "generation_id is -2; it must be an integer from -1 to 2147483647"),
        (
            {"generation_id": 2**70},
            "generation_id is 1.1805916207174113e+21; it must be an integer from -1 to 2147483647",
        ),
        ({"session_timeout_ms": 0}, "session_timeout_ms is 0; it must be an integer from 1 to 2147483647"),
        (
            {"session_timeout_ms": 5.0},
            "session_timeout_ms is 5.0; it must be an integer from 1 to 2147483647",
        ),
        ({"user_data": "QQ"}, "user_data is 'QQ'; it must be base64 text with padding"),
        ({"cluster": ""}, f"cluster is ''; {NAME}"),
        ({"event_id": 5}, f"event_id is 5; {NAME}"),
        (
            {"type": "member_left", "reason": "bored"},
            "reason is 'bored'; it must be one of 'leave', 'expired', 'fenced'",
        ),
        ({"type": "topic_changed", "topic": "t", "partitions": -3}, f"partitions is -3; {COUNT}"),
        ({"type": "topic_changed", "topic": "t", "partitions": "6"}, f"partitions is '6'; {COUNT}"),
        (
            {"type": "topic_changed", "topic": "t"},
            "partitions is missing; type 'topic_changed' needs it or partition_racks",
        ),
        (
            {"type": "topic_changed", "topic": "t", "partitions": 3, "partition_racks": [["a"]]},
            "partition_racks has 1 entries; partitions is 3, and there must be one for each",
        ),
        (
            {"type": "topic_changed", "topic": "t", "partitions": 3, "topic_id": "Hf_N4lx3QQOy1qprBqwfHx"},
            "topic_id is 'Hf_N4lx3QQOy1qprBqwfHx'; it must be a topic id as Kafka prints it, "
            "22 characters of URL-safe base64",
        ),
        *(
            ({"type": "partition_load", "topic": "t", "loads": loads}, why)
            for loads, why in (
                (7, "loads is 7; it must be a list of numbers"),
                ([1, -0.5], "loads[1] is -0.5; it must be a number from 0 to 1e+18"),
                ([1, None], "loads[1] is null; it must be a number from 0 to 1e+18"),
                (["8"], "loads[0] is '8'; it must be a number from 0 to 1e+18"),
                ([True], "loads[0] is true; it must be a number from 0 to 1e+18"),
                ([1e300], "loads[0] is 1e+300; it must be a number from 0 to 1e+18"),
            )
        ),
        ({"type": "partition_load", "topic": "t"}, "loads is missing; type 'partition_load' needs it"),
        ({"type": "partition_load", "topic": "", "loads": []}, f"topic is ''; {NAME}"),
    ],
)
def test_a_wrong_field_is_named_with_what_it_holds_and_may_hold(change: dict[str, Any], why: str) -> None:
    """The reason names field, value found and what is allowed."""
    assert reason({**JOINED, **change}) == why


@pytest.mark.parametrize(
    ("members", "why"),
    [
        ([3], "members[0] is 3; it must be an object"),
        ([MEMBER, MEMBER], "members[1].member_id is 'C1', as in members[0]; each member must be there once"),
        ([{**MEMBER, "assigned": {"t": [-1]}}], f"members[0].assigned['t'][0] is -1; {NUMBER}"),
        ([{**MEMBER, "topics": None}], "members[0].topics is null; it must be a list of topic names"),
        ([{"member_id": "C1"}], "members[0].client_id is missing; a member of a generation needs it"),
    ],
)
def test_a_wrong_member_of_a_generation_is_named_by_its_place(members: list[Any], why: str) -> None:
    """A path leads to the field; partition -1 is a connector, so only Connect groups have it."""
    assert reason({**OBSERVED, "members": members}) == why


def test_an_unknown_type_lists_the_known() -> None:
    """A slip of the pen is seen at once."""
    got = reason({**JOINED, "type": "member_joind"})
    assert got.startswith("type is 'member_joind'; known types: 'topic_changed', 'member_joined', ")
    assert all(repr(name) in got for name in EVENT_TYPES)


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"", "record is blank; "),
        (b" \t\r", "record is blank; "),
        (b"\xef\xbb\xbf{}", "record begins with a byte order mark; "),
        (b'{"a":"\0"}', "record has a NUL byte at offset 6; "),
        (b'{"a":"\xff"}', "record is not UTF-8 at offset 6; "),
        (b'{"a": NaN}', "record holds NaN at offset 6, no JSON number; "),
        (b'{"NaN": [-Infinity]}', "record holds -Infinity at offset 9, no JSON number; "),
        (b'{"a":1e999}', "record is no JSON (number is infinity"),
        (b'{"a":1', "record is no JSON (unexpected end of data"),
        (b'{"a":"\\ud800"}', "record is no JSON (no low surrogate in string"),
        (b"{}{}", "record is no JSON (unexpected content after document"),
        (b'{"a' + b'\\"' * 500_000, "record is no JSON (unexpected end of data"),
        (b'{"a":"' + b"\\u0022" * 150_000 + b'","a":1}', "record has the key 'a' twice in one object; "),
        (b"[1,2]", "record is [1, 2]; it must be one JSON object"),
        (b"null", "record is null; it must be one JSON object"),
        (b'{"a":' + b"[" * 300 + b"]" * 300 + b"}", "record is nested too deeply; it must have at most 254"),
        (b"[" * 100_000, "record is nested too deeply; it must have at most 254"),
        (b'{"a":1,"b":{},"a":1}', "record has the key 'a' twice in one object; "),
        (b'{"x":[{"a":1,"\\u0061":2}]}', "record has the key 'a' twice in one object; "),
        (b'{"q":"\\u0022","x":{"a":1,"a":2}}', "record has the key 'a' twice in one object; "),
        (b"x" * (MAX_BYTES + 1), f"record has {MAX_BYTES + 1} bytes; it must have at most {MAX_BYTES}"),
        (None, "record is null; it must be one JSON object"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_a_broken_text_has_a_reason_of_its_own(raw: bytes | None, why: str) -> None:
    """Not "cannot parse" but what is wrong, and where."""
    assert reason(raw).startswith(why)


@pytest.mark.parametrize(
    "raw",
    [
        b'{"type":"time_advanced","event_time":5,"a":{"b":1},"c":{"b":1}}',
        b'{"type":"time_advanced","event_time":5,"a":"\\u0022b\\u0022:","b":"{\\"a\\":1,\\"a\\":2}"}',
        b'{"type":"time_advanced","event_time":5,"\\u0022":1,"\\"\\"":2}',
        b'  {"type" : "time_advanced" , "event_time":5 }\r',
        b'{"type":"time_advanced","event_time":5,"a":' + b"[" * 253 + b"]" * 253 + b"}",
    ],
)
def test_quotation_marks_inside_texts_are_no_second_key(raw: bytes) -> None:
    """The same key in two objects, or inside a text, is fine; so are spaces around an object."""
    assert accepted(raw).type == "time_advanced"


def test_an_event_id_is_taken_made_of_the_place_or_of_the_content() -> None:
    """Kafka's place is an id; a line's is a hash of the object that spaces and order do not change."""
    at_kafka = Position("live", "group-events", 3, 41)
    assert accepted({**JOINED, "event_id": "e1"}, position=at_kafka).event_id == "e1"
    assert accepted({**JOINED, "cluster": "other"}, position=at_kafka).event_id == "main/group-events/3/41"
    turned = json.dumps(dict(reversed(JOINED.items())), separators=(" ,\t", " : ")).encode()
    moved = Position("elsewhere", "b.jsonl", -1, 99)
    assert accepted(JOINED).event_id == accepted(turned, position=moved).event_id
    compact = json.dumps(JOINED, sort_keys=True, separators=(",", ":")).encode()
    assert accepted(JOINED).event_id == mmh3.hash_bytes(compact).hex() == "89e4e6564345045628fbf1d9dd04a650"
    assert accepted({**JOINED, "unknown": 1}).event_id != accepted(JOINED).event_id


def test_partition_racks_alone_give_the_number_of_partitions() -> None:
    """Whoever reads a topic event finds `partitions` in it."""
    event = {"type": "topic_changed", "event_time": 5, "topic": "t", "partition_racks": [["a"], ["b"]]}
    assert accepted(event).body["partitions"] == 2


def test_the_reason_stays_short_however_long_the_value() -> None:
    """A megabyte in a field is not a megabyte of reason."""
    for value in ("x" * 500_000, list(range(100_000)), {str(i): i for i in range(50_000)}):
        assert len(reason({**JOINED, "group_id": value})) < 400


@given(st.binary(max_size=200))
def test_no_bytes_make_the_parser_raise(raw: bytes) -> None:
    """Whatever a file holds, a record is an event or a rejection."""
    assert isinstance(parse(raw), Rejection)
    assert isinstance(parse(raw, format="offsets"), Rejection)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@given(event=st.sampled_from(GOOD), data=st.data())
@settings(deadline=None)
def test_no_value_in_any_field_makes_the_parser_raise(event: dict[str, Any], data: st.DataObject) -> None:
    """Any JSON in any field gives an event or a reason that begins with a field's name."""
    event_type = EVENT_TYPES[event["type"]]
    names = ["event_time", "cluster", "event_id", *event_type.required, *event_type.may_have]
    field = data.draw(st.sampled_from(names))
    parsed = parse({**event, field: data.draw(json_values)})
    if isinstance(parsed, Rejection) and "infinity" not in parsed.reason:
        assert parsed.reason.split(" ")[0].split("[")[0].split(".")[0] in {*names, "record"}
