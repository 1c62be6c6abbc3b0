"""The demo on a real Kafka: what it shows, and that nothing is left of it."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest

from demo.schedule import GROUPS, TOPICS, Act, Growth, schedule
from tests.kafka_cluster import ROOT, wait_until

SHOWN_S = 15


class Demo:
    """`python -m demo` in a process group of its own, as a shell starts it, with temporary files in ours."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        """Start it; what it prints goes to two files of the folder."""
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        self.shown, self.said = folder / "shown.txt", folder / "said.txt"
        inherited = {name: value for name, value in os.environ.items() if name != "DEMO_SECONDS"}
        with self.shown.open("wb") as shown, self.said.open("wb") as said:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "demo", *arguments],
                cwd=ROOT,
                env={**inherited, "TMPDIR": str(self.temporary)},
                stdin=subprocess.DEVNULL,
                stdout=shown,
                stderr=said,
                start_new_session=True,
            )

    def messages(self) -> str:
        """Give what it has said so far about what it is doing."""
        return self.said.read_text(encoding="utf-8")

    def processes(self) -> list[str]:
        """List the command lines of all that run with its temporary folder in their environment."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if str(self.temporary).encode() in (entry / "environ").read_bytes():
                    found.append((entry / "cmdline").read_bytes().decode(errors="replace"))
            except OSError:
                continue
        return found

    def assert_nothing_is_left(self) -> None:
        """No process, no file and no listener is there any more."""
        assert self.processes() == []
        assert list(self.temporary.iterdir()) == []
        for port in re.findall(r"127\.0\.0\.1:(\d+)", self.messages()):
            with socket.socket() as probe:
                assert probe.connect_ex(("127.0.0.1", int(port))) != 0, f"port {port} is still open"


@pytest.mark.live
@pytest.mark.slow
@pytest.mark.usefixtures("kafka")
def test_it_shows_all_groups_and_what_moves_and_leaves_nothing(tmp_path: Path) -> None:
    """Every group is shown with members, partitions and rebalances; it ends with 0 and all of it is gone."""
    demo = Demo(tmp_path, "--seconds", str(SHOWN_S))
    assert demo.process.wait(180) == 0, demo.messages()
    last = demo.shown.read_text(encoding="utf-8").split("\nGroups")[-1]
    table, moves = last.split("\nThe last 8 rebalances")
    for group in GROUPS:
        assert re.search(rf"^ {group.group_id} +observed +\w+", table, re.M)
    assert re.search(r"^ \S+ \S+ +(checkout|billing|fraud|reports) +\d+ +rebalance +member_", moves, re.M)
    assert re.search(r"(orders|payments)\([\d,]+\)", moves)
    assert re.search(r"(joins|leaves|crashes in) (checkout|billing|fraud|reports)", table)
    assert "Broker: 127.0.0.1:" in demo.messages()
    demo.assert_nothing_is_left()


@pytest.mark.live
@pytest.mark.usefixtures("kafka")
@pytest.mark.parametrize(
    ("after", "number"), [("Starting the broker", signal.SIGINT), ("Starting the job", signal.SIGTERM)]
)
def test_interrupted_while_it_starts_it_leaves_nothing(
    tmp_path: Path, after: str, number: signal.Signals
) -> None:
    """Ctrl-C in the terminal, or SIGTERM, before anything is shown: exit code 0, and all of it is gone."""
    demo = Demo(tmp_path)
    wait_until(lambda: after in demo.messages(), 90, demo.messages)
    wait_until(lambda: len(demo.processes()) > 1, 30, "it has started nothing")
    os.killpg(demo.process.pid, number)
    assert demo.process.wait(90) == 0, demo.messages()
    demo.assert_nothing_is_left()


@pytest.mark.live
@pytest.mark.usefixtures("kafka")
def test_killed_itself_it_takes_its_processes_along(tmp_path: Path) -> None:
    """After kill -9 broker, members and job end by themselves; only files can be left."""
    demo = Demo(tmp_path)
    wait_until(lambda: any("demo.tethered" in line for line in demo.processes()), 90, demo.messages)
    demo.process.kill()
    demo.process.wait()
    wait_until(lambda: not demo.processes(), 60, lambda: str(demo.processes()))


def test_without_maven_it_says_so(tmp_path: Path) -> None:
    """Where the broker cannot be built it ends with 2 and names what is missing."""
    done = subprocess.run(
        [sys.executable, "-m", "demo"],
        cwd=ROOT,
        env={**os.environ, "PATH": str(tmp_path), "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 2
    assert "needs java, javac, mvn on the PATH" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("seed", range(20))
def test_the_schedule_can_be_played(seed: int) -> None:
    """Who joins was away, who goes was there, a topic only grows, time runs on, and a seed says it all."""
    steps = list(islice(schedule(seed), 400))
    assert steps == list(islice(schedule(seed), 400))
    assert [step.at_s for step in steps] == sorted(step.at_s for step in steps)
    present: dict[str, set[str]] = {group.group_id: set() for group in GROUPS}
    partitions = dict(TOPICS)
    for step in steps:
        if isinstance(step, Growth):
            assert step.partitions > partitions[step.topic]
            partitions[step.topic] = step.partitions
            continue
        there = present[step.group.group_id]
        assert (step.member in there) == (step.do != "join")
        there ^= {step.member}
        assert there or len(step.group.members) == 1
    assert {step.do for step in steps if isinstance(step, Act)} == {"join", "leave", "crash"}
    assert partitions != TOPICS
