"""The one entry to Great Expectations: a frame in, results out.

A suite says what must hold for every version of every group. Great Expectations
answers with the rows that broke an expectation; `run_checks` turns that into one
result for each check and row, and raises rather than let a check go unanswered.
"""

from __future__ import annotations

import threading
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from checkpoints.expectations import (
    CHECK_COLUMNS,
    KEY_COLUMNS,
    Check,
    CheckError,
    CheckSuite,
    great_expectations_context,
    read_suite,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    import pandas as pd
    from great_expectations.core.batch_definition import BatchDefinition
    from great_expectations.core.expectation_validation_result import ExpectationValidationResult
    from great_expectations.execution_engine.execution_engine import ExecutionEngine
    from pyspark.sql import DataFrame as SparkFrame

__all__ = ["CHECK_COLUMNS", "CheckError", "CheckResult", "CheckSuite", "load_suite", "run_checks"]

Key = tuple[str, str, int]

# Great Expectations keeps the last table of a data source under one id, so two
# threads in it at once would check each other's rows.
_one_at_a_time = threading.Lock()


class CheckResult(NamedTuple):
    """What one check said about one version, or about the table (then its key is None).

    `severity` is critical, warning or info. `expectation` is Great Expectations'
    name of what was expected, `expected` its bounds in words.
    """

    check: str
    severity: str
    cluster: str | None
    group_id: str | None
    version: int | None
    success: bool
    observed: str
    expected: str
    expectation: str


def load_suite(name_or_path: str | Path) -> CheckSuite:
    """Read a suite and try it on two rows, so that a mistake shows before the job starts.

    Args:
        name_or_path: The name of a suite of this package ("balance"), or the path
            of a JSON file in Great Expectations' own format.

    Raises:
        CheckError: As `read_suite`, or a check could not run on the columns that
            it will meet: it names another column, or needs a database.
    """
    import pandas as pd

    suite = read_suite(name_or_path)
    texts = {"cluster": "c", "group_id": "g", "protocol": "range", "group_kind": "computed"}
    trial = pd.DataFrame(
        {**dict.fromkeys(CHECK_COLUMNS, 0), **texts, "is_final": True}, index=range(2), columns=CHECK_COLUMNS
    )
    trial["version"] = trial.index
    try:
        run_checks(trial, suite)
    except CheckError as error:
        raise CheckError(f"{suite.source}: {error}", check=error.check) from error
    return suite


def run_checks(frame: pd.DataFrame | SparkFrame, suite: CheckSuite) -> list[CheckResult]:
    """Hold every row of a frame against every check of a suite.

    Args:
        frame: The columns of CHECK_COLUMNS, one row per (cluster, group_id,
            version). A Spark frame is read several times: materialise it first.
        suite: From `load_suite`.

    Returns:
        By check, in the suite's order. A check of rows has one result per row, by
        (cluster, group_id, version); a row whose column is null has none, because
        null says that the check does not apply. A check of the table has one,
        whose key is None.

    Raises:
        CheckError: The frame has no keys or null ones, or a check gave no answer.
    """
    table = _Table(frame, suite)
    with _one_at_a_time:
        definition = _batch_definition(table.is_pandas)
        batch = definition.get_batch(batch_parameters={"dataframe": table.frame})
        report = batch.validate(suite.expectations, result_format=table.result_format())
        # Failed expectations come first in the report, so answers go by name.
        answers = {a.expectation_config.meta["check"]: a for a in report.results if a.expectation_config}
        results: list[CheckResult] = []
        for check in suite.checks:
            answer = _answer(check, answers)
            if check.is_per_row:
                results += _row_results(check, answer, table, batch.datasource.get_execution_engine())
            else:
                results.append(_table_result(check, answer))
    return results


class _Table:
    """A frame under check, and in the driver the values that the results will show."""

    def __init__(self, frame: pd.DataFrame | SparkFrame, suite: CheckSuite) -> None:
        import pandas as pd

        missing = [column for column in KEY_COLUMNS if column not in frame.columns]
        if missing:
            raise CheckError(f"the checked frame lacks {missing}; its key is {list(KEY_COLUMNS)}")
        shown = {column for check in suite.checks if check.is_per_row for column in check.columns}
        # A column that is not there is left to Great Expectations, whose answer names the check.
        names = [*KEY_COLUMNS, *sorted(shown.difference(KEY_COLUMNS).intersection(frame.columns))]
        self.is_pandas = isinstance(frame, pd.DataFrame)
        self.frame: Any
        if isinstance(frame, pd.DataFrame):
            # Failing rows are named by their label, so labels must be positions.
            self.frame = frame.reset_index(drop=True)
            self.values = {name: _pandas_values(self.frame[name]) for name in names}
        else:
            self.frame = frame
            read = frame.select(*names).toArrow()
            self.values = {name: read.column(name).to_pylist() for name in names}
        self.keys: list[Key] = list(zip(*(self.values[name] for name in KEY_COLUMNS), strict=True))
        for key in self.keys:
            if None in key:
                raise CheckError(f"the checked frame has the key {key}; no part of a key may be null")
        self.order = sorted(range(len(self.keys)), key=self.keys.__getitem__)

    def result_format(self) -> dict[str, Any]:
        """Ask for every failing row: by position in pandas, by key in Spark."""
        by_key = {} if self.is_pandas else {"unexpected_index_column_names": list(KEY_COLUMNS)}
        return {"result_format": "COMPLETE", "return_unexpected_index_query": False, **by_key}

    def keys_of(self, failing: Iterable[Any]) -> set[Key]:
        """Give the keys of the rows that a result names."""
        if self.is_pandas:
            return {self.keys[position] for position in failing}
        return {(row["cluster"], row["group_id"], row["version"]) for row in failing}

    def keys_in(self, domain: dict[str, Any], engine: ExecutionEngine[Any]) -> set[Key]:
        """Give the keys of the rows that an expectation looked at, as the engine chose them."""
        records: Any = engine.get_domain_records(domain)
        if self.is_pandas:
            return {self.keys[position] for position in records.index}
        return {tuple(row) for row in records.select(*KEY_COLUMNS).collect()}


def _pandas_values(column: pd.Series[Any]) -> list[Any]:
    """Give a column's values as Python's own, None for every kind of null."""
    pairs = zip(column.tolist(), column.isna().tolist(), strict=True)
    return [None if is_null else value for value, is_null in pairs]


@cache
def _batch_definition(is_pandas: bool) -> BatchDefinition[Any]:
    """Register one data source for each kind of frame; every batch goes through it."""
    sources = great_expectations_context().data_sources
    # persist=False: it would pin each batch's frame in Spark's cache and never let go.
    source = sources.add_pandas("pandas") if is_pandas else sources.add_spark("spark", persist=False)
    asset = source.add_dataframe_asset("versions")
    return asset.add_batch_definition_whole_dataframe("all")


def _answer(check: Check, answers: dict[str, ExpectationValidationResult]) -> ExpectationValidationResult:
    """Take a check's answer, if it is one: an exception inside it counts as none.

    Great Expectations writes exceptions in two shapes: one record when the
    expectation could not be planned, one record for each metric that failed.
    """
    where = f"check {check.name!r} ({check.expectation})"
    answer = answers.get(check.name)
    if answer is None:
        raise CheckError(f"{where} gave no answer", check=check.name)
    info = answer.exception_info or {}
    records = [info] if "raised_exception" in info else list(info.values())
    for record in records:
        if record["raised_exception"]:
            reason = " ".join(str(record["exception_message"]).split())
            raise CheckError(f"{where} did not run: {reason}", check=check.name)
    return answer


def _row_results(
    check: Check, answer: ExpectationValidationResult, table: _Table, engine: ExecutionEngine[Any]
) -> list[CheckResult]:
    """Spread one answer over the rows that the check applies to."""
    count, named = answer.result.get("unexpected_count"), answer.result.get("unexpected_index_list") or []
    if count != len(named) or bool(named) is answer.success:
        raise CheckError(
            f"check {check.name!r} ({check.expectation}): success is {answer.success} with "
            f"{count} unexpected rows, {len(named)} of them named; the three must agree",
            check=check.name,
        )
    failing = table.keys_of(named)
    inside = None if check.domain is None else table.keys_in(dict(check.domain), engine)
    judged = table.values[check.columns[0]]
    results = []
    for position in table.order:
        key = table.keys[position]
        success = key not in failing
        is_outside = inside is not None and key not in inside
        if success and (is_outside or (check.skips_nulls and judged[position] is None)):
            continue
        observed = _observed(check, table, position)
        results.append(
            CheckResult(
                check.name, check.severity, *key, success, observed, check.expected, check.expectation
            )
        )
    return results


def _observed(check: Check, table: _Table, position: int) -> str:
    """Show what a check of rows saw in one row; several columns with their names."""
    shown = [_text(table.values[column][position]) for column in check.columns]
    if len(shown) == 1:
        return shown[0]
    return ", ".join(f"{column}={text}" for column, text in zip(check.columns, shown, strict=True))


def _table_result(check: Check, answer: ExpectationValidationResult) -> CheckResult:
    """Make the one result of a check of the table."""
    found = answer.result
    if "unexpected_count" in found:
        observed = f"{found['unexpected_count']} of {found['element_count']} rows"
    else:
        observed = _text(found.get("observed_value"))
    return CheckResult(
        check=check.name,
        severity=check.severity,
        cluster=None,
        group_id=None,
        version=None,
        success=bool(answer.success),
        observed=observed,
        expected=check.expected,
        expectation=check.expectation,
    )


def _text(value: Any) -> str:
    """Show a value as a person would write it: pandas has floats where a column has nulls."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return "null" if value is None else str(value)
