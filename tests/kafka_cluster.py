"""A real Kafka for the tests: one broker, Connect workers and clients, each a process of its own on loopback.

Everything here is a context manager that ends its own process, by its id, however the test ended; a process
whose test run was itself killed ends because its stdin does. The members of groups are in kafka_members.py.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import secrets
import signal
import socket
import subprocess
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewPartitions,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from tests.java_programs import build_java

ROOT = Path(__file__).resolve().parent.parent
BROKER_FOLDER = ROOT / "tests" / "broker"
_TARGET = BROKER_FOLDER / "target"
_BUILT = _TARGET / "built"
_LOOPBACK = "127.0.0.1"

Pair = tuple[str, int]
"""(topic, partition)"""

# Short runs in little memory: the cheap compiler, the small collector. The JVM's own warnings go to stdout
# unless told otherwise, where clients write their events.
_JAVA = ("java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xlog:disable", "-Xlog:all=warning:stderr")


class KafkaUnavailableError(RuntimeError):
    """Kafka cannot be built here; the message says what is missing."""


def build_kafka() -> None:
    """Fetch Kafka's jars and compile tests/broker, unless that was done since its sources changed.

    Raises:
        KafkaUnavailableError: no java, javac or mvn on the path, or Maven failed.
    """
    build_java(BROKER_FOLDER, [_BUILT], "a live Kafka (tests/broker)", KafkaUnavailableError)


def java_command(heap: str, main: str, *arguments: str) -> list[str]:
    """Write the command that runs a class with Kafka's jars and ours."""
    jars = (_TARGET / "classpath.txt").read_text(encoding="utf-8").strip()
    level = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
    classpath = os.pathsep.join((str(_TARGET / "classes"), jars))
    return [*_JAVA, f"-Xmx{heap}", level, "-cp", classpath, main, *arguments]


def free_ports(count: int) -> list[int]:
    """Find ports of loopback that nobody listens on.

    They lie below the range that the system gives to outgoing connections. A port from that range may be
    taken by anyone while a broker is down, even by a client of that broker, which then talks to itself.
    """
    try:
        lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()[0])
    except OSError:
        lowest = 32_768
    # The system's randomness: pytest-randomly seeds the other one, for two runs at once alike.
    candidates = random.SystemRandom().sample(range(10_000, min(max(lowest, 20_000), 32_768)), 200)
    found: list[int] = []
    for port in candidates:
        with socket.socket() as probe:
            try:
                probe.bind((_LOOPBACK, port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    message = f"{count} free ports wanted below {lowest}, found {found}"
    raise RuntimeError(message)


def wait_until(check: Callable[[], object], timeout_s: float, failure: Callable[[], str] | str) -> None:
    """Ask until the answer is true.

    Raises:
        TimeoutError: it never was; with the failure's words as they are at the end.
    """
    deadline = time.monotonic() + timeout_s
    while not check():
        if time.monotonic() > deadline:
            message = f"after {timeout_s} s: {failure if isinstance(failure, str) else failure()}"
            raise TimeoutError(message)
        time.sleep(0.05)


class _Server:
    """A JVM that serves until it is stopped; what it says goes to a file of its folder."""

    def __init__(self, folder: Path, heap: str, main: str, properties_file: Path) -> None:
        self.folder = folder
        self.log = folder / f"{properties_file.stem}.log"
        self._heap, self._main, self._properties_file = heap, main, properties_file
        self._process: subprocess.Popen[bytes] | None = None

    def _is_ready(self) -> bool:
        raise AssertionError

    @property
    def pid(self) -> int:
        """The process id of the running server."""
        assert self._process is not None, "it was not started"
        return self._process.pid

    def start(self, timeout_s: float = 60) -> None:
        """Start it on the data and the ports it has, and wait until it answers.

        Raises:
            RuntimeError: it ended instead; with the end of its log.
            TimeoutError: it does not answer; likewise.
        """
        command = java_command(self._heap, "counterpoise.Tethered", self._main, str(self._properties_file))
        with self.log.open("ab") as log:
            # In a process group of its own: a terminal's Ctrl-C is for who starts it, and stops it then.
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=log, stderr=log, process_group=0
            )
        try:
            wait_until(
                self._has_answered, timeout_s, lambda: f"{self._main} does not answer: {self._log_end()}"
            )
        except BaseException:
            self.kill()
            raise

    def _has_answered(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            message = f"{self._main} ended with code {self._process.returncode}: {self._log_end()}"
            raise RuntimeError(message)
        return self._is_ready()

    def _log_end(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")[-1500:]

    def stop(self, timeout_s: float = 20) -> None:
        """Ask it to end in good order, and insist after the timeout."""
        self._end(signal.SIGTERM, timeout_s)

    def kill(self) -> None:
        """End it at once, as kill -9 does."""
        self._end(signal.SIGKILL, 20)

    def _end(self, how: signal.Signals, timeout_s: float) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        assert process.stdin is not None
        process.stdin.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """How a client shows who it is on a broker's SASL listener."""

    user: str
    password: str = field(repr=False)
    mechanism: str = "SCRAM-SHA-256"

    def librdkafka(self) -> dict[str, str]:
        """Give the properties of confluent-kafka."""
        return {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": self.mechanism,
            "sasl.username": self.user,
            "sasl.password": self.password,
        }

    def kafka_python(self) -> dict[str, str]:
        """Give the arguments of kafka-python."""
        return {
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": self.mechanism,
            "sasl_plain_username": self.user,
            "sasl_plain_password": self.password,
        }

    def java(self) -> dict[str, str]:
        """Give the properties of Kafka's own clients."""
        module = "plain.PlainLoginModule" if self.mechanism == "PLAIN" else "scram.ScramLoginModule"
        return {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": self.mechanism,
            "sasl.jaas.config": f"org.apache.kafka.common.security.{module} required "
            f'username="{self.user}" password="{self.password}";',
        }


_FAST_GROUPS = {
    # Kafka's own lower bounds would make every crash in a test cost 6 s, under KIP-848 45 s.
    "group.min.session.timeout.ms": "500",
    "group.initial.rebalance.delay.ms": "100",
    **{
        f"group.{kind}.{setting}": value
        for kind in ("consumer", "share")
        for setting, value in (
            ("min.session.timeout.ms", "1000"),
            ("session.timeout.ms", "3000"),
            ("min.heartbeat.interval.ms", "200"),
            ("heartbeat.interval.ms", "500"),
        )
    },
}

_ONE_SMALL_NODE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "inter.broker.listener.name": "BROKER",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT",
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    # After a kill -9 the controller keeps the dead broker's place this long; 9 s by default.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "auto.create.topics.enable": "false",
    "num.network.threads": "2",
    "num.io.threads": "2",
    # Its default is 128 MiB of heap, taken at the start.
    "log.cleaner.dedupe.buffer.size": "4194304",
}


def _write_properties(path: Path, properties: Mapping[str, str]) -> None:
    lines = (f"{key}={value}\n" for key, value in properties.items())
    path.write_text("".join(lines), encoding="utf-8")


class KafkaBroker(_Server):
    """One KRaft node, broker and controller, on loopback ports that it keeps when it is started again.

    With users there is a third listener, SASL_PLAINTEXT, for PLAIN and SCRAM-SHA-256, and Kafka's
    StandardAuthorizer: a user may do what `allow` allowed, a super user everything, and so may whoever comes
    over the plain listener, which is the tests' own way in.

    Source: design of KRaft's combined mode, KIP-500; `kafka.tools.StorageTool`, `kafka.Kafka`.
    """

    def __init__(
        self,
        folder: Path,
        *,
        rack: str | None = None,
        users: Sequence[str] = (),
        super_users: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        heap: str = "512m",
    ) -> None:
        """Choose ports and write the properties.

        Args:
            folder: an empty or absent folder for data, properties and logs.
            rack: the broker's rack id.
            users: names; the passwords are made up.
            super_users: those of the users whom no ACL binds.
            properties: server properties over ours.
            heap: the JVM's -Xmx.
        """
        folder.mkdir(parents=True, exist_ok=True)
        broker, controller, sasl = free_ports(3)
        self.bootstrap_servers = f"{_LOOPBACK}:{broker}"
        self.sasl_bootstrap_servers = f"{_LOOPBACK}:{sasl}" if users else None
        self._passwords = {user: secrets.token_hex(8) for user in users}
        self._clients = 0
        listeners = [f"BROKER://{_LOOPBACK}:{broker}", f"CONTROLLER://{_LOOPBACK}:{controller}"]
        server = {**_ONE_SMALL_NODE, **_FAST_GROUPS}
        server["controller.quorum.voters"] = f"1@{_LOOPBACK}:{controller}"
        server["log.dirs"] = str(folder / "data")
        if rack is not None:
            server["broker.rack"] = rack
        if users:
            listeners.append(f"SASL://{_LOOPBACK}:{sasl}")
            server |= self._security(super_users)
        server["listeners"] = ",".join(listeners)
        properties_file = folder / "broker.properties"
        _write_properties(properties_file, {**server, **(properties or {})})
        super().__init__(folder, heap, "kafka.Kafka", properties_file)
        # librdkafka would wait up to 10 s before it tries again a broker that came back.
        self.admin = AdminClient(
            {"bootstrap.servers": self.bootstrap_servers, "reconnect.backoff.max.ms": 250, "log_level": 0}
        )

    def _security(self, super_users: Sequence[str]) -> dict[str, str]:
        """Give the properties of the SASL listener and of the authorizer."""
        jaas = "org.apache.kafka.common.security"
        plain = " ".join(f'user_{user}="{password}"' for user, password in self._passwords.items())
        return {
            "listener.name.sasl.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
            "listener.name.sasl.plain.sasl.jaas.config": f"{jaas}.plain.PlainLoginModule required {plain};",
            "listener.name.sasl.scram-sha-256.sasl.jaas.config": f"{jaas}.scram.ScramLoginModule required;",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": ";".join(f"User:{user}" for user in ("ANONYMOUS", *super_users)),
        }

    def start(self, timeout_s: float = 60) -> None:
        """Start it; the first time its data folder is formatted before."""
        build_kafka()
        if not (self.folder / "data").exists():
            self._format()
        super().start(timeout_s)

    def _format(self) -> None:
        """Write the data folder's identity and the users' SCRAM credentials."""
        cluster_id = urlsafe_b64encode(uuid.uuid4().bytes).decode("ascii").rstrip("=")
        arguments = ["format", f"--cluster-id={cluster_id}", f"--config={self._properties_file}"]
        for user, password in self._passwords.items():
            arguments.append(f"--add-scram=SCRAM-SHA-256=[name={user},password={password}]")
        command = java_command("128m", "kafka.tools.StorageTool", *arguments)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            message = f"the data folder was not formatted: {(done.stdout + done.stderr)[-1500:]}"
            raise RuntimeError(message)

    def _is_ready(self) -> bool:
        try:
            found = self.admin.list_topics(timeout=1)
        except KafkaException:
            return False
        return bool(found.brokers)

    def login(self, user: str, mechanism: str = "SCRAM-SHA-256") -> Login:
        """Give what a client needs to come in as one of the users."""
        return Login(user=user, password=self._passwords[user], mechanism=mechanism)

    def allow(self, user: str, operation: str, *, topic: str | None = None, group: str | None = None) -> None:
        """Let a user do one thing (READ, DESCRIBE, ...) with one topic or one group."""
        assert (topic is None) != (group is None), "one topic or one group"
        binding = AclBinding(
            ResourceType.GROUP if topic is None else ResourceType.TOPIC,
            topic or group or "",
            ResourcePatternType.LITERAL,
            f"User:{user}",
            "*",
            AclOperation[operation],
            AclPermissionType.ALLOW,
        )
        for made in self.admin.create_acls([binding]).values():
            made.result(timeout=20)

    def create_topic(self, topic: str, partitions: int, **config: str) -> None:
        """Make a topic and wait until it has its partitions; a config's dots are written as underscores."""
        dotted = {key.replace("_", "."): value for key, value in config.items()}
        self.admin.create_topics([NewTopic(topic, partitions, 1, config=dotted)])[topic].result(timeout=20)
        self._wait_for_partitions(topic, partitions)

    def grow_topic(self, topic: str, partitions: int) -> None:
        """Give a topic more partitions, this many in all."""
        self.admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(timeout=20)
        self._wait_for_partitions(topic, partitions)

    def _wait_for_partitions(self, topic: str, partitions: int) -> None:
        """Wait until the broker tells clients of them: a controller's yes comes a moment before."""

        def are_known() -> bool:
            found = self.admin.list_topics(topic, timeout=5).topics[topic].partitions.values()
            return len(found) == partitions and all(partition.leader >= 0 for partition in found)

        wait_until(are_known, 20, f"{topic!r} has not got {partitions} partitions")

    def produce(self, topic: str, values: Mapping[int, Iterable[bytes]]) -> None:
        """Write records: partition -> their values; returns when the broker has them all."""
        errors: list[Any] = []

        def note(error: Any, _message: Any) -> None:
            if error is not None:
                errors.append(error)

        producer = Producer({"bootstrap.servers": self.bootstrap_servers, "linger.ms": 0, "log_level": 0})
        for partition, of_partition in values.items():
            for value in of_partition:
                producer.produce(topic, value, partition=partition, on_delivery=note)
        remaining = producer.flush(20)
        if errors or remaining:
            message = f"{remaining} records of {topic!r} did not arrive, errors: {errors}"
            raise RuntimeError(message)

    def client_log(self, kind: str) -> Path:
        """Name the next client's log file."""
        self._clients += 1
        return self.folder / f"{kind}-{self._clients}.log"


class ConnectWorker(_Server):
    """One distributed Connect worker with our idle source; workers of the same group_id share a cluster.

    Source: `org.apache.kafka.connect.cli.ConnectDistributed`; tests/broker's IdleSource.
    """

    def __init__(
        self,
        broker: KafkaBroker,
        *,
        group_id: str,
        protocol: str = "sessioned",
        scheduled_delay_ms: int = 300_000,
        session_timeout_ms: int = 10_000,
        properties: Mapping[str, str] | None = None,
        heap: str = "128m",
    ) -> None:
        """Choose a REST port and write the properties.

        Args:
            broker: a running broker.
            group_id: the Connect cluster's; its three topics are named after it.
            protocol: connect.protocol: eager, compatible or sessioned.
            scheduled_delay_ms: how long a lost worker's tasks wait for it (KIP-415).
            session_timeout_ms: after which a silent worker counts as lost.
            properties: worker properties over ours.
            heap: the JVM's -Xmx.
        """
        (self._port,) = free_ports(1)
        self.url = f"http://{_LOOPBACK}:{self._port}"
        properties_file = broker.client_log("connect").with_suffix(".properties")
        worker = {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": group_id,
            "connect.protocol": protocol,
            "scheduled.rebalance.max.delay.ms": str(scheduled_delay_ms),
            "session.timeout.ms": str(session_timeout_ms),
            "heartbeat.interval.ms": str(session_timeout_ms // 3),
            "listeners": self.url,
            "rest.advertised.host.name": _LOOPBACK,
            # Manifests instead of reading every class there is.
            "plugin.discovery": "service_load",
            "key.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
            "value.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
            "offset.flush.interval.ms": "60000",
            "offset.storage.partitions": "1",
            "status.storage.partitions": "1",
        }
        for store in ("config", "offset", "status"):
            worker[f"{store}.storage.topic"] = f"{group_id}-{store}s"
            worker[f"{store}.storage.replication.factor"] = "1"
        _write_properties(properties_file, {**worker, **(properties or {})})
        super().__init__(
            broker.folder, heap, "org.apache.kafka.connect.cli.ConnectDistributed", properties_file
        )

    def _is_ready(self) -> bool:
        try:
            status, _ = self.request("GET", "/connectors", timeout_s=2)
        except (OSError, http.client.HTTPException):
            return False
        return status == http.HTTPStatus.OK

    def request(self, method: str, path: str, body: Any = None, timeout_s: float = 30) -> tuple[int, Any]:
        """Ask the worker's REST interface: HTTP status and the answer's JSON, None for any other answer."""
        connection = http.client.HTTPConnection(_LOOPBACK, self._port, timeout=timeout_s)
        try:
            headers = {"Content-Type": "application/json"}
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        # Until its herder runs a worker answers in Jetty's HTML.
        is_json = (answer.getheader("Content-Type") or "").startswith("application/json")
        return answer.status, json.loads(text) if text and is_json else None

    def put_connector(self, connector: str, tasks: int, **config: str) -> None:
        """Make an idle connector or change its number of tasks; waits while the cluster rebalances."""
        wanted = {"connector.class": "counterpoise.IdleSource", "tasks.max": str(tasks), **config}
        answer: tuple[int, Any] = (0, None)

        def is_put() -> bool:
            nonlocal answer
            answer = self.request("PUT", f"/connectors/{connector}/config", wanted)
            if answer[0] not in {http.HTTPStatus.OK, http.HTTPStatus.CREATED, http.HTTPStatus.CONFLICT}:
                message = f"connector {connector!r} was refused: {answer}"
                raise RuntimeError(message)
            return answer[0] != http.HTTPStatus.CONFLICT

        wait_until(is_put, 30, lambda: f"connector {connector!r} could not be put: {answer}")

    def delete_connector(self, connector: str) -> None:
        """Delete a connector; waits while the cluster rebalances."""
        gone = {http.HTTPStatus.NO_CONTENT, http.HTTPStatus.NOT_FOUND}
        wait_until(
            lambda: self.request("DELETE", f"/connectors/{connector}")[0] in gone,
            30,
            f"connector {connector!r} could not be deleted",
        )

    def status(self, connector: str) -> dict[str, Any] | None:
        """Give REST's word on a connector and its tasks, each with state and worker_id; None if unknown."""
        status, answer = self.request("GET", f"/connectors/{connector}/status")
        return answer if status == http.HTTPStatus.OK else None

    def wait_for_running(self, connector: str, tasks: int, timeout_s: float = 30) -> dict[int, str]:
        """Wait until a connector and this many tasks run: task -> worker_id, the connector itself as -1."""
        running: dict[int, str] = {}

        def runs() -> bool:
            status = self.status(connector)
            running.clear()
            for number, each in _numbered(status) if status else ():
                if each["state"] == "RUNNING":
                    running[number] = each["worker_id"]
            return set(running) == set(range(-1, tasks))

        wait_until(runs, timeout_s, lambda: f"of {connector!r} with {tasks} tasks run only {running}")
        return running


def _numbered(status: Mapping[str, Any]) -> Iterable[tuple[int, Mapping[str, Any]]]:
    """Number a connector's parts as Connect does on the wire: -1 the connector itself."""
    return [(-1, status["connector"]), *((task["id"], task) for task in status["tasks"])]
