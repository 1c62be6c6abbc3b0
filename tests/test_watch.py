"""`describe --watch`: a live view of the tables, on a terminal and into a pipe."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from console.errors import TablesError
from console.watch import ORDINAL_BITS, Watch, show_live
from streaming.tables import log as job_log
from tests.console_tables import alert_struct, group_row, topic_row, write_empty, write_rows
from tests.kafka_cluster import ROOT, wait_until

COMMAND = [sys.executable, "-m", "console.cli", "describe", "--watch", "0.2", "--tables"]


def moved(partition: int, giver: str | None, taker: str) -> dict[str, object]:
    """Make a delta: one partition of "t" goes to a member."""
    return {
        "change": "assigned",
        "topic": "t",
        "partition": partition,
        "from_member_id": giver,
        "to_member_id": taker,
    }


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    """Give tables with two groups; each has one version, still in the log."""
    write_empty(tmp_path)
    rows = [
        topic_row(1, 2),
        group_row("calm", 1, {"A": [0, 1]}, deltas=[moved(0, None, "A"), moved(1, None, "A")]),
        group_row("busy", 2, {"B": [0]}, deltas=[moved(0, None, "B")]),
    ]
    write_rows(tmp_path, "generations", rows)
    return tmp_path


def text_of(watch: Watch) -> str:
    """Look once, and give what a wide page would show."""
    console = Console(width=160, color_system=None)
    with console.capture() as capture:
        console.print(watch.look())
    return capture.get()


def moves_of(text: str) -> list[str]:
    """List what moved, in the order shown."""
    return [line.rstrip().split("  ")[-1].strip() for line in re.findall(r"^ 2026-.*$", text, re.MULTILINE)]


def test_moves_are_shown_as_they_happen(tables: Path) -> None:
    """The first look shows what the last batches had, later ones add what the log got, newest first."""
    watch = Watch([str(tables)])
    assert moves_of(text_of(watch)) == ["t(0) to B", "t(0,1) to A"]
    assert moves_of(text_of(watch)) == ["t(0) to B", "t(0,1) to A"]
    deltas = [moved(1, "A", "C")]
    write_rows(tables, "generations", [group_row("calm", 3, {"A": [0], "C": [1]}, deltas=deltas)])
    text = text_of(watch)
    assert moves_of(text) == ["t(1) A -> C", "t(0) to B", "t(0,1) to A"]
    assert re.search(r"^ calm .* 3 +2 +2 +0 ", text, re.MULTILINE)


def test_only_the_last_moves_are_kept(tables: Path) -> None:
    """However much happens between two looks, eight rebalances are shown: the last."""
    watch = Watch([str(tables)])
    text_of(watch)
    rows = [group_row("calm", n, {"A": [0]}, deltas=[moved(n, None, "A")]) for n in range(3, 15)]
    write_rows(tables, "generations", rows)
    assert moves_of(text_of(watch)) == [f"t({n}) to A" for n in range(14, 6, -1)]


def test_the_first_look_goes_back_a_little_and_no_further(tmp_path: Path) -> None:
    """It shows the moves of the last 50 batches, also where the state changed since, and none before."""
    write_empty(tmp_path)
    rows = [group_row("calm", n, {"A": [0]}, deltas=[moved(n, None, "A")]) for n in (100, 150, 151)]
    state = group_row("calm", 151, {"A": [0]}, kind="state", log_seq=(151 << 24) + 7)
    write_rows(tmp_path, "generations", [*rows, state])
    assert moves_of(text_of(Watch([str(tmp_path)]))) == ["t(151) to A", "t(150) to A"]
    assert ORDINAL_BITS == job_log.ORDINAL_BITS


def test_one_group_of_one_cluster_is_watched_alone(tables: Path) -> None:
    """A group's name and a cluster's leave all others out, moves included, and show the members."""
    far = group_row("calm", 3, {"F": [0]}, cluster="d", deltas=[moved(0, None, "F")])
    write_rows(tables, "generations", [far])
    calm, there = Watch([str(tables)], "calm", "c"), Watch([str(tables)], None, "d")
    text = text_of(calm)
    assert moves_of(text) == ["t(0,1) to A"]
    assert "Members of calm (c)" in text
    assert "busy" not in text
    assert moves_of(text_of(there)) == ["t(0) to F"]
    for number, name in ((4, "busy"), (5, "calm")):
        write_rows(tables, "generations", [group_row(name, number, {"B": [1]}, deltas=[moved(1, None, "B")])])
    assert moves_of(text_of(calm)) == ["t(1) to B", "t(0,1) to A"]
    assert moves_of(text_of(there)) == ["t(0) to F"]


def test_a_deployment_without_groups_is_watched_until_there_are_some(tmp_path: Path) -> None:
    """Empty tables show no groups and no moves; the first group appears at the next look."""
    write_empty(tmp_path)
    watch = Watch([str(tmp_path)])
    assert moves_of(text_of(watch)) == []
    write_rows(tmp_path, "generations", [group_row("new", 1, {"A": [0]}, deltas=[moved(0, None, "A")])])
    assert moves_of(text_of(watch)) == ["t(0) to A"]


def test_tables_that_are_not_there_end_the_view(tmp_path: Path) -> None:
    """A look without tables raises what the command line tells in one line."""
    with pytest.raises(TablesError, match="run the job first"):
        show_live(Watch([str(tmp_path)]).look, Console(), 0.1, seconds=5)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_pipe_gets_one_view_after_the_other(tables: Path, tmp_path: Path, number: signal.Signals) -> None:
    """Without a terminal views follow each other as plain text, until Ctrl-C or SIGTERM end it with 0."""
    shown = tmp_path / "shown.txt"
    with shown.open("wb") as output:
        process = subprocess.Popen([*COMMAND, str(tables)], cwd=ROOT, stdout=output, stderr=subprocess.PIPE)
    try:
        wait_until(lambda: shown.read_bytes().count(b"\nGroups") >= 3, 30, "there are no three views")
        process.send_signal(number)
        _, error = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, error) == (0, b"")
    assert b"\x1b" not in shown.read_bytes()


def test_a_terminal_gets_one_view_drawn_over_the_last(tables: Path) -> None:
    """On a terminal the view is redrawn in place; Ctrl-C leaves the cursor visible, and 1 while it fires."""
    loud = group_row("loud", 3, {"A": [0]}, alerts=[alert_struct("firing")])
    write_rows(tables, "generations", [loud])
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120", "LINES": "40"}
    process = subprocess.Popen(
        [*COMMAND, str(tables)],
        cwd=ROOT,
        env=environment,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    drawn = b""
    try:
        while drawn.count(b"Groups") < 3:
            drawn += os.read(ours, 4096)
        process.send_signal(signal.SIGINT)
        try:
            while more := os.read(ours, 4096):
                drawn += more
        except OSError:
            # Linux says so when the last process has closed the other end.
            pass
        assert process.wait(30) == 1
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    assert b"\x1b[1A" in drawn, "the cursor goes up over the last view"
    assert drawn.rindex(b"\x1b[?25h") > drawn.rindex(b"\x1b[?25l"), "the cursor is shown again"


def test_a_view_for_people_is_not_for_machines(tables: Path) -> None:
    """--watch with --json is wrong usage."""
    done = subprocess.run(
        [*COMMAND, str(tables), "--json"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "--watch or --json, not both" in done.stderr
