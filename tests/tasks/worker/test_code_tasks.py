"""Families with unit tests, from a task file to the reward, by a real worker in its sandbox."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import trio

from shoal_tasks.errors import FamilyError
from shoal_tasks.families import EASY, coordinates
from shoal_tasks.spec import TESTS_WORKER, FamilySpec
from shoal_tasks.task_file import load_task_file
from shoal_tasks.worker.sync import SyncTaskWorker
from shoal_tasks.worker.trio_client import TrioTaskWorker
from shoal_wire.types import FinishReason
from tests.support.task_files import score_of, task_file
from tests.tasks.unit_tests.problems import PROBLEMS, human_eval, mbpp

FIRST = 1 << 20


def family(folder: Path, rows: list[dict[str, Any]], **fields: object) -> FamilySpec:
    path = task_file(folder, "code", rows, **{"verifier": "tests", "held_out": 0, **fields})
    return load_task_file(path)


def added(name: str, body: str = "    return a + b\n", **more: Any) -> dict[str, Any]:
    prompt = f'def {name}(a, b):\n    """ Add two numbers. """\n'
    test = (
        "def check(candidate):\n    assert candidate(1, 2) == 3\n    assert candidate(2, 5) == 7\n"
    )
    return {**human_eval(name, prompt, body, test), **more}


def refused(spec: FamilySpec) -> str:
    with pytest.raises(FamilyError) as caught, SyncTaskWorker([spec]):
        pass
    (line,) = str(caught.value).splitlines()
    return line


def test_every_published_solution_earns_one_and_a_cut_one_half(tmp_path: Path) -> None:
    # One question each: the formats differ, but the rows file is one.
    rows = [{**one.row, "question": f"{one.name}?"} for one in PROBLEMS]
    spec = family(tmp_path, rows, test_seconds=20)
    assert spec.worker_key == TESTS_WORKER
    with SyncTaskWorker([spec]) as worker:
        tasks = [coordinates(spec, FIRST + number) for number in range(len(rows))]
        items = worker.items(tasks)
        assert {item.question for item in items} == {row["question"] for row in rows}
        requested = [
            score_of(task, text, finish)
            for task, item in zip(tasks, items, strict=True)
            for text, finish in (
                (item.example or "", FinishReason.STOP),
                (item.example or "", FinishReason.LENGTH),
                ("I do not know.", FinishReason.STOP),
                ("", FinishReason.STOP),
            )
        ]
        rewards = [result.reward for result in worker.score(requested)]
    assert rewards == [1.0, 0.5, 0.0, 0.0] * len(rows)


@pytest.mark.slow
def test_the_reason_is_an_error_and_other_families_have_their_own_worker(tmp_path: Path) -> None:
    spec = family(tmp_path, [added("add"), added("plus")], test_seconds=1)
    task, other = coordinates(spec, FIRST), coordinates(EASY[0], FIRST)
    programs = {
        "    return a - b\n": "AssertionError: assert candidate(1, 2) == 3",
        "    import os; os.kill(os.getppid(), 9)\n": "PermissionError",
        "    while True: pass\n": "more than 1 s of processor time",
        "    raise SystemExit\n": "the code ended its process",
    }
    with SyncTaskWorker([EASY[0], spec]) as worker:
        report = worker.report
        results = worker.score([score_of(task, text) for text in programs])
        for result, expected in zip(results, programs.values(), strict=True):
            assert result.reward == 0.0
            assert expected in result.error
            assert not result.crashed
        assert [result.timed_out for result in results] == [False, False, True, False]
        assert worker.score([score_of(other, "")])[0].error == ""
        assert worker.num_restarts == 0
        assert worker.report == report
        assert worker.score([score_of(task, "    return a + b\n")])[0].reward == 1.0


@pytest.mark.parametrize(
    ("row", "fields", "expected"),
    [
        (added("add", "    return a - b\n"), {}, "assert candidate(1, 2) == 3"),
        (added("add", test="def check(candidate):\n    pass\n"), {}, "does nothing"),
        (
            added("add", "    sum(range(20_000_000))\n    return a + b\n"),
            {"test_seconds": 1},
            "test_seconds is 1",
        ),
        (mbpp("Add.", "def add(a, b):\n  return a", ["assert add(1, 2) == 3"]), {}, "add(1, 2)"),
    ],
)
def test_a_solution_that_fails_refuses_the_family(
    row: dict[str, Any], fields: dict[str, Any], expected: str, tmp_path: Path
) -> None:
    line = refused(family(tmp_path, [row], **fields))
    assert "'code': row 1: " in line
    assert expected in line


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"question": "q", "answer": "a"}, "no tests in a known column"),
        ({"question": "q", "test": "assert f(:"}, "not Python"),
        ({"question": "q", "test_list": []}, "no tests in a known column"),
        ({"question": "q", "tests": 5}, "no known format"),
        ({"question": "q", "test_cases": [{"stdin": "1"}]}, "not input and output"),
        ({"question": "q", "input_output": '{"inputs": ["1"], "outputs": []}'}, "1 inputs and 0"),
        ({"question": "q", "input_output": '{"inputs": [[1]], "outputs": [1]}'}, "no function"),
    ],
)
def test_what_is_not_understood_is_named(
    row: dict[str, Any], expected: str, tmp_path: Path
) -> None:
    with pytest.raises(FamilyError) as caught:
        family(tmp_path, [row])
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"verifier": "exact", "tests": "test"}, 'verifier = "tests"'),
        ({"test_seconds": 0}, "1 to 30"),
        ({"test_seconds": 31}, "1 to 30"),
        ({"tests": "nothing"}, "no column 'nothing'"),
    ],
)
def test_keys_are_checked(fields: dict[str, Any], expected: str, tmp_path: Path) -> None:
    with pytest.raises(FamilyError, match=expected):
        family(tmp_path, [added("add")], **fields)


def test_columns_of_any_name_can_be_named(tmp_path: Path) -> None:
    row = {
        "task": "Add.",
        "nested": {"checks": ["assert add(1, 2) == 3"]},
        "gold": "def add(a, b): return a + b",
    }
    spec = family(tmp_path, [row], question="task", tests="nested.checks", solution="gold")
    with SyncTaskWorker([spec]) as worker:
        assert worker.score([score_of(coordinates(spec, FIRST), row["gold"])])[0].reward == 1.0
    kept = json.loads(Path(spec.path).read_text())
    assert kept["columns"]["solution"] == row["gold"]


def test_a_fork_server_that_is_gone_costs_a_restart_and_no_reward(tmp_path: Path) -> None:
    spec = family(tmp_path, [added("add")])
    with SyncTaskWorker([spec]) as worker:
        report = worker.report
        assert report is not None
        (server,) = children(report.pid)
        os.kill(server, 9)
        result = worker.score([score_of(coordinates(spec, FIRST), "    return a + b\n")])[0]
        assert result.reward == 1.0
        assert worker.num_restarts == 1


def children(pid: int) -> list[int]:
    path = Path(f"/proc/{pid}/task/{pid}/children")
    if not path.exists():
        pytest.skip("no /proc here")
    return [int(child) for child in path.read_text().split()]


async def test_a_nodes_worker_has_the_questions_and_refuses_what_is_wrong(tmp_path: Path) -> None:
    good = family(tmp_path / "good", [added("add"), added("plus")])
    bad = family(tmp_path / "bad", [added("add", "    return a\n")])
    async with trio.open_nursery() as nursery:
        worker = TrioTaskWorker([EASY[0], good])
        await nursery.start(worker.run)
        tasks = [coordinates(good, FIRST), coordinates(EASY[0], FIRST)]
        first, second = await worker.items(tasks)
        assert "Add two numbers" in first.question
        assert second.question != first.question
        nursery.cancel_scope.cancel()
    with pytest.raises(FamilyError, match="its own solution fails"):
        await TrioTaskWorker([EASY[0], bad]).run()


def test_the_layers_around_tested_code_are_reported(tmp_path: Path) -> None:
    spec = family(tmp_path, [added("add")])
    with SyncTaskWorker([spec]) as worker:
        assert worker.report is not None
        states = {layer.name: layer.active for layer in worker.report.layers}
    for name in ("network", "filesystem", "no_new_privs", "parent_death"):
        # The same layers as around the worker are in force.
        assert states[f"code_{name}"] is states[name]
