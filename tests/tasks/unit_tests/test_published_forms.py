"""Problems in each published form: their solutions pass, and wrong programs do not."""

from __future__ import annotations

import pytest

from shoal_tasks.unit_tests.forms import read_solution, read_tests
from shoal_tasks.unit_tests.runner import TestRunner
from shoal_tasks.unit_tests.sources import extract_code, root_of
from tests.tasks.unit_tests.problems import PROBLEMS, Problem

SECONDS = 5.0


def error_of(runner: TestRunner, problem: Problem, completion: str) -> str:
    tests = read_tests(problem.row, {}, "row 1")
    code = extract_code(completion, root_of(str(tests["entry"])))
    return runner.run(tests, code, SECONDS).error


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda one: one.name)
def test_solutions_pass_and_wrong_programs_do_not(problem: Problem, runner: TestRunner) -> None:
    solution = read_solution(problem.row, {})
    for right in (solution, *problem.right):
        assert error_of(runner, problem, right) == ""
        fenced = f"Here it is:\n\n```python\n{right}\n```\nThis is right."
        assert error_of(runner, problem, fenced) == ""
    for wrong in ("pass", *problem.wrong):
        error = error_of(runner, problem, wrong)
        assert error and "\n" not in error
