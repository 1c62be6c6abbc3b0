"""The log of a running job: one line an event, as text or as JSON, with what it belongs to."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from streaming.log_context import ContextFilter, telling

ROOT = Path(__file__).parents[1]

LOGGED = """
import logging, sys, warnings
from conf.operations import LogSettings
from console.logs import set_up_logging
from streaming.log_context import telling
set_up_logging(LogSettings(level="INFO", format=sys.argv[1], jvm_output=""))
logger = logging.getLogger("streaming.job")
with telling(cluster="prod"), telling(batch_id=3):
    logger.info("took %d", 5, extra={"batch_seq": 4, "read_s": 0.25, "group_id": "g"})
logger.debug("not told")
warnings.warn("old")
raise ValueError("two\\nlines")
"""


def logged(format_: str) -> list[str]:
    """Log some lines in a process of its own that ends with an error."""
    done = subprocess.run(
        [sys.executable, "-c", LOGGED, format_],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (1, "")
    return done.stderr.splitlines()


def test_each_line_is_a_json_object() -> None:
    """Warnings and the error that ends the process too."""
    batch, warning, end = map(json.loads, logged("json"))
    assert batch.pop("time").endswith("+00:00")
    assert batch == {
        "level": "INFO",
        "logger": "streaming.job",
        "message": "took 5",
        "cluster": "prod",
        "batch_id": 3,
        "batch_seq": 4,
        "read_s": 0.25,
        "group_id": "g",
    }
    assert (warning["level"], warning["logger"]) == ("WARNING", "py.warnings")
    assert (end["level"], end["message"]) == ("CRITICAL", "ended by ValueError")
    assert end["exc_info"].endswith("ValueError: two\nlines")


def test_a_line_of_text_names_cluster_and_batch() -> None:
    """Behind the logger's name."""
    assert logged("text")[0].endswith(" INFO streaming.job [prod batch 3] took 5")


@pytest.fixture
def heard() -> Iterator[list[logging.LogRecord]]:
    """Hear the records of one logger as a handler with the filter gets them."""
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = records.append  # type: ignore[method-assign]
    handler.addFilter(ContextFilter())
    logger = logging.getLogger("tests.logs")
    logger.addHandler(handler)
    yield records
    logger.removeHandler(handler)


def test_threads_do_not_mix_up_their_batches(heard: list[logging.LogRecord]) -> None:
    """A line belongs to the batch of its own thread, and to none after that."""
    logger = logging.getLogger("tests.logs")

    def other() -> None:
        with telling(cluster="west", batch_id=8):
            logger.warning("other")

    with telling(cluster="east"):
        with telling(batch_id=1):
            thread = threading.Thread(target=other)
            thread.start()
            thread.join()
            logger.warning("mine")
        logger.warning("between")
    logger.warning("outside")
    told = {record.getMessage(): vars(record)["context"] for record in heard}
    assert told == {
        "other": "[west batch 8] ",
        "mine": "[east batch 1] ",
        "between": "[east] ",
        "outside": "",
    }


def test_a_problem_for_the_operator_is_json_too(tmp_path: Path) -> None:
    """`run` over a source that is not there: one object, exit code 2."""
    (tmp_path / "job.toml").write_text(
        '[[sources]]\nname = "a"\nformat = "events"\nfrom = "files"\npath = "nowhere"\n'
        '[log]\nformat = "json"\n'
    )
    done = subprocess.run(
        [sys.executable, "-m", "console.cli", "run", "--conf", str(tmp_path / "job.toml")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    (line,) = done.stderr.splitlines()
    told = json.loads(line)
    assert (done.returncode, told["level"]) == (2, "ERROR")
    assert told["message"].startswith("source 'a': ")
