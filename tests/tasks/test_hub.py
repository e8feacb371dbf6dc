"""Rows of a data set on the Hub: they are read, and missing ones are one line and exit code 2."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.forked_commands import Run, open_forks
from tests.tasks.hub import hub


def rows(count: int, first: int) -> bytes:
    made = [{"question": f"{n} + 1?", "answer": str(n + 1)} for n in range(first, first + count)]
    return "\n".join(map(json.dumps, made)).encode() + b"\n"


SUMS = {
    "main": {"README.md": b"Sums.\n", "train.jsonl": rows(12, 0), "test.jsonl": rows(3, 50)},
    "v1": {"train.jsonl": rows(5, 100)},
    "torn": {"train.jsonl": b'{"question": "1 + 1?"\n'},
}


@contextmanager
def commands(address: str, folder: Path) -> Iterator[Run]:
    """Yield the function that runs `shoal` with its hub at `address`, with `datasets` loaded."""
    home = {"HF_ENDPOINT": address, "HF_HOME": str(folder), "NO_PROXY": "127.0.0.1"}
    with open_forks({**os.environ, **home}, "datasets", seconds=90.0) as run:
        yield run


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    with (
        hub({"org/sums": SUMS}) as address,
        commands(address, tmp_path_factory.mktemp("hub")) as run,
    ):
        yield run


@pytest.mark.slow
def test_the_rows_of_a_data_set_arrive(ask: Run) -> None:
    found = ask(["tasks", "new", "hf:org/sums"])
    assert (found["code"], found["err"]) == (0, "")
    assert "12 questions" in found["out"]


def test_a_task_file_that_names_a_revision_and_a_split_has_its_questions(ask: Run) -> None:
    file = b'name = "sums"\nrows = "hf:org/sums@v1:train[:4]"\nheld_out = 1\n'
    command = ["tasks", "sums.toml", "--json"]
    found = ask(command, files={"sums.toml": file})
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
def test_what_a_hub_does_not_have_is_one_line(ask: Run, source: str, why: str) -> None:
    found = ask(["tasks", "new", source])
    assert (found["code"], found["out"]) == (2, "")
    assert found["err"].startswith(f"shoal tasks new: cannot load {source}: {why}"), found["err"]
    assert found["err"].count("\n") == 1


@pytest.mark.slow
def test_a_hub_that_cannot_be_reached_is_one_line(tmp_path: Path) -> None:
    """Slow: `huggingface_hub` retries for 23 seconds."""
    with commands("http://127.0.0.1:9", tmp_path) as ask:
        found = ask(["tasks", "new", "hf:org/sums"])
        assert (found["code"], found["out"]) == (2, "")
        assert "Couldn't reach 'org/sums' on the Hub" in found["err"]
        assert found["err"].count("\n") == 1
