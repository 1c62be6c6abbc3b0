"""Several clusters: one command, a query for each, and none that waits for another."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.kafka_cluster import KafkaBroker
from tests.kafka_members import ConfluentClient, wait_for_owners

if TYPE_CHECKING:
    from collections.abc import Iterable

pytestmark = [pytest.mark.live, pytest.mark.slow]

ROOT = Path(__file__).resolve().parent.parent


def settings_of(folder: Path, brokers: dict[str, KafkaBroker], names: Iterable[str]) -> Path:
    """Write the settings of a deployment that watches these clusters."""
    file = folder / "job.toml"
    text = f"""
        [job]
        tables = "{folder}/{{cluster}}/tables"
        checkpoint_location = "{folder}/{{cluster}}/checkpoint"
        [spark.options]
        "spark.driver.memory" = "1g"
    """
    for name in names:
        text += f"""
        [[sources]]
        name = "offsets-{name}"
        format = "offsets"
        from = "kafka"
        cluster = "{name}"
        [clusters.{name}.kafka]
        "bootstrap.servers" = "{brokers[name].bootstrap_servers}"
        """
    file.write_text(text, encoding="utf-8")
    return file


def counterpoise(*arguments: str, timeout_s: float = 240) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "console.cli", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def groups_of(settings: Path) -> dict[tuple[str, str], tuple[int, str]]:
    """Ask describe: (cluster, group) -> partitions owned, state."""
    done = counterpoise("describe", "--conf", str(settings), "--json")
    told: dict[str, list[dict[str, Any]]] = json.loads(done.stdout)
    owned = [(row["cluster"], row["group_id"]) for row in told["assignments"]]
    return {
        (row["cluster"], row["group_id"]): (
            owned.count((row["cluster"], row["group_id"])),
            row["group_state"],
        )
        for row in told["groups"]
    }


def test_a_cluster_is_added_and_one_that_is_away_holds_nobody_up(kafka: KafkaBroker, tmp_path: Path) -> None:
    """The same group id in two clusters is two groups; a dead cluster is an error at the end."""
    kafka.create_topic("clusters-orders", 3)
    with KafkaBroker(tmp_path / "second") as second:
        second.create_topic("clusters-orders", 2)
        brokers = {"east": kafka, "west": second}
        with (
            ConfluentClient(kafka, group_id="clusters-same", assignors=("range",)) as in_east,
            ConfluentClient(second, group_id="clusters-same", assignors=("range",)) as in_west,
        ):
            for member, partitions in ((in_east, 3), (in_west, 2)):
                member.subscribe("clusters-orders")
                wait_for_owners([member], [("clusters-orders", n) for n in range(partitions)])
            only_east = settings_of(tmp_path, brokers, ["east"])
            assert counterpoise("run", "--conf", str(only_east), "--once").returncode == 0
            assert groups_of(only_east)["east", "clusters-same"] == (3, "Stable")
            both = settings_of(tmp_path, brokers, ["east", "west"])
            done = counterpoise("run", "--conf", str(both), "--once")
            assert done.returncode == 0, done.stderr[-2000:]
            found = groups_of(both)
            assert found["east", "clusters-same"] == (3, "Stable")
            assert found["west", "clusters-same"] == (2, "Stable")
            in_east.leave()
        second.kill()
        done = counterpoise("run", "--conf", str(both), "--once")
        assert done.returncode == 2, done.stderr[-2000:]
        assert "cluster west" in done.stderr
        assert "the other clusters go on" in done.stderr
        assert groups_of(both)["east", "clusters-same"] == (0, "Empty")
