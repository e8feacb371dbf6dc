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

from shoal.__main__ import main
from shoal_settings.exits import EXIT_OK

ROOT = Path(__file__).resolve().parents[2]
UNIT = ROOT / "bootstrap" / "shoal-bootstrap.service"
CONTAINER = ROOT / "bootstrap" / "Containerfile"
ENGINES = [name for name in ("podman", "docker") if shutil.which(name)]


def _works(engine: str) -> bool:
    return not subprocess.run([engine, "info"], capture_output=True, check=False).returncode


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/opt/shoal/.venv/bin/shoal", sys.executable))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    told = [line for line in done.stderr.splitlines() if UNIT.name in line]
    assert not told
    assert not done.returncode


def test_the_unit_and_the_container_start_what_there_is() -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(UNIT.read_text())
    of_unit = shlex.split(unit["Service"]["ExecStart"])
    assert of_unit[0].startswith("/opt/shoal/")
    entry = re.search(r"^ENTRYPOINT (.*)$", CONTAINER.read_text(), re.M)
    assert entry is not None
    for command in (of_unit[1:], json.loads(entry[1])[1:]):
        assert command[0] == "bootstrap"
        assert main([*command, "--print-config"]) == EXIT_OK


def test_the_container_takes_all_that_the_wheel_has_and_only_what_is_there() -> None:
    found = re.findall(r"^COPY (.*) \S+$", CONTAINER.read_text(), re.M)
    copied = {name for line in found for name in line.split()}
    assert [name for name in copied if not (ROOT / name).exists()] == []
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert {package.split("/")[0] for package in packages} <= copied


@pytest.mark.slow
@pytest.mark.skipif(not any(map(_works, ENGINES)), reason="no container engine runs here")
def test_the_container_is_built() -> None:
    engine = next(filter(_works, ENGINES))
    command = [engine, "build", "-q", "-f", str(CONTAINER), str(ROOT)]
    assert not subprocess.run(command, check=False).returncode
