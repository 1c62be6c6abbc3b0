"""Connect's two assignors: KIP-415's rounds, the leader's memory, and what is never lost."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assignors.connect_backoff import revocation_delay_ms
from assignors.connect_eager import assign_connect_eager
from assignors.connect_incremental import LeaderMemory, assign_connect_incremental
from assignors.connect_lines import ConnectCaseError, run_connect_case
from assignors.connect_protocol import ConnectorTask, WorkerLoad, configured_tasks
from assignors.errors import AssignorError, UnknownAssignorError

DELAY_MS = 300_000
Round = dict[str, Any]


def play(*rounds: Round, max_delay_ms: int = DELAY_MS) -> list[Round]:
    """Play rounds with one leader, a minute apart unless they say otherwise."""
    timed = [{"time": 60_000 * i, **round_} for i, round_ in enumerate(rounds)]
    case = {"assignor": "connect-incremental", "max_delay": max_delay_ms, "rounds": timed}
    answers: list[Round] = run_connect_case(case)["rounds"]
    return answers


def held(answer: Round) -> dict[str, list[str]]:
    """Read what each worker has after a round, as "c" and "c-0"."""
    return {
        worker: sorted([*lists["all_connectors"], *(f"{c}-{n}" for c, n in lists["all_tasks"])])
        for worker, lists in answer.items()
        if worker not in ("input", "delay", "scheduled", "generation")
    }


def running_counts(answer: Round) -> Counter[str]:
    """Count how many workers run each connector and task after a round."""
    return Counter(thing for things in held(answer).values() for thing in things)


def test_eager_deals_connectors_then_tasks_in_one_circle() -> None:
    """Sorted workers take turns, and the tasks go on where the connectors stopped."""
    loads = assign_connect_eager({"b": 2, "a": 1}, ["w1", "w0"])
    assert loads == {
        "w1": WorkerLoad.of(["b"], [("b", 0)]),
        "w0": WorkerLoad.of(["a"], [("a", 0), ("b", 1)]),
    }


def test_a_case_of_the_eager_assignor_is_answered_in_plain_json() -> None:
    """Workers stand in the order given, tasks as pairs."""
    case = {"assignor": "connect-eager", "connectors": {"c": 1}, "workers": ["w1", "w0"]}
    assert run_connect_case(case) == {
        "w1": {"connectors": [], "tasks": [["c", 0]]},
        "w0": {"connectors": ["c"], "tasks": []},
    }


def test_a_worker_that_lost_everything_reports_nothing() -> None:
    """It is given its work again, without delay, because no worker has gone."""
    config = {"connectors": {"c": 1}}
    rounds = play({**config, "workers": ["w0"]}, {**config, "workers": [{"id": "w0", "lost": True}]})
    assert rounds[1]["w0"]["assigned_tasks"] == [["c", 0]]
    assert rounds[1]["delay"] == 0


def test_eager_leaves_out_tasks_that_are_not_known() -> None:
    """A connector without task configurations, or with incomplete ones, is dealt without tasks."""
    loads = assign_connect_eager({"a": None, "b": 3}, ["w0"], inconsistent=["b"])
    assert loads["w0"] == WorkerLoad(("a", "b"))
    assert configured_tasks({"a": None, "b": 1}) == [ConnectorTask("b", 0)]


def test_tasks_travel_grouped_by_connector() -> None:
    """The wire carries connectors as a hash set iterates, and the tasks of one together."""
    load = WorkerLoad.of(["c1", "c0"], [("c2", 0), ("c1", 1), ("c2", 1), ("c1", 0)])
    assert load.as_sent() == WorkerLoad.of(["c0", "c1"], [("c1", 1), ("c1", 0), ("c2", 0), ("c2", 1)])


@pytest.mark.parametrize("assignor", ["connect-eager", "connect-incremental"])
def test_a_cluster_without_workers_is_refused(assignor: str) -> None:
    """Kafka's classes raise; so do ours, and say what is missing."""
    case = {"assignor": assignor, "connectors": {"c": 1}, "workers": [], "max_delay": 0}
    with pytest.raises(AssignorError, match=f"{assignor}: there are no workers"):
        run_connect_case({**case, "rounds": [{"time": 0, "connectors": {"c": 1}, "workers": []}]})


def test_a_joining_worker_waits_for_the_second_rebalance() -> None:
    """First the others stop what is beyond their share; only the next round hands it out."""
    config = {"connectors": {"c": 4}}
    first, second, third = play(
        {**config, "workers": ["w0"]},
        {**config, "workers": ["w0", "w1"]},
        {**config, "workers": ["w0", "w1"]},
    )
    assert held(first) == {"w0": ["c", "c-0", "c-1", "c-2", "c-3"]}
    assert second["w0"]["revoked_tasks"] == [["c", 0], ["c", 1]]
    assert held(second) == {"w0": ["c", "c-2", "c-3"], "w1": []}
    assert held(third) == {"w0": ["c", "c-2", "c-3"], "w1": ["c-0", "c-1"]}
    assert [answer["delay"] for answer in (first, second, third)] == [0, 0, 0]


def test_a_lost_workers_tasks_wait_for_it() -> None:
    """Nothing is given away while the delay runs, and the delay shrinks as time passes."""
    config = {"connectors": {"c": 4}}
    rounds = play(
        {**config, "workers": ["w0", "w1"]},
        {**config, "workers": ["w0"]},
        {**config, "workers": ["w0"]},
    )
    assert [answer["delay"] for answer in rounds] == [0, DELAY_MS, DELAY_MS - 60_000]
    assert held(rounds[2]) == {"w0": ["c", "c-0", "c-2"]}


def test_a_worker_that_comes_back_in_time_gets_its_own_tasks() -> None:
    """It is empty while the delay runs, so it is the one to which the lost tasks go."""
    config = {"connectors": {"c": 4}}
    before, _, waiting, after = play(
        {**config, "workers": ["w0", "w1"]},
        {**config, "workers": ["w0"]},
        {**config, "workers": ["w0", "w1"]},
        {**config, "workers": ["w0", "w1"], "time": 60_000 + DELAY_MS},
    )
    assert held(waiting)["w1"] == []
    assert held(after) == held(before)


def test_nothing_is_revoked_while_a_delay_runs() -> None:
    """A second newcomer gets nothing before the lost worker's time is over."""
    config = {"connectors": {"c": 6}}
    rounds = play(
        {**config, "workers": ["w0", "w1"]},
        {**config, "workers": ["w0"]},
        {**config, "workers": ["w0", "w2", "w3"]},
    )
    assert not any(rounds[2][w]["revoked_tasks"] for w in ("w0", "w2", "w3"))
    assert held(rounds[2])["w2"] == held(rounds[2])["w3"] == []


def test_lost_tasks_go_to_all_when_nobody_came() -> None:
    """After the delay what a lost worker ran is dealt like new work."""
    config = {"connectors": {"c": 4}}
    rounds = play(
        {**config, "workers": ["w0", "w1", "w2"]},
        {**config, "workers": ["w0", "w1"]},
        {**config, "workers": ["w0", "w1"], "time": 60_000 + DELAY_MS},
    )
    assert held(rounds[2]) == {"w0": ["c", "c-0", "c-3"], "w1": ["c-1", "c-2"]}
    assert rounds[2]["scheduled"] == 0


def test_without_a_delay_lost_tasks_are_given_away_at_once() -> None:
    """A greatest delay of 0 switches KIP-415's wait off."""
    config = {"connectors": {"c": 2}}
    rounds = play({**config, "workers": ["w0", "w1"]}, {**config, "workers": ["w1"]}, max_delay_ms=0)
    assert held(rounds[1]) == {"w1": ["c", "c-0", "c-1"]}


def test_a_leader_that_failed_to_sync_forgets_what_it_gave() -> None:
    """Its generation does not match the last completed one: what nobody reports is new again."""
    config = {"connectors": {"c": 2}, "workers": ["w0", "w1"]}
    rounds = play({**config, "sync_failed": True}, config)
    assert rounds[1]["input"] == {w: {"connectors": [], "tasks": []} for w in ("w0", "w1")}
    assert [answer["generation"] for answer in rounds] == [1, 1]
    assert held(rounds[1]) == held(rounds[0])
    assert rounds[1]["delay"] == 0


def test_tasks_that_never_arrived_are_given_again_without_delay() -> None:
    """All workers are there, so a worker that reports less did not get its assignment."""
    config = {"connectors": {"c": 2}}
    rounds = play(
        {**config, "workers": ["w0", {"id": "w1", "sync_failed": True}]},
        {**config, "workers": ["w0", "w1"]},
    )
    assert rounds[1]["delay"] == 0
    assert running_counts(rounds[1]) == Counter(("c", "c-0", "c-1"))


def test_a_task_that_runs_twice_is_taken_from_both() -> None:
    """A duplicate is revoked wherever it runs, and given once in the round after."""
    config = {"connectors": {"c": 2}}
    twice = {"connectors": [], "tasks": [["c", 0]]}
    rounds = play(
        {**config, "workers": [{"id": "w0", **twice}, {"id": "w1", **twice}]},
        {**config, "workers": ["w0", "w1"]},
    )
    assert rounds[0]["w0"]["revoked_tasks"] == rounds[0]["w1"]["revoked_tasks"] == [["c", 0]]
    assert running_counts(rounds[1]) == Counter(("c", "c-0", "c-1"))


def test_deleted_connectors_are_stopped() -> None:
    """What is no longer configured is revoked from whoever runs it."""
    rounds = play(
        {"connectors": {"c": 2, "d": 1}, "workers": ["w0"]}, {"connectors": {"d": 1}, "workers": ["w0"]}
    )
    assert rounds[1]["w0"]["revoked_connectors"] == ["c"]
    assert rounds[1]["w0"]["revoked_tasks"] == [["c", 0], ["c", 1]]
    assert held(rounds[1]) == {"w0": ["d", "d-0"]}


def test_a_revocation_that_did_not_arrive_is_made_again() -> None:
    """A worker that still reports what was taken from it is believed, and told again."""
    config = {"connectors": {"c": 4}}
    rounds = play(
        {**config, "workers": ["w0"]},
        {**config, "workers": [{"id": "w0", "sync_failed": True}, "w1"]},
        {**config, "workers": ["w0", "w1"], "time": 10_000_000},
    )
    assert rounds[2]["input"]["w0"]["tasks"] == [["c", n] for n in range(4)]
    assert running_counts(rounds[2])["c-0"] <= 1
    assert rounds[2]["delay"] == 40


def test_without_a_delay_consecutive_revocations_go_on_at_once() -> None:
    """With a greatest delay of 0 each joining worker makes the others give up work immediately."""
    config = {"connectors": {"c": 12}}
    grown = [["w0"], ["w0", "w1"], ["w0", "w1", "w2"], ["w0", "w1", "w2", "w3"]]
    rounds = play(*({**config, "workers": workers} for workers in grown), max_delay_ms=0)
    assert [len(answer["w0"]["revoked_tasks"]) for answer in rounds] == [0, 6, 2, 1]
    assert {answer["delay"] for answer in rounds} == {0}


def test_with_a_delay_the_second_revocation_in_a_row_is_put_off() -> None:
    """Forty milliseconds later nothing stands in its way."""
    config = {"connectors": {"c": 12}}
    rounds = play(
        {**config, "workers": ["w0"]},
        {**config, "workers": ["w0", "w1"]},
        {**config, "workers": ["w0", "w1", "w2"]},
        {**config, "workers": ["w0", "w1", "w2"], "time": 120_040},
    )
    assert [len(answer["w0"]["revoked_tasks"]) for answer in rounds] == [0, 6, 0, 2]
    assert [answer["delay"] for answer in rounds] == [0, 0, 40, 0]


@pytest.mark.parametrize(
    ("max_delay_ms", "delays"),
    [
        (0, [0, 0, 0, 0]),
        (1, [1, 1, 1, 1]),
        (39, [39, 39, 39, 39]),
        (300_000, [40, 1600, 64_000, 300_000]),
        (2**31 - 1, [40, 1600, 64_000, 2_560_000]),
    ],
)
def test_consecutive_revocations_are_put_off_ever_longer(max_delay_ms: int, delays: list[int]) -> None:
    """40, 1600, 64000 ms and so on, up to the greatest delay."""
    assert [revocation_delay_ms(n, max_delay_ms) for n in (1, 2, 3, 4)] == delays


def test_the_greatest_delay_can_come_out_one_short() -> None:
    """Java computes it through a logarithm: 183856 ms come out as 183855, 183854 as they are."""
    assert [revocation_delay_ms(9, limit) for limit in (183_854, 183_855, 183_856)] == [
        183_854,
        183_854,
        183_855,
    ]


@st.composite
def histories(draw: st.DrawFn) -> list[Round]:
    """Draw rounds in which workers come and go, and connectors with them."""
    rounds: list[Round] = []
    for i in range(draw(st.integers(1, 6))):
        workers = draw(st.lists(st.sampled_from([f"w{n}" for n in range(5)]), min_size=1, unique=True))
        connectors = draw(st.dictionaries(st.sampled_from("abc"), st.integers(0, 5), min_size=1))
        rounds.append({"time": 100_000 * i, "connectors": connectors, "workers": workers})
    return rounds


@st.composite
def chains(draw: st.DrawFn) -> tuple[list[Round], int]:
    """Draw (histories in which syncs fail, for one worker or for all; the greatest delay)."""
    rounds, time = [], 0
    for round_ in draw(histories()):
        time += draw(st.sampled_from([0, 20, 40, 1600, DELAY_MS // 2, DELAY_MS]))
        failed = draw(st.sets(st.sampled_from(round_["workers"])))
        workers = [{"id": worker, "sync_failed": worker in failed} for worker in round_["workers"]]
        rounds.append({**round_, "time": time, "workers": workers, "sync_failed": draw(st.booleans())})
    return rounds, draw(st.sampled_from([0, 1, DELAY_MS]))


def play_to_rest(rounds: list[Round], max_delay_ms: int) -> list[Round]:
    """Play rounds, and then the last one again, far enough apart for every delay to be over."""
    last = {**rounds[-1], "sync_failed": False, "workers": [w["id"] for w in rounds[-1]["workers"]]}
    resting = [{**last, "time": last["time"] + n * 2 * DELAY_MS} for n in range(1, 8)]
    return play(*rounds, *resting, max_delay_ms=max_delay_ms)


@settings(max_examples=100, deadline=None)
@given(chain=chains())
def test_nothing_ever_runs_twice(chain: tuple[list[Round], int]) -> None:
    """At no time is a connector or task with two workers, whoever has not heard what it was told."""
    for answer in play_to_rest(*chain):
        reported = [[*r["connectors"], *map(tuple, r["tasks"])] for r in answer["input"].values()]
        reports = Counter(thing for things in reported for thing in things)
        assert max(reports.values(), default=1) == 1
        assert max(running_counts(answer).values(), default=1) == 1


@settings(max_examples=100, deadline=None)
@given(chain=chains())
def test_nothing_is_lost_after_the_delay_has_passed(chain: tuple[list[Round], int]) -> None:
    """However the group came there: at rest all that is configured runs once, and level within one."""
    rounds, _ = chain
    connectors, workers = rounds[-1]["connectors"], [worker["id"] for worker in rounds[-1]["workers"]]
    end = play_to_rest(*chain)[-1]
    wanted = [*connectors, *(f"{c}-{n}" for c, n in configured_tasks(connectors))]
    assert running_counts(end) == Counter(wanted)
    for kind in ("connectors", "tasks"):
        assert not any(
            end[worker][f"revoked_{kind}"] or end[worker][f"assigned_{kind}"] for worker in workers
        )
        loads = [len(end[worker][f"all_{kind}"]) for worker in workers]
        assert max(loads) - min(loads) <= 1


@settings(max_examples=40, deadline=None)
@given(rounds=histories())
def test_a_memory_kept_as_json_decides_the_same(rounds: list[Round]) -> None:
    """A leader restored from its stored memory in each round cannot be told from one that went on."""
    kept, stored = LeaderMemory(), json.dumps(LeaderMemory().to_json())
    running: dict[str, WorkerLoad] = {}
    for number, round_ in enumerate(rounds, start=1):
        reports = {worker: running.get(worker, WorkerLoad()).as_sent() for worker in round_["workers"]}
        answers = [
            assign_connect_incremental(
                memory,
                reports,
                round_["connectors"],
                now_ms=round_["time"],
                max_delay_ms=DELAY_MS,
                last_completed_generation_id=number - 1,
                generation_id=number,
            )
            for memory in (kept, LeaderMemory.from_json(json.loads(stored)))
        ]
        assert answers[0] == answers[1]
        assignment, kept = answers[0]
        stored = json.dumps(answers[1][1].to_json())
        running = {
            worker: running.get(worker, WorkerLoad()).after(
                assignment.assigned[worker], assignment.revoked[worker]
            )
            for worker in reports
        }


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ({"assignor": "connect-eager", "workers": ["w"]}, "a case: connectors is None"),
        ({"assignor": "connect-eager", "connectors": {"c": -1}, "workers": ["w"]}, "connectors is {'c': -1}"),
        ({"assignor": "connect-eager", "connectors": {}, "workers": [1]}, r"workers is \[1\]"),
        ({"assignor": "connect-incremental", "rounds": []}, "max_delay is None; it must be an int from 0"),
        ({"assignor": "connect-incremental", "max_delay": 1}, "rounds is None; it must be a list of objects"),
    ],
)
def test_a_case_of_another_form_is_named(case: dict[str, Any], message: str) -> None:
    """The error says which field, what was found and what is allowed."""
    with pytest.raises(ConnectCaseError, match=message):
        run_connect_case(case)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"time": "now"}, "round 1: time is 'now'; it must be an int of milliseconds"),
        ({"time": True}, "time is True"),
        ({"workers": None}, "workers is None; it must be a list"),
        ({"workers": [{"lost": True}]}, "a worker is {'lost': True}; it must be an id or have an 'id'"),
        ({"workers": [{"id": "w", "tasks": [["c"]]}]}, r"tasks is \[\['c'\]\]"),
        ({"workers": [{"id": "w", "connectors": "c"}]}, "connectors is 'c'; it must be a list of texts"),
        ({"generation": "1"}, "generation is '1'; it must be an int or absent"),
        ({"inconsistent": {"c": 1}}, "inconsistent is"),
    ],
)
def test_a_round_of_another_form_is_named(changed: Round, message: str) -> None:
    """The error counts the rounds from 1."""
    with pytest.raises(ConnectCaseError, match=message):
        play({"connectors": {"c": 1}, "workers": ["w"], **changed})


def test_another_assignor_is_unknown_here() -> None:
    """Only Connect's two are answered by this module."""
    with pytest.raises(UnknownAssignorError, match="unknown Connect assignor 'range'"):
        run_connect_case({"assignor": "range"})
