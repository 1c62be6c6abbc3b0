"""What the commands share: options, exit codes, errors as lines, and where results go."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from assignors.errors import AssignorError
from conf.layers import SettingsError
from console.errors import UsageError

if TYPE_CHECKING:
    from conf.settings import Settings

FIRES, WRONG = 1, 2
"""Exit codes besides 0."""

PAGE_WIDTH = 124

ConfOption = Annotated[Path | None, typer.Option("--conf", help="Settings that differ from the defaults.")]
OwnConfOption = Annotated[Path, typer.Option("--conf", help="Settings that differ from the defaults.")]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="One setting, as section.key=value.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="JSON instead of tables.")]


def settings_of(conf: Path | None, texts: list[str] | None) -> Settings:
    """Load the settings of a command: its file, the environment, and its --set options.

    Raises:
        SettingsError: they cannot be used.
        UsageError: an option is no KEY=VALUE.
    """
    from conf.settings import load_settings

    overrides = {}
    for text in texts or ():
        key, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"--set {text}: there is no '='; write --set section.key=value")
        overrides[key.strip()] = value
    return load_settings(conf, os.environ, overrides)


def page() -> Console:
    """Print for the terminal's width; where there is none (a pipe, a file) for a page's."""
    return Console(width=None if sys.stdout.isatty() else PAGE_WIDTH)


def show(
    described: dict[str, Any], lay_out: Callable[[dict[str, Any], Console], None], as_json: bool
) -> None:
    """Write a result for machines, or for people as `lay_out` prints it."""
    if as_json:
        write_line(json.dumps(described) + "\n")
    else:
        lay_out(described, page())


def write_line(text: str) -> None:
    """Write to stdout at once."""
    sys.stdout.write(text)
    sys.stdout.flush()


@contextmanager
def clear_errors() -> Iterator[None]:
    """Turn what a user can mend into lines on stderr and exit code 2; let bugs be seen whole."""
    problem = None
    try:
        yield
    except BrokenPipeError:
        # Whoever read the output has seen enough; Python would complain again while closing stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return
    except (UsageError, SettingsError, AssignorError) as error:
        problem = str(error)
    if problem is not None:
        for line in problem.splitlines():
            sys.stderr.write(f"counterpoise: {line}\n")
        raise typer.Exit(WRONG)
