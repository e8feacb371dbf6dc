"""shoal without its extras: a bootstrap works; a command that needs more says so in one line."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal_base.children import python
from shoal_base.extras import TRAINER
from tests.support.forked_commands import Run, open_forks
from tests.support.tree import ROOT

PATIENCE_S = 100.0
ABSENT = (*TRAINER, "sympy", "matplotlib", "peft", "math_verify", "gguf", "shoal_lab")
"""The modules that the wheel alone does not bring."""
BLOCK = f"""
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {ABSENT!r}:
            raise ModuleNotFoundError("No module named " + repr(name), name=name)

sys.meta_path.insert(0, Blocked())
"""
TRAIN, TASKS = "pip install 'shoal[train]'", "pip install 'shoal[tasks]'"
TASKS_ALONE = {"node --role observe", "judge", "bootstrap --subscribe-shards 1", "tasks gcd_easy"}
TASKS_ALONE |= {"tasks gcd_easy --model tiny", "tasks new own.jsonl"}
LACKS = (
    "node",
    "node --role observe",
    "node --role generate --generator openai --base-url http://127.0.0.1:9/v1",
    "trainer --alone",
    "swarm",
    "judge",
    "bootstrap --subscribe-shards 1",
    "tasks gcd_easy",
    "tasks gcd_easy --model tiny",
    "tasks try own.toml --model tiny",
    "tasks new own.jsonl",
    "chat",
    "serve",
)
WORKS = (
    "--help",
    "--version",
    "node --help",
    "node --print-config",
    "bootstrap --help",
    "tasks",
    "schema",
    "completion bash",
    "debug --help",
)
OWN = {
    "own.toml": b'name = "own"\nrows = "own.jsonl"\n',
    "own.jsonl": b'{"question": "1+1?", "answer": "2"}\n',
}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the environment of a program that can import only what the wheel alone brings."""
    block = tmp_path_factory.mktemp("block")
    (block / "sitecustomize.py").write_text(BLOCK)
    kept = {k: v for k, v in os.environ.items() if not k.startswith("SHOAL_")}
    return {**kept, "PYTHONPATH": os.pathsep.join((str(block), str(ROOT)))}


@pytest.fixture(scope="module")
def forked(base: dict[str, str]) -> Iterator[Run]:
    """A process that runs a command there, without the imports of each."""
    with open_forks(base) as run:
        yield run


@pytest.mark.parametrize("line", LACKS)
def test_a_command_that_needs_more_says_so_in_one_line(line: str, forked: Run) -> None:
    done = forked(line.split(), files=OWN)
    assert done["code"] == 2, done
    assert (TASKS if line in TASKS_ALONE else TRAIN) in done["err"]
    assert len(done["err"].strip().splitlines()) == 1, done


@pytest.mark.parametrize("line", WORKS)
def test_a_command_that_needs_no_more_works(line: str, forked: Run) -> None:
    done = forked(line.split())
    assert (done["code"], done["err"]) == (0, "")
    assert done["out"]


def test_a_bootstrap_is_a_meeting_point_and_a_relay(
    base: dict[str, str], forked: Run, tmp_path: Path
) -> None:
    def output_of(line: str) -> str:
        done = forked([*line.split(), "--data-dir", str(tmp_path / "b")])
        assert done["code"] == 0 and done["out"], done
        return str(done["out"])

    with bootstrap(base, tmp_path) as output:
        ready = json.loads(output)
        assert ready["addresses"]
        shown = json.loads(output_of("status --json"))
        assert (shown["role"], shown["worker"]["running"]) == ("bootstrap", False)
        assert shown["mesh"] == {}, "it would forward what other nodes reject"
        assert shown["relay"] is not None
        doctor = output_of("doctor --json")
        assert json.loads(doctor)["schema_version"] == 1
        assert '"bad"' not in doctor
        assert output_of("invite").startswith("shoal1")


@contextlib.contextmanager
def bootstrap(base: dict[str, str], folder: Path) -> Iterator[str]:
    """Run one until the end of the block; yield the line that it prints when it is ready."""
    flags = "bootstrap --relay --listen /ip4/127.0.0.1/tcp/0 --no-mdns --no-port-mapping --no-http"
    command = python("-m", "shoal", *flags.split(), "--data-dir=b", "--json")
    process = subprocess.Popen(
        command, cwd=folder, env=base, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline()
    finally:
        process.terminate()
        _, output = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    assert "Traceback" not in output
