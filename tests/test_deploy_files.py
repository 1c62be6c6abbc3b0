"""The files in docs/deploy: what reads them accepts them, and they fit the program."""

from __future__ import annotations

import configparser
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from conf.settings import load_settings

DEPLOY = Path(__file__).parents[1] / "docs" / "deploy"
UNIT = DEPLOY / "counterpoise.service"
MANIFEST = DEPLOY / "kubernetes.yaml"


def unit() -> configparser.ConfigParser:
    """Read the unit; a key that stands twice in a section is an error."""
    parser = configparser.ConfigParser(interpolation=None, delimiters=("=",), comment_prefixes=("#",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # systemd's keys keep their case
    parser.read_string(UNIT.read_text(encoding="utf-8"))
    return parser


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    """`systemd-analyze verify` has nothing to say of it, where the program that it names is there."""
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        assert os.environ.get("CI") != "true", "CI has no systemd-analyze; .ci/run installs systemd"
        pytest.skip("there is no systemd-analyze here: the unit was only read as a file of keys")
    command = unit()["Service"]["ExecStart"].split()[0]
    stub = tmp_path / "counterpoise"
    stub.write_text("#!/bin/sh\n")
    stub.chmod(0o755)
    file = tmp_path / UNIT.name
    file.write_text(UNIT.read_text(encoding="utf-8").replace(f"={command}", f"={stub}"), encoding="utf-8")
    done = subprocess.run(
        [analyze, "verify", "--man=no", str(file)], capture_output=True, text=True, check=False, timeout=60
    )
    # It also looks at what the unit depends on, which is the machine's.
    told = [line for line in (done.stdout + done.stderr).splitlines() if UNIT.name in line]
    assert told == []


def test_the_unit_lets_a_batch_end() -> None:
    """SIGTERM goes to the main process alone, which has the time; what fails is started again."""
    service = unit()["Service"]
    assert service["KillMode"] == "mixed"
    assert service["KillSignal"] == "SIGTERM"
    assert int(service["TimeoutStopSec"]) >= 60
    assert service["Restart"] == "on-failure"
    assert service["ExecStart"].split()[1:3] == ["run", "--conf"]
    assert service["ProtectSystem"] == "strict"
    assert service["WorkingDirectory"] == f"/var/lib/{service['StateDirectory']}"


@pytest.fixture(scope="module")
def objects() -> dict[str, dict[str, Any]]:
    """Read the manifest: kind -> the one object of that kind."""
    found = list(yaml.safe_load_all(MANIFEST.read_text(encoding="utf-8")))
    assert len({item["kind"] for item in found}) == len(found)
    return {item["kind"]: item for item in found}


def test_kubernetes_schema_accepts_each_object(objects: dict[str, dict[str, Any]]) -> None:
    """By the schemas of its oldest and newest release that the library has, unknown fields refused."""
    for version in ("1.30", kubernetes_validate.latest_version()):
        for item in objects.values():
            kubernetes_validate.validate(item, version, strict=True)


def test_one_pod_at_a_time(objects: dict[str, dict[str, Any]]) -> None:
    """The tables have one writer: no second replica, no rolling update, and time to stop."""
    spec = objects["Deployment"]["spec"]
    assert spec["replicas"] == 1
    assert spec["strategy"] == {"type": "Recreate"}
    assert spec["template"]["spec"]["terminationGracePeriodSeconds"] >= 60


def test_objects_name_each_other(objects: dict[str, dict[str, Any]]) -> None:
    """Account, secret, settings, volume and selector are those that the manifest makes."""
    spec = objects["Deployment"]["spec"]
    pod = spec["template"]["spec"]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert {name for item in objects.values() if (name := item["metadata"].get("namespace"))} == {
        objects["Namespace"]["metadata"]["name"]
    }
    assert pod["serviceAccountName"] == objects["ServiceAccount"]["metadata"]["name"]
    assert objects["RoleBinding"]["roleRef"]["name"] == objects["Role"]["metadata"]["name"]
    assert objects["RoleBinding"]["subjects"][0]["name"] == pod["serviceAccountName"]
    assert volumes["settings"]["configMap"]["name"] == objects["ConfigMap"]["metadata"]["name"]
    assert volumes["secrets"]["secret"]["secretName"] == objects["Secret"]["metadata"]["name"]
    claim = objects["PersistentVolumeClaim"]["metadata"]["name"]
    assert volumes["data"]["persistentVolumeClaim"]["claimName"] == claim
    labels = spec["template"]["metadata"]["labels"].items()
    assert spec["selector"]["matchLabels"].items() <= labels
    assert objects["Service"]["spec"]["selector"].items() <= labels
    (container,) = pod["containers"]
    assert {mount["name"] for mount in container["volumeMounts"]} == set(volumes)


def test_the_settings_fit_the_pod(objects: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    """The program takes settings and arguments; ports, paths, image and names are the pod's."""
    text = objects["ConfigMap"]["data"]["job.toml"]
    pod = objects["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    (secret,) = objects["Secret"]["stringData"]
    assert f"${{file:{mounts['secrets']}/{secret}}}" in text
    file = tmp_path / "job.toml"
    file.write_text(text, encoding="utf-8")
    arguments = container["args"]
    assert arguments[::2] == ["--set"] * (len(arguments) // 2)
    options = dict(argument.split("=", 1) for argument in arguments[1::2])
    settings = load_settings(file, {}, options)
    spark = settings.spark.option_values()
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {port["name"]: port["port"] for port in objects["Service"]["spec"]["ports"]}
    assert ports == {
        "metrics": settings.http.address()[1],
        "driver": int(spark["spark.driver.port"]),
        "blocks": int(spark["spark.blockManager.port"]),
    }
    service = objects["Service"]["metadata"]
    assert spark["spark.driver.host"] == f"{service['name']}.{service['namespace']}.svc"
    assert spark["spark.kubernetes.namespace"] == service["namespace"]
    assert spark["spark.kubernetes.container.image"] == container["image"]
    assert spark["spark.kubernetes.authenticate.serviceAccountName"] == pod["serviceAccountName"]
    executors = "spark.kubernetes.executor.volumes.persistentVolumeClaim.data"
    assert spark[f"{executors}.mount.path"] == mounts["data"]
    assert spark[f"{executors}.options.claimName"] == objects["PersistentVolumeClaim"]["metadata"]["name"]
    for location in (settings.job.tables, settings.job.checkpoint_location):
        assert Path(location).is_relative_to(mounts["data"])
    assert Path(settings.log.jvm_output).is_relative_to(mounts["scratch"])
    assert container["command"][-1] == f"{mounts['settings']}/job.toml"


def test_the_probes_ask_what_is_served(objects: dict[str, dict[str, Any]]) -> None:
    """Liveness never asks /readyz: a pod that waits would be killed for it."""
    (container,) = objects["Deployment"]["spec"]["template"]["spec"]["containers"]
    paths = {
        name: container[name]["httpGet"]["path"]
        for name in ("startupProbe", "livenessProbe", "readinessProbe")
    }
    assert paths == {"startupProbe": "/healthz", "livenessProbe": "/healthz", "readinessProbe": "/readyz"}
    assert {container[name]["httpGet"]["port"] for name in paths} == {"metrics"}
    annotations = objects["Deployment"]["spec"]["template"]["metadata"]["annotations"]
    assert annotations["prometheus.io/path"] == "/metrics"
