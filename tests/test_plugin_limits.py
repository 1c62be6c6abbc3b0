"""A plug-in that never answers costs its own groups a time limit, and nobody else anything."""

from __future__ import annotations

import base64
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from assignors import PluginError, Subscription, load_plugin
from assignors.model import AssignorMemory
from assignors.plugins import describe_failure
from streaming.groups.observed.group import ObservedGroup
from streaming.groups.plugin_process import LimitedPlugins, PluginTimeoutError, get_assignor
from streaming.groups.rules import GroupRules
from streaming.job import Job
from streaming.model import TopicState, Version
from streaming.tables.delta import Tables
from tests.assigning import topics_of
from tests.deployments import event as line
from tests.deployments import make_settings, totals, write_lines
from tests.kill_harness import RUN, quick_start
from tests.observed_inputs import classic, classic_value, view
from tests.playing import Player, join, topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from conf.settings import Settings

ROOT = Path(__file__).resolve().parent.parent

TOPICS = topics_of(t0=3)
TWO = {"a": Subscription(topics=("t0",)), "b": Subscription(topics=("t0",))}


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Give a directory from which modules can be imported, with one that loops."""
    directory = tmp_path_factory.mktemp("users")
    (directory / "loops_on_import.py").write_text("while True:\n    pass\n")
    sys.path.insert(0, str(directory))
    yield directory
    sys.path.remove(str(directory))


def limited(function: str, timeout_s: float = 0.5) -> LimitedPlugins:
    """Limit one function of tests/slow_plugins.py, under its own name."""
    return LimitedPlugins({function: f"tests.slow_plugins:{function}"}, timeout_s)


@pytest.mark.parametrize("function", ["loop", "loop_and_catch", "sleep", "search"])
def test_whatever_it_is_doing_it_is_ended(function: str) -> None:
    """A loop, one that catches all there is, a sleep, and C code that lets no other thread run."""
    assignor = get_assignor(function, limited(function))
    began = time.monotonic()
    with pytest.raises(PluginTimeoutError) as raised:
        assignor.function(TOPICS, TWO, None)
    assert time.monotonic() - began < 5
    says = f"assignor {function!r} did not answer within 0.5 s (groups.plugin_timeout_s)"
    assert describe_failure(function, raised.value) == says


def test_one_that_loops_when_it_is_imported_is_ended_too(users: Path) -> None:
    """It is loaded where it is asked, never in the job's own process."""
    plugins = LimitedPlugins({"mine": "loops_on_import:f"}, 0.5)
    with pytest.raises(PluginTimeoutError, match="'mine' did not answer within"):
        get_assignor("mine", plugins)
    assert "loops_on_import" not in sys.modules


@pytest.mark.parametrize("function", ["deal", "remember"])
def test_its_answer_is_the_same_as_without_a_limit(function: str) -> None:
    """Partitions, order and the leader's memory."""
    found = []
    for assignor in (
        load_plugin(f"tests.slow_plugins:{function}", function),
        get_assignor(function, limited(function, 30)),
    ):
        memory = AssignorMemory(max_generation=4)
        answer = assignor.function(TOPICS, TWO, memory)
        declared = (assignor.name, assignor.rebalance_protocol, assignor.is_sticky, assignor.promises)
        found.append((list(answer.items()), memory.max_generation, declared))
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("function", "says"),
    [
        ("refuse", "assignor 'refuse' raised RuntimeError: out of luck"),
        ("leave", "assignor 'leave' ended its process (exit code 7)"),
    ],
)
def test_one_that_fails_says_why_as_ever(function: str, says: str) -> None:
    """It is no matter of time: its computed groups are held, with AssignorFailed, until the next event."""
    with pytest.raises(PluginError) as raised:
        get_assignor(function, limited(function, 30)).function(TOPICS, TWO, None)
    assert str(raised.value) == says
    assert not isinstance(raised.value, PluginTimeoutError)
    player = Player(GroupRules(plugins=limited(function, 30)))
    player.play([topic("t", 2), join("a", 1, "t", protocols=[function])])
    assert player.latest()["kind"] == "held"


def test_threads_ask_side_by_side() -> None:
    """Jobs of several clusters run in one process: one's plug-in that sleeps holds nobody else's up."""
    slow = get_assignor("sleep", limited("sleep", 3.0))
    quick = get_assignor("deal", limited("deal", 30))

    def be_slow() -> None:
        with pytest.raises(PluginTimeoutError):
            slow.function(TOPICS, TWO, None)

    thread = threading.Thread(target=be_slow)
    began = time.monotonic()
    thread.start()
    time.sleep(0.2)
    assert quick.function(TOPICS, TWO, None).loads() == {"a": 2, "b": 1}
    assert thread.is_alive()
    thread.join()
    assert time.monotonic() - began >= 3


def test_one_that_never_answers_is_not_asked_for_every_group(users: Path) -> None:
    """After three times in a row it rests: a hundred groups of it do not cost a hundred limits."""
    path = users / "rests.py"
    path.write_text("import time\n\ndef f(topics, subscriptions, memory):\n    time.sleep(3600)\n")
    player = Player(GroupRules(plugins=LimitedPlugins({"mine": "rests:f"}, 0.3)))
    story = [join("a", 1, "t", group_id=f"g{n}", protocols=["mine"]) for n in range(30)]
    began = time.monotonic()
    player.play([topic("t", 2), *story])
    assert time.monotonic() - began < 5
    reasons = [row["reason"] for row in player.rows]
    assert sum("did not answer within 0.3 s" in reason for reason in reasons) == 3
    assert sum("took longer than 0.3 s 3 times in a row and rests" in reason for reason in reasons) == 27


def test_an_observed_group_is_not_set_aside() -> None:
    """What Kafka did is known all the same; only what was to be expected is not."""
    group = ObservedGroup("c", "g", plugins=limited("loop"))
    value = classic_value(1, [("a", {"t": [0, 2]}), ("b", {"t": [1]})], {"t"}, protocol="loop")
    (version,) = group.advance(classic("g", 1, 1000, value), view(TopicState(topic="t", partition_count=3)))
    assert isinstance(version, Version)
    note = "assignor 'loop' did not answer within 0.5 s (groups.plugin_timeout_s)"
    assert (version.expected_status, version.expected_note) == ("unknown", note)
    assert version.assignment == {"a": {"t": [0, 2]}, "b": {"t": [1]}}


def is_there(pid: int) -> bool:
    """Say whether a process lives."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_no_process_is_left_when_the_job_is_killed() -> None:
    """With kill -9, while one plug-in loops for ever and another process waits for a question."""
    script = (
        "from streaming.groups import plugin_process as p\n"
        "from tests.test_plugin_limits import TOPICS, TWO, limited\n"
        "children = [p._Child(), p._Child()]\n"
        "print(*(child._process.pid for child in children), flush=True)\n"
        "p._idle.append(children[1])\n"
        "p.get_assignor('loop', limited('loop', 2.0))\n"
        "p.get_assignor('loop', limited('loop', 2.0)).function(TOPICS, TWO, None)\n"
    )
    job = subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert job.stdout is not None
    pids = [int(pid) for pid in job.stdout.readline().split()]
    time.sleep(1.5)
    assert all(map(is_there, pids))
    os.kill(job.pid, signal.SIGKILL)
    job.wait()
    job.stdout.close()
    deadline = time.monotonic() + 10
    while any(map(is_there, pids)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(map(is_there, pids))


PATHS = {"driver": "5000", "executors": "0"}


def write_slow_story(directory: Path, flag: Path) -> None:
    """Write a file in which two groups ask the same plug-in, one of them of a member that names the flag."""
    told = base64.b64encode(str(flag).encode()).decode()
    lines = [line("topic_changed", 0, topic="orders", partitions=4)]
    for second, member in enumerate(("a", "b"), start=1):
        for group_id, protocol in (("stuck", "slow"), ("quick", "slow"), ("other", "range")):
            more: dict[str, Any] = {"member_id": member, "topics": ["orders"], "protocols": [protocol]}
            if group_id == "stuck":
                more["user_data"] = told
            lines.append(line("member_joined", second, group_id=group_id, **more))
    write_lines(directory, {"a.jsonl": lines})


def settings_of(root: Path, path: str) -> Settings:
    """Make settings with that plug-in, which has two seconds."""
    plugin = {"groups.plugins.slow": "tests.slow_plugins:wait_while_told", "groups.plugin_timeout_s": "2.0"}
    return make_settings(root, batch__local_max_records=PATHS[path], **plugin)


def log_of(settings: Settings, group_id: str) -> list[dict[str, Any]]:
    """Read a group's rows of the log in order."""
    columns = ["log_seq", "batch_seq", "group_id", "kind", "version", "reason", "assignment", "events"]
    rows = Tables(settings.job.tables).read("generations", columns).to_pylist()
    return sorted((row for row in rows if row["group_id"] == group_id), key=lambda row: row["log_seq"])


def versions_of(settings: Settings, group_id: str) -> list[tuple[Any, ...]]:
    """Give what was decided of a group, whenever it was."""
    rows = [row for row in log_of(settings, group_id) if row["kind"] == "rebalance"]
    return [(row["version"], row["reason"], row["assignment"]) for row in rows]


@pytest.mark.spark
@pytest.mark.parametrize("path", PATHS)
def test_a_group_that_takes_too_long_waits_and_the_others_go_on(
    spark: SparkSession, tmp_path: Path, path: str
) -> None:
    """On both paths it is told, every event is accounted for, and afterwards all is as it should be."""
    flag = tmp_path / "flag"
    flag.touch()
    write_slow_story(tmp_path / "in", flag)
    settings = settings_of(tmp_path / "job", path)
    Job(spark, settings).run(once=True)
    (row,) = log_of(settings, "stuck")
    assert (row["kind"], row["version"], row["assignment"]) == ("state", 0, [])
    assert row["reason"].startswith("set aside: assignor 'slow' did not answer within 2 s")
    assert {e["outcome"] for e in row["events"]} == {"kept"}
    assert {row["version"] for row in log_of(settings, "quick")} >= {1, 2}
    assert totals(settings) == {"records_read": 7, "applied": 7, "duplicate": 0, "ignored": 0, "rejected": 0}
    tables = Tables(settings.job.tables)
    (alert,) = tables.read("alerts", ["alertname", "group_id", "status"]).to_pylist()
    assert alert == {"alertname": "GroupSetAside", "group_id": "stuck", "status": "firing"}
    flag.unlink()
    write_lines(tmp_path / "in", {"b.jsonl": [line("time_advanced", 600)]})
    Job(spark, settings).run(once=True)
    assert totals(settings) == {"records_read": 8, "applied": 8, "duplicate": 0, "ignored": 0, "rejected": 0}
    # The two groups' stories differ in nothing else.
    assert versions_of(settings, "stuck") == versions_of(settings, "quick") != []
    (alert,) = Tables(settings.job.tables).read("alerts", ["status"]).to_pylist()
    assert alert["status"] == "resolved"


@pytest.mark.spark
@pytest.mark.slow
def test_what_the_clock_decided_is_not_decided_again_after_a_kill(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Killed behind the commit, the next life reads back that a group was set aside; it would do now."""
    flag = tmp_path / "flag"
    flag.touch()
    write_slow_story(tmp_path / "in", flag)
    settings = settings_of(tmp_path / "job", "driver")
    options = {
        "job.tables": settings.job.tables,
        "job.checkpoint_location": settings.job.checkpoint_location,
        "groups.plugins.slow": "tests.slow_plugins:wait_while_told",
        "groups.plugin_timeout_s": "2.0",
        "sources.events.max_files_per_trigger": "1",
        **quick_start(spark),
    }
    arguments = [str(tmp_path / "job" / "conf.toml"), *(f"{name}={value}" for name, value in options.items())]
    for point, ends_with in (("after_log", -signal.SIGKILL), ("", 0)):
        done = subprocess.run(
            [sys.executable, "-c", RUN, *arguments],
            env={**os.environ, "COUNTERPOISE_CRASH_AT": point},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == ends_with, done.stderr[-3000:]
        if point:
            committed = log_of(settings, "stuck")
            assert len(committed) == 1
            flag.unlink()
            write_lines(tmp_path / "in", {"b.jsonl": [line("time_advanced", 600)]})
    again = log_of(settings, "stuck")
    assert again[0] == committed[0]
    assert {row["batch_seq"] for row in again} == {1, 2}
    columns = ["group_id", "outcome", "batch_seq"]
    published = Tables(settings.job.tables).read("events", columns).to_pylist()
    stuck = sorted((e["batch_seq"], e["outcome"]) for e in published if e["group_id"] == "stuck")
    assert stuck == [(1, "kept"), (1, "kept"), (2, "applied"), (2, "applied")]
