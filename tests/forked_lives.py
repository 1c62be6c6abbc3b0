"""Job processes that start quickly: forked from one that has imported all that they need.

Most of a short life is its start, and most of that is the reading of code. A forked life is
`counterpoise` all the same: its command line, a process and a JVM of its own.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ROOT = Path(__file__).parents[1]

_IMPORTED_IN_ADVANCE = (
    "console.cli",
    "streaming.run",
    "checkpoints.run",
    "deltalake",
    "great_expectations",
    "orjson",
    "pandas",
    "pyarrow.parquet",
    "pyspark.sql.functions",
)


class ForkedLife:
    """One life of a ForkingProcess, handled as a `subprocess.Popen`."""

    def __init__(self, pid: int, answers: int) -> None:
        """Take over a life; its exit code comes as a line through the descriptor `answers`."""
        self.pid = pid
        self._answers = answers
        self._code: int | None = None

    def poll(self) -> int | None:
        """Give the exit code, -9 for one that SIGKILL ended; None while it lives."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float) -> int:
        """Wait for the exit code.

        Raises:
            subprocess.TimeoutExpired: it lives on.
        """
        if self._code is None:
            if not select.select([self._answers], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("a forked life", timeout)
            self._code = _number(self._answers)
        return self._code

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)


class ForkingProcess:
    """A process that has imported what a job needs, and forks one life at a time.

    A context manager that ends it; a life that goes on is killed with all that it started.
    """

    def __init__(self) -> None:
        """Start it; does not wait until it has imported everything."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.forked_lives"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._last: ForkedLife | None = None

    def __enter__(self) -> Self:
        """Give itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it."""
        if self._last is not None and self._last.poll() is None:
            os.killpg(self._last.pid, signal.SIGKILL)
        self._process.communicate()

    def begin(self, arguments: Sequence[str], environ: Mapping[str, str], log: Path) -> ForkedLife:
        """Fork a life with these arguments of `counterpoise`; it leads a process group of its own."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        asked = {"arguments": arguments, "environ": dict(environ), "log": str(log)}
        self._process.stdin.write(json.dumps(asked).encode() + b"\n")
        self._process.stdin.flush()
        answers = self._process.stdout.fileno()
        self._last = ForkedLife(_number(answers), answers)
        return self._last


def _number(answers: int) -> int:
    """Read one line, byte by byte: what comes behind it is to be waited for later."""
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(answers, 1)
        assert byte, "the process that forks has ended"
        line += byte
    return int(line)


def fork_as_asked() -> dict[str, Any] | None:
    """Fork a life for each line of stdin, and write its pid and in the end its exit code.

    Returns:
        In a life what was asked for; in the process that forks None, when stdin has ended.
    """
    for line in sys.stdin.buffer:
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.setsid()
            os.close(read)
            os.close(write)
            asked: dict[str, Any] = json.loads(line)
            return asked
        # Its session is its own before anybody may kill it.
        os.close(write)
        os.read(read, 1)
        os.close(read)
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()
        _, status = os.waitpid(pid, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()
    return None


def become(asked: Mapping[str, Any]) -> None:
    """Be what the shell would have started."""
    with open(os.devnull, "rb") as nothing, Path(asked["log"]).open("ab") as log:
        for number, opened in enumerate((nothing, log, log)):
            os.dup2(opened.fileno(), number)
    os.environ.clear()
    os.environ.update(asked["environ"])
    sys.argv = ["counterpoise", *asked["arguments"]]


if __name__ == "__main__":
    for module in _IMPORTED_IN_ADVANCE:
        import_module(module)
    if (asked_for := fork_as_asked()) is not None:
        become(asked_for)
        import_module("console.cli").main()
