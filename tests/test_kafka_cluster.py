"""The test bed itself: a real broker, real members of every kind, a Connect worker, and their ends."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.kafka_cluster import (
    ROOT,
    ConnectWorker,
    KafkaBroker,
    KafkaUnavailableError,
    Login,
    Pair,
    build_kafka,
    free_ports,
    wait_until,
)
from tests.kafka_members import (
    ConfluentClient,
    GroupMember,
    JavaClient,
    KafkaPythonClient,
    wait_for_owners,
)

live = pytest.mark.live

CLASSIC = [
    *((JavaClient, name) for name in ("range", "cooperative-sticky")),
    (ConfluentClient, "cooperative-sticky"),
    *((KafkaPythonClient, name) for name in ("range", "roundrobin", "sticky", "cooperative-sticky")),
]


def pairs(topic: str, partitions: int) -> list[Pair]:
    """List a topic's partitions."""
    return [(topic, partition) for partition in range(partitions)]


def owned_by_member(broker: KafkaBroker, group_id: str) -> dict[str, set[Pair]]:
    """Ask the broker itself: member_id -> its partitions."""
    (described,) = broker.admin.describe_consumer_groups([group_id]).values()
    return {
        member.member_id: {(tp.topic, tp.partition) for tp in member.assignment.topic_partitions}
        for member in described.result(timeout=20).members
    }


def check_two_members_share(
    broker: KafkaBroker, client: type[GroupMember], topic: str, **joining: Any
) -> tuple[GroupMember, GroupMember]:
    """Let one member own four partitions and a second take two of them; compare with the broker's word.

    Both are ended when this returns; their events remain.
    """
    broker.create_topic(topic, 4)
    with (
        client(broker, group_id=topic, **joining) as first,
        client(broker, group_id=topic, **joining) as second,
    ):
        first.subscribe(topic)
        wait_for_owners([first], pairs(topic, 4))
        second.subscribe(topic)
        wait_for_owners([first, second], pairs(topic, 4))
        assert [len(first.owned), len(second.owned)] == [2, 2]
        told = {
            member.wait_for("assigned", where=lambda event: event.member_id not in {"", None}).member_id: set(
                member.owned
            )
            for member in (first, second)
        }
        wait_until(
            lambda: owned_by_member(broker, topic) == told,
            10,
            lambda: f"the members say {told}, the broker {owned_by_member(broker, topic)}",
        )
        first.leave()
        wait_for_owners([second], pairs(topic, 4))
    return first, second


@live
def test_a_broker_says_where_it_stands(kafka: KafkaBroker) -> None:
    """The broker answers under its address and with its rack."""
    (node,) = kafka.admin.describe_cluster().result(timeout=20).nodes
    assert f"{node.host}:{node.port}" == kafka.bootstrap_servers
    assert node.rack == "rack-a"


@live
def test_a_broker_stays_small(kafka: KafkaBroker) -> None:
    """Several people's tests share one machine: a broker takes less than 350 MiB of it."""
    status = Path(f"/proc/{kafka.pid}/status")
    if not status.exists():
        pytest.skip("only Linux tells a process's memory in a file")
    (resident,) = (line.split() for line in status.read_text().splitlines() if line.startswith("VmRSS"))
    assert int(resident[1]) < 350 * 1024


@live
def test_topics_are_made_and_grow(kafka: KafkaBroker) -> None:
    """A topic is there with all its partitions when the call returns."""
    kafka.create_topic("bed-grows", 2, retention_ms="60000")
    kafka.grow_topic("bed-grows", 5)
    assert len(kafka.admin.list_topics("bed-grows", timeout=5).topics["bed-grows"].partitions) == 5


@live
@pytest.mark.slow  # the other live tests rest on it too
@pytest.mark.parametrize(("client", "assignor"), CLASSIC, ids=lambda value: getattr(value, "__name__", value))
def test_classic_members_report_what_they_own(
    kafka: KafkaBroker, client: type[GroupMember], assignor: str
) -> None:
    """Two members' callbacks add up to what the broker says, and their generations rise."""
    topic = f"bed-{client.__name__}-{assignor}"
    first, second = check_two_members_share(kafka, client, topic, assignors=(assignor,))
    revoked = next(event for event in first.events if event.kind == "revoked" and event.partitions)
    # An eager member gives up all before it joins again, a cooperative one only what another shall have.
    assert len(revoked.partitions) == (2 if assignor == "cooperative-sticky" else 4)
    generations = [event.generation_id or 0 for event in second.events if event.kind == "assigned"]
    assert len(generations) > 1
    assert generations == sorted(set(generations))


@live
@pytest.mark.slow  # the other live tests rest on it too
@pytest.mark.parametrize("client", [JavaClient, ConfluentClient])
def test_server_side_members_report_what_they_own(kafka: KafkaBroker, client: type[GroupMember]) -> None:
    """Under KIP-848 a member revokes just what the other is then assigned."""
    topic = f"bed-848-{client.__name__}"
    first, second = check_two_members_share(kafka, client, topic, kind="consumer", assignors=("uniform",))
    revoked = next(event.partitions for event in first.events if event.kind == "revoked")
    assigned = next(
        event.partitions for event in second.events if event.kind == "assigned" and event.partitions
    )
    assert revoked == assigned


@live
@pytest.mark.slow  # the other live tests rest on it too
def test_share_consumers_get_records(kafka: KafkaBroker) -> None:
    """A share consumer has no callbacks; its records say from which partitions it was served."""
    kafka.create_topic("bed-share", 2)
    with JavaClient(kafka, group_id="bed-share", kind="share") as member:
        member.subscribe("bed-share")
        served: set[Pair] = set()

        def is_served() -> bool:
            # A share group begins at the end of the topic, and nobody says when it has begun.
            kafka.produce("bed-share", {0: [b"a"], 1: [b"b"]})
            served.update(pair for event in tuple(member.events) for pair in event.partitions)
            return served == set(pairs("bed-share", 2))

        wait_until(is_served, 30, lambda: f"served from {served} only")
        member.leave()


@live
@pytest.mark.slow  # the other live tests rest on it too
@pytest.mark.parametrize("kind", ["classic", "consumer"])
def test_a_static_member_by_pattern_wakes_and_unsubscribes(kafka: KafkaBroker, kind: str) -> None:
    """Instance id, client id, pattern, wakeup and unsubscribe do what they do in Kafka."""
    assignors = ("roundrobin", "sticky") if kind == "classic" else ()
    name = f"bed-static-{kind}"
    for topic in (f"{name}-a", f"{name}-b"):
        kafka.create_topic(topic, 1)
    joining: dict[str, Any] = {"group_id": name, "kind": kind, "assignors": assignors}
    with JavaClient(kafka, **joining, group_instance_id="i1", client_id="c1", rack="rack-a") as member:
        member.subscribe(pattern=f"{name}-.*")
        wait_for_owners([member], [(f"{name}-a", 0), (f"{name}-b", 0)])
        (described,) = kafka.admin.describe_consumer_groups([name]).values()
        (seen,) = described.result(timeout=20).members
        assert (seen.group_instance_id, seen.client_id) == ("i1", "c1")
        member.wakeup()
        member.wait_for("woken")
        member.unsubscribe()
        assert member.owned == frozenset()


@live
@pytest.mark.slow  # the other live tests rest on it too
def test_a_killed_member_is_missed_only_when_its_session_ends(kafka: KafkaBroker) -> None:
    """After kill -9 no client says anything more, and its partitions wait for its session's end."""
    groups: list[tuple[str, GroupMember, GroupMember]] = []
    with ExitStack() as running:
        for client in (JavaClient, ConfluentClient, KafkaPythonClient):
            topic = f"bed-killed-{client.__name__}"
            kafka.create_topic(topic, 4)
            joining: dict[str, Any] = {
                "group_id": topic,
                "assignors": ("range",),
                "session_timeout_ms": 3_000,
            }
            stays = running.enter_context(client(kafka, **joining))
            dies = running.enter_context(client(kafka, **joining))
            stays.subscribe(topic)
            dies.subscribe(topic)
            groups.append((topic, stays, dies))
        for topic, stays, dies in groups:
            wait_for_owners([stays, dies], pairs(topic, 4))
        before = [len(dies.events) for _, _, dies in groups]
        killed_at_ms = time.time_ns() // 1_000_000
        for _, _, dies in groups:
            dies.kill()
        for topic, stays, _ in groups:
            wait_for_owners([stays], pairs(topic, 4))
            assigned = [event.time_ms for event in stays.events if event.kind == "assigned"]
            # Its last heartbeat was some 0.25 s old when it died; a busy machine may make it a second.
            assert assigned[-1] - killed_at_ms > 1_500
        assert [len(dies.events) for _, _, dies in groups] == before


@live
@pytest.mark.slow  # the other live tests rest on it too
@pytest.mark.parametrize("client", [JavaClient, ConfluentClient])
def test_a_crash_leaves_nothing_behind(kafka: KafkaBroker, client: type[GroupMember]) -> None:
    """A member told to crash ends with the code of a kill -9, and the group still holds it."""
    topic = f"bed-crash-{client.__name__}"
    kafka.create_topic(topic, 1)
    with client(kafka, group_id=topic, assignors=("range",), session_timeout_ms=30_000) as member:
        member.subscribe(topic)
        wait_for_owners([member], pairs(topic, 1))
        member.crash()
        assert member.events[-1].kind != "left"
        assert len(owned_by_member(kafka, topic)) == 1


@live
@pytest.mark.slow  # the other live tests rest on it too
def test_a_lost_member_says_so(kafka: KafkaBroker) -> None:
    """A member that slept through its session reports its partitions as lost, not as revoked."""
    kafka.create_topic("bed-lost", 2)
    with JavaClient(kafka, group_id="bed-lost", assignors=("range",), session_timeout_ms=1_500) as member:
        member.subscribe("bed-lost")
        wait_for_owners([member], pairs("bed-lost", 2))
        member.pause()
        wait_until(lambda: not owned_by_member(kafka, "bed-lost"), 30, "the broker still holds it")
        member.resume()
        lost = member.wait_for("lost", "revoked")
        assert (lost.kind, lost.partitions) == ("lost", frozenset(pairs("bed-lost", 2)))
        wait_for_owners([member], pairs("bed-lost", 2))


@live
@pytest.mark.slow  # the other live tests rest on it too
def test_connect_workers_share_tasks_and_inherit_them(kafka: KafkaBroker) -> None:
    """Two workers share an idle connector's tasks; after a kill -9 the other has them all."""
    options: dict[str, Any] = {
        "group_id": "bed-connect",
        "scheduled_delay_ms": 500,
        "session_timeout_ms": 3_000,
    }
    with ConnectWorker(kafka, **options) as first, ConnectWorker(kafka, **options) as second:
        first.put_connector("idle", tasks=3)
        wait_until(
            lambda: len(set(first.wait_for_running("idle", tasks=3).values())) == 2,
            30,
            lambda: f"one worker has all: {first.status('idle')}",
        )
        second.kill()
        own = first.url.removeprefix("http://")
        wait_until(
            lambda: set(first.wait_for_running("idle", tasks=3).values()) == {own},
            30,
            lambda: f"not all came to {own}: {first.status('idle')}",
        )
        first.delete_connector("idle")
        wait_until(lambda: first.status("idle") is None, 10, "the connector is still there")


@pytest.fixture(scope="module")
def guarded(kafka: KafkaBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """Start a second broker, which asks who comes, and which may be stopped."""
    del kafka  # Where it cannot be built this one cannot either.
    folder = tmp_path_factory.mktemp("guarded")
    with KafkaBroker(folder, users=("admin", "alice", "bob"), super_users=("admin",)) as running:
        running.create_topic("orders", 2)
        running.allow("alice", "READ", topic="orders")
        running.allow("alice", "READ", group="billing")
        running.allow("bob", "READ", topic="orders")
        yield running


ADMITTED = [
    *((client, "alice", "SCRAM-SHA-256") for client in (JavaClient, ConfluentClient, KafkaPythonClient)),
    *((client, "alice", "PLAIN") for client in (JavaClient, ConfluentClient, KafkaPythonClient)),
    (ConfluentClient, "admin", "SCRAM-SHA-256"),
]


@live
@pytest.mark.slow  # the other live tests rest on it too
@pytest.mark.parametrize(("client", "user", "mechanism"), ADMITTED)
def test_who_is_allowed_comes_in(
    guarded: KafkaBroker, client: type[GroupMember], user: str, mechanism: str
) -> None:
    """By either mechanism a user with ACLs and a super user without get their partitions."""
    login = guarded.login(user, mechanism)
    with client(guarded, group_id="billing", assignors=("range",), login=login) as member:
        member.subscribe("orders")
        wait_for_owners([member], pairs("orders", 2))
        member.leave()


REFUSALS = [
    (JavaClient, "GroupAuthorizationException"),
    (ConfluentClient, "GROUP_AUTHORIZATION_FAILED"),
    (KafkaPythonClient, "GroupAuthorizationFailedError"),
]


@live
@pytest.mark.slow  # the other live tests rest on it too
@pytest.mark.parametrize(("client", "refusal"), REFUSALS)
def test_who_has_no_acl_is_refused(guarded: KafkaBroker, client: type[GroupMember], refusal: str) -> None:
    """A user who may read the topic but not with this group gets an error and no partitions."""
    with client(guarded, group_id="shipping", assignors=("range",), login=guarded.login("bob")) as member:
        member.subscribe("orders")
        assert member.wait_for("error").more["error"] == refusal
        assert member.owned == frozenset()


@live
@pytest.mark.slow  # the other live tests rest on it too
def test_a_wrong_password_is_refused(guarded: KafkaBroker) -> None:
    """Nobody comes in with a password that is not theirs."""
    login = Login(user="alice", password=guarded.login("bob").password)
    with JavaClient(guarded, group_id="billing", login=login) as member:
        member.subscribe("orders")
        assert member.wait_for("error").more["error"] == "SaslAuthenticationException"


@live
@pytest.mark.slow  # the other live tests rest on it too
@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_broker_comes_back_with_its_data(guarded: KafkaBroker, end: str) -> None:
    """After an outage the broker has its port, topics and records again, and a member lives through it."""
    topic = f"outage-{end}"
    guarded.create_topic(topic, 2)
    guarded.produce(topic, {0: [b"1", b"2"], 1: [b"3"]})
    with ConfluentClient(
        guarded, group_id=topic, session_timeout_ms=30_000, properties={"auto.offset.reset": "earliest"}
    ) as member:
        address = guarded.bootstrap_servers
        member.subscribe(topic)
        wait_for_owners([member], pairs(topic, 2))
        guarded.stop() if end == "stop" else guarded.kill()
        member.wait_for("error")
        guarded.start()
        assert guarded.bootstrap_servers == address
        guarded.produce(topic, {1: [b"4"]})

        def count() -> int:
            return sum(event.more["count"] for event in tuple(member.events) if event.kind == "records")

        wait_until(lambda: count() == 4, 30, lambda: f"{count()} of 4 records came")
        assert member.owned == frozenset(pairs(topic, 2))


@live
@pytest.mark.slow  # the other live tests rest on it too
def test_a_broker_ends_with_the_run_that_started_it(kafka: KafkaBroker, tmp_path: Path) -> None:
    """A test run killed with -9 leaves no broker behind."""
    del kafka
    script = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from tests.kafka_cluster import KafkaBroker\n"
        "with KafkaBroker(Path(sys.argv[1])) as broker:\n"
        "    print(broker.pid, flush=True)\n"
        "    time.sleep(600)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "orphan")], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        line = run.stdout.readline()
        run.send_signal(signal.SIGKILL)
    command_line = Path(f"/proc/{int(line)}/cmdline")
    wait_until(
        lambda: not command_line.exists() or b"orphan" not in command_line.read_bytes(), 20, "it still runs"
    )


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Java or Maven the reason for skipping names what to install."""
    monkeypatch.setenv("PATH", "")
    with pytest.raises(KafkaUnavailableError, match="java, javac, mvn on the PATH"):
        build_kafka()


def test_ports_are_not_those_of_outgoing_connections() -> None:
    """A port found free is below the range from which a client's own end may be taken meanwhile."""
    ports = free_ports(3)
    assert len(set(ports)) == 3
    assert max(ports) < 32_768
