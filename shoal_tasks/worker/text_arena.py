"""Adapts TextArena's games to the interface of environments. Imports textarena: worker only.

Observations are passed on without the library's wrappers, which repeat the whole game each turn:
the policy already has it in its context.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from typing import Any

from shoal_tasks.errors import FamilyError
from shoal_tasks.spec import TEXT_ARENA, VERIFIER_VERSIONS, FamilySpec
from shoal_tasks.swarm import installed_version
from shoal_tasks.text_games import TEXT_GAMES

_RAW = "-raw"
"""Suffix of each game's variant without wrappers."""


class TextArenaGame:
    """One game of TextArena."""

    def __init__(self, game: str) -> None:
        self._env = importlib.import_module("textarena").make(f"{game}{_RAW}")

    def reset(self, seed: int) -> str:
        """Begin, and return the rules and the first observation."""
        self._env.reset(num_players=1, seed=seed)
        return self._observe()

    def step(self, message: str) -> tuple[str, float, bool]:
        """Make a move. A message without brackets is put between brackets."""
        move = message if "[" in message or "]" in message else f"[{message.strip()}]"
        done, _ = self._env.step(move)
        if not done:
            return self._observe(), 0.0, False
        rewards, facts = self._env.close()
        reason = str(facts[0].get("reason") or "")
        return "\n".join(filter(None, (self._observe(), reason))), float(rewards[0]), True

    def _observe(self) -> str:
        _, entries = self._env.get_observation()
        return "\n".join(text for _, text, kind in entries if kind.name != "PLAYER_ACTION").strip()


def preload_games(specs: Iterable[FamilySpec]) -> None:
    """Load what these families' games import, while the disk is readable. Raises `FamilyError`.

    If textarena is missing or has another version, the families are refused later.
    """
    games = [str(spec.config["game"]) for spec in specs if spec.verifier == TEXT_ARENA]
    is_here = games and installed_version(TEXT_ARENA) == VERIFIER_VERSIONS[TEXT_ARENA]
    for game in filter(TEXT_GAMES.__contains__, games if is_here else ()):
        try:
            playing = TextArenaGame(game)
            playing.reset(1)
            playing.step("1")
        except ImportError as error:
            raise FamilyError(f"cannot import textarena's games: {error}") from None


def new_text_game(game: str) -> Callable[[], Any]:
    """Return a factory of games with this name."""
    return lambda: TextArenaGame(game)
