"""The preset `chat`: tasks for models that were trained before, in three levels.

    level 1  plain, for the smallest chat models: measured on SmolLM2-135M (docs/tasks.md)
    level 2  plain, the same kinds a step harder
    level 3  tagged, to be worked out: for models of billions of weights

A level is a family of its own. Weights fall with the level, so that a node asks most often what the
smallest models can learn.
"""

from __future__ import annotations

from typing import Final

from shoal_tasks.spec import AnswerFormat, FamilySpec, JsonValue

_WEIGHTS: Final = {1: 6.0, 2: 1.0, 3: 0.5}


def _level(level: int, kind: str, generator: str = "", **config: JsonValue) -> FamilySpec:
    return FamilySpec(
        name=f"{kind}_{level}",
        generator=generator or kind,
        config=config,
        weight=_WEIGHTS[level],
        answer_format=AnswerFormat.TAGGED if level > 2 else AnswerFormat.PLAIN,
    )


def _numbers(level: int, kind: str, least: int, most: int) -> FamilySpec:
    """The greatest common divisor, or the least common multiple, of two numbers."""
    return _level(level, kind, min_numbers=2, max_numbers=2, min_value=least, max_value=most)


def _equations(level: int, terms: int, most: int) -> FamilySpec:
    kind = "simple_equations"
    return _level(level, kind, min_terms=2, max_terms=terms, min_value=1, max_value=most)


def _products(level: int, least: int, most: int) -> FamilySpec:
    """Return the family of products of two numbers with `least` to `most` digits."""
    kind = "products"
    return _level(level, kind, min_terms=2, max_terms=2, min_digits=least, max_digits=most)


def _filtered(level: int, least: int, most: int, decimals: int, value: float) -> FamilySpec:
    """The numbers of a list that are larger, or smaller, than one."""
    return _level(
        level,
        "number_filtering",
        min_numbers=least,
        max_numbers=most,
        min_decimals=0,
        max_decimals=decimals,
        min_value=-value,
        max_value=value,
    )


def _words(level: int, kind: str, least: int, most: int) -> FamilySpec:
    return _level(level, kind, min_words=least, max_words=most)


def _sequence(level: int, terms: tuple[int, int], value: int) -> FamilySpec:
    """Return a family of one rule: some sequences of several rules take seconds to make."""
    return _level(
        level,
        "number_sequence",
        min_terms=terms[0],
        max_terms=terms[1],
        min_value=1 if level == 1 else -value,
        max_value=value,
        max_complexity=1,
    )


def _calendar(level: int, year: int, days: int, *tasks: str) -> FamilySpec:
    kind = "calendar_arithmetic"
    return _level(level, kind, year=year, offset_upper_bound=days, tasks=list(tasks))


def _arithmetic(level: int, terms: tuple[int, int], digits: tuple[int, int]) -> FamilySpec:
    return _level(
        level,
        "basic_arithmetic",
        min_terms=terms[0],
        max_terms=terms[1],
        min_digits=digits[0],
        max_digits=digits[1],
        operators=["+", "-", "*"],
        allow_parentheses=level > 2,
        allow_negation=level > 2,
    )


CHAT_1: Final = (
    _words(1, "letter_counting", 2, 2),
    _filtered(1, 2, 3, 0, 20.0),
    _numbers(1, "lcm", 1, 12),
    _level(1, "count_bits", min_n=1, max_n=127),
    _products(1, 1, 1),
    _words(1, "word_sequence_reversal", 2, 3),
    _calendar(1, 2023, 100, "weekday_offset"),
    _level(1, "aiw", max_entities=4),
    _sequence(1, (5, 6), 20),
    _equations(1, 2, 9),
    _numbers(1, "gcd", 1, 50),
)
"""Families that SmolLM2-135M answers right now and then, shown four worked examples."""

CHAT_2: Final = (
    _words(2, "letter_counting", 6, 15),
    _filtered(2, 3, 6, 1, 50.0),
    _numbers(2, "lcm", 2, 40),
    _level(2, "count_bits", min_n=128, max_n=4095),
    _products(2, 1, 2),
    _words(2, "word_sequence_reversal", 3, 6),
    _calendar(2, 2023, 200, "weekday_of_date", "weekday_offset", "count_days"),
    _sequence(2, (4, 5), 100),
    _equations(2, 3, 50),
    _numbers(2, "gcd", 10, 400),
    _arithmetic(2, (3, 3), (1, 2)),
    _level(2, "spell_backward", min_word_len=4, max_word_len=6),
)

CHAT_3: Final = (
    _products(3, 3, 4),
    _arithmetic(3, (5, 8), (2, 4)),
    _words(3, "word_sequence_reversal", 12, 25),
    _calendar(
        3, 2024, 400, "count_business_days", "weekday_offset", "count_days", "recurring_event_day"
    ),
    _level(3, "base_conversion", min_base=5, max_base=16, min_value=1000, max_value=100_000),
    _level(3, "rotate_matrix", min_n=5, max_n=8, min_rotations=1, max_rotations=9),
    _level(3, "caesar_cipher", min_words=3, max_words=8, min_rotation=3, max_rotation=23),
    _level(
        3,
        "string_manipulation",
        min_string_length=10,
        max_string_length=25,
        min_num_rules=4,
        max_num_rules=8,
    ),
    _level(
        3,
        "propositional_logic",
        min_vars=3,
        max_vars=5,
        min_statements=3,
        max_statements=5,
        min_complexity=2,
        max_complexity=4,
    ),
)
"""Families from the upper steps of reasoning_gym's own curricula."""
