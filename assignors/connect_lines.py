"""Connect's cases of the JSON-lines contract: parsed JSON in, the result out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from assignors.connect_eager import assign_connect_eager
from assignors.connect_incremental import LeaderMemory, assign_connect_incremental
from assignors.connect_protocol import NO_LOAD, WorkerLoad
from assignors.errors import UnknownAssignorError


class ConnectCaseError(ValueError):
    """A case of Connect's does not have the form of the contract."""


def run_connect_case(case: Mapping[str, Any]) -> dict[str, Any]:
    """Answer one case of "connect-eager" or "connect-incremental".

    Args:
        case: the parsed line; for the incremental assignor one leader lives
            through all `rounds`, and a worker given by its bare id reports what
            it runs after the rounds before.

    Returns:
        What stands under "result": for eager, worker -> connectors and tasks;
        for incremental, "rounds" with each worker's lists and the delay.

    Raises:
        AssignorError: where Kafka's class would raise.
        ConnectCaseError: a field is missing or has another shape.
    """
    assignor = case.get("assignor")
    if assignor == "connect-eager":
        _check_config(case, "a case")
        _check("a case", "workers", case.get("workers"), _is_texts, "a list of texts")
        loads = assign_connect_eager(
            case["connectors"], case["workers"], inconsistent=case.get("inconsistent") or ()
        )
        return {worker: _lists(load) for worker, load in loads.items()}
    if assignor == "connect-incremental":
        return {"rounds": _rounds(case)}
    message = f"unknown Connect assignor {assignor!r}; known: 'connect-eager', 'connect-incremental'"
    raise UnknownAssignorError(message, assignor)


def _rounds(case: Mapping[str, Any]) -> list[dict[str, Any]]:
    _check("a case", "max_delay", case.get("max_delay"), _is_count, "an int from 0")
    _check("a case", "rounds", case.get("rounds"), _is_objects, "a list of objects")
    memory = LeaderMemory()
    running: dict[str, WorkerLoad] = {}
    completed_generation_id = 0
    answers = []
    for number, round_ in enumerate(case["rounds"], start=1):
        _check_round(round_, f"round {number}")
        generation_id = _given(round_, "generation", completed_generation_id + 1)
        # Who is absent in a round has stopped what it ran.
        running = _before(round_["workers"], running)
        reports = {worker: load.as_sent() for worker, load in running.items()}
        assignment, memory = assign_connect_incremental(
            memory,
            reports,
            round_["connectors"],
            now_ms=round_["time"],
            max_delay_ms=case["max_delay"],
            last_completed_generation_id=_given(round_, "last_completed_generation", completed_generation_id),
            generation_id=generation_id,
            inconsistent=round_.get("inconsistent") or (),
        )
        answer: dict[str, Any] = {"input": {w: _lists(load) for w, load in reports.items()}}
        for worker in reports:
            answer[worker] = {
                f"{name}_{kind}": items
                for name, loads in (
                    ("assigned", assignment.assigned),
                    ("revoked", assignment.revoked),
                    ("all", assignment.total),
                )
                for kind, items in _lists(loads[worker]).items()
            }
        answers.append(
            {
                **answer,
                "delay": memory.delay_ms,
                "scheduled": memory.scheduled_ms,
                "generation": generation_id,
            }
        )
        if round_.get("sync_failed"):
            continue
        completed_generation_id = generation_id
        deaf = {w["id"] for w in round_["workers"] if not isinstance(w, str) and w.get("sync_failed")}
        for worker in reports:
            if worker not in deaf:
                running[worker] = running[worker].after(
                    assignment.assigned[worker], assignment.revoked[worker]
                )
    return answers


def _before(workers: list[str | dict[str, Any]], running: Mapping[str, WorkerLoad]) -> dict[str, WorkerLoad]:
    """Find what each worker of a round runs as it joins."""
    loads: dict[str, WorkerLoad] = {}
    for worker in workers:
        if isinstance(worker, str):
            loads[worker] = running.get(worker, NO_LOAD)
        elif worker.get("lost"):
            loads[worker["id"]] = NO_LOAD
        elif "connectors" in worker or "tasks" in worker:
            loads[worker["id"]] = WorkerLoad.of(worker.get("connectors") or (), worker.get("tasks") or ())
        else:
            loads[worker["id"]] = running.get(worker["id"], NO_LOAD)
    return loads


def _check(where: str, name: str, value: object, allowed: Callable[[object], bool], wanted: str) -> None:
    if not allowed(value):
        raise ConnectCaseError(f"{where}: {name} is {value!r}; it must be {wanted}")


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31


def _is_objects(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _is_tasks(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(t, list) and len(t) == 2 and isinstance(t[0], str) and _is_count(t[1]) for t in value
    )


def _is_config(value: object) -> bool:
    return isinstance(value, dict) and all(n is None or _is_count(n) for n in value.values())


def _is_int_or_absent(value: object) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool))


def _check_config(case: Mapping[str, Any], where: str) -> None:
    _check(where, "connectors", case.get("connectors"), _is_config, "an object of task counts or nulls")
    _check(where, "inconsistent", case.get("inconsistent") or [], _is_texts, "a list of texts")


def _check_round(round_: Mapping[str, Any], where: str) -> None:
    _check_config(round_, where)
    if type(round_.get("time")) is not int:
        raise ConnectCaseError(f"{where}: time is {round_.get('time')!r}; it must be an int of milliseconds")
    workers = round_.get("workers")
    _check(where, "workers", workers, lambda value: isinstance(value, list), "a list")
    for worker in workers or ():
        if isinstance(worker, str):
            continue
        if not isinstance(worker, dict) or not isinstance(worker.get("id"), str):
            raise ConnectCaseError(f"{where}: a worker is {worker!r}; it must be an id or have an 'id'")
        _check(where, "connectors", worker.get("connectors") or [], _is_texts, "a list of texts")
        _check(where, "tasks", worker.get("tasks") or [], _is_tasks, "[[connector, number], ...]")
    for name in ("generation", "last_completed_generation"):
        _check(where, name, round_.get(name), _is_int_or_absent, "an int or absent")


def _given(round_: Mapping[str, Any], name: str, otherwise: int) -> int:
    value: int | None = round_.get(name)
    return otherwise if value is None else value


def _lists(load: WorkerLoad) -> dict[str, Any]:
    return {"connectors": list(load.connectors), "tasks": [list(task) for task in load.tasks]}
