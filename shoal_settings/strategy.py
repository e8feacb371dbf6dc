"""The words of the setting `strategy`, and the one place where they are checked.

Each word's effect is in its row of `choice.strategy`, which imports more than settings may; a test
checks that both have the same names in the same order.
"""

from __future__ import annotations

from typing import Final

STRATEGY_WORDS: Final = ("uniform", "positive", "balance")
"""The words that a strategy joins, the most important first."""


class StrategyError(ValueError):
    """An invalid strategy. The message is one line for the user."""


def strategy_words(text: str) -> tuple[str, ...]:
    """Return the words of a strategy such as ``positive+balance``, in their order.

    Raises:
        StrategyError: an unknown word, or a word twice.
    """
    words = tuple(text.split("+"))
    if any(word not in STRATEGY_WORDS for word in words):
        raise StrategyError(f"must be some of {', '.join(STRATEGY_WORDS)}, joined by +")
    if len(set(words)) < len(words):
        raise StrategyError("names a word twice")
    return words


def describe_words() -> str:
    """Return the part of the setting's help that lists the words."""
    return f"{', '.join(STRATEGY_WORDS[:-1])} and {STRATEGY_WORDS[-1]}, joined by +."
