"""Key to partition: as Kafka's producers, as other clients, and a column at once."""

from __future__ import annotations

import zlib

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assignors.errors import AssignorError
from assignors.partitioners import (
    KEY_PARTITIONERS,
    RoundRobinCounters,
    explicit_partition,
    fnv1a,
    murmur2,
    murmur2_column,
    murmur3,
    partition_by_java_hash,
    partition_by_murmur2,
    partition_column,
    partition_in_turn,
)

FAST = settings(max_examples=60, deadline=None)
keys_of_bytes = st.lists(st.binary(max_size=23), max_size=30)


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_kafkas(key: bytes, hashed: int) -> None:
    """Kafka's producer hashes these keys to these numbers, signed."""
    assert murmur2(key) == hashed


def test_the_partition_of_a_key_masks_the_sign_away() -> None:
    """Both today's producer and 0.8's `abs` mask; neither takes an absolute value."""
    assert partition_by_murmur2(b"21", 100) == (-973932308 & 0x7FFFFFFF) % 100 == 40
    assert partition_by_java_hash("foobar", 100) == (-1268878963 & 0x7FFFFFFF) % 100 == 85


@pytest.mark.parametrize(("key", "hashed"), [(b"", 0), (b"hello", 0x248BFA47), (b"hello, world", 0x149BBB7F)])
def test_murmur3_gives_its_published_values(key: bytes, hashed: int) -> None:
    """The x86 variant of 32 bits with seed 0."""
    assert murmur3(key) == hashed


def test_fnv1a_is_the_absolute_value_of_a_signed_hash() -> None:
    """The published FNV-1a of "foobar" is 0xbf9cf968, negative as a signed int."""
    assert fnv1a(b"foobar") == 2**32 - 0xBF9CF968


def test_clients_with_other_hashes_choose_other_partitions() -> None:
    """One key, four partitioners: the table that explains a split key."""
    chosen = {name: partition(b"user-1", 1000) for name, partition in KEY_PARTITIONERS.items()}
    assert chosen == {
        "murmur2": (murmur2(b"user-1") & 0x7FFFFFFF) % 1000,
        "murmur3": murmur3(b"user-1") % 1000,
        "crc32": zlib.crc32(b"user-1") % 1000,
        "fnv1a": fnv1a(b"user-1") % 1000,
    }
    assert len(set(chosen.values())) == 4


@FAST
@given(keys=keys_of_bytes)
def test_a_column_is_hashed_as_its_keys(keys: list[bytes]) -> None:
    """Lists, numpy objects and every Arrow layout give what one key at a time gives."""
    expected = [murmur2(key) for key in keys]
    binary = pa.array(keys, pa.binary())
    columns = [
        keys,
        np.array(keys, dtype=object),
        binary,
        pa.array(keys, pa.large_binary()),
        pa.chunked_array([binary, binary.slice(0, 0)]),
        pa.concat_arrays([pa.array([b"before"], pa.binary()), binary]).slice(1),
    ]
    for column in columns:
        assert murmur2_column(column).tolist() == expected


@FAST
@given(texts=st.lists(st.text(max_size=9), max_size=20), count=st.integers(1, 50))
def test_text_is_hashed_as_utf_8(texts: list[str], count: int) -> None:
    """A column of text goes where its bytes go."""
    expected = [partition_by_murmur2(text.encode(), count) for text in texts]
    for column in (texts, pa.array(texts, pa.string()), pa.array(texts, pa.large_string())):
        assert partition_column(column, count).tolist() == expected


def test_fixed_width_bytes_are_hashed_too() -> None:
    """A numpy array of bytes is a column of keys."""
    assert murmur2_column(np.array([b"abc", b"21"])).tolist() == [murmur2(b"abc"), murmur2(b"21")]


@pytest.mark.parametrize("keys", [[b"a", None], pa.array([b"a", None])])
def test_a_null_is_no_key(keys: object) -> None:
    """A record without a key goes in turn; a column with one is refused, and counted."""
    with pytest.raises(AssignorError, match="1 keys are null"):
        murmur2_column(keys)


def test_an_explicit_partition_is_taken_as_it_is() -> None:
    """It need not be available; it must exist."""
    assert [explicit_partition(p, 3) for p in range(3)] == [0, 1, 2]


@pytest.mark.parametrize("partition", [-1, 3])
def test_a_partition_that_does_not_exist_is_refused(partition: int) -> None:
    """The error names it and the valid range."""
    with pytest.raises(AssignorError, match=f"partition {partition} was asked for; it must be 0 to 2"):
        explicit_partition(partition, 3)


@pytest.mark.parametrize("name", KEY_PARTITIONERS)
def test_a_topic_without_partitions_is_refused(name: str) -> None:
    """No key can go there."""
    with pytest.raises(AssignorError, match="the topic has 0 partitions"):
        KEY_PARTITIONERS[name](b"k", 0)


def test_keyless_records_take_available_partitions_in_turn() -> None:
    """While some have a leader the others are passed over; when none has, all are used."""
    assert [partition_in_turn(n, 5, available=[1, 3, 4]) for n in range(4)] == [1, 3, 4, 1]
    assert [partition_in_turn(n, 3) for n in range(4)] == [0, 1, 2, 0]


def test_each_topic_has_its_counter_unless_it_is_shared() -> None:
    """0.8's shared counter made two topics written in turn use every second partition."""
    chosen: dict[bool, list[int]] = {False: [], True: []}
    for is_shared, partitions in chosen.items():
        counters = RoundRobinCounters(is_shared)
        for topic in ("a", "b", "a", "b"):
            number, counters = counters.draw(topic)
            partitions.append(partition_in_turn(number, 4))
    assert chosen == {False: [0, 0, 1, 1], True: [0, 1, 2, 3]}


def test_a_counter_wraps_as_javas_int() -> None:
    """After the greatest int the sign is masked away, and the turn goes on at 0."""
    number, counters = RoundRobinCounters(drawn={"a": 2**31 - 1}).draw("a")
    assert partition_in_turn(number, 10) == 7
    assert partition_in_turn(counters.draw("a")[0], 10) == 0
