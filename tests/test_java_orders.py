"""Orders of Java's maps and strings, as recorded from Java 17 itself."""

from __future__ import annotations

from itertools import product

import pytest

from assignors.java_order import (
    computed_map_order,
    hash_map_order,
    hash_order,
    string_hash,
    utf16_key,
    utf16_sorted,
)

# (letter pairs, colliding keys, other keys, filled by, order of the colliding ones). The colliding
# keys are made of "Aa" and "BB", which have one hash code; key i is the (7 i)-th of them.
_RECORDED = (
    (
        4,
        9,
        0,
        "put",
        "0 1 2 3 4 5 6 7 8",
    ),
    (
        4,
        9,
        0,
        "computeIfAbsent",
        "8 7 6 5 4 3 2 1 0",
    ),
    (
        4,
        12,
        0,
        "put",
        "1 0 2 11 3 4 5 6 7 8 9 10",
    ),
    (
        4,
        12,
        0,
        "computeIfAbsent",
        "8 9 7 6 5 4 3 2 11 1 10 0",
    ),
    (
        5,
        20,
        0,
        "put",
        "2 1 0 14 3 4 5 6 15 11 7 16 12 8 17 13 9 18 10 19",
    ),
    (
        5,
        20,
        0,
        "computeIfAbsent",
        "6 8 9 18 7 5 4 13 3 17 12 2 16 11 1 15 10 19 0 14",
    ),
    (
        6,
        64,
        0,
        "put",
        "3 0 46 55 28 37 1 2 12 21 30 39 48 57 11 20 29 38 47 56 4 14 23 32 41 50 59 13 22 31 40 "
        "49 58 5 6 16 25 34 43 52 61 15 24 33 42 51 60 7 8 17 26 35 44 53 62 9 18 27 36 45 54 63 "
        "10 19",
    ),
    (
        6,
        64,
        0,
        "computeIfAbsent",
        "4 6 9 18 27 36 45 54 63 8 7 17 26 35 44 53 62 16 25 34 43 52 61 5 15 24 33 42 51 60 14 "
        "23 32 41 50 59 3 13 22 31 40 49 58 12 21 30 39 48 57 2 1 47 56 29 38 11 20 0 55 37 46 19 "
        "28 10",
    ),
    (
        6,
        64,
        40,
        "put",
        "3 0 46 55 28 37 1 2 12 21 30 39 48 57 11 20 29 38 47 56 4 14 23 32 41 50 59 13 22 31 40 "
        "49 58 5 6 16 25 34 43 52 61 15 24 33 42 51 60 7 8 17 26 35 44 53 62 9 18 27 36 45 54 63 "
        "10 19",
    ),
    (
        6,
        64,
        40,
        "computeIfAbsent",
        "4 6 9 18 27 36 45 54 63 8 7 17 26 35 44 53 62 16 25 34 43 52 61 5 15 24 33 42 51 60 14 "
        "23 32 41 50 59 3 13 22 31 40 49 58 12 21 30 39 48 57 2 1 47 56 29 38 11 20 0 55 37 46 19 "
        "28 10",
    ),
    (
        5,
        32,
        300,
        "put",
        "2 1 0 14 23 3 4 5 6 15 24 11 20 29 7 16 25 12 21 30 8 17 26 13 22 31 9 18 27 10 19 28",
    ),
    (
        5,
        32,
        300,
        "computeIfAbsent",
        "6 8 9 18 27 7 5 4 13 22 31 3 17 26 12 21 30 2 16 25 11 20 29 1 15 24 10 19 28 0 14 23",
    ),
)

_RECORDED_INTS = (
    "40960 0 53248 28672 20480 24576 16384 4096 8192 12288 57344 61440 45056 49152 32768 "
    "36864 90112 114688 126976 102400 77824 65536 69632 73728 118784 122880 106496 110592 "
    "94208 98304 81920 86016 151552 139264 155648 143360 131072 159744 147456 135168 "
)


@pytest.mark.parametrize(("pairs", "many", "others", "filled_by", "order"), _RECORDED)
def test_a_bucket_of_colliding_keys_is_ordered_as_in_java(
    pairs: int, many: int, others: int, filled_by: str, order: str
) -> None:
    """Lists, tables that grow early, tree bins, and tree bins that were split."""
    all_names = ["".join(letters) for letters in product(("Aa", "BB"), repeat=pairs)]
    names = [all_names[i * 7 % len(all_names)] for i in range(many)]
    keys = names + [f"k{i}" for i in range(others)]
    ordered = hash_map_order(keys) if filled_by == "put" else computed_map_order(keys)
    assert [names.index(key) for key in ordered if not key.startswith("k")] == [int(i) for i in order.split()]
    assert sorted(ordered) == sorted(keys)


def test_a_tree_of_different_hashes_is_ordered_as_in_java() -> None:
    """Forty numbers that share their lowest twelve bits: trees that are split as the table grows."""
    numbers = [i * 37 % 40 * 4096 for i in range(40)]
    ordered = hash_order(numbers, lambda number: number, lambda number: number)
    assert ordered == [int(number) for number in _RECORDED_INTS.split()]


def test_hash_codes_are_those_of_java() -> None:
    """Over UTF-16 units, wrapped to 32 bits, of any length."""
    assert [string_hash(text) for text in ("\U0001f600x", "é", "x" * 600)] == [54959989, 233, -485616640]


def test_strings_compare_by_utf16_units() -> None:
    """Surrogates come before the private use area, lone ones are no error, the rest is as in Python."""
    assert utf16_sorted(["\ue000", "\U0001f600", "b", "a"]) == ["a", "b", "\U0001f600", "\ue000"]
    assert utf16_sorted(["b", "é", "a"]) == ["a", "b", "é"]
    assert utf16_key("\ud800") == b"\xd8\x00"


def test_the_table_grows_with_the_call_after_the_one_that_filled_it() -> None:
    """A computeIfAbsent asks before it looks: a call for a key that is there grows the table all the same."""
    # "@" and "0" share a bucket among sixteen, not among thirty-two.
    keys = ["@", "0", *(chr(ord("A") + i) for i in range(11))]
    assert computed_map_order(keys).index("0") + 1 == computed_map_order(keys).index("@")
    grown = computed_map_order([*keys, "A"])
    assert grown.index("@") < grown.index("0")
