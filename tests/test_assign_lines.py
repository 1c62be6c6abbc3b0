"""`assign --jsonl` answers every line, in order, whatever stands in it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from assignors import Assignment, Subscription, TopicMetadata, TopicPartition
from assignors.optimal import Certificate, check_certificate
from console.assign_lines import answer_lines, run_assign_lines

_CASE: dict[str, Any] = {
    "assignor": "range",
    "topics": {"t": 3},
    "members": [{"id": "A", "topics": ["t"]}, {"id": "B", "topics": ["t"]}],
}


def _answer(**changes: Any) -> dict[str, Any]:
    (answer,) = answer_lines([json.dumps({**_CASE, **changes})])
    return answer


def _sticky(**member: Any) -> dict[str, Any]:
    """Answer a sticky group of A, who says something, and B, who does not."""
    first = {"id": "A", "topics": ["t"], **member}
    return _answer(assignor="sticky", topics={"t": 2}, members=[first, {"id": "B", "topics": ["t"]}])


def test_a_case_with_an_id_gets_it_back() -> None:
    """The result stands beside the id."""
    assert _answer(id=7) == {"id": 7, "result": {"A": [["t", 0], ["t", 1]], "B": [["t", 2]]}}


def test_a_case_without_an_id_gets_the_bare_map() -> None:
    """Member to pairs, nothing around it."""
    assert _answer() == {"A": [["t", 0], ["t", 1]], "B": [["t", 2]]}


def test_every_line_has_its_answer_and_none_stops_the_next() -> None:
    """Six lines, a blank one passed over: five answers in their order, each written as it is made."""
    lines = [
        "{broken",
        "\n",
        b"[1]",
        json.dumps({**_CASE, "id": "x", "assignor": "rnage"}),
        b"\xff",
        json.dumps(_CASE),
    ]
    written: list[str] = []
    assert run_assign_lines(lines, written.append) == 4
    answers = [json.loads(line) for line in written]
    assert all(line.endswith("\n") for line in written)
    assert [answer.get("error") for answer in answers] == [
        "bad_json",
        "bad_case",
        "unknown_assignor",
        "bad_json",
        None,
    ]
    assert answers[2]["id"] == "x"
    assert "'rnage'" in answers[2]["message"]


@pytest.mark.parametrize(
    "changes",
    [
        {"assignor": 3},
        {"topics": []},
        {"topics": {"t": -1}},
        {"topics": {"t": True}},
        {"topics": {"t": [["r"], "r"]}},
        {"topics": {"t": {"ids": [[0]]}}},
        {"members": {}},
        {"members": ["A"]},
        {"members": [{"id": "A", "topics": ["t"]}] * 2},
        {"members": [{"id": "A", "topics": [1]}]},
        {"members": [{"id": "A", "topics": ["t"], "owned": [["t"]]}]},
        {"members": [{"id": "A", "topics": ["t"], "generation": 2**31}]},
        {"members": [{"id": "A", "topics": ["t"], "rack": 1}]},
        {"members": [{"id": "A", "topics": ["t"], "user_data": "v2"}], "assignor": "sticky"},
        {"members": [{"id": "A", "topics": ["t"], "user_data": "b64:!"}]},
        {"session": 1},
        {"assignor": "server-range", "topic_ids": {"t": "AA"}},
        {"assignor": "server-range", "topic_ids": {"t": "\u00e9"}},
    ],
)
def test_a_case_of_another_form_is_named(changes: dict[str, Any]) -> None:
    """The message says where and what was found."""
    answer = _answer(id="i", **changes)
    assert answer["id"] == "i"
    assert answer["error"] == "bad_case"
    assert ": " in answer["message"]


def test_what_kafkas_class_throws_is_an_error() -> None:
    """No member at all, or a claim beyond the topic's end that leaves more partitions than quotas."""
    members = [
        {"id": "A", "topics": ["t"], "owned": [["t", 0], ["t", 9]], "generation": 1},
        {"id": "B", "topics": ["t"], "owned": [["t", 1], ["t", 2]], "generation": 1},
    ]
    assert _answer(assignor="roundrobin", members=[])["error"] == "assignor_error"
    answer = _answer(assignor="sticky", members=members, id=1)
    assert (answer["id"], answer["error"]) == (1, "assignor_error")
    assert answer["message"].startswith("1 partitions are left")


@pytest.mark.parametrize(
    ("says", "keeps"),
    [
        ({"owned": [["t", 1]]}, True),
        ({"owned": [["t", 1]], "generation": 4}, True),
        ({"owned": [["t", 1]], "user_data": "v0"}, True),
        ({"owned": [["t", 1]], "user_data": "v1"}, True),
        ({"owned": [["t", 1]], "user_data": "none"}, False),
        ({"owned": [["t", 1]], "user_data": "empty"}, False),
        ({"owned": [["t", 1]], "user_data": "none", "owned_in_subscription": True}, False),
        ({"user_data": "b64:AAAAAQABdAAAAAEAAAABAAAABw=="}, True),
        ({"user_data": "b64:AAAAAQABdAAAAAEAAAAB"}, True),
        ({"user_data": "b64:AAAAAQABdAAAAAEAAA=="}, False),
        ({"user_data": "b64:AAAAAQAJdAAAAAE="}, False),
        ({"user_data": "b64:AAAAAQ=="}, False),
        ({"user_data": "b64://///w=="}, False),
    ],
)
def test_an_eager_sticky_member_owns_what_its_bytes_say(says: dict[str, Any], keeps: bool) -> None:
    """Layouts v1 and v0 are read; junk and nothing are nothing; the protocol's own field is not looked at."""
    assert _sticky(**says)["A"] == [["t", 1 if keeps else 0]]


@pytest.mark.parametrize(
    ("says", "wins"),
    [
        ({"generation": 6}, True),
        ({"generation": 4}, False),
        ({"generation": 4, "sub_generation": 6}, True),
        ({"sub_generation": -1, "user_data": "b64:AAAABg=="}, True),
        ({"sub_generation": -1, "user_data": "b64:AAA="}, False),
        ({"sub_generation": -1, "user_data": "none"}, False),
    ],
)
def test_a_cooperative_member_is_as_new_as_it_says(says: dict[str, Any], wins: bool) -> None:
    """The protocol's field first, the bytes where it is absent, -1 from junk."""
    old = {"id": "B", "topics": ["t"], "owned": [["t", 0]], "generation": 5}
    new = {"id": "C", "topics": ["t"], "owned": [["t", 0]], **says}
    answer = _answer(assignor="cooperative-sticky", topics={"t": 2}, members=[old, new])
    assert (["t", 0] in answer["C"]) == wins


def test_a_session_is_one_leader() -> None:
    """Its second rebalance knows the first one's generation, so B's claim is not the newest any more."""
    first = {"members": [{"id": "A", "topics": ["t"], "owned": [], "generation": 9}], "session": "s"}
    members = [
        {"id": "A", "topics": ["t"]},
        {"id": "B", "topics": ["t", "u"], "owned": [["t", 0], ["t", 1]], "generation": 3},
    ]
    case = {**_CASE, "assignor": "sticky", "topics": {"t": 2, "u": 1}}
    lines = [json.dumps({**case, **first}), json.dumps({**case, "members": members, "session": "s"})]
    _, remembered = answer_lines(lines)
    assert set(remembered) == {"A", "B"}
    assert sum(map(len, remembered.values())) == 3


def test_topics_may_have_racks_and_gaps() -> None:
    """Partition numbers are kept by range and counted by round robin."""
    topics = {"t": {"ids": [[7, ["r1", None]], [2, []]]}}
    assert _answer(topics=topics) == {"A": [["t", 2]], "B": [["t", 7]]}
    assert _answer(topics=topics, assignor="roundrobin") == {"A": [["t", 0]], "B": [["t", 1]]}


def test_topic_ids_may_be_given() -> None:
    """The server's range does not depend on them."""
    ids = {"t": "AAAAAAAAAAAAAAAAAAAAAQ"}
    assert _answer(assignor="server-range", topic_ids=ids) == _answer(assignor="server-range")


def _give_all_to_the_last(topics: Any, subscriptions: Any, memory: Any) -> Assignment:
    assert memory is not None
    *others, last = subscriptions
    pairs = [(topic, p) for topic, metadata in topics.items() for p in metadata.partitions]
    return Assignment.of({**{member: [] for member in others}, last: pairs})


def _raise(topics: Any, subscriptions: Any, memory: Any) -> Assignment:
    raise RuntimeError(f"{len(topics)} topics are too many for {len(subscriptions)}, {memory}")


def test_a_plugin_answers_and_one_that_raises_costs_its_own_line() -> None:
    """Plug-ins stand beside Kafka's assignors under names of their own."""
    plugins = {"last": f"{__name__}:_give_all_to_the_last", "raising": f"{__name__}:_raise"}
    lines = [json.dumps({**_CASE, "assignor": name}) for name in ("raising", "last")]
    raising, last = answer_lines(lines, plugins)
    assert raising["error"] == "assignor_error"
    assert "RuntimeError: 1 topics" in raising["message"]
    assert last == {"A": [], "B": [["t", 0], ["t", 1], ["t", 2]]}


_UNLIKE: dict[str, Any] = {
    "topics": {"t0": 2, "t1": 4},
    "members": [
        {"id": "m0", "topics": ["t1"], "owned": [["t1", 0], ["t1", 1], ["t1", 2]]},
        {"id": "m1", "topics": ["t0", "t1"], "owned": [["t1", 3]]},
        {"id": "m2", "topics": ["t0"], "owned": [["t0", 0], ["t0", 1]]},
    ],
}


def certified(case: dict[str, Any]) -> dict[str, Any]:
    """Answer one case with its proof."""
    [answer] = answer_lines([json.dumps(case)], certificates=True)
    return answer


def test_an_optimal_answer_comes_with_its_proof() -> None:
    """The proof holds of the target; the first of two steps withholds what another still owns."""
    answer = certified({"id": 7, "assignor": "optimal-cooperative", **_UNLIKE})
    assert (answer["id"], answer["moved"], answer["kept"]) == (7, 1, 5)
    assert answer["target"]["m1"] == [["t1", 2], ["t1", 3]]
    assert answer["result"]["m1"] == [["t1", 3]]
    topics = {name: TopicMetadata.of_count(count) for name, count in _UNLIKE["topics"].items()}
    members = {
        m["id"]: Subscription(
            topics=tuple(m["topics"]), owned_partitions=tuple(TopicPartition(*pair) for pair in m["owned"])
        )
        for m in _UNLIKE["members"]
    }
    certificate = Certificate.from_json(answer["certificate"])
    assert check_certificate(certificate, topics, members, answer["target"]) == []
    assert check_certificate(certificate, topics, members, answer["result"]) != []


def test_who_has_no_proof_says_so() -> None:
    """Kafka's assignors prove nothing; the line is answered all the same."""
    answer = certified({"assignor": "sticky", **_UNLIKE})
    assert answer["error"] == "assignor_error"
    assert "'sticky' gives no certificate; it must be one of 'optimal'" in answer["message"]


def test_weights_are_balanced_within_a_budget() -> None:
    """The heavy partitions part; what was done and what could be had at best stands beside it."""
    case = {
        "assignor": "optimal-weighted",
        "topics": {"t": 4},
        "weights": {"t": [5, 5, 1, 1]},
        "members": [
            {"id": "a", "topics": ["t"], "owned": [["t", 0], ["t", 1]]},
            {"id": "b", "topics": ["t"], "owned": [["t", 2], ["t", 3]]},
        ],
    }
    answer = certified(case)
    assert answer["loads"] == {"a": 6.0, "b": 6.0}
    assert (answer["moved"], round(answer["bound"], 6), round(answer["distance"], 6)) == (2, 6.0, 0.0)
    [bare] = answer_lines([json.dumps({**case, "most_moves": 0})])
    assert bare == {"a": [["t", 0], ["t", 1]], "b": [["t", 2], ["t", 3]]}
    for wrong in ({"weights": {"t": "heavy"}}, {"hysteresis": -1}, {"most_moves": -1}):
        assert certified({**case, **wrong})["error"] == "bad_case"
