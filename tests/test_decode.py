"""Records of `__consumer_offsets` are decoded as Kafka decodes them, and damage never stops a run."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streaming.events.offsets_records import decode_record, run_decode_lines
from tests import offsets_encoder as encoder

if TYPE_CHECKING:
    from collections.abc import Iterator

DATA = Path(__file__).parent / "data"
ROOT = Path(__file__).parent.parent
VERSIONS = [(t, v) for t, layout in encoder.VALUES.items() for v in range(layout.newest + 1)]

fast = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def captured() -> list[tuple[bytes, bytes | None]]:
    """Read the captured records as (key, value)."""
    lines = (DATA / "consumer-offsets.jsonl").read_text().splitlines()
    records = map(json.loads, lines)
    return [
        (bytes.fromhex(r["key_hex"]), None if r["value_hex"] is None else bytes.fromhex(r["value_hex"]))
        for r in records
    ]


def answers(*lines: bytes, deep: bool = False) -> list[dict[str, Any]]:
    """Run `decode --jsonl` over lines and parse what it answers."""
    written: list[str] = []
    run_decode_lines(lines, written.append, deep)
    assert all(text.endswith("\n") and text.count("\n") == 1 for text in written)
    return [json.loads(text) for text in written]


def line(key: bytes, value: bytes | None, **more: object) -> bytes:
    """Write a record as a captured line."""
    hexed = {"key_hex": key.hex(), "value_hex": None if value is None else value.hex()}
    return json.dumps({"partition": 1, "offset": 2, "timestamp": 3, **hexed, **more}).encode()


def test_all_captured_records_equal_kafkas_own_decoding() -> None:
    """The 263 captured records give, byte for byte, the text of Kafka's own serde and JSON converters."""
    written: list[str] = []
    with (DATA / "consumer-offsets.jsonl").open("rb") as lines:
        run_decode_lines(lines, written.append, deep=False)
    assert len(written) == 263
    assert "".join(written) == (DATA / "consumer-offsets.decoded.jsonl").read_text()


@pytest.mark.parametrize(("key_type", "version"), VERSIONS)
@given(data=st.data())
@fast
def test_what_is_encoded_comes_back(key_type: int, version: int, data: st.DataObject) -> None:
    """Every type in every version reads what an independent encoder writes, fields in Kafka's order."""
    layout = encoder.VALUES[key_type]
    key = data.draw(encoder.values_of(encoder.KEYS[key_type], 0))
    value = data.draw(encoder.values_of(layout.fields, version))
    record = decode_record(encoder.encode_key(key_type, key), encoder.encode_value(key_type, version, value))
    assert record.problem is None
    assert (record.key_type, record.key, record.value_version) == (key_type, key, version)
    shown = encoder.as_shown(value, layout.fields, version)
    assert json.dumps(record.value) == json.dumps(shown)


@pytest.mark.parametrize("key_type", sorted(encoder.KEYS))
@given(data=st.data())
@fast
def test_a_tombstone_of_every_type_has_its_key(key_type: int, data: st.DataObject) -> None:
    """A null value is a tombstone: the key is read, value and version are absent."""
    key = data.draw(encoder.values_of(encoder.KEYS[key_type], 0))
    record = decode_record(encoder.encode_key(key_type, key), None)
    assert (record.key, record.value_version, record.value, record.problem) == (key, None, None, None)
    assert record.group_id == key.get("group", key.get("groupId"))


@pytest.mark.parametrize(("key_type", "version"), VERSIONS)
@given(data=st.data())
@settings(fast, max_examples=5)
def test_unknown_tagged_fields_are_skipped(key_type: int, version: int, data: st.DataObject) -> None:
    """A tagged field that a later Kafka adds changes nothing (KIP-482)."""
    layout = encoder.VALUES[key_type]
    value = data.draw(encoder.values_of(layout.fields, version))
    key = encoder.encode_key(key_type, data.draw(encoder.values_of(encoder.KEYS[key_type], 0)))
    plain = encoder.encode_value(key_type, version, value)
    extended = encoder.encode_value(key_type, version, value, extra_tags=b"\x63\x03abc")
    assert (extended != plain) == (version >= layout.flexible_since)
    assert decode_record(key, extended) == decode_record(key, plain)


def test_a_record_cut_anywhere_is_a_problem_with_a_place() -> None:
    """Cut at any byte, key or value, a captured record is an error naming field and byte, never a crash."""
    seen: set[bytes] = set()
    for key, value in captured():
        shape = key[:2] + (value or b"")[:60]
        if shape in seen:
            continue
        seen.add(shape)
        for cut in range(len(key)):
            problem = decode_record(key[:cut], value).problem
            assert problem is not None
            assert problem.code == "bad_key"
            assert 0 <= problem.offset <= cut
        for cut in range(len(value or b"")):
            problem = decode_record(key, (value or b"")[:cut]).problem
            assert problem is not None
            assert (problem.code, bool(problem.field)) == ("bad_value", True)
            assert 0 <= problem.offset <= cut
            assert f"{problem.field} at byte {problem.offset}: " in problem.message


@pytest.mark.parametrize("key_type", [1, 2, 3, 5, 6, 7, 8, 10, 11, 12, 13, 14, 15])
def test_bytes_behind_a_record_are_a_problem(key_type: int) -> None:
    """A byte too many is named with its place, in the key and in the value."""
    key, value = next((k, v) for k, v in captured() if k[1] == key_type and v is not None)
    longer_value = decode_record(key, value + b"\0").problem
    longer_key = decode_record(key + b"\0", value).problem
    assert longer_value is not None
    assert longer_key is not None
    assert (longer_value.code, longer_value.offset) == ("bad_value", len(value))
    assert (longer_key.code, longer_key.offset) == ("bad_key", len(key))


def test_the_problem_names_the_nested_field() -> None:
    """A member cut in its client's name is named by its index and field."""
    key = bytes.fromhex("00020001 67")
    value = bytes.fromhex("0000 0000 00000001 ffff ffff 00000001 0001 6d 0009 63")
    problem = decode_record(key, value).problem
    assert problem is not None
    assert problem.message == (
        "key type 2, value version 0: members[0].clientId at byte 19: 9 bytes are announced and 1 left"
    )


def test_a_count_that_cannot_be_is_refused_at_once() -> None:
    """Two billion announced members in a few bytes are an error, not an allocation."""
    key = bytes.fromhex("00020001 67")
    value = bytes.fromhex("0000 0000 00000001 ffff ffff 7fffffff 0001 6d")
    problem = decode_record(key, value).problem
    assert problem is not None
    assert (problem.field, problem.offset) == ("members", 12)


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ("0000 00000001 01 00 04 00000001", "tagged fields.metadataHash"),
        ("0000 00000001 01 00 09 0000000000000001 00", "tagged fields.metadataHash"),
        ("0000 00000001 ffffffffff01", "tagged fields"),
        ("0000 00000001 ffffffff7f", "tagged fields"),
        ("0000 00000001 01 05 ff01 00", "tagged fields"),
    ],
)
def test_a_broken_tagged_block_is_a_problem(value: str, field: str) -> None:
    """A tag whose size is wrong, or a varint beyond 31 bits, is named."""
    problem = decode_record(bytes.fromhex("00030001 67"), bytes.fromhex(value)).problem
    assert problem is not None
    assert problem.field == field


@given(key=st.binary(max_size=40), value=st.none() | st.binary(max_size=120))
@settings(fast, max_examples=300)
def test_no_bytes_make_it_raise(key: bytes, value: bytes | None) -> None:
    """Whatever bytes come, the answer is a record."""
    for number in (0, 1, 2, 3, 5, 8, 16, 17, 19, 22, 23):
        record = decode_record(bytes([0, number]) + key, value)
        assert (record.problem is not None) or record.key is not None
    decode_record(key, value)


def test_broken_utf_8_is_read_as_java_reads_it() -> None:
    """Broken bytes become replacement characters, an encoded surrogate one, a cut sequence one."""
    raw = b"a\xffb\xed\xa0\x80c\xe2\x82"
    key = b"\0\3" + len(raw).to_bytes(2, "big") + raw
    assert decode_record(key, None).key == {"groupId": "a\ufffdb\ufffdc\ufffd"}


@pytest.mark.parametrize("key_type", [25, 99, 32767, -1, -32768])
def test_an_unknown_key_type_is_told_apart_and_kept(key_type: int) -> None:
    """A type of a later Kafka is no damage: it has a code of its own and keeps its bytes."""
    key = key_type.to_bytes(2, "big", signed=True) + b"\0\1g"
    record = decode_record(key, b"\0\7abc")
    assert record.is_unknown
    assert (record.key_type, record.group_id, record.value_version) == (key_type, None, 7)
    [answer] = answers(line(key, b"\0\7abc"))
    assert answer == {
        "partition": 1,
        "offset": 2,
        "key_type": key_type,
        "value_version": 7,
        "error": "unknown_key_type",
        "message": f"key type is {key_type}; it must be from 0 to 24",
        "key_hex": key.hex(),
        "value_hex": "0007616263",
    }


@pytest.mark.parametrize(("key_type", "version"), [(2, 5), (2, -1), (3, 1), (9, 0), (18, 0), (24, 0)])
def test_an_unknown_value_version_keeps_key_and_bytes(key_type: int, version: int) -> None:
    """A version of a later Kafka still says which group it belongs to."""
    key = encoder.encode_key(key_type, {"group": "g", "groupId": "g"})
    value = version.to_bytes(2, "big", signed=True) + b"abc"
    assert decode_record(key, value).is_unknown
    [answer] = answers(line(key, value))
    assert answer["error"] == "unknown_value_version"
    assert answer["key"] == ({"group": "g"} if key_type == 2 else {"groupId": "g"})
    assert (answer["value_version"], answer["value_hex"]) == (version, value.hex())
    assert "value" not in answer


def test_a_bad_line_is_answered_and_the_next_goes_on() -> None:
    """Each line gets one line, in order, whatever the lines before it held."""
    good = line(b"\0\3\0\1g", None)
    got = answers(
        b"{broken\n",
        b"\n",
        b"[1]",
        line(b"\0\3\0\1g", None, partition="0"),
        line(b"\0\3\0\1g", None, offset=True),
        line(b"\0\3\0\1g", None, key_hex="0 03"),
        line(b"\0\3\0\1g", None, value_hex="abc", id="case 7"),
        b'{"partition":0,"offset":0,"key_hex":"00","id":' + b"[" * 300 + b"]" * 300 + b"}",
        line(b"\0\3\0\1", None, id=8),
        good,
    )
    assert [answer.get("error") for answer in got] == [
        "bad_json",
        "bad_json",
        "bad_line",
        "bad_line",
        "bad_line",
        "bad_line",
        "bad_line",
        "bad_line",
        "bad_key",
        None,
    ]
    assert got[3]["message"] == "partition is '0'; it must be an integer from 0 to 2147483647"
    assert [answer.get("id") for answer in got[6:9]] == ["case 7", None, 8]
    assert got[7]["message"] == "value_hex is missing; a captured record needs it"
    assert got[9] == {"partition": 1, "offset": 2, "key_type": 3, "key": {"groupId": "g"}, "value": None}


def test_a_line_is_answered_before_the_next_is_asked_for() -> None:
    """Somebody may wait for each answer before writing the next line."""
    written: list[str] = []

    def asked() -> Iterator[bytes]:
        for i in range(3):
            assert len(written) == i
            yield line(b"\0\3\0\1g", None)

    run_decode_lines(asked(), written.append, deep=False)
    assert len(written) == 3


def test_deep_shows_what_each_client_put_into_its_members() -> None:
    """`--deep` adds decoded subscriptions and assignments and changes nothing else."""
    lines = (DATA / "consumer-offsets.jsonl").read_bytes().splitlines()
    shallow, deep = answers(*lines), answers(*lines, deep=True)
    layouts: set[tuple[str, str]] = set()
    for plain, full in zip(shallow, deep, strict=True):
        value = full["value"] or {}
        for member in value.get("members", []):
            subscription, assignment = member.pop("subscriptionDecoded"), member.pop("assignmentDecoded")
            assert "error" not in subscription
            if value["protocolType"] == "consumer":
                assert subscription["topics"]
                assert "assignedPartitions" in assignment
                layout = subscription.get("userDataDecoded", {"layout": "none"})["layout"]
                layouts.add((member["clientId"].split("-")[0], layout))
            else:
                assert subscription["url"].startswith("http")
                assert {"assignment", "revoked", "delay"} <= set(assignment)
        for entry in (value.get("classicMemberMetadata") or {}).get("supportedProtocols", []):
            assert entry.pop("metadataDecoded")["topics"] == ["orders", "payments"]
        assert full == plain
    assert ("jcoop", "generation") in layouts
    assert ("ckcoop", "sticky-v1") in layouts
    assert ("jrange", "none") in layouts


def test_deep_says_where_a_members_bytes_are_broken() -> None:
    """Bytes of a client that cannot be read lose neither the member nor the record."""
    member = {
        "memberId": "m",
        "clientId": "c",
        "clientHost": "h",
        "sessionTimeout": 1,
        "subscription": "AAM=",
        "assignment": "AAA=",
    }
    group = {
        "protocolType": "consumer",
        "generation": 1,
        "protocol": "range",
        "leader": "m",
        "members": [member],
    }
    record = line(encoder.encode_key(2, {"group": "g"}), encoder.encode_value(2, 0, group))
    [answer] = answers(record, deep=True)
    [shown] = answer["value"]["members"]
    assert shown["subscriptionDecoded"] == {"error": "topics at byte 2: the bytes end inside it"}
    assert shown["assignmentDecoded"] == {"error": "assignedPartitions at byte 2: the bytes end inside it"}
    assert shown["memberId"] == "m"


def test_decoding_needs_no_spark() -> None:
    """`decode` answers in a fraction of a second: a fresh interpreter loads neither Spark nor Arrow."""
    code = (
        "import sys, streaming.events.offsets_records, streaming.events.parsing\n"
        "print([m for m in ('pyspark', 'pyarrow', 'pandas', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_decoded_records_can_be_sent_to_executors() -> None:
    """Records and problems survive pickling."""
    records = [decode_record(key, value) for key, value in captured()[:40]]
    records.append(decode_record(b"\0\2", b"\0\0"))
    assert pickle.loads(pickle.dumps(records)) == records
