"""Tables that are checked, and suites that check them, in as few words as a test needs."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

import checkpoints.run
from checkpoints.expectations import CHECK_COLUMNS, COUNT_COLUMNS
from checkpoints.run import CheckResult, load_suite

BALANCE = Path(checkpoints.run.__file__).with_name("balance.json")
CRITICAL = {*COUNT_COLUMNS} - {"excess_spread", "excess_moves"}

balance = cache(lambda: load_suite("balance"))


def row(group_id: str, version: int = 1, **changed: Any) -> dict[str, Any]:
    """Describe one faultless version, apart from what is changed."""
    faultless = {
        "cluster": "main",
        "group_id": group_id,
        "version": version,
        "protocol": "range",
        "group_kind": "computed",
        "is_final": True,
        **dict.fromkeys(COUNT_COLUMNS, 0),
    }
    return {**faultless, **changed}


def table(*rows: dict[str, Any]) -> pd.DataFrame:
    """Make a pandas frame, whose counts have nulls as Arrow's do: floats where one is null."""
    return pd.DataFrame(list(rows), columns=CHECK_COLUMNS)


def suite_file(folder: Path, *entries: Any, name: str = "edited.json") -> Path:
    """Write a suite of these expectations."""
    path = folder / name
    path.write_text(json.dumps({"name": "edited", "expectations": list(entries), "meta": {}}))
    return path


def entry(
    type: str = "expect_column_values_to_be_between", check: str = "edited", **kwargs: Any
) -> dict[str, Any]:
    """Write one expectation as a person would in a suite's file."""
    return {"type": type, "kwargs": kwargs, "meta": {"check": check}}


def balance_entry(check: str) -> dict[str, Any]:
    """Take one expectation out of the suite of this package."""
    entries = json.loads(BALANCE.read_text())["expectations"]
    return next(e for e in entries if e["meta"]["check"] == check)


def failed(results: list[CheckResult]) -> list[CheckResult]:
    """Keep the results that say no."""
    return [result for result in results if not result.success]


def of_check(results: list[CheckResult], check: str) -> list[tuple[str | None, bool, str]]:
    """Keep one check's results: (group_id, success, observed)."""
    return [(r.group_id, r.success, r.observed) for r in results if r.check == check]
