"""Kafka's assignors by name, and the optimal ones.

Source: the protocol names are those of ConsumerPartitionAssignor.name(); the two
server-side assignors, called "range" and "uniform" on KIP-848's wire, have
"server-" before theirs, because their answers differ from the client side's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from assignors.cooperative_sticky import assign_cooperative_sticky
from assignors.model import Assignment, AssignorMemory, Subscription, TopicMetadata
from assignors.optimal import assign_optimal, assign_optimal_cooperative
from assignors.range import assign_range
from assignors.roundrobin import assign_roundrobin
from assignors.server_side import assign_server_range, assign_server_uniform
from assignors.sticky import assign_sticky

AssignorFunction = Callable[
    [Mapping[str, TopicMetadata], Mapping[str, Subscription], AssignorMemory | None], Assignment
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignor:
    """One assignor, with what it promises.

    `function` takes topics, subscriptions in join order, and the memory of one
    leader. `promises` says what is level within one partition when all members
    subscribe alike: the whole "group", each "topic" alone, or nothing (None).
    `is_sticky` means that it moves nothing of a group that is level already.
    """

    name: str
    function: AssignorFunction
    rebalance_protocol: Literal["EAGER", "COOPERATIVE"]
    is_sticky: bool
    promises: Literal["group", "topic"] | None


def _server_range(
    topics: Mapping[str, TopicMetadata],
    subscriptions: Mapping[str, Subscription],
    memory: AssignorMemory | None = None,
) -> Assignment:
    return assign_server_range(topics, subscriptions)


def _server_uniform(
    topics: Mapping[str, TopicMetadata],
    subscriptions: Mapping[str, Subscription],
    memory: AssignorMemory | None = None,
) -> Assignment:
    return assign_server_uniform(topics, subscriptions)


# The server's assignors are called here without topic ids: each topic gets one
# derived from its name. Who knows the ids calls server_side's functions.
REGISTRY: Mapping[str, Assignor] = MappingProxyType(
    {
        assignor.name: assignor
        for assignor in (
            Assignor(
                name="cooperative-sticky",
                function=assign_cooperative_sticky,
                rebalance_protocol="COOPERATIVE",
                is_sticky=True,
                promises="group",
            ),
            Assignor(
                name="optimal",
                function=assign_optimal,
                rebalance_protocol="EAGER",
                is_sticky=True,
                promises="group",
            ),
            Assignor(
                name="optimal-cooperative",
                function=assign_optimal_cooperative,
                rebalance_protocol="COOPERATIVE",
                is_sticky=True,
                promises="group",
            ),
            Assignor(
                name="range",
                function=assign_range,
                rebalance_protocol="EAGER",
                is_sticky=False,
                promises="topic",
            ),
            Assignor(
                name="roundrobin",
                function=assign_roundrobin,
                rebalance_protocol="EAGER",
                is_sticky=False,
                promises="group",
            ),
            Assignor(
                name="server-range",
                function=_server_range,
                rebalance_protocol="COOPERATIVE",
                is_sticky=False,
                promises="topic",
            ),
            Assignor(
                name="server-uniform",
                function=_server_uniform,
                rebalance_protocol="COOPERATIVE",
                is_sticky=True,
                promises="group",
            ),
            Assignor(
                name="sticky",
                function=assign_sticky,
                rebalance_protocol="EAGER",
                is_sticky=True,
                promises="group",
            ),
        )
    }
)
