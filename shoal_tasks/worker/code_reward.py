"""The reward of completions that are programs: 1 if the row's unit tests pass, otherwise 0.

For the worker process only. The programs run in processes of the fork server (`unit_tests`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from shoal_tasks.answers import extract_tagged
from shoal_tasks.errors import FamilyError
from shoal_tasks.rows import TaskRow
from shoal_tasks.spec import FamilySpec
from shoal_tasks.unit_tests.forms import SOLUTION_COLUMN, TESTS_COLUMN
from shoal_tasks.unit_tests.runner import Outcome, TestRunner
from shoal_tasks.unit_tests.sources import extract_code, root_of
from shoal_tasks.worker.user_code import UserCodeError

_CHECKED_ROWS: Final = 16
"""Number of rows whose reference solution is run at the start, spread over the file."""
_SHARE_OF_A_SOLUTION: Final = 4
"""Part (1/n) of the time limit that a reference solution may use: other machines are slower."""
_NOTHING: Final = "pass"
"""A program that does nothing. Tests that accept it are refused."""


class TestsError(UserCodeError):
    """The reason why a program earns 0, in one line."""

    __test__ = False

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.error)
        self.timed_out = outcome.timed_out


class CodeReward:
    """The unit tests of one family."""

    def __init__(self, spec: FamilySpec, rows: Sequence[TaskRow], runner: TestRunner) -> None:
        """Run the tests of some rows.

        Raises:
            FamilyError: a reference solution fails its tests, or a program that does nothing
            passes.
        """
        self._spec, self._runner = spec, runner
        self._seconds = float(str(spec.config["test_seconds"]))
        step = max(1, len(rows) // _CHECKED_ROWS)
        for number in range(0, len(rows), step)[:_CHECKED_ROWS]:
            self._check(rows[number], f"family {spec.name!r}: row {number + 1}")

    def score(self, row: TaskRow, completion: str) -> float:
        """Return 1.0. Raises `TestsError` if a test fails, or `WorkerUnavailable`."""
        text = completion
        if self._spec.is_tagged:
            text = extract_tagged(completion) or ""
        outcome = self._run(row, extract_code(text, root_of(str(_tests(row)["entry"]))))
        if outcome.error:
            raise TestsError(outcome)
        return 1.0

    def _run(self, row: TaskRow, code: str) -> Outcome:
        return self._runner.run(_tests(row), code, self._seconds)

    def _check(self, row: TaskRow, where: str) -> None:
        solution = row.columns.get(SOLUTION_COLUMN)
        if solution:
            outcome = self._run(row, str(solution))
            if outcome.error:
                raise FamilyError(f"{where}: its own solution fails its tests: {outcome.error}")
            if outcome.cpu_seconds > self._seconds / _SHARE_OF_A_SOLUTION:
                raise FamilyError(
                    f"{where}: its own solution takes {outcome.cpu_seconds:.1f} s; on a slower "
                    f"machine that could be too much: test_seconds is {self._seconds:.0f}, and a "
                    "solution may take a quarter of it"
                )
        if not self._run(row, _NOTHING).error:
            raise FamilyError(f"{where}: its tests accept a program that does nothing")


def example_completion(row: TaskRow) -> str | None:
    """Return a completion that earns the full reward; None if the row has no solution."""
    solution = row.columns.get(SOLUTION_COLUMN)
    return f"```python\n{str(solution).strip(chr(10))}\n```" if solution else None


def _tests(row: TaskRow) -> dict[str, Any]:
    tests = row.columns[TESTS_COLUMN]
    assert isinstance(tests, dict)
    return tests
