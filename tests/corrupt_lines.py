"""Lines that are provably no events: each is built so that one rule it breaks is known.

`corrupt_lines` is a function of its arguments alone. Every line is free of line
feeds, so that a file of them has as many records as lines.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

LONG_LINE_BYTES = 10_000_000
LONG_LINE_EVERY = 250
"""One line in so many is 10 MB long: enough to prove the rule, few enough to keep files small."""

Make = Callable[[random.Random], bytes]

_MEMBER_JOINED: dict[str, Any] = {
    "type": "member_joined",
    "event_time": "2026-03-01T10:00:00Z",
    "group_id": "orders-readers",
    "member_id": "C1",
    "topics": ["orders"],
    "protocols": ["range"],
    "owned_partitions": {"orders": [0, 1]},
    "generation_id": 3,
    "session_timeout_ms": 10_000,
}
_GOOD: tuple[dict[str, Any], ...] = (
    _MEMBER_JOINED,
    {"type": "topic_changed", "event_time": 1_772_359_200_000, "topic": "orders", "partitions": 6},
    {"type": "partitions_revoked", "event_time": 0, "group_id": "g", "member_id": "C1", "generation_id": 2},
    {"type": "connector_configured", "event_time": 0, "group_id": "g", "connector": "jdbc", "tasks": 4},
    {"type": "worker_joined", "event_time": 0, "group_id": "g", "worker_id": "w1"},
    {
        "type": "generation_observed",
        "event_time": 0,
        "group_id": "g",
        "generation_id": 7,
        "protocol_type": "consumer",
        "protocol": "range",
        "state": "Stable",
        "members": [
            {
                "member_id": "C1",
                "client_id": "c",
                "client_host": "/10.0.0.1",
                "topics": ["orders"],
                "assigned": {"orders": [0]},
            }
        ],
    },
)
_NAMES = ("group_id", "member_id", "topic", "connector", "worker_id")
_COUNTS = ("partitions", "tasks", "generation_id")
_NO_INT32 = (-2, -3, 2**31, 2**31 + 7, 2**53, 2**63, 2**64, 2**70, -(2**63), -(2**70))
_NO_INTEGER = (1.5, 3.0, "3", True, False, None, [3], {"n": 3}, 1e20)
_NO_NAME = ("", 7, True, None, ["a"], {"a": 1}, "a\0b", "\0", "x" * 40_000)
_NO_TIME: tuple[Any, ...] = (
    "2026-03-01T10:00:00",
    "2026-03-01",
    "yesterday",
    "2026-13-01T10:00:00Z",
    "2026-02-29T10:00:00Z",
    "2026-03-01T24:00:00Z",
    "2026-03-01T10:00:00+24:00",
    "0000-01-01T00:00:00Z",
    "0001-01-01T00:00:00+01:00",
    "9999-12-31T23:59:59-01:00",
    "",
    True,
    None,
    1.5,
    [],
    2**62,
    -(2**62),
    2**70,
)


def _dump(event: object) -> bytes:
    return json.dumps(event, ensure_ascii=False).encode()


def _good(rng: random.Random) -> dict[str, Any]:
    event = dict(rng.choice(_GOOD))
    event["note"] = f"n{rng.randrange(10**6)}"
    return event


def _with(rng: random.Random, fields: tuple[str, ...], values: tuple[Any, ...]) -> bytes:
    """Put a wrong value into one of these fields, in an event that must have it."""
    event = _good(rng)
    while not (set(fields) & set(event)):
        event = _good(rng)
    field = rng.choice([f for f in fields if f in event])
    optional = event["type"] == "member_joined" and field == "generation_id"
    event[field] = rng.choice([v for v in values if v is not None] if optional else values)
    return _dump(event)


def _cut(rng: random.Random) -> bytes:
    raw = json.dumps(_good(rng)).encode()
    return raw[: rng.randrange(1, len(raw))]


def _joined_twice(rng: random.Random) -> bytes:
    return _dump(_good(rng)) + rng.choice([b"", b" ", b","]) + _dump(_good(rng))


def _noise(rng: random.Random) -> bytes:
    return b"}" + rng.randbytes(rng.randrange(1, 60)).replace(b"\n", b"?")


def _no_object(rng: random.Random) -> bytes:
    return rng.choice([b"[]", b"3", b'"text"', b"null", b"true", b"[" + _dump(_good(rng)) + b"]"])


def _missing(rng: random.Random) -> bytes:
    event = _good(rng)
    needed = [f for f in event if f not in ("note", "protocols", "owned_partitions", "session_timeout_ms")]
    if event["type"] == "member_joined":
        needed.remove("generation_id")
    del event[rng.choice(needed)]
    return _dump(event)


def _raw_nul(rng: random.Random) -> bytes:
    raw = _dump(_good(rng))
    at = rng.randrange(len(raw) + 1)
    return raw[:at] + b"\0" + raw[at:]


def _not_utf_8(rng: random.Random) -> bytes:
    broken = rng.choice([b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\xe2\x82", b"\xc0\xaf"])
    return _dump(_good(rng)).replace(b'"note": "', b'"note": "' + broken)


def _not_a_number(rng: random.Random) -> bytes:
    word = rng.choice(
        [b"NaN", b"Infinity", b"-Infinity", b"nan", b"01", b"+1", b"0x1F", b"1e999", b".5", b"'1'"]
    )
    return _dump({**_good(rng), "extra": 0}).replace(b'"extra": 0', b'"extra": ' + word)


def _same_key_twice(rng: random.Random) -> bytes:
    raw = _dump(_good(rng))
    again = rng.choice([b'"type"', b'"t\\u0079pe"', b'"event_time"'])
    return raw[:-1] + b", " + again + b": 1}"


def _deep(rng: random.Random) -> bytes:
    levels = rng.choice([300, 1500, 50_000])
    opened, closed = rng.choice([(b"[", b"]"), (b'{"a":', b"}")])
    inner = b"1" if opened != b"[" else b""
    return _dump(_good(rng))[:-1] + b', "extra": ' + opened * levels + inner + closed * levels + b"}"


def _unknown_type(rng: random.Random) -> bytes:
    wrong = rng.choice(["member_joind", "MEMBER_JOINED", "", " member_joined", 7, None, ["member_joined"]])
    return _dump({**_good(rng), "type": wrong})


def _wrong_subscription(rng: random.Random) -> bytes:
    event: dict[str, Any] = dict(_MEMBER_JOINED, note=f"n{rng.randrange(10**6)}")
    del event["topics"]
    wrong: list[dict[str, Any]] = [
        {},
        {"topics": "orders"},
        {"topics": ["orders", ""]},
        {"topics": ["orders", 3]},
        {"topics": {"orders": 1}},
        {"topics": ["orders"], "topics_pattern": "ord.*"},
        {"topics_pattern": "(unclosed"},
        {"topics_pattern": "(?=ahead)x"},
        {"topics_pattern": "(a)\\1"},
        {"topics_pattern": "((a{100}){100}){100}"},
        {"topics_pattern": ""},
        {"topics": ["a\0"]},
    ]
    return _dump({**event, **rng.choice(wrong)})


def _wrong_detail(rng: random.Random) -> bytes:
    wrong: dict[str, Any] = rng.choice(
        [
            {"owned_partitions": {"orders": [0, -1]}},
            {"owned_partitions": {"orders": [True]}},
            {"owned_partitions": {"orders": 3}},
            {"owned_partitions": [["orders", 0]]},
            {"owned_partitions": {"": [0]}},
            {"owned_partitions": {"orders": [2**31]}},
            {"protocols": []},
            {"protocols": "range"},
            {"protocols": ["range", None]},
            {"session_timeout_ms": 0},
            {"session_timeout_ms": "10s"},
            {"user_data": "not base64!"},
            {"user_data": "QQ"},
            {"user_data": 7},
            {"group_instance_id": ""},
            {"rack_id": 4},
            {"client_id": ["c"]},
            {"cluster": ""},
            {"cluster": 0},
            {"event_id": ""},
            {"event_id": 12},
        ]
    )
    return _dump({**_MEMBER_JOINED, "note": f"n{rng.randrange(10**6)}", **wrong})


def _wrong_observed(rng: random.Random) -> bytes:
    event = dict(_GOOD[-1], note=f"n{rng.randrange(10**6)}")
    [member] = event["members"]
    event["members"] = rng.choice(
        [
            {},
            [7],
            [member, member],
            [{**member, "assigned": {"orders": [-1]}}],
            [{**member, "assigned": [["orders", 0]]}],
            [{**member, "topics": None}],
            [{key: value for key, value in member.items() if key != "assigned"}],
        ]
    )
    return _dump(event)


def _long(rng: random.Random) -> bytes:
    event = {**_good(rng), "padding": ""}
    return _dump(event)[:-2] + b"x" * LONG_LINE_BYTES + b'"}'


KINDS: dict[str, Make] = {
    "cut": _cut,
    "two objects": _joined_twice,
    "noise": _noise,
    "no object": _no_object,
    "byte order mark": lambda rng: b"\xef\xbb\xbf" + _dump(_good(rng)),
    "blank": lambda rng: b" " * rng.randrange(1, 9) + rng.choice([b"", b"\t", b"\r"]),
    "field missing": _missing,
    "number out of range": lambda rng: _with(rng, _COUNTS, _NO_INT32),
    "no integer": lambda rng: _with(rng, _COUNTS, _NO_INTEGER),
    "no name": lambda rng: _with(rng, _NAMES, _NO_NAME),
    "no time": lambda rng: _with(rng, ("event_time",), _NO_TIME),
    "raw NUL": _raw_nul,
    "not UTF-8": _not_utf_8,
    "no JSON number": _not_a_number,
    "key twice": _same_key_twice,
    "too deep": _deep,
    "unknown type": _unknown_type,
    "wrong subscription": _wrong_subscription,
    "wrong detail": _wrong_detail,
    "wrong observed member": _wrong_observed,
}
"""What is wrong -> a maker of such lines. "too long" comes besides, every LONG_LINE_EVERY lines."""


def corrupt_lines(seed: int, count: int) -> list[bytes]:
    """Make lines that are no events, every kind in turn, without line ends.

    Args:
        seed: the same seed gives the same lines.
        count: how many; from 250 on at least one is 10 MB long.
    """
    rng = random.Random(seed)
    makers = list(KINDS.values())
    lines: list[bytes] = []
    for i in range(count):
        make = _long if i % LONG_LINE_EVERY == LONG_LINE_EVERY - 1 else makers[i % len(makers)]
        lines.append(make(rng))
    return lines


def corrupt_offset_lines(seed: int, records: list[bytes], count: int) -> list[bytes]:
    """Make lines that are no captured records, out of lines that are.

    Args:
        seed: the same seed gives the same lines.
        records: good captured lines with a value, to be broken.
        count: how many.
    """
    rng = random.Random(seed)
    breaks: list[Callable[[dict[str, Any]], object]] = [
        lambda r: r.update(value_hex=r["value_hex"][: 2 * rng.randrange(len(r["value_hex"]) // 2)]),
        lambda r: r.update(value_hex=r["value_hex"] + "00"),
        lambda r: r.update(value_hex=r["value_hex"][:-1]),
        lambda r: r.update(value_hex=5),
        lambda r: r.pop("value_hex"),
        lambda r: r.update(key_hex=r["key_hex"][:6]),
        lambda r: r.update(key_hex=""),
        lambda r: r.update(key_hex=None),
        lambda r: r.update(key_hex="zz"),
        lambda r: r.update(partition=-1),
        lambda r: r.update(offset="7"),
        lambda r: r.pop("offset"),
        lambda r: r.update(timestamp=None),
        lambda r: r.update(timestamp=2**62),
    ]
    lines: list[bytes] = []
    for i in range(count):
        record = json.loads(rng.choice(records))
        breaks[i % len(breaks)](record)
        lines.append(_dump(record))
    return lines
