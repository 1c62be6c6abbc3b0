"""Our answers against Kafka's own Java classes, on a few hundred random cases of each kind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.parity.compare import agree, find_differences
from tests.parity.generate import KINDS, generate_cases

if TYPE_CHECKING:
    from tests.parity.oracle import Oracle

_GOLDEN = Path(__file__).parent / "golden"
_SEED = 2026
_COUNT = 150


@pytest.mark.oracle
@pytest.mark.parametrize("kind", KINDS)
def test_random_cases_are_answered_as_kafka_answers_them(oracle: Oracle, kind: str) -> None:
    """No seeded random case of any kind is answered otherwise than by Kafka 4.3.1."""
    differences = list(find_differences(kind, _COUNT, _SEED, oracle=oracle))
    assert not differences, f"seed {_SEED}, {len(differences)} differences, the first:\n{differences[0]}"


@pytest.mark.oracle
def test_the_oracle_gives_the_golden_answers(oracle: Oracle) -> None:
    """The Java program and the golden files are two witnesses of one truth."""
    cases = (_GOLDEN / "assign-cases-kafka-4.3.1.jsonl").read_text(encoding="utf-8").splitlines()
    results = (_GOLDEN / "assign-results-kafka-4.3.1.jsonl").read_text(encoding="utf-8").splitlines()
    assert [oracle.ask(json.loads(case)) for case in cases] == [json.loads(result) for result in results]


def test_a_seed_gives_the_same_cases_again() -> None:
    """A difference can be made again from kind, seed and count alone."""
    for kind in KINDS:
        assert list(generate_cases(kind, 20, 3)) == list(generate_cases(kind, 20, 3))
        assert list(generate_cases(kind, 20, 3)) != list(generate_cases(kind, 20, 4))


def test_random_cases_are_odd_enough() -> None:
    """The generator makes conflicts, strange bytes, sessions, racks and shared hash codes."""
    text = json.dumps(list(generate_cases("sticky", 400, 1)))
    for oddity in (
        "sub_generation",
        '"user_data": "b64:',
        '"session"',
        '"rack"',
        '"ids"',
        "gone-topic",
        "AaBB",
    ):
        assert oddity in text
    rounds = json.dumps(list(generate_cases("connect-incremental", 200, 1)))
    for oddity in (
        '"lost"',
        '"sync_failed"',
        '"last_completed_generation"',
        '"inconsistent"',
        "gone-connector",
    ):
        assert oddity in rounds


@pytest.mark.parametrize(
    ("kafka", "ours"),
    [
        ({"result": {"A": [["t", 0]]}}, {"result": {"A": [["t", 1]]}}),
        ({"result": {"A": [["t", 0], ["t", 1]]}}, {"result": {"A": [["t", 1], ["t", 0]]}}),
        ({"result": {"A": []}}, {"error": "assignor_error", "message": ""}),
        ({"error": "IllegalStateException", "message": ""}, {"result": {"A": []}}),
        ({"error": "IllegalStateException", "message": ""}, {"error": "bad_case", "message": ""}),
    ],
)
def test_a_difference_is_seen(kafka: dict[str, object], ours: dict[str, object]) -> None:
    """Another partition, another order, or an error on one side only counts as a difference."""
    assert not agree(kafka, ours)
