"""How long Connect's leader puts off a revocation that follows on another.

Java takes the greatest delay through a logarithm and a power, and cuts off the
fraction: a maximum of 183855 ms comes out as 183854. Its results are those of
correct rounding, nearly always, while C's library rounds others wrongly; so both
steps are computed here with more digits and rounded once.
"""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from functools import lru_cache

_BASE = 40
_DIGITS = 40


def revocation_delay_ms(successive: int, max_delay_ms: int) -> int:
    """Compute how long the n-th consecutive revoking rebalance is put off.

    Args:
        successive: n, from 1.
        max_delay_ms: scheduled.rebalance.max.delay.ms.

    Returns:
        40, 1600, 64000 ms and so on, then the maximum, which can come out 1 ms
        short. Of the maxima up to a million 53 differ by 1 ms from Java on
        x86-64, whose power is itself off there; up to an hour no whole second does.

    Source: ExponentialBackoff(1, 40, max, no jitter), as made by
        IncrementalCooperativeAssignor.

    >>> [revocation_delay_ms(n, 300_000) for n in (1, 2, 3, 4)]
    [40, 1600, 64000, 300000]
    """
    if max_delay_ms <= 1:
        return max_delay_ms
    exponent, greatest = _exponent_and_power(max_delay_ms)
    return min(_BASE**successive if successive <= exponent else greatest, max_delay_ms)


@lru_cache(maxsize=256)
def _exponent_and_power(max_delay_ms: int) -> tuple[float, int]:
    """Round log40(max) as Java does, and cut 40 to the power of that to an int."""
    with localcontext(prec=_DIGITS):
        exponent = float(Decimal(max_delay_ms).ln()) / math.log(_BASE)
        return exponent, int(float((Decimal(exponent) * Decimal(_BASE).ln()).exp()))
