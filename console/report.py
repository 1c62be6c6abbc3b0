"""What people see in the terminal: groups, members, what moved, checks, alerts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.markup import escape
from rich.table import Table

from console.picture import Generation, draw_generations
from console.tables import (
    Row,
    assignment_rows,
    latest_alerts,
    latest_groups,
    latest_topics,
    read_table,
)

if TYPE_CHECKING:
    from rich.console import Console

LAST_REBALANCES = 8
MOST_NAMED = 6
"""How many partitions or records are named one by one before the rest becomes a number."""

LONGEST_MEMBER = 24

PICTURE = "generations.svg"


def groups_table(groups: Sequence[Row], assignments: Sequence[Row], alerts: Sequence[Row]) -> Table:
    """Lay out the groups, one row each.

    Args:
        groups: rows of `groups`.
        assignments: rows of `assignments`, of these groups at least.
        alerts: rows of `alerts`; only firing ones are counted.
    """
    names = ["group", "kind", "state", "protocol", "generation>", "members>", "owned>", "unowned>"]
    # One cluster is the usual case; its name in each row would only take room.
    has_clusters = len({group["cluster"] for group in groups}) > 1
    table = _table("Groups", *(["cluster"] if has_clusters else []), *names, "expected", "alerts")
    owned: Counter[tuple[str, str, bool]] = Counter()
    for row in assignments:
        owned[row["cluster"], row["group_id"], row["member_id"] is not None] += 1
    for group in groups:
        key = (group["cluster"], group["group_id"])
        unowned = owned[*key, False]
        firing = [a["alertname"] for a in firing_of(alerts) if (a["cluster"], a["group_id"]) == key]
        table.add_row(
            *(escape(str(text)) for text in (key if has_clusters else key[1:])),
            escape(_text(group["group_kind"])),
            escape(_text(group["group_state"])),
            escape(_text(group["protocol"])),
            _text(group["generation_id"]),
            str(len(group["members"] or ())),
            str(owned[*key, True]),
            f"[red]{unowned}[/red]" if unowned else "0",
            escape(_text(group["expected_status"]).replace("not_applicable", "-")),
            f"[red]{escape(', '.join(firing))}[/red]" if firing else "-",
        )
    return table


def members_table(group: Row, assignments: Iterable[Row]) -> Table:
    """Lay out one group's members and what each owns, then what nobody owns."""
    table = _table(f"Members of {group['group_id']} ({group['cluster']})", "member", "instance", "client")
    for name in ("host", "partitions>", "assignment", "should be elsewhere"):
        _add_column(table, name)
    places: dict[str | None, list[tuple[str, int]]] = {}
    misplaced: dict[str | None, list[tuple[str, int]]] = {}
    for row in assignments:
        place = (row["topic"], row["partition"])
        places.setdefault(row["member_id"], []).append(place)
        if row["expected_member_id"] not in (None, row["member_id"]):
            misplaced.setdefault(row["member_id"], []).append(place)
    for member in group["members"] or ():
        mine = places.get(member["member_id"], [])
        table.add_row(
            escape(member["member_id"]),
            escape(_text(member["group_instance_id"])),
            escape(_text(member["client_id"])),
            escape(_text(member["client_host"])),
            str(len(mine)),
            escape(places_text(mine)),
            escape(places_text(misplaced.get(member["member_id"], []))),
        )
    if None in places:
        mine = places[None]
        table.add_row("[red]nobody[/red]", "-", "-", "-", str(len(mine)), escape(places_text(mine)), "-")
    return table


def alerts_table(alerts: Sequence[Row]) -> Table:
    """Lay out alerts as they are given, the status in colour."""
    table = _table("Alerts", "alert", "severity", "status", "since", "cluster", "group", "summary")
    colours = {"firing": "red", "pending": "yellow", "resolved": "green"}
    for alert in alerts:
        colour = colours.get(alert["status"], "default")
        table.add_row(
            escape(alert["alertname"]),
            escape(_text(alert["severity"])),
            f"[{colour}]{escape(alert['status'])}[/{colour}]",
            _time(alert["since"]),
            escape(_text(alert["cluster"])),
            escape(_text(alert["group_id"])),
            escape(_text(alert["summary"])),
        )
    return table


def firing_of(alerts: Iterable[Row]) -> list[Row]:
    """Keep the alerts that fire now."""
    return [alert for alert in alerts if alert["status"] == "firing"]


def places_text(places: Iterable[tuple[str, int]]) -> str:
    """Write partitions as kafka-consumer-groups does: topic(numbers), a connector by its bare name.

    >>> places_text([("orders", 0), ("orders", 1), ("file-source", -1)])
    'file-source, orders(0,1)'
    """
    numbers: dict[str, list[int]] = {}
    for topic, partition in sorted(places):
        kept = numbers.setdefault(topic, [])
        if partition >= 0:
            kept.append(partition)
    texts = (f"{topic}({','.join(map(str, ps))})" if ps else topic for topic, ps in numbers.items())
    return ", ".join(texts) or "-"


def print_demo_report(tables: Path, console: Console) -> None:
    """Print what the demo found, and draw the picture of the group that moved most.

    Args:
        tables: the directory of the Delta tables; the picture is written there too.
        console: where to print.
    """
    where = str(tables)
    groups = latest_groups(where)
    alerts = latest_alerts(where)
    counts = latest_topics(where)
    assignments = [row for group in groups for row in assignment_rows(group, counts)]
    console.print(groups_table(groups, assignments, alerts))
    columns = ["log_seq", "cluster", "group_id", "kind", "version", "generation_id", "reason", "event_time"]
    columns += ["group_kind", "members", "assignment", "subscribed_topics", "protocol_type"]
    columns += ["balance", "deltas"]
    kinds = "kind IN ('rebalance', 'held', 'baseline', 'gap')"
    history = sorted(read_table(where, "generations", columns, kinds).to_pylist(), key=_log_order)
    told = [row for row in history if row["kind"] != "baseline"]
    told.sort(key=lambda row: (row["event_time"], row["log_seq"]))
    console.print(rebalances_table(told[-LAST_REBALANCES:]))
    console.print(_checks_table(read_table(where, "checks").to_pylist()))
    open_alerts = [alert for alert in alerts if alert["status"] != "resolved"]
    console.print(alerts_table(open_alerts))
    console.print(f"{len(alerts) - len(open_alerts)} more alerts are resolved.")
    console.print(_rejected_table(read_table(where, "rejected_events").to_pylist()))
    console.print(f"Tables: {escape(where)}", soft_wrap=True)
    picture = write_picture(tables, history)
    if picture is not None:
        console.print(f"Picture: {escape(str(picture))}", soft_wrap=True)


def write_picture(tables: Path, history: Sequence[Row]) -> Path | None:
    """Draw the group with the most moves as an SVG file beside the tables; None when nothing ever moved."""
    moves: Counter[tuple[str, str]] = Counter()
    for row in history:
        moves[row["cluster"], row["group_id"]] += len(_given_on(row))
    if not moves:
        return None
    # The computed group tells the story; ties by name, so that the picture is the same every time.
    computed = {(r["cluster"], r["group_id"]) for r in history if r["group_kind"] == "computed"}
    chosen = min(moves, key=lambda key: (key not in computed, -moves[key], key))
    rows = [row for row in history if (row["cluster"], row["group_id"]) == chosen and row["kind"] != "held"]
    path = tables / PICTURE
    path.write_text(
        draw_generations(f"Who owned what in {chosen[1]}", generations_of(rows)), encoding="utf-8"
    )
    return path


def generations_of(rows: Iterable[Row]) -> list[Generation]:
    """Turn one group's rows of the log, oldest first, into the columns of its picture."""
    generations = []
    seen: set[tuple[str, int]] = set()
    for row in rows:
        owned = {
            (entry["topic"], partition): entry["member_id"]
            for entry in row["assignment"] or ()
            for partition in entry["partitions"]
        }
        seen |= owned.keys()
        wanted = set(row["subscribed_topics"] or ())
        unowned = {place: None for place in seen if place[0] in wanted}
        generations.append(
            Generation(
                label=str(row["generation_id"]),
                owners={**unowned, **owned},
                names={m["member_id"]: _member_name(m) for m in row["members"] or ()},
            )
        )
    return generations


def _member_name(member: Row) -> str:
    return str(member["group_instance_id"] or member["member_id"])


def rebalances_table(rows: Iterable[Row]) -> Table:
    """Lay out versions of groups as they are given: when, which, why, and what moved.

    Args:
        rows: rows of `generations` about groups, with at least event_time, group_id,
            generation_id, kind, reason and deltas.
    """
    table = _table(
        f"The last {LAST_REBALANCES} rebalances", "time", "group", "generation>", "kind", "because"
    )
    _add_column(table, "what moved")
    for row in rows:
        table.add_row(
            _time(row["event_time"]),
            escape(row["group_id"]),
            _text(row["generation_id"]),
            escape(row["kind"]),
            escape(" ".join(map(_short, _text(row["reason"]).split(" ")))),
            escape(moves_text(row)),
        )
    return table


def moves_text(row: Row) -> str:
    """Say what one version changed, partitions of one kind of change together; and what was needless.

    >>> moved = {"topic": "t", "partition": 1, "change": "assigned"}
    >>> moved |= {"from_member_id": "A", "to_member_id": "B"}
    >>> moves_text({"deltas": [moved, {**moved, "partition": 2}]})
    't(1,2) A -> B'
    """
    given_on = {(d["topic"], d["partition"]) for d in _given_on(row)}
    places: dict[str, list[tuple[str, int]]] = {}
    for delta in row["deltas"] or ():
        place = (delta["topic"], delta["partition"])
        giver, taker = (_short(delta[name]) for name in ("from_member_id", "to_member_id"))
        if delta["change"] != "assigned" and place in given_on:
            # The other half of the same move.
            continue
        if delta["change"] == "assigned":
            how = f"{giver} -> {taker}" if giver else f"to {taker}"
        else:
            how = f"lost by {giver}" if delta["change"] == "lost" else f"{giver} yields"
            how += f" to {taker}" if taker else ""
        places.setdefault(how, []).append(place)
    texts = [f"{places_text(moved)} {how}" for how, moved in places.items()]
    if len(texts) > MOST_NAMED:
        texts[MOST_NAMED:] = [f"{len(texts) - MOST_NAMED} more"]
    balance = row.get("balance") or {}
    enough = balance.get("optimal_moves")
    if enough is not None and balance["moved"] > enough:
        texts.append(f"{balance['moved']} moved, {enough} {'was' if enough == 1 else 'were'} enough")
    return "; ".join(texts) or "nothing"


def _short(member_id: str | None) -> str:
    """Cut the long random tail that Kafka gives member ids."""
    text = member_id or ""
    return text if len(text) <= LONGEST_MEMBER else f"{text[: LONGEST_MEMBER - 3]}..."


def _given_on(row: Row) -> list[Row]:
    """Keep the deltas by which a partition came from one member to another."""
    return [d for d in row["deltas"] or () if d["change"] == "assigned" and d["from_member_id"]]


def _checks_table(checks: Sequence[Row]) -> Table:
    table = _table("Checks", "check", "severity", "passed>", "failed>", "last failure")
    by_check: dict[tuple[str, str], list[Row]] = {}
    for row in sorted(checks, key=_log_order):
        by_check.setdefault((row["check"], row["severity"]), []).append(row)
    for (check, severity), rows in sorted(by_check.items()):
        failed = [row for row in rows if not row["success"]]
        last = failed[-1] if failed else None
        said = f"{last['group_id']} version {last['version']}: {last['observed']}" if last else "-"
        number = f"[red]{len(failed)}[/red]" if failed else "0"
        table.add_row(escape(check), severity, str(len(rows) - len(failed)), number, escape(said))
    return table


def _rejected_table(rejected: Sequence[Row]) -> Table:
    table = _table(f"Rejected records: {len(rejected)}", "source", "position", "reason")
    ordered = sorted(rejected, key=lambda r: (r["source"], r["path"], r["partition"], r["offset"]))
    for row in ordered[:MOST_NAMED]:
        position = row["path"] if row["partition"] < 0 else f"{row['path']}-{row['partition']}"
        table.add_row(escape(row["source"]), escape(f"{position}:{row['offset']}"), escape(row["reason"]))
    if len(ordered) > MOST_NAMED:
        table.caption = f"{len(ordered) - MOST_NAMED} more in rejected_events"
    return table


def _table(title: str, *names: str) -> Table:
    table = Table(
        title=escape(title),
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
    )
    for name in names:
        _add_column(table, name)
    return table


def _add_column(table: Table, name: str) -> None:
    """Add a column; a closing `>` in its name sets numbers to the right."""
    table.add_column(
        name.removesuffix(">"), justify="right" if name.endswith(">") else "left", overflow="fold"
    )


def _text(value: Any) -> str:
    return "-" if value is None or value == "" else str(value)


def _time(value: datetime | None) -> str:
    return "-" if value is None else f"{value:%Y-%m-%d %H:%M:%S}"


def _log_order(row: Row) -> int:
    return int(row["log_seq"])
