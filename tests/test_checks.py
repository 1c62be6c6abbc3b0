"""The checks: what is said about every version, and that no check is ever passed over."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import checkpoints.run
from checkpoints.expectations import COUNT_COLUMNS
from checkpoints.run import CheckError, CheckResult, CheckSuite, load_suite, run_checks
from tests.checked_tables import (
    BALANCE,
    CRITICAL,
    balance,
    balance_entry,
    entry,
    failed,
    of_check,
    row,
    suite_file,
    table,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

SPARK_SCHEMA = (
    "cluster string, group_id string, version bigint, protocol string, group_kind string, is_final boolean, "
    + ", ".join(f"{column} int" for column in COUNT_COLUMNS)
)


class TestResults:
    """What comes back for a pandas frame."""

    def test_faultless_versions_pass_every_check(self) -> None:
        """Each check of rows answers for each row, each check of the table once."""
        results = run_checks(table(row("g1"), row("g2"), row("g2", 2)), balance())
        assert failed(results) == []
        assert [r.check for r in results] == [
            "columns_present",
            "one_row_per_version",
            *(column for column in COUNT_COLUMNS for _ in range(3)),
        ]
        assert [(r.group_id, r.version) for r in results if r.check == "foreign_owners"] == [
            ("g1", 1),
            ("g2", 1),
            ("g2", 2),
        ]
        assert [r.group_id for r in results[:2]] == [None, None]

    @pytest.mark.parametrize("column", COUNT_COLUMNS)
    def test_one_bad_row_fails_its_check_and_nothing_else(self, column: str) -> None:
        """The result names the check, the version, what was seen and what is allowed."""
        results = run_checks(table(row("g1"), row("g2", 7, **{column: 3}), row("g3")), balance())
        severity = "critical" if column in CRITICAL else "warning"
        kind = "expect_column_values_to_be_between"
        assert failed(results) == [CheckResult(column, severity, "main", "g2", 7, False, "3", "0", kind)]

    def test_a_negative_count_fails(self) -> None:
        """A count below zero is a fault of the counting, and not a pass."""
        assert [r.observed for r in failed(run_checks(table(row("g1", excess_moves=-1)), balance()))] == [
            "-1"
        ]

    def test_a_column_that_is_not_there_fails_the_table(self) -> None:
        """A column that only conditions look at is missed by name."""
        results = failed(run_checks(table(row("g1")).drop(columns="protocol"), balance()))
        assert [(r.check, r.group_id) for r in results] == [("columns_present", None)]

    def test_a_version_twice_fails_the_table(self) -> None:
        """Two rows of one version are found, because results could not tell them apart."""
        results = failed(run_checks(table(row("g1"), row("g1"), row("g1", 2)), balance()))
        assert [(r.check, r.group_id, r.observed) for r in results] == [
            ("one_row_per_version", None, "2 of 3 rows")
        ]

    def test_null_gives_no_result(self) -> None:
        """Null says that a check does not apply, which is neither a pass nor a failure."""
        rows = table(row("g1", unowned_partitions=None), row("g2", unowned_partitions=2), row("g3"))
        assert of_check(run_checks(rows, balance()), "unowned_partitions") == [
            ("g2", False, "2"),
            ("g3", True, "0"),
        ]

    def test_a_column_of_nulls_gives_no_result(self) -> None:
        """A check that applies to no row at all still ran."""
        rows = table(row("g1", excess_moves=None), row("g2", excess_moves=None))
        assert of_check(run_checks(rows, balance()), "excess_moves") == []

    def test_no_rows_give_results_about_the_table_only(self) -> None:
        """An empty batch is checked like any other."""
        assert [r.check for r in run_checks(table(), balance())] == ["columns_present", "one_row_per_version"]

    def test_the_index_of_the_frame_means_nothing(self) -> None:
        """A frame cut out of another one keeps its labels; failures are still at the right rows."""
        rows = table(row("g1"), row("g2"), row("g3", foreign_owners=1), row("g4"))
        results = run_checks(rows[rows["group_id"] != "g1"], balance())
        assert [r.group_id for r in failed(results)] == ["g3"]

    @settings(max_examples=20, deadline=None)
    @given(
        counts=st.lists(
            st.tuples(*[st.none() | st.integers(0, 2)] * len(COUNT_COLUMNS)), min_size=1, max_size=6
        ),
        data=st.data(),
    )
    def test_every_count_is_judged_and_order_changes_nothing(
        self, counts: list[tuple[int | None, ...]], data: st.DataObject
    ) -> None:
        """A check says true for 0, false for more, nothing for null, in whatever order rows come."""
        rows = [row(f"g{i}", **dict(zip(COUNT_COLUMNS, c, strict=True))) for i, c in enumerate(counts)]
        results = run_checks(table(*data.draw(st.permutations(rows))), balance())
        assert [(r.check, r.group_id, r.success, r.observed) for r in results[2:]] == [
            (column, r["group_id"], r[column] == 0, str(r[column]))
            for column in COUNT_COLUMNS
            for r in rows
            if r[column] is not None
        ]


class TestNothingIsPassedOver:
    """A check that does not run is an error, never a silent pass."""

    @pytest.mark.parametrize("column", COUNT_COLUMNS)
    def test_a_missing_column_is_an_error_that_names_the_check(self, column: str) -> None:
        """The check cannot be answered, so nothing is."""
        with pytest.raises(CheckError, match=f"check '{column}' .* did not run") as caught:
            run_checks(table(row("g1")).drop(columns=column), balance())
        assert caught.value.check == column

    def test_an_exception_inside_an_expectation_is_an_error(self) -> None:
        """Text where a number belongs is not compared, and not passed."""
        with pytest.raises(CheckError, match=r"check 'foreign_owners' .* did not run") as caught:
            run_checks(table(row("g1"), row("g2", foreign_owners="two")), balance())
        assert caught.value.check == "foreign_owners"

    def test_a_check_without_an_answer_is_an_error(self) -> None:
        """Whatever Great Expectations leaves out is missed by name."""
        ghost = dataclasses.replace(balance().checks[-1], name="ghost")
        with pytest.raises(CheckError, match=r"check 'ghost' .* gave no answer"):
            run_checks(table(row("g1")), dataclasses.replace(balance(), checks=(*balance().checks, ghost)))

    def test_an_answer_that_contradicts_itself_is_an_error(self) -> None:
        """A success that comes with failing rows is not believed."""
        from great_expectations.core.expectation_suite import ExpectationSuite

        tolerant = {**balance_entry("foreign_owners")}
        tolerant["kwargs"] = {**tolerant["kwargs"], "mostly": 0.5}
        check = next(c for c in balance().checks if c.name == "foreign_owners")
        suite = CheckSuite(
            source="",
            checks=(check,),
            expectations=ExpectationSuite(name="tolerant", expectations=[tolerant]),
        )
        with pytest.raises(CheckError, match="success is True with 1 unexpected rows"):
            run_checks(table(row("g1"), row("g2", foreign_owners=1)), suite)

    def test_a_frame_without_its_keys_is_an_error(self) -> None:
        """Results without a version could not be told from those about the table."""
        with pytest.raises(CheckError, match=r"lacks \['version'\]"):
            run_checks(table(row("g1")).drop(columns="version"), balance())
        with pytest.raises(CheckError, match="may be null"):
            run_checks(table(row("g1"), row(None)), balance())  # type: ignore[arg-type]

    def test_threads_do_not_see_each_others_rows(self) -> None:
        """Frames checked at once keep their own results."""
        frames = [table(*(row(f"g{n}-{i}", foreign_owners=i % 2) for i in range(n + 1))) for n in range(8)]
        with ThreadPoolExecutor(4) as pool:
            results = list(pool.map(lambda frame: run_checks(frame, balance()), frames))
        assert [len(failed(r)) for r in results] == [(n + 1) // 2 for n in range(8)]
        assert [len(of_check(r, "excess_moves")) for r in results] == [n + 1 for n in range(8)]

    def test_no_table_is_kept_but_the_last(self) -> None:
        """A job that checks for months does not keep what it checked."""
        for version in range(3):
            run_checks(table(row("g1", version)), balance())
        manager = (
            checkpoints.run._batch_definition(True).data_asset.datasource.get_execution_engine().batch_manager
        )
        assert len(manager.batch_cache) == len(manager.batch_data_cache) == 1


QUIET = """
import socket, sys, warnings
def refuse(*arguments): raise AssertionError(f"a connection was opened: {arguments}")
socket.socket.connect = socket.socket.connect_ex = refuse
showwarning = warnings.showwarning
import checkpoints.run
assert not {"great_expectations", "pandas", "pyspark"} & sys.modules.keys(), "imported too early"
import pandas
suite = checkpoints.run.load_suite("balance")
rows = pandas.DataFrame([dict.fromkeys(checkpoints.run.CHECK_COLUMNS, 0)])
checkpoints.run.run_checks(rows, suite)
assert warnings.showwarning is showwarning, "warnings are still captured"
"""


def test_great_expectations_is_lazy_silent_and_leaves_nothing_behind(tmp_path: Path) -> None:
    """No import before it is needed, no connection, no file, no output, no captured warnings."""
    environ = {
        "HOME": str(tmp_path),
        "TMPDIR": str(tmp_path),
        "PYTHONPATH": str(BALANCE.parent.parent),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", QUIET],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def frame(spark: SparkSession) -> Callable[..., DataFrame]:
    """Make Spark frames, materialised as the job's are: they are read once for each expectation."""

    def make(*rows: dict[str, Any]) -> DataFrame:
        return (
            spark.createDataFrame([tuple(r.values()) for r in rows], SPARK_SCHEMA)
            .coalesce(1)
            .localCheckpoint()
        )

    return make


@pytest.mark.spark
class TestSpark:
    """The same for a Spark frame, whose expectations run on executors."""

    def test_results_are_those_of_pandas(self, frame: Callable[..., DataFrame]) -> None:
        """Faultless, failing and null: nothing depends on which engine looked."""
        rows = [
            row("g3", foreign_owners=2),
            row("g1", 4, excess_moves=1),
            row("g2", unowned_partitions=None),
            row("g0"),
        ]
        results = run_checks(frame(*rows), balance())
        assert results == run_checks(table(*rows), balance())
        assert [(r.check, r.group_id) for r in failed(results)] == [
            ("foreign_owners", "g3"),
            ("excess_moves", "g1"),
        ]

    @pytest.mark.parametrize("column", COUNT_COLUMNS)
    def test_one_bad_row_fails_its_check(
        self, frame: Callable[..., DataFrame], tmp_path: Path, column: str
    ) -> None:
        """Each expectation finds the one row that breaks it."""
        suite = load_suite(suite_file(tmp_path, balance_entry(column)))
        results = run_checks(frame(row("g1"), row("g2", 7, **{column: 3})), suite)
        assert [(r.check, r.group_id, r.version, r.success, r.observed) for r in results] == [
            (column, "g1", 1, True, "0"),
            (column, "g2", 7, False, "3"),
        ]

    def test_the_checks_of_the_table_find_what_is_wrong(
        self, frame: Callable[..., DataFrame], tmp_path: Path
    ) -> None:
        """A missing column and a version twice are seen on executors too."""
        suite = load_suite(
            suite_file(tmp_path, *map(balance_entry, ("columns_present", "one_row_per_version")))
        )
        results = run_checks(frame(row("g1"), row("g1"), row("g2")).drop("protocol"), suite)
        assert [(r.check, r.success) for r in results] == [
            ("columns_present", False),
            ("one_row_per_version", False),
        ]

    def test_a_condition_picks_the_rows(self, frame: Callable[..., DataFrame], tmp_path: Path) -> None:
        """The rows outside have no result, as in pandas."""
        condition = {
            "type": "comparison",
            "column": {"name": "protocol"},
            "operator": "==",
            "parameter": "sticky",
        }
        suite = load_suite(
            suite_file(tmp_path, entry(column="excess_moves", max_value=0, row_condition=condition))
        )
        rows = [
            row("g1", excess_moves=1),
            row("g2", protocol="sticky", excess_moves=1),
            row("g3", protocol="sticky"),
        ]
        results = run_checks(frame(*rows), suite)
        assert results == run_checks(table(*rows), suite)
        assert of_check(results, "edited") == [("g2", False, "1"), ("g3", True, "0")]

    def test_a_missing_column_is_an_error_that_names_the_check(
        self, frame: Callable[..., DataFrame], tmp_path: Path
    ) -> None:
        """A check that cannot run on executors is not passed over either."""
        suite = load_suite(suite_file(tmp_path, balance_entry("excess_moves")))
        with pytest.raises(CheckError, match=r"check 'excess_moves' .* did not run"):
            run_checks(frame(row("g1")).drop("excess_moves"), suite)

    def test_frames_are_not_pinned_in_sparks_cache(
        self, frame: Callable[..., DataFrame], tmp_path: Path
    ) -> None:
        """Great Expectations persists every frame unless told not to, and never lets go."""
        rows = frame(row("g1")).select("*")
        run_checks(rows, load_suite(suite_file(tmp_path, balance_entry("excess_moves"))))
        assert not rows.storageLevel.useMemory
