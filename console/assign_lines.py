"""`counterpoise assign --jsonl`: one case a line in, one result or error a line out.

The contract is meant for tests and for other programs: members count as joined in the order
given, and everything that Kafka's classes read can be set, down to the bytes of
the user data. No line stops the next one.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from typing import Any

from assignors import (
    NO_GENERATION,
    REGISTRY,
    Assignment,
    Assignor,
    AssignorError,
    AssignorMemory,
    Subscription,
    TopicMetadata,
    TopicPartition,
    UnknownAssignorError,
    encode_cooperative_user_data,
    encode_sticky_user_data,
    get_assignor,
)
from assignors.optimal import WeightedAssignment, assign_weighted, certificate_of, find_optimum

_INT32_RANGE = range(-(2**31), 2**31)
_SERVER_FUNCTIONS = {
    "server-range": "assign_server_range",
    "server-uniform": "assign_server_uniform",
}
_CONNECT = ("connect-eager", "connect-incremental")
_WEIGHTED = "optimal-weighted"
_CERTIFIED = ("optimal", "optimal-cooperative", _WEIGHTED)


class CaseError(ValueError):
    """A case does not have the form of the contract."""


def run_assign_lines(
    lines: Iterable[str | bytes],
    write: Callable[[str], object],
    plugins: Mapping[str, str] | None = None,
    *,
    certificates: bool = False,
) -> int:
    """Answer each line with one line, in order, before the next one is read.

    Args:
        lines: JSON texts; blank lines are passed over.
        write: gets each answer, its line end included; it should flush.
        plugins: name -> "package.module:attribute" of assignors of the user's own.
        certificates: whether to prove each answer; only the optimal assignors can.

    Returns:
        How many lines were answered with an error.
    """
    errors = 0
    for answer in answer_lines(lines, plugins, certificates=certificates):
        errors += "error" in answer
        write(json.dumps(answer, separators=(",", ":")) + "\n")
    return errors


def answer_lines(
    lines: Iterable[str | bytes],
    plugins: Mapping[str, str] | None = None,
    *,
    certificates: bool = False,
) -> Iterator[dict[str, Any]]:
    """Answer cases one by one: `{"id"?, "result"}`, or `{"id"?, "error", "message"}`.

    Without an id the result stands bare. With certificates it never does, and has beside it
    `moved`, `kept`, `certificate` (Certificate.to_json) and, where the first of two
    steps withholds something, `target`, the assignment that is proven; for
    optimal-weighted `moved`, `loads`, `bound` and `distance` (WeightedAssignment).
    `error` is one of bad_json, bad_case, unknown_assignor and assignor_error (the assignor
    refused, as Kafka's class would, or a plug-in cannot be loaded, raised or broke a rule).
    """
    memories: dict[tuple[str, str], AssignorMemory] = {}
    for line in lines:
        if not line.strip():
            continue
        case: Any = None
        try:
            case = json.loads(line)
            if not isinstance(case, dict):
                raise CaseError(f"a case is a {type(case).__name__}; it must be an object")
            if certificates:
                yield {**({"id": case["id"]} if "id" in case else {}), **_certified(case)}
                continue
            result = _answer(case, memories, plugins)
        except UnknownAssignorError as error:
            yield _error(case, "unknown_assignor", error)
        except AssignorError as error:
            yield _error(case, "assignor_error", error)
        except CaseError as error:
            yield _error(case, "bad_case", error)
        except (ValueError, RecursionError) as error:
            yield _error(case, "bad_json" if case is None else "bad_case", error)
        else:
            yield {"id": case["id"], "result": result} if "id" in case else result


def _error(case: object, code: str, error: Exception) -> dict[str, Any]:
    answer: dict[str, Any] = {"error": code, "message": str(error.args[0]) if error.args else str(error)}
    return {"id": case["id"], **answer} if isinstance(case, dict) and "id" in case else answer


def _answer(
    case: dict[str, Any],
    memories: dict[tuple[str, str], AssignorMemory],
    plugins: Mapping[str, str] | None,
) -> Any:
    name = _take(case, "assignor", str, "a case")
    if name in _CONNECT:
        return import_module("assignors.connect_lines").run_connect_case(case)
    topics, subscriptions = _group(name, case)
    if name in _SERVER_FUNCTIONS:
        assignment = _assign_on_server(name, case, topics, subscriptions)
    elif name == _WEIGHTED:
        assignment = _weighted(case, topics, subscriptions).assignment
    else:
        assignor = get_assignor(name, plugins)
        memory = AssignorMemory()
        if "session" in case:
            memory = memories.setdefault((name, _take(case, "session", str, "a case")), memory)
        assignment = _call(assignor, topics, subscriptions, memory)
    return _pairs(assignment, subscriptions)


def _pairs(
    assignment: Mapping[str, Iterable[TopicPartition]], members: Iterable[str]
) -> dict[str, list[list[Any]]]:
    return {member: [[topic, p] for topic, p in assignment[member]] for member in members}


def _certified(case: dict[str, Any]) -> dict[str, Any]:
    name = _take(case, "assignor", str, "a case")
    if name not in _CERTIFIED:
        raise AssignorError(
            f"assignor: {name!r} gives no certificate; it must be one of {', '.join(map(repr, _CERTIFIED))}"
        )
    topics, subscriptions = _group(name, case)
    if name == _WEIGHTED:
        found = _weighted(case, topics, subscriptions)
        return {
            "result": _pairs(found.assignment, subscriptions),
            "moved": found.moved,
            "loads": dict(found.loads),
            "bound": found.bound,
            "distance": found.distance,
        }
    optimum = find_optimum(topics, subscriptions)
    given = _pairs(REGISTRY[name].function(topics, subscriptions, None), subscriptions)
    target = _pairs(optimum.assignment, subscriptions)
    return {
        "result": given,
        **({} if given == target else {"target": target}),
        "moved": optimum.moved,
        "kept": optimum.kept,
        "certificate": certificate_of(optimum).to_json(),
    }


def _weighted(
    case: dict[str, Any], topics: Mapping[str, TopicMetadata], subscriptions: Mapping[str, Subscription]
) -> WeightedAssignment:
    weights = case.get("weights", {})
    if not isinstance(weights, dict) or not all(
        isinstance(given, list) and all(isinstance(w, int | float) and not isinstance(w, bool) for w in given)
        for given in weights.values()
    ):
        raise CaseError(f"weights is {weights!r}; it must be topic -> [a number for each partition, ...]")
    hysteresis = case.get("hysteresis", 0.0)
    if isinstance(hysteresis, bool) or not isinstance(hysteresis, int | float) or not hysteresis >= 0:
        raise CaseError(f"hysteresis is {hysteresis!r}; it must be a number from 0")
    most_moves = _optional_int("a case", case, "most_moves")
    if most_moves is not None and most_moves < 0:
        raise CaseError(f"most_moves is {most_moves!r}; it must be an int from 0")
    return assign_weighted(topics, subscriptions, weights, most_moves=most_moves, hysteresis=hysteresis)


def _group(name: str, case: dict[str, Any]) -> tuple[dict[str, TopicMetadata], dict[str, Subscription]]:
    topics = {topic: _topic(topic, value) for topic, value in _take(case, "topics", dict, "a case").items()}
    members = _take(case, "members", list, "a case")
    subscriptions: dict[str, Subscription] = {}
    for member in members:
        if not isinstance(member, dict):
            raise CaseError(f"members: found {member!r}; each must be an object")
        member_id = _take(member, "id", str, "members")
        if member_id in subscriptions:
            raise CaseError(f"members: found {member_id!r} twice; each id may stand once")
        subscriptions[member_id] = _subscription(name, member_id, member)
    return topics, subscriptions


def _call(
    assignor: Assignor,
    topics: Mapping[str, TopicMetadata],
    subscriptions: Mapping[str, Subscription],
    memory: AssignorMemory,
) -> Assignment:
    """Run an assignor; whatever it raises costs its own case only."""
    try:
        return assignor.function(topics, subscriptions, memory)
    except AssignorError:
        raise
    except Exception as error:
        raise AssignorError(f"{assignor.name!r} raised {type(error).__name__}: {error}") from error


def _assign_on_server(
    name: str,
    case: dict[str, Any],
    topics: Mapping[str, TopicMetadata],
    subscriptions: Mapping[str, Subscription],
) -> Assignment:
    given = case.get("topic_ids") or {}
    ids = {}
    names = {*topics, *(topic for s in subscriptions.values() for topic in s.topics)}
    names.update(topic for s in subscriptions.values() for topic, _ in s.owned_partitions)
    for topic in sorted(names):
        ids[topic] = hashlib.md5(topic.encode("utf-8", "replace"), usedforsecurity=False).digest()
        if topic in given:
            ids[topic] = _uuid(topic, given[topic])
    function = getattr(import_module("assignors.server_side"), _SERVER_FUNCTIONS[name])
    more = {"subscription_type": case["subscription_type"]} if "subscription_type" in case else {}
    if name == "server-uniform":
        # A case gives pairs, and Java would group them one by one.
        more["owned_are_grouped"] = True
    assignment: Assignment = function(topics, subscriptions, topic_ids=ids, **more)
    return assignment


def _uuid(topic: str, text: object) -> bytes:
    """Read a uuid as Kafka prints it: base64 for URLs, without padding."""
    try:
        uuid = base64.urlsafe_b64decode(f"{text}==")
    except (binascii.Error, ValueError):
        uuid = b""
    if len(uuid) != 16:
        raise CaseError(f"topic_ids: {topic!r} has {text!r}; it must be 16 bytes in base64")
    return uuid


def _take(value: dict[str, Any], key: str, kind: type, where: str) -> Any:
    found = value.get(key)
    if not isinstance(found, kind):
        raise CaseError(f"{where}: {key} is {found!r}; it must be a {kind.__name__}")
    return found


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value in _INT32_RANGE


def _topic(topic: str, value: object) -> TopicMetadata:
    """Read a count, a list of racks for each partition, or {"ids": [[partition, racks], ...]}."""
    if _is_int(value) and isinstance(value, int) and value >= 0:
        return TopicMetadata.of_count(value)
    pairs: list[tuple[int, Any]] | None = None
    if isinstance(value, list):
        pairs = list(enumerate(value))
    elif isinstance(value, dict) and isinstance(value.get("ids"), list):
        ids = value["ids"]
        if all(isinstance(pair, list) and len(pair) == 2 and _is_int(pair[0]) for pair in ids):
            pairs = [(pair[0], pair[1]) for pair in ids]
    if pairs is None or not all(_is_racks(racks) for _, racks in pairs):
        raise CaseError(
            f"topics: {topic!r} is {value!r}; it must be a count, a list of racks for each partition, or"
            ' {"ids": [[partition, [rack, ...]], ...]}'
        )
    pairs.sort(key=lambda pair: pair[0])
    numbers = tuple(number for number, _ in pairs)
    partitions = range(len(numbers)) if numbers == tuple(range(len(numbers))) else numbers
    return TopicMetadata(partitions, tuple(tuple(racks) for _, racks in pairs))


def _is_racks(racks: object) -> bool:
    return isinstance(racks, list) and all(rack is None or isinstance(rack, str) for rack in racks)


def _subscription(assignor: str, member_id: str, member: dict[str, Any]) -> Subscription:
    """Read a member as the leader's subscription of it."""
    where = f"member {member_id!r}"
    topics = _take(member, "topics", list, where)
    if not all(isinstance(topic, str) for topic in topics):
        raise CaseError(f"{where}: topics is {topics!r}; it must be a list of texts")
    owned = [TopicPartition(topic, p) for topic, p in _owned_pairs(where, member.get("owned"))]
    generation = _optional_int(where, member, "generation")
    own_generation = NO_GENERATION if generation is None else generation
    sub_generation = _optional_int(where, member, "sub_generation")
    says_owned = assignor != "sticky" or member.get("owned_in_subscription") is True
    return Subscription(
        topics=tuple(topics),
        owned_partitions=tuple(owned) if says_owned else (),
        generation_id=own_generation if sub_generation is None else sub_generation,
        group_instance_id=_optional_text(where, member, "instance_id"),
        rack_id=_optional_text(where, member, "rack"),
        user_data=_user_data(assignor, where, member, owned, generation),
    )


def _owned_pairs(where: str, value: object) -> list[tuple[str, int]]:
    if value is None:
        return []
    if isinstance(value, list) and all(
        isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str) and _is_int(pair[1])
        for pair in value
    ):
        return [(pair[0], pair[1]) for pair in value]
    raise CaseError(f"{where}: owned is {value!r}; it must be [[topic, partition], ...]")


def _optional_int(where: str, member: dict[str, Any], key: str) -> int | None:
    value = member.get(key)
    if value is None or (_is_int(value) and isinstance(value, int)):
        return value
    raise CaseError(f"{where}: {key} is {value!r}; it must be an int of 32 bits")


def _optional_text(where: str, member: dict[str, Any], key: str) -> str | None:
    value = member.get(key)
    if value is None or isinstance(value, str):
        return value
    raise CaseError(f"{where}: {key} is {value!r}; it must be a text")


def _user_data(
    assignor: str, where: str, member: dict[str, Any], owned: list[TopicPartition], generation: int | None
) -> bytes | None:
    """Make the user data that a case asks for; "default" is what Java's client would send."""
    kind = member.get("user_data", "default")
    if kind == "default":
        if assignor == "cooperative-sticky":
            return encode_cooperative_user_data(NO_GENERATION if generation is None else generation)
        if assignor != "sticky" or ("owned" not in member and generation is None):
            return None
        kind = "v1"
    if kind == "v1":
        return encode_sticky_user_data(owned, NO_GENERATION if generation is None else generation)
    if kind == "v0":
        return encode_sticky_user_data(owned, None)
    if kind == "none":
        return None
    if kind == "empty":
        return b""
    if isinstance(kind, str) and kind.startswith("b64:"):
        try:
            return base64.b64decode(kind[4:], validate=True)
        except binascii.Error as error:
            raise CaseError(f"{where}: user_data is {kind!r}; it must be base64 ({error})") from error
    raise CaseError(
        f"{where}: user_data is {kind!r}; it must be one of 'default', 'v0', 'v1', 'none', 'empty', 'b64:...'"
    )
