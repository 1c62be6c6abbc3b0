"""Random cases of Connect's assignors, of replica placement and of Java's orders."""

from __future__ import annotations

import base64
import random
from typing import Any

from tests.parity.names import colliding, name_of, names_of

Case = dict[str, Any]


def _connectors(dice: random.Random, count: int) -> dict[str, int | None]:
    drawn = (0, 1, 1, 2, 3, 4, 8, 10, 33, None)
    return {name: dice.choice(drawn) for name in names_of(dice, "c", count)}


def eager_cases(dice: random.Random) -> list[Case]:
    """Make a case of Connect's eager assignor."""
    connectors = _connectors(dice, dice.choice((0, 1, 2, 3, 5, 13, 40)))
    case: Case = {
        "connectors": connectors,
        "workers": names_of(dice, "w", dice.choice((1, 1, 2, 3, 5, 20))),
    }
    if connectors and dice.random() < 0.2:
        case["inconsistent"] = [dice.choice(list(connectors))]
    return [case]


def _reported(dice: random.Random, connectors: dict[str, int | None]) -> Case:
    """Draw what a worker claims to run, right or wrong."""
    names = [*connectors, "gone-connector"]
    tasks = [[name, i] for name in names for i in range(connectors.get(name) or 1)]
    return {
        "connectors": dice.sample(names, dice.randint(0, len(names))),
        "tasks": dice.sample(tasks, dice.randint(0, len(tasks))),
    }


def incremental_cases(dice: random.Random) -> list[Case]:
    """Make up to ten rounds of one Connect leader."""
    max_delay = dice.choice((0, 1, 40, 1000, 60_000, 300_000, 300_000, dice.randint(2, 2**31 - 1)))
    is_large = dice.random() < 0.01
    connectors = _connectors(dice, 60 if is_large else dice.choice((0, 1, 1, 2, 3, 5, 12)))
    workers = names_of(dice, "w", 50 if is_large else dice.choice((1, 2, 2, 3, 3, 5, 15)))
    time = dice.choice((0, 1000, 1_700_000_000_000))
    rounds: list[Case] = []
    fresh = 100
    for _ in range(dice.randint(1, 10)):
        present: list[Any] = []
        for worker in workers:
            oddness = dice.random()
            if oddness < 0.03:
                present.append({"id": worker, "lost": True})
            elif oddness < 0.06:
                present.append({"id": worker, "sync_failed": True})
            elif oddness < 0.09:
                present.append({"id": worker, **_reported(dice, connectors)})
            else:
                present.append(worker)
        current: Case = {"time": time, "connectors": dict(connectors), "workers": present}
        if dice.random() < 0.08:
            current["sync_failed"] = True
        if dice.random() < 0.03:
            current["last_completed_generation"] = dice.randint(-1, 8)
        if connectors and dice.random() < 0.05:
            current["inconsistent"] = [dice.choice(list(connectors))]
        rounds.append(current)

        change = dice.random()
        fresh += 1
        if change < 0.25:
            workers = [*workers, name_of(dice, "w", fresh)]
        elif change < 0.4 and len(workers) > 1:
            workers = dice.sample(workers, len(workers) - 1)
        elif change < 0.5:
            gone = dice.randrange(len(workers))
            workers = [*workers[:gone], name_of(dice, "w", fresh), *workers[gone + 1 :]]
        elif change < 0.6:
            connectors = {**connectors, f"new{fresh}": dice.choice((0, 1, 4, 10))}
        elif change < 0.7 and connectors:
            connectors.pop(dice.choice(list(connectors)))
        elif change < 0.75 and connectors:
            connectors[dice.choice(list(connectors))] = dice.choice((0, 2, 9))
        near = max(max_delay, 1)
        time += dice.choice((0, 1, 10, 40, 41, 1600, 1601, near // 2, near - 1, near, near * 10 + 1))
    return [{"max_delay": max_delay, "rounds": rounds}]


def hash_set_cases(dice: random.Random) -> list[Case]:
    """Make keys for a HashSet, often of one bucket."""
    count = dice.choice((0, 1, 5, 11, 12, 13, 24, 25, 100, 400))
    style = dice.choice(("names", "names", "colliding", "ints", "uuid", "task"))
    items: list[Any]
    if style == "colliding":
        drawn = [colliding(dice, 8) + dice.choice(("", "", "x", "\ue000")) for _ in range(count)]
        items = list(dict.fromkeys(drawn))
    elif style == "ints":
        items = list(dict.fromkeys(dice.choice((5, 64, 4096)) * dice.randint(0, 200) for _ in range(count)))
    elif style == "uuid":
        shared = dice.randbytes(8)
        halves = [shared + dice.randbytes(8) for _ in range(count)]
        items = [["uuid", base64.b64encode(half).decode()] for half in halves]
    elif style == "task":
        items = [["task", colliding(dice, 1), i] for i in range(count)]
    else:
        items = names_of(dice, "n", count)
    case: Case = {"items": items}
    if dice.random() < 0.3:
        case["capacity"] = dice.choice((1, 2, 16, 32, 128))
    elif dice.random() < 0.3:
        case["copied"] = True
    return [case]


def keys_cases(dice: random.Random) -> list[Case]:
    """Make keys of bytes to hash."""
    keys = [dice.randbytes(dice.randint(0, 30)) for _ in range(20)]
    return [{"keys": [base64.b64encode(key).decode() for key in keys]}]


def placement_cases(dice: random.Random) -> list[Case]:
    """Make a cluster for the striped placer, some brokers fenced."""
    racks = dice.choice(((None,), ("a", "b", "c"), ("a", "b", None)))
    brokers = [
        {"id": i, "rack": dice.choice(racks), "fenced": dice.random() < 0.2}
        for i in sorted(dice.sample(range(60), dice.randint(1, 12)))
    ]
    dice.shuffle(brokers)
    return [
        {
            "brokers": brokers,
            "start_partition": 0,
            "partitions": dice.randint(1, 12),
            "replication_factor": dice.randint(1, min(len(brokers) + 1, 5)),
            "seed": dice.randint(-(2**40), 2**40),
        }
    ]


def circle_cases(dice: random.Random) -> list[Case]:
    """Make a cluster for AdminUtils, its errors included."""
    racks = dice.choice(((None,), ("a", "b", "c"), ("a", "b", "b", "\ue000", "\U0001f600"), ("a", None)))
    brokers = [{"id": i, "rack": dice.choice(racks)} for i in dice.sample(range(60), dice.randint(1, 12))]
    return [
        {
            "brokers": brokers,
            "start": dice.randint(0, 15),
            "start_partition": dice.choice((-1, 0, 0, dice.randint(1, 30))),
            "partitions": dice.choice((0, 1, dice.randint(1, 40))),
            "replication_factor": dice.choice((0, 1, 2, 3, 3, len(brokers), len(brokers) + 1)),
        }
    ]


def backoff_cases(dice: random.Random) -> list[Case]:
    """Make a greatest delay for the backoff of revocations."""
    return [{"max_delay": dice.randint(0, 2 ** dice.randint(1, 31) - 1), "attempts": 8}]
