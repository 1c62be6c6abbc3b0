"""The commands for whoever runs a deployment: what ails it, and one round of upkeep. Neither starts Spark."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from conf.layers import SettingsError
from console.command import (
    FIRES,
    WRONG,
    JsonOption,
    OwnConfOption,
    SetOption,
    clear_errors,
    settings_of,
    show,
)
from console.errors import UsageError

app = typer.Typer()


@app.command()
def doctor(
    conf: OwnConfOption,
    set_: SetOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of a table.")] = False,
) -> None:
    """Look for what ails a deployment, changing nothing; exit code 1 when there is a problem."""
    with clear_errors():
        from console.doctor import describe_findings, examine, examine_without_settings, print_findings

        code = FIRES
        try:
            settings = settings_of(conf, set_)
        except SettingsError as error:
            findings, code = examine_without_settings(error, os.environ), WRONG
        else:
            findings = examine(settings, os.environ)
        found = describe_findings(findings)
        show(found, print_findings, as_json)
        if found["problems"]:
            raise typer.Exit(code)


@app.command()
def upkeep(conf: OwnConfOption, set_: SetOption = None, as_json: JsonOption = False) -> None:
    """Do one round of upkeep on a deployment's tables: compact, expire, vacuum."""
    with clear_errors():
        from console.upkeep import describe_upkeep, keep_up, print_upkeep
        from streaming.tables.delta import JobError

        settings, problem = settings_of(conf, set_), None
        try:
            done = keep_up(settings)
        except JobError as error:
            problem = str(error)
        if problem is not None:
            raise UsageError(problem)
        show(describe_upkeep(done), print_upkeep, as_json)
