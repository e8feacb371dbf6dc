"""shoal, installed from its wheel, in a folder whose packages have the names of shoal's own."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 110.0
PLANTED = ("shoal_policy", "shoal_p2p", "shoal_tasks", "shoal_wire", "shoal_bootstrap")
PLANTED_FILES = ("trio.py", "torch.py", "struct.py", "tempfile.py", "csv.py")
"""Names of a library and of standard-library modules that a start imports."""
PLANT = """\
from pathlib import Path
Path({marks!r}, __name__).touch()
raise ImportError("not yours")
"""

Run = Callable[..., subprocess.CompletedProcess[str]]


def build_wheel(tree: Path, wheels: Path) -> None:
    """Build a tree's wheel into a folder."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(wheels)]
    subprocess.run(build, cwd=tree, check=True, capture_output=True, timeout=PATIENCE_S)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the programs' folder of an environment with shoal and its lab, from wheels."""
    home = tmp_path_factory.mktemp("installed")
    venv.create(home, with_pip=False, symlinks=True)
    wheels = tmp_path_factory.mktemp("wheels")
    for tree in (ROOT, ROOT / "lab"):
        build_wheel(tree, wheels)
    into = [sys.executable, "-m", "pip", "--python", str(home / "bin" / "python"), "install"]
    alone = ["--quiet", "--disable-pip-version-check", "--no-deps", "--no-index"]
    subprocess.run(
        [*into, *alone, *map(str, wheels.iterdir())],
        check=True,
        capture_output=True,
        timeout=PATIENCE_S,
    )
    names = {"base": str(home), "platbase": str(home), "installed_base": str(home)}
    site = Path(sysconfig.get_path("purelib", "venv", names))
    # Shoal's dependencies: the folder is searched, but its .pth files are not read.
    here = sysconfig.get_paths()
    (site / "dependencies.pth").write_text(f"{here['purelib']}\n{here['platlib']}\n")
    return home / "bin"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a user's project whose packages leave a mark when they are imported."""
    folder, marks = tmp_path / "project", tmp_path / "marks"
    marks.mkdir()
    for name in PLANTED:
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text(PLANT.format(marks=str(marks)))
    for name in PLANTED_FILES:
        (folder / name).write_text(PLANT.format(marks=str(marks)))
    return folder


def run_in(
    folder: Path, *command: object, patience_s: float, **more: str
) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder, without the settings of the user who runs the tests."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SHOAL_", "PYTHON"))}
    return subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env={**kept, "OMP_NUM_THREADS": "1", **more},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=patience_s,
        check=False,
    )


def run(project: Path, *command: object, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a command in the project; fail if anything of the project was imported."""
    done = run_in(project, *command, patience_s=PATIENCE_S, **more)
    marks = sorted(path.name for path in (project.parent / "marks").iterdir())
    assert marks == [], done.stderr[-2000:]
    return done


SHORT = ("--rounds=1", "--local=1", "--external=0", "--completions=2", "--device=cpu")
LOOPBACK = "--listen=/ip4/127.0.0.1/tcp/0"


@pytest.mark.slow
def test_a_node_there_runs_its_own_trainer(installed: Path, project: Path) -> None:
    shoal = installed / "shoal"
    done = run(project, shoal, "node", *SHORT, LOOPBACK, "--no-mdns", "--no-http", "--log=none")
    assert done.returncode == 0, done.stderr
    assert "round 1/1" in done.stdout


@pytest.mark.slow
def test_a_swarm_there_runs_its_own_nodes(installed: Path, project: Path) -> None:
    done = run(project, installed / "shoal", "swarm", "--nodes=1", *SHORT, "--log=none")
    assert done.returncode == 0, done.stderr
    assert "finished" in done.stdout


@pytest.mark.slow
def test_an_experiment_there_plays_in_its_own_processes(installed: Path, project: Path) -> None:
    small = ("--quick", "--seeds=1", "--rounds=1", "--nodes=2", "--jobs=1", "--no-figures")
    few = ("--arm=2/0", "--set=completions=2")
    done = run(project, installed / "shoal", "experiment", "results", *small, *few)
    assert done.returncode == 0, done.stderr
    assert "table, figures, numbers and every round" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("path", ["", ".", ":"], ids=["unset", "dot", "empty-entry"])
def test_nor_does_the_way_it_is_called_matter(installed: Path, project: Path, path: str) -> None:
    """As a module, and with a path that names the folder; its child processes too."""
    python, more = installed / "python", {"PYTHONPATH": path} if path else {}
    show = ("node", "--rounds=1", "--local=1", "--external=0", "--completions=2", "--no-mdns")
    if not path:
        done = run(project, python, "-m", "shoal", *show, LOOPBACK, "--log=none")
        assert done.returncode == 0, done.stderr
        return
    done = run(project, installed / "shoal", *show, LOOPBACK, "--log=none", **more)
    assert done.returncode == 0, done.stderr
