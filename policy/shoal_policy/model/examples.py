"""Worked examples before a policy's questions: each family's own, the same before all of them.

    q1 a1 q2 a2 …   question          what stands before the question is one run of tokens,
    └── prefix ──┘                    computed once for all questions of a family

Each node shows what it likes: nothing of it crosses the wire. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from shoal_tasks.prompts import Example

LEAST_SHARED = 16
"""Tokens from which on it pays to compute them apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownExamples:
    """The worked examples before the questions of one family."""

    count: int
    """Examples before a question."""
    examples: tuple[Example, ...]
    """More than `count`: the others take the places of those that are asked themselves."""
    prefix: tuple[int, ...] = ()
    """The tokens with which prompts of the family begin."""


@dataclass(frozen=True, slots=True)
class Shots:
    """The worked examples before the questions of each family."""

    families: Mapping[str, ShownExamples] = field(default_factory=dict, hash=False)

    def of(self, family: str, question: str) -> tuple[Example, ...]:
        """The examples before a question: never the question itself, which would tell its answer.

        None for a family that has none.
        """
        shown = self.families.get(family)
        if shown is None:
            return ()
        others = [one for one in shown.examples if one.question != question]
        return tuple(others[: shown.count])

    def num_shared(self, prompt: Sequence[int]) -> int:
        """Return how many tokens at a prompt's beginning all prompts of its family share; 0 for
        none.

        At least one token is left for the prompt itself.
        """
        return max(
            (
                len(one.prefix)
                for one in self.families.values()
                if LEAST_SHARED <= len(one.prefix) < len(prompt)
                and tuple(prompt[: len(one.prefix)]) == one.prefix
            ),
            default=0,
        )


NO_SHOTS = Shots()


def common_prefix(prompts: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """The tokens with which all of these begin."""
    first, *others = prompts
    length = min(map(len, prompts))
    for other in others:
        while list(other[:length]) != list(first[:length]):
            length = next(i for i in range(length) if other[i] != first[i])
    return tuple(first[:length])
