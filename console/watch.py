"""A deployment seen live: its groups, what fires and what moved, looked at again and again.

On a terminal one view is drawn over the last; into a pipe or a file the views follow one another.
"""

from __future__ import annotations

import signal
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rich.console import Group
from rich.live import Live

from console.description import describe_groups, lay_out_description
from console.report import LAST_REBALANCES, firing_of, rebalances_table
from console.tables import Row, latest_groups, quoted, read_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console, RenderableType

_KINDS = ("rebalance", "held", "gap")
"""The versions that somebody did something for; a baseline is where our knowledge begins."""

_COLUMNS = (
    "log_seq",
    "cluster",
    "group_id",
    "kind",
    "generation_id",
    "reason",
    "event_time",
    "balance",
    "deltas",
)


ORDINAL_BITS = 24
"""A log_seq is its batch's number, times two to the power of this, and the row's number in the batch."""

_FIRST_LOOK_BATCHES = 50


class Watch:
    """Looks at the tables of deployments, and remembers between looks what moved last."""

    def __init__(
        self, places: Sequence[str], group_id: str | None = None, cluster: str | None = None
    ) -> None:
        """Choose what to look at, without looking yet.

        Args:
            places: directories or URIs of tables, one a deployment.
            group_id: only this group, with its members; None for all groups.
            cluster: only groups of this cluster.
        """
        self._places, self._group_id, self._cluster = places, group_id, cluster
        self._moves: deque[Row] = deque(maxlen=LAST_REBALANCES)
        self._seen: dict[str, int] = {}
        self.fires = False
        """Whether an alert fired when we last looked."""

    def look(self, *more: RenderableType) -> RenderableType:
        """Read the tables as they stand now, and lay out what they say, the newest moves first.

        Args:
            more: shown above the moves, which are what may be cut where there is little room.

        Raises:
            TablesError: a table is not there, or cannot be read.
        """
        description = describe_groups(self._places, self._group_id, self._cluster)
        self.fires = bool(firing_of(description["alerts"]))
        moves = [row for tables in self._places for row in self._new_moves(tables)]
        self._moves.extend(sorted(moves, key=lambda row: (row["event_time"], row["log_seq"])))
        return Group(
            f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC",
            *lay_out_description(description, with_members=self._group_id is not None),
            *more,
            rebalances_table(reversed(self._moves)),
        )

    def _new_moves(self, tables: str) -> list[Row]:
        """Read what the log got since the last look; at the first, what its last batches about groups had."""
        seen = self._seen.get(tables)
        if seen is None:
            seen = max((row["log_seq"] for row in latest_groups(tables, self._group_id)), default=0)
            # Not simply the last rebalances: to find them may mean to read all of the log.
            wanted = f"batch_seq > {(seen >> ORDINAL_BITS) - _FIRST_LOOK_BATCHES}"
        else:
            wanted = f"log_seq > {seen}"
        if self._group_id is not None:
            wanted += f" AND group_id = {quoted(self._group_id)}"
        rows = read_table(tables, "generations", _COLUMNS, wanted).to_pylist()
        self._seen[tables] = max((seen, *(row["log_seq"] for row in rows)))
        return [row for row in rows if row["kind"] in _KINDS and self._cluster in (None, row["cluster"])]


def watch_groups(
    places: Sequence[str], group_id: str | None, cluster: str | None, console: Console, every_s: float
) -> bool:
    """Show groups live until Ctrl-C or SIGTERM: `counterpoise describe --watch`.

    Returns:
        Whether an alert fired at the last look.

    Raises:
        TablesError: a table is not there, or cannot be read.
    """
    watch = Watch(places, group_id, cluster)
    with interrupted_by(signal.SIGTERM):
        show_live(watch.look, console, every_s)
    return watch.fires


def show_live(
    look: Callable[[], RenderableType], console: Console, every_s: float, seconds: float | None = None
) -> None:
    """Show what a look gives, and look again, until KeyboardInterrupt or until the time is over.

    The last view stays on the terminal.

    Args:
        look: gives what to show; what it raises ends the view.
        console: where to; no terminal gets one view after the other.
        every_s: seconds from one look to the next.
        seconds: how long; None for ever.
    """
    ends_at = None if seconds is None else time.monotonic() + seconds
    try:
        if console.is_terminal:
            # What does not fit is cut at the bottom, where the oldest is.
            with Live(console=console, auto_refresh=False, vertical_overflow="ellipsis") as live:
                _repeat(lambda: live.update(look(), refresh=True), every_s, ends_at)
        else:
            _repeat(lambda: console.print(look()), every_s, ends_at)
    except KeyboardInterrupt:
        return


def _repeat(show: Callable[[], None], every_s: float, ends_at: float | None) -> None:
    while True:
        began = time.monotonic()
        show()
        rest_s = began + every_s - time.monotonic()
        if ends_at is not None:
            rest_s = min(rest_s, ends_at - time.monotonic())
        time.sleep(max(rest_s, 0.0))
        if ends_at is not None and time.monotonic() >= ends_at:
            return


@contextmanager
def interrupted_by(*signals: signal.Signals) -> Iterator[None]:
    """Let these signals interrupt the block as Ctrl-C does: by KeyboardInterrupt in the main thread."""
    before = {number: signal.signal(number, signal.default_int_handler) for number in signals}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
