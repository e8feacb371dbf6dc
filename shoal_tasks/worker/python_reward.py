"""A reward that is a Python function of the user's, in TRL's form. For the worker process only.

    def reward(completions, **columns) -> list[float]: ...

The file runs inside the sandbox: no disk, no network, no processes, the item's share of processor
time, the worker's memory. What it imports at its top is loaded before the disk goes away. It is
called with one completion at a time, so a reward cannot depend on who else answered: every receiver
gets the same number. A function that gives two numbers for one completion is refused.

A judge, the function of a local family, is bound by none of this: it is outside the sandbox, has no
digest and need not repeat itself. It is not tried at the start, since each call may cost money.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any, Final

from shoal_tasks.rows import TaskRow
from shoal_tasks.spec import FamilySpec
from shoal_tasks.worker.item_limit import ItemLimit
from shoal_tasks.worker.user_code import (
    CHECK_EVERY,
    UnrepeatableError,
    UserCodeError,
    error_line,
    load,
    within,
)

_CHECKED_ROWS: Final = 8
"""Rows on which a function is tried at the start: enough for each kind of completion below."""


class PythonReward:
    """One family's function, ready to be called."""

    def __init__(
        self, spec: FamilySpec, source: bytes, rows: Sequence[TaskRow], limit: ItemLimit
    ) -> None:
        """Run the file and try its function, each call within `limit`. Call inside the sandbox.

        Raises `UserCodeError`.
        """
        self._spec, self._path, self._is_judge = spec, spec.reward_path, spec.is_local
        self._function = within(limit, self._path, self._load, source)
        self._takes = _parameters(self._function)
        self._num_scored = 0
        if not self._is_judge:
            self._try(rows[:: max(1, len(rows) // _CHECKED_ROWS)][:_CHECKED_ROWS], limit)

    def score(self, row: TaskRow, completion: str) -> float:
        """Return the reward of one completion, mapped to 0 to 1.

        Raises `UserCodeError`: the function raised, returned no list of one number, or gave another
        number than a moment before.
        """
        found = self._call(row, completion)
        self._num_scored += 1
        if self._num_scored % CHECK_EVERY == 0 and not self._is_judge:
            self._compare(found, self._call(row, completion), completion)
        return self._spec.share_of(found)

    def _load(self, source: bytes) -> Callable[..., Any]:
        name = str(self._spec.config["reward_name"])
        digest = self._spec.config.get("reward_sha256")
        function = load(self._spec, source, self._path, digest, name)
        if not callable(function):
            raise UserCodeError(f"{self._path} has no function {name!r}")
        if inspect.iscoroutinefunction(function):
            raise UserCodeError(
                f"{self._path}: {name} is asynchronous; a reward is a plain function"
            )
        return function  # type: ignore[no-any-return]

    def _try(self, rows: Sequence[TaskRow], limit: ItemLimit) -> None:
        """Score what any policy may say, twice and in two orders."""
        tried = [
            (row, text)
            for row in rows
            for text in ("", row.answer or row.question, f"<answer>{row.answer}</answer>", "1")
        ]
        first = [within(limit, self._path, self._call, *one) for one in tried]
        second = [within(limit, self._path, self._call, *one) for one in reversed(tried)][::-1]
        for (_, text), one, other in zip(tried, first, second, strict=True):
            self._compare(one, other, text)

    def _compare(self, one: float, other: float, completion: str) -> None:
        if one != other:
            raise UnrepeatableError(
                f"{self._path} does not repeat itself: it gave {one:g}, then {other:g}, for "
                f"{completion[:40]!r}. Peers score every answer anew and must get the same"
            )

    def _call(self, row: TaskRow, completion: str) -> float:
        given = {
            "completions": [completion],
            "prompts": [row.question],
            **{name: [value] for name, value in row.columns.items()},
        }
        if self._takes is not None:
            given = {name: value for name, value in given.items() if name in self._takes}
        try:
            returned = self._function(**given)
            (value,) = returned
            # TRL's rule: no number says that this reward does not apply.
            number = 0.0 if value is None else float(value)
        except (Exception, SystemExit) as error:  # noqa: BLE001  somebody's program
            raise UserCodeError(error_line(error, self._path)) from None
        if self._is_judge and not math.isfinite(number):
            raise UserCodeError(f"{self._path} gave {number}, which is no grade")
        return number if math.isfinite(number) else -math.inf


def _parameters(function: Callable[..., Any]) -> frozenset[str] | None:
    """Return the names that a function takes; None where it takes any (`**columns`)."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters):
        return None
    return frozenset(one.name for one in parameters)
