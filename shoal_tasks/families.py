"""The presets, the split of seeds between training and evaluation, and the draw of a task.

Pure, and cheap to import: the node uses it too. Questions and answers are made elsewhere, by the
worker, from the coordinates drawn here.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Final

from shoal_tasks.chat import CHAT_1, CHAT_2, CHAT_3
from shoal_tasks.own_games import HigherLower
from shoal_tasks.spec import (
    ENVIRONMENT,
    OWN_GAME,
    ROWS_GENERATOR,
    AnswerFormat,
    FamilySpec,
    JsonValue,
    environment,
)
from shoal_tasks.text_games import GAMES
from shoal_tasks.types import TaskCoordinates
from shoal_wire.limits import MAX_SEED, MIN_TRAINING_SEED

TRAIN_SEED_MIN: Final = MIN_TRAINING_SEED
"""Seeds below this are for held-out evaluation only; a training draw never uses one."""

JUDGE_SEED_MIN: Final = 1 << 19
"""A judge draws from here up to TRAIN_SEED_MIN; nodes evaluate themselves on lower seeds."""

EXAMPLE_SEED_MIN: Final = 1 << 17
"""Worked examples, which stand in prompts with their answers, are drawn from here up to
TRIAL_SEED_MIN: never trained on, held out or judged."""

TRIAL_SEED_MIN: Final = 1 << 18
"""Questions that only try whether such examples help, from here up to JUDGE_SEED_MIN."""

SEED_LIMIT: Final = MAX_SEED
"""Seeds are below this."""


def _plain(name: str, generator: str, **config: JsonValue) -> FamilySpec:
    return FamilySpec(
        name=name, generator=generator, config=config, answer_format=AnswerFormat.PLAIN
    )


def _tagged(name: str, **config: JsonValue) -> FamilySpec:
    return FamilySpec(name=name, generator=name, config=config, answer_format=AnswerFormat.TAGGED)


EASY: Final = (
    _plain(
        "base_conversion_easy", "base_conversion", min_base=2, max_base=4, min_value=1, max_value=20
    ),
    _plain("count_bits_easy", "count_bits", min_n=1, max_n=127),
    _plain("gcd_easy", "gcd", min_numbers=2, max_numbers=2, min_value=1, max_value=20),
    _plain("spell_backward_easy", "spell_backward", min_word_len=3, max_word_len=4),
    _plain("letter_counting_easy", "letter_counting", min_words=2, max_words=2),
    _plain(
        "simple_equations_easy",
        "simple_equations",
        min_terms=2,
        max_terms=2,
        min_value=1,
        max_value=9,
    ),
)
"""Short plain answers that a character model of 0.14 M parameters can learn.

Conversions start at 1: the generator writes 0 as nothing at all in most bases.
"""

EASY_PAPER: Final = (
    _plain("arc_1d_small", "arc_1d", min_size=8, max_size=8, num_train=1),
    _plain(
        "basic_arithmetic_small",
        "basic_arithmetic",
        min_terms=2,
        max_terms=2,
        min_digits=1,
        max_digits=1,
        operators=["+", "-"],
        allow_parentheses=False,
        allow_negation=False,
    ),
    _plain(
        "base_conversion_small", "base_conversion", min_base=2, max_base=3, min_value=1, max_value=8
    ),
    _plain("bf_small", "bf", difficulty=1),
    _plain("binary_matrix_small", "binary_matrix", min_n=2, max_n=2, p_zero=0.5),
    _plain(
        "calendar_arithmetic_small", "calendar_arithmetic", year=2023, tasks=["weekday_of_date"]
    ),
    _plain(
        "decimal_arithmetic_small",
        "decimal_arithmetic",
        min_num_decimal_places=1,
        max_num_decimal_places=1,
        min_terms=2,
        max_terms=2,
        precision=3,
    ),
    _plain(
        "fraction_simplification_small",
        "fraction_simplification",
        min_value=1,
        max_value=5,
        min_factor=2,
        max_factor=4,
        styles=["plain"],
    ),
    _plain(
        "propositional_logic_small",
        "propositional_logic",
        min_vars=2,
        max_vars=3,
        min_statements=2,
        max_statements=2,
        min_complexity=2,
        max_complexity=2,
    ),
)
"""The paper's nine families, each about as small as its generator allows."""

PAPER: Final = (
    _tagged("arc_1d", min_size=10, max_size=30, num_train=3),
    _tagged(
        "basic_arithmetic",
        min_terms=2,
        max_terms=6,
        min_digits=1,
        max_digits=4,
        operators=["+", "-", "*", "/"],
        allow_parentheses=True,
        allow_negation=True,
        format_style="natural",
    ),
    _tagged("base_conversion", min_base=2, max_base=16, min_value=0, max_value=1000),
    _tagged("bf", difficulty=1),
    _tagged("binary_matrix", min_n=3, max_n=10, p_zero=0.25),
    _tagged(
        "calendar_arithmetic",
        year=2023,
        tasks=["count_days", "weekday_of_date", "is_leap_year", "recurring_event_day"],
    ),
    _tagged(
        "decimal_arithmetic",
        min_num_decimal_places=1,
        max_num_decimal_places=3,
        min_terms=2,
        max_terms=6,
        precision=5,
    ),
    _tagged(
        "fraction_simplification",
        min_value=1,
        max_value=100,
        min_factor=2,
        max_factor=100,
        styles=["plain", "latex_frac", "latex_dfrac"],
    ),
    _tagged(
        "propositional_logic",
        min_vars=2,
        max_vars=4,
        min_statements=2,
        max_statements=4,
        min_complexity=1,
        max_complexity=3,
    ),
)
"""SAPO's nine families with the parameters of the released recipe, equal weights (section 4)."""

GAMES_1: Final = (
    environment(
        "higher_lower",
        OWN_GAME,
        {"game": "higher-lower", "max_turns": HigherLower.GUESSES, "reward_range": [0, 1]},
    ),
)
"""A game that comes with shoal, for a model of 0.1 M parameters."""

PRESETS: Final[Mapping[str, tuple[FamilySpec, ...]]] = {
    "easy": EASY,
    "easy-paper": EASY_PAPER,
    "paper": PAPER,
    "chat-1": CHAT_1,
    "chat": (*CHAT_1, *CHAT_2, *CHAT_3),
    "games-1": GAMES_1,
    "games": GAMES,
}


def coordinates(spec: FamilySpec, seed: int, index: int = 0) -> TaskCoordinates:
    """The coordinates of item ``index`` of the family's stream ``seed``."""
    return TaskCoordinates(family=spec.name, config_digest=spec.digest, seed=seed, index=index)


def draw_coordinates(rng: random.Random, families: Sequence[FamilySpec]) -> TaskCoordinates:
    """Draw a training task: family by weight with replacement, then a fresh seed.

    TRAIN_SEED_MIN ≤ seed < SEED_LIMIT. The index is always 0: most generators seed item i of
    stream s with s + i, so (s, i) and (s + i, 0) are one question.
    Source: SAPO section 4, "Draw". Raises ValueError without families.
    """
    return training_coordinates(rng, _drawn(rng, families))


def training_coordinates(rng: random.Random, spec: FamilySpec) -> TaskCoordinates:
    """Draw a training task of one family, as `draw_coordinates` does."""
    return coordinates(spec, rng.randrange(TRAIN_SEED_MIN, SEED_LIMIT))


def judge_coordinates(rng: random.Random, families: Sequence[FamilySpec]) -> TaskCoordinates:
    """Draw a judge's task: family by weight, seed from JUDGE_SEED_MIN up to TRAIN_SEED_MIN.

    Source: SAPO section 6, the judge. Raises ValueError without families.
    """
    return coordinates(_drawn(rng, families), rng.randrange(JUDGE_SEED_MIN, TRAIN_SEED_MIN))


def _drawn(rng: random.Random, families: Sequence[FamilySpec]) -> FamilySpec:
    if not families:
        raise ValueError("no task families to draw from")
    return rng.choices(families, weights=[family.weight for family in families])[0]


def example_coordinates(spec: FamilySpec, count: int) -> list[TaskCoordinates]:
    """The tasks of a family's worked examples, always the same.

    A family of rows shows its first training rows, which are trained on as well: fewer than `count`
    where the file has fewer. An environment has none: a game has no right answer to show. Raises
    ValueError when `count` leaves the reserved range.
    """
    return _reserved(spec, EXAMPLE_SEED_MIN, TRIAL_SEED_MIN, count)


def trial_coordinates(spec: FamilySpec, count: int) -> list[TaskCoordinates]:
    """The tasks that try whether worked examples help; of rows, the last that are trained on."""
    return _reserved(spec, TRIAL_SEED_MIN, JUDGE_SEED_MIN, count, is_from_end=True)


def _reserved(
    spec: FamilySpec, first: int, end: int, count: int, *, is_from_end: bool = False
) -> list[TaskCoordinates]:
    if not 0 <= count <= end - first:
        raise ValueError("more tasks than there are seeds kept for them")
    if spec.generator == ENVIRONMENT:
        return []
    if spec.generator == ROWS_GENERATOR:
        rows, held_out = spec.config["rows"], spec.config["held_out"]
        assert isinstance(rows, int) and isinstance(held_out, int)
        numbers = range(rows - held_out)[:: -1 if is_from_end else 1][:count]
        # A training seed names the row that it leaves by division (`RowTasks.item`).
        lap = -(-TRAIN_SEED_MIN // (rows - held_out)) * (rows - held_out)
        return [coordinates(spec, lap + number) for number in numbers]
    return [coordinates(spec, seed) for seed in range(first, first + count)]
