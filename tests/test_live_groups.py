"""A cluster's story told by its clients, its coordinator and the tables of a job that watches it: all agree.

Groups of every client library and protocol act at once: members join, crash, leave, restart and change what
they subscribe to, and a topic grows under them. At every stable moment the admin client and the tables are
asked; the clients' callbacks are held to the history afterwards.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from console.tables import latest_alerts, read_table
from streaming.groups.observed.expected import same_owners
from tests.kafka_cluster import KafkaBroker, Pair, wait_until
from tests.kafka_members import ConfluentClient, Event, GroupMember, JavaClient, KafkaPythonClient
from tests.live_jobs import AdminClients, LiveJob, Moment, Row, WatchedGroup, take_moment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.live, pytest.mark.spark]

CAST: dict[str, tuple[type[GroupMember], str, str | None]] = {
    **{f"java-{name}": (JavaClient, "classic", name) for name in ("range", "roundrobin", "sticky")},
    "java-cooperative": (JavaClient, "classic", "cooperative-sticky"),
    "java-consumer": (JavaClient, "consumer", None),
    "java-share": (JavaClient, "share", None),
    "confluent-cooperative": (ConfluentClient, "classic", "cooperative-sticky"),
    "confluent-consumer": (ConfluentClient, "consumer", "uniform"),
    **{f"python-{name}": (KafkaPythonClient, "classic", name) for name in ("range", "roundrobin", "sticky")},
    "python-cooperative": (KafkaPythonClient, "classic", "cooperative-sticky"),
}
"""The groups whose members a, b and c go through the whole story: library, kind, assignor."""

CLASSIC_CAST = [group_id for group_id, (_, kind, _) in CAST.items() if kind == "classic"]
JAVA_LED = [*(g for g in CLASSIC_CAST if CAST[g][0] is JavaClient), "static-classic"]
LED_BY_OTHERS = [g for g in CLASSIC_CAST if CAST[g][0] is not JavaClient]
DELETED = ["deleted-classic", "deleted-consumer"]
STATIC = ["static-classic", "static-consumer"]
BY_PATTERN = ["pattern-classic", "pattern-consumer"]
CONVERTED = ["upgraded", "downgraded"]
ALIKE_ONLY = {"python-roundrobin"}
"""kafka-python's round robin ends its leader with a KeyError when members subscribe to different topics."""
WITH_CALLBACKS = [*(g for g in CAST if g != "java-share"), *DELETED, *STATIC, *BY_PATTERN, *CONVERTED]

MOMENTS = [
    "one member",
    "two members",
    "topic grown",
    "three members",
    "one crashed",
    "one left",
    "none left",
]

SESSION_MS = 8_000
"""Half a hundred clients share two cores with the job: a live one must not be taken for dead."""
HEARTBEAT_MS = 2_500
"""Under KIP-848, and how long librdkafka 2.16 waits for the answer to a heartbeat. It never asks again for an
assignment that was in a late one: the admin client calls the group Unknown (reconciling) until the rebalance
times out, after minutes. On a busy machine one second is too short."""
ALERT_FOR_S = 3


def pairs(topic: str, partitions: int) -> frozenset[Pair]:
    """List a topic's partitions."""
    return frozenset((topic, partition) for partition in range(partitions))


OLD, GROWN, OF_BILLS = pairs("orders", 6), pairs("orders", 8), pairs("bills", 3)
MATCHED_ONE = pairs("by-pattern-1", 2)
MATCHED_BOTH = MATCHED_ONE | pairs("by-pattern-2", 2)


@dataclass(slots=True)
class Story:
    """What happened, by everybody's account.

    `rows` holds the tables as they were in the end, by name; times are UTC, epoch.
    """

    groups: dict[str, WatchedGroup] = field(default_factory=dict)
    moments: dict[str, Moment] = field(default_factory=dict)
    rows: dict[str, list[Row]] = field(default_factory=dict)
    grown_ms: int = 0
    deleted_ms: int = 0
    killed_ms: int = 0

    def versions(self, group_id: str) -> list[Row]:
        """Give a group's versions in order, `state` rows left out."""
        rows = (row for row in self.rows["generations"] if row["group_id"] == group_id)
        return sorted((row for row in rows if row["kind"] != "state"), key=lambda row: row["version"])

    def deltas(self, group_id: str) -> list[Row]:
        """Give a group's deltas by version."""
        rows = (row for row in self.rows["assignment_deltas"] if row["group_id"] == group_id)
        return sorted(rows, key=lambda row: row["version"])


SUPPORTING: dict[tuple[str, str], tuple[type[GroupMember], str, str | None]] = {
    ("before", "a"): (KafkaPythonClient, "classic", "range"),
    ("upgraded", "a"): (JavaClient, "classic", "range"),
    ("upgraded", "b"): (ConfluentClient, "consumer", None),
    ("downgraded", "a"): (KafkaPythonClient, "classic", "range"),
    ("downgraded", "b"): (ConfluentClient, "consumer", None),
    **{("deleted-classic", letter): (KafkaPythonClient, "classic", "range") for letter in "ab"},
    **{("deleted-consumer", letter): (ConfluentClient, "consumer", None) for letter in "ab"},
    **{("static-classic", letter): (JavaClient, "classic", "range") for letter in "abA"},
    **{("static-consumer", letter): (ConfluentClient, "consumer", None) for letter in "abA"},
    ("pattern-classic", "a"): (ConfluentClient, "classic", "range"),
    ("pattern-consumer", "a"): (ConfluentClient, "consumer", None),
}
"""The members of the other groups, likewise; A is a again, restarted."""

INSTANCES = {"a": "i1", "b": "i2", "A": "i1"}
OFTEN = {"topic.metadata.refresh.interval.ms": 1_000}


class Stage:
    """Where a story is played: clients come here, and groups are looked at."""

    def __init__(self, broker: KafkaBroker, job: LiveJob, admins: AdminClients, running: ExitStack) -> None:
        """Begin a story; `running` ends the clients."""
        self.story = Story()
        self._broker, self._job, self._admins, self._running = broker, job, admins, running

    def start(self, group_id: str, letter: str) -> None:
        """Start a client that is to join later, so that no rebalance has to wait for a dozen JVMs."""
        library, kind, assignor = CAST[group_id] if group_id in CAST else SUPPORTING[group_id, letter]
        group = self.story.groups.setdefault(group_id, WatchedGroup(group_id=group_id, kind=kind))
        group.client_ids[letter] = f"{group_id}-{letter.lower()}"
        joining: dict[str, Any] = {}
        if kind == "classic":
            # Only those that will crash need to be missed soon.
            joining["session_timeout_ms"] = SESSION_MS if group_id in CAST and letter == "a" else 45_000
        client = library(
            self._broker,
            group_id=group_id,
            kind=kind,
            assignors=(assignor,) if assignor else (),
            client_id=group.client_ids[letter],
            group_instance_id=INSTANCES[letter] if group_id in STATIC else None,
            properties=OFTEN if group_id == "pattern-classic" else {},
            **joining,
        )
        group.clients[letter] = self._running.enter_context(client)

    def join(self, group_id: str, letter: str, *topics: str, pattern: str | None = None) -> None:
        """Let a client subscribe, and start it if it was not; does not wait."""
        group = self.story.groups.get(group_id)
        if group is None or letter not in group.clients:
            self.start(group_id, letter)
        group = self.story.groups[group_id]
        group.present.add(letter)
        group.clients[letter].subscribe(*topics, pattern=pattern)

    def take(self, name: str, also: Callable[[], bool] = lambda: True) -> None:
        """Take a stable moment of all groups."""
        groups = self.story.groups.values()
        self.story.moments[name] = take_moment(
            name, groups, self._admins, self._job, also=also, timeout_s=120
        )


def play(stage: Stage, broker: KafkaBroker, job: LiveJob) -> Story:
    """Play the story; its moments are taken on the way."""
    story, groups = stage.story, stage.story.groups
    for group_id in (*CAST, *CONVERTED, *DELETED, *STATIC):
        stage.join(group_id, "a", "orders")
        groups[group_id].wanted = (OLD,)
    for group_id in BY_PATTERN:
        stage.join(group_id, "a", pattern="by-pattern-.*")
        groups[group_id].wanted = (MATCHED_ONE,)
    for group_id in (*CAST, *CONVERTED, *STATIC):
        stage.start(group_id, "b")
    stage.take("one member")

    # Not before: of a generation that a second member interrupts Kafka keeps no record.
    for group_id in (*CAST, *CONVERTED, *STATIC):
        stage.join(group_id, "b", "orders")
    for group_id in (*DELETED, "before"):
        groups[group_id].leave("a")
        groups[group_id].wanted = (frozenset(),)
    stage.take("two members")

    story.grown_ms = time.time_ns() // 1_000_000
    broker.grow_topic("orders", 8)
    broker.create_topic("by-pattern-2", 2)
    for group_id in (*CONVERTED, "static-consumer", *CAST):
        groups[group_id].wanted = (OLD,) if group_id in CLASSIC_CAST else (GROWN,)
    for group_id in BY_PATTERN:
        groups[group_id].wanted = (MATCHED_ONE, MATCHED_BOTH)

    def alerts_fire() -> bool:
        firing = {row["group_id"] for row in latest_alerts(job.tables) if row["status"] == "firing"}
        return firing >= {*CLASSIC_CAST, "static-classic"}

    for group_id in CAST:
        stage.start(group_id, "c")
    for group_id in STATIC:
        stage.start(group_id, "A")
    stage.take("topic grown", alerts_fire)

    # Before the others move: a later record in its partition tells a deletion from a change of protocol.
    for deleted in broker.admin.delete_consumer_groups(DELETED).values():
        deleted.result(timeout=20)
    story.deleted_ms = time.time_ns() // 1_000_000
    for group_id in DELETED:
        groups[group_id].wanted = ()
    cast = [groups[group_id] for group_id in CAST]
    for group in cast:
        more = () if group.group_id in ALIKE_ONLY else ("bills",)
        stage.join(group.group_id, "c", "orders", *more)
        group.clients["b"].subscribe("orders", *more)
        # Whoever leads may not have heard of the growth yet.
        group.wanted = tuple(known | (OF_BILLS if more else frozenset()) for known in (OLD, GROWN))
    for group_id in STATIC:
        groups[group_id].leave("a")
        groups[group_id].clients["a"].wait_for("left")
        stage.join(group_id, "A", "orders")
    groups["static-classic"].wanted = (OLD, GROWN)
    for group_id in BY_PATTERN:
        groups[group_id].wanted = (MATCHED_BOTH,)
    stage.take("three members")

    story.killed_ms = time.time_ns() // 1_000_000
    for group in cast:
        group.kill("a")
    groups["upgraded"].leave("a")
    groups["downgraded"].leave("b")
    groups["downgraded"].wanted = (OLD, GROWN)
    for group_id in DELETED:
        stage.join(group_id, "b", "orders")
        groups[group_id].wanted = (GROWN,)
    stage.take("one crashed")

    for group in cast:
        group.leave("b")
        # This one came after the growth, so it knows of it.
        group.wanted = (max(group.wanted, key=len),)
    stage.take("one left")

    for group in cast:
        group.leave("c")
        group.wanted = (frozenset(),)
    stage.take("none left")
    return story


@pytest.fixture(scope="module")
def story(spark: SparkSession, kafka: KafkaBroker, tmp_path_factory: pytest.TempPathFactory) -> Story:
    """Play the story once for all tests here, on a broker with patience of its own."""
    del kafka  # Where it cannot be built this one cannot either.
    folder = tmp_path_factory.mktemp("live")
    patience = {
        f"group.{kind}.{setting}": str(value)
        for kind in ("consumer", "share")
        for setting, value in (("session.timeout.ms", SESSION_MS), ("heartbeat.interval.ms", HEARTBEAT_MS))
    }
    with ExitStack() as running:
        broker = running.enter_context(KafkaBroker(folder / "kafka", rack="rack-a", properties=patience))
        for topic, partitions in (("orders", 6), ("bills", 3), ("by-pattern-1", 2)):
            broker.create_topic(topic, partitions)
        broker.produce("orders", {partition: [b"so that offsets are committed"] for partition in range(6)})
        job = LiveJob(
            spark,
            folder / "job",
            broker,
            starting="latest",
            alerts__UnassignedPartitions__for_s=str(ALERT_FOR_S),
        )
        admins = running.enter_context(AdminClients(broker))
        stage = Stage(broker, job, admins, running)
        stage.join("before", "a", "orders")
        before = stage.story.groups["before"]
        before.wanted = (OLD,)
        wait_until(lambda: before.clients["a"].owned == OLD, 60, "the first group owns nothing")
        running.enter_context(job)
        told = play(stage, broker, job)
        job.stop()
        names = ("generations", "assignment_deltas", "alert_events", "checks", "rejected_events")
        told.rows = {name: read_table(job.tables, name).to_pylist() for name in names}
        return told


@pytest.mark.parametrize("name", MOMENTS)
def test_tables_say_what_the_admin_client_says(story: Story, name: str) -> None:
    """State, protocol, members with ids, clients, hosts and instances, and every owner are the same."""
    moment = story.moments[name]
    not_seen_yet = {"before"} if name == MOMENTS[0] else set()
    shown, told = (
        {group_id: group for group_id, group in by_whom.items() if group_id not in not_seen_yet}
        for by_whom in (moment.shown, moment.told)
    )
    assert shown == told


@dataclass(slots=True)
class Life:
    """One member_id's: its net gains and losses with the generation of each, and what it owned at the end."""

    changes: list[tuple[int, Pair, str]] = field(default_factory=list)
    at_end: frozenset[Pair] = frozenset()


def lives_by_callbacks(events: list[Event], *, is_eager: bool) -> dict[str, Life]:
    """Fold one client's callbacks up to the end of its membership: member_id -> its life.

    An eager member gives everything up before it joins again: that is how it moves, not what the leader
    decided, so only what stands when it is assigned anew counts. Any other member's callbacks count each.
    """
    lives: dict[str, Life] = {}
    owned: frozenset[Pair] = frozenset()
    life = Life()
    for event in events:
        if event.kind == "assigned":
            life = lives.setdefault(event.member_id or "", life if life.at_end else Life())
            owned |= event.partitions
        elif event.kind == "revoked":
            owned -= event.partitions
        elif event.kind == "lost":
            owned, life = frozenset(), Life()
            continue
        else:
            continue
        if event.kind == "assigned" or not is_eager:
            generation_id = -1 if event.generation_id is None else event.generation_id
            life.changes += [(generation_id, pair, "revoked") for pair in sorted(life.at_end - owned)]
            life.changes += [(generation_id, pair, "assigned") for pair in sorted(owned - life.at_end)]
            life.at_end = owned
    return lives


def lives_by_deltas(deltas: list[Row]) -> dict[str, Life]:
    """Fold a group's deltas the same way; what a member lost when it was gone is what it owned at the end."""
    lives: dict[str, Life] = {}
    for row in deltas:
        life = lives.setdefault(row["member_id"], Life())
        pair = (row["topic"], row["partition"])
        if row["change"] == "lost":
            life.at_end |= {pair}
        else:
            life.changes.append((row["generation_id"], pair, row["change"]))
    return lives


def by_partition(life: Life) -> dict[Pair, list[str]]:
    """Give what happened to each partition, in order."""
    history: dict[Pair, list[str]] = {}
    for _, pair, change in life.changes:
        history.setdefault(pair, []).append(change)
    return history


@pytest.mark.parametrize("group_id", WITH_CALLBACKS)
def test_deltas_are_what_the_clients_callbacks_reported(story: Story, group_id: str) -> None:
    """Every partition came to and went from every member as its own callbacks say.

    In a classic group each change bears the generation that the client names; under KIP-848 a client names
    its own epoch, which runs behind the group's, so there the order for each partition is held to it.
    """
    group = story.groups[group_id]
    by_deltas = lives_by_deltas(story.deltas(group_id))
    present = {member.client_id for member in story.moments["none left"].told[group_id].members.values()}
    seen: set[str] = set()
    for letter, client in group.clients.items():
        _, kind, assignor = CAST[group_id] if group_id in CAST else SUPPORTING[group_id, letter]
        is_eager = kind == "classic" and assignor != "cooperative-sticky"
        told = lives_by_callbacks(client.events[: group.farewells.get(letter)], is_eager=is_eager)
        for member_id, life in told.items():
            held = by_deltas.get(member_id, Life())
            if group.kind == "classic" and group_id not in CONVERTED:
                assert sorted(held.changes) == sorted(life.changes), f"{letter}: {client.events}"
            else:
                assert by_partition(held) == by_partition(life), f"{letter}: {client.events}"
            is_present = letter in group.present and group.client_ids[letter] in present
            assert held.at_end == (frozenset() if is_present else life.at_end)
        seen |= told.keys()
    assert by_deltas.keys() <= seen


@pytest.mark.parametrize("group_id", JAVA_LED)
def test_java_leaders_do_what_is_expected(story: Story, group_id: str) -> None:
    """In every generation the observed owners are the expected ones, on the metadata the leader had."""
    judged = [row for row in story.versions(group_id) if row["members"]]
    assert len(judged) >= 2
    for row in judged:
        assert row["expected_status"] in {"equal", "stale_metadata"}, row["expected_note"]
        assert same_owners(owners_of(row["expected"]), owners_of(row["assignment"]))
        if row["expected_status"] == "stale_metadata":
            assert "topic 'orders' grow from 6 to 8" in row["expected_note"]


def owners_of(entries: list[Row]) -> dict[str, dict[str, list[int]]]:
    """Read a column of owners; members without partitions are left out, as in the column."""
    owners: dict[str, dict[str, list[int]]] = {}
    for entry in entries:
        if entry["partitions"]:
            owners.setdefault(entry["member_id"], {})[entry["topic"]] = entry["partitions"]
    return owners


@pytest.mark.parametrize("group_id", LED_BY_OTHERS)
def test_other_leaders_differences_are_explained(story: Story, group_id: str) -> None:
    """Where another library's leader decides otherwise than Java's would, the note names the library."""
    judged = [row for row in story.versions(group_id) if row["members"]]
    assert len(judged) >= 4
    library = "librdkafka" if CAST[group_id][0] is ConfluentClient else "kafka-python"
    for row in judged:
        assert row["expected_status"] in {"equal", "stale_metadata", "other_algorithm"}, row["expected_note"]
        if row["expected_status"] == "other_algorithm":
            assert f"is a {library} client" in row["expected_note"]


@pytest.mark.parametrize("group_id", ["java-consumer", "confluent-consumer", "java-share"])
def test_server_side_targets_are_reached(story: Story, group_id: str) -> None:
    """Every version in which nothing is under way has its coordinator's target."""
    final = [row for row in story.versions(group_id) if row["members"] and row["is_final"]]
    assert {row["expected_status"] for row in final} == {"equal"}
    assert len(final) >= 4


def test_histories_are_whole(story: Story) -> None:
    """Versions are numbered without a hole, none is missing; no owner is a second or a stranger."""
    for group_id in story.groups:
        versions = story.versions(group_id)
        assert [row["version"] for row in versions] == list(range(1, len(versions) + 1))
        assert {row["kind"] for row in versions[1:]} <= {"rebalance", "deleted"}, group_id
        assert versions[0]["kind"] == ("baseline" if group_id == "before" else "rebalance")
    failed = [row for row in story.rows["checks"] if row["severity"] == "critical" and not row["success"]]
    # That is no fault of the history: leaders did leave partitions out of which they had no metadata.
    assert {row["check"] for row in failed} <= {"unowned_partitions"}
    assert story.rows["rejected_events"] == []


def test_what_was_there_before_is_a_baseline(story: Story) -> None:
    """A group older than the watching is unknown until its next generation, of which nothing moved."""
    assert story.moments[MOMENTS[0]].shown["before"].state == "Unknown"
    first, *_ = story.versions("before")
    assert first["reason"] == "first_seen"
    assert not [row for row in story.deltas("before") if row["version"] == 1]


def test_a_growth_is_reported_in_one_batch(story: Story) -> None:
    """The batch that hears of the growth counts, in every classic group, two partitions without an owner."""
    log = story.rows["generations"]
    of_orders = [r for r in log if r["kind"] == "topic" and r["topic_state"]["topic"] == "orders"]
    first = min(row["batch_seq"] for row in of_orders if row["topic_state"]["partition_count"] == 8)
    same_batch = [row for row in log if row["batch_seq"] == first]
    unowned = {row["group_id"]: row["balance"]["unowned"] for row in same_batch if row["kind"] == "state"}
    assert {group_id: unowned.get(group_id) for group_id in JAVA_LED + LED_BY_OTHERS} == dict.fromkeys(
        JAVA_LED + LED_BY_OTHERS, 2
    )


@pytest.mark.parametrize("group_id", JAVA_LED + LED_BY_OTHERS)
def test_the_alert_fires_after_its_time(story: Story, group_id: str) -> None:
    """Pending from the growth on, it fires when its time is over, and ends when all have owners."""
    changes = sorted(
        (row for row in story.rows["alert_events"] if row["group_id"] == group_id),
        key=lambda row: row["change_number"],
    )
    incident = [
        row
        for row in changes
        if row["alertname"] == "UnassignedPartitions"
        and row["event_time"].timestamp() * 1000 >= story.grown_ms
    ]
    pending, firing = incident[:2]
    assert [pending["status"], firing["status"]] == ["pending", "firing"]
    assert (firing["event_time"] - pending["event_time"]).total_seconds() == ALERT_FOR_S
    if group_id in CAST:
        assert incident[-1]["status"] == "resolved"


def test_an_upgrade_and_a_downgrade_go_on_with_the_history(story: Story) -> None:
    """A group that changes its protocol while it runs is one group: nothing ends, nothing begins anew."""
    for group_id, told in (
        ("upgraded", "upgraded to the consumer"),
        ("downgraded", "downgraded to the classic"),
    ):
        versions = story.versions(group_id)
        assert {row["kind"] for row in versions} == {"rebalance"}
        assert {row["incarnation"] for row in versions} == {1}
        assert sum(told in row["reason"] for row in versions) == 1
        generations = [row["generation_id"] for row in versions]
        assert generations == sorted(generations)
    kinds = [row["rebalance_protocol"] for row in story.versions("upgraded") if row["members"]]
    assert list(dict.fromkeys(kinds)) == ["EAGER", "CONSUMER"]
    kinds = [row["rebalance_protocol"] for row in story.versions("downgraded") if row["members"]]
    assert kinds[-1] == "EAGER"
    assert "CONSUMER" in kinds


@pytest.mark.parametrize("group_id", DELETED)
def test_a_deleted_group_ends_and_may_begin_anew(story: Story, group_id: str) -> None:
    """Deletion makes one version; what comes under the same name later is another incarnation, seen whole."""
    versions = story.versions(group_id)
    (deleted,) = [row for row in versions if row["kind"] == "deleted"]
    assert (deleted["incarnation"], deleted["group_state"]) == (1, "Dead")
    assert story.grown_ms < deleted["event_time"].timestamp() * 1000 <= story.deleted_ms
    anew = [row for row in versions if row["version"] > deleted["version"]]
    assert {(row["incarnation"], row["kind"]) for row in anew} == {(2, "rebalance")}


@pytest.mark.parametrize("group_id", STATIC)
def test_a_static_member_comes_back_to_its_partitions(story: Story, group_id: str) -> None:
    """A restarted static member takes its predecessor's place: a new member_id, and nobody else moves."""
    (replaced,) = [row for row in story.versions(group_id) if "static_member_replaced i1" in row["reason"]]
    assert replaced["balance"]["moved"] == 0
    before = next(row for row in story.versions(group_id) if row["version"] == replaced["version"] - 1)
    instances = [
        {m["member_id"]: m["group_instance_id"] for m in row["members"]} for row in (before, replaced)
    ]
    assert sorted(instances[0].values()) == sorted(instances[1].values()) == ["i1", "i2"]
    assert len(instances[0].keys() & instances[1].keys()) == 1


@pytest.mark.parametrize("group_id", BY_PATTERN)
def test_a_pattern_takes_new_topics_in(story: Story, group_id: str) -> None:
    """A topic that comes to match is subscribed to and owned; under KIP-848 the pattern itself is shown."""
    *_, last = story.versions(group_id)
    assert set(last["subscribed_topics"]) == {"by-pattern-1", "by-pattern-2"}
    (member,) = last["members"]
    assert (member["topics_pattern"] is not None) == (group_id == "pattern-consumer")


@pytest.mark.parametrize("group_id", CAST)
def test_the_crashed_are_missed_when_their_sessions_end(story: Story, group_id: str) -> None:
    """A killed member is in the group until its session ends, and then its partitions are lost."""
    crashed = next(
        member_id
        for member_id, member in story.moments["three members"].told[group_id].members.items()
        if member.client_id == f"{group_id}-a"
    )
    without = next(
        row
        for row in story.versions(group_id)
        if row["event_time"].timestamp() * 1000 > story.killed_ms
        and crashed not in {member["member_id"] for member in row["members"]}
    )
    # The last heartbeat before the kill was at most HEARTBEAT_MS old, on a busy machine more.
    assert without["event_time"].timestamp() * 1000 - story.killed_ms > SESSION_MS / 2
    assert f"member_left {crashed}" in without["reason"]
    owned = story.moments["three members"].told[group_id].members[crashed].owned
    lost = [r for r in story.deltas(group_id) if r["change"] == "lost" and r["member_id"] == crashed]
    assert {(row["topic"], row["partition"]) for row in lost} == owned
