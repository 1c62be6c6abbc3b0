"""Group state to assignments: advance each group over its events and make the rows of the log.

Pure functions over plain values, called with the same arguments in the driver's
process for a small batch and on executors for a large one, so both give the same rows.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from streaming.groups.broadcast import merge_changes
from streaming.groups.set_aside import SetAside, latest_ms, why_failed
from streaming.groups.turn import GroupTurn, GroupWork
from streaming.log_context import telling
from streaming.model import TopicState, TopicView

if TYPE_CHECKING:
    from streaming.groups.log_rows import Row
    from streaming.groups.rules import GroupRules

__all__ = ["GroupWork", "advance_groups"]

_logger = logging.getLogger(__name__)


def advance_groups(
    work: Iterable[GroupWork],
    topics: Mapping[str, Mapping[str, TopicState]],
    rules: GroupRules,
    holds: frozenset[tuple[str, str, int]],
) -> Iterator[Row]:
    """Advance groups over their part of a batch.

    Args:
        work: each group at most once.
        topics: cluster -> topic -> state, before the batch.
        rules: the settings that decide.
        holds: (cluster, group_id, version) that a critical check refused; these are held.

    Returns:
        Rows of schemas.GENERATIONS without log_seq, batch_seq, observed_at and
        checks, and with `ordinal`, the row's place among its group's rows of this
        batch. A `state` row comes last where anything changed that no version carries.
        A group whose turn fails has one `state` row: it is set aside (set_aside.py).
    """
    for item in work:
        held = frozenset(v for c, g, v in holds if (c, g) == (item.cluster, item.group_id))
        yield from _advance(item, topics.get(item.cluster, {}), rules, held)


def _advance(
    work: GroupWork, topics: Mapping[str, TopicState], rules: GroupRules, held: frozenset[int]
) -> list[Row]:
    """Give one group its turn; one that fails, or waits to be tried again, is set aside."""
    fresh = list(merge_changes(work.inputs, work.broadcast.changes.get(work.cluster, ())))
    known = SetAside.load(work.state, work.cluster, work.group_id)
    if known is not None and not fresh:
        return []
    aside = known or SetAside(before=work.state)
    now_ms = latest_ms(fresh) or aside.tried_ms
    waited = {id(event) for event, _ in aside.heard}
    if known is not None:
        aside.hear(fresh, topics)

    def turn() -> GroupTurn:
        then = topics if known is None else known.topics_then(topics)
        return GroupTurn(replace(work, state=aside.before), TopicView(then), rules, held)

    at = None
    if known is None or known.is_due(now_ms):
        attempt = turn()
        try:
            if known is None:
                return attempt.rows(fresh)
            return attempt.rows_again(known, waited, now_ms)
        except Exception as error:
            at = attempt.at
            aside.fail(why_failed(error, at), now_ms, rules.set_aside_retry_ms)
            with telling(cluster=work.cluster, group_id=work.group_id):
                _logger.warning(
                    "%s of cluster %s: %s", work.group_id, work.cluster, aside.reason, exc_info=error
                )
    if known is None:
        aside.hear(fresh, topics)
    given_up = aside.give_up(rules.set_aside_max_bytes, at)
    shown = turn().show(aside.heard)
    events = aside.event_rows(fresh, given_up)
    return [aside.row(shown, events, work.cluster, work.group_id, rules, now_ms)]
