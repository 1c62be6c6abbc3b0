"""The expectations of a suite: read from JSON one by one, each with its name.

A suite is read strictly, because Great Expectations is lenient where it hurts: its
own `ExpectationSuite` logs an expectation it does not understand and goes on
without it, and a check that is not there never fails.
"""

from __future__ import annotations

import difflib
import json
import logging
import os
import warnings
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from importlib.resources.abc import Traversable

    from great_expectations.core.expectation_suite import ExpectationSuite
    from great_expectations.data_context.data_context.ephemeral_data_context import EphemeralDataContext
    from great_expectations.expectations.expectation import Expectation

KEY_COLUMNS = ("cluster", "group_id", "version")
"""The grain of a checked frame: one row per version of a group."""

COUNT_COLUMNS = (
    "duplicate_owners",
    "foreign_owners",
    "unsubscribed_owners",
    "unknown_partitions",
    "delta_mismatches",
    "unowned_partitions",
    "excess_spread",
    "excess_moves",
)
"""What a checked frame counts about each version; null where a count does not apply."""

CHECK_COLUMNS = (*KEY_COLUMNS, "protocol", "group_kind", "is_final", *COUNT_COLUMNS)
"""The columns of a checked frame: cluster, group_id, protocol, group_kind string,
version bigint, is_final boolean, the counts int."""

SEVERITIES = ("critical", "warning", "info")

_ENTRY_KEYS = ("type", "kwargs", "meta", "notes", "description", "severity", "id", "rendered_content")
_WHERE_KWARGS = ("column", "column_A", "column_B", "column_list", "row_condition")

# These look at each value in the light of the other rows. Which rows a table holds
# depends on how the input was cut into batches, so their answer is about the table
# and never about one version.
_ACROSS_ROWS = frozenset(
    {
        "expect_column_values_to_be_unique",
        "expect_column_values_to_be_increasing",
        "expect_column_values_to_be_decreasing",
        "expect_column_value_z_scores_to_be_less_than",
        "expect_column_values_to_not_be_outliers",
        "expect_compound_columns_to_be_unique",
    }
)
_ABOUT_NULLS = frozenset({"expect_column_values_to_be_null", "expect_column_values_to_not_be_null"})


class CheckError(ValueError):
    """A suite cannot be used, or one of its checks gave no answer.

    `check` is the check's name, None when the suite or the frame as a whole is meant.
    """

    def __init__(self, message: str, *, check: str | None = None) -> None:
        """Keep `check` apart from the message, so that an alert need not parse it."""
        super().__init__(message)
        self.check = check


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One expectation of a suite, and what is needed to read its answer.

    `is_per_row` says that it judges each row alone; `columns` are the ones it
    judges, and `skips_nulls` that a row where the only one is null is passed over.
    `domain` is Great Expectations' own description of the rows it looks at, None
    when those are all rows.
    """

    name: str
    severity: str
    expectation: str
    expected: str
    columns: tuple[str, ...]
    is_per_row: bool
    skips_nulls: bool
    domain: Mapping[str, Any] | None = field(hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckSuite:
    """A suite that was read and understood: `checks` in the file's order."""

    source: str
    checks: tuple[Check, ...]
    expectations: ExpectationSuite = field(repr=False, compare=False)


@cache
def great_expectations_context() -> EphemeralDataContext:
    """Start Great Expectations, once a process: nothing on disk, nothing sent, no bars.

    It is imported here and not above because that takes seconds, and executors
    import this package without ever checking.
    """
    os.environ["GX_ANALYTICS_ENABLED"] = "false"  # read at import: later is too late
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its imports warn about their own future, not ours
        showwarning = warnings.showwarning
        import great_expectations
        from great_expectations.data_context.types.base import (
            DataContextConfig,
            InMemoryStoreBackendDefaults,
            ProgressBarsConfig,
        )

        # The import also sends every warning of the whole process to logging.
        if warnings.showwarning is not showwarning:
            logging.captureWarnings(False)
    return great_expectations.get_context(
        mode="ephemeral",
        project_config=DataContextConfig(
            # By default even an ephemeral context makes a temporary folder for Data Docs.
            store_backend_defaults=InMemoryStoreBackendDefaults(init_temp_docs_sites=False),
            progress_bars=ProgressBarsConfig(globally=False, metric_calculations=False),
            analytics_enabled=False,
        ),
    )


def read_suite(name_or_path: str | Path) -> CheckSuite:
    """Read a suite, strictly, without running it.

    Args:
        name_or_path: The name of a suite of this package ("balance"), or the path
            of a JSON file in Great Expectations' own format. Each expectation
            needs a name of its own under `meta.check`.

    Raises:
        CheckError: The file is not there or holds no suite, or an expectation is
            unknown, is not complete, or has no single meaning for one version.
    """
    path = _suite_path(name_or_path)
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise CheckError(f"{path}: {error}; it must be a suite, as one JSON object") from error
    entries = found.get("expectations") if isinstance(found, dict) else None
    if not isinstance(entries, list) or not entries:
        raise CheckError(f"{path}: 'expectations' is {entries!r}; it must be a list of one or more")
    great_expectations_context()
    from great_expectations.core.expectation_suite import ExpectationSuite

    checks: dict[str, Check] = {}
    expectations = []
    for number, entry in enumerate(entries, 1):
        where = f"{path}: expectation {number}"
        expectation = _expectation(entry, where)
        check = _check(entry, expectation)
        if check.name in checks:
            raise CheckError(
                f"{where}: meta.check {check.name!r} is taken; each expectation needs its own",
                check=check.name,
            )
        checks[check.name] = check
        expectations.append(expectation)
    return CheckSuite(
        source=str(path),
        checks=tuple(checks.values()),
        expectations=ExpectationSuite(name=Path(path.name).stem, expectations=expectations),
    )


def _suite_path(name_or_path: str | Path) -> Traversable:
    """Find the file: a bare word is a suite of this package (perhaps in a shipped zip), all else a path."""
    text = str(name_or_path)
    if Path(text).name != text or text.endswith(".json"):
        return Path(text)
    package = files("checkpoints")
    path = package / f"{text}.json"
    if not path.is_file():
        names = sorted(entry.name for entry in package.iterdir() if entry.name.endswith(".json"))
        known = ", ".join(repr(name.removesuffix(".json")) for name in names)
        raise CheckError(f"unknown suite {text!r}; known: {known}, or the path of a .json file")
    return path


def _expectation(entry: Any, where: str) -> Expectation:
    """Build one expectation, or say what its entry lacks."""
    from great_expectations.exceptions.exceptions import GreatExpectationsError
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration

    if not isinstance(entry, dict):
        raise CheckError(f"{where}: found {entry!r}; it must be an object with 'type', 'kwargs' and 'meta'")
    meta = entry.get("meta")
    name = meta.get("check") if isinstance(meta, dict) else None
    if not isinstance(name, str) or not name:
        raise CheckError(f"{where}: meta.check is {name!r}; it must be the name that results and alerts show")
    where = f"{where} ({name!r})"
    for key in entry:
        if key not in _ENTRY_KEYS:
            near = difflib.get_close_matches(key, _ENTRY_KEYS, n=1)
            hint = f"; did you mean {near[0]!r}" if near else f"; known: {', '.join(_ENTRY_KEYS)}"
            raise CheckError(f"{where}: unknown key {key!r}{hint}", check=name)
    kwargs = entry.get("kwargs")
    if not isinstance(kwargs, dict):
        raise CheckError(f"{where}: kwargs is {kwargs!r}; it must be an object", check=name)
    severity = entry.get("severity", SEVERITIES[0])
    if severity not in SEVERITIES:
        known = ", ".join(SEVERITIES)
        raise CheckError(f"{where}: severity is {severity!r}; it must be one of {known}", check=name)
    # A tolerance over a table would let a group pass or fail by what else is in its batch.
    mostly = kwargs.get("mostly", 1)
    if mostly != 1:
        raise CheckError(f"{where}: mostly is {mostly!r}; it must be 1 (or left out)", check=name)
    # A string is pandas' syntax or Spark's, and a suite must mean the same to both.
    condition = kwargs.get("row_condition")
    if isinstance(condition, str):
        raise CheckError(
            f"{where}: row_condition is the string {condition!r}; it must be an object, such as "
            '{"type": "comparison", "column": {"name": "protocol"}, "operator": "==", "parameter": "range"}',
            check=name,
        )
    try:
        return ExpectationConfiguration(
            type=entry.get("type", ""),
            kwargs=kwargs,
            meta=meta,
            notes=entry.get("notes"),
            description=entry.get("description"),
            severity=severity,
        ).to_domain_obj()
    except (GreatExpectationsError, ValueError, TypeError) as error:
        reason = " ".join(str(error).split())
        raise CheckError(f"{where}: {entry.get('type')!r} cannot be built: {reason}", check=name) from error


def _check(entry: dict[str, Any], expectation: Expectation) -> Check:
    """Note what reading the answer of an expectation takes."""
    from great_expectations.expectations.expectation import (
        ColumnMapExpectation,
        ColumnPairMapExpectation,
        MulticolumnMapExpectation,
    )

    kind, kwargs = entry["type"], entry["kwargs"]
    by_column = isinstance(expectation, ColumnMapExpectation)
    by_columns = isinstance(expectation, ColumnPairMapExpectation | MulticolumnMapExpectation)
    columns = tuple(kwargs[k] for k in ("column", "column_A", "column_B") if k in kwargs)
    domain = None
    if by_columns or kwargs.get("row_condition") is not None:
        names = (*_WHERE_KWARGS, "ignore_row_if")
        # From the expectation and not from the file: defaults count, and conditions are objects.
        domain = {name: getattr(expectation, name) for name in names if hasattr(expectation, name)}
    return Check(
        name=entry["meta"]["check"],
        severity=expectation.severity.value,
        expectation=kind,
        expected=_expected(kind, kwargs, expectation),
        columns=columns or tuple(kwargs.get("column_list", ())),
        is_per_row=(by_column or by_columns) and kind not in _ACROSS_ROWS,
        skips_nulls=by_column and kind not in _ABOUT_NULLS,
        domain=domain,
    )


def _expected(kind: str, kwargs: Mapping[str, Any], expectation: Expectation) -> str:
    """Say in a few words what is expected, from the suite's own numbers.

    Bounds become words; anything else shows its arguments as they are written.
    """
    bounds = {k: v for k, v in kwargs.items() if k not in _WHERE_KWARGS and v is not None}
    low, high = bounds.get("min_value"), bounds.get("max_value")
    if not kind.endswith("_to_be_between") or bounds.keys() - {"min_value", "max_value"}:
        text = ", ".join(f"{k}={json.dumps(v)}" for k, v in bounds.items())
        text = text or kind.removeprefix("expect_").replace("_", " ")
    elif low == high:
        text = f"{low}"
    elif low is None:
        text = f"at most {high}"
    else:
        text = f"at least {low}" if high is None else f"{low} to {high}"
    condition = getattr(expectation, "row_condition", None)
    return text if condition is None else f"{text} where {condition!r}"
