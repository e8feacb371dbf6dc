"""Worked examples before a policy's questions: a fixed set for each task family.

    q1 a1 q2 a2 …   question          the tokens before the question are the same for all
    └── prefix ──┘                    questions of a family, and computed once

Each node chooses its own: examples never cross the wire. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from shoal_tasks.prompts import Example

MIN_SHARED_TOKENS = 16
"""Shared tokens from which on computing them separately pays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyExamples:
    """The worked examples before the questions of one family."""

    count: int
    """Examples before each question."""
    examples: tuple[Example, ...]
    """More than `count`: spare ones replace an example that is the question itself."""
    prefix: tuple[int, ...] = ()
    """The token ids with which prompts of the family begin."""


@dataclass(frozen=True, slots=True)
class FewShotExamples:
    """The worked examples before the questions of each family."""

    families: Mapping[str, FamilyExamples] = field(default_factory=dict, hash=False)

    def of(self, family: str, question: str) -> tuple[Example, ...]:
        """Return the examples before a question, without the question itself; may be empty."""
        shown = self.families.get(family)
        if shown is None:
            return ()
        others = [one for one in shown.examples if one.question != question]
        return tuple(others[: shown.count])

    def num_shared(self, prompt: Sequence[int]) -> int:
        """Return the number of leading prompt tokens that all prompts of its family share, or 0.

        At least one token is left for the prompt itself.
        """
        return max(
            (
                len(one.prefix)
                for one in self.families.values()
                if MIN_SHARED_TOKENS <= len(one.prefix) < len(prompt)
                and tuple(prompt[: len(one.prefix)]) == one.prefix
            ),
            default=0,
        )


NO_EXAMPLES = FewShotExamples()


def common_prefix(prompts: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Return the longest common beginning of token sequences."""
    first, *others = prompts
    length = min(map(len, prompts))
    for other in others:
        while list(other[:length]) != list(first[:length]):
            length = next(i for i in range(length) if other[i] != first[i])
    return tuple(first[:length])
