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
from typing import Any, Final, TypeVar

from shoal_tasks.rows import TaskRow, file_digest
from shoal_tasks.spec import FamilySpec
from shoal_tasks.worker.item_limit import ItemLimit, ItemTimeout
from shoal_tasks.worker.user_code import UnrepeatableError, UserCodeError, error_line, load_module

R = TypeVar("R")

_MODULE: Final = "shoal_reward"
_CHECKED_ROWS: Final = 8
"""Rows on which a function is tried at the start: enough for each kind of completion below."""
CHECK_EVERY: Final = 64
"""One scored completion in so many is scored twice: a cost of 1.6 %, and a reward that changes
with the hour or with what came before is found within a few rounds of eight answers."""


class PythonReward:
    """One family's function, ready to be called."""

    def __init__(
        self, spec: FamilySpec, source: bytes, rows: Sequence[TaskRow], limit: ItemLimit
    ) -> None:
        """Run the file and try its function, each call within `limit`. Call inside the sandbox.

        Raises `UserCodeError`.
        """
        self._is_judge = spec.is_local
        if not self._is_judge and file_digest(source) != spec.config["reward_sha256"]:
            raise UserCodeError(f"family {spec.name!r}: {spec.reward_path} is not the swarm's file")
        self._path = spec.reward_path
        low, high = spec.config["reward_range"]  # type: ignore[misc,str-unpack]
        self._low, self._high = float(low), float(high)  # type: ignore[arg-type]
        self._limit = limit
        self._function = self._limited(self._load, source, str(spec.config["reward_name"]))
        self._takes = _parameters(self._function)
        self._num_scored = 0
        if not self._is_judge:
            self._try(rows[:: max(1, len(rows) // _CHECKED_ROWS)][:_CHECKED_ROWS])

    def score(self, row: TaskRow, completion: str) -> float:
        """Return the reward of one completion, mapped to 0 to 1.

        Raises `UserCodeError`: the function raised, returned no list of one number, or gave another
        number than a moment before.
        """
        found = self._call(row, completion)
        self._num_scored += 1
        if self._num_scored % CHECK_EVERY == 0 and not self._is_judge:
            self._compare(found, self._call(row, completion), completion)
        # Outside the stated range a number means no more than the range's end.
        share = (found - self._low) / (self._high - self._low)
        return min(1.0, max(0.0, share))

    def _limited(self, function: Callable[..., R], *given: Any) -> R:
        try:
            with self._limit:
                return function(*given)
        except ItemTimeout:
            raise UserCodeError(
                f"{self._path} uses more than the processor time that a completion may cost"
            ) from None

    def _load(self, source: bytes, name: str) -> Callable[..., Any]:
        module = load_module(source, self._path, _MODULE)
        function = getattr(module, name, None)
        if not callable(function):
            raise UserCodeError(f"{self._path} has no function {name!r}")
        if inspect.iscoroutinefunction(function):
            raise UserCodeError(
                f"{self._path}: {name} is asynchronous; a reward is a plain function"
            )
        return function  # type: ignore[no-any-return]

    def _try(self, rows: Sequence[TaskRow]) -> None:
        """Score what any policy may say, twice and in two orders."""
        tried = [
            (row, text)
            for row in rows
            for text in ("", row.answer or row.question, f"<answer>{row.answer}</answer>", "1")
        ]
        first = [self._limited(self._call, row, text) for row, text in tried]
        second = [self._limited(self._call, row, text) for row, text in reversed(tried)][::-1]
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
        return number if math.isfinite(number) else self._low


def _parameters(function: Callable[..., Any]) -> frozenset[str] | None:
    """Return the names that a function takes; None where it takes any (`**columns`)."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters):
        return None
    return frozenset(one.name for one in parameters)
