"""Environments that answer back, replayed from what the policy said. For the worker process only.

    class Game:
        def reset(self, seed: int) -> str: ...                             # what is seen first
        def step(self, message: str) -> tuple[str, float, bool]: ...       # seen, reward, over

Every replay begins with a new instance and with Python's own chance seeded anew, so what was played
before does not matter. The file runs inside the sandbox, as a Python reward does.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from shoal_tasks.errors import WorkerUnavailable
from shoal_tasks.sandbox.audit import AuditGuard
from shoal_tasks.spec import FamilySpec
from shoal_tasks.turns import (
    MAX_TRANSCRIPT_CHARS,
    PROBED_GAMES,
    PROBED_TURNS,
    improvised,
    split_messages,
)
from shoal_tasks.types import Play, Split
from shoal_tasks.worker.generate import GeneratedItem
from shoal_tasks.worker.item_limit import ItemLimit
from shoal_tasks.worker.user_code import (
    CHECK_EVERY,
    UnrepeatableError,
    UserCodeError,
    error_line,
    load,
    within,
)
from shoal_wire.digests import question_digest
from shoal_wire.rules import is_held_out
from shoal_wire.types import FinishReason

R = TypeVar("R")

_TRIED: Final = ("", "1", "2", "3", "yes", "[1]", "[up]", "[0 1]", "é\n☃ " * 40)
"""Messages of the games that are tried at the start, beside words that it has just used."""
_MAX_REWARD: Final = 1e9
"""Largest reward of one turn, either way: sums of larger ones would no longer be exact."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One reply of an environment; `reset` gives no reward and is never the end."""

    observation: str
    reward: float = 0.0
    done: bool = False


class EnvironmentTasks:
    """All games of one family."""

    def __init__(
        self, spec: FamilySpec, new_game: Callable[[], Any], limit: ItemLimit, guard: AuditGuard
    ) -> None:
        """Try the environment, each game within `limit`. Call inside the sandbox.

        Raises `UserCodeError`: it cannot be played, or does not repeat itself.
        """
        self.spec = spec
        self._new_game = new_game
        self._name = spec.path or str(spec.config.get("game", spec.name))
        self._limit = limit
        self._guard = guard
        self._num_scored = 0
        self._try()

    def item(self, seed: int, index: int) -> GeneratedItem:
        """The game of these coordinates: its question is what is seen first.

        One game in eight is held out, by its seed: what is seen first may be alike in all.
        Raises `UserCodeError`.
        """
        game_seed = self._game_seed(seed, index)
        (first,) = self._turns(game_seed, ())
        held_out = is_held_out(question_digest(f"game {game_seed}"))
        return GeneratedItem(
            entry={"question": first.observation, "answer": None, "metadata": {}},
            score_answer=lambda _text, _entry: 0.0,  # a game is scored by `score`
            part=Split.HELD_OUT if held_out else Split.TRAINING,
        )

    def score(self, seed: int, index: int, text: str, finish_reason: FinishReason) -> float:
        """Return the reward of a completion by replaying its messages, 0 to 1.

        It is 0 where the messages go on after the end or after the last turn, and where the
        completion says that the game was over and it was not.

        Raises `UserCodeError`: the environment failed, or differed from a moment before.
        """
        messages = split_messages(text)
        if len(messages) > self.spec.max_turns:
            return 0.0
        game_seed = self._game_seed(seed, index)
        turns = list(self._turns(game_seed, messages))
        self._num_scored += 1
        if self._num_scored % CHECK_EVERY == 0:
            self._compare(turns, list(self._turns(game_seed, messages)))
        if len(turns) <= len(messages):
            return 0.0
        if finish_reason is FinishReason.STOP and not turns[-1].done:
            return 0.0
        return self._reward(turns)

    def play(self, seed: int, index: int, messages: Sequence[str]) -> Play:
        """Return what the environment answers to each message, up to the end of the game."""
        turns: list[Turn] = []
        error = ""
        try:
            if len(messages) > self.spec.max_turns:
                raise UserCodeError(f"a game has at most {self.spec.max_turns} turns")
            turns.extend(self._turns(self._game_seed(seed, index), messages))
        except UserCodeError as failed:
            error = str(failed)
        # One that goes on after the end earns nothing, as in `score`.
        is_whole = not error and len(turns) == len(messages) + 1
        return Play(
            observations=tuple(turn.observation for turn in turns[1:]),
            done=bool(error) or turns[-1].done,
            reward=self._reward(turns) if is_whole else 0.0,
            error=error,
        )

    def _game_seed(self, seed: int, index: int) -> int:
        """The seed that the environment is given: below 2**31, unlike in every family."""
        named = b"%s %d %d" % (self.spec.digest.hex().encode(), seed, index)
        return int.from_bytes(hashlib.sha256(named).digest()[:4], "big") >> 1

    def _turns(self, game_seed: int, messages: Iterable[str]) -> Iterator[Turn]:
        """Play a game. The first turn is what is seen before any message.

        Raises `UserCodeError`: the environment raised, or returned what it should not.
        """
        # By the rules of scoring: another peer chose the messages, and so what would be evaluated.
        watched = (self.spec.path,) if self.spec.is_of_a_file else ()
        try:
            with self._guard.watching(*watched):
                yield from self._watched_turns(game_seed, messages)
        except (UserCodeError, WorkerUnavailable, MemoryError):
            # Too little memory may be what earlier games left behind: a new process asks again,
            # see `RequestAnswerer`.
            raise
        except (Exception, SystemExit) as error:  # noqa: BLE001  somebody's program
            raise UserCodeError(error_line(error, self._name)) from None

    def _watched_turns(self, game_seed: int, messages: Iterable[str]) -> Iterator[Turn]:
        """Play a game; what is refused to it is its error, whatever it did about that."""

        def called(function: Callable[..., R], *given: Any) -> R:
            try:
                returned = function(*given)
            except Exception:
                if not self._guard.first_refusal:
                    raise
            if refused := self._guard.first_refusal:
                raise UserCodeError(refused)
            return returned

        room = MAX_TRANSCRIPT_CHARS
        random.seed(game_seed)
        game = called(self._new_game)
        turn = Turn(observation=self._text(called(game.reset, game_seed), room))
        yield turn
        for message in messages:
            if turn.done:
                return
            room -= len(turn.observation)
            turn = self._answer(called(game.step, message), room)
            yield turn

    def _answer(self, returned: Any, room: int) -> Turn:
        try:
            observation, reward, done = returned
            number = float(reward)
        except (TypeError, ValueError):
            raise UserCodeError(
                f"{self._name}: step must return an observation, a reward and whether it is over"
            ) from None
        if not abs(number) <= _MAX_REWARD:
            raise UserCodeError(f"{self._name}: step returned a reward of {number}")
        return Turn(observation=self._text(observation, room), reward=number, done=bool(done))

    def _text(self, observation: Any, room: int) -> str:
        if not isinstance(observation, str):
            kind = type(observation).__name__
            raise UserCodeError(f"{self._name}: an observation must be a text, not {kind}")
        if len(observation) > room:
            raise UserCodeError(
                f"{self._name}: says more than {MAX_TRANSCRIPT_CHARS} characters in one game"
            )
        # Half a character could not be shown or made into tokens.
        return observation.encode(errors="replace").decode()

    def _reward(self, turns: Sequence[Turn]) -> float:
        return self.spec.share_of(math.fsum(turn.reward for turn in turns))

    def _try(self) -> None:
        """Play what any policy may say, each game twice, the second time in the other order."""
        seeds = [self._game_seed(seed, 0) for seed in range(PROBED_GAMES)]
        said = {seed: self._improvised(seed) for seed in seeds}
        again = {seed: self._limited(seed, said[seed][0]) for seed in reversed(seeds)}
        for seed in seeds:
            self._compare(said[seed][1], again[seed])

    def _improvised(self, game_seed: int) -> tuple[list[str], list[Turn]]:
        """Play one game, half of it with words of the environment's own."""
        messages: list[str] = []
        turns: list[Turn] = []

        def said() -> Iterator[str]:
            chance, most = random.Random(game_seed), min(self.spec.max_turns, PROBED_TURNS)
            for message in improvised(chance, _TRIED, lambda: turns[-1].observation, most):
                messages.append(message)
                yield message

        within(self._limit, self._name, turns.extend, self._turns(game_seed, said()))
        return messages, turns

    def _limited(self, game_seed: int, messages: Iterable[str]) -> list[Turn]:
        return within(self._limit, self._name, list[Turn], self._turns(game_seed, messages))

    def _compare(self, first: Sequence[Turn], second: Sequence[Turn]) -> None:
        for number, (one, other) in enumerate(zip(first, second, strict=False)):
            if one != other:
                raise self._unrepeatable(number)
        if len(first) != len(second):
            raise self._unrepeatable(min(len(first), len(second)))

    def _unrepeatable(self, turn: int) -> UnrepeatableError:
        where = f"in turn {turn}" if turn else "in what is seen first"
        return UnrepeatableError(
            f"{self._name} does not repeat itself: it differed {where}. Peers replay every game "
            "and must see the same: draw all chance from the seed that reset is given"
        )


def load_game(
    spec: FamilySpec, source: bytes, limit: ItemLimit, guard: AuditGuard
) -> Callable[[], Any]:
    """Run an environment's file and return its class. Call inside the sandbox.

    Raises `UserCodeError`.
    """
    name = str(spec.config["class"])
    digest = spec.config["sha256"]
    game = within(limit, spec.path, load, spec, source, spec.path, digest, name, guard)
    if not isinstance(game, type):
        raise UserCodeError(f'{spec.path} has no class {name!r}; class = "…" names another')
    for method in ("reset", "step"):
        if not callable(getattr(game, method, None)):
            raise UserCodeError(f"{spec.path}: {name} has no method {method}")
    return game
