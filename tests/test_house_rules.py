"""The house: who may import whom, how long a module may be, and what is never committed."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
OURS = ("assignors", "streaming", "checkpoints", "conf", "console")

MAY_IMPORT = {
    "assignors": {"assignors"},
    "conf": {"conf"},
    "checkpoints": {"checkpoints", "assignors", "conf"},
    "streaming": {"streaming", "checkpoints", "assignors", "conf"},
    "console": {"console", "assignors", "conf"},
}
ROOMS_MAY_IMPORT = {
    "events": set(),
    "tables": {"events"},
    "sources": {"events", "tables"},
    "groups": {"events"},
    "batches": {"events", "groups", "sources", "tables"},
    "sinks": {"tables"},
    "operations": {"events", "tables"},
}
"""The rooms of `streaming`. Values and crash points, beside them, are for all; job.py joins the rooms."""
FOR_EVERY_ROOM = {"model", "crash_points", "garbage", "log_context"}

ONLY_INSIDE_COMMANDS = {"console": {"streaming", "checkpoints"}}

WHOLE_ALGORITHMS = {"streaming/groups/computed/group.py", "streaming/groups/observed/group.py"}
"""Each the whole life of one kind of group, which reads worse in pieces."""

MODULES = sorted(path for package in OURS for path in (ROOT / package).rglob("*.py"))


def imports_of(path: Path) -> Iterator[tuple[str, bool]]:
    """Give each imported module, and whether that happens as the module is loaded."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    guarded = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    inside = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in guarded:
            continue
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, id(node) not in inside
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module, id(node) not in inside


def name_of(path: Path) -> str:
    """Name a file as git does."""
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_go_one_way(path: Path) -> None:
    """Nothing imports what comes after it in the journey; `conf` and `assignors` import nothing of ours."""
    package = path.relative_to(ROOT).parts[0]
    allowed = MAY_IMPORT[package]
    for module, at_load in imports_of(path):
        imported = module.split(".")[0]
        if imported in OURS and imported not in allowed:
            assert imported in ONLY_INSIDE_COMMANDS.get(package, ()), f"{package} imports {imported}"
            assert not at_load, f"{imported} is imported as {path.name} loads; only a command may"


@pytest.mark.parametrize("path", sorted((ROOT / "streaming").glob("*/**/*.py")), ids=name_of)
def test_rooms_of_the_stream_import_one_way(path: Path) -> None:
    """A room knows those that the journey has passed before it, and never the job that joins them."""
    room = path.relative_to(ROOT).parts[1]
    allowed = {room, *ROOMS_MAY_IMPORT[room], *FOR_EVERY_ROOM}
    imported = {module.split(".")[1] for module, _ in imports_of(path) if module.startswith("streaming.")}
    assert imported <= allowed


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_modules_stay_readable(path: Path) -> None:
    """No module is longer than 400 lines, an algorithm that must be read whole 450."""
    is_algorithm = path.parent.name == "assignors" or name_of(path) in WHOLE_ALGORITHMS
    ceiling = 450 if is_algorithm else 400
    assert len(path.read_text(encoding="utf-8").splitlines()) <= ceiling


def test_no_rooms_without_a_purpose() -> None:
    """No module is called utils, helpers, common, base or manager."""
    assert not {path.stem for path in MODULES} & {"utils", "util", "helpers", "common", "base", "manager"}


def modules_after(statement: str) -> set[str]:
    """Run a statement in a fresh interpreter and list the top-level modules that came along."""
    script = f"import sys\n{statement}\nprint(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    finished = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    return set(finished.stdout.split())


def test_assignors_bring_nothing_heavy() -> None:
    """Importing assignors brings neither Spark nor numba nor numpy nor any other third party's package."""
    heavy = {"pyspark", "numba", "numpy", "pandas", "pyarrow", "deltalake", "pydantic", "great_expectations"}
    assert not modules_after("import assignors") & heavy


@pytest.mark.parametrize(
    "statement",
    [
        "import console.cli",
        "import console.tables, console.description",
        "import streaming.events.offsets_records",
    ],
)
def test_what_needs_no_spark_brings_none(statement: str) -> None:
    """The commands that answer at once import no Spark and no Great Expectations."""
    assert not modules_after(statement) & {"pyspark", "py4j", "great_expectations", "numba"}


def committed_texts() -> Iterator[tuple[str, str]]:
    """Give each text that is committed or about to be: (name, content)."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in listed.stdout.splitlines():
        path = ROOT / name
        # Captured records and golden files are other programs' words.
        if path.suffix in {".py", ".md", ".toml", ".txt", ".sh", ".xml", ".java", ""} and path.is_file():
            yield name, path.read_text(encoding="utf-8", errors="replace")


def test_no_machine_s_paths_and_no_registry_addresses() -> None:
    """Nothing committed names a directory of one machine or the host of a package registry."""
    places = ("work", "root", "home/[a-z]+")
    # Taken apart, or this file would be the first that names one.
    hosts = [r"\.".join(parts) for parts in (("pypi", "org"), ("repo1?", "maven"), ("proxy", "golang"))]
    hosts += ["python" + "hosted"]
    pattern = re.compile(rf"(?<![\w.~])/({'|'.join(places)})/|{'|'.join(hosts)}")
    found = [
        f"{name}: {match.group()}"
        for name, text in committed_texts()
        if name != name_of(Path(__file__)) and (match := pattern.search(text))
    ]
    assert found == []


def test_no_work_is_left_for_later() -> None:
    """No TODO, FIXME or NotImplementedError stands in the packages."""
    words = re.compile(r"\bTODO\b|\bFIXME\b|\bXXX\b|NotImplementedError")
    assert [name_of(p) for p in MODULES if words.search(p.read_text(encoding="utf-8"))] == []
