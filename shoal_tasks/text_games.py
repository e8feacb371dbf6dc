"""TextArena's one-player games that a family may be, from reading each of them.

All draw their chance from the seed alone, read a message by bounded patterns and evaluate nothing.
Games that need word lists from the network, another player or an API key are not here, and none
whose every game is the same: nothing of it could be held out. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from shoal_tasks.spec import TEXT_ARENA, FamilySpec, JsonValue, environment

PREFIX: Final = "textarena:"
"""Prefix of such a game in a task file: `environment = "textarena:FrozenLake-v0"`."""

TEXT_GAMES: Final[Mapping[str, int]] = {
    "2048-v0-ultra-easy": 32,
    "2048-v0-mega-easy": 48,
    "2048-v0-super-easy": 96,
    "Bandit-v0": 24,
    "Blackjack-v0": 24,
    "FrozenLake-v0": 16,
    "FrozenLake-v0-random": 16,
    "FrozenLake-v0-hardcore": 24,
    "GuessTheNumber-v0": 12,
    "GuessTheNumber-v0-hardcore": 12,
    "LightsOut-v0": 32,
    "Mastermind-v0": 20,
    "Minesweeper-v0-small": 32,
    "Secretary-v0": 6,
    "Secretary-v0-long": 12,
    "Sudoku-v0-very-easy": 12,
}
"""Each game with the most messages that it is given: a little over what it allows or needs."""


def text_game(name: str, game: str) -> FamilySpec:
    """Return the family of one of these games, with its usual turns."""
    # What is lost counts as what is not won: giving up must not pay more than losing.
    config: dict[str, JsonValue] = {
        "game": game,
        "max_turns": TEXT_GAMES[game],
        "reward_range": [0, 1],
    }
    return environment(name, TEXT_ARENA, config)


GAMES: Final = (
    text_game("guess_the_number", "GuessTheNumber-v0"),
    text_game("frozen_lake", "FrozenLake-v0"),
    text_game("blackjack", "Blackjack-v0"),
    text_game("secretary", "Secretary-v0"),
    text_game("minesweeper", "Minesweeper-v0-small"),
    text_game("mastermind", "Mastermind-v0"),
    text_game("game_2048", "2048-v0-ultra-easy"),
)
"""The preset `games`: short games at easy levels."""
