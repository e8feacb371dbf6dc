"""The words of the setting `strategy`, and the one place where they are checked.

What each word does stands in its row of `policy.choice.words`, which needs more than settings may
import; a test proves that both have the same names, in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from shoal_settings.removed import removed_word

BASES: Final = ("uniform", "uniform-unfiltered", "top-reward")
"""What a strategy begins from: at most one of them; the first where none is named."""
REFINEMENTS: Final = (
    *("positive", "balance", "diverse", "fresh", "weak"),
    *("distinct", "capped"),
)
"""What may be joined to it, in any number, the most important first."""
STRATEGY_WORDS: Final = (*BASES, *REFINEMENTS)

_COUNTED = ("no", "one", "two", "three", "four", "five", "six")


class StrategyError(ValueError):
    """A text that is no strategy. One line, as the user of a setting reads it."""


def strategy_words(text: str) -> tuple[str, ...]:
    """Return the words of a strategy such as ``positive+balance``, in their order.

    Raises:
        StrategyError: an unknown word, a word twice, or two bases.
    """
    words = tuple(text.split("+"))
    if (removed := removed_word("strategy", text)) is not None:
        raise StrategyError(removed)
    if any(word not in STRATEGY_WORDS for word in words):
        raise StrategyError(f"must be some of {', '.join(STRATEGY_WORDS)}, joined by +")
    if len(set(words)) < len(words) or len(set(words) & set(BASES)) > 1:
        raise StrategyError(f"names a thing twice, or two of the first {_COUNTED[len(BASES)]}")
    return words


def describe_words() -> str:
    """Return the sentence of the setting's help that lists the words."""
    bases, refinements = _listed(BASES, "or"), _listed(REFINEMENTS, "and")
    return f"{bases}, with {refinements} joined to it by +."


def _listed(names: Sequence[str], last: str) -> str:
    return f"{', '.join(names[:-1])} {last} {names[-1]}"
