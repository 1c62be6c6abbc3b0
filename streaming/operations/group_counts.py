"""What happened to each group since the process started: rebalances, moves, members come and gone.

For a bounded number of groups: those that changed last. Counted in the thread of the
batch, asked by the endpoint.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from streaming.tables.log import GROUP_KINDS, GroupKey, Tail

if TYPE_CHECKING:
    from streaming.tables.delta import Tables

MOVES = ("moved", "assigned", "revoked", "lost")
"""Columns of `balance`; what moved is also among what was revoked and assigned."""

_COLUMNS = ["cluster", "group_id", "kind", "group_state"]


@dataclass(slots=True)
class GroupCount:
    """The counters of one group, and its members as hashes: enough to see who came and went."""

    rebalances: int = 0
    joins: int = 0
    leaves: int = 0
    moves: dict[str, int] = field(default_factory=lambda: dict.fromkeys(MOVES, 0))
    members: frozenset[int] = frozenset()


class GroupCounts:
    """The counters of one deployment's groups."""

    def __init__(self, most_groups: int) -> None:
        """Keep at most so many; a group that comes back later counts from 0."""
        self._most_groups = most_groups
        self._counts: dict[GroupKey, GroupCount] = {}
        self._knows_all = True
        self._lock = threading.Lock()

    def begin(self, tables: Tables, tail: Tail) -> None:
        """Learn who is a member of what, so that the first change of a group counts rightly."""
        columns = [*_COLUMNS, "members"]
        for rows in (tables.read("groups", columns), tail.rows_after(0).select([*columns, "log_seq"])):
            in_order = rows.sort_by("log_seq") if "log_seq" in rows.column_names else rows
            groups = in_order.filter(pc.is_in(in_order["kind"], pa.array(GROUP_KINDS)))
            for key, kind, state, members in _described(groups):
                self._know(key, kind, state, members)

    def take(self, rows: pa.Table) -> None:
        """Count a committed batch's rows of the log, in their order."""
        # Columns first: a filter would copy states and events too.
        narrow = rows.select([*_COLUMNS, "members", "balance"])
        groups = narrow.filter(pc.is_in(narrow["kind"], pa.array(GROUP_KINDS)))
        balances = groups["balance"].combine_chunks()
        moves = {name: pc.struct_field(balances, name).to_pylist() for name in MOVES}
        with self._lock:
            for place, (key, kind, state, members) in enumerate(_described(groups)):
                known = self._counts.get(key)
                if known is not None and kind != "deleted":
                    known.joins += len(members - known.members)
                    known.leaves += len(known.members - members)
                is_new = known is None and self._knows_all and kind not in ("baseline", "gap")
                known = self._know(key, kind, state, members)
                if known is None:
                    continue
                if is_new:
                    known.joins += len(members)
                if kind == "rebalance":
                    known.rebalances += 1
                    for name, counts in moves.items():
                        known.moves[name] += counts[place] or 0

    def _know(self, key: GroupKey, kind: str, state: str, members: frozenset[int]) -> GroupCount | None:
        """Put the group behind all others, with these members; None for one that is no more."""
        count = self._counts.pop(key, None)
        if kind == "deleted" or state == "Dead":
            return None
        count = count or GroupCount()
        count.members = members
        self._counts[key] = count
        if len(self._counts) > self._most_groups:
            del self._counts[next(iter(self._counts))]
            self._knows_all = False
        return count

    def of(self, key: GroupKey) -> GroupCount:
        """Give a group's counters: zeros where nothing is known of it."""
        with self._lock:
            return self._counts.get(key) or _NOTHING


_NOTHING = GroupCount()


def _described(groups: pa.Table) -> list[tuple[GroupKey, str, str, frozenset[int]]]:
    """Give (key, kind, state, members as hashes) of each row."""
    members = groups["members"].combine_chunks()
    lengths = pc.fill_null(pc.list_value_length(members), 0).to_pylist()
    ids = list(map(hash, pc.struct_field(pc.list_flatten(members), "member_id").to_pylist()))
    columns = [groups[name].to_pylist() for name in _COLUMNS]
    described = []
    end = 0
    for cluster, group_id, kind, state, length in zip(*columns, lengths, strict=True):
        begin, end = end, end + length
        described.append(((cluster, group_id), kind, state, frozenset(ids[begin:end])))
    return described
