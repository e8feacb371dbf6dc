"""The files with which a bootstrap peer is run on a server."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]

from shoal.__main__ import main
from shoal_settings.exits import EXIT_OK

ROOT = Path(__file__).resolve().parents[2]
UNITS = {name: ROOT / "bootstrap" / f"shoal-{name}.service" for name in ("bootstrap", "node")}
MONITORING = ROOT / "bootstrap" / "monitoring"
CONTAINERS = {
    "bootstrap": ROOT / "bootstrap" / "Containerfile",
    "node": ROOT / "bootstrap" / "Containerfile.node",
}
"""The container's file of each command."""
ENGINES = [name for name in ("podman", "docker") if shutil.which(name)]


def _works(engine: str) -> bool:
    return not subprocess.run([engine, "info"], capture_output=True, check=False).returncode


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
@pytest.mark.parametrize("file", UNITS.values(), ids=UNITS)
def test_systemd_takes_the_unit(tmp_path: Path, file: Path) -> None:
    unit = tmp_path / file.name
    unit.write_text(file.read_text().replace("/opt/shoal/.venv/bin/shoal", sys.executable))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    reported = [line for line in done.stderr.splitlines() if file.name in line]
    assert not reported
    assert not done.returncode


def test_the_unit_and_the_containers_start_what_there_is() -> None:
    starts = []
    for name, file in UNITS.items():
        unit = configparser.ConfigParser(strict=False, interpolation=None)
        unit.optionxform = str  # type: ignore[assignment,method-assign]
        unit.read_string(file.read_text())
        of_unit = shlex.split(unit["Service"]["ExecStart"])
        assert of_unit[0].startswith("/opt/shoal/")
        starts.append((name, of_unit[1:]))
    for name, file in CONTAINERS.items():
        entry = re.search(r"^ENTRYPOINT (.*)$", file.read_text(), re.M)
        assert entry is not None
        starts.append((name, json.loads(entry[1])[1:]))
    for name, command in starts:
        assert command[0] == name
        assert main([*command, "--print-config"]) == EXIT_OK


@pytest.mark.parametrize("file", CONTAINERS.values(), ids=CONTAINERS)
def test_a_container_takes_all_that_the_wheel_has_and_only_what_is_there(file: Path) -> None:
    found = re.findall(r"^COPY (.*) \S+$", file.read_text(), re.M)
    copied = {name for line in found for name in line.split()}
    assert [name for name in copied if not (ROOT / name).exists()] == []
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert {package.split("/")[0] for package in packages} <= copied


@pytest.mark.parametrize(("name", "trains"), [("bootstrap", False), ("node", True)])
def test_a_container_installs_what_its_command_needs(name: str, trains: bool) -> None:
    installed = re.search(r"pip install --no-cache-dir (\S+)", CONTAINERS[name].read_text())
    assert installed is not None
    extras = re.findall(r"[\w-]+", installed[1])
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(extras) <= set(project["optional-dependencies"])
    assert ("train" in extras) is trains


@pytest.mark.slow
@pytest.mark.skipif(not any(map(_works, ENGINES)), reason="no container engine runs here")
@pytest.mark.parametrize("file", CONTAINERS.values(), ids=CONTAINERS)
def test_the_container_is_built(file: Path) -> None:
    engine = next(filter(_works, ENGINES))
    command = [engine, "build", "-q", "-f", str(file), str(ROOT)]
    assert not subprocess.run(command, check=False).returncode


@pytest.mark.parametrize("name", ["alerts.yml", "grafana.json"])
def test_dashboard_and_alerts_read_metrics_that_a_node_has(name: str) -> None:
    text = (MONITORING / name).read_text()
    if name == "grafana.json":
        json.loads(text)
    else:
        (group,) = yaml.safe_load(text)["groups"]
        assert all({"alert", "expr", "for"} <= set(rule) for rule in group["rules"])
    table = (ROOT / "docs" / "metrics.md").read_text()
    known = set(re.findall(r"^\| `(shoal_\w+)` ", table, re.M))
    used = set(re.findall(r"\bshoal_\w+", text))
    assert len(used) > 4
    assert used <= known


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool")
def test_prometheus_takes_the_alerts() -> None:
    command = ["promtool", "check", "rules", str(MONITORING / "alerts.yml")]
    assert not subprocess.run(command, check=False).returncode
