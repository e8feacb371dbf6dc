"""The games that come with shoal, without other packages or files. Pure.

A game is a class with two methods, as in a user's own Python file
(`shoal_tasks.worker.environment`). A game with changed texts or rewards is a new game and needs a
new name in `BUILTIN_GAMES`: peers of different versions would otherwise replay the same messages to
different rewards.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Final, Protocol


class Game(Protocol):
    """A game for one player."""

    def reset(self, seed: int) -> str:
        """Begin, and return the first observation."""
        ...

    def step(self, message: str) -> tuple[str, float, bool]:
        """Handle a message. Return the observation, the reward, and whether the game is over."""
        ...


class HigherLower:
    """Find one of 31 numbers in five guesses; after a wrong guess, the game says in which
    direction.

    Bisection always finds it, since 31 = 2⁵ - 1. Five guesses that ignore the replies find it in at
    most 5 of 31 games: the floor is 0.16. Random guesses among the remaining numbers find it in 54
    %.
    """

    NUMBERS: Final = 31
    GUESSES: Final = 5
    LARGEST: Final = 99

    def reset(self, seed: int) -> str:
        """Choose the range of numbers, and one of them."""
        chance = random.Random(seed)
        first = chance.randint(1, self.LARGEST - self.NUMBERS + 1)
        self.secret = first + chance.randrange(self.NUMBERS)
        self.left = self.GUESSES
        last = first + self.NUMBERS - 1
        return f"Find my number, from {first} to {last}, in {self.GUESSES} guesses."

    def step(self, message: str) -> tuple[str, float, bool]:
        """Compare one guess. A message that is not a whole number uses up a guess, too."""
        text = message.strip()
        guess = int(text) if text.isascii() and text.isdigit() and len(text) <= 4 else None
        if guess == self.secret:
            return "Right!", 1.0, True
        self.left -= 1
        if not self.left:
            return f"Wrong. It was {self.secret}.", 0.0, True
        if guess is None:
            return "Not a number.", 0.0, False
        return ("Higher." if guess < self.secret else "Lower."), 0.0, False


BUILTIN_GAMES: Final[Mapping[str, type[Game]]] = {"higher-lower": HigherLower}
"""Games by the value of `game` in a family's configuration."""
