"""Assignors are found by name; what cannot be found says what there is."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoint

import pytest

from assignors import (
    REGISTRY,
    Assignment,
    AssignorError,
    AssignorMemory,
    Subscription,
    TopicMetadata,
    UnknownAssignorError,
    assign_sticky,
    get_assignor,
    load_entry_points,
    load_plugin,
    registry,
)
from tests.assigning import topics_of


def test_the_registry_holds_kafkas_names() -> None:
    """As on the wire; the server's own have "server-" before theirs."""
    assert list(REGISTRY) == [
        "cooperative-sticky",
        "range",
        "roundrobin",
        "server-range",
        "server-uniform",
        "sticky",
    ]
    assert all(get_assignor(name) is assignor for name, assignor in REGISTRY.items())


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    """One line: what was found, what is allowed."""
    with pytest.raises(
        UnknownAssignorError, match="unknown protocol 'rnage'; known: 'cooperative-sticky', 'range'"
    ):
        get_assignor("rnage")
    assert str(AssignorError()) == ""


def test_a_plugin_cannot_take_the_place_of_kafkas() -> None:
    """A plug-in called "range" is not what "range" gives."""
    plugin = load_plugin("assignors.sticky:assign_sticky", "range")
    assert get_assignor("range", {"range": plugin}) is REGISTRY["range"]
    assert get_assignor("mine", {"mine": plugin}) is plugin


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("assignors.sticky", "must have the form"),
        ("no.such.module:f", "cannot be imported"),
        ("assignors.sticky:no_such", "cannot be imported"),
        ("assignors.model:NO_GENERATION", "is a int"),
    ],
)
def test_a_plugin_that_is_none_names_the_setting(path: str, says: str) -> None:
    """The message holds the setting's value and what is wrong with it."""
    with pytest.raises(AssignorError, match=says) as raised:
        load_plugin(path)
    assert repr(path) in str(raised.value)


def test_a_plugin_is_an_assignor_like_others() -> None:
    """Without a name it is called by its path."""
    plugin = load_plugin("assignors.sticky:assign_sticky")
    got = plugin.function(topics_of(t=2), {"A": Subscription(topics=("t",))}, None)
    assert plugin.name == "assignors.sticky:assign_sticky"
    assert got.loads() == {"A": 2}


def test_entry_points_offer_assignors(monkeypatch: pytest.MonkeyPatch) -> None:
    """One group of entry points, loaded by name; Kafka's names are taken."""
    offered = [EntryPoint("mine", "assignors.sticky:assign_sticky", registry.ENTRY_POINT_GROUP)]
    monkeypatch.setattr(registry, "entry_points", lambda group: offered if group else [])
    assert load_entry_points()["mine"].function is assign_sticky
    offered.append(EntryPoint("range", "assignors.sticky:assign_sticky", registry.ENTRY_POINT_GROUP))
    with pytest.raises(AssignorError, match="'range'"):
        load_entry_points()


@pytest.mark.parametrize("name", ["roundrobin", "sticky", "cooperative-sticky"])
def test_a_group_without_members_is_an_error_as_in_kafka(name: str) -> None:
    """Kafka's classes divide by the number of members."""
    with pytest.raises(AssignorError, match="0 members"):
        REGISTRY[name].function(topics_of(t=1), {}, AssignorMemory())


def test_range_of_a_group_without_members_is_empty() -> None:
    """Range has nothing to divide."""
    assert dict(REGISTRY["range"].function(topics_of(t=1), {}, None)) == {}


def test_importing_the_assignors_imports_neither_spark_nor_numpy() -> None:
    """They run on executors and in the command line's fraction of a second."""
    check = "import sys, assignors; sys.exit(any(m in sys.modules for m in ('pyspark', 'numpy', 'pandas')))"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


def test_an_assignment_is_a_mapping_on_flat_arrays() -> None:
    """Tuples are made only when asked for."""
    got: Assignment = assign_sticky({"t": TopicMetadata((3, 4))}, {"A": Subscription(topics=("t",))})
    assert len(got) == 1
    assert got["A"] == (("t", 3), ("t", 4))
    assert repr(got) == "Assignment(1 members, 2 partitions)"
    assert got == {"A": (("t", 3), ("t", 4))}
