"""The replacement scorers against reasoning_gym's own, on answers that an honest model may give."""

from __future__ import annotations

import random
import re
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from reasoning_gym.factory import create_dataset

from shoal_tasks.answers import GARBAGE_SCORE
from shoal_tasks.generators import SAFE_REPLACEMENT
from shoal_tasks.scorers.literals import parse_literal, rows_of
from shoal_tasks.scorers.logic import all_that_is_said, models, says_something
from shoal_tasks.scorers.safe_scorers import (
    _SCORERS,
    safe_score,
    score_propositional_logic,
    score_spell_backward,
)
from tests.tasks.honest_answers import ANSWERS, honest_answers

ITEMS = 300

SAMPLE = {
    "countdown": 8,
    "intermediate_integration": 1,
    "polynomial_multiplication": 4,
    "puzzle24": 8,
    "simple_integration": 3,
}
"""Answers of an item in the short test, where the library calls sympy for every one of them."""

VERDICTS = {
    "binary_matrix": {0.0, 0.1, 1.0},
    "countdown": {0.01, 0.05, 1.0},
    "intermediate_integration": {0.0, 1.0},
    "n_queens": {0.0, 0.5, 1.0},
    "polynomial_multiplication": {0.0, 1.0},
    "puzzle24": {0.01, 1.0},
    "simple_integration": {0.0, 1.0},
    "spiral_matrix": {0.0, 0.1, 1.0},
    "string_insertion": {0.0, 0.1, 1.0},
}


@pytest.mark.parametrize("generator", sorted(ANSWERS))
def test_replacements_agree_with_the_library(generator: str) -> None:
    answers = SAMPLE.get(generator)
    compare(generator, items=60 if answers is None else 25, answers=answers)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("generator", sorted(ANSWERS))
def test_replacements_agree_with_the_library_at_length(generator: str) -> None:
    compare(generator, items=1000, answers=None)


def compare(generator: str, *, items: int, answers: int | None) -> None:
    """Score honest answers to `items` items both ways; `answers` bounds them per item."""
    dataset = create_dataset(generator, seed=3, size=items)
    rng = random.Random(1)
    seen: Counter[float] = Counter()
    for index in range(items):
        entry = dataset[index]
        found = honest_answers(generator, entry, rng)
        for answer in found if answers is None else rng.sample(found, answers):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", SyntaxWarning)  # of the library's own eval
                theirs = dataset.score_answer(answer, entry)
            ours = safe_score(generator, answer, entry, unreachable)
            assert agree(ours, theirs, answer, entry), (answer, ours, theirs, entry)
            seen[ours] += 1
    # Every verdict must have been exercised, or the agreement says little.
    assert set(seen) == VERDICTS[generator]
    assert min(seen.values()) >= items / 5, seen


def agree(ours: float, theirs: float, answer: str, entry: dict[str, Any]) -> bool:
    integrand = entry["metadata"].get("integrand")
    if integrand is not None and ours == 1.0 and theirs == 0.0:
        # A right answer with decimals is right to the library only where its rounding is lucky.
        return re.search(r"[0-9]\.[0-9]", answer) is not None
    if integrand == "0" and answer in ("diff(0)", "1/0") and theirs == 1.0:
        # Where the integrand is 0 the library takes what has no value, and the question handed
        # back: the derivative of either is 0 to sympy. Here neither is an answer.
        return ours == 0.0
    # What the library gives to any text at all is worth nothing here: it need not be the same.
    return max(ours, GARBAGE_SCORE) == max(theirs, GARBAGE_SCORE)


def test_every_replacement_is_there() -> None:
    assert set(_SCORERS) | {"propositional_logic"} == SAFE_REPLACEMENT


def unreachable(_answer: str, _entry: object) -> float:
    raise AssertionError("reached the library")


def test_powers_of_zero_are_what_they_are_to_the_library() -> None:
    dataset = create_dataset("polynomial_multiplication", seed=3, size=1)
    for expected, answers in {
        "0": ("(0)**2", "0*x", "0**0", "0**-1", "sqrt((0)**2)"),
        "1": ("0**0", "0**1", "sqrt(1)"),
    }.items():
        entry = {**dataset[0], "answer": expected}
        for answer in answers:
            ours = safe_score("polynomial_multiplication", answer, entry, unreachable)
            assert ours == dataset.score_answer(answer, entry), (answer, expected)


def test_an_antiderivative_is_right_where_its_values_are_too_small_for_all_digits() -> None:
    dataset = create_dataset("intermediate_integration", seed=3, size=150)
    integrand = "(12*x - 8)*exp(-6*x**2 + 8*x - 10)"
    entry = dataset[148]
    assert entry["metadata"]["integrand"] == integrand
    for answer, right in (("-exp(-6*x**2 + 8*x - 10) + C", 1.0), ("exp(8*x - 6*x**2 - 10)", 0.0)):
        assert safe_score("intermediate_integration", answer, entry, unreachable) == right


@pytest.mark.parametrize("generator", sorted(ANSWERS))
def test_the_library_runs_what_the_replacement_does_not(generator: str, tmp_path: Path) -> None:
    # Why there are replacements at all; if this fails one day, they can go.
    canary = tmp_path / "canary"
    payload = f"__import__('pathlib').Path({str(canary)!r}).write_text('x')"
    dataset = create_dataset(generator, seed=0, size=1)
    dataset.score_answer(payload, dataset[0])
    assert canary.exists()
    canary.unlink()
    for text in (payload, f"[{payload}]", f"1 + {payload}", f"sqrt({payload})"):
        assert safe_score(generator, text, dataset[0], unreachable) <= GARBAGE_SCORE
    assert not canary.exists()


@pytest.mark.parametrize("generator", sorted(ANSWERS))
def test_what_sympy_would_work_out_for_you_is_no_answer(generator: str) -> None:
    dataset = create_dataset(generator, seed=0, size=5)
    for index in range(5):
        entry = dataset[index]
        stated = entry["metadata"].get("polynomial_expr") or entry["metadata"].get("integrand", "1")
        for text in (f"expand({stated})", f"Integral({stated}, x)", f"integrate({stated})"):
            assert safe_score(generator, text, entry, unreachable) <= GARBAGE_SCORE


@pytest.mark.parametrize("text", ["[" * 5000, "(" * 5000 + ")" * 5000, "[[0]," * 900, "9" * 5000])
def test_literal_reader_gives_up_on_nonsense(text: str) -> None:
    assert rows_of(parse_literal(text)) is None


def test_spell_backward_agrees_with_the_library_but_for_its_rounding() -> None:
    dataset = create_dataset("spell_backward", min_word_len=3, max_word_len=10, seed=5, size=ITEMS)
    rng = random.Random(2)
    overpaid = 0
    for index in range(ITEMS):
        entry = dataset[index]
        right: str = entry["answer"]
        shuffled = "".join(rng.sample(right, len(right)))
        for answer in (right, right.upper(), right[1:], right[:-1], shuffled, right + "x", "", "…"):
            expected = dataset.score_answer(answer, entry)
            score = score_spell_backward(answer, entry)
            if expected > 0.99 and answer.lower() != right.lower():
                overpaid += 1
                assert score == 0.8
            else:
                assert score == pytest.approx(expected), answer
            assert (score >= 0.999) == (answer.lower() == right.lower())
    assert overpaid > 0


def test_propositional_logic_agrees_with_the_library_on_formulas() -> None:
    dataset = create_dataset("propositional_logic", seed=11, size=ITEMS)
    rng = random.Random(3)
    scores = set()
    for index in range(ITEMS):
        entry = dataset[index]
        names = entry["metadata"]["variables"]
        first, second = rng.choice(names), rng.choice(names)
        answers = [
            entry["metadata"]["example_answer"],
            *entry["metadata"]["premises"],
            first,
            f"¬{first}",
            f"{first} ∨ ¬{first}",
            f"({first} ∧ {second})",
            f"(({first} → {second}) ↔ ¬({second}))",
            f"{first} ∧",
            f"({first}",
            "Z",
            "",
        ]
        for answer in answers:
            # The library answers some malformed formulas with an exception: that is no reward.
            try:
                follows = dataset.score_answer(answer, entry) >= 0.25
            except Exception:  # noqa: BLE001
                follows = False
            score = score_propositional_logic(answer, entry)
            says_nothing = answer == f"{first} ∨ ¬{first}" or not says_something(entry["metadata"])
            if follows and not says_nothing:
                assert (score > 0) == (models(answer, names) != everything(names)), answer
            else:
                assert score == 0.0 or says_nothing, (answer, entry["metadata"])
            scores.add(score)
        assert score_propositional_logic(f"{first} ∨ ¬{first}", entry) == 0.0
        if says_something(entry["metadata"]):
            assert score_propositional_logic(all_that_is_said(entry["metadata"]), entry) == 1.0
        # The library reads any lower-case word as one more variable, and pays for it where the
        # premises contradict each other.
        for answer in ("therefore", "True", f"{first} or {second}"):
            assert score_propositional_logic(answer, entry) == 0.0
    assert {0.0, 1.0} < scores


def everything(names: list[str]) -> int:
    return models(f"{names[0]} ∨ ¬{names[0]}", names)


@pytest.mark.parametrize(
    ("answer", "score"),
    [
        ("P ∧ Q", 1.0),
        ("(Q) ∧ (P)", 1.0),
        ("P", (2 / 3) ** 2),
        ("P ∨ Q", (1 / 3) ** 2),
        ("P → Q", (1 / 3) ** 2),
        ("P ∨ ¬P", 0.0),
        ("¬P", 0.0),
        ("P ∧ ¬P", 0.0),
    ],
)
def test_a_conclusion_earns_by_what_it_keeps_of_the_premises(answer: str, score: float) -> None:
    entry = {"metadata": {"variables": ["P", "Q"], "premises": ["P", "(P → Q)"]}}
    assert score_propositional_logic(answer, entry) == pytest.approx(score)


def test_propositional_logic_refuses_what_makes_the_library_explode() -> None:
    dataset = create_dataset("propositional_logic", seed=11, size=1)
    entry = dataset[0]
    names = "abcdefghijklmnopqrstuvwxyz"
    hostile = ["∧".join(names), "P" * 400, "P∧" * 2000 + "P", "(P)(P)", "P¬P", "P Q", "(P)Q"]
    for answer in hostile:
        assert score_propositional_logic(answer, entry) == 0.0
