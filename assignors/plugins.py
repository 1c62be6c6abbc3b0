"""Assignors by name, a user's own among them: finding, loading and asking plug-ins.

A plug-in is named by "package.module:attribute", in the settings or by an entry point
of an installed package. Whatever it raises, and whatever rule its answer breaks, becomes
a PluginError: nothing that a plug-in gives goes further unchecked.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Container, Iterable, Mapping, Set
from importlib import import_module
from importlib.metadata import distributions
from operator import index
from typing import Any, cast

from assignors.errors import AssignorError, PluginError, UnknownAssignorError
from assignors.model import Assignment, AssignorMemory, Subscription, TopicMetadata, TopicPartition
from assignors.registry import REGISTRY, Assignor, AssignorFunction

ENTRY_POINT_GROUP = "counterpoise.assignors"

TAKEN_NAMES = frozenset({*REGISTRY, "optimal-weighted", "connect-eager", "connect-incremental"})
"""Names that no plug-in can have: a group that asks for "range" gets Kafka's."""

_INT32_RANGE = range(-(2**31), 2**31)
_MOST_CHARACTERS = 500
"""How much of a plug-in's own words goes into a message: these end in alerts."""


def find_plugins(
    configured: Mapping[str, str],
    group: str = ENTRY_POINT_GROUP,
    taken: Container[str] = TAKEN_NAMES,
) -> tuple[dict[str, str], list[str]]:
    """Find what installed packages offer, beside what the settings name; nothing is imported.

    An entry point that cannot be used costs nobody but itself: it is left out, and
    whoever asks for its name is told that it is unknown.

    Args:
        configured: name -> "package.module:attribute" of the settings, which win.
        group: of the entry points.
        taken: names that are not to be had.

    Returns:
        name -> "package.module:attribute", and a line for each entry point left out:
        its name is taken, two packages offer it, or its package's cannot be read.
    """
    targets: dict[str, set[str]] = {}
    problems: list[str] = []
    seen = set()
    for distribution in distributions():
        try:
            name = distribution.metadata["Name"]
            if name in seen:  # the first on the path is the one that is imported
                continue
            seen.add(name)
            for entry in distribution.entry_points:
                if entry.group == group:
                    path = "".join(entry.value.partition("[")[0].split())
                    targets.setdefault(entry.name, set()).add(path)
        except Exception as error:  # noqa: BLE001 - another package's broken files are not ours to judge
            problems.append(f"the entry points of an installed package cannot be read: {tell(error)}")
    found: dict[str, str] = {}
    for name, paths in sorted(targets.items()):
        listed = " and ".join(map(repr, sorted(paths)))
        if name in configured:
            continue
        if name in taken:
            problems.append(f"entry point {name!r} = {listed} of {group!r} is left out: its name is taken")
        elif len(paths) > 1:
            problems.append(
                f"entry point {name!r} of {group!r} is left out: it is {listed}; name one in the settings"
            )
        else:
            (found[name],) = paths
    return {**found, **configured}, problems


def known_names(plugins: Mapping[str, str]) -> list[str]:
    """List the assignors that a consumer group can ask for, Kafka's and the plug-ins, sorted."""
    return sorted({*REGISTRY, *plugins})


def get_assignor(name: str, plugins: Mapping[str, str] | None = None) -> Assignor:
    """Look an assignor up by its name.

    Args:
        name: as on the wire, or with "server-" before it for KIP-848's.
        plugins: name -> "package.module:attribute" of more; none replaces Kafka's.

    Raises:
        UnknownAssignorError: none has that name; the message lists all that are known.
        PluginError: the plug-in of that name cannot be loaded.

    >>> get_assignor("sticky").rebalance_protocol
    'EAGER'
    """
    if name in REGISTRY:
        return REGISTRY[name]
    if plugins and name in plugins:
        return load_plugin(plugins[name], name)
    listed = ", ".join(map(repr, known_names(plugins or {})))
    raise UnknownAssignorError(f"unknown protocol {name!r}; known: {listed}", name)


def find_assignor(name: str | None, plugins: Mapping[str, str]) -> Assignor | None:
    """Look an assignor up as `get_assignor` does; None for one that is not there or cannot be loaded."""
    try:
        return None if name is None else get_assignor(name, plugins)
    except AssignorError:
        return None


def load_plugin(path: str, name: str | None = None) -> Assignor:
    """Make an assignor of a user's own, which is checked each time it is asked.

    Its function takes copies of what Assignor.function takes and gives a mapping of
    member_id -> (topic, partition) pairs. A member may be absent (it owns nothing), each
    partition may be there once, its owner subscribes to it, and every partition that
    somebody subscribes to has an owner; one that a member claims in `owned_partitions`
    may be withheld where the rebalance protocol is COOPERATIVE. Order is kept; sets
    are sorted. With EAGER, a function's own, computed groups tell of no owned partitions.

    Args:
        path: "package.module:attribute" of a function, or of an Assignor that also
            declares its rebalance protocol and what it promises.
        name: the protocol name of its groups; the path itself when None.

    Raises:
        PluginError: the path has another form, cannot be imported, or names
            something else; the message holds the path.
    """
    found = import_plugin(path)
    if isinstance(found, Assignor):
        _check_declared(path, found)
        declared = found
    elif callable(found) and not isinstance(found, type):
        # Its answers are checked before they count as an Assignment.
        function = cast("AssignorFunction", found)
        declared = Assignor(
            name=path, function=function, rebalance_protocol="EAGER", is_sticky=False, promises=None
        )
    else:
        raise PluginError(
            f"plug-in {path!r} is a {type(found).__name__}; it must be a function of topics, subscriptions"
            " and memory, or an Assignor",
            path,
        )
    declared = dataclasses.replace(declared, name=name or path)
    return dataclasses.replace(declared, function=_guarded(declared))


def import_plugin(path: str, kind: str = "plug-in") -> object:
    """Import what "package.module:attribute" names; `kind` is what an error calls it.

    Raises:
        PluginError: the path has another form or cannot be imported.
    """
    module_name, colon, attribute = path.partition(":")
    if not (colon and module_name and attribute):
        raise PluginError(f"{kind} {path!r}: it must have the form 'package.module:function'", path)
    try:
        found: object = import_module(module_name)
        for part in attribute.split("."):
            found = getattr(found, part)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a user's module may raise anything, SystemExit too
        raise PluginError(f"{kind} {path!r} cannot be imported: {tell(error)}", path) from error
    return found


def describe_failure(protocol: str, error: BaseException) -> str:
    """Say in one line why an assignor gave no assignment."""
    if isinstance(error, PluginError | UnknownAssignorError):
        return _clean(lambda: str(error))
    if isinstance(error, AssignorError):
        return f"assignor {protocol!r} refuses these inputs: {_clean(lambda: str(error))}"
    return f"assignor {protocol!r} raised {tell(error)}"


def tell(error: BaseException) -> str:
    """Write an exception as its type and its own words, in one line."""
    return f"{type(error).__name__}: {_clean(lambda: str(error))}"


def as_number(given: object) -> int | None:
    """Take Python's and numpy's integers; a bool is an answer to another question."""
    try:
        return None if isinstance(given, bool) else index(cast("Any", given))
    except TypeError:
        return None


def _clean(words: Callable[[], str]) -> str:
    """Let an object of a user's speak: one line, not too long, and nothing that UTF-8 cannot hold."""
    try:
        text = words()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - __str__ and __repr__ may raise anything as well
        text = f"(no words: its own raised {type(error).__name__})"
    text = " ".join(text.split()).encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= _MOST_CHARACTERS else f"{text[: _MOST_CHARACTERS - 3]}..."


def _shown(value: object) -> str:
    return _clean(lambda: repr(value))


def _check_declared(path: str, declared: Assignor) -> None:
    """Refuse an Assignor whose fields are not of their types: nothing checked them when it was made."""
    allowed: dict[str, tuple[Any, ...]] = {
        "rebalance_protocol": ("EAGER", "COOPERATIVE"),
        "is_sticky": (True, False),
        "promises": ("group", "topic", None),
    }
    for name, values in allowed.items():
        value = getattr(declared, name)
        if not any(type(value) is type(one) and value == one for one in values):
            raise PluginError(
                f"plug-in {path!r}: its {name} is {_shown(value)}; it must be one of "
                + ", ".join(map(repr, values)),
                path,
            )
    if not callable(declared.function):
        raise PluginError(
            f"plug-in {path!r}: its function is {_shown(declared.function)}; it must be a function of topics,"
            " subscriptions and memory",
            path,
        )


class _RuleBrokenError(Exception):
    """An answer breaks a rule; the message goes on where "assignor NAME" ends."""


def _guarded(declared: Assignor) -> AssignorFunction:
    """Wrap a plug-in's function: copies in, a checked Assignment or a PluginError out."""
    name, function = declared.name, declared.function

    def ask(
        topics: Mapping[str, TopicMetadata],
        subscriptions: Mapping[str, Subscription],
        memory: AssignorMemory | None = None,
    ) -> Assignment:
        remembered = None if memory is None else AssignorMemory(memory.max_generation)
        is_eager = declared.rebalance_protocol == "EAGER"
        try:
            given: object = function(dict(topics), dict(subscriptions), remembered)
            # Inside, because what it gives may be lazy and raise only now.
            owned = _check_assignment(given, topics, subscriptions, is_eager=is_eager)
            generation = None if remembered is None else _check_generation(remembered)
        except KeyboardInterrupt:
            raise
        except _RuleBrokenError as broken:
            raise PluginError(f"assignor {name!r} {broken}", name) from None
        except BaseException as error:  # a plug-in may raise anything, SystemExit too
            raise PluginError(f"assignor {name!r} raised {tell(error)}", name) from error
        if memory is not None and generation is not None:
            memory.max_generation = generation
        return Assignment.of(owned)

    return ask


def _check_generation(memory: AssignorMemory) -> int:
    generation = as_number(memory.max_generation)
    if generation is None or generation not in _INT32_RANGE:
        raise _RuleBrokenError(f"remembers generation {_shown(memory.max_generation)}; it must be an int32")
    return generation


def _check_assignment(
    given: object,
    topics: Mapping[str, TopicMetadata],
    subscriptions: Mapping[str, Subscription],
    *,
    is_eager: bool,
) -> dict[str, list[TopicPartition]]:
    """Take a plug-in's answer apart: every member -> its partitions, as values of our own.

    Members are gone through in join order, so that the same rule is found broken
    in every process, whatever the order of the plug-in's sets.
    """
    if not isinstance(given, Mapping):
        raise _RuleBrokenError(f"gave {_shown(given)}; it must give member_id -> (topic, partition) pairs")
    foreign = sorted(_shown(member) for member in given if member not in subscriptions)
    if foreign:
        raise _RuleBrokenError(f"gave partitions to {foreign[0]}, which is no member of the group")
    names = {topic: topic for topic in topics}
    owners: dict[str, dict[int, str | None]] = {t: dict.fromkeys(topics[t].partitions) for t in topics}
    owned: dict[str, list[TopicPartition]] = {member: [] for member in subscriptions}
    for member, subscription in subscriptions.items():
        wanted, mine = frozenset(subscription.topics), owned[member]
        pairs = given.get(member, ())
        if not isinstance(pairs, Iterable) or isinstance(pairs, str | bytes):
            raise _RuleBrokenError(f"gave {member!r} {_shown(pairs)}; it must give (topic, partition) pairs")
        for pair in sorted(pairs, key=_shown) if isinstance(pairs, Set) else pairs:
            topic, partition = _read_pair(member, pair)
            what = f"partition {partition} of topic {topic!r}"
            by_partition = owners.get(topic)
            if by_partition is None or partition not in by_partition:
                has = "is unknown" if by_partition is None else f"has {len(by_partition)} partitions"
                raise _RuleBrokenError(f"gave {member!r} {what}, which {has}")
            if topic not in wanted:
                raise _RuleBrokenError(f"gave {member!r} {what}, to which it does not subscribe")
            owner = by_partition[partition]
            if owner is not None:
                again = "a second time" if owner == member else f"which {owner!r} has already"
                raise _RuleBrokenError(f"gave {member!r} {what}, {again}; a partition has one owner")
            by_partition[partition] = member
            mine.append(TopicPartition(names[topic], partition))
        if isinstance(pairs, Set):
            mine.sort()
    _check_nothing_is_left(owners, subscriptions, is_eager=is_eager)
    return owned


def _read_pair(member: str, pair: object) -> tuple[str, int]:
    if isinstance(pair, tuple | list) and len(pair) == 2:
        topic, partition = pair[0], as_number(pair[1])
        if isinstance(topic, str) and partition is not None:
            return topic, partition
    raise _RuleBrokenError(f"gave {member!r} {_shown(pair)}; it must be a pair of topic and partition number")


def _check_nothing_is_left(
    owners: Mapping[str, Mapping[int, str | None]],
    subscriptions: Mapping[str, Subscription],
    *,
    is_eager: bool,
) -> None:
    """Find subscribed partitions without an owner, but for those that a cooperative move withholds."""
    wanted = {topic for subscription in subscriptions.values() for topic in subscription.topics}
    claimed = set()
    if not is_eager:
        claimed = {pair for subscription in subscriptions.values() for pair in subscription.owned_partitions}
    left = [
        (topic, partition)
        for topic, by_partition in owners.items()
        if topic in wanted
        for partition, owner in by_partition.items()
        if owner is None and (topic, partition) not in claimed
    ]
    if left:
        more = f", and {len(left) - 1} more" if len(left) > 1 else ""
        raise _RuleBrokenError(f"left partition {left[0][1]} of topic {left[0][0]!r}{more} to nobody")
