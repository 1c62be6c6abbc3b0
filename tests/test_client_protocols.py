"""What clients put into a group's records is read whichever client wrote it."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.events.client_protocols import (
    ConnectAssignment,
    ConsumerSubscription,
    UserData,
    decode_connect_assignment,
    decode_connect_metadata,
    decode_consumer_assignment,
    decode_subscription,
    decode_user_data,
)
from streaming.events.offsets_wire import WireError

Lists = tuple[tuple[str, tuple[int, ...]], ...]

lists_of_partitions = st.lists(
    st.tuples(st.text(max_size=5), st.lists(st.integers(-1, 2**31 - 1), max_size=4).map(tuple)), max_size=4
).map(tuple)
blobs = st.none() | st.binary(max_size=9)
generations = st.integers(-1, 2**31 - 1)


def text(value: str | None) -> bytes:
    """Write a string as the client protocols do."""
    return struct.pack(">h", -1) if value is None else struct.pack(">h", len(value.encode())) + value.encode()


def blob(value: bytes | None) -> bytes:
    """Write bytes as the client protocols do."""
    return struct.pack(">i", -1) if value is None else struct.pack(">i", len(value)) + value


def lists(value: Lists) -> bytes:
    """Write topics with their partition numbers, or connectors with their tasks."""
    entries = (text(name) + struct.pack(f">i{len(ns)}i", len(ns), *ns) for name, ns in value)
    return struct.pack(">i", len(value)) + b"".join(entries)


def topics(value: tuple[str, ...]) -> bytes:
    """Write a list of strings."""
    return struct.pack(">i", len(value)) + b"".join(map(text, value))


@given(
    version=st.integers(0, 5),
    names=st.lists(st.text(max_size=5), max_size=4).map(tuple),
    user_data=blobs,
    owned=lists_of_partitions,
    generation_id=generations,
    rack=st.none() | st.text(max_size=4),
    behind=st.binary(max_size=5),
)
@settings(deadline=None)
def test_a_subscription_of_any_version_comes_back(
    version: int,
    names: tuple[str, ...],
    user_data: bytes | None,
    owned: Lists,
    generation_id: int,
    rack: str | None,
    behind: bytes,
) -> None:
    """Fields a version lacks hold Kafka's defaults; what a newer one has behind them is ignored."""
    raw = struct.pack(">h", version) + topics(names) + blob(user_data)
    raw += lists(owned) if version >= 1 else b""
    raw += struct.pack(">i", generation_id) if version >= 2 else b""
    raw += text(rack) if version >= 3 else b""
    assert decode_subscription(raw + behind) == ConsumerSubscription(
        version=version,
        topics=names,
        user_data=user_data,
        owned_partitions=owned if version >= 1 else (),
        generation_id=generation_id if version >= 2 else -1,
        rack_id=rack if version >= 3 else None,
    )


@given(version=st.integers(0, 5), given_=lists_of_partitions, user_data=blobs)
@settings(deadline=None)
def test_an_assignment_of_any_version_comes_back(
    version: int, given_: Lists, user_data: bytes | None
) -> None:
    """The layout has been the same in all versions, order of topics and partitions is kept."""
    decoded = decode_consumer_assignment(struct.pack(">h", version) + lists(given_) + blob(user_data))
    assert decoded is not None
    assert (decoded.version, decoded.partitions, decoded.user_data) == (version, given_, user_data)


def test_no_bytes_are_no_assignment_yet() -> None:
    """A member whose SyncGroup has not come has an assignment of no bytes."""
    assert decode_consumer_assignment(b"") is None
    assert decode_connect_assignment(b"") is None


@pytest.mark.parametrize("raw", [b"", b"\0", b"\0\3", b"\xff\xff\0\0\0\0", b"\0\0\0\0\0\1\0\5ab"])
def test_broken_subscriptions_are_wire_errors(raw: bytes) -> None:
    """Whoever reads a member catches one error, and it says where the bytes break."""
    with pytest.raises(WireError, match="at byte"):
        decode_subscription(raw)


@given(owned=lists_of_partitions.filter(bool), generation_id=generations)
@settings(deadline=None)
def test_sticky_user_data_is_read_in_each_clients_layout(owned: Lists, generation_id: int) -> None:
    """Java and librdkafka write version 1, old clients version 0, kafka-python a version before it."""
    generation = struct.pack(">i", generation_id)
    newest = UserData(layout="sticky-v1", owned_partitions=owned, generation_id=generation_id)
    assert decode_user_data("sticky", lists(owned) + generation) == newest
    assert decode_user_data("cooperative-sticky", lists(owned) + generation) == newest
    assert decode_user_data("sticky", lists(owned)) == UserData(
        layout="sticky-v0", owned_partitions=owned, generation_id=-1
    )
    assert decode_user_data("sticky", b"\0\1" + lists(owned) + generation) == UserData(
        layout="kafka-python", owned_partitions=owned, generation_id=generation_id
    )


def test_four_bytes_are_a_generation_under_cooperative_sticky_only() -> None:
    """The same four bytes are an empty version 0 under sticky."""
    raw = b"\0\0\0\0"
    cooperative, sticky = decode_user_data("cooperative-sticky", raw), decode_user_data("sticky", raw)
    assert cooperative == UserData(layout="generation", owned_partitions=None, generation_id=0)
    assert sticky == UserData(layout="sticky-v0", owned_partitions=(), generation_id=-1)


@given(protocol=st.sampled_from(["sticky", "cooperative-sticky", "range", ""]), raw=blobs)
def test_user_data_never_raises(protocol: str, raw: bytes | None) -> None:
    """Bytes that nobody understands are no reason to lose a member."""
    decoded = decode_user_data(protocol, raw)
    assert decoded is None or protocol in ("sticky", "cooperative-sticky")


CONNECT_FIELDS = (
    struct.pack(">h", 0),
    text("w1"),
    text("http://a/"),
    struct.pack(">q", 5),
    lists((("c1", (-1, 0)),)),
    lists((("c2", (3,)),)),
    struct.pack(">i", 900),
)


def test_a_connect_assignment_may_end_after_any_field() -> None:
    """Fields that an older worker does not write hold their defaults."""
    everything = ConnectAssignment(
        version=1,
        error=0,
        leader_id="w1",
        leader_url="http://a/",
        config_offset=5,
        assigned=(("c1", (-1, 0)),),
        revoked=(("c2", (3,)),),
        delay_ms=900,
    )
    decoded = [
        decode_connect_assignment(struct.pack(">h", 1) + b"".join(CONNECT_FIELDS[:n])) for n in range(8)
    ]
    assert decoded[7] == everything
    assert [d.delay_ms for d in decoded if d] == [0, 0, 0, 0, 0, 0, 0, 900]
    assert [bool(d.revoked) for d in decoded if d] == [False] * 6 + [True] * 2
    assert [bool(d.assigned) for d in decoded if d] == [False] * 5 + [True] * 3


def test_an_eager_connect_assignment_has_no_revocations() -> None:
    """Under version 0 the bytes behind the assignment mean nothing."""
    decoded = decode_connect_assignment(struct.pack(">h", 0) + b"".join(CONNECT_FIELDS))
    assert decoded is not None
    assert (decoded.assigned, decoded.revoked, decoded.delay_ms) == ((("c1", (-1, 0)),), (), 0)


def test_null_arrays_of_connect_are_empty() -> None:
    """Kafka writes null where there is nothing to give or revoke."""
    raw = struct.pack(">h", 2) + b"".join(CONNECT_FIELDS[:4]) + b"\xff" * 8 + struct.pack(">i", 0)
    decoded = decode_connect_assignment(raw)
    assert decoded is not None
    assert (decoded.assigned, decoded.revoked) == ((), ())


def test_connect_metadata_holds_the_workers_running_set() -> None:
    """The allocation is a whole assignment, version included; none when the worker runs nothing."""
    head = struct.pack(">h", 2) + text("http://w/") + struct.pack(">q", 9)
    allocation = struct.pack(">h", 1) + b"".join(CONNECT_FIELDS)
    running = decode_connect_metadata(head + blob(allocation))
    idle = decode_connect_metadata(head + blob(None))
    assert (running.url, running.config_offset) == ("http://w/", 9)
    assert running.allocation is not None
    assert running.allocation.assigned == (("c1", (-1, 0)),)
    assert idle.allocation is None
    with pytest.raises(WireError, match=r"allocation\.error at byte 2"):
        decode_connect_metadata(head + blob(b"\0\1\0"))
