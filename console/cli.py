"""The command line. Results go to stdout, messages to stderr; only `run` and `demo` start Spark.

Exit codes: 0 fine, 1 a check failed or an alert fires, 2 wrong usage or settings.
What a command needs is imported inside it, so that the others answer at once.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import packages_distributions
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from assignors.errors import AssignorError
from conf.layers import SettingsError
from console.errors import UsageError

if TYPE_CHECKING:
    from assignors import Assignor
    from conf.settings import Settings

OUR_PACKAGES = ("assignors", "streaming", "checkpoints", "conf", "console")
OUR_DISTRIBUTION = "counterpoise"

FIRES, WRONG = 1, 2
"""Exit codes besides 0."""

PAGE_WIDTH = 124

app = typer.Typer(
    name="counterpoise",
    help="Watches how Kafka hands partitions to members, says what should be, and tells when it is not.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

ConfOption = Annotated[Path | None, typer.Option("--conf", help="Settings that differ from the defaults.")]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="One setting, as section.key=value.")
]
JsonLinesOption = Annotated[bool, typer.Option("--jsonl", help="JSON lines in on stdin, JSON lines out.")]


def main() -> None:
    """Run the command line: the entry point `counterpoise`."""
    app()


@app.callback()
def _start() -> None:
    with _clear_errors():
        check_no_namesake(packages_distributions())


def check_no_namesake(distributions_by_package: Mapping[str, list[str]]) -> None:
    """Refuse to run where another distribution supplies one of our package names.

    Args:
        distributions_by_package: as `importlib.metadata.packages_distributions` gives it.

    Raises:
        UsageError: naming the package and the other distribution.
    """
    for package in OUR_PACKAGES:
        others = sorted(set(distributions_by_package.get(package, ())) - {OUR_DISTRIBUTION})
        if others:
            raise UsageError(
                f"the package {package!r} is also supplied by the distribution {others[0]!r}; "
                f"install {OUR_DISTRIBUTION} in an environment of its own"
            )


@app.command()
def run(
    conf: Annotated[Path, typer.Option("--conf", help="Settings that differ from the defaults.")],
    set_: SetOption = None,
    once: Annotated[bool, typer.Option("--once", help="Take what there is, then end.")] = False,
    adopt: Annotated[
        bool, typer.Option("--adopt", help="Go on over the tables with a checkpoint that does not fit them.")
    ] = False,
) -> None:
    """Run the job: read, recompute, check, write the tables, until stopped."""
    with _clear_errors():
        settings = _settings(conf, set_)
        if not settings.sources:
            raise UsageError(f"{conf}: sources is empty; describe at least one [[sources]] to read")
        _run_job(settings, once=once, adopt=adopt)


@app.command()
def demo(
    keep: Annotated[
        Path | None, typer.Option("--keep", help="Directory for the demo's tables; default: a temporary one.")
    ] = None,
) -> None:
    """Run the job once over the records that come with it, and print what it found."""
    from conf.settings import DEMO_FILE, load_settings
    from console.report import print_demo_report

    with _clear_errors():
        directory = Path(tempfile.mkdtemp(prefix="counterpoise-demo-")) if keep is None else keep
        records = Path(str(files("console"))) / "demo"
        overrides = {
            "job.tables": str(directory / "tables"),
            "job.checkpoint_location": str(directory / "checkpoint"),
            "sources.events.path": str(records / "events"),
            "sources.captured.path": str(records / "captured"),
            "log.jvm_output": str(directory / "spark.log"),
        }
        directory.mkdir(parents=True, exist_ok=True)
        _run_job(load_settings(DEMO_FILE, os.environ, overrides), once=True, adopt=False)
        print_demo_report(directory / "tables", _console())


@app.command()
def decode(
    jsonl: JsonLinesOption = False,
    deep: Annotated[bool, typer.Option("--deep", help="Also decode what clients put into members.")] = False,
) -> None:
    """Decode captured records of __consumer_offsets, one JSON line each."""
    with _clear_errors():
        if not jsonl:
            raise UsageError("decode reads records as JSON lines on stdin; say --jsonl")
        from streaming.offsets_records import run_decode_lines

        run_decode_lines(sys.stdin.buffer, _write_line, deep)


@app.command()
def assign(
    file: Annotated[Path | None, typer.Argument(help="One case as JSON; - for stdin.")] = None,
    jsonl: JsonLinesOption = False,
    as_json: Annotated[bool, typer.Option("--json", help="The bare result instead of a table.")] = False,
    conf: ConfOption = None,
) -> None:
    """Compute an assignment: one case from a file as a table, or cases as JSON lines."""
    with _clear_errors():
        if jsonl == (file is not None):
            raise UsageError("assign takes either a FILE with one case or --jsonl with cases on stdin")
        from console.assign_lines import run_assign_lines

        plugins = _plugins(conf)
        if file is None:
            run_assign_lines(sys.stdin.buffer, _write_line, plugins)
            return
        case = _read_case(file)
        answers: list[str] = []
        run_assign_lines([json.dumps(case)], answers.append, plugins)
        answer = json.loads(answers[0])
        if "error" in answer and isinstance(answer["error"], str):
            raise UsageError(f"{file}: {answer['message']}")
        result = answer["result"] if "id" in case else answer
        if as_json or "members" not in case:
            _write_line(json.dumps(result) + "\n")
            return
        from console.assigned import assigned_table

        _console().print(assigned_table(case, result))


@app.command()
def describe(
    group: Annotated[str | None, typer.Argument(help="One group; default: all.")] = None,
    tables: Annotated[str | None, typer.Option("--tables", help="Directory or URI of the tables.")] = None,
    conf: ConfOption = None,
    cluster: Annotated[str | None, typer.Option("--cluster", help="Only groups of this cluster.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of tables.")] = False,
) -> None:
    """Show groups, or one group's members and what they own; exit code 1 while an alert fires."""
    with _clear_errors():
        if tables is not None and conf is not None:
            raise UsageError("describe takes --tables or --conf, not both")
        from console.description import describe_groups, print_description

        where = tables if tables is not None else _settings(conf, None).job.tables
        description = describe_groups(where, group, cluster)
        if group is not None and not description["groups"]:
            raise UsageError(f"{where}: no group {group!r}; `counterpoise describe` lists those there are")
        if as_json:
            _write_line(json.dumps(description, default=_plain, indent=2) + "\n")
        else:
            print_description(description, _console(), with_members=group is not None)
        if any(alert["status"] == "firing" for alert in description["alerts"]):
            raise typer.Exit(FIRES)


def _run_job(settings: Settings, *, once: bool, adopt: bool) -> None:
    from checkpoints.expectations import CheckError
    from streaming.job import run_job
    from streaming.tables import JobError

    level = settings.log.level
    logging.basicConfig(
        level=level, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s %(message)s"
    )
    # py4j tells every call at INFO.
    logging.getLogger("py4j").setLevel(logging.WARNING)
    problem = None
    try:
        run_job(settings, once=once, adopt=adopt)
    except (JobError, CheckError) as error:
        problem = str(error)
    if problem is not None:
        raise UsageError(problem)


def _settings(conf: Path | None, texts: list[str] | None) -> Settings:
    from conf.settings import load_settings

    overrides = {}
    for text in texts or ():
        key, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"--set {text}: there is no '='; write --set section.key=value")
        overrides[key.strip()] = value
    return load_settings(conf, os.environ, overrides)


def _plugins(conf: Path | None) -> dict[str, Assignor]:
    if conf is None:
        return {}
    from assignors import load_plugin

    return {name: load_plugin(path, name) for name, path in _settings(conf, None).groups.plugins.items()}


def _read_case(file: Path) -> dict[str, Any]:
    try:
        case = json.loads(sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8"))
    except OSError as error:
        problem = f"{file}: {error.strerror or error}"
    except ValueError as error:
        problem = f"{file}: not JSON: {error}"
    else:
        if isinstance(case, dict):
            return case
        problem = f"{file}: a case is a {type(case).__name__}; it must be an object"
    raise UsageError(problem)


def _console() -> Console:
    """Print for the terminal's width; where there is none (a pipe, a file) for a page's."""
    return Console(width=None if sys.stdout.isatty() else PAGE_WIDTH)


def _write_line(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _plain(value: object) -> object:
    """Write what JSON has no word for: times as RFC 3339, bytes never occur."""
    iso: Callable[[], str] | None = getattr(value, "isoformat", None)
    if iso is None:
        raise TypeError(f"{type(value).__name__} has no form in JSON")
    return iso()


@contextmanager
def _clear_errors() -> Iterator[None]:
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


if __name__ == "__main__":
    main()
