"""Rolls back to the last good weights when numbers stay non-finite.

A single such step can be caused by the batch and is skipped; `STEPS_IN_A_ROW` are caused by the
weights or the optimiser. Repeated rollbacks without good rounds in between do not help, so training
ends.
"""

from __future__ import annotations

from shoal_policy.update.grpo import UpdateStats

STEPS_IN_A_ROW = 3  # one may be the batch, three are not; a guess
MAX_ROLLBACKS = 3
"""Maximum number of rollbacks without `GOOD_ROUNDS` in between."""
GOOD_ROUNDS = 20
"""Finite rounds that reset the count. One is not enough: it may be the step that breaks weights."""


class DivergedError(Exception):
    """Training stays non-finite after rollbacks. One line."""


class RollbackWatch:
    """Counts non-finite steps and rollbacks."""

    def __init__(self) -> None:
        self._bad_steps = 0
        self._rollbacks = 0
        self._good_rounds = 0

    def is_due(self, stats: UpdateStats) -> bool:
        """Count a round's steps; return whether to roll back."""
        if stats.num_steps:
            self._bad_steps = 0
            self._good_rounds += 1
        self._bad_steps += stats.skipped_nonfinite
        if self._bad_steps:
            self._good_rounds = 0
        if self._good_rounds >= GOOD_ROUNDS:
            self._rollbacks = 0
        return self._bad_steps >= STEPS_IN_A_ROW

    def on_rollback(self) -> None:
        """Count a rollback.

        Raises:
            DivergedError: there were too many.
        """
        self._bad_steps = self._good_rounds = 0
        self._rollbacks += 1
        if self._rollbacks > MAX_ROLLBACKS:
            raise DivergedError(
                f"training was rolled back {MAX_ROLLBACKS} times and its loss is still non-"
                "finite: use a lower --learning-rate"
            )
