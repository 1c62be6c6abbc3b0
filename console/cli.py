"""The command line. Results go to stdout, messages to stderr; only `run` and `demo` start Spark.

Exit codes: 0 fine, 1 a check failed or an alert fires, 2 wrong usage or settings.
What a command needs is imported inside it, so that the others answer at once.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from importlib.metadata import packages_distributions
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from console.command import (
    FIRES,
    WRONG,
    ConfOption,
    JsonOption,
    OwnConfOption,
    SetOption,
    clear_errors,
    page,
    settings_of,
    show,
    write_line,
)
from console.errors import UsageError
from console.operations import app as operations

if TYPE_CHECKING:
    from conf.settings import Settings

OUR_PACKAGES = ("assignors", "streaming", "checkpoints", "conf", "console")
OUR_DISTRIBUTION = "counterpoise"

app = typer.Typer(
    name="counterpoise",
    help="Watches how Kafka hands partitions to members, says what should be, and tells when it is not.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(operations)

JsonLinesOption = Annotated[bool, typer.Option("--jsonl", help="JSON lines in on stdin, JSON lines out.")]


def main() -> None:
    """Run the command line: the entry point `counterpoise`."""
    app()


@app.callback()
def _start() -> None:
    with clear_errors():
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
    conf: OwnConfOption,
    set_: SetOption = None,
    once: Annotated[bool, typer.Option("--once", help="Take what there is, then end.")] = False,
    adopt: Annotated[
        bool, typer.Option("--adopt", help="Go on over the tables with a checkpoint that does not fit them.")
    ] = False,
) -> None:
    """Run the job: read, recompute, check, write the tables, until stopped."""
    with clear_errors():
        settings = settings_of(conf, set_)
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

    with clear_errors():
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
        print_demo_report(directory / "tables", page())


@app.command()
def decode(
    jsonl: JsonLinesOption = False,
    deep: Annotated[bool, typer.Option("--deep", help="Also decode what clients put into members.")] = False,
) -> None:
    """Decode captured records of __consumer_offsets, one JSON line each."""
    with clear_errors():
        if not jsonl:
            raise UsageError("decode reads records as JSON lines on stdin; say --jsonl")
        from streaming.events.offsets_records import run_decode_lines

        run_decode_lines(sys.stdin.buffer, write_line, deep)


@app.command()
def assign(
    file: Annotated[Path | None, typer.Argument(help="One case as JSON; - for stdin.")] = None,
    jsonl: JsonLinesOption = False,
    as_json: Annotated[bool, typer.Option("--json", help="The bare result instead of a table.")] = False,
    certificate: Annotated[
        bool, typer.Option("--certificate", help="Prove it, as JSON; for the optimal assignors.")
    ] = False,
    conf: ConfOption = None,
) -> None:
    """Compute an assignment: one case from a file as a table, or cases as JSON lines."""
    with clear_errors():
        if jsonl == (file is not None):
            raise UsageError("assign takes either a FILE with one case or --jsonl with cases on stdin")
        from console.assign_lines import run_assign_lines

        plugins = _plugins(conf)
        if file is None:
            run_assign_lines(sys.stdin.buffer, write_line, plugins, certificates=certificate)
            return
        case = _read_case(file)
        answers: list[str] = []
        run_assign_lines([json.dumps(case)], answers.append, plugins, certificates=certificate)
        answer = json.loads(answers[0])
        if "error" in answer and isinstance(answer["error"], str):
            raise UsageError(f"{file}: {answer['message']}")
        if certificate:
            write_line(json.dumps(answer) + "\n")
            return
        result = answer["result"] if "id" in case else answer
        if as_json or "members" not in case:
            write_line(json.dumps(result) + "\n")
            return
        from console.assigned import assigned_table

        page().print(assigned_table(case, result))


@app.command()
def describe(
    group: Annotated[str | None, typer.Argument(help="One group; default: all.")] = None,
    tables: Annotated[str | None, typer.Option("--tables", help="Directory or URI of the tables.")] = None,
    conf: ConfOption = None,
    cluster: Annotated[str | None, typer.Option("--cluster", help="Only groups of this cluster.")] = None,
    as_json: JsonOption = False,
    watch: Annotated[
        float | None,
        typer.Option("--watch", metavar="SECONDS", min=0.1, help="Look again so often, until Ctrl-C."),
    ] = None,
) -> None:
    """Show groups, or one group's members and what they own; exit code 1 while an alert fires."""
    with clear_errors():
        if tables is not None and conf is not None:
            raise UsageError("describe takes --tables or --conf, not both")
        if watch is not None and as_json:
            raise UsageError("describe takes --watch or --json, not both")
        from console.description import describe_groups, print_description, tables_of

        where = [tables] if tables is not None else tables_of(settings_of(conf, None), cluster)
        if watch is not None:
            from console.watch import watch_groups

            raise typer.Exit(FIRES if watch_groups(where, group, cluster, page(), watch) else 0)
        description = describe_groups(where, group, cluster)
        if group is not None and not description["groups"]:
            raise UsageError(
                f"{', '.join(where)}: no group {group!r}; `counterpoise describe` lists those there are"
            )
        if as_json:
            write_line(json.dumps(description, default=_plain, indent=2) + "\n")
        else:
            print_description(description, page(), with_members=group is not None)
        if any(alert["status"] == "firing" for alert in description["alerts"]):
            raise typer.Exit(FIRES)


@app.command()
def place(
    brokers: Annotated[str, typer.Option("--brokers", help="0,1,2 or with racks 0:a,1:b; in circle order.")],
    partitions: Annotated[int, typer.Option("--partitions", help="How many to place.")],
    replication_factor: Annotated[int, typer.Option("--replication-factor", help="Replicas of each.")],
    start_index: Annotated[
        int, typer.Option("--start-index", help="Where in the circle partition 0 has its leader.")
    ] = 0,
    shift: Annotated[int, typer.Option("--shift", help="How far behind the second replica starts.")] = 0,
    start_partition_id: Annotated[
        int, typer.Option("--start-partition-id", help="The first new partition, where a topic grows.")
    ] = 0,
    rack_unaware: Annotated[
        bool, typer.Option("--rack-unaware", help="Place as if no rack were known.")
    ] = False,
    striped: Annotated[bool, typer.Option("--striped", help="As a KRaft controller; needs --seed.")] = False,
    seed: Annotated[int | None, typer.Option("--seed", help="Of the controller's random numbers.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Place a topic's partitions on brokers as Kafka would."""
    with clear_errors():
        if striped and (start_index or shift or rack_unaware):
            raise UsageError(
                "--striped takes no --start-index, --shift or --rack-unaware: its starts are drawn"
            )
        if striped == (seed is None):
            raise UsageError(
                "--striped and --seed go together: a controller's placement is known by its seed"
            )
        from console.placement import describe_placement, parse_brokers, place_partitions, print_placement

        circle = parse_brokers(brokers, rack_unaware=rack_unaware)
        placed = place_partitions(
            circle,
            partitions=partitions,
            replication_factor=replication_factor,
            start_index=start_index,
            shift=shift,
            start_partition_id=start_partition_id,
            seed=seed,
        )
        show(describe_placement(circle, placed), print_placement, as_json)


@app.command()
def keys(
    partitions: Annotated[int, typer.Option("--partitions", help="How many the topic has.")],
    key: Annotated[list[str] | None, typer.Argument(help="Keys, as text or --hex.")] = None,
    file: Annotated[Path | None, typer.Option("--file", help="Keys, one a line; - for stdin.")] = None,
    field: Annotated[
        str | None, typer.Option("--field", help="FILE has JSON lines; the key's field.")
    ] = None,
    to: Annotated[
        int | None, typer.Option("--to", help="Also with this many partitions: what moves.")
    ] = None,
    partitioner: Annotated[
        str,
        typer.Option(
            "--partitioner",
            help="murmur2, java-hash, murmur3, crc32, fnv1a, an entry point or your module:function.",
        ),
    ] = "murmur2",
    is_hex: Annotated[bool, typer.Option("--hex", help="Keys are written in hex.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Say which partition each key goes to, or how a file of keys spreads."""
    with clear_errors():
        if (file is None) == (not key):
            raise UsageError("keys takes either KEYs or --file with many of them")
        if field is not None and file is None:
            raise UsageError(
                f"--field {field}: it names a field of --file's JSON lines, and there is no --file"
            )
        from console import keys as keyed

        counts = keyed.checked_counts(partitions, to)
        chosen = keyed.get_partitioner(partitioner)
        if file is None:
            found = keyed.partition_keys(key or (), chosen, counts, is_hex=is_hex)
            show(keyed.describe_keys(partitioner, counts, found), keyed.print_keys, as_json)
            return
        from console.key_lines import open_keys, read_columns

        with open_keys(file, sys.stdin.buffer) as stream:
            columns = read_columns(stream, str(file), field=field, is_hex=is_hex)
            spread = keyed.spread_keys(columns, chosen, counts)
        show(keyed.describe_spread(partitioner, spread), keyed.print_spread, as_json)


def _run_job(settings: Settings, *, once: bool, adopt: bool) -> None:
    from checkpoints.expectations import CheckError
    from console.logs import log_problem, set_up_logging
    from streaming.run import run_job
    from streaming.tables.delta import JobError

    set_up_logging(settings.log)
    problem = None
    try:
        run_job(settings, once=once, adopt=adopt)
    except (JobError, CheckError) as error:
        problem = str(error)
    if problem is not None and settings.log.format == "json":
        log_problem(problem)
        raise typer.Exit(WRONG)
    if problem is not None:
        raise UsageError(problem)


def _plugins(conf: Path | None) -> dict[str, str]:
    """Find assignors of the user's own; what is wrong with an entry point is told, and no reason to stop."""
    from assignors import find_plugins

    plugins, problems = find_plugins({} if conf is None else settings_of(conf, None).groups.plugins)
    for problem in problems:
        sys.stderr.write(f"counterpoise: {problem}\n")
    return plugins


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


def _plain(value: object) -> object:
    """Write what JSON has no word for: times as RFC 3339, bytes never occur."""
    iso: Callable[[], str] | None = getattr(value, "isoformat", None)
    if iso is None:
        raise TypeError(f"{type(value).__name__} has no form in JSON")
    return iso()


if __name__ == "__main__":
    main()
