"""Assignors are found by name; what cannot be found says what there is."""

from __future__ import annotations

import subprocess
import sys

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
)
from tests.assigning import topics_of


def test_the_registry_holds_kafkas_names_and_two_of_ours() -> None:
    """As on the wire; the server's own have "server-" before theirs."""
    assert list(REGISTRY) == [
        "cooperative-sticky",
        "optimal",
        "optimal-cooperative",
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
        UnknownAssignorError, match="unknown protocol 'rnage'; known: 'cooperative-sticky', 'optimal'"
    ):
        get_assignor("rnage")
    assert str(AssignorError()) == ""


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
