"""A taskset of verifiers becomes three files. The library is no part of `dev`."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

from shoal.__main__ import main
from shoal.tasks.from_verifiers import write_files
from shoal_tasks.data_files import read_records

IS_INSTALLED = importlib.util.find_spec("verifiers") is not None
TASKSET = """
import verifiers.v1 as vf

class SumData(vf.TaskData):
    answer: str

class SumTask(vf.Task[SumData]):
    @vf.reward(weight=2.0)
    async def is_right(self, task, trace):
        return float(task.answer in trace.last_reply)

    @vf.reward(weight=-0.5)
    async def is_long(self, task, trace):
        return float(len(trace.last_reply) > 20)

class Sums(vf.Taskset[SumTask, vf.TasksetConfig]):
    def load(self):
        asked = [(n, f"What is {n} + {n}?", str(2 * n)) for n in range(20)]
        made = [SumData(idx=n, prompt=text, answer=answer) for n, text, answer in asked]
        return [SumTask(one, self.config.task) for one in made]
"""


@pytest.mark.parametrize("source", ["verifiers:Sums", "verifiers:no_such_module.Sums"])
def test_what_is_no_taskset_is_one_line(
    source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["tasks", "new", source]) == 2
    error = capsys.readouterr().err
    assert error.startswith("shoal tasks new: ") and source in error and error.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(not IS_INSTALLED, reason="comes with the extra `verifiers`")
def test_a_taskset_becomes_rows_and_a_reward(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_sums.py").write_text(TASKSET)
    monkeypatch.syspath_prepend(str(tmp_path))
    keys = write_files("verifiers:own_sums.Sums", "sums", tmp_path)
    assert keys["reward_range"] == [-0.5, 2.0]
    rows = [row for _, row in read_records("sums.jsonl", tmp_path)]
    assert [row["question"] for row in rows[:2]] == ["What is 0 + 0?", "What is 1 + 1?"]
    module: Any = importlib.import_module("sums_reward")
    for said, earned in (("14", 2.0), ("13", 0.0), ("It is 14, as I have counted.", 1.5)):
        assert module.reward([said], [rows[7]["task"]]) == [earned]
    del sys.modules["sums_reward"]
