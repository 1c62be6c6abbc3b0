"""Kafka 4.3.1's own answers, kept as files, are given to the last partition and in list order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from console.assign_lines import answer_lines

_GOLDEN = Path(__file__).parent / "golden"


def _pairs(kind: str) -> list[tuple[str, dict[str, Any]]]:
    cases = (_GOLDEN / f"{kind}-cases-kafka-4.3.1.jsonl").read_text(encoding="utf-8").splitlines()
    results = (_GOLDEN / f"{kind}-results-kafka-4.3.1.jsonl").read_text(encoding="utf-8").splitlines()
    return [(case, json.loads(result)) for case, result in zip(cases, results, strict=True)]


def _parameters(kind: str) -> list[Any]:
    return [
        pytest.param(case, result, id=f"{json.loads(case)['assignor']}-{result['id']}")
        for case, result in _pairs(kind)
    ]


# "odd" are small random cases chosen because each walks through the client-side assignors on a way that no
# shorter one takes: conflicting claims, shrunk topics, gaps, racks, unsubscribed owners, Kafka's exceptions.
@pytest.mark.parametrize(("case", "kafka"), [*_parameters("assign"), *_parameters("odd")])
def test_every_golden_case_is_answered_as_kafka_answers_it(case: str, kafka: dict[str, Any]) -> None:
    """Each case gives Kafka's result: same members, partitions and order, errors for errors."""
    (ours,) = answer_lines([case])
    if "error" in kafka:
        assert "error" in ours
    else:
        assert ours == kafka


def test_the_golden_files_hold_twenty_cases_of_each_kind() -> None:
    """A file cut short would make the comparison above mean less without failing."""
    kinds = [json.loads(case)["assignor"] for case, _ in _pairs("assign")]
    assert {kind: kinds.count(kind) for kind in kinds} == dict.fromkeys(
        (
            "range",
            "roundrobin",
            "sticky",
            "cooperative-sticky",
            "server-range",
            "server-uniform",
            "connect-eager",
            "connect-incremental",
        ),
        20,
    )
