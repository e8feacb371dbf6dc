"""The games that come with shoal: they need no other package and no file. Pure.

A game is a class of two methods, as in a user's own Python file (`shoal_tasks.worker.environment`).
A change of what a game says or pays is another game: give it another name in `OWN_GAMES`, since
peers of different versions would replay the same messages to different rewards.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Final, Protocol


class Game(Protocol):
    """A game for one player."""

    def reset(self, seed: int) -> str:
        """Begin, and return what is seen first."""
        ...

    def step(self, message: str) -> tuple[str, float, bool]:
        """Answer a message. Return what is seen, a reward, and whether the game is over."""
        ...


class HigherLower:
    """A number is to be found among 31, in five guesses; each wrong guess is told its side.

    Whoever halves what is left always finds it, since 31 = 2⁵ - 1. Five guesses that do not depend
    on the answers find it in at most 5 of 31 games: the floor is 0.16. Guesses drawn at random from
    what is left find it in 54 %.
    """

    NUMBERS: Final = 31
    GUESSES: Final = 5
    LARGEST: Final = 99

    def reset(self, seed: int) -> str:
        """Draw the numbers in question, and one of them."""
        chance = random.Random(seed)
        first = chance.randint(1, self.LARGEST - self.NUMBERS + 1)
        self.secret = first + chance.randrange(self.NUMBERS)
        self.left = self.GUESSES
        last = first + self.NUMBERS - 1
        return f"Find my number, from {first} to {last}, in {self.GUESSES} guesses."

    def step(self, message: str) -> tuple[str, float, bool]:
        """Compare one guess. What is no whole number costs a guess, too."""
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


OWN_GAMES: Final[Mapping[str, type[Game]]] = {"higher-lower": HigherLower}
"""Games by the name that a family's configuration has under `game`."""
