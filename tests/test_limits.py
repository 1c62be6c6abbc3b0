"""What is too large is refused, with the number found and the number allowed; what may be is taken."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from conf.settings import load_settings
from streaming.events.limits import Limits
from streaming.events.parsing import Rejection, parse_record
from streaming.groups.rules import GroupRules, limits_of
from streaming.job import Job
from streaming.model import Input, Position
from streaming.tables.delta import Tables
from tests.deployments import event as line
from tests.deployments import make_settings, totals
from tests.observed_inputs import classic_value, new_member, raw_record
from tests.offsets_encoder import encode_key, encode_value
from tests.playing import START_MS, Player, event, join, owned, topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL = Limits(max_members=3, max_topics=4, max_partitions=10)


def parse(raw: bytes, limits: Limits, **more: Any) -> Input | Rejection:
    """Parse a line of events."""
    place = Position("s", "f.jsonl", -1, 1)
    more = {"position": place, "format": "events", "max_record_bytes": 1 << 30, **more}
    return parse_record(raw, default_cluster="c", limits=limits, **more)


def observed(members: int = 1, topics: int = 1, partitions: int = 1) -> dict[str, Any]:
    """Make a generation_observed event of so many members, each with so many topics and partitions."""
    return {
        "type": "generation_observed",
        "event_time": START_MS,
        "group_id": "g",
        "generation_id": 1,
        "protocol_type": "consumer",
        "protocol": "range",
        "state": "Stable",
        "members": [
            {
                "member_id": f"m{n}",
                "client_id": "",
                "client_host": "",
                "topics": [f"t{i}" for i in range(topics)],
                "assigned": {"t0": list(range(n * partitions, (n + 1) * partitions))},
            }
            for n in range(members)
        ],
    }


TOO_LARGE: dict[str, tuple[dict[str, Any], str]] = {
    "members": (observed(4), "members has 4 members; it must have at most 3 (groups.max_members)"),
    "topics of a member": (
        observed(2, topics=5),
        "members[0].topics has 5 topics; it must have at most 4 (groups.max_topics)",
    ),
    "partitions of all members": (
        observed(3, partitions=4),
        "members has 12 partitions; it must have at most 10 (groups.max_partitions)",
    ),
    "topics of a subscription": (
        join("a", 1, *"abcde"),
        "topics has 5 topics; it must have at most 4 (groups.max_topics)",
    ),
    "owned partitions": (
        join("a", 1, "t", owned_partitions={"t": list(range(6)), "u": list(range(5))}),
        "owned_partitions has 11 partitions; it must have at most 10 (groups.max_partitions)",
    ),
    "a topic's partitions": (
        topic("t", 1_000_001),
        "partitions is 1000001; it must be an integer from 0 to 1000000",
    ),
    "a topic's racks": (
        topic("t", 0, partition_racks=[[]] * 1_000_001),
        "partition_racks has 1000001 racks; it must have at most 1000000",
    ),
}


@pytest.mark.parametrize("case", TOO_LARGE)
def test_an_event_over_a_limit_is_rejected(case: str) -> None:
    """The reason names the field, what it has, what is allowed, and the setting where there is one."""
    too_large, says = TOO_LARGE[case]
    rejected = parse(json.dumps(too_large).encode(), SMALL)
    assert isinstance(rejected, Rejection)
    assert rejected.reason == says


@pytest.mark.parametrize(
    "fits",
    [
        observed(3, topics=4, partitions=3),
        join("a", 1, *"abcd", owned_partitions={"t": list(range(10))}),
        topic("t", 1_000_000),
    ],
)
def test_an_event_at_its_limits_is_taken(fits: dict[str, Any]) -> None:
    """A limit is what may still be."""
    assert isinstance(parse(json.dumps(fits).encode(), SMALL), Input)


def test_the_settings_hold_the_limits() -> None:
    """Their defaults are those of the code, and each can be changed."""
    settings = load_settings(None, {}, {})
    assert limits_of(settings) == Limits()
    assert GroupRules.from_settings(settings).limits == Limits()
    more = {"groups.max_members": "7", "groups.max_topics": "8", "groups.max_partitions": "9"}
    assert limits_of(load_settings(None, {}, more)) == Limits(max_members=7, max_topics=8, max_partitions=9)


def test_fifty_thousand_partitions_in_one_event_are_no_matter() -> None:
    """A member may own them, and a generation give them."""
    player = Player()
    everything = list(range(50_000))
    claims = join("a", 1, "t", owned_partitions={"t": everything}, generation_id=3)
    seen = {**observed(), "group_id": "o"}
    seen["members"][0] |= {"topics": ["t"], "assigned": {"t": everything}}
    assert len(json.dumps(claims)) < 1_048_576
    player.play([topic("t", 50_000), claims, seen])
    for group_id in ("g", "o"):
        assert sum(map(len, owned(player.latest(group_id)).values())) == 50_000


def test_a_full_group_takes_nobody_more_in() -> None:
    """Who joins is ignored, with the reason, until somebody leaves; who comes back is no newcomer."""
    player = Player(GroupRules(limits=SMALL))
    player.play([topic("t", 6), *(join(m, 1, "t", group_instance_id=f"i-{m}") for m in "abc")])
    player.play([join("d", 2, "t"), join("a", 3, "t"), join("b2", 4, "t", group_instance_id="i-b")])
    (told,) = [e for e in player.latest()["events"] if e["outcome"] == "ignored"]
    assert told["reason"] == "the group has 3 members; it must have at most 3 (groups.max_members)"
    assert set(owned(player.latest())) == {"a", "b2", "c"}
    again = {**join("d", 6, "t"), "event_id": "again"}
    player.play([again, event("member_left", 7, "c", reason="leave"), again])
    assert set(owned(player.latest())) == {"a", "b2", "d"}


def test_a_full_connect_group_takes_no_worker_more_in() -> None:
    """The same for workers."""
    player = Player(GroupRules(limits=SMALL))
    player.play([event("worker_joined", n, worker_id=f"w{n}") for n in range(4)])
    assert set(owned(player.latest())) == {"w0", "w1", "w2"}
    assert "the group has 3 members" in str([e["reason"] for e in player.latest()["events"]])


def test_a_full_group_of_the_new_protocol_shows_no_more_members() -> None:
    """A KIP-848 group is told record by record, so what goes beyond is ignored record by record."""
    player = Player(GroupRules(limits=SMALL))
    records = [raw_record(n, 5, new_member(), f"m{n}") for n in range(5)]
    player.play_inputs([*records, raw_record(9, 3, {"epoch": 1})])
    ignored = [e for row in player.rows for e in row["events"] if e["outcome"] == "ignored"]
    assert [e["offset"] for e in ignored] == [3, 4]
    says = "the group has 3 members; it must have at most 3 (groups.max_members)"
    assert {e["reason"] for e in ignored} == {says}


ZERO = {"topicId": "A" * 22}
RECORDS: dict[str, tuple[int, dict[str, Any], int, dict[str, Any], str]] = {
    "a classic generation": (
        2,
        {"group": "g"},
        3,
        classic_value(1, [(f"m{n}", {"t": [n]}) for n in range(4)], {"t"}),
        "members has 4 members; it must have at most 3 (groups.max_members)",
    ),
    "a member of the new protocol": (
        5,
        {"groupId": "g", "memberId": "m"},
        0,
        {**new_member(), "subscribedTopicNames": list("abcde")},
        "subscribedTopicNames has 5 topics; it must have at most 4 (groups.max_topics)",
    ),
    "its target": (
        7,
        {"groupId": "g", "memberId": "m"},
        0,
        {"topicPartitions": [{**ZERO, "partitions": list(range(6))}, {**ZERO, "partitions": list(range(5))}]},
        "topicPartitions has 11 partitions; it must have at most 10 (groups.max_partitions)",
    ),
}


@pytest.mark.parametrize("case", RECORDS)
@pytest.mark.parametrize("is_captured", [False, True], ids=["from Kafka", "captured"])
def test_a_record_of_the_offsets_topic_over_a_limit_is_rejected(case: str, is_captured: bool) -> None:
    """Straight from Kafka or captured, with Kafka's own name of the field."""
    key_type, key_fields, version, fields, says = RECORDS[case]
    key, value = encode_key(key_type, key_fields), encode_value(key_type, version, fields)
    if is_captured:
        record = {"partition": 1, "offset": 2, "timestamp": 3, "key_hex": key.hex(), "value_hex": value.hex()}
        rejected = parse(json.dumps(record).encode(), SMALL, format="offsets")
    else:
        place = Position("k", "__consumer_offsets", 1, 2)
        more = {"format": "offsets", "position": place, "kafka_key": key, "kafka_timestamp_ms": 3}
        rejected = parse(value, SMALL, **more)
    assert isinstance(rejected, Rejection)
    assert rejected.reason == says


@pytest.mark.spark
@pytest.mark.parametrize(
    "most",
    # On executors test_stream_promises has lines of 10 MB.
    [pytest.param("5000", id="driver"), pytest.param("0", id="executors", marks=pytest.mark.slow)],
)
def test_a_line_of_many_megabytes_is_rejected_unread(spark: SparkSession, tmp_path: Path, most: str) -> None:
    """Its beginning and its length are kept; the lines around it are applied."""
    (tmp_path / "in").mkdir()
    length = 30 << 20
    with (tmp_path / "in" / "a.jsonl").open("w") as file:
        file.write(line("topic_changed", 0, topic="t", partitions=3) + "\n")
        file.write('{"type": "member_joined", "padding": "' + "x" * length + '"}\n')
        file.write(line("member_joined", 1, group_id="g", member_id="a", topics=["t"]) + "\n")
    settings = make_settings(tmp_path / "job", batch__local_max_records=most)
    Job(spark, settings).run(once=True)
    assert totals(settings) == {"records_read": 3, "applied": 2, "duplicate": 0, "ignored": 0, "rejected": 1}
    (row,) = Tables(settings.job.tables).read("rejected_events", ["reason", "raw", "raw_bytes"]).to_pylist()
    assert row["reason"] == (
        f"the record has {length + 40} bytes; at most 1048576 are read (source.max_record_bytes)"
    )
    assert (len(row["raw"]), row["raw_bytes"]) == (4096, length + 40)
