"""The wheel: exactly the five packages and their data, and constraints that fit."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.fixture(scope="module")
def wheel_names(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Build the wheel, without a network, and list what is in it."""
    directory = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)]
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert finished.returncode == 0, finished.stderr
    (wheel,) = directory.glob("*.whl")
    return zipfile.ZipFile(wheel).namelist()


def test_the_wheel_holds_exactly_the_five_packages(wheel_names: list[str]) -> None:
    """Five top-level folders and the metadata; no tests, no benchmarks, nothing stray."""
    top = {name.split("/")[0] for name in wheel_names}
    packages = {name for name in top if not name.endswith(".dist-info")}
    assert packages == {"assignors", "streaming", "checkpoints", "conf", "console"}


def test_the_wheel_holds_the_data(wheel_names: list[str]) -> None:
    """Settings, suites and the demo's records are in the wheel as they are in the checkout."""
    patterns = ("conf/*.toml", "checkpoints/*.json", "console/demo/**/*.jsonl")
    expected = {str(path.relative_to(ROOT)) for pattern in patterns for path in ROOT.glob(pattern)}
    assert {"conf/default.toml", "conf/demo.toml", "checkpoints/balance.json"} <= expected
    assert any(name.startswith("console/demo/") for name in expected)
    assert expected <= set(wheel_names)


def test_the_wheel_refuses_to_be_uploaded() -> None:
    """The classifier that makes an index refuse the upload is there (docs/adr/0001)."""
    assert "Private :: Do Not Upload" in PROJECT["classifiers"]


def pinned() -> dict[str, str]:
    """Read constraints.txt: normalised name -> version."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = (line.split("==") for line in lines if line and not line.startswith("#"))
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in pairs}


REQUIREMENTS = [
    Requirement(text)
    for texts in (PROJECT["dependencies"], *PROJECT["optional-dependencies"].values())
    for text in texts
]


@pytest.mark.parametrize("requirement", REQUIREMENTS, ids=str)
def test_each_dependency_is_bounded_and_pinned_within_its_bounds(requirement: Requirement) -> None:
    """A dependency has a lower and an upper bound, and constraints.txt a version between them."""
    operators = {specifier.operator for specifier in requirement.specifier}
    assert operators == {">=", "<"}
    version = pinned()[re.sub(r"[-_.]+", "-", requirement.name).lower()]
    assert requirement.specifier.contains(version)


def test_spark_s_and_delta_s_versions_agree_with_the_jar() -> None:
    """The jar in the settings is built for the pinned Spark and has the pinned Delta's version."""
    defaults = tomllib.loads((ROOT / "conf" / "default.toml").read_text(encoding="utf-8"))
    (jar,) = (package for package in defaults["spark"]["packages"] if "delta" in package)
    spark = ".".join(pinned()["pyspark"].split(".")[:2])
    assert jar == f"io.delta:delta-spark_{spark}_2.13:{pinned()['delta-spark']}"
