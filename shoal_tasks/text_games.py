"""TextArena's one-player games that families may use. Each was reviewed. Pure.

All derive their randomness from the seed alone, parse messages by bounded patterns and evaluate
nothing. Excluded are games that need word lists from the network, another player or an API key, and
games without variation, since nothing could be held out.
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
"""Each game with its maximum number of messages: slightly more than it allows or needs."""


def text_game(name: str, game: str) -> FamilySpec:
    """Return the family of one of these games, with its usual number of turns."""
    # A lost game counts as not won: giving up must not earn more than losing.
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
