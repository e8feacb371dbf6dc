"""shoal from its wheel in a new environment: without extras, and then with them."""

from __future__ import annotations

import json
import subprocess
import venv
from pathlib import Path

import pytest

from tests.e2e.test_foreign_folder import LOOPBACK, ROOT, SHORT, build_wheel, installed, run_in

__all__ = ["installed"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
INSTALL_S = 1500.0
PATIENCE_S = 170.0
TRAINER = "pip install 'shoal[train]'"
TASKS = "pip install 'shoal[tasks]'"
LAB = "pip install 'shoal[lab]'"
LACKS = [
    ("node", TRAINER),
    ("node --model smollm2", TRAINER),
    ("swarm", TRAINER),
    ("trainer --alone", TRAINER),
    ("export model", TRAINER),
    ("experiment results --quick", LAB),
    ("tasks gcd_easy --model tiny", TASKS),
    ("judge report", LAB),
    ("tasks gcd_easy", TASKS),
    ("node --role observe", TASKS),
    ("export data", "pip install 'shoal[export]'"),
]
WORKS = ("--help", "--version", "tasks", "schema", "completion bash", "bootstrap --print-config")
HEAVY = ("torch", "transformers", "sympy", "matplotlib", "numpy", "reasoning_gym")
NODE = f"node --role observe --no-mdns {LOOPBACK} --print-config"


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the program of an environment with the wheel and its dependencies, without extras."""
    home, wheels = tmp_path_factory.mktemp("alone"), tmp_path_factory.mktemp("wheels")
    build_wheel(ROOT, wheels)
    (wheel,) = wheels.iterdir()
    venv.create(home, with_pip=True, symlinks=True)
    into = [str(home / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run(
        [*into, str(wheel)], capture_output=True, text=True, timeout=INSTALL_S, check=False
    )
    if done.returncode:
        pytest.skip(f"its dependencies cannot be installed here: {done.stderr[-200:]}")
    return home / "bin" / "shoal"


def run(program: Path, line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return run_in(folder, program, *line.split(), patience_s=PATIENCE_S)


def test_without_extras_a_command_works_or_says_what_is_missing(
    alone: Path, tmp_path: Path
) -> None:
    for name in HEAVY:
        assert not list(alone.parent.parent.glob(f"lib/*/site-packages/{name}"))
    for line, message in LACKS:
        done = run(alone, line, tmp_path)
        assert done.returncode == 2, (line, done.stderr)
        assert len(done.stderr.strip().splitlines()) == 1, (line, done.stderr)
        assert message in done.stderr, (line, done.stderr)
    for line in (*WORKS, NODE):
        done = run(alone, line, tmp_path)
        assert done.returncode == 0, (line, done.stderr)
        assert done.stdout
        assert not done.stderr, (line, done.stderr)


def test_with_them_every_command_works_outside_of_the_checkout(
    installed: Path, tmp_path: Path
) -> None:
    program = installed / "shoal"
    node = f"node {' '.join(SHORT)} {LOOPBACK} --no-mdns --log=none --data-dir d"
    for line in (
        node,
        "status --last --data-dir d --json",
        "debug bugreport --data-dir d --out r.tar.gz",
        "logs --data-dir d",
        "export data --data-dir d --out rows",
        "export model --data-dir d",
        *WORKS,
    ):
        done = run(program, line, tmp_path)
        assert done.returncode == 0, (line, done.stderr)
        assert done.stdout
    assert json.loads(run(program, "schema --json", tmp_path).stdout)["schemas"]
    assert {"rows", "model", "r.tar.gz"} <= {path.name for path in tmp_path.iterdir()}
