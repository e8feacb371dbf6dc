"""Rewards by the user's Python functions. For the worker process only.

The file runs inside the sandbox: no user files, no network, no processes, limited processor time
and memory. Functions receive all completions of a group as they were published, so every receiver
gets the same numbers. A function that gives two numbers for one completion of a group is refused.

A judge, the function of a local family, has none of these limits: it runs outside the sandbox, has
no digest and may be nondeterministic. It is not tried at the start, because each call may cost
money.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from shoal_tasks.rows import TaskRow
from shoal_tasks.sandbox.audit import AuditGuard
from shoal_tasks.spec import FamilySpec
from shoal_tasks.worker.item_limit import ItemLimit
from shoal_tasks.worker.reward_function import RESERVED, RewardFunction
from shoal_tasks.worker.reward_trial import Trial, build_trial_groups
from shoal_tasks.worker.reward_values import range_hint, weighted_sum
from shoal_tasks.worker.user_code import (
    CHECK_EVERY,
    NondeterministicError,
    UserCodeError,
    run_limited,
)

_START_ITEMS = 10
"""Items whose time the file may use for loading, which it does only once. A guess."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRewards:
    """The rewards of one group's completions."""

    shares: tuple[float, ...]
    """One for each completion, from 0 to 1."""
    notes: tuple[str, ...]
    """One line per completion, for the author; empty if the number is inside `reward_range`."""


class PythonReward:
    """The reward functions of one family."""

    def __init__(
        self,
        spec: FamilySpec,
        sources: Sequence[bytes],
        rows: Sequence[TaskRow],
        limit: ItemLimit,
        guard: AuditGuard,
    ) -> None:
        """Run the files and try their functions, each call within `limit`. Call inside the sandbox.

        Raises `UserCodeError`.
        """
        self._spec, self._is_judge = spec, spec.is_local
        self._where = ", ".join(dict.fromkeys(spec.reward_paths))
        self._bounds = cast(list[float], spec.config["reward_range"])
        self._num_scored = 0
        self._lacks_a_grade = False
        self.notes: list[str] = []
        """Lines for the family's author, found at the start."""
        self._functions = [
            run_limited(limit, path, RewardFunction, spec, source, path, name, digest, guard,
                   items=_START_ITEMS)
            for source, path, (name, digest) in zip(
                sources, spec.reward_paths, spec.reward_names, strict=True
            )
        ]  # fmt: skip
        if not self._is_judge:
            self._run_trial(rows, limit)

    def score(self, row: TaskRow, texts: Sequence[str]) -> GroupRewards:
        """Return the rewards of one group's completions.

        Raises:
            UserCodeError: a function raised, was refused an operation, returned something other
            than
                a list of numbers, or is not deterministic.
        """
        found = self._totals(row, texts)
        if self._is_judge and self._lacks_a_grade:
            raise UserCodeError(f"{self._where} gave no grade")
        self._num_scored += len(texts)
        if self._num_scored >= CHECK_EVERY and not self._is_judge:
            self._num_scored = 0
            self._compare(found, self._totals(row, texts), texts)
        clause = range_hint(found, self._bounds)
        note = f"{self._where} {clause}; until then such values are clipped to the range"
        return GroupRewards(
            shares=tuple(map(self._spec.share_of, found)),
            notes=tuple(note if range_hint([value], self._bounds) else "" for value in found),
        )

    def _totals(self, row: TaskRow, texts: Sequence[str]) -> list[float]:
        each = [function.values(row, texts) for function in self._functions]
        weights = self._spec.reward_weights
        self._lacks_a_grade = any(set(values) == {None} for values in zip(*each, strict=True))
        return [weighted_sum(values, weights) for values in zip(*each, strict=True)]

    def _run_trial(self, rows: Sequence[TaskRow], limit: ItemLimit) -> None:
        """Find each function's message form, then score trial completions twice, in two orders."""
        groups = build_trial_groups(rows)
        for function in self._functions:
            function.form = Trial(function, groups, limit).best_form()
            if function.form.is_alone:
                self.notes.append(
                    f"{function.path} returns one number for several completions, so it is called "
                    "with one completion at a time; TRL calls it with a whole group"
                )

        def tried(group: tuple[TaskRow, list[str]]) -> list[float]:
            return run_limited(limit, self._where, self._totals, *group, items=len(group[1]))

        first = [tried(group) for group in groups]
        second = [tried(group) for group in reversed(groups)][::-1]
        for (_, texts), one, other in zip(groups, first, second, strict=True):
            self._compare(one, other, texts)
        values = [value for found in first for value in found]
        if clause := range_hint(values, self._bounds):
            raise UserCodeError(f"{self._where} {clause}")
        if min(values) == max(values):
            self.notes.append(
                f"{self._where} gave {values[0]:g} for each of {len(values)} trial completions, "
                "among them the rows' own answers: equal rewards give no training signal"
            )
        columns = dict.fromkeys(name for row in rows for name in row.columns)
        if left_out := [name for name in columns if name in RESERVED]:
            self.notes.append(
                f"family {self._spec.name!r}: the column {', '.join(map(repr, left_out))} is not "
                "passed to the reward: TRL has an argument of this name; rename the column"
            )

    def _compare(self, one: Sequence[float], other: Sequence[float], texts: Sequence[str]) -> None:
        for first, second, text in zip(one, other, texts, strict=True):
            if first != second:
                raise NondeterministicError(
                    f"{self._where} is not deterministic: it gave {first:g}, then {second:g}, for "
                    f"{text[:40]!r}. Peers score every completion again and must get the same"
                )
