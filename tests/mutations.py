"""Random and mutated input: lines of events and captured records that are broken, or only nearly."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from typing import Any

Line = bytes

_NASTY: tuple[Any, ...] = (
    None,
    True,
    "",
    " ",
    "\x00",
    "\ud7ff\U0010ffff",
    "a" * 40_000,
    0,
    -1,
    1.5,
    1e308,
    2**31,
    2**63,
    [],
    {},
    [[]],
    [None],
    {"": None},
    "2026-13-45T99:00:00Z",
    "1970-01-01T00:00:00Z",
    253_402_300_800_000,
)
_GROUPS = tuple(f"g{number}" for number in range(40))
_MEMBERS = tuple(f"m{number}" for number in range(12))
_TOPICS = ("orders", "bills", "clicks")


def mutated_events(seed: int, good: Sequence[dict[str, Any]], count: int) -> list[Line]:
    """Make lines out of good events of every type: a third of them good, with other names and times.

    Args:
        seed: the same seed gives the same lines.
        good: one event of each type at least.
        count: how many.
    """
    rng = random.Random(seed)
    lines: list[Line] = []
    for number in range(count):
        event = _renamed(rng, rng.choice(good), number)
        how = rng.randrange(6)
        if how == 2:
            _spoil(rng, event)
        line = json.dumps(event, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")
        if how == 3:
            line = _broken(rng, line)
        elif how == 4 and lines:
            other = rng.choice(lines[-50:])
            line = line[: rng.randrange(len(line))] + other[rng.randrange(len(other) or 1) :]
        elif how == 5:
            line = rng.choice((rng.randbytes(rng.randrange(60)), line, b"", b"[" * 5000, b"null", b"{}"))
        lines.append(line.replace(b"\n", b" "))
    return lines


def mutated_records(seed: int, captured: Sequence[Line], count: int) -> list[Line]:
    """Make captured records whose key and value are whole, flipped somewhere, cut, longer or random.

    Every record has the next offset of its partition, as a log has, so that none counts as a repeat.

    Args:
        seed: the same seed gives the same lines.
        captured: good lines, `key_hex` and `value_hex` in them.
        count: how many.
    """
    rng = random.Random(seed)
    originals = [json.loads(line) for line in captured]
    keys = [bytes.fromhex(record["key_hex"]) for record in originals]
    lines = []
    for number in range(count):
        # Mostly in their order, so that groups come about whose later records are then broken.
        place = number % len(originals) if rng.random() < 0.8 else rng.randrange(len(originals))
        record = dict(originals[place])
        key = keys[place]
        value = None if record["value_hex"] is None else bytes.fromhex(record["value_hex"])
        match rng.randrange(6):
            case 1 if value:
                value = _broken(rng, value)
            case 2:
                key = _broken(rng, key)
            case 3 if value:
                value = value[: rng.randrange(len(value))]
            case 4:
                key = rng.choice(keys)
            case 5 if value:
                value = rng.choice((rng.randbytes(rng.randrange(80)), value + b"\0", b"", value))
        round_ = number // len(originals)
        record.update(
            key_hex=key.hex(),
            value_hex=None if value is None else value.hex(),
            partition=number % 4,
            offset=number // 4,
            timestamp=record["timestamp"] + round_ * 3_600_000,
        )
        lines.append(json.dumps(record).encode())
    return lines


def _renamed(rng: random.Random, event: dict[str, Any], number: int) -> dict[str, Any]:
    """Put a good event among few groups, members and topics, later than those before it, mostly."""
    event = json.loads(json.dumps(event))
    pools = (("group_id", _GROUPS), ("member_id", _MEMBERS), ("worker_id", _MEMBERS), ("topic", _TOPICS))
    for name, pool in pools:
        if name in event:
            event[name] = rng.choice(pool)
    if event.get("type") == "topic_changed":
        # Size is another matter than rubbish: a million partitions in forty groups would be all the work.
        event["partitions"] = rng.randrange(64)
        event.pop("partition_racks", None)
    back_ms = rng.choice((0, 0, 0, 0, 90_000, 10**9))
    event["event_time"] = 1_795_225_094_000 + number * 500 - back_ms
    if rng.random() < 0.1:
        event["event_id"] = f"e{rng.randrange(max(number, 1))}"
    return event


def _spoil(rng: random.Random, event: dict[str, Any]) -> None:
    """Put a nasty value, or another field's, somewhere into an event, at any depth."""
    places: list[Callable[[Any], None]] = []

    def walk(node: Any) -> None:
        items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
        for key, below in list(items):
            places.append(lambda value, node=node, key=key: node.__setitem__(key, value))
            walk(below)

    walk(event)
    values = [*_NASTY, *event.values()]
    for _ in range(rng.choice((1, 1, 1, 3))):
        rng.choice(places)(json.loads(json.dumps(rng.choice(values))))
    if rng.random() < 0.2 and event:
        del event[rng.choice(list(event))]


def _broken(rng: random.Random, raw: bytes) -> bytes:
    """Flip bits, or cut out, double or overwrite a part."""
    if not raw:
        return raw
    start = rng.randrange(len(raw))
    end = min(len(raw), start + 1 + rng.randrange(12))
    match rng.randrange(4):
        case 0:
            spoilt = bytearray(raw)
            for _ in range(rng.choice((1, 1, 2, 8))):
                spoilt[rng.randrange(len(spoilt))] ^= 1 << rng.randrange(8)
            return bytes(spoilt)
        case 1:
            return raw[:start] + raw[end:]
        case 2:
            return raw[:end] + raw[start:]
        case _:
            return raw[:start] + rng.randbytes(end - start) + raw[end:]
