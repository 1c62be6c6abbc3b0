"""Assignors by name, Kafka's and the user's own.

Source: the protocol names are those of ConsumerPartitionAssignor.name(); the two
server-side assignors, called "range" and "uniform" on KIP-848's wire, have
"server-" before theirs, because their answers differ from the client side's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from types import MappingProxyType
from typing import Literal

from assignors.cooperative_sticky import assign_cooperative_sticky
from assignors.errors import AssignorError, UnknownAssignorError
from assignors.model import Assignment, AssignorMemory, Subscription, TopicMetadata
from assignors.range import assign_range
from assignors.roundrobin import assign_roundrobin
from assignors.server_side import assign_server_range, assign_server_uniform
from assignors.sticky import assign_sticky

ENTRY_POINT_GROUP = "counterpoise.assignors"

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


def get_assignor(name: str, plugins: Mapping[str, Assignor] | None = None) -> Assignor:
    """Look an assignor up by its name.

    Args:
        name: as on the wire, or with "server-" before it for KIP-848's.
        plugins: more assignors by name; one of Kafka's cannot be replaced.

    Raises:
        UnknownAssignorError: none has that name; the message lists all that are known.

    >>> get_assignor("sticky").rebalance_protocol
    'EAGER'
    """
    known = {**(plugins or {}), **REGISTRY}
    if name not in known:
        listed = ", ".join(repr(one) for one in sorted(known))
        raise UnknownAssignorError(f"unknown protocol {name!r}; known: {listed}", name)
    return known[name]


def load_plugin(
    path: str,
    name: str | None = None,
    *,
    rebalance_protocol: Literal["EAGER", "COOPERATIVE"] = "EAGER",
) -> Assignor:
    """Make an assignor of a user's function, with the signature of Assignor.function.

    Args:
        path: "package.module:function", as a setting or an entry point has it.
        name: the protocol name of its groups; the path itself when None.
        rebalance_protocol: COOPERATIVE lets members keep partitions while they
            rejoin; what must change owners is then withheld for a generation.

    Raises:
        AssignorError: the path has another form, cannot be imported, or does
            not name a function; the message holds the path.
    """
    module_name, colon, attribute = path.partition(":")
    if not (colon and module_name and attribute):
        raise AssignorError(f"plug-in {path!r}: it must have the form 'package.module:function'", path)
    try:
        found: object = import_module(module_name)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise AssignorError(f"plug-in {path!r} cannot be imported: {error}", path) from error
    if not callable(found):
        raise AssignorError(
            f"plug-in {path!r} is a {type(found).__name__}; it must be a function of topics, subscriptions"
            " and memory",
            path,
        )
    return Assignor(
        name=name or path,
        function=found,
        rebalance_protocol=rebalance_protocol,
        is_sticky=False,
        promises=None,
    )


def load_entry_points() -> dict[str, Assignor]:
    """Load every assignor that installed packages offer, name -> Assignor.

    Raises:
        AssignorError: one cannot be imported, or takes the name of Kafka's own.
    """
    plugins: dict[str, Assignor] = {}
    for entry_point in sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda e: (e.name, e.value)):
        if entry_point.name in REGISTRY:
            raise AssignorError(
                f"entry point {entry_point.name!r} = {entry_point.value!r} has the name of one of Kafka's"
                " assignors; it must have another",
                entry_point.name,
            )
        plugins[entry_point.name] = load_plugin(entry_point.value, entry_point.name)
    return plugins
