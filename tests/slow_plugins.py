"""Plug-ins that answer late, never, or not at all, for tests/test_plugin_limits.py; light to import."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from typing import Any

from assignors import AssignorMemory, Subscription, TopicMetadata

Topics = Mapping[str, TopicMetadata]
Subscriptions = Mapping[str, Subscription]


def deal(topics: Topics, subscriptions: Subscriptions, memory: object) -> Any:
    """Do as asked, and print."""
    print("a plug-in may print")  # noqa: T201 - that is what is tried
    owned: dict[str, list[tuple[str, int]]] = {member: [] for member in subscriptions}
    for topic, metadata in topics.items():
        readers = [member for member, s in subscriptions.items() if topic in s.topics]
        for partition in metadata.partitions if readers else ():
            owned[readers[partition % len(readers)]].append((topic, partition))
    return owned


def loop(topics: Topics, subscriptions: Subscriptions, memory: object) -> Any:
    """Never come to an end."""
    while True:
        pass


def loop_and_catch(topics: Topics, subscriptions: Subscriptions, memory: object) -> Any:
    """Never come to an end, and let nothing interrupt it."""
    while True:
        try:
            time.sleep(0.001)
        except BaseException:  # noqa: BLE001, S112 - that is what is tried
            continue


def sleep(topics: Topics, subscriptions: Subscriptions, memory: object) -> Any:
    """Wait where no other thread can wake it."""
    time.sleep(3600)


def search(topics: Topics, subscriptions: Subscriptions, memory: object) -> Any:
    """Spend centuries in C code that lets no other thread run."""
    re.match(r"(a+)+$", "a" * 60 + "b")


def leave(topics: Topics, subscriptions: Subscriptions, memory: object) -> Any:
    """End the process at once."""
    os._exit(7)


def refuse(topics: Topics, subscriptions: Subscriptions, memory: object) -> Any:
    """Fail."""
    raise RuntimeError("out of luck")


def remember(topics: Topics, subscriptions: Subscriptions, memory: AssignorMemory) -> Any:
    """Do as asked, and count the times."""
    memory.max_generation += 1
    return deal(topics, subscriptions, memory)


def wait_while_told(topics: Topics, subscriptions: Subscriptions, memory: object) -> Any:
    """Wait while the file is there that the first member's user data names, then do as asked."""
    told = next(iter(subscriptions.values())).user_data
    while told is not None and os.path.exists(told.decode()):
        time.sleep(0.05)
    return deal(topics, subscriptions, memory)
