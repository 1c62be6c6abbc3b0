"""Names for random cases: plain, long, unicode, and with hash codes that collide."""

from __future__ import annotations

import random

_ODD_HEADS = ("é", "z\u0301", "日本", "\ue000", "\ufffd", "\U00010400", "\U0001f600", "ß", "Ω", "ź")


def colliding(dice: random.Random, pairs: int) -> str:
    """Make one of 2**pairs strings that share a String.hashCode."""
    return "".join(dice.choice(("Aa", "BB")) for _ in range(pairs))


def name_of(dice: random.Random, letter: str, number: int) -> str:
    """Make an id that no other `number` of the same case can have."""
    style = dice.random()
    if style < 0.5:
        return f"{letter}{number}"
    if style < 0.65:
        uuid = "-".join(f"{dice.getrandbits(16 * n):0{4 * n}x}" for n in (2, 1, 1, 1, 3))
        return f"consumer-{letter}-{number}-{uuid}"
    if style < 0.8:
        return f"{dice.choice(_ODD_HEADS)}{letter}{number}"
    if style < 0.9:
        return f"{colliding(dice, dice.randint(1, 4))}{letter}{number}"
    return f"{dice.getrandbits(32):x}_{number}"


def names_of(dice: random.Random, letter: str, count: int) -> list[str]:
    """Make up to `count` distinct names in random order."""
    if dice.random() < 0.03 and count > 1:
        # All hash codes equal: one bucket, a tree bin from nine names on.
        names = {colliding(dice, 6) for _ in range(count)}
        return sorted(names, key=lambda _: dice.random())
    names_in_order = [name_of(dice, letter, i) for i in range(count)]
    if dice.random() < 0.5:
        dice.shuffle(names_in_order)
    return names_in_order
