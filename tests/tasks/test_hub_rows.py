"""Rows on a hub travel as the keys that make them: the same rows, or one line, and never a path."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shoal_tasks import data_files
from shoal_tasks.bundle import can_travel
from shoal_tasks.errors import FamilyError
from shoal_tasks.hub_rows import source_of, write_hub_rows
from shoal_tasks.spec import FamilySpec
from shoal_tasks.task_file import load_task_file
from tests.support.task_files import task_file

COMMIT = "0123456789abcdef0123456789abcdef01234567"
SOURCE = f"hf:org/sums/main@{COMMIT}:train[:9]"
REWARD = "def reward(completions, **_):\n    return [0.0 for _ in completions]\n"


@pytest.fixture(autouse=True)
def data_set(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Stand in for the hub: `tests/tasks/test_hub.py` reads a real one."""
    rows = [
        {"q": f"{n} + 1?", "a": f"so #### {n + 1}", "answer": n + 1, "hint": f"h{n}"}
        for n in range(9)
    ]

    def read_hub(source: str) -> Iterator[dict[str, Any]]:
        assert source == SOURCE
        yield from rows

    monkeypatch.setattr(data_files, "read_hub", read_hub)
    return rows


def family(folder: Path, **fields: Any) -> FamilySpec:
    folder.mkdir(exist_ok=True)
    (folder / "reward.py").write_text(REWARD)
    given = {"rows": SOURCE, "question": "q", "answer": "a", "share": True, **fields}
    return load_task_file(task_file(folder, "sums", **given))


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"answer_after": "####"},
        {"answer_after": "####", "verifier": "math", "held_out": 3},
        {"prompt": "{hint} {q}", "system": "Add."},
        {"reward": "reward.py", "case_matters": True},
    ],
)
def test_the_receiver_makes_the_same_rows(tmp_path: Path, fields: dict[str, Any]) -> None:
    spec = family(tmp_path / "author", **fields)
    assert source_of(spec.hub_rows) == SOURCE
    assert "reward.py" not in spec.hub_rows and str(tmp_path) not in spec.hub_rows
    sha256 = bytes.fromhex(str(spec.config["sha256"]))
    write_hub_rows(spec.hub_rows, sha256, tmp_path / "joiner/rows.jsonl")
    assert (tmp_path / "joiner/rows.jsonl").read_bytes() == Path(spec.path).read_bytes()


def test_another_data_set_is_one_line(tmp_path: Path, data_set: list[dict[str, Any]]) -> None:
    spec = family(tmp_path)
    data_set[3]["a"] = "another"
    with pytest.raises(FamilyError, match="are not those of the swarm's family"):
        write_hub_rows(
            spec.hub_rows, bytes.fromhex(str(spec.config["sha256"])), tmp_path / "rows.jsonl"
        )
    assert not (tmp_path / "rows.jsonl").exists()


@pytest.mark.parametrize("source", ["hf:org/sums", "hf:org/sums@main", f"hf:org/sums@{COMMIT[1:]}"])
def test_only_one_commit_is_shared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    rows = [{"q": "1?", "a": "1"}, {"q": "2?", "a": "2"}]
    monkeypatch.setattr(data_files, "read_hub", lambda _source: iter(rows))
    with pytest.raises(FamilyError, match="the data set's commit") as caught:
        family(tmp_path, rows=source)
    assert "\n" not in str(caught.value)


def test_what_a_peer_describes_is_a_hubs_data_set_or_one_line(tmp_path: Path) -> None:
    """No file of this machine is read, and each error is a line."""
    rng = random.Random(7)
    (tmp_path / "secret.jsonl").write_text('{"q": "PRIVATE", "a": "1"}\n' * 3)
    values: list[Any] = [
        str(tmp_path / "secret.jsonl"), "../secret.jsonl", "hf:", f"hf:../x@{COMMIT}", SOURCE,
        f"hf:{tmp_path}@{COMMIT}", f"hf:org/sums@{COMMIT}\n", 1, -1, True, None, [], ["a"], [1],
        {}, "", "q", "a", "{q} {a}", "tests", 1e300,
    ]  # fmt: skip
    keys = [
        *("rows", "question", "answer", "choices", "columns", "first_choice", "held_out"),
        *("prompt", "verifier", "tests", "reward", "encoding", "name", "local", "path"),
    ]
    num_read = 0
    for _ in range(4000):
        table = {key: rng.choice(values) for key in rng.sample(keys, rng.randrange(6))}
        if rng.random() < 0.4:
            table = {"question": "q", "answer": "a", **table, "rows": SOURCE}
        text = json.dumps(table)[: None if rng.random() < 0.9 else rng.randrange(40)]
        path = tmp_path / "out/rows.jsonl"
        with pytest.raises(FamilyError) as caught:
            write_hub_rows(text, bytes(32), path)
        assert "\n" not in str(caught.value) and not path.exists()
        assert "PRIVATE" not in str(caught.value)
        num_read += "are not those of the swarm's family" in str(caught.value)
    assert num_read > 100, "good keys are read, up to the digest"


def test_a_judge_of_ones_own_never_travels(tmp_path: Path) -> None:
    """Whatever else the task file has."""
    rng = random.Random(11)
    rows = [{"q": f"{n}?", "a": str(n)} for n in range(9)]
    choices: dict[str, list[Any]] = {
        "share": [True, False, None],
        "reward": ["reward.py", ["reward.py", "reward.py:reward"]],
        "title": [None, "Sums"],
        "system": [None, "Add."],
        "held_out": [None, 2],
        "prompt": [None, "What is {q}"],
        "rows": ["rows.jsonl", SOURCE],
    }
    num_shared = 0
    for number in range(60):
        fields = {key: rng.choice(some) for key, some in choices.items()}
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "reward.py").write_text(REWARD)
        given = {"question": "q", "answer": "a", "local": True, **fields}
        path = task_file(folder, "sums", rows, **given)
        if fields["share"]:
            num_shared += 1
            with pytest.raises(FamilyError, match="share is not for local = true"):
                load_task_file(path)
            continue
        spec = load_task_file(path)
        assert spec.is_local and not spec.share and not can_travel(spec) and not spec.hub_rows
    assert num_shared > 10
