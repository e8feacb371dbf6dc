"""A run's held-out evaluations, the first and the latest, and how sure each is. Pure.

The interval is over questions: how far the share may lie from that of all questions of these tasks.
It says nothing of another run. Both evaluations ask the same questions, so the interval of their
difference is, if anything, too wide.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from shoal_ipc.answers.form import Lines

Z: Final = 1.96
"""95 % of a normal distribution lie within this many standard deviations."""
MIN_ITEMS: Final = 30
"""Questions from which a share is printed with its interval; of fewer the count is clearer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleAnswer:
    """One held-out question with the policy's answer: the same question in each evaluation."""

    question: Lines = ""
    answer: Lines = ""
    reward: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """One held-out evaluation."""

    round: int = 0
    """Rounds completed before it."""
    pass_at_1: float = 0.0
    """Share of the questions that earned the full reward."""
    num_items: int = 0
    """Questions answered; 0 if unknown."""
    low: float | None = None
    """Lower bound of the share's 95 % interval over questions; None if their number is unknown."""
    high: float | None = None
    """Upper bound."""
    example: ExampleAnswer | None = None
    """None where it is not on record."""

    def __str__(self) -> str:
        """Return it for people: ``0.562 ± 0.070 of 192``, or ``7 of 8``."""
        of = f" of {self.num_items}" if self.num_items >= MIN_ITEMS else ""
        return f"{self.share_with_interval}{of}"

    @property
    def share_with_interval(self) -> str:
        """Return it without the number of questions: ``0.562 ± 0.070``, or ``7 of 8``."""
        has_interval = self.num_items >= MIN_ITEMS and self.halfwidth
        return f"{self.share} ± {self.halfwidth:.3f}" if has_interval else self.share

    @property
    def share(self) -> str:
        """Return it without its interval: ``0.562``, or ``7 of 8``."""
        if 0 < self.num_items < MIN_ITEMS:
            return f"{round(self.pass_at_1 * self.num_items)} of {self.num_items}"
        return f"{self.pass_at_1:.3f}"

    @property
    def halfwidth(self) -> float:
        """Return half of the interval; 0 if unknown."""
        return 0.0 if self.low is None or self.high is None else (self.high - self.low) / 2


def evaluation(round_number: int, pass_at_1: float, num_items: int) -> Evaluation:
    """Return an evaluation with its interval (Agresti and Coull)."""
    low, high = interval_of_share(pass_at_1, num_items) or (None, None)
    return Evaluation(
        round=round_number, pass_at_1=pass_at_1, num_items=num_items, low=low, high=high
    )


def interval_of_share(share: float, num: int) -> tuple[float, float] | None:
    """Return the 95 % interval of a share of `num` questions; None if the number is unknown."""
    if num < 1:
        return None
    middle = (share * num + 2) / (num + 4)
    within = Z * math.sqrt(max(0.0, middle * (1 - middle)) / (num + 4))
    return middle - within, middle + within


def held_out_words(initial: Evaluation | None, latest: Evaluation | None) -> str:
    """Return both for people: ``0.562 ± 0.070 of 192 (start 0.104)``; empty before the first."""
    if latest is None:
        return ""
    is_first = initial is None or initial.round == latest.round
    return str(latest) if initial is None or is_first else f"{latest} (start {initial.share})"


def change_of(initial: Evaluation | None, latest: Evaluation | None) -> tuple[float, float] | None:
    """Return the change between two evaluations, and half of its 95 % interval.

    None without two, or if the number of questions is unknown.
    """
    if initial is None or latest is None or initial.round == latest.round:
        return None
    if not initial.num_items or not latest.num_items:
        return None
    within = math.hypot(initial.halfwidth, latest.halfwidth)
    return latest.pass_at_1 - initial.pass_at_1, within
