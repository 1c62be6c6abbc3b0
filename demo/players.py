"""Plays the schedule: real consumers, each a process of its own, on a real broker."""

from __future__ import annotations

import threading
import time
from collections import deque
from datetime import UTC, datetime
from itertools import takewhile
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich import box
from rich.markup import escape
from rich.table import Table

from demo.schedule import GROUPS, TOPICS, Act, Growth, schedule
from tests.kafka_members import ConfluentClient

if TYPE_CHECKING:
    from tests.kafka_cluster import KafkaBroker

LAST_DEEDS = 5

# By default clients look for new partitions every 5 minutes: nobody would watch that long.
_CLASSIC = {"topic.metadata.refresh.interval.ms": 12_000}


class Players:
    """The groups' members, played in a thread; a context manager that ends every process it started."""

    def __init__(self, broker: KafkaBroker, seed: int) -> None:
        """Prepare to play on a running broker; entering the context makes the topics and begins."""
        self._broker = broker
        self._seed = seed
        self._members: dict[str, ConfluentClient] = {}
        self._deeds: deque[tuple[str, str]] = deque(maxlen=LAST_DEEDS)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._play, name="players", daemon=True)
        self.failure: Exception | None = None
        """What ended the play, None while it goes on."""

    def __enter__(self) -> Self:
        """Make the topics, let the first members join, wait until each has joined, and go on in a thread."""
        try:
            for topic, partitions in TOPICS.items():
                self._broker.create_topic(topic, partitions)
            for step in takewhile(lambda step: step.at_s == 0, schedule(self._seed)):
                self._take(step)
            for member in self._members.values():
                member.wait_for("assigned")
            self._thread.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End the play and every member's process."""
        self._is_over.set()
        # Whoever the thread waits for ends the wait by ending; then nobody new can come.
        for _ in range(2):
            for member in list(self._members.values()):
                member.kill()
            if self._thread.is_alive():
                self._thread.join()

    def deeds_table(self) -> Table:
        """Lay out what was done last, the newest first."""
        table = Table(
            title=f"The last {LAST_DEEDS} deeds of the players",
            title_justify="left",
            title_style="bold",
            box=box.SIMPLE_HEAD,
            pad_edge=False,
            collapse_padding=True,
        )
        table.add_column("time")
        table.add_column("what they did")
        for when, what in reversed(self._deeds.copy()):
            table.add_row(when, escape(what))
        return table

    def _play(self) -> None:
        began = time.monotonic()
        try:
            for step in schedule(self._seed):
                if step.at_s == 0:
                    continue
                if self._is_over.wait(max(began + step.at_s - time.monotonic(), 0.0)):
                    return
                self._take(step)
        except Exception as error:  # noqa: BLE001 - whoever shows the play tells it
            if not self._is_over.is_set():
                self.failure = error

    def _take(self, step: Act | Growth) -> None:
        """Do one step of the schedule, and note it."""
        if isinstance(step, Growth):
            self._broker.grow_topic(step.topic, step.partitions)
            self._note(f"{step.topic} grows to {step.partitions} partitions")
        elif step.do == "join":
            self._note(f"{step.member} joins {step.group.group_id}")
            member = ConfluentClient(
                self._broker,
                group_id=step.group.group_id,
                kind=step.group.kind,
                assignors=step.group.assignors,
                client_id=step.member,
                properties=_CLASSIC if step.group.kind == "classic" else {},
            )
            self._members[step.member] = member
            member.subscribe(*step.group.topics)
        elif step.do == "leave":
            self._note(f"{step.member} leaves {step.group.group_id}")
            self._members[step.member].leave()
        else:
            self._note(f"{step.member} crashes in {step.group.group_id}")
            self._members[step.member].crash()

    def _note(self, what: str) -> None:
        self._deeds.append((f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}", what))


def who_plays() -> str:
    """Name the groups and how each is assigned, in one line."""
    return ", ".join(f"{group.group_id} ({', '.join(group.assignors) or 'KIP-848'})" for group in GROUPS)
