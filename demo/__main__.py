"""Start a broker, groups and the job, and show them live: `python -m demo [--seconds N] [--seed N]`."""

from __future__ import annotations

import signal
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console, RenderableType

from console.command import PAGE_WIDTH
from console.watch import Watch, interrupted_by, show_live
from demo.players import Players, who_plays
from demo.watching_job import JobEndedError, WatchingJob, running_job
from tests.kafka_cluster import KafkaBroker, KafkaUnavailableError, build_kafka

_LOOK_EVERY_S, _PRINT_EVERY_S = 1.0, 5.0
"""Between two views on a terminal, and between two that are printed one after the other."""

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main(
    *,
    seconds: Annotated[
        float | None,
        typer.Option(min=0.0, envvar="DEMO_SECONDS", help="How long to show it; default: until Ctrl-C."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of what the players do.")] = 1,
) -> None:
    """Show groups of a real Kafka live, until Ctrl-C or SIGTERM; then everything is stopped and removed."""
    messages = Console(stderr=True)
    problem: Exception | None = None
    # Also where whoever started us ignores Ctrl-C, as a shell does for what it runs in the background.
    with interrupted_by(*_ENDING):
        try:
            run_demo(messages, seconds, seed)
        except KeyboardInterrupt:
            messages.print("Interrupted before there was anything to show.")
        except (KafkaUnavailableError, JobEndedError, TimeoutError, RuntimeError) as error:
            problem = error
    if problem is not None:
        messages.print(f"demo: {problem}", markup=False, soft_wrap=True)
        raise typer.Exit(2 if isinstance(problem, KafkaUnavailableError) else 1)
    messages.print("Everything is stopped and removed.")


def run_demo(messages: Console, seconds: float | None, seed: int) -> None:
    """Run the demo, and leave nothing behind however it ends.

    Args:
        messages: where to say what is being done.
        seconds: how long to show it once the job's first tables are there; None until interrupted.
        seed: of the schedule.

    Raises:
        KafkaUnavailableError: there is no Java or no Maven, or Maven failed.
        JobEndedError: the job ended by itself.
        RuntimeError, TimeoutError: broker, members or job do not do as told.
        KeyboardInterrupt: interrupted while starting.
    """
    with ExitStack() as started:
        try:
            folder = Path(started.enter_context(tempfile.TemporaryDirectory(prefix="counterpoise-demo-")))
            messages.print("Building the broker; the first time Maven fetches Kafka's jars ...")
            build_kafka()
            messages.print("Starting the broker ...")
            broker = started.enter_context(KafkaBroker(folder / "kafka"))
            messages.print(
                f"Broker: {broker.bootstrap_servers}. Groups join: {who_plays()} ...", soft_wrap=True
            )
            players = started.enter_context(Players(broker, seed))
            messages.print("Starting the job ...")
            job = started.enter_context(running_job(folder, broker.bootstrap_servers))
            job.wait_for_groups()
            show(job, players, seconds)
        finally:
            # What follows ends by itself; half of it would leave processes behind.
            for number in _ENDING:
                signal.signal(number, signal.SIG_IGN)
            messages.print("Stopping ...")


def show(job: WatchingJob, players: Players, seconds: float | None) -> None:
    """Show the groups, what moved and what the players did, until interrupted or for so many seconds.

    Raises:
        JobEndedError: the job ended by itself.
        RuntimeError: the players gave up.
    """
    is_terminal = sys.stdout.isatty()
    watch = Watch([str(job.tables)])

    def look() -> RenderableType:
        job.check()
        if players.failure is not None:
            raise RuntimeError(f"the players gave up: {players.failure}") from players.failure
        return watch.look(players.deeds_table())

    console = Console(width=None if is_terminal else PAGE_WIDTH)
    show_live(look, console, _LOOK_EVERY_S if is_terminal else _PRINT_EVERY_S, seconds)


if __name__ == "__main__":
    typer.run(main)
