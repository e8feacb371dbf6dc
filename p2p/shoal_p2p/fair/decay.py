"""Exponential decay of what is remembered: points, rates and recent use. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

HALF_LIFE_OF_TIME_CONSTANT = math.log(2.0)
"""The half-life that belongs to a time constant of 1 s: what is left of it after that is 1/e."""


def remaining(elapsed_s: float, half_life_s: float) -> float:
    """Return the share of an amount that is left after `elapsed_s`; 1 if the clock went back."""
    return 0.5 ** (max(0.0, elapsed_s) / half_life_s)


@dataclass(slots=True)
class DecayingSum:
    """A sum of amounts that each halve every `half_life_s`; `now` is monotonic seconds."""

    half_life_s: float
    at: float
    """Time of `amount`."""
    amount: float = 0.0

    def now(self, now: float) -> float:
        """Return the sum at `now`."""
        return self.amount * remaining(now - self.at, self.half_life_s)

    def add(self, amount: float, now: float) -> None:
        """Add an amount at `now`."""
        self.amount = self.now(now) + amount
        self.at = max(self.at, now)
