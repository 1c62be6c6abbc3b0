"""A job that watches a real broker, and two words on each group: the admin client's and the tables'."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupType,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import OffsetSpec

from conf.settings import load_settings
from console.tables import latest_assignments, latest_groups
from streaming.job import Job
from tests.kafka_cluster import KafkaBroker, Pair, java_command, wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.kafka_members import GroupMember

Row = dict[str, Any]

CLUSTER = "live"
OFFSETS_TOPIC = "__consumer_offsets"


_NOT_READY = {
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
}
"""What a broker says for a while after it was started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSeen:
    """One member as somebody describes it; hosts as Kafka prints them."""

    client_id: str
    host: str
    group_instance_id: str | None
    owned: frozenset[Pair]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSeen:
    """One group as somebody describes it.

    `kind` is classic, consumer or share. `protocol` is "" where a group has none, as without members or of
    kind share. `members` is by member_id.
    """

    state: str
    kind: str
    protocol: str
    members: Mapping[str, MemberSeen] = field(hash=False)

    @property
    def owned_by_client(self) -> dict[str, frozenset[Pair]]:
        """Give client_id -> what it owns; in our tests no two members of a group share one."""
        return {member.client_id: member.owned for member in self.members.values()}


GroupsSeen = dict[str, GroupSeen]
"""group_id -> the group; one that does not exist is absent."""


class AdminClients:
    """Asks the broker for whole groups: librdkafka's admin client, and Java's for share groups."""

    def __init__(self, broker: KafkaBroker) -> None:
        """Start the process that asks for share groups."""
        self._broker = broker
        with broker.client_log("share-groups").open("wb") as log:
            self._java = subprocess.Popen(
                java_command("64m", "counterpoise.ShareGroups", broker.bootstrap_servers),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                encoding="utf-8",
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._java.kill()
        self._java.wait()
        for pipe in (self._java.stdin, self._java.stdout):
            assert pipe is not None
            pipe.close()

    def describe(self, group_ids: Iterable[str], share_group_ids: Sequence[str] = ()) -> GroupsSeen:
        """Ask for groups by name; one whose coordinator is not ready has the error's name for a state."""
        found: GroupsSeen = {}
        futures = self._broker.admin.describe_consumer_groups(list(group_ids), request_timeout=20)
        for group_id, future in futures.items():
            try:
                group = future.result(timeout=25)
            except KafkaException as error:
                code = error.args[0].code()
                if code in _NOT_READY:
                    found[group_id] = GroupSeen(state=error.args[0].name(), kind="", protocol="", members={})
                elif code != KafkaError.GROUP_ID_NOT_FOUND:
                    raise
                continue
            if group.state is ConsumerGroupState.DEAD:
                continue
            found[group_id] = GroupSeen(
                state=group.state.name.title(),
                kind="consumer" if group.type is ConsumerGroupType.CONSUMER else "classic",
                protocol=group.partition_assignor if group.members else "",
                members={
                    member.member_id: MemberSeen(
                        client_id=member.client_id,
                        host=member.host,
                        group_instance_id=member.group_instance_id,
                        owned=frozenset((tp.topic, tp.partition) for tp in _partitions_of(member)),
                    )
                    for member in group.members
                },
            )
        return found | (self._describe_share(share_group_ids) if share_group_ids else {})

    def _describe_share(self, group_ids: Sequence[str]) -> GroupsSeen:
        assert self._java.stdin is not None
        assert self._java.stdout is not None
        self._java.stdin.write(json.dumps(group_ids) + "\n")
        self._java.stdin.flush()
        answer = json.loads(self._java.stdout.readline())
        return {
            group_id: GroupSeen(
                state=group["state"],
                kind="share",
                protocol="",
                members={
                    member["member_id"]: MemberSeen(
                        client_id=member["client_id"],
                        host=member["host"],
                        group_instance_id=None,
                        owned=frozenset((topic, partition) for topic, partition in member["partitions"]),
                    )
                    for member in group["members"]
                },
            )
            for group_id, group in answer.items()
        }


def _partitions_of(member: Any) -> Collection[TopicPartition]:
    return member.assignment.topic_partitions if member.assignment is not None else ()


class LiveJob:
    """The job over one broker's `__consumer_offsets`, in a thread; it can be stopped and started again.

    A context manager that stops it. `tables` is where its tables lie.
    """

    def __init__(
        self, spark: SparkSession, folder: Path, broker: KafkaBroker, *, starting: str, **settings: str
    ) -> None:
        """Write its settings; those given are laid over them, with `__` for the dot."""
        self.tables = str(folder / "tables")
        self._spark, self._broker = spark, broker
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / "conf.toml"
        file.write_text(
            f'[clusters.{CLUSTER}.kafka]\n"bootstrap.servers" = "{broker.bootstrap_servers}"\n'
            '[[sources]]\nname = "offsets"\nformat = "offsets"\nfrom = "kafka"\n'
            f'cluster = "{CLUSTER}"\nstarting = "{starting}"\n',
            encoding="utf-8",
        )
        overrides = {
            "job.tables": self.tables,
            "job.checkpoint_location": str(folder / "checkpoint"),
            "job.trigger_interval_s": "0.5",
            "job.tick_interval_s": "1.0",
            f"clusters.{CLUSTER}.metadata_interval_s": "2.0",
            **{name.replace("__", "."): value for name, value in settings.items()},
        }
        self._settings = load_settings(file, {}, overrides)
        self._stop = threading.Event()
        self._queries_of_others: set[str] = set()
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._thread is not None:
            self.stop()

    def start(self) -> None:
        """Start it and wait for its first batch: from there on it misses nothing."""
        # Kafka makes the topic when somebody first asks who coordinates a group.
        asked = self._broker.admin.describe_consumer_groups(["counterpoise-tests-ask"], request_timeout=20)
        for future in asked.values():
            _ = future.exception(timeout=25)
        self._queries_of_others = {query.id for query in self._spark.streams.active}
        self._stop = threading.Event()
        job = Job(self._spark, self._settings)
        self._thread = threading.Thread(target=self._run, args=(job, self._stop), name="job")
        self._thread.start()
        try:
            wait_until(lambda: self.read_to() is not None, 60, "the job has not taken its first batch")
        except BaseException:
            self.stop()
            raise

    def _run(self, job: Job, stop: threading.Event) -> None:
        try:
            job.run(once=False, stop=stop)
        except BaseException as error:
            self._failure = error
            raise

    def stop(self) -> None:
        """End it in good order; raises what made it end before."""
        assert self._thread is not None
        self._stop.set()
        self._thread.join(60)
        self._thread = None
        if self._failure is not None:
            raise self._failure

    @property
    def is_running(self) -> bool:
        """Say whether the job's thread lives."""
        return self._thread is not None and self._thread.is_alive()

    def read_to(self) -> dict[int, int] | None:
        """Give how far committed batches have read: partition -> offset; None before the first.

        Raises:
            RuntimeError: the job has ended by itself.
        """
        if self._failure is not None or not self.is_running:
            message = "the job has ended by itself"
            raise RuntimeError(message) from self._failure
        queries = (q for q in self._spark.streams.active if q.id not in self._queries_of_others)
        for query in queries:
            progress = query.lastProgress
            for source in json.loads(progress.json)["sources"] if progress is not None else ():
                if source["description"].startswith("Kafka") and source["endOffset"]:
                    ends = source["endOffset"][OFFSETS_TOPIC]
                    return {int(partition): offset for partition, offset in ends.items()}
        return None

    def catch_up(self, timeout_s: float = 60) -> None:
        """Wait until the tables hold all that `__consumer_offsets` holds now."""
        topic = self._broker.admin.list_topics(OFFSETS_TOPIC, timeout=20).topics[OFFSETS_TOPIC]
        wanted = {TopicPartition(OFFSETS_TOPIC, number): OffsetSpec.latest() for number in topic.partitions}
        ends = {
            tp.partition: future.result(timeout=25).offset
            for tp, future in self._broker.admin.list_offsets(wanted, request_timeout=20).items()
        }

        def is_there() -> bool:
            read = self.read_to() or {}
            return all(read.get(number, 0) >= end for number, end in ends.items())

        wait_until(is_there, timeout_s, lambda: f"the job has read to {self.read_to()} of {ends}")

    def describe(self, group_ids: Collection[str]) -> GroupsSeen:
        """Give what the tables say of these groups now, snapshot and tail, as `describe` reads them."""
        owned: dict[tuple[str, str], set[Pair]] = {}
        for row in latest_assignments(self.tables):
            if row["member_id"] is not None:
                key = (row["group_id"], row["member_id"])
                owned.setdefault(key, set()).add((row["topic"], row["partition"]))
        found = {}
        for group in latest_groups(self.tables):
            if (group_id := group["group_id"]) in group_ids:
                found[group_id] = GroupSeen(
                    state=group["group_state"],
                    kind={"CONSUMER": "consumer", "SHARE": "share"}.get(
                        group["rebalance_protocol"] or "", "classic"
                    ),
                    protocol=group["protocol"] or "",
                    members={
                        member["member_id"]: MemberSeen(
                            client_id=member["client_id"],
                            host=member["client_host"],
                            group_instance_id=member["group_instance_id"],
                            owned=frozenset(owned.get((group_id, member["member_id"]), ())),
                        )
                        for member in group["members"] or ()
                    },
                )
        return found


@dataclass(slots=True, kw_only=True)
class WatchedGroup:
    """One group of a story and its clients.

    Attributes:
        group_id: the group.
        kind: classic, consumer or share.
        clients: every client that was started for it, by a letter.
        client_ids: letter -> the client's client_id, a restarted static member's being its predecessor's.
        present: the letters of those that are members by now, or are about to be.
        farewells: letter -> how many events the client had reported when it was told to go.
        wanted: what they must own together, each of the sets given being all right; none of a group that
            is to be no more.
    """

    group_id: str
    kind: str
    clients: dict[str, GroupMember] = field(default_factory=dict)
    client_ids: dict[str, str] = field(default_factory=dict)
    present: set[str] = field(default_factory=set)
    farewells: dict[str, int] = field(default_factory=dict)
    wanted: tuple[frozenset[Pair], ...] = (frozenset(),)

    def leave(self, letter: str) -> None:
        """Let a client close, and note what it reported so far; does not wait."""
        self._say_goodbye(letter)
        self.clients[letter].send("leave")

    def kill(self, letter: str) -> None:
        """End a client with kill -9, and note what it reported."""
        self.clients[letter].kill()
        self._say_goodbye(letter)

    def _say_goodbye(self, letter: str) -> None:
        self.farewells[letter] = len(self.clients[letter].events)
        self.present.discard(letter)

    def last_events(self) -> dict[str, list[str]]:
        """Say for a failure's message what each client reported last, and what its library logged last."""
        return {
            letter: [
                *(f"{event.kind} {event.generation_id} {dict(event.more)}" for event in client.events[-3:]),
                client.log.read_text(encoding="utf-8", errors="replace")[-300:],
            ]
            for letter, client in self.clients.items()
        }

    def why_unsettled(self, told: GroupSeen | None) -> str:
        """Say why the group is in no stable moment, "" when it is in one.

        It is when the coordinator calls it so, its members are the clients that are to be there, each owns by
        its own callbacks what the coordinator says, and together they own what they must. The members of a
        share group have no callbacks, and own together more than once.
        """
        if told is None or not self.wanted:
            return "" if told is None and not self.wanted else f"it is {told and told.state}"
        if told.state != ("Stable" if self.present else "Empty"):
            return f"it is {told.state}"
        owned = told.owned_by_client
        told_by_clients = {self.client_ids[letter]: self.clients[letter].owned for letter in self.present}
        if owned.keys() != told_by_clients.keys():
            return f"its members are {sorted(owned)}, not {sorted(told_by_clients)}"
        if self.kind != "share" and told_by_clients != owned:
            return f"its members say {told_by_clients}, the broker {owned}"
        together = frozenset(pair for of_member in owned.values() for pair in of_member)
        if not any(together == wanted for wanted in self.wanted):
            return f"its members own {sorted(together)}, not {list(map(sorted, self.wanted))}"
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A stable moment: what the admin clients said, before and after, and what the tables said in between."""

    name: str
    told: GroupsSeen = field(hash=False)
    shown: GroupsSeen = field(hash=False)


def take_moment(
    name: str,
    groups: Collection[WatchedGroup],
    admins: AdminClients,
    job: LiveJob,
    *,
    also: Callable[[], bool] = lambda: True,
    timeout_s: float = 60,
) -> Moment:
    """Wait until all groups are settled and the job has caught up, and put down who says what.

    Raises:
        TimeoutError: some group never settled; with why.
    """
    share = [group.group_id for group in groups if group.kind == "share"]
    others = [group.group_id for group in groups if group.kind != "share"]
    deadline = time.monotonic() + timeout_s
    while True:
        told = admins.describe(others, share)
        open_ = {g.group_id: why for g in groups if (why := g.why_unsettled(told.get(g.group_id)))}
        if not open_ and also():
            job.catch_up()
            shown = job.describe({*others, *share})
            # Had something moved meanwhile, the two would be of different moments.
            if admins.describe(others, share) == told:
                return Moment(name=name, told=told, shown=shown)
        if time.monotonic() > deadline:
            last = {g.group_id: g.last_events() for g in groups if g.group_id in open_}
            why = f"{open_}; {last}" if open_ else "the groups are settled, not what else must be"
            message = f"{name}: after {timeout_s} s: {why}"
            raise TimeoutError(message)
        time.sleep(0.2)
