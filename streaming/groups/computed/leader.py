"""Who leads a computed group: an assignor by its name, and with its loads the one that goes by them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from assignors import Assignment, Assignor, AssignorMemory, Subscription, TopicMetadata
from assignors.optimal import assign_weighted
from assignors.plugins import known_names
from streaming.groups import plugin_process
from streaming.groups.weights import weights_of
from streaming.model import WEIGHTED

if TYPE_CHECKING:
    from streaming.groups.rules import GroupRules
    from streaming.model import TopicView


def leader_names(rules: GroupRules) -> list[str]:
    """List the assignors that a group can be pinned to, sorted."""
    return sorted({*known_names(rules.plugins), WEIGHTED})


def get_leader(protocol: str, topics: TopicView, rules: GroupRules) -> Assignor:
    """Look an assignor up.

    Args:
        protocol: its name.
        topics: the topics as the group sees them, with their loads.
        rules: the plug-ins, and what limits moves for the sake of loads.

    Raises:
        AssignorError: as plugin_process.get_assignor.
    """
    if protocol != WEIGHTED:
        return plugin_process.get_assignor(protocol, rules.plugins)

    def assign(
        metadata: Mapping[str, TopicMetadata],
        subscriptions: Mapping[str, Subscription],
        memory: AssignorMemory | None = None,
    ) -> Assignment:
        return assign_weighted(
            metadata,
            subscriptions,
            weights_of(topics, metadata),
            most_moves=rules.weighted_most_moves,
            hysteresis=rules.weighted_hysteresis,
        ).assignment

    # Cooperative, because nobody should stop reading what stays: loads are told all the time. It promises
    # nothing by number, and counts as no sticky one, whose moves and spread are held against numbers.
    return Assignor(
        name=WEIGHTED, function=assign, rebalance_protocol="COOPERATIVE", is_sticky=False, promises=None
    )


def find_leader(protocol: str | None, topics: TopicView, rules: GroupRules) -> Assignor | None:
    """Look an assignor up as `get_leader` does; None for one that is not there or cannot be loaded."""
    if protocol == WEIGHTED:
        return get_leader(protocol, topics, rules)
    return plugin_process.find_assignor(protocol, rules.plugins)
