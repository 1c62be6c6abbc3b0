"""`counterpoise place`: which brokers hold a topic's partitions, by Kafka's own two ways."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich import box
from rich.markup import escape
from rich.table import Table

from assignors.replicas import Broker, place_replicas, place_striped
from console.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

GREATEST_ID = 2**31 - 1
"""Broker ids are Java's ints."""

MOST_PARTITIONS = 1_000_000
"""Of one topic; events with more are rejected too."""

MOST_ROWS = 1000
"""How many partitions a table for people lists; --json has no such end."""

Placed = Mapping[int, Sequence[int]]
"""partition -> broker ids, the leader first."""


def parse_brokers(text: str, *, rack_unaware: bool = False) -> list[Broker]:
    """Read brokers as `--brokers` has them: `0,1,2` or `0:rack1,1:rack3`.

    A rack is what follows the first colon; it may hold colons itself. The order
    is kept: without racks it is that of the circle.

    Args:
        text: broker ids, each with its rack or without.
        rack_unaware: leave the racks out.

    Raises:
        UsageError: an id is no number or stands there twice, or a rack is empty.

    >>> [(b.broker_id, b.rack) for b in parse_brokers("0:a,1:b")]
    [(0, 'a'), (1, 'b')]
    """
    brokers: list[Broker] = []
    seen: set[int] = set()
    for item in text.split(","):
        id_text, colon, rack = (part.strip() for part in item.partition(":"))
        is_number = id_text.isascii() and id_text.isdigit() and len(id_text) <= len(str(GREATEST_ID))
        broker_id = int(id_text) if is_number else -1
        if not 0 <= broker_id <= GREATEST_ID:
            raise UsageError(
                f"--brokers: {item.strip()!r} has no broker id; write ids as 0,1,2 or with racks as 0:a,1:b,"
                f" each 0 to {GREATEST_ID}"
            )
        if broker_id in seen:
            raise UsageError(f"--brokers: broker {broker_id} is listed twice; each must be listed once")
        if colon and not rack:
            raise UsageError(f"--brokers: {item.strip()!r} has an empty rack; name it or leave the colon out")
        seen.add(broker_id)
        brokers.append(Broker(broker_id=broker_id, rack=rack if rack and not rack_unaware else None))
    return brokers


def check_partition_count(option: str, count: int) -> None:
    """Refuse a number of partitions that no topic has.

    Raises:
        UsageError: naming the option, the number and what is allowed.
    """
    if not 1 <= count <= MOST_PARTITIONS:
        raise UsageError(f"{option} is {count}; it must be 1 to {MOST_PARTITIONS}")


def place_partitions(
    brokers: Sequence[Broker],
    *,
    partitions: int,
    replication_factor: int,
    start_index: int = 0,
    shift: int = 0,
    start_partition_id: int = 0,
    seed: int | None = None,
) -> Placed:
    """Place partitions in a circle (`place_replicas`), or with a seed in stripes (`place_striped`).

    In stripes the start index and the shift do not count, and the first new
    partition's number does not change where it goes: a controller draws afresh.

    Raises:
        UsageError: a count or a start is out of range; Kafka would draw a
            negative start by chance.
        AssignorError: no replicas are asked for or more than there are brokers,
            or only some brokers have a rack.
    """
    check_partition_count("--partitions", partitions)
    starts = {"--start-index": start_index, "--shift": shift, "--start-partition-id": start_partition_id}
    for option, start in starts.items():
        if start < 0:
            raise UsageError(f"{option} is {start}; it must be 0 or more")
    if seed is None:
        return place_replicas(
            brokers,
            partitions=partitions,
            replication_factor=replication_factor,
            start_index=start_index,
            start_shift=shift,
            start_partition_id=start_partition_id,
        )
    without = [broker.broker_id for broker in brokers if broker.rack is None]
    if 0 < len(without) < len(brokers):
        # The controller itself would take those without for a rack of their own.
        raise UsageError(f"brokers {without!r} have no rack while others do; all or none must have one")
    placed = place_striped(brokers, partitions=partitions, replication_factor=replication_factor, seed=seed)
    return dict(enumerate(placed, start_partition_id))


def describe_placement(brokers: Sequence[Broker], placed: Placed) -> dict[str, Any]:
    """Give a placement as `place --json` prints it.

    Returns:
        `partitions`: partition, replicas (the leader first) and their racks, null
        where none is known; `brokers`: broker, rack, leaders, replicas, by id.
    """
    racks = {broker.broker_id: broker.rack for broker in brokers}
    leaders = Counter(replicas[0] for replicas in placed.values())
    held = Counter(broker for replicas in placed.values() for broker in replicas)
    return {
        "partitions": [
            {
                "partition": partition,
                "replicas": list(replicas),
                "racks": [racks[broker] for broker in replicas],
            }
            for partition, replicas in placed.items()
        ],
        "brokers": [
            {"broker": broker, "rack": racks[broker], "leaders": leaders[broker], "replicas": held[broker]}
            for broker in sorted(racks)
        ],
    }


def print_placement(description: Mapping[str, Any], console: Console) -> None:
    """Print a placement: a row for each partition, then one for each broker.

    Args:
        description: from `describe_placement`.
        console: where to.
    """
    partitions, brokers = description["partitions"], description["brokers"]
    has_racks = any(broker["rack"] is not None for broker in brokers)
    placement = plain_table("partition>", "replicas", *(["racks"] if has_racks else []))
    for row in partitions[:MOST_ROWS]:
        racks = [escape(", ".join(rack for rack in row["racks"]))] if has_racks else []
        placement.add_row(str(row["partition"]), ", ".join(map(str, row["replicas"])), *racks)
    print_titled("Partitions", placement, console)
    print_left_out(len(partitions) - MOST_ROWS, console)
    load = plain_table("broker>", *(["rack"] if has_racks else []), "leaders>", "replicas>")
    for row in brokers:
        rack = [escape(row["rack"])] if has_racks else []
        load.add_row(str(row["broker"]), *rack, str(row["leaders"]), str(row["replicas"]))
    print_titled("Brokers", load, console)


def plain_table(*names: str) -> Table:
    """Make an empty table in the style of the report's, which would bring the Delta reader along.

    A closing `>` in a column's name sets numbers to the right.
    """
    table = Table(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
    )
    for name in names:
        justify: Any = "right" if name.endswith(">") else "left"
        table.add_column(name.removesuffix(">"), justify=justify, overflow="fold")
    return table


def print_titled(title: str, table: Table, console: Console) -> None:
    """Print a table under its title, which rich itself would wrap to a narrow table's width."""
    console.print(title, style="bold", markup=False, highlight=False)
    console.print(table)


def print_left_out(rows: int, console: Console) -> None:
    """Say how many rows a table left out, if it did."""
    if rows > 0:
        console.print(f"{rows} more partitions; --json lists all", highlight=False)
