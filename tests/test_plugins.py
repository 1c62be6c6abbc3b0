"""A user's own assignors and partitioners: found, asked, checked, and no danger to anybody else's group."""

from __future__ import annotations

import base64
import json
import logging
import os
import pickle
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assignors import (
    REGISTRY,
    Assignment,
    Assignor,
    AssignorError,
    AssignorMemory,
    PluginError,
    Subscription,
    TopicMetadata,
    TopicPartition,
    UnknownAssignorError,
    assign_sticky,
    find_plugins,
    get_assignor,
    load_plugin,
)
from assignors.plugins import TAKEN_NAMES, describe_failure
from conf import settings
from streaming.groups.computed.connect_rounds import WIRE_NAMES
from streaming.groups.observed.group import ObservedGroup
from streaming.groups.rules import AlertRule, GroupRules
from streaming.model import TopicState, Version
from tests.assigning import topics_of
from tests.observed_inputs import classic, classic_value, view
from tests.playing import Player, event, join, moves, owned, tick, topic

ROOT = Path(__file__).resolve().parent.parent
Topics = Mapping[str, TopicMetadata]
Subscriptions = Mapping[str, Subscription]


def deal(topics: Topics, subscriptions: Subscriptions, memory: object) -> Any:
    """Do as asked, as a mapping and lists of tuples."""
    given: dict[str, list[tuple[str, int]]] = {member: [] for member in subscriptions}
    for name, metadata in topics.items():
        readers = [member for member, s in subscriptions.items() if name in s.topics]
        for i, partition in enumerate(metadata.partitions if readers else ()):
            given[readers[i % len(readers)]].append((name, partition))
    return given


def by_user_data(topics: Topics, subscriptions: Subscriptions, memory: object) -> Any:
    """Give everything to the member whose user data says b"leader"."""
    (leader,) = [member for member, s in subscriptions.items() if s.user_data == b"leader"]
    return {leader: [(name, p) for name, metadata in topics.items() for p in metadata.partitions]}


def give_all_to_everybody(topics: Topics, subscriptions: Subscriptions, memory: object) -> Assignment:
    """Cheat: every member owns every partition."""
    every = [(t, p) for t in topics for p in topics[t].partitions]
    return Assignment.of(dict.fromkeys(subscriptions, every))


def give_all_to_the_first(topics: Topics, subscriptions: Subscriptions, memory: object) -> Any:
    """Keep the rules, but level nothing."""
    return {next(iter(subscriptions)): [(t, p) for t in topics for p in topics[t].partitions]}


def leave(topics: Topics, subscriptions: Subscriptions, memory: object) -> Any:
    """Raise what ends a process."""
    sys.exit(3)


def raise_always(topics: Topics, subscriptions: Subscriptions, memory: object) -> Any:
    """Fail as a plug-in may."""
    raise RuntimeError("out of luck")


def fail_while_two(topics: Topics, subscriptions: Subscriptions, memory: object) -> Any:
    """Fail for a group of two only."""
    if len(subscriptions) == 2:
        raise RuntimeError("two is one too many")
    return deal(topics, subscriptions, memory)


def spoil_inputs(topics: Any, subscriptions: Any, memory: Any) -> Any:
    """Empty what came in, once the answer is made."""
    given = deal(topics, subscriptions, memory)
    topics.clear()
    subscriptions.clear()
    return given


uneven = Assignor(
    name="whatever",
    function=give_all_to_the_first,
    rebalance_protocol="EAGER",
    is_sticky=False,
    promises="group",
)
cooperative = Assignor(
    name="whatever", function=deal, rebalance_protocol="COOPERATIVE", is_sticky=False, promises=None
)
number = 7


class UnspeakableError(Exception):
    """An error that raises when it is asked what is wrong."""

    def __str__(self) -> str:
        raise SystemExit("no comment")


PAIR = {"C0": Subscription(topics=("t0",)), "C1": Subscription(topics=("t0", "t1"))}
TOPICS = topics_of(t0=2, t1=1)
T0, T1 = [("t0", 0), ("t0", 1)], [("t1", 0)]


def here(function: str) -> str:
    """Name something of this module as the settings do."""
    return f"{__name__}:{function}"


def ask(answer: Any, monkeypatch: pytest.MonkeyPatch, protocol: str = "EAGER", **members: Any) -> Assignment:
    """Ask a plug-in that gives, or calls, this answer, about PAIR or these members."""
    function = answer if callable(answer) else lambda *_: answer
    made = Assignor(name="x", function=function, rebalance_protocol=protocol, is_sticky=False, promises=None)  # type: ignore[arg-type]
    monkeypatch.setattr(sys.modules[__name__], "made", made, raising=False)
    return load_plugin(here("made"), "mine").function(TOPICS, members or PAIR, None)


def install(where: Path, name: str, entry_points: str) -> None:
    """Put a distribution's metadata there, as an installer does."""
    folder = where / f"{name}-1.0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text(entry_points)


def offering(*lines: str) -> str:
    """Write entry_points.txt of a package that offers assignors."""
    return "\n".join(["[counterpoise.assignors]", *lines, ""])


def rules(**plugins: str) -> GroupRules:
    """Make rules with plug-ins, and with the alert on."""
    alert = AlertRule(alertname="AssignorFailed", severity="critical")
    return GroupRules(plugins=plugins, alerts={"AssignorFailed": alert})


def test_every_list_of_kafkas_names_is_the_same() -> None:
    """The settings refuse just those names that the registry and Connect's assignors have."""
    assert settings.TAKEN_NAMES == TAKEN_NAMES == {*REGISTRY, *WIRE_NAMES, "optimal-weighted"}


def test_installed_packages_offer_assignors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Entry points are found without importing them; the settings win; both end as texts."""
    install(tmp_path, "offers", offering("ours = no.such : thing [extra]", "mine = a.b:c"))
    monkeypatch.syspath_prepend(tmp_path)
    assert find_plugins({}) == ({"ours": "no.such:thing", "mine": "a.b:c"}, [])
    assert find_plugins({"mine": "d:e"}) == ({"ours": "no.such:thing", "mine": "d:e"}, [])


def test_a_package_shadowed_by_another_of_its_name_offers_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is first on the path is what would be imported."""
    install(tmp_path / "old", "offers", offering("mine = old:f"))
    install(tmp_path / "new", "offers", offering("mine = new:f"))
    monkeypatch.syspath_prepend(tmp_path / "old")
    monkeypatch.syspath_prepend(tmp_path / "new")
    assert find_plugins({}) == ({"mine": "new:f"}, [])


@pytest.mark.parametrize("name", ["range", "server-uniform", "connect-eager"])
def test_an_entry_point_cannot_take_kafkas_name(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is left out with a line that names it; Kafka's own stays, and so do the others."""
    install(tmp_path, "offers", offering(f"{name} = a:b", "mine = c:d"))
    monkeypatch.syspath_prepend(tmp_path)
    found, (problem,) = find_plugins({})
    assert found == {"mine": "c:d"}
    assert f"{name!r} = 'a:b'" in problem
    assert "its name is taken" in problem


def test_two_packages_that_offer_one_name_are_both_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which of them leads a group is not for the order of installation to say, but for the settings."""
    install(tmp_path, "first", offering("mine = a:b"))
    install(tmp_path, "second", offering("mine = c:d"))
    monkeypatch.syspath_prepend(tmp_path)
    found, (problem,) = find_plugins({})
    assert found == {}
    assert "'a:b' and 'c:d'" in problem
    assert find_plugins({"mine": "c:d"}) == ({"mine": "c:d"}, [])


def test_a_package_with_broken_entry_points_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unrelated package's unreadable file is told, and costs nothing."""
    install(tmp_path, "broken", "[console_scripts]\nno equals sign\n")
    install(tmp_path, "offers", offering("mine = a:b"))
    monkeypatch.syspath_prepend(tmp_path)
    found, (problem,) = find_plugins({})
    assert found == {"mine": "a:b"}
    assert "cannot be read" in problem


def test_rules_carry_plugins_as_texts_and_log_the_unusable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What the driver finds goes to the executors in a pickle; a broken one is logged, not raised."""
    (tmp_path / "quits_on_import.py").write_text("import sys\nsys.exit(1)\n")
    install(
        tmp_path, "offers", offering(f"ours = {here('deal')}", "broken = quits_on_import:f", "range = a:b")
    )
    monkeypatch.syspath_prepend(tmp_path)
    loaded = settings.load_settings(None, {}, {"groups.plugins.mine": here("deal")})
    with caplog.at_level(logging.WARNING):
        found = GroupRules.from_settings(loaded)
    assert pickle.loads(pickle.dumps(found)).plugins == {
        "mine": here("deal"), "ours": here("deal"), "broken": "quits_on_import:f",
    }  # fmt: skip
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 2
    assert "'range'" in told[0]
    assert "assignor 'broken' cannot be used" in told[1]
    assert "SystemExit: 1" in told[1]


def test_a_plugin_is_an_assignor_like_others() -> None:
    """Kafka's own names go first; an unknown one is answered with all that are known."""
    assert get_assignor("range", {"range": here("deal")}) is REGISTRY["range"]
    plugin = get_assignor("mine", {"mine": "assignors.sticky:assign_sticky"})
    assert (plugin.name, plugin.rebalance_protocol, plugin.is_sticky, plugin.promises) == (
        "mine", "EAGER", False, None,
    )  # fmt: skip
    assert plugin.function(TOPICS, PAIR, None) == assign_sticky(TOPICS, PAIR)
    assert load_plugin(here("deal")).name == here("deal")
    with pytest.raises(UnknownAssignorError, match="known: 'cooperative-sticky', 'mine', 'optimal'"):
        get_assignor("nime", {"mine": here("deal")})


def test_a_plugin_may_declare_what_it_promises() -> None:
    """An Assignor keeps its declarations and gets the configured name."""
    plugin = load_plugin(here("uneven"), "mine")
    assert replace(plugin, function=uneven.function) == replace(uneven, name="mine")


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("assignors.sticky", "must have the form"),
        ("no.such.module:f", "cannot be imported: ModuleNotFoundError"),
        ("assignors.sticky:no_such", "cannot be imported: AttributeError"),
        (
            here("number"),
            "is a int; it must be a function of topics, subscriptions and memory, or an Assignor",
        ),
        (here("UnspeakableError"), "is a type"),
    ],
)
def test_a_plugin_that_is_none_is_named(path: str, says: str) -> None:
    """The message holds the setting's value and what is wrong with it."""
    with pytest.raises(PluginError, match=says) as raised:
        load_plugin(path)
    assert repr(path) in str(raised.value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("rebalance_protocol", "LAZY"),
        ("is_sticky", 1),
        ("promises", "level"),
        ("function", None),
    ],
)
def test_a_declaration_of_another_type_is_refused(
    field: str, value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message names field and value."""
    broken = replace(uneven, **{field: value})  # type: ignore[arg-type]
    monkeypatch.setattr(sys.modules[__name__], "broken", broken, raising=False)
    with pytest.raises(PluginError, match=f"its {field} is {value!r}; it must be"):
        load_plugin(here("broken"))


@pytest.mark.parametrize(
    "body",
    [
        "raise KeyboardInterrupt",
        "def f(*_):\n    raise KeyboardInterrupt",
        "class E(Exception):\n    def __str__(self):\n        raise KeyboardInterrupt\nraise E",
    ],
)
def test_ctrl_c_is_no_plugins_fault(body: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A KeyboardInterrupt goes through, while a plug-in is imported, runs, or says what is wrong."""
    (tmp_path / "interrupted.py").write_text(f"{body}\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "interrupted", raising=False)
    with pytest.raises(KeyboardInterrupt):
        load_plugin("interrupted:f").function(TOPICS, PAIR, None)


@pytest.mark.parametrize(
    "given",
    [
        {"C0": T0, "C1": T1},
        {"C1": iter([["t1", 0]]), "C0": (TopicPartition("t0", 0), ("t0", np.int64(1)))},
        {"C0": set(T0), "C1": frozenset(T1)},
        defaultdict(list, {"C0": T0, "C1": T1}),
        Assignment.of({"C0": T0, "C1": T1}),
    ],
)
def test_any_mapping_of_pairs_is_an_answer(given: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists, sets, generators, numpy's integers: what comes out is an Assignment, in join order."""
    got = ask(given, monkeypatch)
    assert list(got.items()) == [("C0", tuple(T0)), ("C1", tuple(T1))]
    assert {type(p) for pairs in got.values() for _, p in pairs} == {int}


def test_a_member_without_an_entry_owns_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every member is a key of what comes out."""
    assert dict(ask({"C1": T0 + T1}, monkeypatch)) == {"C0": (), "C1": (*T0, *T1)}


CHEATS = {
    "nothing": (None, "gave None; it must give member_id -> (topic, partition) pairs"),
    "a list": ([T0], "gave [[('t0', 0), ('t0', 1)]]; it must give"),
    "a foreign member": ({"C0": T0, "C1": T1, "C9": []}, "gave partitions to 'C9', which is no member"),
    "a number for pairs": ({"C0": 3}, "gave 'C0' 3; it must give (topic, partition) pairs"),
    "a text for pairs": ({"C0": "t0"}, "gave 'C0' 't0'; it must give (topic, partition) pairs"),
    "topics for pairs": ({"C0": {"t0": [0, 1]}}, "gave 'C0' 't0'; it must be a pair"),
    "a text for a number": ({"C0": [("t0", "0")]}, "gave 'C0' ('t0', '0'); it must be a pair"),
    "a bool for a number": ({"C0": [("t0", True)]}, "gave 'C0' ('t0', True); it must be a pair"),
    "a number for a topic": ({"C0": [(0, 0)]}, "gave 'C0' (0, 0); it must be a pair"),
    "None among a set": ({"C0": {("t0", 0), None}}, "gave 'C0' None; it must be a pair"),
    "an unknown topic": ({"C0": [("t9", 0)]}, "gave 'C0' partition 0 of topic 't9', which is unknown"),
    "an unknown partition": (
        {"C0": [("t0", 2)]},
        "gave 'C0' partition 2 of topic 't0', which has 2 partitions",
    ),
    "a negative one": ({"C0": [("t0", -1)]}, "gave 'C0' partition -1 of topic 't0', which has 2 partitions"),
    "another's topic": (
        {"C0": T0 + T1},
        "gave 'C0' partition 0 of topic 't1', to which it does not subscribe",
    ),
    "two owners": (
        {"C1": T0 + T1, "C0": T0},
        "gave 'C1' partition 0 of topic 't0', which 'C0' has already; a partition has one owner",
    ),
    "one twice": ({"C0": T0 + T0}, "gave 'C0' partition 0 of topic 't0', a second time"),
    "one left": ({"C0": T0[:1], "C1": T1}, "left partition 1 of topic 't0' to nobody"),
    "all left": ({}, "left partition 0 of topic 't0', and 2 more to nobody"),
}


@pytest.mark.parametrize("protocol", ["EAGER", "COOPERATIVE"])
@pytest.mark.parametrize("cheat", CHEATS)
def test_a_broken_rule_is_named(cheat: str, protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says which member, which partition and which rule."""
    given, says = CHEATS[cheat]
    with pytest.raises(PluginError) as raised:
        ask(given, monkeypatch, protocol)
    assert str(raised.value).startswith(f"assignor 'mine' {says}")


def test_only_a_cooperative_plugin_may_withhold_what_a_member_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first generation of a move leaves to nobody what its owner has still to let go."""
    claiming = replace(PAIR["C0"], owned_partitions=(TopicPartition("t0", 0),))
    members = {"C0": claiming, "C1": PAIR["C1"]}
    given = {"C1": [("t0", 1), ("t1", 0)]}
    assert ask(given, monkeypatch, "COOPERATIVE", **members)["C0"] == ()
    with pytest.raises(PluginError, match="left partition 0 of topic 't0' to nobody"):
        ask(given, monkeypatch, "EAGER", **members)
    with pytest.raises(PluginError, match="left partition 1 of topic 't0' to nobody"):
        ask({"C1": [("t1", 0)]}, monkeypatch, "COOPERATIVE", **members)


def raising(error: BaseException) -> Callable[..., Any]:
    """Make a plug-in that raises this, at once."""

    def function(*_: object) -> Any:
        raise error

    return function


def raise_late(*_: object) -> Any:
    """Give a generator that raises when it is walked."""

    def pairs() -> Iterator[tuple[str, int]]:
        yield ("t0", 0)
        raise LookupError("later")

    return {"C0": pairs()}


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (raising(SystemExit(3)), "SystemExit: 3"),
        (raising(GeneratorExit()), "GeneratorExit: "),
        (raising(ValueError("two\nlines\ud800")), r"ValueError: two lines\ud800"),
        (raising(ValueError("x" * 100_000)), f"ValueError: {'x' * 497}..."),
        (raising(UnspeakableError()), "UnspeakableError: (no words: its own raised SystemExit)"),
        (raise_late, "LookupError: later"),
    ],
)
def test_whatever_a_plugin_raises_is_one_line(
    function: Callable[..., Any], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SystemExit too; the text fits into a table and a JSON whatever the error holds."""
    with pytest.raises(PluginError) as raised:
        ask(function, monkeypatch)
    assert str(raised.value) == f"assignor 'mine' raised {says}"
    json.dumps(describe_failure("mine", raised.value)).encode("ascii")


def test_a_plugin_cannot_spoil_its_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    """It gets copies: emptying them changes neither the caller's nor what its answer is held against."""
    assert sum(ask(spoil_inputs, monkeypatch).loads().values()) == 3
    assert (len(TOPICS), len(PAIR)) == (2, 2)


@pytest.mark.parametrize(("remembered", "fits"), [(7, True), (None, False), ("7", False), (2**31, False)])
def test_a_plugins_memory_is_checked_too(
    remembered: Any, fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it remembers goes into the group's state, so it must be a generation; else nothing is kept."""

    def remember(topics: Topics, subscriptions: Subscriptions, memory: AssignorMemory) -> Any:
        memory.max_generation = remembered
        return deal(topics, subscriptions, memory)

    monkeypatch.setattr(sys.modules[__name__], "made", remember, raising=False)
    memory, plugin = AssignorMemory(max_generation=4), load_plugin(here("made"), "mine")
    if fits:
        plugin.function(TOPICS, PAIR, memory)
    else:
        with pytest.raises(PluginError, match=f"remembers generation {remembered!r}; it must be an int32"):
            plugin.function(TOPICS, PAIR, memory)
    assert memory.max_generation == (7 if fits else 4)


@pytest.mark.parametrize(
    ("function", "says"),
    [
        ("raise_always", "assignor 'mine' raised RuntimeError: out of luck"),
        ("leave", "assignor 'mine' raised SystemExit: 3"),
        (
            "give_all_to_everybody",
            "assignor 'mine' gave 'C1' partition 0 of topic 't0', which 'C0' has already; "
            "a partition has one owner",
        ),
        ("no_such", f"plug-in '{__name__}:no_such' cannot be imported: AttributeError: "),
    ],
)
def test_a_failing_plugin_costs_its_own_group_only(function: str, says: str) -> None:
    """Held with nothing emitted and an alert that says why; the others of the batch go on."""
    player = Player(rules(mine=here(function), ours=here("deal")))
    story = [topic("t0", 2)]
    for group_id, protocol in (("g", "mine"), ("fine", "range"), ("fine-too", "ours")):
        more = {"group_id": group_id, "protocols": [protocol]}
        story += [join("C0", 1, "t0", **more), join("C1", 1, "t0", **more)]
    player.play([*story, tick(200)])
    held = player.versions()[-1]
    assert (held["kind"], held["deltas"]) == ("held", [])
    (alert,) = [a for row in player.versions() for a in row["alerts"]]
    assert (alert["alertname"], alert["status"]) == ("AssignorFailed", "firing")
    told = [row["alerts"] for row in player.rows if row["group_id"] != "g"]
    assert not any(told)
    assert alert["description"].startswith(says)
    for group_id in ("fine", "fine-too"):
        assert owned(player.latest(group_id)) == {"C0": ["t0p0"], "C1": ["t0p1"]}


def test_a_held_group_keeps_its_assignment_and_heals_at_the_next_event() -> None:
    """What was in force stays so until the plug-in answers again; the alert then resolves."""
    player = Player(rules(mine=here("fail_while_two")))
    more = {"protocols": ["mine"]}
    player.play([topic("t0", 3), join("C0", 1, "t0", **more)])
    before = player.latest()
    player.play([join("C1", 2, "t0", **more)])
    held = player.latest()
    assert held["kind"] == "held"
    assert held["assignment"] == before["assignment"]
    assert held["generation_id"] == before["generation_id"]
    assert [e["outcome"] for e in held["events"]] == ["applied"]
    player.play([join("C2", 3, "t0", **more), tick(100)])
    assert owned(player.latest()) == {"C0": ["t0p0"], "C1": ["t0p1"], "C2": ["t0p2"]}
    assert player.alerts() == [("AssignorFailed", "firing"), ("AssignorFailed", "resolved")]


def test_a_plugin_that_is_no_longer_there_holds_its_groups() -> None:
    """What it decided stays in force and on show; the next rebalance says that the name is unknown."""
    player = Player(rules(mine=here("deal")))
    player.play([topic("t0", 2), join("C0", 1, "t0", protocols=["mine"])])
    player.rules = rules()
    player.play([event("member_heartbeat", 2, "C0")])
    shown = player.latest()
    assert (shown["kind"], shown["protocol"], shown["rebalance_protocol"]) == ("state", "mine", None)
    player.play([join("C1", 3, "t0", protocols=["mine"])])
    assert owned(player.latest()) == {"C0": ["t0p0", "t0p1"], "C1": []}
    (alert,) = player.latest()["alerts"]
    assert alert["description"].startswith("unknown protocol 'mine'; known: 'cooperative-sticky'")


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (PluginError("assignor 'mine' is late"), "assignor 'mine' is late"),
        (AssignorError("0 members"), "assignor 'range' refuses these inputs: 0 members"),
        (KeyError("t0"), "assignor 'range' raised KeyError: 't0'"),
    ],
)
def test_a_failure_of_kafkas_own_is_told_from_a_plugins(error: Exception, says: str) -> None:
    """A refusal is not an accident, and a plug-in's error names it already."""
    assert describe_failure("range", error) == says


def test_user_data_reaches_the_plugin() -> None:
    """What a member's event carries as base64 the plug-in reads as bytes."""
    player = Player(rules(mine=here("by_user_data")))
    leader = base64.b64encode(b"leader").decode()
    more = {"protocols": ["mine"]}
    player.play(
        [
            topic("t0", 2),
            join("C0", 1, "t0", user_data=leader, **more),
            join("C1", 2, "t0", **more),
            tick(100),
        ]
    )
    assert owned(player.latest()) == {"C0": ["t0p0", "t0p1"], "C1": []}
    player.play(
        [
            join("C0", 110, "t0", **more),
            join("C1", 110, "t0", user_data=leader, **more),
            tick(200),
            tick(300),
        ]
    )
    assert owned(player.latest()) == {"C0": [], "C1": ["t0p0", "t0p1"]}


@pytest.mark.parametrize(
    ("plugin", "rebalance_protocol", "first"),
    [("deal", "EAGER", ["C0 -t0p0", "C0 -t0p1"]), ("cooperative", "COOPERATIVE", ["C0 -t0p1"])],
)
def test_a_declared_rebalance_protocol_is_the_groups(
    plugin: str, rebalance_protocol: str, first: list[str]
) -> None:
    """A function's groups give up everything first; a cooperative Assignor's only what moves."""
    player = Player(rules(mine=here(plugin)))
    more = {"protocols": ["mine"]}
    player.play([topic("t0", 2), join("C0", 1, "t0", **more), join("C1", 2, "t0", **more)])
    row = player.latest()
    assert (row["rebalance_protocol"], row["phase"], moves(row)) == (rebalance_protocol, 1, first)
    player.play([event("partitions_revoked", 3, "C0", generation_id=row["generation_id"])])
    assert owned(player.latest()) == {"C0": ["t0p0"], "C1": ["t0p1"]}


@pytest.mark.parametrize(("plugin", "excess"), [("uneven", 1), ("give_all_to_the_first", None)])
def test_a_plugin_is_held_to_what_it_promises(plugin: str, excess: int | None) -> None:
    """A promised level is what the check of the spread counts against; without a promise there is none."""
    player = Player(rules(mine=here(plugin)))
    more = {"protocols": ["mine"]}
    player.play([topic("t0", 2), join("C0", 1, "t0", **more), join("C1", 2, "t0", **more), tick(100)])
    assert player.versions()[-1]["check_inputs"]["excess_spread"] == excess


def test_a_group_can_be_pinned_to_a_plugin() -> None:
    """group_settings knows the plug-ins, and names them when it does not know a name."""
    player = Player(rules(mine=here("deal")))
    player.play(
        [
            topic("t0", 2),
            event("group_settings", 1, assignor="mien"),
            event("group_settings", 2, assignor="mine"),
            join("C0", 3, "t0"),
        ]
    )
    told = [e["reason"] for row in player.rows for e in row["events"] if e["outcome"] == "ignored"]
    assert len(told) == 1
    known = ("cooperative-sticky", "mine", "optimal", "optimal-cooperative", "optimal-weighted", "range")
    assert f"known: {', '.join(map(repr, known))}" in told[0]
    assert player.latest()["protocol"] == "mine"


@pytest.mark.parametrize(
    ("function", "status", "note"),
    [
        ("deal", "equal", None),
        ("raise_always", "unknown", "assignor 'mine' raised RuntimeError: out of luck"),
        ("leave", "unknown", "assignor 'mine' raised SystemExit: 3"),
        (
            "give_all_to_everybody",
            "unknown",
            "assignor 'mine' gave 'b' partition 0 of topic 't', which 'a' has already; "
            "a partition has one owner",
        ),
        (
            "give_all_to_the_first",
            "different",
            "'mine' is a plug-in; the clients' own version of it may be another",
        ),
        (
            "no_such",
            "unknown",
            f"plug-in '{__name__}:no_such' cannot be imported: AttributeError: "
            f"module {__name__!r} has no attribute 'no_such'",
        ),
    ],
)
def test_an_observed_groups_plugin_costs_only_the_expectation(
    function: str, status: str, note: str | None
) -> None:
    """The observed assignment stays as it is; what was to be expected, or why that is not known, is said."""
    group = ObservedGroup("c", "g", plugins={"mine": here(function)})
    value = classic_value(1, [("a", {"t": [0, 2]}), ("b", {"t": [1]})], {"t"}, protocol="mine")
    (version,) = group.advance(classic("g", 1, 1000, value), view(TopicState(topic="t", partition_count=3)))
    assert isinstance(version, Version)
    assert (version.expected_status, version.expected_note) == (status, note)
    assert version.assignment == {"a": {"t": [0, 2]}, "b": {"t": [1]}}


USERS = """
def give(topics, subscriptions, memory):
    member, *_ = subscriptions
    return {member: [(t, p) for t in topics for p in topics[t].partitions]}

def nobody(topics, subscriptions, memory):
    return {}

def last(key, partition_count):
    return partition_count - 1

def leave(key, partition_count):
    raise SystemExit(0)
"""


@pytest.fixture
def users(tmp_path: Path) -> Path:
    """Give a directory for PYTHONPATH with a package of a user's that is installed there."""
    (tmp_path / "users_own.py").write_text(USERS)
    partitioners = ["[counterpoise.partitioners]", "last = users_own:last", "leave = users_own:leave"]
    partitioners += ["crc32 = users_own:last", "gone = users_own:gone"]
    assignors = offering("ours = users_own:give", "both = users_own:nobody", "gone = users_own:gone")
    install(tmp_path, "users-own", "\n".join([assignors, *partitioners, ""]))
    return tmp_path


def counterpoise(users: Path, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run the command where the user's package is installed."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("COUNTERPOISE_")}
    return subprocess.run(
        [sys.executable, "-m", "console.cli", *arguments],
        cwd=ROOT,
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**inherited, "PYTHONPATH": str(users)},
    )


def case(assignor: str) -> str:
    """Write a case of one member."""
    return json.dumps({"assignor": assignor, "topics": {"t": 2}, "members": [{"id": "A", "topics": ["t"]}]})


def test_assign_takes_plugins_of_both_kinds(users: Path) -> None:
    """By entry point and by the settings, which win; a failing one costs its own line only."""
    (users / "conf.toml").write_text('[groups.plugins]\nmine = "users_own:give"\nboth = "users_own:give"\n')
    lines = "\n".join(map(case, ("ours", "mine", "both", "gone", "range")))
    done = counterpoise(users, "assign", "--jsonl", "--conf", str(users / "conf.toml"), stdin=lines)
    assert (done.returncode, done.stderr) == (0, "")
    *answers, gone, kafkas = map(json.loads, done.stdout.splitlines())
    assert answers == [{"A": [["t", 0], ["t", 1]]}] * 3
    assert kafkas == answers[0]
    assert gone["error"] == "assignor_error"
    assert "'users_own:gone' cannot be imported" in gone["message"]


def test_assign_says_which_rule_is_broken(users: Path) -> None:
    """One case of a cheating plug-in ends with 2 and the rule."""
    (users / "case.json").write_text(case("both"))
    done = counterpoise(users, "assign", str(users / "case.json"))
    assert (done.returncode, done.stdout) == (2, "")
    assert "assignor 'both' left partition 0 of topic 't', and 1 more to nobody" in done.stderr


def test_assign_goes_on_without_an_entry_point_that_takes_kafkas_name(users: Path) -> None:
    """It is told on stderr, and the answer is Kafka's."""
    install(users, "pretender", offering("range = users_own:nobody"))
    done = counterpoise(users, "assign", "--jsonl", stdin=case("range"))
    assert (done.returncode, json.loads(done.stdout)) == (0, {"A": [["t", 0], ["t", 1]]})
    assert "counterpoise: entry point 'range' = 'users_own:nobody'" in done.stderr


def test_the_settings_cannot_take_kafkas_name_either(users: Path) -> None:
    """That is a mistake of the settings' own: exit code 2 and no answer."""
    (users / "conf.toml").write_text('[groups.plugins]\nsticky = "users_own:give"\n')
    done = counterpoise(users, "assign", "--jsonl", "--conf", str(users / "conf.toml"), stdin=case("range"))
    assert (done.returncode, done.stdout) == (2, "")
    assert "groups.plugins has the name 'sticky'" in done.stderr


def test_keys_takes_partitioners_by_entry_point(users: Path) -> None:
    """Under their names; one of ours keeps its meaning."""
    done = counterpoise(users, "keys", "--partitions", "4", "--partitioner", "last", "--json", "user-2")
    assert json.loads(done.stdout)["keys"] == [{"key": "user-2", "partition": 3}]
    kafkas = counterpoise(users, "keys", "--partitions", "12", "--partitioner", "crc32", "--json", "user-2")
    assert json.loads(kafkas.stdout)["keys"] == [{"key": "user-2", "partition": 10}]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("leave", "partitioner 'users_own:leave': key b'k' with 4 partitions raised SystemExit: 0"),
        ("gone", "partitioner 'users_own:gone' cannot be imported"),
        ("lsat", "known: 'crc32', 'fnv1a', 'gone', 'java-hash', 'last', 'leave', 'murmur2'"),
        ("lsat", "entry point 'crc32' = 'users_own:last' of 'counterpoise.partitioners' is left out"),
    ],
)
def test_keys_says_what_is_wrong_with_a_partitioner(users: Path, name: str, said: str) -> None:
    """Exit code 2 and the reason, also where the partitioner would have ended the command with 0."""
    done = counterpoise(users, "keys", "--partitions", "4", "--partitioner", name, "k")
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
