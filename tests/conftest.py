"""What tests share: one Spark session, Kafka's own classes, one broker, and how hard Hypothesis tries."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.kafka_cluster import KafkaBroker
    from tests.parity.oracle import Oracle

# Two shared cores make any deadline a coin toss. CI must fail or pass twice alike.
settings.register_profile("local", deadline=None, max_examples=60)
settings.register_profile(
    "ci",
    deadline=None,
    max_examples=60,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("ci" if os.environ.get("CI") == "true" else "local")


_STARTS_SLOWLY = ("spark", "live", "browser", "oracle")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let workers that share the files begin with those that take minutes: short ones fill the end."""
    if not hasattr(config, "workerinput"):
        return
    slow = {item.path for item in items if any(item.get_closest_marker(name) for name in _STARTS_SLOWLY)}
    items.sort(key=lambda item: item.path not in slow)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Start one small session with Delta and the Kafka connector for all tests that need one."""
    from tests.sessions import start_test_session

    session = start_test_session()
    yield session
    session.stop()


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    """Start one JVM with Kafka's own classes; where it cannot be built tests are skipped, never in CI."""
    from tests.parity.oracle import Oracle, OracleUnavailableError

    try:
        with Oracle() as running:
            yield running
    except OracleUnavailableError as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(f"Kafka's own classes were not asked: {error}")


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """Start one broker for all tests marked `live`; where none can be built they are skipped, never in CI.

    Tests share it: each names topics and groups of its own, and none stops it.
    """
    from tests.kafka_cluster import KafkaBroker, KafkaUnavailableError, build_kafka

    try:
        build_kafka()
    except KafkaUnavailableError as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(f"no real broker was asked: {error}")
    with KafkaBroker(tmp_path_factory.mktemp("kafka"), rack="rack-a") as running:
        yield running


@pytest.fixture
def _remembering(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every leader of an observed group be one whose memory shows."""
    from assignors import REGISTRY
    from tests.observed_inputs import distrustful

    assignor = replace(REGISTRY["sticky"], function=distrustful)
    monkeypatch.setattr("streaming.groups.observed.expected.get_assignor", lambda *_: assignor)
