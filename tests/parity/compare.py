"""Ask Kafka and ourselves the same cases, and show every difference whole."""

from __future__ import annotations

import json
import shlex
import subprocess
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from assignors.connect_backoff import revocation_delay_ms
from assignors.errors import AssignorError
from assignors.java_order import (
    copied_capacity,
    hash_order,
    partition_hash,
    string_hash,
    task_hash,
    utf16_key,
    uuid_hash,
    uuid_key,
)
from assignors.partitioners import murmur2
from assignors.replicas import Broker, place_replicas, place_striped
from console.assign_lines import run_assign_lines
from tests.parity.generate import ASSIGNOR_KINDS, generate_cases

if TYPE_CHECKING:
    from tests.parity.generate_more import Case
    from tests.parity.oracle import Oracle


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One case that was answered differently."""

    case: Case
    kafka: Case
    ours: Case

    def __str__(self) -> str:
        """Show the case whole, and both answers."""
        return "\n".join(
            f"  {name}: {json.dumps(value)}"
            for name, value in (("case", self.case), ("Kafka", self.kafka), ("ours", self.ours))
        )


def find_differences(
    kind: str, count: int, seed: int, *, oracle: Oracle, against: str | None = None
) -> Iterator[Difference]:
    """Yield the cases on which Kafka and we disagree; errors agree with errors.

    Args:
        kind: one of generate.KINDS.
        count: how many cases.
        seed: any integer; the same one gives the same cases.
        oracle: a running one.
        against: a command that speaks the JSON lines of `assign --jsonl`, to be
            compared instead of this process's own functions.
    """
    cases = list(generate_cases(kind, count, seed))
    if against is not None:
        ours = _answers_of_command(against, cases)
    elif kind in ASSIGNOR_KINDS:
        ours = _answers_of_lines(cases)
    else:
        ours = ({"id": case["id"], **_of_collections(case)} for case in cases)
    for case, kafka, own in zip(cases, oracle.answers(cases), ours, strict=True):
        if not agree(kafka, own):
            yield Difference(case=case, kafka=kafka, ours=own)


def agree(kafka: Case, ours: Case) -> bool:
    """Tell whether two answers mean the same: equal JSON, or both assignors refused."""
    if "error" in kafka or "error" in ours:
        return "error" in kafka and ours.get("error") == "assignor_error"
    return kafka == ours


def _answers_of_lines(cases: list[Case]) -> Iterator[Case]:
    written: list[str] = []
    run_assign_lines((json.dumps(case) for case in cases), written.append)
    return map(json.loads, "".join(f"{line.rstrip()}\n" for line in written).splitlines())


def _answers_of_command(command: str, cases: Iterable[Case]) -> Iterator[Case]:
    lines = "".join(json.dumps(case) + "\n" for case in cases)
    done = subprocess.run(shlex.split(command), input=lines, stdout=subprocess.PIPE, text=True, check=True)
    return map(json.loads, done.stdout.splitlines())


def _hash_and_key(item: int | str | list[Any]) -> tuple[int, Any]:
    if isinstance(item, int):
        return item, item
    if isinstance(item, str):
        return string_hash(item), utf16_key(item)
    kind, first, *rest = item
    if kind == "task":
        return task_hash(first, rest[0]), (utf16_key(first), rest[0])
    if kind == "topic-partition":
        return partition_hash(first, rest[0]), None
    uuid = b64decode(first)
    return uuid_hash(uuid), uuid_key(uuid)


def _hash_set(case: Case) -> Case:
    hashed = [_hash_and_key(item) for item in case["items"]]
    capacity = case.get("capacity", 16)
    if case.get("copied"):
        capacity = copied_capacity(len(hashed))
    order = hash_order(range(len(hashed)), lambda i: hashed[i][0], lambda i: hashed[i][1], capacity=capacity)
    return {"order": order}


def _striped(case: Case) -> Case:
    brokers = [Broker(broker_id=b["id"], rack=b["rack"], is_fenced=b["fenced"]) for b in case["brokers"]]
    placed = place_striped(
        brokers,
        partitions=case["partitions"],
        replication_factor=case["replication_factor"],
        seed=case["seed"],
    )
    return {"partitions": [list(replicas) for replicas in placed]}


def _circle(case: Case) -> Case:
    placed = place_replicas(
        [Broker(broker_id=b["id"], rack=b["rack"]) for b in case["brokers"]],
        partitions=case["partitions"],
        replication_factor=case["replication_factor"],
        start_index=case["start"],
        start_shift=case["start"],
        start_partition_id=case["start_partition"],
    )
    return {str(partition): list(replicas) for partition, replicas in placed.items()}


_COLLECTIONS: dict[str, Callable[[Case], Case]] = {
    "java-hash-set": _hash_set,
    "murmur2": lambda case: {"hashes": [murmur2(b64decode(key)) for key in case["keys"]]},
    "striped-placer": _striped,
    "circle-placer": _circle,
    "backoff": lambda case: {
        "delays": [revocation_delay_ms(n + 1, case["max_delay"]) for n in range(case["attempts"])]
    },
}


def _of_collections(case: Case) -> Case:
    try:
        return {"result": _COLLECTIONS[case["assignor"]](case)}
    except AssignorError as error:
        return {"error": "assignor_error", "message": str(error)}
