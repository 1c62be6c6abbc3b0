"""Two real Connect workers and their connectors: what the REST interface says and what the tables say agree.

A worker joins, is killed and comes back while its tasks wait for it, is stopped and stays away until they no
longer wait; connectors are made and deleted meanwhile. REST is asked at every stable moment, and the job
reads the whole history afterwards, as it lies in `__consumer_offsets`.
"""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import SecretStr

from conf.clusters import ClusterSettings, admin_options
from conf.settings import Settings, load_settings
from console.tables import quoted, read_table
from streaming.job import Job
from streaming.sources.cluster_metadata import ClusterMetadata
from tests.kafka_cluster import ConnectWorker, KafkaBroker, wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.live, pytest.mark.spark]

Row = dict[str, Any]
Part = tuple[str, int]
"""(connector, task); -1 is the connector itself."""

GROUP = "live-connect"
CLUSTER = "live"
A, B = "worker-a", "worker-b"
SESSION_MS = 5_000
LEAST_DELAY_S = 8.0
PATIENCE_S = 180
"""Many people's tests share the machine, and a step takes a tenth of this on a quiet one."""

MOMENTS = {
    "one worker": {A},
    "two workers": {A, B},
    "connector added": {A, B},
    "connector deleted": {A, B},
    "one killed": {A},
    "back in time": {A, B},
    "one stopped": {A},
    "waited in vain": {A},
    "back too late": {A, B},
}
"""The stable moments in their order, with the client ids of the workers that live then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A stable moment, by the word of the workers' REST interfaces and of the coordinator.

    `statuses` is what REST says: part -> (state, worker_id); `client_ids` maps the worker_id of each living
    worker to its client_id, `member_ids` the client_id to the member_id that the coordinator gave it. `told`
    is what the metadata source last said of the group: state, protocol type, group type. `at` is when.
    """

    at: datetime
    statuses: Mapping[Part, tuple[str, str]] = field(hash=False)
    client_ids: Mapping[str, str] = field(hash=False)
    member_ids: Mapping[str, str] = field(hash=False)
    told: tuple[str, str, str]

    @property
    def owned(self) -> dict[str, frozenset[Part]]:
        """Give client_id -> what REST says runs there.

        A worker that is gone is none of them: REST goes on saying that it runs what it ran, of one
        that was stopped too unless it found the time to write that it no longer does.
        """
        return {
            client_id: frozenset(part for part, status in self.statuses.items() if status == ("RUNNING", url))
            for url, client_id in self.client_ids.items()
        }

    @property
    def waiting(self) -> frozenset[Part]:
        """Give what no living worker runs."""
        return frozenset(self.statuses) - frozenset().union(*self.owned.values())


Condition = Callable[[Moment], bool]


def runs_evenly(moment: Moment) -> bool:
    """Say whether everything runs, and connectors and tasks are each dealt evenly, as Connect does it."""
    loads = moment.owned.values()
    kinds = [
        [sum((n < 0) == is_connector for _, n in load) for load in loads] for is_connector in (True, False)
    ]
    return not moment.waiting and all(max(counts) - min(counts) <= 1 for counts in kinds)


class Stage:
    """Where the story is played: workers, the connectors that are configured, and the moments taken."""

    def __init__(self, broker: KafkaBroker, running: ExitStack) -> None:
        """Begin with no worker and no connector; `running` ends the workers."""
        self.moments: dict[str, Moment] = {}
        self._broker, self._running = broker, running
        self.delay_s = LEAST_DELAY_S
        self._workers: dict[str, ConnectWorker] = {}
        self._connectors: dict[str, int] = {}
        options = {"bootstrap.servers": SecretStr(broker.bootstrap_servers)}
        self._metadata = ClusterMetadata(CLUSTER, admin_options(ClusterSettings(kafka=options), {}))
        self._told = ("", "", "")

    def start_leader(self) -> None:
        """Start a worker that is alone and so leads, with a delay in which this machine starts another."""
        began = time.monotonic()
        self.start(A)
        took_s = time.monotonic() - began
        if self.delay_s < 2 * took_s:
            self.delay_s = 4 * took_s
            self.stop(A)
            self.start(A)

    def start(self, client_id: str) -> None:
        """Start a worker, each time a new one with an address of its own; it counts when it joins."""
        worker = ConnectWorker(
            self._broker,
            group_id=GROUP,
            scheduled_delay_ms=round(self.delay_s * 1000),
            session_timeout_ms=SESSION_MS,
            properties={"client.id": client_id},
        )
        self._running.callback(worker.stop)
        worker.start(PATIENCE_S)
        self._workers[client_id] = worker

    def stop(self, client_id: str) -> None:
        """Stop a worker in good order: it leaves the group."""
        self._workers.pop(client_id).stop(PATIENCE_S)

    def kill(self, client_id: str) -> None:
        """End a worker with kill -9."""
        self._workers.pop(client_id).kill()

    def put(self, connector: str, tasks: int) -> None:
        """Make a connector."""
        self._workers[A].put_connector(connector, tasks)
        self._connectors[connector] = tasks

    def delete(self, connector: str) -> None:
        """Delete a connector."""
        self._workers[A].delete_connector(connector)
        del self._connectors[connector]

    def take(self, name: str, is_reached: Condition = runs_evenly) -> Moment:
        """Wait until all say the same of a moment in which the condition holds, and keep it.

        Raises:
            TimeoutError: it never came; with what was last said.
        """
        last: list[Moment | None] = [None]

        def is_stable() -> bool:
            before, now = last[0], self._look()
            last[0] = now
            if now is None or before is None or not is_reached(now):
                return False
            # Between two looks that show the same, its time, the tables must show it too.
            return (before.statuses, before.member_ids) == (now.statuses, now.member_ids)

        wait_until(is_stable, PATIENCE_S, lambda: f"{name}: last seen {last[0]}, {self._members()}")
        assert last[0] is not None
        self.moments[name] = last[0]
        return last[0]

    def wait_until_empty(self) -> None:
        """Wait until the metadata source says that nobody is left."""
        wait_until(lambda: self._hear()[0] == "Empty", PATIENCE_S, lambda: f"the group is {self._told}")

    def _look(self) -> Moment | None:
        """Ask everybody; None while they disagree, or the group is not whole."""
        at = datetime.now(UTC)
        answers = [self._ask(worker) for worker in self._workers.values()]
        wanted = {(c, n) for c, tasks in self._connectors.items() for n in range(-1, tasks)}
        members = self._members()
        is_whole = (
            members is not None and members.keys() == self._workers.keys() and set(answers[0]) == wanted
        )
        if not is_whole or any(answer != answers[0] for answer in answers) or self._hear()[0] != "Stable":
            return None
        return Moment(
            at=at,
            statuses=answers[0],
            client_ids={worker.url.removeprefix("http://"): c for c, worker in self._workers.items()},
            member_ids=members or {},
            told=self._told,
        )

    def _ask(self, worker: ConnectWorker) -> dict[Part, tuple[str, str]]:
        """Ask one worker's REST interface for everything that it knows."""
        _, answer = worker.request("GET", "/connectors?expand=status", timeout_s=PATIENCE_S)
        statuses = {}
        for connector, known in (answer or {}).items():
            status = known["status"]
            numbered = [(-1, status["connector"]), *((task["id"], task) for task in status["tasks"])]
            statuses |= {(connector, n): (each["state"], each["worker_id"]) for n, each in numbered}
        return statuses

    def _members(self) -> dict[str, str] | None:
        """Ask the coordinator: client_id -> member_id, None while it holds a rebalance."""
        with warnings.catch_warnings():
            # Its successors refuse what is no consumer group.
            warnings.simplefilter("ignore", DeprecationWarning)
            groups: list[Any] = self._broker.admin.list_groups(GROUP, timeout=20)
        # A coordinator that is busy is left out of the answer, without a word.
        if [group.state for group in groups] != ["Stable"]:
            return None
        return {member.client_id: member.id for member in groups[0].members}

    def _hear(self) -> tuple[str, str, str]:
        """Ask the metadata source, which tells only what is new; gives what it told last of the group."""
        for event in self._metadata.group_events(time.time_ns() // 1_000_000, [GROUP]):
            if event["group_id"] == GROUP:
                self._told = (event["state"], event["protocol_type"], event["group_type"])
        return self._told


def play(stage: Stage) -> None:
    """Play the story."""
    stage.start_leader()
    stage.put("idle", 3)
    stage.put("calm", 2)
    stage.take("one worker")
    stage.start(B)
    stage.take("two workers")
    stage.put("brief", 1)
    stage.take("connector added")
    stage.delete("brief")
    before = stage.take("connector deleted")

    stage.kill(B)
    stage.take("one killed", lambda now: now.owned[A] == before.owned[A])
    stage.start(B)
    stage.take("back in time")

    stage.stop(B)
    stage.take("one stopped", lambda now: bool(now.waiting))
    stage.take("waited in vain")
    stage.start(B)
    stage.take("back too late")

    stage.stop(A)
    stage.stop(B)
    stage.wait_until_empty()


@dataclass(slots=True, kw_only=True)
class Story:
    """What happened by REST's account, `moments`, and by the tables': `rows`, by table, of our group."""

    delay_s: float
    moments: dict[str, Moment]
    rows: dict[str, list[Row]]

    @property
    def versions(self) -> list[Row]:
        """Give the group's versions in order."""
        rows = [row for row in self.rows["generations"] if row["kind"] not in {"state", "rejected"}]
        return sorted(rows, key=lambda row: row["version"])

    def in_force(self, name: str) -> Row:
        """Give the version that was the last one at a moment."""
        return [row for row in self.versions if row["event_time"] <= self.moments[name].at][-1]


def owned_by(version: Row) -> dict[str, frozenset[Part]]:
    """Give client_id -> what a version shows that it runs."""
    owned: dict[str, set[Part]] = {member["member_id"]: set() for member in version["members"]}
    for entry in version["assignment"]:
        owned[entry["member_id"]] |= {(entry["topic"], n) for n in entry["partitions"]}
    return {member["client_id"]: frozenset(owned[member["member_id"]]) for member in version["members"]}


def settings_of(broker: KafkaBroker, folder: Path, since: datetime) -> Settings:
    """Make the settings of a job that reads the group records from a time on."""
    file = folder / "conf.toml"
    file.write_text(
        f'[clusters.{CLUSTER}.kafka]\n"bootstrap.servers" = "{broker.bootstrap_servers}"\n'
        '[[sources]]\nname = "offsets"\nformat = "offsets"\nfrom = "kafka"\n'
        f'cluster = "{CLUSTER}"\nstarting = "{since.isoformat()}"\n',
        encoding="utf-8",
    )
    overrides = {
        "job.tables": str(folder / "tables"),
        "job.checkpoint_location": str(folder / "checkpoint"),
        # At once: with a longer time nothing would show even if the rule misjudged a delay.
        "alerts.UnassignedPartitions.for_s": "0",
    }
    return load_settings(file, {}, overrides)


@pytest.fixture(scope="module")
def story(spark: SparkSession, kafka: KafkaBroker, tmp_path_factory: pytest.TempPathFactory) -> Story:
    """Play the story once for all tests here; then the job reads it, and once more only asks the cluster."""
    settings = settings_of(
        kafka, tmp_path_factory.mktemp("connect"), datetime.now(UTC) - timedelta(seconds=1)
    )
    with ExitStack() as running:
        stage = Stage(kafka, running)
        play(stage)
    for _ in range(2):
        Job(spark, settings).run(once=True)
    names = ("generations", "assignment_deltas", "alert_events", "checks", "events")
    ours = f"group_id = {quoted(GROUP)}"
    rows = {name: read_table(settings.job.tables, name, where=ours).to_pylist() for name in names}
    return Story(delay_s=stage.delay_s, moments=stage.moments, rows=rows)


@pytest.mark.parametrize("name", MOMENTS)
def test_tables_say_what_rest_says(story: Story, name: str) -> None:
    """Of every connector and task the worker is the same, and so are the members and the group's state."""
    moment, version = story.moments[name], story.in_force(name)
    assert moment.owned.keys() == MOMENTS[name]
    assert owned_by(version) == moment.owned
    assert {m["client_id"]: m["member_id"] for m in version["members"]} == moment.member_ids
    assert (version["group_state"], version["protocol_type"], "classic") == moment.told
    assert version["balance"]["unowned"] == len(moment.waiting)


@pytest.mark.parametrize("name", MOMENTS)
def test_deltas_add_up_to_what_rest_says(story: Story, name: str) -> None:
    """Whoever carries out the deltas from the group's making on knows who runs what at every moment."""
    last = story.in_force(name)["version"]
    deltas = [row for row in story.rows["assignment_deltas"] if row["version"] <= last]
    owned: set[tuple[str, Part]] = set()
    for row in sorted(deltas, key=lambda row: row["version"]):
        held = (row["member_id"], (row["topic"], row["partition"]))
        assert row["resource_type"] == ("connector" if row["partition"] == -1 else "task")
        assert (held in owned) == (row["change"] != "assigned")
        owned ^= {held}
    moment = story.moments[name]
    assert owned == {
        (moment.member_ids[client_id], part) for client_id, parts in moment.owned.items() for part in parts
    }


def test_leaders_do_what_is_expected(
    story: Story, record_testsuite_property: Callable[[str, object], None]
) -> None:
    """No generation is called different; each is equal, but where the record leaves something open."""
    judged = [row for row in story.versions if row["members"]]
    counts = Counter(row["expected_status"] for row in judged)
    record_testsuite_property("expected_status of two Connect workers", dict(counts))
    for row in judged:
        match row["expected_status"]:
            case "equal":
                assert runs_of(row["expected"]) == runs_of(row["assignment"])
            case "unknown":
                assert "within its clock's uncertainty" in row["expected_note"]
            case status:
                assert status == "in_transition"
                assert "had not read the configuration" in row["expected_note"]
    # Every stable moment's, and those in which something is taken away or waits.
    assert counts["equal"] >= len(MOMENTS) + 3, counts
    assert not [row for row in story.rows["alert_events"] if row["alertname"] == "UnexpectedAssignment"]


def runs_of(entries: list[Row]) -> set[tuple[str, str, int]]:
    """Read a column of owners."""
    return {(entry["member_id"], entry["topic"], n) for entry in entries for n in entry["partitions"]}


def test_the_history_is_whole(story: Story) -> None:
    """From the group's making on each generation makes one version, and no critical check fails."""
    versions = story.versions
    assert [row["version"] for row in versions] == list(range(1, len(versions) + 1))
    assert [row["generation_id"] for row in versions] == list(range(len(versions)))
    assert {row["kind"] for row in versions} == {"rebalance"}
    assert {row["rebalance_protocol"] for row in versions if row["members"]} == {"sessioned"}
    assert not [row for row in story.rows["checks"] if row["severity"] == "critical" and not row["success"]]


def wait_behind(story: Story, name: str) -> list[Row]:
    """Give the versions from a moment's on while tasks wait for a lost worker, and the one that ends it."""
    versions = [row for row in story.versions if row["version"] >= story.in_force(name)["version"]]
    end = next(number for number, row in enumerate(versions) if row["is_final"])
    return versions[: end + 1]


@pytest.mark.parametrize("name", ["one killed", "one stopped"])
def test_what_waits_for_a_lost_worker_has_no_owner_and_no_alert(story: Story, name: str) -> None:
    """As long as the delay runs its connector and tasks are nobody's, and then somebody's: no alert."""
    *during, after = wait_behind(story, name)
    assert during
    waiting = story.moments[name].waiting
    assert waiting == story.moments["connector deleted"].owned[B]
    for row in during:
        assert not waiting & frozenset().union(*owned_by(row).values())
        assert row["balance"]["unowned"] == len(waiting)
    assert after["balance"]["unowned"] == 0
    lasted = after["event_time"] - during[0]["event_time"]
    assert lasted.total_seconds() > story.delay_s - 0.5
    assert not [row for row in story.rows["alert_events"] if row["alertname"] == "UnassignedPartitions"]


def test_who_comes_back_in_time_gets_the_same_tasks(story: Story) -> None:
    """A killed worker's next process joins while its tasks wait, and has just these at the delay's end."""
    *during, after = wait_behind(story, "one killed")
    back = story.moments["back in time"]
    joined = [row for row in during if len(row["members"]) == 2]
    assert joined, f"it came after the delay of {story.delay_s} s"
    assert owned_by(joined[0]) == {A: back.owned[A], B: frozenset()}
    assert owned_by(after) == back.owned == story.moments["connector deleted"].owned
    assert back.member_ids[B] != story.moments["connector deleted"].member_ids[B]
    numbers = {row["version"] for row in (*during, after)}
    changes = [row for row in story.rows["assignment_deltas"] if row["version"] in numbers]
    assert Counter((row["change"], row["member_id"]) for row in changes) == {
        ("lost", story.moments["connector deleted"].member_ids[B]): len(back.owned[B]),
        ("assigned", back.member_ids[B]): len(back.owned[B]),
    }


def test_who_stays_away_is_replaced(story: Story) -> None:
    """Behind the delay the other worker runs all, and who comes then gets its share in two generations."""
    *_, after = wait_behind(story, "one stopped")
    everything = frozenset(story.moments["one worker"].statuses)
    assert owned_by(after) == {A: everything} == story.moments["waited in vain"].owned
    behind = [row for row in story.versions if row["version"] > after["version"]]
    taken, given = behind[:2]
    assert owned_by(taken)[B] == frozenset()
    assert owned_by(taken)[A] == owned_by(given)[A]
    assert owned_by(given) == story.moments["back too late"].owned


def test_the_job_asks_for_connect_clusters_it_has_read_of(story: Story) -> None:
    """The list of groups lacks them, so a job that knows of one from the log asks for its state by name."""
    told = [row for row in story.rows["events"] if row["type"] == "group_state"]
    assert [(row["outcome"], row["reason"]) for row in told] == [
        ("ignored", "the group is known to be Empty")
    ]
    assert story.versions[-1]["group_state"] == "Empty"
