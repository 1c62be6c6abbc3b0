"""`counterpoise assign FILE`: one computed assignment as a table of what each member keeps and gets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.markup import escape
from rich.table import Table

from console.report import places_text


def assigned_table(case: Mapping[str, Any], result: Mapping[str, Sequence[Sequence[Any]]]) -> Table:
    """Lay out each member's partitions: kept, taken over from another, new, and given up.

    Args:
        case: as `assign --jsonl` takes it; its members' `owned` are what they have now.
        result: member -> its [topic, partition] pairs, as the same command gives it.
    """
    owned = {m["id"]: {(t, p) for t, p in m.get("owned") or ()} for m in case["members"]}
    owner_of: dict[tuple[str, int], str] = {}
    for member, places in owned.items():
        for place in places:
            owner_of.setdefault(place, member)
    title = f"{case['assignor']}: {sum(map(len, result.values()))} partitions, {len(result)} members"
    table = Table(title=escape(title), title_justify="left", title_style="bold")
    table.add_column("member")
    table.add_column("partitions", justify="right")
    for name in ("kept", "moved here", "new", "given up"):
        table.add_column(name, overflow="fold")
    for member in sorted(result):
        mine = {(topic, partition) for topic, partition in result[member]}
        had = owned.get(member, set())
        moved = {place for place in mine - had if place in owner_of}
        moved_text = ", ".join(f"{places_text([place])} from {owner_of[place]}" for place in sorted(moved))
        table.add_row(
            escape(member),
            str(len(mine)),
            escape(places_text(mine & had)),
            escape(moved_text or "-"),
            escape(places_text(mine - had - moved)),
            escape(places_text(had - mine)),
        )
    return table
