"""Multi-turn environments, replayed from the policy's messages. For the worker process only.

    class Game:
        def reset(self, seed: int) -> str: ...                         # first observation
        def step(self, message: str) -> tuple[str, float, bool]: ...   # observation, reward, done

Every replay uses a new instance and reseeds Python's `random`, so earlier games have no influence.
The file runs inside the sandbox, as Python rewards do.
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
    probe_messages,
    split_messages,
)
from shoal_tasks.types import Play, Split
from shoal_tasks.worker.generate import GeneratedItem
from shoal_tasks.worker.item_limit import ItemLimit
from shoal_tasks.worker.user_code import (
    CHECK_EVERY,
    NondeterministicError,
    UserCodeError,
    error_line,
    load_attribute,
    run_limited,
)
from shoal_wire.digests import question_digest
from shoal_wire.rules import is_held_out
from shoal_wire.types import FinishReason

R = TypeVar("R")

_PROBES: Final = ("", "1", "2", "3", "yes", "[1]", "[up]", "[0 1]", "é\n☃ " * 40)
"""Messages of the trial games at the start, in addition to words of the last observation."""
_MAX_REWARD: Final = 1e9
"""Largest reward of one turn, positive or negative: sums of larger ones would not be exact."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One observation with its reward. The observation of `reset` has reward 0 and is not done."""

    observation: str
    reward: float = 0.0
    done: bool = False


class EnvironmentTasks:
    """The games of one family."""

    def __init__(
        self, spec: FamilySpec, new_game: Callable[[], Any], limit: ItemLimit, guard: AuditGuard
    ) -> None:
        """Play trial games, each within `limit`. Call inside the sandbox.

        Raises:
            UserCodeError: the environment cannot be played, or is not deterministic.
        """
        self.spec = spec
        self._new_game = new_game
        self._name = spec.path or str(spec.config.get("game", spec.name))
        self._limit = limit
        self._guard = guard
        self._num_scored = 0
        self._run_trial()

    def item(self, seed: int, index: int) -> GeneratedItem:
        """Return the game of these coordinates. Its question is the first observation.

        One game in eight is held out, chosen by its seed, because first observations may all be
        equal. Raises `UserCodeError`.
        """
        game_seed = self._game_seed(seed, index)
        (first,) = self._turns(game_seed, ())
        held_out = is_held_out(question_digest(f"game {game_seed}"))
        return GeneratedItem(
            entry={"question": first.observation, "answer": None, "metadata": {}},
            score_answer=lambda _check_observation, _entry: 0.0,  # a game is scored by `score`
            part=Split.HELD_OUT if held_out else Split.TRAINING,
        )

    def score(self, seed: int, index: int, text: str, finish_reason: FinishReason) -> float:
        """Return the reward of a completion, 0 to 1, by replaying its messages.

        It is 0 if messages follow the end of the game or exceed `max_turns`, or if the completion
        claims a finished game that is not done.

        Raises:
            UserCodeError: the environment failed, or two replays differed.
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
        """Return the environment's reply to each message, up to the end of the game."""
        turns: list[Turn] = []
        error = ""
        try:
            if len(messages) > self.spec.max_turns:
                raise UserCodeError(f"a game has at most {self.spec.max_turns} turns")
            turns.extend(self._turns(self._game_seed(seed, index), messages))
        except UserCodeError as failed:
            error = str(failed)
        # A game with messages after its end earns nothing, as in `score`.
        is_whole = not error and len(turns) == len(messages) + 1
        return Play(
            observations=tuple(turn.observation for turn in turns[1:]),
            done=bool(error) or turns[-1].done,
            reward=self._reward(turns) if is_whole else 0.0,
            error=error,
        )

    def _game_seed(self, seed: int, index: int) -> int:
        """Return the seed passed to `reset`: below 2**31, and different in every family."""
        named = b"%s %d %d" % (self.spec.digest.hex().encode(), seed, index)
        return int.from_bytes(hashlib.sha256(named).digest()[:4], "big") >> 1

    def _turns(self, game_seed: int, messages: Iterable[str]) -> Iterator[Turn]:
        """Play a game and yield its observations, beginning with that of `reset`.

        Raises `UserCodeError`: the environment raised, or returned something invalid.
        """
        # The rules of scoring apply: another peer chose the messages, so they are hostile input.
        watched = (self.spec.path,) if self.spec.is_of_a_file else ()
        try:
            with self._guard.watching(*watched):
                yield from self._watched_turns(game_seed, messages)
        except (UserCodeError, WorkerUnavailable, MemoryError):
            # Earlier games may have filled the memory, so the client retries with a new worker
            # (`RequestAnswerer`).
            raise
        except (Exception, SystemExit) as error:  # noqa: BLE001  user code may raise anything
            raise UserCodeError(error_line(error, self._name)) from None

    def _watched_turns(self, game_seed: int, messages: Iterable[str]) -> Iterator[Turn]:
        """Play a game. A refused operation fails it, even if the game caught the exception."""

        def called(function: Callable[..., R], *given: Any) -> R:
            try:
                returned = function(*given)
            except Exception:
                if not self._guard.first_refusal:
                    raise
            if refused := self._guard.first_refusal:
                raise UserCodeError(refused)
            return returned

        chars_left = MAX_TRANSCRIPT_CHARS
        random.seed(game_seed)
        game = called(self._new_game)
        turn = Turn(observation=self._check_observation(called(game.reset, game_seed), chars_left))
        yield turn
        for message in messages:
            if turn.done:
                return
            chars_left -= len(turn.observation)
            turn = self._parse_turn(called(game.step, message), chars_left)
            yield turn

    def _parse_turn(self, returned: Any, chars_left: int) -> Turn:
        try:
            observation, reward, done = returned
            number = float(reward)
        except (TypeError, ValueError):
            raise UserCodeError(
                f"{self._name}: step must return (observation, reward, done)"
            ) from None
        if not abs(number) <= _MAX_REWARD:
            raise UserCodeError(
                f"{self._name}: step returned a reward of {number}; the limit is {_MAX_REWARD:g}"
            )
        return Turn(
            observation=self._check_observation(observation, chars_left),
            reward=number,
            done=bool(done),
        )

    def _check_observation(self, observation: Any, chars_left: int) -> str:
        if not isinstance(observation, str):
            kind = type(observation).__name__
            raise UserCodeError(f"{self._name}: an observation must be a str, not {kind}")
        if len(observation) > chars_left:
            raise UserCodeError(
                f"{self._name}: one game's observations exceed {MAX_TRANSCRIPT_CHARS} characters"
            )
        # Lone surrogates can be neither displayed nor tokenized.
        return observation.encode(errors="replace").decode()

    def _reward(self, turns: Sequence[Turn]) -> float:
        return self.spec.share_of(math.fsum(turn.reward for turn in turns))

    def _run_trial(self) -> None:
        """Play the trial games twice, the second time in reverse order, and compare."""
        seeds = [self._game_seed(seed, 0) for seed in range(PROBED_GAMES)]
        sent = {seed: self._play_probe(seed) for seed in seeds}
        again = {seed: self._limited(seed, sent[seed][0]) for seed in reversed(seeds)}
        for seed in seeds:
            self._compare(sent[seed][1], again[seed])

    def _play_probe(self, game_seed: int) -> tuple[list[str], list[Turn]]:
        """Play one trial game; half of the messages repeat words of the observations."""
        messages: list[str] = []
        turns: list[Turn] = []

        def sent() -> Iterator[str]:
            rng, most = random.Random(game_seed), min(self.spec.max_turns, PROBED_TURNS)
            for message in probe_messages(rng, _PROBES, lambda: turns[-1].observation, most):
                messages.append(message)
                yield message

        run_limited(self._limit, self._name, turns.extend, self._turns(game_seed, sent()))
        return messages, turns

    def _limited(self, game_seed: int, messages: Iterable[str]) -> list[Turn]:
        return run_limited(self._limit, self._name, list[Turn], self._turns(game_seed, messages))

    def _compare(self, first: Sequence[Turn], second: Sequence[Turn]) -> None:
        for number, (one, other) in enumerate(zip(first, second, strict=False)):
            if one != other:
                raise self._nondeterminism(number)
        if len(first) != len(second):
            raise self._nondeterminism(min(len(first), len(second)))

    def _nondeterminism(self, turn: int) -> NondeterministicError:
        where = f"in turn {turn}" if turn else "in the first observation"
        return NondeterministicError(
            f"{self._name} is not deterministic: two replays differed {where}. Peers replay every "
            "game and must get the same: derive all randomness from the seed that reset receives"
        )


def load_game(
    spec: FamilySpec, source: bytes, limit: ItemLimit, guard: AuditGuard
) -> Callable[[], Any]:
    """Run an environment's file and return its class. Call inside the sandbox.

    Raises `UserCodeError`.
    """
    name = str(spec.config["class"])
    digest = spec.config["sha256"]
    game = run_limited(
        limit, spec.path, load_attribute, spec, source, spec.path, digest, name, guard
    )
    if not isinstance(game, type):
        raise UserCodeError(
            f'{spec.path} has no class {name!r}; set class = "NAME" in the task file'
        )
    for method in ("reset", "step"):
        if not callable(getattr(game, method, None)):
            raise UserCodeError(f"{spec.path}: {name} has no method {method}")
    return game
