"""What the functions of the optimal assignor work with: lists as they stand, or arrays and numba.

numba costs half a second to load and the compiled functions some more, so it serves large groups
only. What it compiled is kept beside the modules, or where that cannot be written in the user's
cache directory (NUMBA_CACHE_DIR moves it), so that later processes and Spark's workers find it.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from functools import cache
from itertools import chain, repeat
from types import FunctionType
from typing import TYPE_CHECKING, Any

from assignors.optimal import partitions, start, steps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from assignors.optimal.steps import Ints

_FUNCTIONS = (
    start.pour,
    start.begin,
    steps.search,
    steps.push,
    steps.divide,
    partitions.settle_claims,
    partitions.count_owned,
    partitions.hand_out,
    partitions.level,
    partitions.list_by_member,
    partitions.withhold,
    partitions.count_moves,
    partitions.names_twice,
    partitions.arcs_by_row,
    partitions.arcs_by_member,
)


@dataclass(frozen=True, slots=True)
class Kit:
    """How sequences are made, and the functions that take such, by name.

    `numbers` copies; `filled` repeats one number; `joined` puts sequences one after
    another; `spread` repeats 0, 1, 2, ... each as often as is said; `stored` makes
    what an Assignment keeps.
    """

    numbers: Callable[[Iterable[int]], Ints]
    filled: Callable[[int, int], Ints]
    joined: Callable[[Sequence[Sequence[int]]], Ints]
    spread: Callable[[Sequence[int]], Ints]
    stored: Callable[[Ints], Sequence[int]]
    do: Mapping[str, Callable[..., Any]]


PLAIN = Kit(
    list,
    lambda count, value: [value] * count,
    lambda parts: list(chain.from_iterable(parts)),
    lambda counts: [number for number, count in enumerate(counts) for _ in repeat(None, count)],
    lambda made: made,
    {function.__name__: function for function in _FUNCTIONS},
)


@cache
def compiled() -> Kit:
    """Make the kit of arrays of int64."""
    import numba
    import numpy as np

    def numbers(values: Any) -> Any:
        if isinstance(values, list | tuple | array | np.ndarray):
            return np.array(values, dtype=np.int64)
        return np.fromiter(values, dtype=np.int64)

    def filled(count: int, value: int) -> Any:
        return np.full(count, value, dtype=np.int64)

    def joined(parts: Any) -> Any:
        made = [np.arange(p.start, p.stop) if isinstance(p, range) else np.array(p, np.int64) for p in parts]
        return np.concatenate(made) if made else filled(0, 0)

    def spread(counts: Any) -> Any:
        return np.repeat(np.arange(len(counts)), np.array(counts, dtype=np.int64))

    def stored(made: Any) -> Any:
        return array("i", made.astype(np.int32).tobytes())

    # A compiled function calls compiled ones: each is made anew with those before it for its globals.
    names: dict[str, Any] = vars(steps) | vars(start) | vars(partitions)
    do: dict[str, Callable[..., Any]] = {}
    for function in (*steps.HELPERS, *partitions.HELPERS, *PLAIN.do.values()):
        own = FunctionType(function.__code__, names, function.__name__)
        own.__module__, own.__qualname__ = function.__module__, function.__qualname__
        names[function.__name__] = do[function.__name__] = _compile(numba, own)
    return Kit(numbers, filled, joined, spread, stored, do)


def _compile(numba: Any, function: FunctionType) -> Callable[..., Any]:
    try:
        return numba.njit(cache=True)(function)  # type: ignore[no-any-return]
    except RuntimeError:
        # There is no place for a cache, as in a zip file on a worker: compiled once in each process.
        return numba.njit(function)  # type: ignore[no-any-return]
