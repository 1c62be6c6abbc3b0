"""Records of `__consumer_offsets`, captured or straight from Kafka, become inputs at their place there."""

from __future__ import annotations

import json
from typing import Any

from streaming.events.parsing import Rejection
from streaming.model import Position
from tests.event_parsing import DATA, MAX_BYTES, accepted, parse, reason


def test_captured_records_become_inputs_at_their_place_in_the_topic() -> None:
    """All 263 are accepted: position and id are the record's own, the body is what decode prints."""
    lines = (DATA / "consumer-offsets.jsonl").read_bytes().splitlines()
    decoded = (DATA / "consumer-offsets.decoded.jsonl").read_text().splitlines()
    commits = 0
    for line, text in zip(lines, decoded, strict=True):
        got, want = accepted(line, format="offsets"), json.loads(text)
        place = (want["partition"], want["offset"])
        assert got.position == Position("orders-events", "__consumer_offsets", *place)
        assert got.event_id == f"main/__consumer_offsets/{place[0]}/{place[1]}"
        assert got.event_time_ms == json.loads(line)["timestamp"]
        assert got.group_id == want["key"].get("group", want["key"].get("groupId"))
        assert (got.topic, got.raw) == (None, line)
        if want["key_type"] == 1:
            commits += 1
            assert got.type == "offset_commit"
            names = {name: want["key"][name] for name in ("group", "topic")}
            assert got.body == {**names, "topicId": want["value"]["topicId"]}
        else:
            assert got.type == "offsets_record"
            assert got.body == {
                "key_type": want["key_type"],
                "key": want["key"],
                "value_version": want.get("value_version"),
                "value": want["value"],
            }
    assert commits == 75


def test_a_record_straight_from_kafka_equals_the_captured_one() -> None:
    """The same record gives the same input, and keeps a line from which it can be read again."""
    for line in (DATA / "consumer-offsets.jsonl").read_bytes().splitlines()[::7]:
        record = json.loads(line)
        got = accepted(
            None if record["value_hex"] is None else bytes.fromhex(record["value_hex"]),
            format="offsets",
            position=Position("orders-events", "__consumer_offsets", record["partition"], record["offset"]),
            kafka_key=bytes.fromhex(record["key_hex"]),
            kafka_timestamp_ms=record["timestamp"],
        )
        assert json.loads(got.raw) == record
        again = accepted(line, format="offsets")
        assert (got.body, got.position, got.event_id) == (again.body, again.position, again.event_id)


def test_a_copy_of_the_topic_under_another_name_keeps_that_name() -> None:
    """Where a mirrored topic is read, place and id name it: two copies number their records differently."""
    at = Position("mirror", "west.__consumer_offsets", 3, 70)
    key = b"\0\3\0\1g"
    got = accepted(None, format="offsets", position=at, kafka_key=key, kafka_timestamp_ms=5)
    assert (got.position, got.event_id) == (at, "main/west.__consumer_offsets/3/70")
    assert (json.loads(got.raw)["partition"], json.loads(got.raw)["offset"]) == (3, 70)


def captured_line(key: str, value: str | None) -> dict[str, Any]:
    """Build a captured record."""
    return {"partition": 0, "offset": 9, "timestamp": 5, "key_hex": key, "value_hex": value}


def test_records_of_a_later_kafka_are_accepted_as_unknown() -> None:
    """They are counted, not rejected: a broker's upgrade is no damage."""
    of_type = accepted(captured_line("00630001" + "67", "0000"), format="offsets")
    of_version = accepted(captured_line("0002000167", "0009aa"), format="offsets")
    assert (of_type.type, of_type.group_id, of_type.body["key_type"]) == ("unknown_record", None, 99)
    assert (of_version.type, of_version.group_id) == ("unknown_record", "g")
    assert of_version.body["problem"] == "key type 2: value version is 9; it must be from 0 to 4"


def test_a_damaged_record_is_rejected_with_type_version_and_byte() -> None:
    """Whoever looks for the cause finds the field and where in the bytes it begins."""
    cut = captured_line("0002000167", "0003 0008 636f6e73".replace(" ", ""))
    assert reason(cut, format="offsets") == (
        "record cannot be decoded (key type 2, value version 3: protocolType at byte 2: "
        "8 bytes are announced and 4 left); its bytes must hold what its type and version say"
    )


def test_a_kafka_record_without_key_or_too_long_is_rejected() -> None:
    """What cannot be a record of the topic is kept with its reason."""
    at = Position("live", "__consumer_offsets", 0, 1)
    key = b"\0\3\0\1g"
    assert reason(b"", format="offsets", position=at, kafka_timestamp_ms=5).startswith("key is null; ")
    assert reason(b"", format="offsets", position=at, kafka_key=key).startswith("timestamp is missing; ")
    long = parse(bytes(MAX_BYTES), format="offsets", position=at, kafka_key=key, kafka_timestamp_ms=5)
    assert isinstance(long, Rejection)
    assert long.reason == f"record has {MAX_BYTES + 5} bytes; it must have at most {MAX_BYTES}"
