"""Returns to the last good weights when numbers stay not finite.

One such step can be the batch's fault and is only left out; `STEPS_IN_A_ROW` are the weights' or
the optimiser's. Going back again and again without a good stretch in between helps nobody: it ends.
"""

from __future__ import annotations

from shoal_policy.update.grpo import UpdateStats

STEPS_IN_A_ROW = 3  # one can be the batch, three are not; a guess
MOST_ROLLBACKS = 3
"""Most rollbacks without a good stretch in between."""
GOOD_ROUNDS = 20
"""A good stretch. One good step is none: it can be the one that spoils the weights."""


class DivergedError(Exception):
    """Training gives numbers that are not finite whatever is done. One line."""


class RollbackWatch:
    """Counts steps that were not finite."""

    def __init__(self) -> None:
        self._bad_steps = 0
        self._rollbacks = 0
        self._good_rounds = 0

    def due(self, stats: UpdateStats) -> bool:
        """Count a round's steps; return whether it is time to go back."""
        if stats.num_steps:
            self._bad_steps = 0
            self._good_rounds += 1
        self._bad_steps += stats.skipped_nonfinite
        if self._bad_steps:
            self._good_rounds = 0
        if self._good_rounds >= GOOD_ROUNDS:
            self._rollbacks = 0
        return self._bad_steps >= STEPS_IN_A_ROW

    def rolled_back(self) -> None:
        """Count a rollback.

        Raises:
            DivergedError: it is one too many.
        """
        self._bad_steps = self._good_rounds = 0
        self._rollbacks += 1
        if self._rollbacks > MOST_ROLLBACKS:
            raise DivergedError(
                f"training was rolled back {MOST_ROLLBACKS} times and its numbers are still not "
                "finite: try a lower --learning-rate"
            )
