"""What the bench tells is what its picture shows, and what it hands its peers is what they read."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from bench import growth_exponent, kafka_python
from bench.plot import draw

ROOT = Path(__file__).resolve().parent.parent
RECORDED = ROOT / "tests" / "data" / "optimal-bench.json"
"""The growing groups of `python -m bench --only optimal --partitions 10000 --rounds 2`."""


def recorded() -> list[dict[str, Any]]:
    """Give the recorded figures."""
    figures: list[dict[str, Any]] = json.loads(RECORDED.read_text(encoding="utf-8"))["figures"]
    return figures


def words_of(picture: str) -> list[str]:
    """List the words in a picture, in their order."""
    # Our own picture, and one that the test has just drawn.
    root = ElementTree.fromstring(picture)  # noqa: S314
    return [element.text or "" for element in root.iter("{http://www.w3.org/2000/svg}text")]


def test_the_picture_says_who_grows_how() -> None:
    """One chart by partitions, one by members, each with everybody and the exponents that the bench has."""
    figures = recorded()
    words = words_of(draw(figures))
    assert [word for word in words if word.startswith("one member joins")] == [
        "one member joins, by partitions",
        "one member joins, by members",
    ]
    assert {"partitions", "members", "processor time", "1,000", "10,000", "10", "100", "1 ms", "10 ms"} <= {
        *words
    }
    fitted = [figure for figure in figures if "exponent" in figure["details"]]
    assert len(fitted) == 6
    for figure in fitted:
        assert f"ours: n^{figure['details']['exponent']:.2f}" in words
        assert f"{figure['against']}: n^{figure['details']['exponent against']:.2f}" in words


def test_the_same_file_gives_the_same_small_picture() -> None:
    """Byte for byte, without a date, under 100 kB, in the reader's own ink."""
    picture = draw(recorded())
    assert picture == draw(recorded())
    assert len(picture.encode()) < 100_000
    assert "dc:date" not in picture
    assert "prefers-color-scheme:dark" in picture
    assert picture.count("currentColor") > 20


def test_who_took_too_long_is_shown_where_it_was_stopped() -> None:
    """A peer that was stopped keeps its line up to there, and has a mark of its own."""
    figures = recorded()
    name = "Kafka's Java sticky"
    for figure in figures:
        if figure["against"] == name and figure["details"].get("partitions") == 10_000:
            figure |= {"against": f"{name}: stopped after 20 s of processor time", "against_seconds": 20}
    words = words_of(draw(figures))
    by_partitions = words[: words.index("one member joins, by members")]
    assert name in by_partitions
    assert f"{name}: stopped after 20 s" in by_partitions
    assert not [word for word in by_partitions if word.startswith(f"{name}: n^")]


def test_a_file_without_growing_groups_is_refused(tmp_path: Path) -> None:
    """The command says what is missing and leaves the picture alone."""
    file, picture = tmp_path / "bench.json", tmp_path / "picture.svg"
    file.write_text(json.dumps({"figures": []}), encoding="utf-8")
    ended = subprocess.run(
        [sys.executable, "-m", "bench.plot", str(file), "--to", str(picture)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ended.returncode == 2
    assert "no group that grows is in it" in ended.stderr
    assert not picture.exists()


def test_an_exponent_is_the_slope_of_the_logarithms() -> None:
    """Ten times the time at ten times the size is 1, a hundred times 2."""
    assert growth_exponent([10, 100, 1_000], [0.2, 2, 20]) == pytest.approx(1)
    assert growth_exponent([10, 100], [1, 100]) == pytest.approx(2)


@pytest.mark.filterwarnings("ignore:(open|read)_text is deprecated:DeprecationWarning")  # as it loads
def test_kafka_python_knows_what_its_members_owned() -> None:
    """When one leaves its sticky, the others keep what they have; Kafka's own user data it does not read."""
    topics = {"t0": 12, "t1": 12}
    members = {f"m{number}": ("t0", "t1") for number in range(4)}
    first = kafka_python.prepare("sticky", topics, members, {}, 1)()
    owned: dict[str, dict[str, list[int]]] = {member: {} for member in members}
    for member, given in first.items():
        for topic, partition in given.partitions():
            owned[member].setdefault(topic, []).append(partition)
    del members["m1"], owned["m1"]
    then = kafka_python.prepare("sticky", topics, members, owned, 1)()
    for member in members:
        had = {(topic, partition) for topic, numbers in owned[member].items() for partition in numbers}
        assert len(had) == 6
        assert had <= {*then[member].partitions()}
