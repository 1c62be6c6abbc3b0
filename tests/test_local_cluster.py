"""Executors in processes of their own, with our packages shipped to them, compute what local mode does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
import pytest

from checkpoints.run import load_suite
from conf.settings import load_settings
from streaming.job import Job
from tests.deployments import contents
from tests.test_stream_promises import demo_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[1]
MOST_LOCAL_RECORDS = "20"
OURS = ("assignors", "streaming", "checkpoints", "conf", "console")

DRIVER = """
import json, sys, time
from pathlib import Path
from conf.settings import load_settings
from streaming.job import Job
from streaming.session import start_session

def look(batches):
    import os
    import pyarrow as pa
    from checkpoints.run import load_suite
    from conf.settings import load_settings
    for _ in batches:
        # Long enough for the other executor to take one as well.
        time.sleep(1)
    yield pa.RecordBatch.from_pylist([{
        "directory": os.getcwd(),
        "files": [m.__file__ for name, m in sys.modules.items() if name.partition(".")[0] in OURS],
        "shards": load_settings(None, {}, {}).batch.shards,
        "checks": [check.name for check in load_suite("balance").checks],
    }])

OURS = json.loads(sys.argv[3])
settings = load_settings(Path(sys.argv[1]), {}, json.loads(sys.argv[2]))
spark = start_session(settings)
job = Job(spark, settings)
job.run(once=True)
seen = spark.range(0, 6, 1, 6).mapInArrow(
    look, "directory string, files array<string>, shards long, checks array<string>"
).collect()
print(json.dumps({"paths": [t["path"] for t in job.timings], "seen": [row.asDict() for row in seen]}))
spark.stop()
"""

FROM_ZIP = """
import json, sys
sys.path.insert(0, sys.argv[1])
from checkpoints import expectations
from conf import settings
assert expectations.__file__.startswith(sys.argv[1]) and settings.__file__.startswith(sys.argv[1])
print(settings.load_settings(None, {}, {}).batch.shards)
print(json.dumps([check.name for check in expectations.read_suite("balance").checks]))
try:
    expectations.read_suite("balanse")
except expectations.CheckError as error:
    print(error)
"""


def spark_home(directory: Path) -> Path:
    """Make a home of Spark out of PySpark's: its workers write into it, which must not be the environment."""
    directory.mkdir()
    for name in ("bin", "jars"):
        (directory / name).symlink_to(Path(pyspark.__file__).parent / name)
    return directory


def packed(directory: Path) -> Path:
    """Build our wheel, and give it the ending by which Spark knows a zip of packages."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)]
    subprocess.run(command, cwd=ROOT, capture_output=True, check=True, timeout=300)
    (wheel,) = directory.glob("*.whl")
    return wheel.rename(directory / "counterpoise.zip")


def run_on_cluster(root: Path, options: dict[str, str]) -> dict[str, Any]:
    """Run the job in a process of its own; what its executors say of themselves."""
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, str(root / "conf.toml"), json.dumps(options), json.dumps(OURS)],
        env={**os.environ, "SPARK_HOME": str(spark_home(root / "spark"))},
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def test_settings_and_suites_are_read_out_of_a_zip(tmp_path: Path) -> None:
    """What is shipped to a cluster is not unpacked there; files beside the code are found all the same."""
    done = subprocess.run(
        [sys.executable, "-I", "-c", FROM_ZIP, str(packed(tmp_path))],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    shards, checks, unknown = done.stdout.splitlines()
    assert int(shards) == load_settings(None, {}, {}).batch.shards
    assert json.loads(checks) == [check.name for check in load_suite("balance").checks]
    assert unknown == "unknown suite 'balanse'; known: 'balance', or the path of a .json file"


@pytest.mark.spark
@pytest.mark.slow
def test_two_executors_with_shipped_packages_fill_the_tables_of_local_mode(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Our wheel under spark.submit.pyFiles is enough: code, settings and suites come from it there."""
    local = demo_settings(tmp_path / "local", MOST_LOCAL_RECORDS)
    Job(spark, local).run(once=True)
    root = tmp_path / "cluster"
    clustered = demo_settings(root, MOST_LOCAL_RECORDS)
    told = run_on_cluster(
        root,
        {
            "job.tables": clustered.job.tables,
            "job.checkpoint_location": clustered.job.checkpoint_location,
            "batch.shards": "4",
            "batch.local_max_records": MOST_LOCAL_RECORDS,
            "spark.master": "local-cluster[2,1,2048]",
            "spark.options.spark.submit.pyFiles": str(packed(tmp_path / "wheel")),
            # Else the first executor may have done everything before the second is there.
            "spark.options.spark.scheduler.minRegisteredResourcesRatio": "1.0",
        },
    )
    assert told["paths"] == ["executors"]
    assert len({seen["directory"] for seen in told["seen"]}) == 2
    for seen in told["seen"]:
        assert seen["directory"].startswith(str(root / "spark" / "work"))
        assert {file for file in seen["files"] if "/counterpoise.zip/" not in file} == set()
        # These stand in the job's own steps: nobody looked at them before.
        assert {"streaming/batches/executors.py", "assignors/registry.py"} <= {
            file.partition("/counterpoise.zip/")[2] for file in seen["files"]
        }
        assert seen["shards"] == load_settings(None, {}, {}).batch.shards
        assert "excess_spread" in seen["checks"]
    assert contents(clustered) == contents(local)
