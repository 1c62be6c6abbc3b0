"""What the README shows is what happens."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from conf.settings import load_settings

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
COUNTERPOISE = Path(sys.executable).with_name("counterpoise")


def blocks(language: str) -> list[str]:
    """List the README's fenced blocks of one language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def stripped(text: str) -> list[str]:
    """Split into lines without the blanks that pad a table."""
    return [line.rstrip() for line in text.strip().splitlines()]


def run(command: list[str], cwd: Path, path: str | None = None) -> str:
    """Run a command as a reader would, with another PATH if there is one, and give what it printed."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("COUNTERPOISE_")}
    environment["PYTHONWARNINGS"] = "default"
    if path is not None:
        environment["PATH"] = path
    done = subprocess.run(
        command,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=environment,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Run the demo once, as `make demo` does: (the directory, what it printed)."""
    directory = tmp_path_factory.mktemp("demo")
    return directory, run([str(COUNTERPOISE), "demo", "--keep", ".demo"], directory)


@pytest.mark.spark
def test_demo_prints_what_the_readme_shows(demo: tuple[Path, str]) -> None:
    """The two blocks together are the demo's real output, to the last character but trailing blanks."""
    groups, rest = blocks("text")
    assert stripped(demo[1]) == [*stripped(groups), "", *stripped(rest)]


@pytest.mark.spark
def test_picture_is_the_demos(demo: tuple[Path, str]) -> None:
    """docs/checkout.svg is what the demo draws from its tables."""
    drawn = (demo[0] / ".demo/tables/generations.svg").read_text(encoding="utf-8")
    assert drawn == (ROOT / "docs/checkout.svg").read_text(encoding="utf-8")


@pytest.mark.spark
@pytest.mark.parametrize("reader", ["polars", "duckdb", "deltalake"])
def test_tables_open_in_other_readers(demo: tuple[Path, str], reader: str) -> None:
    """Each query of the README runs over the demo's tables and finds something."""
    (code,) = [block for block in blocks("python") if reader in block]
    printed = run([sys.executable, "-c", code], demo[0])
    telling = {"polars": "till-3", "duckdb": "flappy-3", "deltalake": "billing"}[reader]
    assert telling in printed


@pytest.mark.parametrize("block", blocks("console"), ids=lambda block: block.splitlines()[0][2:40])
def test_console_commands_answer_as_shown(tmp_path: Path, block: str) -> None:
    """Typed one after the other into a shell that finds `counterpoise`, each prints the lines under it.

    Code that begins with a file's name lies there under that name.
    """
    for code in blocks("python"):
        if named := re.match(r"# (\w+\.py)$", code, re.MULTILINE):
            (tmp_path / named[1]).write_text(code, encoding="utf-8")
    path = f"{COUNTERPOISE.parent}{os.pathsep}{os.environ['PATH']}"
    start, *typed = re.split(r"^\$ ", block, flags=re.MULTILINE)
    assert start == "", "a console block starts with a command"
    for command, _, shown in (text.partition("\n") for text in typed):
        assert stripped(run(["sh", "-c", command], tmp_path, path=path)) == stripped(shown)


@pytest.mark.parametrize("text", blocks("toml"), ids=["files", "kafka"])
def test_settings_examples_load(tmp_path: Path, text: str) -> None:
    """The settings shown are accepted."""
    file = tmp_path / "job.toml"
    file.write_text(text, encoding="utf-8")
    assert [s.name for s in load_settings(file, {}, {}).sources] == [
        tomllib.loads(text)["sources"][0]["name"]
    ]


def test_links_lead_somewhere() -> None:
    """Every relative link of the README names a file or folder that is there."""
    links = re.findall(r"\]\(([^)#:]+)\)", README)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_first_screen_is_short() -> None:
    """Name, picture and what to type come before anything long."""
    head = README.split("## Install")[0].splitlines()
    assert README.startswith("# Counterpoise\n")
    assert len(head) <= 45
    assert [line.strip() for line in head if line.startswith("    make")] == ["make demo", "make test"]
