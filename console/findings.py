"""What `counterpoise doctor` has to say: findings, and how errors of other modules become some."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "warning", "problem"]

_MINUTE_S, _HOUR_S, _DAY_S = 60, 3600, 86_400

_SIZES = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at: what kind, which one, what was found, and what to do."""

    level: Level
    check: str
    about: str
    found: str
    advice: str = ""


def ok(check: str, about: str, found: str) -> Finding:
    """Say that a thing is as it should be."""
    return Finding(level="ok", check=check, about=about, found=found)


def warning(check: str, about: str, found: str, advice: str) -> Finding:
    """Say what the job can go on with, and somebody should look at."""
    return Finding(level="warning", check=check, about=about, found=found, advice=advice)


def problem(check: str, about: str, found: str, advice: str) -> Finding:
    """Say what keeps the job from its work, or makes its answers wrong."""
    return Finding(level="problem", check=check, about=about, found=found, advice=advice)


def problem_told(check: str, about: str, error: object) -> Finding:
    """Make a problem of an error of ours, whose message says what to do after its first semicolon.

    Of a message of several lines (a library's backtrace in it) the first is taken.

    >>> problem_told("log", "main", "its rows end early; put back a copy").advice
    'put back a copy'
    """
    first, *others = str(error).splitlines() or [""]
    if others and "; " not in first and "; " in others[-1]:
        first += f"; {others[-1].partition('; ')[2]}"
    found, _, advice = first.partition("; ")
    return problem(check, about, found, advice)


def lasting(seconds: float) -> str:
    """Write a span of time in the unit that fits.

    >>> lasting(8), lasting(150), lasting(7200), lasting(300000)
    ('8 s', '2 min', '2.0 h', '3.5 days')
    """
    if seconds < 2 * _MINUTE_S:
        return f"{seconds:.0f} s"
    if seconds < 2 * _HOUR_S:
        return f"{seconds // _MINUTE_S:.0f} min"
    if seconds < 2 * _DAY_S:
        return f"{seconds / _HOUR_S:.1f} h"
    return f"{seconds / _DAY_S:.1f} days"


def sized(count: int) -> str:
    """Write a number of bytes in the unit that fits.

    >>> sized(300), sized(5 << 20)
    ('300 bytes', '5.0 MiB')
    """
    for unit, name in _SIZES:
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return f"{count} bytes"
