"""Seeded random cases of every kind, the odd ones included.

A case is a function of (kind, seed, number) alone, so any difference can be
made again from the three values that the comparison prints.
"""

from __future__ import annotations

import base64
import random
import struct
from collections.abc import Callable, Iterator
from typing import Any

from tests.parity.generate_more import (
    Case,
    backoff_cases,
    circle_cases,
    eager_cases,
    hash_set_cases,
    incremental_cases,
    keys_cases,
    placement_cases,
)
from tests.parity.names import name_of, names_of

_RACKS = ("r0", "r1", "r2", "r3")
_COUNTS = (0, 1, 1, 2, 3, 3, 4, 5, 7, 8, 10, 12, 17, 33)
_USER_DATA = ("none", "empty", "v0", "v1", "default")


def generate_cases(kind: str, count: int, seed: int) -> Iterator[Case]:
    """Yield `count` cases of one kind; those of one session follow each other."""
    make = _MAKERS[kind]
    number = 0
    while number < count:
        dice = random.Random(f"{seed}/{kind}/{number}")
        for case in make(dice)[: count - number]:
            yield {"id": f"{seed}/{number}", "assignor": kind, **case}
            number += 1


def _size(dice: random.Random) -> tuple[int, int]:
    """Draw how many topics and members: mostly a few, sometimes many."""
    style = dice.random()
    if style < 0.9:
        return dice.randint(1, 5), dice.randint(1, 6)
    if style < 0.995:
        return dice.randint(1, 30), dice.randint(1, 40)
    return dice.randint(1, 8), dice.randint(200, 1500)


def _partition_racks(dice: random.Random, count: int, style: str) -> list[list[str | None]]:
    if style == "all":
        return [list(_RACKS) for _ in range(count)]
    if style == "rotating":
        width = dice.randint(1, 3)
        return [[_RACKS[(p + i) % 4] for i in range(width)] for p in range(count)]
    if style == "empty":
        return [[] for _ in range(count)]
    drawn: tuple[str | None, ...] = (*_RACKS, None, "")
    return [[dice.choice(drawn) for _ in range(dice.randint(0, 3))] for _ in range(count)]


def _topics(dice: random.Random, count: int, *, racks: bool) -> dict[str, Any]:
    same = dice.choice(_COUNTS)
    equal_counts = dice.random() < 0.4
    topics: dict[str, Any] = {}
    for name in names_of(dice, "t", count):
        partitions = same if equal_counts else dice.choice(_COUNTS)
        style = dice.random()
        if racks and style < 0.7:
            topics[name] = _partition_racks(
                dice, partitions, dice.choice(("all", "rotating", "mixed", "empty"))
            )
        elif style > 0.96:
            numbers = sorted(dice.sample(range(partitions * 2 + 1), partitions))
            if dice.random() < 0.5:
                dice.shuffle(numbers)
            kinds = ("rotating", "mixed", "empty") if racks else ("empty",)
            of = _partition_racks(dice, partitions, dice.choice(kinds))
            topics[name] = {"ids": [list(pair) for pair in zip(numbers, of, strict=True)]}
        else:
            topics[name] = partitions
    return topics


def _numbers_of(topic: int | list[Any] | dict[str, Any]) -> list[int]:
    if isinstance(topic, int):
        return list(range(topic))
    return list(range(len(topic))) if isinstance(topic, list) else [p for p, _ in topic["ids"]]


def _subscriptions(dice: random.Random, topics: list[str], members: int) -> list[list[str]]:
    known = [*topics, "missing-topic"] if dice.random() < 0.1 else list(topics)
    style = dice.random()
    if style < 0.45:
        everyone = dice.sample(known, dice.randint(1, len(known)))
        lists = [list(everyone) for _ in range(members)]
        if dice.random() < 0.3:
            for wanted in lists:
                dice.shuffle(wanted)
    else:
        lists = [dice.sample(known, dice.randint(1, len(known))) for _ in range(members)]
    for wanted in lists:
        oddness = dice.random()
        if oddness < 0.01:
            wanted.clear()
        elif oddness < 0.02:
            wanted.append(dice.choice(wanted))
    return lists


def _owned(
    dice: random.Random, topics: dict[str, Any], lists: list[list[str]], *, clean: bool
) -> list[list[list[Any]]]:
    """Draw what each member claims: balanced or lopsided, honest or not."""
    owned: list[list[list[Any]]] = [[] for _ in lists]
    share = dice.choice((0.5, 0.9, 1.0))
    lopsided = dice.random() < 0.3
    turn = 0
    for name, topic in topics.items():
        takers = [i for i, wanted in enumerate(lists) if name in wanted]
        if not takers:
            continue
        if lopsided:
            takers = dice.sample(takers, (len(takers) + 1) // 2)
        for partition in _numbers_of(topic):
            if dice.random() < share:
                owned[takers[turn % len(takers)]].append([name, partition])
                turn += dice.choice((1, 1, 1, 2))
    for claims in owned:
        if dice.random() < 0.7:
            dice.shuffle(claims)
    if clean:
        return owned
    for claims in owned:
        name = dice.choice(list(topics))
        oddness = dice.random()
        if oddness < 0.08 and _numbers_of(topics[name]):
            claims.append([name, dice.choice(_numbers_of(topics[name]))])
        elif oddness < 0.11:
            claims.append([name, len(_numbers_of(topics[name])) + dice.randint(0, 3)])
        elif oddness < 0.14:
            claims.append(["gone-topic", dice.randint(0, 2)])
        elif oddness < 0.16 and claims:
            claims.append(list(dice.choice(claims)))
    return owned


def _sticky_user_data(dice: random.Random, claims: list[list[Any]], generation: int) -> str:
    """Encode bytes as some client may send them, or none would."""
    style = dice.random()
    if style < 0.2:
        return "b64:" + base64.b64encode(dice.randbytes(dice.randint(1, 12))).decode()
    if style < 0.4:
        return "b64:" + base64.b64encode(struct.pack(">i", generation)).decode()
    grouped: dict[str, list[int]] = {}
    for topic, partition in claims:
        grouped.setdefault(topic, []).append(partition)
    data = struct.pack(">i", len(grouped))
    for topic, numbers in grouped.items():
        encoded = topic.encode()
        data += struct.pack(">h", len(encoded)) + encoded
        data += struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)
    if style < 0.8:
        data += struct.pack(">i", generation)
    if style < 0.5:
        data += b"\x00"
    return "b64:" + base64.b64encode(data).decode()


def _members(
    dice: random.Random, topics: dict[str, Any], count: int, *, sticky: bool, racks: bool
) -> list[Case]:
    lists = _subscriptions(dice, list(topics), count)
    remembers = dice.random() < (0.75 if sticky else 0.2)
    claims = _owned(dice, topics, lists, clean=dice.random() < 0.5)
    generation = dice.randint(0, 15)
    conflicting = dice.random() < 0.35
    static = dice.random() < 0.3
    members: list[Case] = []
    for i, name in enumerate(names_of(dice, "m", count)):
        member: Case = {"id": name, "topics": lists[i]}
        if remembers and dice.random() < 0.95:
            member["owned"] = claims[i]
            own = generation if not conflicting else generation + dice.choice((0, 0, -1, -3, 1))
            if dice.random() < 0.95:
                member["generation"] = max(own, -1)
            if dice.random() < 0.05:
                member["sub_generation"] = dice.choice((-1, own - 1, own + 1))
        if static and dice.random() < 0.7:
            member["instance_id"] = name_of(dice, "i", dice.choice((i, i, i, 0)))
        if racks and dice.random() < 0.8:
            member["rack"] = dice.choice((*_RACKS, "r4", ""))
        if sticky and dice.random() < 0.08:
            member["user_data"] = (
                dice.choice(_USER_DATA)
                if dice.random() < 0.5
                else _sticky_user_data(dice, claims[i], generation)
            )
        if sticky and dice.random() < 0.05:
            member["owned_in_subscription"] = True
        members.append(member)
    return members


def _client(*, sticky: bool) -> Callable[[random.Random], list[Case]]:
    def make(dice: random.Random) -> list[Case]:
        racks = dice.random() < 0.35
        topic_count, member_count = _size(dice)
        topics = _topics(dice, topic_count, racks=racks)
        rounds = dice.randint(2, 4) if sticky and dice.random() < 0.1 else 1
        session = {"session": f"s{dice.getrandbits(48):x}"} if rounds > 1 else {}
        return [
            {
                "topics": topics,
                "members": _members(dice, topics, member_count, sticky=sticky, racks=racks),
                **session,
            }
            for _ in range(rounds)
        ]

    return make


def _server(dice: random.Random) -> list[Case]:
    topic_count, member_count = _size(dice)
    topics = _topics(dice, topic_count, racks=False)
    lists = _subscriptions(dice, list(topics), member_count)
    claims = _owned(dice, topics, lists, clean=dice.random() < 0.85)
    static = dice.random() < 0.3
    members: list[Case] = []
    for i, name in enumerate(names_of(dice, "m", member_count)):
        member: Case = {"id": name, "topics": lists[i], "owned": claims[i]}
        if static and dice.random() < 0.7:
            member["instance_id"] = name_of(dice, "i", dice.choice((i, i, i, 0)))
        members.append(member)
    case: Case = {"topics": topics, "members": members}
    if dice.random() < 0.3:
        case["topic_ids"] = {name: base64.b64encode(dice.randbytes(16)).decode() for name in topics}
    return [case]


_MAKERS: dict[str, Callable[[random.Random], list[Case]]] = {
    "range": _client(sticky=False),
    "roundrobin": _client(sticky=False),
    "sticky": _client(sticky=True),
    "cooperative-sticky": _client(sticky=True),
    "server-range": _server,
    "server-uniform": _server,
    "connect-eager": eager_cases,
    "connect-incremental": incremental_cases,
    "java-hash-set": hash_set_cases,
    "murmur2": keys_cases,
    "striped-placer": placement_cases,
    "circle-placer": circle_cases,
    "backoff": backoff_cases,
}

KINDS = tuple(_MAKERS)
ASSIGNOR_KINDS = KINDS[:8]
