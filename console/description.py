"""`counterpoise describe`: what the tables say of groups, as one value and as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from console.report import alerts_table, firing_of, groups_table, members_table
from console.tables import Row, assignments_of, latest_alerts, latest_groups

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from conf.settings import Settings

_GROUP_COLUMNS = (
    "cluster",
    "group_id",
    "kind",
    "group_kind",
    "group_state",
    "protocol_type",
    "protocol",
    "rebalance_protocol",
    "leader_id",
    "generation_id",
    "version",
    "is_final",
    "reason",
    "event_time",
    "expected_status",
    "expected_note",
    "members",
    "balance",
)


def tables_of(settings: Settings, cluster: str | None) -> list[str]:
    """Say where the tables are: one place, or one for each cluster where clusters have their own."""
    deployments = settings.by_cluster()
    wanted = [cluster] if cluster in deployments else list(deployments)
    return [deployments[name].job.tables for name in wanted]


def describe_groups(places: Sequence[str], group_id: str | None, cluster: str | None) -> dict[str, list[Row]]:
    """Read what there is to say of all groups, or of one.

    Args:
        places: directories or URIs of tables, one a deployment.
        group_id: only this group; None for all.
        cluster: only groups of this cluster; None for all.

    Returns:
        `groups`, `assignments` and `alerts`, each a list of rows with the columns
        of the table of that name (without a group's internal state); of the
        alerts those that are pending or firing.
    """
    told = [_describe(tables, group_id, cluster) for tables in places]
    return {
        name: [row for each in told for row in each[name]] for name in ("groups", "assignments", "alerts")
    }


def _describe(tables: str, group_id: str | None, cluster: str | None) -> dict[str, list[Row]]:
    groups = [row for row in latest_groups(tables, group_id) if cluster in (None, row["cluster"])]
    known = {(row["cluster"], row["group_id"]) for row in groups}
    alerts = [
        alert
        for alert in latest_alerts(tables, group_id)
        if alert["status"] != "resolved" and (alert["cluster"], alert["group_id"]) in known
    ]
    return {
        "groups": [{name: row[name] for name in _GROUP_COLUMNS} for row in groups],
        "assignments": assignments_of(tables, groups, group_id),
        "alerts": alerts,
    }


def print_description(description: dict[str, list[Row]], console: Console, *, with_members: bool) -> None:
    """Print the groups as a table; with their members where one group was asked for."""
    for part in lay_out_description(description, with_members=with_members):
        console.print(part)


def lay_out_description(description: dict[str, list[Row]], *, with_members: bool) -> Iterator[RenderableType]:
    """Give what there is to print of groups: their table, their members if wanted, what fires."""
    groups, assignments, alerts = (description[name] for name in ("groups", "assignments", "alerts"))
    yield groups_table(groups, assignments, alerts)
    if with_members:
        for group in groups:
            key = _key(group)
            yield members_table(group, [row for row in assignments if _key(row) == key])
            balance = group["balance"] or {}
            if balance.get("load_bound") is not None:
                far = f"{balance['load_distance']:.1%} above its bound"
                yield f"Highest load: {balance['load_highest']:g}, {far}"
            if group["expected_note"]:
                yield f"Expected: {escape(group['expected_status'])}, {escape(group['expected_note'])}"
    shown = alerts if with_members else firing_of(alerts)
    if shown:
        yield alerts_table(shown)


def _key(row: Row) -> tuple[Any, Any]:
    return row["cluster"], row["group_id"]
