"""Completions of several turns: how they stand in one text, and their bounds. Pure.

A family may be an environment, which answers back. Its completion is what the policy said, message
by message; what the environment said is never sent, since every receiver replays the messages.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

SEPARATOR: Final = "\x1e"
"""Stands between two messages of one completion: U+001E, the record separator."""

MAX_TURNS: Final = 256
"""Most messages that a family may allow in one game."""

MAX_TRANSCRIPT_CHARS: Final = 64 * 1024
"""Most characters that an environment may say in one game: about 16,000 tokens, more than the
models that play it have room for."""

PROBED_GAMES: Final = 4
"""Games that are played twice to see whether an environment repeats itself. An OpenEnv server's
are part of its family's digest, as is their length."""

PROBED_TURNS: Final = 8
"""Most messages of each of them."""


def improvised(
    chance: random.Random, tried: Sequence[str], seen: Callable[[], str], most: int
) -> Iterator[str]:
    """Yield at most so many messages of a game: half are of `tried`, half a word just `seen`."""
    for _ in range(most):
        words = seen().split() or [""]
        yield chance.choice([chance.choice(tried), chance.choice(words)])


def join_messages(messages: Iterable[str]) -> str:
    """Return a completion's text. No message may hold the separator."""
    return SEPARATOR.join(messages)


def split_messages(text: str) -> tuple[str, ...]:
    """Return a completion's messages, in order: the inverse of `join_messages`."""
    return tuple(text.split(SEPARATOR))
