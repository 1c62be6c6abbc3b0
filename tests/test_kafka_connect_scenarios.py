"""What Kafka's own suites try out on Connect's assignors and workers, answered by us and by Kafka.

Written from what IncrementalCooperativeAssignorTest, WorkerCoordinatorTest and
WorkerCoordinatorIncrementalTest of Kafka 4.3.1 test. Where those count connectors and
tasks, here stands the very answer, list order included. Each chain of rounds is played
twice: by this project, and by Kafka's classes, where they can be built; in the tests of
a cluster by one real WorkerCoordinator a worker, whose bytes our decoder reads. Some
chains mix protocols, leaders and failures further than those suites do.

Without a counterpart here: the map of owners' URLs that a leader keeps to forward REST
requests (testLeaderStateUpdated), and the refusal to skip an assignment, which only a
broker with static members would ask for, which Connect has not (testSkippingAssignmentFails).
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from assignors.connect_incremental import LeaderMemory
from assignors.connect_protocol import NO_LOAD, WorkerLoad
from console.assign_lines import answer_lines
from streaming.events.client_protocols import (
    ConnectAssignment,
    ConnectMetadata,
    decode_connect_assignment,
    decode_connect_metadata,
)
from streaming.groups.computed.connect_rounds import BeforeRound, owners_of, rebalance_workers

if TYPE_CHECKING:
    from tests.parity.oracle import Oracle

Case = dict[str, Any]
Play = Callable[..., None]
"""(rounds with their answers, max_delay_ms) -> fails if an answer is another."""

DELAY_MS = 300_000
_MODES = {"default": "eager", "compatible": "compatible", "sessioned": "sessioned"}
_VERSIONS = {"default": 0, "compatible": 1, "sessioned": 2}
_NOTHING: dict[str, Any] = {"connectors": [], "tasks": []}
_URL = "http://w1:8083/"
_OFFERED = {
    "eager": ["default"],
    "compatible": ["compatible", "default"],
    "sessioned": ["sessioned", "compatible", "default"],
}
_NEWCOMER = {
    "sessioned": "AAIAD2h0dHA6Ly93MTo4MDgzLwAAAAAAAAAH/////w==",
    "compatible": "AAEAD2h0dHA6Ly93MTo4MDgzLwAAAAAAAAAH/////w==",
    "default": "AAAAD2h0dHA6Ly93MTo4MDgzLwAAAAAAAAAH",
}
"""protocol -> what worker w1 says of itself as it joins, in the order of its preference."""
_WORKING = {
    "sessioned": (
        "AAIAD2h0dHA6Ly93MTo4MDgzLwAAAAAAAAAHAAAASwACAAAAAncxAA9odHRwOi8vdzE6ODA4My8AAAAAAAAA"
        "BwAAAAIAAWEAAAAC/////wAAAAAAAWIAAAAC/////wAAAAAAAAAAAAAAAA=="
    ),
    "compatible": (
        "AAEAD2h0dHA6Ly93MTo4MDgzLwAAAAAAAAAHAAAASwABAAAAAncxAA9odHRwOi8vdzE6ODA4My8AAAAAAAAA"
        "BwAAAAIAAWEAAAAC/////wAAAAAAAWIAAAAC/////wAAAAAAAAAAAAAAAA=="
    ),
    "default": "AAAAD2h0dHA6Ly93MTo4MDgzLwAAAAAAAAAH",
}
"""The same when it runs connectors a and b with a task each."""
_GIVEN = {
    "sessioned": (
        "AAIAAAACdzEAD2h0dHA6Ly93MTo4MDgzLwAAAAAAAAAHAAAAAgABYQAAAAL/////AAAAAAABYgAAAAL/////AAAAAAAAAAAAAAAA"
    ),
    "compatible": (
        "AAEAAAACdzEAD2h0dHA6Ly93MTo4MDgzLwAAAAAAAAAHAAAAAgABYQAAAAL/////AAAAAAABYgAAAAL/////AAAAAAAAAAAAAAAA"
    ),
    "default": (
        "AAAAAAACdzEAD2h0dHA6Ly93MTo4MDgzLwAAAAAAAAAHAAAAAgABYQAAAAL/////AAAAAAABYgAAAAL/////AAAAAA=="
    ),
}
"""protocol -> what it was given to run these."""

_ROUND = re.compile(
    r"(?P<time>\d+)(?: (?P<protocol>default|compatible|sessioned))?(?: led by (?P<leader>\w+))?"
    r"(?P<behind> behind)?(?P<failed> failed)?(?: generation (?P<generation>\d+) after (?P<after>-?\d+))?"
    r"(?P<workers>(?: \w+(?:/\w+)?(?:\([^)]*\))?!?)+)(?:, (?P<config>[^|]*?))?"
)
_WORKER = re.compile(r" (?P<id>\w+)(?:/(?P<mode>\w+))?(?P<report>\([^)]*\))?(?P<deaf>!)?")


def _lists(text: str) -> dict[str, Any]:
    """Read "a b a01 b2" as connectors a and b, tasks 0 and 1 of a, task 2 of b."""
    found: dict[str, Any] = {"connectors": [], "tasks": []}
    for name, numbers in re.findall(r"([a-z]+)(\d*)", text):
        if not numbers:
            found["connectors"].append(name)
        found["tasks"] += [[name, int(number)] for number in numbers]
    return found


def _config(text: str) -> dict[str, dict[str, int]]:
    """Read "a=4 b=0" as connectors with their numbers of tasks."""
    pairs = (word.split("=") for word in text.split())
    return {"connectors": {name: int(count) for name, count in pairs}}


def _lines(text: str) -> list[str]:
    """Split a play into its rounds; one begins with its time, and may go on over several lines."""
    return [" ".join(line.split()) for line in re.split(r"\n\s*(?=\d+ )", "\n" + text) if line.strip()]


def _rounds(text: str) -> list[tuple[str, Case]]:
    """Read a play as (what is asked, the round); a configuration holds until the next."""
    config: dict[str, Any] = {}
    rounds = []
    for line in _lines(text):
        asked = line.partition(" |")[0]
        found = _ROUND.fullmatch(asked)
        assert found, f"no round: {asked!r}"
        config = _config(found["config"]) if found["config"] else config
        workers: list[Case] = []
        for worker in _WORKER.finditer(found["workers"]):
            report = {} if worker["report"] is None else _lists(worker["report"])
            named = {"id": worker["id"], "mode": worker["mode"] or _MODES.get(found["protocol"])}
            workers.append({**named, **report, "sync_failed": bool(worker["deaf"])})
        round_ = {"time": int(found["time"]), **config, "workers": workers, "protocol": found["protocol"]}
        round_ |= {"leader": found["leader"] or workers[0]["id"], "behind": bool(found["behind"])}
        if found["generation"]:
            numbers = (int(found["generation"]), int(found["after"]))
            round_ |= dict(zip(("generation", "last_completed_generation"), numbers, strict=True))
        rounds.append((asked, {**round_, "sync_failed": bool(found["failed"])}))
    return rounds


def _words(lists: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Show lists in order, what is new with a plus; neighbouring tasks of one connector share a word."""
    words = [f"{'+' * (name in new['connectors'])}{name}" for name in lists["connectors"]]
    last = ""
    for name, number in lists["tasks"]:
        sign_and_name = f"{'+' * ([name, number] in new['tasks'])}{name}"
        if sign_and_name == last:
            words[-1] += str(number)
        else:
            words.append(f"{sign_and_name}{number}")
        last = sign_and_name
    return words


def _shown(has: dict[str, Any], assigned: dict[str, Any], revoked: dict[str, Any]) -> str:
    """Show one worker after a round: what it has, with a plus what it starts, with a minus what it stops."""
    for kind, started in assigned.items():
        assert [thing for thing in has[kind] if thing in started] == started
    return " ".join([*_words(has, assigned), *(f"-{word}" for word in _words(revoked, _NOTHING))])


def _picked(lists: dict[str, Any], prefix: str) -> dict[str, Any]:
    return {kind: lists[f"{prefix}_{kind}"] for kind in ("connectors", "tasks")}


def _line(asked: str, shown: dict[str, str], delay_ms: int, end: str = "") -> str:
    answer = " / ".join(f"{worker}: {text}".strip() for worker, text in shown.items())
    return f"{asked} | {answer}" + (f"; wait {delay_ms}{end}" if delay_ms or end else "")


def _plain(load: WorkerLoad) -> dict[str, Any]:
    return {"connectors": list(load.connectors), "tasks": [list(task) for task in load.tasks]}


class _Ours:
    """Asks this project's `assign --jsonl`."""

    def __init__(self) -> None:
        self._waiting: list[str] = []
        self._answers = answer_lines(iter(self._waiting.pop, ""))

    def ask(self, case: Case) -> Case:
        self._waiting.append(json.dumps({"id": 0, **case}))
        return next(self._answers)


def _ask(answerer: _Ours | Oracle, assignor: str, max_delay_ms: int, rounds: list[Case]) -> list[Case]:
    answer = answerer.ask({"id": 0, "assignor": assignor, "max_delay": max_delay_ms, "rounds": rounds})
    assert "result" in answer, answer
    answers: list[Case] = answer["result"]["rounds"]
    return answers


@pytest.fixture(params=["ours", pytest.param("kafka", marks=pytest.mark.oracle)])
def play(request: pytest.FixtureRequest) -> Play:
    """Play rounds with one leader; a round is "time_ms workers, configuration | answer".

    `w1(a a01)` reports what stands in brackets, `w1!` never hears what it is given,
    `failed` is a sync that reached nobody, not even the leader.
    """
    answerer = _Ours() if request.param == "ours" else request.getfixturevalue("oracle")

    def played(text: str, max_delay_ms: int = DELAY_MS) -> None:
        rounds = _rounds(text)
        lines = []
        answers = _ask(answerer, "connect-incremental", max_delay_ms, [r for _, r in rounds])
        for (asked, round_), got in zip(rounds, answers, strict=True):
            shown = {
                w["id"]: _shown(*(_picked(got[w["id"]], prefix) for prefix in ("all", "assigned", "revoked")))
                for w in round_["workers"]
            }
            end = f" until {got['scheduled']}" if got["scheduled"] else ""
            lines.append(_line(asked, shown, got["delay"], end))
        assert lines == _lines(text)

    return played


def _kafka_cluster(oracle: Oracle, rounds: list[tuple[str, Case]], max_delay_ms: int) -> Iterator[str]:
    """Let real WorkerCoordinators play, and read the bytes that they exchange."""
    for _, round_ in rounds:
        for worker in round_["workers"]:
            worker["offset"] = 7 + (round_["behind"] and worker["id"] != round_["leader"])
    answers = _ask(oracle, "connect-workers", max_delay_ms, [r for _, r in rounds])
    ran: Case = {}
    for (asked, round_), got in zip(rounds, answers, strict=True):
        for worker, offered in got["joined"].items():
            said = decode_connect_metadata(base64.b64decode(offered[round_["protocol"]])).allocation
            if said is None:
                assert worker not in ran or round_["protocol"] == "default"
            else:
                assert _split(said.assigned) == _plain(WorkerLoad.of(**ran[worker]).as_sent())
        ran = got["runs"]
        given = {w: decode_connect_assignment(base64.b64decode(raw)) for w, raw in got["given"].items()}
        assert {(a.version, a.leader_id) for a in given.values() if a} == {
            (_VERSIONS[round_["protocol"]], round_["leader"])
        }
        errors = {a.error for a in given.values() if a}
        if errors != {0}:
            assert errors == {1}
            yield f"{asked} | config mismatch"
            continue
        shown = {
            worker: _shown(got["runs"][worker], _split(a.assigned), _split(a.revoked))
            for worker, a in given.items()
            if a
        }
        (delay_ms,) = {a.delay_ms for a in given.values() if a}
        yield _line(asked, shown, delay_ms)


def _split(lists: Iterable[tuple[str, tuple[int, ...]]]) -> dict[str, Any]:
    """Separate connectors, which travel as task -1, from tasks."""
    pairs = [(name, number) for name, numbers in lists for number in numbers]
    return {
        "connectors": [name for name, number in pairs if number == -1],
        "tasks": [[name, number] for name, number in pairs if number != -1],
    }


def _our_cluster(rounds: list[tuple[str, Case]], max_delay_ms: int) -> Iterator[str]:
    """Play with this project's assignors; a memory for each leader, as long as it is in the group."""
    ours = _Ours()
    running: dict[str, WorkerLoad] = {}
    chains: dict[str, list[Case]] = {}
    for generation_id, (asked, round_) in enumerate(rounds, start=1):
        names = [worker["id"] for worker in round_["workers"]]
        running = {name: running.get(name, NO_LOAD) for name in names}
        chains = {leader: chain for leader, chain in chains.items() if leader in names}
        if round_["behind"]:
            yield f"{asked} | config mismatch"
            continue
        if round_["protocol"] == "default":
            result = ours.ask({**round_, "assignor": "connect-eager", "workers": names})["result"]
            running = {name: WorkerLoad.of(**result[name]) for name in names}
            yield _line(asked, {name: _shown(result[name], result[name], _NOTHING) for name in names}, 0)
            continue
        reports = [{"id": name, **_plain(load)} for name, load in running.items()]
        numbers = {"generation": generation_id, "last_completed_generation": generation_id - 1}
        chain = chains.setdefault(round_["leader"], [])
        chain.append({**round_, "workers": reports, **numbers})
        got = _ask(ours, "connect-incremental", max_delay_ms, chain)[-1]
        shown = {}
        for name in names:
            assigned, revoked = (_picked(got[name], prefix) for prefix in ("assigned", "revoked"))
            running[name] = running[name].after(WorkerLoad.of(**assigned), WorkerLoad.of(**revoked))
            sent = WorkerLoad.of(**assigned).as_sent()
            shown[name] = _shown(_plain(running[name]), _plain(sent), revoked)
        yield _line(asked, shown, got["delay"])


@pytest.fixture(params=["ours", pytest.param("kafka", marks=pytest.mark.oracle)])
def cluster(request: pytest.FixtureRequest) -> Play:
    """Play rounds of whole workers; a round is "time_ms protocol workers, configuration | answer".

    The protocol is the one that the broker chose. `w1/eager` is set to another
    connect.protocol than that; `led by w2` if not by the first; `behind` is a leader
    that has not yet read the configuration which others have.
    """

    def played(text: str, max_delay_ms: int = DELAY_MS) -> None:
        rounds = _rounds(text)
        if request.param == "kafka":
            lines = _kafka_cluster(request.getfixturevalue("oracle"), rounds, max_delay_ms)
        else:
            lines = _our_cluster(rounds, max_delay_ms)
        assert list(lines) == _lines(text)

    return played


Wire = Callable[[str, str], tuple[dict[str, bytes], dict[str, bytes], bytes]]
"""(connect.protocol, protocol chosen) -> what w1 says when new, what when working, what it was given."""


@pytest.fixture(params=["ours", pytest.param("kafka", marks=pytest.mark.oracle)])
def wire(request: pytest.FixtureRequest) -> Wire:
    """Give the bytes that stand in this file, and make sure that a real worker sends the same."""

    def sent(mode: str, chosen: str) -> tuple[dict[str, bytes], dict[str, bytes], bytes]:
        offers = [{name: offer[name] for name in _OFFERED[mode]} for offer in (_NEWCOMER, _WORKING)]
        if request.param == "kafka":
            worker = {"id": "w1", "mode": mode, "offset": 7}
            round_ = {"time": 0, "protocol": chosen, "leader": "w1", **_config("a=1 b=1")}
            rounds = [{**round_, "workers": [worker]}] * 2
            got = _ask(request.getfixturevalue("oracle"), "connect-workers", DELAY_MS, rounds)
            assert [list(r["joined"]["w1"].items()) for r in got] == [list(o.items()) for o in offers]
            assert got[0]["given"]["w1"] == _GIVEN[chosen]
        newcomer, working = ({n: base64.b64decode(raw) for n, raw in o.items()} for o in offers)
        return newcomer, working, base64.b64decode(_GIVEN[chosen])

    return sent


_CHOICES = [(mode, chosen) for mode, offered in _OFFERED.items() for chosen in offered]


@pytest.mark.parametrize(("mode", "chosen"), _CHOICES)
def test_a_newcomer_says_that_it_runs_nothing(wire: Wire, mode: str, chosen: str) -> None:
    """For each protocol that it speaks: its version, its URL, how much of the configuration it has read."""
    newcomer, _, _ = wire(mode, chosen)
    assert {name: decode_connect_metadata(raw) for name, raw in newcomer.items()} == {
        name: ConnectMetadata(version=_VERSIONS[name], url=_URL, config_offset=7) for name in _OFFERED[mode]
    }


@pytest.mark.parametrize(("mode", "chosen"), _CHOICES)
def test_a_worker_says_what_it_runs(wire: Wire, mode: str, chosen: str) -> None:
    """In the incremental protocols, also if an eager round gave it; in the eager one never."""
    _, working, _ = wire(mode, chosen)
    for name, raw in working.items():
        said = decode_connect_metadata(raw)
        running = _given("a=1 b=1", name)
        assert said.allocation == (None if name == "default" else running)
        assert (said.version, said.url, said.config_offset) == (_VERSIONS[name], _URL, 7)


@pytest.mark.parametrize(("mode", "chosen"), _CHOICES)
def test_a_leader_answers_in_the_protocol_that_was_chosen(wire: Wire, mode: str, chosen: str) -> None:
    """Whatever else it speaks; connectors come as task -1, with their tasks behind them."""
    _, _, given = wire(mode, chosen)
    assert decode_connect_assignment(given) == _given("a=1 b=1", chosen)


def _given(config: str, protocol: str) -> ConnectAssignment:
    """Make the assignment of a lone leader that runs all."""
    counts = _config(config)["connectors"]
    return ConnectAssignment(
        version=_VERSIONS[protocol],
        error=0,
        leader_id="w1",
        leader_url=_URL,
        config_offset=7,
        assigned=tuple((name, (-1, *range(count))) for name, count in counts.items()),
    )


@pytest.mark.parametrize("who", ["ours", pytest.param("kafka", marks=pytest.mark.oracle)])
@pytest.mark.parametrize(
    ("protocol", "stopped"),
    [
        ("default", {"w1": {"a": [-1, 0, 1]}, "w2": {}}),
        ("compatible", {"w1": {"a": [0]}, "w2": {}}),
        ("sessioned", {"w1": {"a": [0]}, "w2": {}}),
    ],
)
def test_a_worker_that_joins_again_stops(
    request: pytest.FixtureRequest, who: str, protocol: str, stopped: dict[str, Any]
) -> None:
    """Eagerly all that it runs, before it joins; incrementally what it is told to, and nothing else."""
    if who == "kafka":
        workers = [{"id": name, "mode": _MODES[protocol], "offset": 7} for name in ("w1", "w2")]
        round_ = {"time": 0, "protocol": protocol, "leader": "w1", **_config("a=2")}
        rounds = [{**round_, "workers": workers[:1]}, {**round_, "workers": workers}]
        _, second = _ask(request.getfixturevalue("oracle"), "connect-workers", DELAY_MS, rounds)
        loads = {name: WorkerLoad.of(**load) for name, load in second["stopped"].items()}
        assert owners_of(loads) == stopped
        return
    alone = BeforeRound(
        assignor="connect-eager" if protocol == "default" else "connect-incremental",
        running={"w1": NO_LOAD},
        memory=LeaderMemory(),
        task_counts={"a": 2},
        now_ms=0,
        max_delay_ms=DELAY_MS,
        generation_id=0,
    )
    first = alone.after(rebalance_workers(alone))
    joined = rebalance_workers(replace(first, running={**first.running, "w2": NO_LOAD}))
    assert {"w2": {}, **joined.revoked} == stopped


def test_a_second_worker_joins(play: Play) -> None:
    """The first gives up half, the second gets it a round later, and then nothing moves any more."""
    play("""
        0 w1, a=4 b=4 | w1: +a +b +a0123 +b0123
        0 w1 w2 | w1: b b0123 -a -a0123 / w2:
        0 w1 w2 | w1: b b0123 / w2: +a +a0123
        0 w1 w2 | w1: b b0123 / w2: a a0123
    """)


def test_workers_join_one_after_another(play: Play) -> None:
    """Every second revocation is put off, 40 ms at first and then 1600; at last all have their share."""
    play("""
        0 w1, a=4 b=4 c=4 | w1: +a +b +c +a0123 +b0123 +c0123
        0 w1 w2 | w1: b c b23 c0123 -a -a0123 -b01 / w2:
        0 w1 w2 w3 | w1: b c b23 c0123 / w2: +a +a02 +b0 / w3: +a13 +b1; wait 40 until 40
        40 w1 w2 w3 w4 | w1: c c123 -b -b23 -c0 / w2: a a02 b0 / w3: a13 b1 / w4:
        40 w1 w2 w3 w4 w5 | w1: c c123 / w2: a a02 b0 / w3: +b a13 b1 / w4: +b2 +c0 / w5: +b3; wait 1600 until
            1640
        1640 w1 w2 w3 w4 w5 w6 | w1: c c23 -c1 / w2: a a2 b0 -a0 / w3: b a13 -b1 / w4: b2 c0 / w5: b3 / w6:
        1640 w1 w2 w3 w4 w5 w6 | w1: c c23 / w2: a a2 b0 / w3: b a13 / w4: b2 c0 / w5: b3 +c1 / w6: +a0 +b1
    """)


def test_nothing_is_put_off_where_no_delay_is_wanted(play: Play) -> None:
    """With a greatest delay of 0 one revocation follows on another."""
    rounds = """
        0 w1, a=4 b=4 c=4 | w1: +a +b +c +a0123 +b0123 +c0123
        0 w1 w2 | w1: b c b23 c0123 -a -a0123 -b01 / w2:
        0 w1 w2 w3 | w1: c c0123 -b -b23 / w2: +a +a02 +b0 / w3: +a13 +b1
        0 w1 w2 w3 | w1: c c0123 / w2: a a02 b0 +b2 / w3: +b a13 b1 +b3
    """
    play(rounds, max_delay_ms=0)


def test_the_least_delay_puts_off_too(play: Play) -> None:
    """With a greatest delay of 1 ms the second revocation in a row waits that long."""
    rounds = """
        0 w1, a=4 b=4 c=4 | w1: +a +b +c +a0123 +b0123 +c0123
        0 w1 w2 | w1: b c b23 c0123 -a -a0123 -b01 / w2:
        0 w1 w2 w3 | w1: b c b23 c0123 / w2: +a +a02 +b0 / w3: +a13 +b1; wait 1 until 1
    """
    play(rounds, max_delay_ms=1)


def test_workers_join_while_a_revocation_is_put_off(play: Play) -> None:
    """Who comes during the delay gets nothing, and does not make it longer."""
    play("""
        0 w1, a=4 b=4 c=4 | w1: +a +b +c +a0123 +b0123 +c0123
        0 w1 w2 | w1: b c b23 c0123 -a -a0123 -b01 / w2:
        0 w1 w2 w3 | w1: b c b23 c0123 / w2: +a +a02 +b0 / w3: +a13 +b1; wait 40 until 40
        20 w1 w2 w3 w4 | w1: b c b23 c0123 / w2: a a02 b0 / w3: a13 b1 / w4:; wait 20 until 40
        40 w1 w2 w3 w4 w5 | w1: c c123 -b -b23 -c0 / w2: a a02 b0 / w3: a3 b1 -a1 / w4: / w5:
        40 w1 w2 w3 w4 w5 | w1: c c123 / w2: a a02 b0 / w3: +b a3 b1 / w4: +a1 +b3 / w5: +b2 +c0
    """)


def test_a_worker_leaves_for_good(play: Play) -> None:
    """What it ran waits for the whole delay, whatever rebalance comes in between."""
    play("""
        0 w1 w2, a=4 b=4 | w1: +a +a02 +b02 / w2: +b +a13 +b13
        0 w1 | w1: a a02 b02; wait 300000 until 300000
        150000 w1 | w1: a a02 b02; wait 150000 until 300000
        300001 w1 | w1: a +b a02 b02 +a13 +b13
    """)


def test_a_worker_bounces(play: Play) -> None:
    """Coming back in time it waits out the delay and gets its own again."""
    play("""
        0 w1 w2, a=4 b=4 | w1: +a +a02 +b02 / w2: +b +a13 +b13
        0 w1 | w1: a a02 b02; wait 300000 until 300000
        150000 w1 | w1: a a02 b02; wait 150000 until 300000
        225000 w1 w2 | w1: a a02 b02 / w2:; wait 75000 until 300000
        300000 w1 w2 | w1: a a02 b02 / w2: +b +a13 +b13
    """)


def test_the_leader_leaves_for_good(play: Play) -> None:
    """Its successor remembers nothing: what was lost is new to it, and given at once."""
    play("""
        0 w1 w2 w3, a=4 b=4 | w1: +a +a03 +b2 / w2: +b +a1 +b03 / w3: +a2 +b1
    """)
    play("""
        0 w2(b a1 b03) w3(a2 b1), a=4 b=4 | w2: b b03 a1 +b2 / w3: +a a2 b1 +a03
        0 w2 w3 | w2: b b203 a1 / w3: a a032 b1
    """)


def test_the_leader_bounces(play: Play) -> None:
    """Coming back as a follower it is a newcomer: others give up work for it."""
    play("""
        0 w2(b a1 b03) w3(a2 b1), a=4 b=4 | w2: b b03 a1 +b2 / w3: +a a2 b1 +a03
        0 w1 w2 w3 | w1: / w2: b b03 a1 -b2 / w3: a a32 b1 -a0
        0 w1 w2 w3 | w1: +a0 +b2 / w2: b b03 a1 / w3: a a32 b1
    """)


def test_the_first_assignment_reaches_nobody(play: Play) -> None:
    """The workers are the same as before, so there is nobody to wait for and all is given again."""
    play("""
        0 w1! w2!, a=4 b=4 | w1: +a +a02 +b02 / w2: +b +a13 +b13
        0 w1 w2 | w1: +a +a02 +b02 / w2: +b +a13 +b13
    """)


def test_a_later_assignment_reaches_nobody(play: Play) -> None:
    """A revocation that was not heard counts as one: the next is put off."""
    play("""
        0 w1 w2, a=4 b=4 | w1: +a +a02 +b02 / w2: +b +a13 +b13
        0 w1! w2! w3! | w1: a a2 b02 -a0 / w2: b b3 a13 -b1 / w3:
        0 w1 w2 w3 | w1: a a02 b02 / w2: b b13 a13 / w3:; wait 40 until 40
        40 w1 w2 w3 | w1: a a2 b02 -a0 / w2: b b3 a13 -b1 / w3:
        40 w1 w2 w3 | w1: a a2 b02 / w2: b b3 a13 / w3: +a0 +b1
    """)


def test_a_later_assignment_fails_at_the_leader(play: Play) -> None:
    """The generation tells it; it forgets what it gave, but not that it has just revoked."""
    play("""
        0 w1 w2, a=4 b=4 | w1: +a +a02 +b02 / w2: +b +a13 +b13
        0 failed w1 w2 w3 | w1: a a2 b02 -a0 / w2: b b3 a13 -b1 / w3:
        0 generation 3 after 1 w1 w2 w3 | w1: a a02 b02 / w2: b b13 a13 / w3:; wait 40 until 40
        40 w1 w2 w3 | w1: a a2 b02 -a0 / w2: b b3 a13 -b1 / w3:
        40 w1 w2 w3 | w1: a a2 b02 / w2: b b3 a13 / w3: +a0 +b1
    """)


def test_connectors_are_deleted(play: Play) -> None:
    """They are stopped wherever they run, and what is left is in balance."""
    play("""
        0 w1 w2, a=4 b=4 c=4 | w1: +a +c +a02 +b02 +c02 / w2: +b +a13 +b13 +c13
        0 w1 w2, a=4 b=4 | w1: a a02 b02 -c -c02 / w2: b b13 a13 -c31
    """)


def test_new_work_is_dealt_to_equal_workers(play: Play) -> None:
    """Connectors and tasks go round from the first worker."""
    play("""
        0 w0(a b a01) w1(c d a23) w2(e f a45), a=6 b=5 c=0 d=0 e=0 f=0 g=0 h=0 i=0 j=0 k=0 | w0: a b +g +j a01
            +b03 / w1: c d +h +k a23 +b14 / w2: e f +i a45 +b2
    """)


def test_new_work_is_dealt_to_unequal_workers(play: Play) -> None:
    """The emptiest fill up first, until all have six of each."""
    play("""
        0 w0(a b a01) w1(c d e a234) w2(f g h i a5678) w3, a=9 b=9 c=6 d=0 e=0 f=0 g=0 h=0 i=0 j=0 k=0 l=0 m=0
            n=0 o=0 p=0 q=0 r=0 s=0 t=0 u=0 v=0 w=0 x=0 | w0: a b +m +o +r +v a01 +b358 +c3 / w1: c d e +p +s
            +w a234 +b6 +c04 / w2: f g h i +t +x a5678 +c15 / w3: +j +k +l +n +q +u +b01247 +c2
    """)


def test_lost_work_waits_for_a_worker_that_bounces(play: Play) -> None:
    """Seen empty while the delay runs, the worker gets all that was lost, and nobody else any."""
    play("""
        0 w0(a b a0123) w1(c d c0123) w2(e f e0123), a=4 b=0 c=4 d=0 e=4 f=0 | w0: a b a0123 / w1: c d c0123 /
            w2: e f e0123
        0 w0 w2 | w0: a b a0123 / w2: e f e0123; wait 300000 until 300000
        150000 w0 w1 w2 | w0: a b a0123 / w1: / w2: e f e0123; wait 150000 until 300000
        300000 w0 w1 w2 | w0: a b a0123 / w1: +c +d +c0123 / w2: e f e0123
    """)


def test_lost_work_waits_for_a_worker_that_stays_away(play: Play) -> None:
    """Nobody was seen empty, so it is dealt to all."""
    play("""
        0 w0(a b a0123) w1(c d c0123) w2(e f e0123), a=4 b=0 c=4 d=0 e=4 f=0 | w0: a b a0123 / w1: c d c0123 /
            w2: e f e0123
        0 w0 w2 | w0: a b a0123 / w2: e f e0123; wait 300000 until 300000
        150000 w0 w2 | w0: a b a0123 / w2: e f e0123; wait 150000 until 300000
        300000 w0 w2 | w0: a b +c a0123 +c02 / w2: e f +d e0123 +c13
    """)


def test_lost_work_is_shared_by_all_that_were_seen_empty(play: Play) -> None:
    """A newcomer and the one that came back get it in turns, though both have other work by then."""
    play("""
        0 w0(a b a0123) w1(c d c0123) w2(e f e0123), a=4 b=0 c=4 d=0 e=4 f=0 | w0: a b a0123 / w1: c d c0123 /
            w2: e f e0123
        0 w0 w2 w3 | w0: a b a0123 / w2: e f e0123 / w3:; wait 300000 until 300000
        150000 w0 w1 w2 w3 | w0: a b a0123 / w1: / w2: e f e0123 / w3:; wait 150000 until 300000
        200000 w0 w1 w2 w3, a=4 b=0 c=4 d=0 e=4 f=0 g=4 h=4 | w0: a b a0123 / w1: +g +g02 +h02 / w2: e f e0123
            / w3: +h +g13 +h13; wait 100000 until 300000
        300000 w0 w1 w2 w3 | w0: a b a0123 / w1: g +d g2 h02 +c13 -g0 / w2: e f e0123 / w3: h +c h3 g13 +c02
            -h1
        300000 w0 w1 w2 w3 | w0: a b a0123 +g0 / w1: d g g2 c13 h02 / w2: e f e0123 +h1 / w3: c h c02 h3 g13
    """)


def test_lost_work_waited_for_a_worker_that_leaves_again(play: Play) -> None:
    """Who was seen empty and is gone when the delay ends gets nothing; the rest share."""
    play("""
        0 w0(a b a0123) w1(c d c0123) w2(e f e0123), a=4 b=0 c=4 d=0 e=4 f=0 | w0: a b a0123 / w1: c d c0123 /
            w2: e f e0123
        0 w0 w2 | w0: a b a0123 / w2: e f e0123; wait 300000 until 300000
        150000 w0 w1 w2 | w0: a b a0123 / w1: / w2: e f e0123; wait 150000 until 300000
        300000 w0 w2 | w0: a b +c a0123 +c02 / w2: e f +d e0123 +c13
    """)


def test_lost_work_is_given_at_once_where_no_delay_is_wanted(play: Play) -> None:
    """With a greatest delay of 0 the workers that are left share it in the very round."""
    rounds = """
        0 w0(a b a0123) w1(c d c0123) w2(e f e0123), a=4 b=0 c=4 d=0 e=4 f=0 | w0: a b a0123 / w1: c d c0123 /
            w2: e f e0123
        0 w0 w2 | w0: a b +c a0123 +c02 / w2: e f +d e0123 +c13
    """
    play(rounds, max_delay_ms=0)


def test_the_last_worker_takes_all_where_no_delay_is_wanted(play: Play) -> None:
    """One of two leaves, and the other has everything in the same round."""
    rounds = """
        0 w1 w2, a=4 b=4 | w1: +a +a02 +b02 / w2: +b +a13 +b13
        0 w1 | w1: a +b a02 b02 +a13 +b13
    """
    play(rounds, max_delay_ms=0)


def test_a_worker_joins_with_what_another_runs(play: Play) -> None:
    """What runs twice is stopped by both and given once in the round after."""
    play("""
        0 w1, a=4 b=4 | w1: +a +b +a0123 +b0123
        0 w1 w2(b b0123) | w1: a a0123 -b -b2301 / w2: -b -b2301
        0 w1 w2 | w1: a a0123 / w2: +b +b0123
        0 w1 w2 | w1: a a0123 / w2: b b0123
    """)


def test_a_worker_joins_with_what_another_runs_and_nobody_wants(play: Play) -> None:
    """A duplicate of a deleted connector is stopped by both and never given again."""
    play("""
        0 w1, a=4 b=4 | w1: +a +b +a0123 +b0123
        0 w1 w2(b b0123), a=4 | w1: a a23 -b -b2301 -a01 / w2: -b -b2301
        0 w1 w2 | w1: a a23 / w2: +a01
        0 w1 w2 | w1: a a23 / w2: a01
    """)


def test_a_revocation_is_not_heard_and_its_connector_deleted(play: Play) -> None:
    """The leader believes the report, or it could not tell that something deleted still runs."""
    play("""
        0 w1, a=4 b=4 | w1: +a +b +a0123 +b0123
        0 w1! w2 | w1: b b0123 -a -a0123 / w2:
        0 w1 w2, b=4 | w1: b b0123 -a -a1230 / w2:; wait 40 until 40
        40 w1 w2 | w1: b b23 -b01 / w2:
        40 w1 w2 | w1: b b23 / w2: +b01
    """)


def test_a_revocation_is_not_heard_and_another_worker_lost(play: Play) -> None:
    """Believing reports it forgets what the lost worker ran: that is given at once, and yet it waits."""
    play("""
        0 w1 w2, a=4 b=4 | w1: +a +a02 +b02 / w2: +b +a13 +b13
        0 w1! w2 w3 | w1: a a2 b02 -a0 / w2: b b3 a13 -b1 / w3:
        0 w1 w3 | w1: a a02 b02 / w3: +b +a13 +b13; wait 300000 until 300000
    """)


def test_new_work_comes_with_a_worker(play: Play) -> None:
    """The newcomer takes it, and nobody has to give anything up."""
    play("""
        0 w1 w2, a=4 b=4 | w1: +a +a02 +b02 / w2: +b +a13 +b13
        0 w1 w2 w3, a=4 b=4 c=3 | w1: a a02 b02 / w2: b b13 a13 / w3: +c +c012
        0 w1 w2 w3 | w1: a a02 b02 / w2: b b13 a13 / w3: c c012
    """)


def test_a_worker_taken_for_lost_comes_back_with_all_it_ran(play: Play) -> None:
    """Nothing is lost any more: the delay is over, and what was not revoked during it is revoked at once."""
    play("""
        0 w1, a=4 b=4 | w1: +a +b +a0123 +b0123
        0 w1 w2 | w1: b b0123 -a -a0123 / w2:
        0 w1 w2 | w1: b b0123 / w2: +a +a0123
        0 w1 w2 w3 | w1: b b123 -b0 / w2: a a123 -a0 / w3:
        0 w1 w3 w4 | w1: b b123 / w3: +a0 / w4: +b0; wait 300000 until 300000
        1000 w1 w2(a a123) w3 w4 | w1: b b23 -b1 / w2: a a23 -a1 / w3: a0 / w4: b0
        1000 w1 w2 w3 w4 | w1: b b23 / w2: a a23 / w3: a0 +a1 / w4: b0 +b1
    """)


def test_who_was_seen_empty_is_forgotten_with_the_delay(play: Play) -> None:
    """When the next worker is lost, nobody has a claim from the last time."""
    play("""
        0 w1 w2 w3, a=3 b=3 | w1: +a +a0 +b0 / w2: +b +a1 +b1 / w3: +a2 +b2
        0 w1 w2 | w1: a a0 b0 / w2: b b1 a1; wait 300000 until 300000
        1000 w1 w2 w3 | w1: a a0 b0 / w2: b b1 a1 / w3:; wait 299000 until 300000
        300000 w1 w2 w3 | w1: a a0 b0 / w2: b b1 a1 / w3: +a2 +b2
        400000 w1 w3 | w1: a a0 b0 / w3: a2 b2; wait 300000 until 700000
        700000 w1 w3 | w1: a a0 b0 +a1 / w3: +b a2 b2 +b1
    """)


def test_an_eager_leader_deals_one_connector_with_one_task(cluster: Play) -> None:
    """The leader gets the connector, the other worker its task."""
    cluster("""
        0 default leader member, a=1 | leader: +a / member: +a0
    """)


def test_an_eager_leader_deals_in_a_circle(cluster: Play) -> None:
    """Tasks go on where connectors stopped."""
    cluster("""
        0 default leader member, a=2 b=1 | leader: +a +a0 +b0 / member: +b +a1
    """)


def test_an_eager_leader_deals_connectors_of_one_task(cluster: Play) -> None:
    """As many connectors as tasks lie evenly on two workers."""
    cluster("""
        0 default leader member, a=1 b=1 c=1 | leader: +a +c +b0 / member: +b +a0 +c0
    """)


@pytest.mark.parametrize("mode", ["eager", "compatible"])
def test_eager_workers_join_again_and_again(cluster: Play, mode: str) -> None:
    """Each round deals all afresh, also to workers that could do more than their group."""
    cluster(f"""
        0 default leader/{mode} member/{mode}, a=1 | leader: +a / member: +a0
        0 default leader/{mode} member/{mode}, b=1 | leader: +b / member: +b0
        0 default led by member leader/{mode} member/{mode}, a=1 b=2 | leader: +a +a0 +b1 / member: +b +b0
        0 default member/{mode} | member: +a +b +a0 +b01
    """)


@pytest.mark.parametrize("protocol", ["compatible", "sessioned"])
def test_a_third_worker_joins_a_cluster(cluster: Play, protocol: str) -> None:
    """The leader and the follower each give up one task for it."""
    cluster(f"""
        0 {protocol} w1 w2, a=4 b=4 | w1: +a +a02 +b02 / w2: +b +b13 +a13
        0 {protocol} w1 w2 w3 | w1: a a2 b02 -a0 / w2: b b3 a13 -b1 / w3:
        0 {protocol} w1 w2 w3 | w1: a a2 b02 / w2: b b3 a13 / w3: +a0 +b1
    """)


@pytest.mark.parametrize("protocol", ["compatible", "sessioned"])
def test_a_worker_of_a_cluster_leaves_for_good(cluster: Play, protocol: str) -> None:
    """All hear how long is left to wait, and then the rest share."""
    cluster(f"""
        0 {protocol} w1 w2 w3, a=4 b=4 | w1: +a +a03 +b2 / w2: +b +b03 +a1 / w3: +a2 +b1
        0 {protocol} w1 w2 | w1: a a03 b2 / w2: b b03 a1; wait 300000
        150000 {protocol} w1 w2 | w1: a a03 b2 / w2: b b03 a1; wait 150000
        300001 {protocol} w1 w2 | w1: a +a2 a03 b2 / w2: b +b1 b03 a1
    """)


@pytest.mark.parametrize("protocol", ["compatible", "sessioned"])
def test_a_worker_of_a_cluster_bounces(cluster: Play, protocol: str) -> None:
    """The worker that came back hears how long it must wait, and then gets its own."""
    cluster(f"""
        0 {protocol} w1 w2 w3, a=4 b=4 | w1: +a +a03 +b2 / w2: +b +b03 +a1 / w3: +a2 +b1
        0 {protocol} w1 w2 | w1: a a03 b2 / w2: b b03 a1; wait 300000
        150000 {protocol} w1 w2 w3 | w1: a a03 b2 / w2: b b03 a1 / w3:; wait 150000
        300001 {protocol} w1 w2 w3 | w1: a a03 b2 / w2: b b03 a1 / w3: +a2 +b1
    """)


def test_an_eager_leader_is_behind(cluster: Play) -> None:
    """It assigns nothing, all stop, and the next round deals afresh."""
    cluster("""
        0 default leader member, a=1 | leader: +a / member: +a0
        0 default behind leader member, a=2 b=1 | config mismatch
        0 default leader member | leader: +a +a0 +b0 / member: +b +a1
    """)


def test_an_incremental_leader_is_behind(cluster: Play) -> None:
    """Workers keep what they run; the leader forgets what it gave, so a lost worker is not waited for."""
    cluster("""
        0 sessioned w1 w2, a=4 b=4 | w1: +a +a02 +b02 / w2: +b +b13 +a13
        0 sessioned behind w1 w3 | config mismatch
        0 sessioned w1 w3 | w1: a a02 b02 / w3: +b +b13 +a13
        0 sessioned w1 w3 | w1: a a02 b02 / w3: b b13 a13
    """)


def test_a_cluster_is_upgraded_worker_by_worker(cluster: Play) -> None:
    """The first incremental round takes over what the last eager one gave; a leader's memory ends with it."""
    cluster("""
        0 default w1/eager w2/eager, a=4 b=4 | w1: +a +a02 +b02 / w2: +b +b13 +a13
        10 default w2 | w2: +a +b +a0123 +b0123
        20 default w2 w1/compatible | w2: +b +b13 +a13 / w1: +a +a02 +b02
        30 default w1 | w1: +a +b +a0123 +b0123
        40 compatible w1 w2/compatible | w1: b b0123 -a -a0123 / w2:
        50 compatible w1 w2 | w1: b b0123 / w2: +a +a0123
        60 compatible w1 | w1: b b0123; wait 300000
        70 compatible w1 w2/sessioned | w1: b b0123 / w2:; wait 299990
        300060 compatible w1 w2 | w1: b b0123 / w2: +a +a0123
        300070 compatible w2 | w2: +b a +b0123 a0123
        300080 compatible w2 w1/sessioned | w2: b b0123 -a -a0123 / w1:
        600080 sessioned w2 w1 | w2: b b0123 / w1: +a +a0123
    """)


def test_an_old_worker_joins_and_leaves(cluster: Play) -> None:
    """While it is there all is dealt eagerly; what it ran is new to the leader afterwards."""
    cluster("""
        0 sessioned w1 w2, a=4 b=4 | w1: +a +a02 +b02 / w2: +b +b13 +a13
        0 default w1 w2 w3/eager | w1: +a +a1 +b03 / w2: +b +b1 +a2 / w3: +a03 +b2
        0 sessioned w1 w2 | w1: a +b2 a1 b03 / w2: b +a03 b1 a2
        0 sessioned w1 w2 | w1: a b2 a1 b03 / w2: b a03 b1 a2
    """)


def test_an_old_worker_joins_while_a_delay_runs(cluster: Play) -> None:
    """Nothing is waited for after the eager round, and the next loss waits its full time."""
    cluster("""
        0 sessioned w1 w2 w4, a=4 b=4 | w1: +a +a03 +b2 / w2: +b +b03 +a1 / w4: +a2 +b1
        0 sessioned w1 w2 | w1: a a03 b2 / w2: b b03 a1; wait 300000
        100000 default w1 w2 w3/eager | w1: +a +a1 +b03 / w2: +b +b1 +a2 / w3: +a03 +b2
        200000 sessioned w1 w2 | w1: a +b2 a1 b03 / w2: b +a03 b1 a2
        250000 sessioned w1 | w1: a b2 a1 b03; wait 300000
        400000 sessioned w1 | w1: a b2 a1 b03; wait 150000
        600000 sessioned w1 | w1: +b a +b1 +a023 b2 a1 b03
    """)


def test_a_former_leader_leads_again(cluster: Play) -> None:
    """What it believed is out of date and forgotten; that it revoked last is not."""
    cluster("""
        0 sessioned w1, a=4 b=4 | w1: +a +b +a0123 +b0123
        0 sessioned w1 w2 | w1: b b0123 -a -a0123 / w2:
        0 sessioned led by w2 w1 w2 | w1: b b0123 / w2: +a +a0123
        0 sessioned led by w2 w1 w2 w3 | w1: b b123 -b0 / w2: a a123 -a0 / w3:
        0 sessioned w1 w2 w3 w4 | w1: b b123 / w2: a a123 / w3: +a0 / w4: +b0; wait 40
        40 sessioned w1 w2 w3 w4 | w1: b b23 -b1 / w2: a a23 -a1 / w3: a0 / w4: b0
        40 sessioned w1 w2 w3 w4 | w1: b b23 / w2: a a23 / w3: +a1 a0 / w4: +b1 b0
    """)


def test_workers_of_two_kinds_share_a_cluster(cluster: Play) -> None:
    """The protocol is what all speak; who leads makes no difference to who gets what."""
    cluster("""
        0 compatible w1/sessioned w2/compatible, a=2 b=2 | w1: +a +a0 +b0 / w2: +b +b1 +a1
        0 compatible led by w2 w1 w2/compatible w3/sessioned | w1: a a0 b0 / w2: b a1 -b1 / w3:
        0 compatible led by w2 w1 w2 w3 | w1: a a0 b0 / w2: b a1 / w3: +b1
    """)
