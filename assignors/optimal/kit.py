"""What the functions of the optimal assignor work with: lists as they stand, or arrays and numba.

numba costs half a second to load and the compiled functions some more, so it serves large groups, and
others once it is there or they are very many. What it compiled is kept beside the modules, or where that
cannot be written in the user's cache directory (NUMBA_CACHE_DIR moves it), so that later processes and
Spark's workers find it.
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
    partitions.find_codes,
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
    another; `spread` repeats 0, 1, 2, ... each as often as is said. Partitions and who
    has them are small numbers and many: `narrow` is `filled` for such, and `room` makes
    place for what an Assignment keeps, as it keeps it and as the functions write it.
    """

    numbers: Callable[[Iterable[int]], Ints]
    filled: Callable[[int, int], Ints]
    narrow: Callable[[int, int], Ints]
    joined: Callable[[Sequence[Sequence[int]]], Ints]
    spread: Callable[[Sequence[int]], Ints]
    room: Callable[[int], tuple[Sequence[int], Ints]]
    do: Mapping[str, Callable[..., Any]]


def _plainly_filled(count: int, value: int) -> Ints:
    return [value] * count


def _plain_room(count: int) -> tuple[Sequence[int], Ints]:
    made = [0] * count
    return made, made


PLAIN = Kit(
    list,
    _plainly_filled,
    _plainly_filled,
    lambda parts: list(chain.from_iterable(parts)),
    lambda counts: [number for number, count in enumerate(counts) for _ in repeat(None, count)],
    _plain_room,
    {function.__name__: function for function in _FUNCTIONS},
)


LEAST_LARGE = 20_000
"""Arcs and partitions of a group for which loading numba pays."""
_LEAST_LOADED = 200
"""Arcs and partitions from which on the compiled functions are the faster ones, once they are loaded."""
_MOST_PLAIN = 15_000_000
"""Arcs and partitions of such groups, one after another, that take plain Python as long as compiling does."""

_done_plainly = 0


def kit_for(size: int) -> Kit:
    """Choose how a group of so many arcs and partitions is worked on; the answer is the same.

    Many groups of middling size make numba worth loading, as one large group does.
    """
    global _done_plainly
    if size >= LEAST_LARGE:
        return compiled()
    if size < _LEAST_LOADED:
        return PLAIN
    if compiled.cache_info().currsize or _done_plainly >= _MOST_PLAIN:
        return compiled()
    _done_plainly += size
    return PLAIN


@cache
def compiled() -> Kit:
    """Make the kit of arrays of int64."""
    import numba
    import numpy as np

    def numbers(values: Any) -> Any:
        if isinstance(values, np.ndarray):
            return values.copy()
        if isinstance(values, list | tuple | array):
            return np.array(values, dtype=np.int64)
        return np.fromiter(values, dtype=np.int64)

    def filled(count: int, value: int) -> Any:
        return np.full(count, value, dtype=np.int64)

    def narrow(count: int, value: int) -> Any:
        return np.full(count, value, dtype=np.int32)

    def joined(parts: Any) -> Any:
        made = np.empty(sum(map(len, parts)), dtype=np.int32)
        at = 0
        for part in parts:
            end = at + len(part)
            made[at:end] = np.arange(part.start, part.stop) if isinstance(part, range) else part
            at = end
        return made

    def spread(counts: Any) -> Any:
        return np.repeat(np.arange(len(counts), dtype=np.int32), np.array(counts, dtype=np.int64))

    def room(count: int) -> Any:
        kept = array("i", bytes(4 * count))
        return kept, np.asarray(kept)

    # A compiled function calls compiled ones: each is made anew with those before it for its globals.
    names: dict[str, Any] = vars(steps) | vars(start) | vars(partitions)
    do: dict[str, Callable[..., Any]] = {}
    for function in (*steps.HELPERS, *partitions.HELPERS, *PLAIN.do.values()):
        own = FunctionType(function.__code__, names, function.__name__)
        own.__module__, own.__qualname__ = function.__module__, function.__qualname__
        names[function.__name__] = do[function.__name__] = _compile(numba, own)
    return Kit(numbers, filled, narrow, joined, spread, room, do)


def _compile(numba: Any, function: FunctionType) -> Callable[..., Any]:
    try:
        return numba.njit(cache=True)(function)  # type: ignore[no-any-return]
    except RuntimeError:
        # There is no place for a cache, as in a zip file on a worker: compiled once in each process.
        return numba.njit(function)  # type: ignore[no-any-return]
