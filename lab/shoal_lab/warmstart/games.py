"""Makes the embedded model that plays games: able first, then trained on a crowd that plays badly.

    halver    guesses the middle of what is left                     wins every game
    creeper   begins at the least number and goes up, whatever it    wins 5 of 31
              is answered

    phase 1, able    games of halvers alone
    phase 2, crowd   of a hundred games, eighteen are a halver's, the others a creeper's

Each game has one player throughout. So the model knows how to halve and seldom begins to, and its
preferred play ignores the answers. Reinforcement learning brings the halver out, as it does right
answers (`building`).

Deterministic to the byte on one machine, by the same means.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch

from shoal_lab.warmstart.building import BATCH, SEED, OnStep, deterministic, make_model, schedule
from shoal_policy.tiny.tokenizer import ANSWER, BOS, EOS, GAME_PHRASES, build_tokenizer
from shoal_tasks.builtin_games import HigherLower

HIDDEN: Final = 48
LAYERS: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ImitationPhase:
    """One stretch of imitation."""

    name: str
    steps: int
    learning_rate: float
    """Peak, as in `building.Phase`."""
    halvers: float
    """Share of the games that halvers play; creepers play the others."""


ABLE: Final = ImitationPhase(name="able (games)", steps=700, learning_rate=4e-3, halvers=1)
CROWD: Final = ImitationPhase(name="crowd", steps=500, learning_rate=1.5e-3, halvers=0.18)
_SEEDS: Final = 1 << 31

Span = tuple[int, int]
"""The least and the largest number that it may still be."""
Player = Callable[[Span, Span, "int | None", bool], int]
"""Returns a guess, given the span of the game, what is left of it, the last guess, and whether the
number is higher than that."""


def halve(_span: Span, left: Span, _last: int | None, _is_higher: bool) -> int:
    """Guess the middle of what is left."""
    return (left[0] + left[1]) // 2


def creep(span: Span, _left: Span, last: int | None, _is_higher: bool) -> int:
    """Begin at the least number and go up."""
    return span[0] if last is None else last + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """One game, as text."""

    seen: tuple[str, ...]
    """The game's observation before each message."""
    messages: tuple[str, ...]
    won: bool


def play_game(seed: int, player: Player) -> Played:
    """Let a player play one game."""
    game = HigherLower()
    seen, messages = [game.reset(seed)], []
    first, last = map(int, re.findall(r"\d+", seen[0])[:2])
    span = left = (first, last)
    guess: int | None = None
    is_higher = done = False
    reward = 0.0
    while not done:
        guess = player(span, left, guess, is_higher)
        messages.append(str(guess))
        answer, reward, done = game.step(messages[-1])
        is_higher = answer == "Higher."
        left = (guess + 1, left[1]) if is_higher else (left[0], guess - 1)
        if not done:
            seen.append(answer)
    return Played(seen=tuple(seen), messages=tuple(messages), won=reward > 0)


def draw_game(rng: random.Random, phase: ImitationPhase) -> Played:
    """Return a game of a phase."""
    return play_game(rng.randrange(_SEEDS), halve if rng.random() < phase.halvers else creep)


def make_player(
    on_step: OnStep, seed: int = SEED, *, phases: Sequence[ImitationPhase] = (ABLE, CROWD)
) -> tuple[Any, Any]:
    """Return the model and its tokenizer. Takes a minute or two on one core."""
    with deterministic():
        tokenizer = build_tokenizer(GAME_PHRASES)
        model = make_model(tokenizer, seed, hidden=HIDDEN, layers=LAYERS)
        lessons = _Lessons(tokenizer, seed)
        model.train()
        for phase in phases:
            _teach(model, lessons, phase, on_step)
    return model.eval(), tokenizer


def _teach(model: Any, lessons: _Lessons, phase: ImitationPhase, on_step: OnStep) -> None:
    """Train `model` in place."""
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=phase.learning_rate, betas=(0.9, 0.98), weight_decay=0.1
    )
    for step in range(phase.steps):
        for group in optimizer.param_groups:
            group["lr"] = phase.learning_rate * schedule(step, phase.steps)
        loss = _add_gradient(model, [lessons.draw(phase) for _ in range(BATCH)])
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        on_step(phase.name, step + 1, phase.steps, loss)
    if not math.isfinite(loss):
        raise ArithmeticError(f"phase {phase.name!r} diverged")


class _Lessons:
    """Games of the crowd as token ids, and a mask of the player's tokens."""

    def __init__(self, tokenizer: Any, seed: int) -> None:
        self._tokenizer = tokenizer
        self._bos, self._answer, self._eos = tokenizer.convert_tokens_to_ids([BOS, ANSWER, EOS])
        self._rng = random.Random(seed)

    def draw(self, phase: ImitationPhase) -> tuple[list[int], list[bool]]:
        """Return one game in the form in which the policy plays it (`generation.turns`)."""
        played = draw_game(self._rng, phase)
        ids, is_own = [self._bos], [False]
        for seen, message in zip(played.seen, played.messages, strict=True):
            observed, own = [*self._encode(seen), self._answer], [*self._encode(message), self._eos]
            ids += observed + own
            is_own += [False] * len(observed) + [True] * len(own)
        return ids, is_own

    def _encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False))


def _add_gradient(model: Any, rows: Sequence[tuple[list[int], list[bool]]]) -> float:
    """Add a batch's gradient; return its mean cross-entropy in nats over the players' tokens."""
    width = max(len(ids) for ids, _ in rows)
    # Padding on the right: in a causal model nothing before it sees it.
    inputs = torch.tensor([ids + [0] * (width - len(ids)) for ids, _ in rows])
    is_own = torch.tensor([marks + [False] * (width - len(marks)) for _, marks in rows])[:, 1:]
    hidden = model.model(input_ids=inputs[:, :-1], use_cache=False).last_hidden_state
    loss = torch.nn.functional.cross_entropy(model.lm_head(hidden[is_own]), inputs[:, 1:][is_own])
    loss.backward()
    return float(loss.detach())
