"""The presets, the split of seeds between training and evaluation, and the sampling of tasks.

Pure, and cheap to import, because the node uses it too. The worker generates questions and answers
from the coordinates sampled here.
"""

from __future__ import annotations

import random
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from shoal_tasks.builtin_games import HigherLower
from shoal_tasks.generators import ALLOWED_GENERATORS
from shoal_tasks.spec import (
    BUILTIN_GAME,
    ENVIRONMENT,
    ROWS_GENERATOR,
    AnswerFormat,
    FamilySpec,
    environment,
)
from shoal_tasks.text_games import GAMES
from shoal_tasks.types import TaskCoordinates
from shoal_wire.limits import MAX_SEED, MIN_TRAINING_SEED

TRAIN_SEED_MIN: Final = MIN_TRAINING_SEED
"""Lower seeds are only for held-out evaluation; training never uses them."""

JUDGE_SEED_MIN: Final = TRAIN_SEED_MIN // 2
"""Judges sample from here up to TRAIN_SEED_MIN; nodes evaluate themselves on lower seeds."""

TRIAL_SEED_MIN: Final = JUDGE_SEED_MIN // 2
"""Questions that test whether few-shot examples help, from here up to JUDGE_SEED_MIN."""

EXAMPLE_SEED_MIN: Final = TRIAL_SEED_MIN // 2
"""Few-shot examples, shown in prompts with their answers, from here up to TRIAL_SEED_MIN: never
trained on, held out or judged."""


_TABLES: Final = tomllib.loads(Path(__file__).with_name("presets.toml").read_text("utf-8"))


def _families(
    table: str, *, weight: float = 1.0, is_tagged: bool = False
) -> tuple[FamilySpec, ...]:
    """Return the families of a table of `presets.toml`."""
    return tuple(
        FamilySpec(
            name=name,
            generator=name if name in ALLOWED_GENERATORS else name.rpartition("_")[0],
            config=config,
            weight=weight,
            answer_format=AnswerFormat.TAGGED if is_tagged else AnswerFormat.PLAIN,
        )
        for name, config in _TABLES[table].items()
    )


EASY: Final = _families("easy")
PAPER: Final = _families("paper", is_tagged=True)
CHAT_1: Final = _families("chat-1", weight=6.0)

GAMES_1: Final = (
    environment(
        "higher_lower",
        BUILTIN_GAME,
        {"game": "higher-lower", "max_turns": HigherLower.GUESSES, "reward_range": [0, 1]},
    ),
)
"""A game of shoal's own, for a model of 0.1 M parameters."""

PRESETS: Final[Mapping[str, tuple[FamilySpec, ...]]] = {
    "easy": EASY,
    "easy-paper": _families("easy-paper"),
    "paper": PAPER,
    "chat-1": CHAT_1,
    "chat": (
        *CHAT_1,
        *_families("chat-2"),
        *_families("chat-3", weight=0.5, is_tagged=True),
    ),
    "games-1": GAMES_1,
    "games": GAMES,
}


def coordinates(spec: FamilySpec, seed: int, index: int = 0) -> TaskCoordinates:
    """Return the coordinates of item ``index`` of the family's stream ``seed``."""
    return TaskCoordinates(family=spec.name, config_digest=spec.digest, seed=seed, index=index)


def draw_coordinates(rng: random.Random, families: Sequence[FamilySpec]) -> TaskCoordinates:
    """Sample a training task: a family by weight, with replacement, then a random seed.

    TRAIN_SEED_MIN ≤ seed < MAX_SEED. The index is always 0: most generators seed item i of
    stream s with s + i, so (s, i) and (s + i, 0) are the same question.

    Source: SAPO section 4, "Draw". Raises ValueError without families.
    """
    return training_coordinates(rng, _drawn(rng, families))


def training_coordinates(rng: random.Random, spec: FamilySpec) -> TaskCoordinates:
    """Sample a training task of one family, as `draw_coordinates` does."""
    return coordinates(spec, rng.randrange(TRAIN_SEED_MIN, MAX_SEED))


def judge_coordinates(rng: random.Random, families: Sequence[FamilySpec]) -> TaskCoordinates:
    """Sample a judge's task: a family by weight, a seed from JUDGE_SEED_MIN up to TRAIN_SEED_MIN.

    Source: SAPO section 6, the judge. Raises ValueError without families.
    """
    return coordinates(_drawn(rng, families), rng.randrange(JUDGE_SEED_MIN, TRAIN_SEED_MIN))


def _drawn(rng: random.Random, families: Sequence[FamilySpec]) -> FamilySpec:
    if not families:
        raise ValueError("no task families to sample from")
    return rng.choices(families, weights=[family.weight for family in families])[0]


def example_coordinates(spec: FamilySpec, count: int) -> list[TaskCoordinates]:
    """Return the tasks of a family's few-shot examples, always the same.

    A family of rows shows its first training rows, which are also trained on: fewer than `count` if
    the file has fewer. An environment has none, because a game has no right answer to show. Raises
    ValueError if `count` exceeds the reserved range.
    """
    return _reserved(spec, EXAMPLE_SEED_MIN, TRIAL_SEED_MIN, count)


def trial_coordinates(spec: FamilySpec, count: int) -> list[TaskCoordinates]:
    """Return the tasks that test few-shot examples; for rows, the last training rows."""
    return _reserved(spec, TRIAL_SEED_MIN, JUDGE_SEED_MIN, count, is_from_end=True)


def _reserved(
    spec: FamilySpec, first: int, end: int, count: int, *, is_from_end: bool = False
) -> list[TaskCoordinates]:
    if not 0 <= count <= end - first:
        raise ValueError("more tasks than seeds are reserved for")
    if spec.generator == ENVIRONMENT:
        return []
    if spec.generator == ROWS_GENERATOR:
        rows, held_out = spec.config["rows"], spec.config["held_out"]
        assert isinstance(rows, int) and isinstance(held_out, int)
        numbers = range(rows - held_out)[:: -1 if is_from_end else 1][:count]
        # A training seed selects its row by the remainder of a division (`RowTasks.item`).
        lap = -(-TRAIN_SEED_MIN // (rows - held_out)) * (rows - held_out)
        return [coordinates(spec, lap + number) for number in numbers]
    return [coordinates(spec, seed) for seed in range(first, first + count)]
