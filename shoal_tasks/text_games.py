"""TextArena's one-player games that a family may be, from reading each of them.

All draw their chance from the seed alone, read a message by bounded patterns and evaluate nothing.
Games that need word lists from the network, another player or an API key are not here, and none
whose every game is the same: nothing of it could be held out. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from shoal_tasks.errors import FamilyError
from shoal_tasks.spec import (
    ENVIRONMENT,
    TEXT_ARENA,
    VERIFIER_VERSIONS,
    AnswerFormat,
    FamilySpec,
    JsonValue,
)

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


def text_game(
    name: str,
    game: str,
    *,
    max_turns: int | None = None,
    weight: float = 1.0,
    system: str | None = None,
    reward_range: JsonValue = None,
) -> FamilySpec:
    """Return the family of one of these games. Raises `FamilyError`: there is no such game."""
    if game not in TEXT_GAMES:
        raise FamilyError(f"no game {PREFIX}{game}; there are {', '.join(TEXT_GAMES)}")
    config: dict[str, JsonValue] = {
        "game": game,
        "max_turns": TEXT_GAMES[game] if max_turns is None else max_turns,
        # What is lost counts as what is not won: giving up must not pay more than losing.
        "reward_range": [0, 1] if reward_range is None else reward_range,
    }
    if system is not None:
        config["system"] = system
    return FamilySpec(
        name=name,
        generator=ENVIRONMENT,
        config=config,
        weight=weight,
        verifier=TEXT_ARENA,
        verifier_version=VERIFIER_VERSIONS[TEXT_ARENA],
        answer_format=AnswerFormat.PLAIN,
    )


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
