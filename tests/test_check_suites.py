"""The suites: the one of this package, those that users write, and those that are broken."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from checkpoints.expectations import COUNT_COLUMNS
from checkpoints.run import CheckError, load_suite, run_checks
from streaming.tables import schemas
from tests.checked_tables import BALANCE, CRITICAL, balance, entry, of_check, row, suite_file, table

if TYPE_CHECKING:
    from pathlib import Path


class TestSuite:
    """The suite of this package, as a file."""

    def test_checks_every_count_of_the_log_and_no_other_column(self) -> None:
        """What the log counts about a version is what the suite judges."""
        assert list(COUNT_COLUMNS) == [name for name, _ in schemas._CHECK_INPUTS]
        judged = {check.columns for check in balance().checks if check.is_per_row}
        assert judged == {(column,) for column in COUNT_COLUMNS}

    def test_severities_are_those_that_hold_back_a_generation(self) -> None:
        """Ownership is critical, spread and moves are a warning."""
        by_severity = {c.name: c.severity for c in balance().checks if c.is_per_row}
        assert by_severity == {c: "critical" if c in CRITICAL else "warning" for c in COUNT_COLUMNS}

    def test_is_in_great_expectations_own_format(self) -> None:
        """Great Expectations reads the file itself, with nothing lost and a sentence for each expectation."""
        from great_expectations.core.expectation_suite import ExpectationSuite

        balance()
        found = ExpectationSuite(**json.loads(BALANCE.read_text())).to_json_dict()["expectations"]
        written = json.loads(BALANCE.read_text())["expectations"]
        assert [(e["type"], e["meta"]["check"]) for e in found] == [
            (e["type"], e["meta"]["check"]) for e in written
        ]
        assert all(str(e["notes"]).endswith(".") for e in written)


class TestEditedSuites:
    """A suite that a user wrote or changed."""

    def test_a_raised_bound_lets_pass_what_it_allows(self, tmp_path: Path) -> None:
        """The bound in the file is the bound in the results."""
        suite = load_suite(suite_file(tmp_path, entry(column="excess_spread", max_value=2)))
        results = run_checks(table(row("g1", excess_spread=2), row("g2", excess_spread=3)), suite)
        assert [(r.group_id, r.success, r.expected) for r in results] == [
            ("g1", True, "at most 2"),
            ("g2", False, "at most 2"),
        ]

    def test_severity_is_critical_unless_the_file_says_otherwise(self, tmp_path: Path) -> None:
        """Any expectation counts as critical, as it does for Great Expectations itself."""
        entries = [entry(check="a", column="version", min_value=1)]
        entries += [
            {**entry(check=s, column="version", min_value=1), "severity": s} for s in ("warning", "info")
        ]
        suite = load_suite(suite_file(tmp_path, *entries))
        assert [c.severity for c in suite.checks] == ["critical", "warning", "info"]

    def test_a_condition_picks_the_rows_that_a_check_applies_to(self, tmp_path: Path) -> None:
        """Rows outside the condition have no result."""
        condition = {
            "type": "comparison",
            "column": {"name": "protocol"},
            "operator": "==",
            "parameter": "sticky",
        }
        suite = load_suite(
            suite_file(tmp_path, entry(column="excess_moves", max_value=0, row_condition=condition))
        )
        rows = table(
            row("g1", excess_moves=1),
            row("g2", protocol="sticky", excess_moves=1),
            row("g3", protocol="sticky"),
        )
        assert of_check(run_checks(rows, suite), "edited") == [("g2", False, "1"), ("g3", True, "0")]
        assert suite.checks[0].expected == "at most 0 where protocol == sticky"

    def test_two_columns_can_be_compared(self, tmp_path: Path) -> None:
        """The result shows both; a row where both are null has none."""
        pair = entry(
            "expect_column_pair_values_to_be_equal",
            column_A="excess_spread",
            column_B="excess_moves",
            ignore_row_if="both_values_are_missing",
        )
        suite = load_suite(suite_file(tmp_path, pair))
        rows = table(row("g1"), row("g2", excess_moves=4), row("g3", excess_spread=None, excess_moves=None))
        assert of_check(run_checks(rows, suite), "edited") == [
            ("g1", True, "excess_spread=0, excess_moves=0"),
            ("g2", False, "excess_spread=0, excess_moves=4"),
        ]

    @pytest.mark.parametrize(
        ("kind", "expected"),
        [
            ("expect_column_values_to_not_be_null", [("g1", True, "0"), ("g2", False, "null")]),
            ("expect_column_values_to_be_null", [("g1", False, "0"), ("g2", True, "null")]),
        ],
    )
    def test_null_is_judged_by_the_expectations_about_it(
        self, tmp_path: Path, kind: str, expected: list[tuple[str, bool, str]]
    ) -> None:
        """Where null is the point, every row has a result."""
        suite = load_suite(suite_file(tmp_path, entry(kind, column="unowned_partitions")))
        results = run_checks(table(row("g1"), row("g2", unowned_partitions=None)), suite)
        assert of_check(results, "edited") == expected

    def test_text_columns_can_be_checked(self, tmp_path: Path) -> None:
        """An expectation may be about any of the columns."""
        suite = load_suite(
            suite_file(
                tmp_path, entry("expect_column_values_to_be_in_set", column="protocol", value_set=["sticky"])
            )
        )
        results = run_checks(table(row("g1"), row("g2", protocol="sticky")), suite)
        assert [(r.group_id, r.success, r.observed, r.expected) for r in results] == [
            ("g1", False, "range", 'value_set=["sticky"]'),
            ("g2", True, "sticky", 'value_set=["sticky"]'),
        ]

    @pytest.mark.parametrize(
        ("written", "observed"),
        [
            (entry("expect_column_sum_to_be_between", column="excess_moves", max_value=3), "4"),
            (entry("expect_column_max_to_be_between", column="excess_moves", max_value=3), "4"),
            (entry("expect_column_values_to_be_unique", column="protocol"), "2 of 2 rows"),
            (entry("expect_table_row_count_to_equal", value=1), "2"),
        ],
    )
    def test_what_looks_across_rows_is_about_the_table(
        self, tmp_path: Path, written: dict[str, Any], observed: str
    ) -> None:
        """Which versions share a table depends on the batch, so no version is blamed."""
        results = run_checks(
            table(row("g1"), row("g2", excess_moves=4)), load_suite(suite_file(tmp_path, written))
        )
        assert [(r.group_id, r.success, r.observed) for r in results] == [(None, False, observed)]


BETWEEN = entry(column="excess_moves", max_value=0)
BROKEN: dict[str, tuple[Any, str]] = {
    "not JSON": (b'{"expectations": [', "must be a suite"),
    "not an object": ([BETWEEN], "'expectations' is None"),
    "no expectations": (
        {"name": "x", "expectations": []},
        r"'expectations' is \[\]; it must be a list of one",
    ),
    "no name": ({"expectations": [{**BETWEEN, "meta": {}}]}, "expectation 1: meta.check is None"),
    "a name twice": ({"expectations": [BETWEEN, BETWEEN]}, "expectation 2: meta.check 'edited' is taken"),
    "an entry that is text": ({"expectations": ["unique"]}, "found 'unique'"),
    "no kwargs": ({"expectations": [{k: v for k, v in BETWEEN.items() if k != "kwargs"}]}, "kwargs is None"),
    "an unknown key": (
        {"expectations": [{**BETWEEN, "severty": "info"}]},
        "'severty'; did you mean 'severity'",
    ),
    "an unknown severity": (
        {"expectations": [{**BETWEEN, "severity": "major"}]},
        "severity is 'major'; it must be",
    ),
    "an unknown expectation": (
        {"expectations": [entry("expect_balance", column="version")]},
        "'expect_balance'",
    ),
    "an unknown argument": ({"expectations": [entry(column="version", max_valu=3, max_value=1)]}, "max_valu"),
    "no bound": ({"expectations": [entry(column="version")]}, "cannot both be None"),
    "a tolerance": (
        {"expectations": [entry(column="version", max_value=0, mostly=0.9)]},
        "mostly is 0.9; it must",
    ),
    "an unknown column": (
        {"expectations": [entry(column="spred", max_value=0)]},
        "'edited' .* did not run.*spred",
    ),
    "a condition as text": (
        {"expectations": [entry(column="version", max_value=0, row_condition="a > 1")]},
        "row_condition is the string 'a > 1'",
    ),
    "a condition on an unknown column": (
        {
            "expectations": [
                entry(
                    column="version",
                    min_value=0,
                    row_condition={"type": "nullity", "column": {"name": "protokol"}, "is_null": False},
                )
            ]
        },
        "'edited' .* did not run",
    ),
}


@pytest.mark.parametrize(("written", "message"), BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_suite_is_an_error_that_names_file_and_place(
    tmp_path: Path, written: Any, message: str
) -> None:
    """Nothing of a suite is skipped: a mistake in it stops the job before it starts."""
    path = tmp_path / "mine.json"
    path.write_bytes(written if isinstance(written, bytes) else json.dumps(written).encode())
    with pytest.raises(CheckError, match=rf"mine\.json: .*{message}"):
        load_suite(path)


def test_a_suite_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    """A name is looked up in the package, a path where it points to."""
    with pytest.raises(CheckError, match="unknown suite 'blance'; known: 'balance'"):
        load_suite("blance")
    with pytest.raises(CheckError, match=r"none\.json: .*No such file"):
        load_suite(tmp_path / "none.json")
