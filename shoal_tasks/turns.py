"""Multi-turn completions: their text format, and their limits. Pure.

A family may be an environment, which replies to messages. Its completion contains only the policy's
messages. The environment's replies are never sent, because every receiver replays the messages.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

SEPARATOR: Final = "\x1e"
"""Separates two messages of one completion: U+001E, the record separator."""

MAX_TURNS: Final = 256
"""Maximum number of messages that a family may allow in one game."""

MAX_TRANSCRIPT_CHARS: Final = 64 * 1024
"""Maximum characters of an environment's observations in one game: about 16,000 tokens, more than
the context of the models that play."""

PROBED_GAMES: Final = 4
"""Number of games that are played twice to test whether an environment is deterministic. With their
length, they are part of the digest of a family on an OpenEnv server."""

PROBED_TURNS: Final = 8
"""Maximum number of messages in each of them."""


def probe_messages(
    rng: random.Random, tried: Sequence[str], seen: Callable[[], str], most: int
) -> Iterator[str]:
    """Yield up to `most` messages of a game, half from `tried`, half a word of `seen()`."""
    for _ in range(most):
        words = seen().split() or [""]
        yield rng.choice([rng.choice(tried), rng.choice(words)])


def join_messages(messages: Iterable[str]) -> str:
    """Return a completion's text. No message may contain the separator."""
    return SEPARATOR.join(messages)


def split_messages(text: str) -> tuple[str, ...]:
    """Return a completion's messages, in order: the inverse of `join_messages`."""
    return tuple(text.split(SEPARATOR))
