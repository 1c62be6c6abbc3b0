"""The command line: its exit codes, its two outputs, and answers without a JVM."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from console.cli import OUR_DISTRIBUTION, check_no_namesake
from console.errors import UsageError
from tests.console_tables import alert_struct, group_row, topic_row, write_empty, write_rows

ROOT = Path(__file__).resolve().parent.parent
CASE = {
    "assignor": "cooperative-sticky",
    "topics": {"t": 4},
    "members": [
        {"id": "A", "topics": ["t"], "owned": [["t", 0], ["t", 1], ["t", 2]], "generation": 3},
        {"id": "B", "topics": ["t"]},
    ],
}


def counterpoise(
    *arguments: str, stdin: bytes = b"", environ: dict[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run the command in a process of its own, as a user does, where no Java is to be found."""
    inherited = {
        k: v for k, v in os.environ.items() if not k.startswith("COUNTERPOISE_") and k != "JAVA_HOME"
    }
    return subprocess.run(
        [sys.executable, "-m", "console.cli", *arguments],
        cwd=ROOT,
        input=stdin,
        capture_output=True,
        check=False,
        timeout=60,
        env={**inherited, "PATH": "", **(environ or {})},
    )


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    """Give tables with one quiet group and one whose alert fires, all of it still in the log."""
    write_empty(tmp_path)
    rows = [
        topic_row(1, 3),
        group_row("quiet", 1, {"A": [0, 1], "B": [2]}),
        group_row("loud", 2, {"A": [0]}, alerts=[alert_struct("firing")]),
    ]
    write_rows(tmp_path, "generations", rows)
    return tmp_path


@pytest.mark.parametrize("command", ["", "run", "demo", "decode", "assign", "describe", "doctor", "upkeep"])
def test_help_is_there(command: str) -> None:
    """--help of the whole and of each command ends with 0 and goes to stdout."""
    finished = counterpoise(*([command] if command else []), "--help")
    assert (finished.returncode, finished.stderr) == (0, b"")
    assert b"Usage" in finished.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["frobnicate"], "frobnicate"),
        (["run"], "--conf"),
        (["run", "--conf", "nowhere.toml"], "counterpoise: nowhere.toml: No such file"),
        (["run", "--conf", "conf/demo.toml", "--set", "job.tables"], "there is no '='"),
        (["run", "--conf", "conf/demo.toml", "--set", "job.tabels=x"], "did you mean job.tables?"),
        (["run", "--conf", "conf/default.toml"], "sources is empty"),
        (["decode"], "--jsonl"),
        (["assign"], "FILE"),
        (["assign", "nowhere.json"], "nowhere.json: No such file"),
        (["describe", "--tables", "nowhere"], "--tables or --conf"),
        (["describe", "--tables", "x", "--conf", "y"], "not both"),
    ],
)
def test_wrong_usage_and_settings_end_with_2(arguments: list[str], said: str) -> None:
    """What a user can mend is one line on stderr, nothing on stdout, exit code 2, no traceback."""
    finished = counterpoise(*arguments)
    error = finished.stderr.decode()
    assert (finished.returncode, finished.stdout) == (2, b""), error
    assert said in error
    assert "Traceback" not in error


def test_settings_come_from_the_environment_too(tables: Path) -> None:
    """`describe` without options reads the tables that the environment names."""
    finished = counterpoise("describe", "quiet", environ={"COUNTERPOISE_JOB__TABLES": str(tables)})
    assert finished.returncode == 0, finished.stderr


def test_describe_shows_members_and_what_they_own(tables: Path) -> None:
    """`describe GROUP` lists each member with its partitions and ends with 0 while no alert fires."""
    finished = counterpoise("describe", "quiet", "--tables", str(tables))
    text = finished.stdout.decode()
    assert (finished.returncode, finished.stderr) == (0, b"")
    assert "t(0,1)" in text
    assert "client-B" in text
    assert "loud" not in text


def test_describe_ends_with_1_while_an_alert_fires(tables: Path) -> None:
    """A firing alert of the group, or of any group when none is named, gives exit code 1 and is shown."""
    for arguments in (["loud"], []):
        finished = counterpoise("describe", *arguments, "--tables", str(tables))
        assert finished.returncode == 1, finished.stderr
        assert "no members [at all]" in finished.stdout.decode()


def test_describe_as_json_is_for_machines(tables: Path) -> None:
    """--json gives groups, assignments (the unowned too) and alerts, times as RFC 3339."""
    finished = counterpoise("describe", "loud", "--json", "--tables", str(tables))
    described = json.loads(finished.stdout)
    assert finished.returncode == 1
    assert [group["generation_id"] for group in described["groups"]] == [2]
    owners = {row["partition"]: row["member_id"] for row in described["assignments"]}
    assert owners == {0: "A", 1: None, 2: None}
    assert described["assignments"][0]["since_time"] == "2026-03-01T12:02:00+00:00"
    assert described["alerts"][0]["status"] == "firing"


def test_describe_knows_clusters(tables: Path) -> None:
    """--cluster hides the groups of other clusters, and their alerts with them."""
    write_rows(tables, "generations", [group_row("far", 3, {"A": [0]}, cluster="d")])
    finished = counterpoise("describe", "--cluster", "d", "--json", "--tables", str(tables))
    described = json.loads(finished.stdout)
    assert finished.returncode == 0
    assert [group["group_id"] for group in described["groups"]] == ["far"]


def test_describe_of_a_group_that_is_not_there_ends_with_2(tables: Path) -> None:
    """A name that no group has is an error that repeats it."""
    finished = counterpoise("describe", "quite", "--tables", str(tables))
    assert finished.returncode == 2
    assert b"no group 'quite'" in finished.stderr


def test_assign_shows_what_is_kept_and_what_is_given_up(tmp_path: Path) -> None:
    """`assign FILE` prints a table; --json the bare result."""
    file = tmp_path / "case.json"
    file.write_text(json.dumps(CASE), encoding="utf-8")
    shown = counterpoise("assign", str(file))
    bare = counterpoise("assign", str(file), "--json")
    assert (shown.returncode, bare.returncode) == (0, 0), shown.stderr + bare.stderr
    assert json.loads(bare.stdout) == {"A": [["t", 0], ["t", 1]], "B": [["t", 3]]}
    (line,) = (line for line in shown.stdout.decode().splitlines() if line.startswith("│ A"))
    assert [cell.strip() for cell in line.strip("│").split("│")] == ["A", "2", "t(0,1)", "-", "-", "t(2)"]


def test_assign_of_a_case_that_cannot_be_answered_ends_with_2() -> None:
    """An unknown assignor in a single case is an error that lists the known ones."""
    finished = counterpoise("assign", "-", stdin=json.dumps({**CASE, "assignor": "rnage"}).encode())
    assert finished.returncode == 2
    assert b"rnage" in finished.stderr
    assert b"range" in finished.stderr


def test_assign_and_decode_answer_line_by_line() -> None:
    """Each JSON line in gives one out, a bad one an error line, and the exit code stays 0."""
    named = json.dumps({"id": 7, **CASE}).encode()
    assigned = counterpoise("assign", "--jsonl", stdin=named + b"\n{\n")
    decoded = counterpoise("decode", "--jsonl", "--deep", stdin=b"{\n")
    first, second = map(json.loads, assigned.stdout.splitlines())
    assert (assigned.returncode, decoded.returncode) == (0, 0)
    assert first["id"] == 7
    assert second["error"] == json.loads(decoded.stdout)["error"] == "bad_json"


def test_a_namesake_of_our_packages_is_named() -> None:
    """Another distribution that supplies `streaming` stops the command and is named."""
    check_no_namesake({"streaming": [OUR_DISTRIBUTION], "numpy": ["numpy"]})
    with pytest.raises(UsageError, match=r"'streaming'.*'mosaicml-streaming'"):
        check_no_namesake({"streaming": [OUR_DISTRIBUTION, "mosaicml-streaming"]})
