"""Rows of a hub's data set: they arrive, and what is not there is one line and exit code 2."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.tasks.hub import hub

Asked = Callable[..., dict[str, Any]]

COMMANDS = (
    "import datasets\nfrom tests.support import forked_commands as commands\n"
    "commands.SECONDS = 90.0\ncommands.run_all()\n"
)
"""Each command in a fork that has loaded `datasets`, which takes seconds."""


def rows(count: int, first: int) -> bytes:
    made = [{"question": f"{n} + 1?", "answer": str(n + 1)} for n in range(first, first + count)]
    return "\n".join(map(json.dumps, made)).encode() + b"\n"


SUMS = {
    "main": {"README.md": b"Sums.\n", "train.jsonl": rows(12, 0), "test.jsonl": rows(3, 50)},
    "v1": {"train.jsonl": rows(5, 100)},
    "torn": {"train.jsonl": b'{"question": "1 + 1?"\n'},
}


def commands(address: str, folder: Path) -> Iterator[Asked]:
    """Yield what runs `shoal` with its hub at `address`."""
    home = {"HF_ENDPOINT": address, "HF_HOME": str(folder), "NO_PROXY": "127.0.0.1"}
    with subprocess.Popen(
        [sys.executable, "-c", COMMANDS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **home},
    ) as runner:
        assert runner.stdin is not None and runner.stdout is not None
        stdin, stdout = runner.stdin, runner.stdout

        def ask(*argv: str, **files: str) -> dict[str, Any]:
            sent = {name: text.encode().hex() for name, text in files.items()}
            stdin.write(json.dumps({"argv": argv, "env": {}, "files": sent}) + "\n")
            stdin.flush()
            answer: dict[str, Any] = json.loads(stdout.readline())
            return answer

        yield ask
        stdin.close()


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    with hub({"org/sums": SUMS}) as address:
        yield from commands(address, tmp_path_factory.mktemp("hub"))


def test_the_rows_of_a_data_set_arrive(ask: Asked) -> None:
    found = ask("tasks", "new", "hf:org/sums")
    assert (found["code"], found["err"]) == (0, "")
    assert "12 rows" in found["out"]


def test_a_task_file_that_names_a_revision_and_a_split_has_its_questions(ask: Asked) -> None:
    file = 'name = "sums"\nrows = "hf:org/sums@v1:train[:4]"\nheld_out = 1\n'
    found = ask("tasks", "sums", "--task-file", "sums.toml", "--json", **{"sums.toml": file})
    assert (found["code"], found["err"]) == (0, "")
    assert any(f"{number} + 1?" in found["out"] for number in range(100, 104))
    assert json.loads(found["out"])["config"]["rows"] == 4


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("hf:org/none", "Dataset 'org/none' doesn't exist on the Hub"),
        ("hf:org/sums@v9", "Revision 'v9' doesn't exist"),
        ("hf:org/sums:dev", 'Unknown split "dev"'),
        ("hf:org/sums/hard", "BuilderConfig 'hard' not found"),
        ("hf:org/sums@torn", "JSON parse error"),
    ],
)
def test_what_a_hub_does_not_have_is_one_line(ask: Asked, source: str, why: str) -> None:
    found = ask("tasks", "new", source)
    assert (found["code"], found["out"]) == (2, "")
    assert found["err"].startswith(f"shoal tasks new: cannot load {source}: {why}"), found["err"]
    assert found["err"].count("\n") == 1


@pytest.mark.slow
def test_a_hub_that_cannot_be_reached_is_one_line(tmp_path: Path) -> None:
    """Slow: `huggingface_hub` tries again for 23 seconds."""
    for ask in commands("http://127.0.0.1:9", tmp_path):
        found = ask("tasks", "new", "hf:org/sums")
        assert (found["code"], found["out"]) == (2, "")
        assert "Couldn't reach 'org/sums' on the Hub" in found["err"]
        assert found["err"].count("\n") == 1
