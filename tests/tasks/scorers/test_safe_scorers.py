"""The replacement scorers against reasoning_gym's own, on answers that an honest model may give."""

from __future__ import annotations

import random
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from reasoning_gym.factory import create_dataset

from shoal_tasks.answers import GARBAGE_SCORE
from shoal_tasks.generators import SAFE_REPLACEMENT
from shoal_tasks.scorers.logic import is_informative, models, strongest_conclusion
from shoal_tasks.scorers.safe_scorers import (
    _SCORERS,
    safe_score,
    score_binary_matrix,
    score_propositional_logic,
    score_spell_backward,
)

ITEMS = 300

Entry = dict[str, Any]
MALFORMED = (
    "",
    " ",
    "I do not know.",
    "The answer is 24",
    "```python\n[[1]]\n```",
    "[",
    "]",
    "()",
    "[]",
    "[[]]",
    "-",
    "None",
    "1 +",
    "+ 1",
    "(1 + 2",
    "1 + 2)",
    "\\boxed{7}",
    "⊥",
    "x^2",
    "2x",
    "a = 1",
    "1/0",
    "'",
    "f(",
    "1, 2",
)


def _lists(rows: list[list[Any]]) -> Iterator[str]:
    yield str(rows)
    yield str(rows).replace(" ", "")
    yield "[" + ",\n ".join(map(str, rows)) + "]"
    yield "[" + ", ".join(f"{row}," for row in rows) + "]"
    yield str(tuple(tuple(row) for row in rows))
    yield str([[str(cell) for cell in row] for row in rows])
    yield str(["".join(map(str, row)) for row in rows])
    yield str([" ".join(map(str, row)) for row in rows])
    yield ", ".join(map(str, rows))
    yield ",\n".join(map(str, rows))
    yield "\n".join(map(str, rows))
    yield f"{rows}  # the matrix"
    yield f"answer = {rows}"
    yield f"The answer is {rows}"
    yield f"```\n{rows}\n```"
    yield str(rows)[:-1]
    yield str(rows)[1:]
    yield str(rows).replace(",", "")
    yield str(rows[0])


def _grid(entry: Entry, rows: list[list[Any]], rng: random.Random) -> Iterator[str]:
    right: str = entry["answer"]
    wrong = [list(row) for row in rows]
    spot = rng.randrange(len(wrong))
    wrong[spot] = wrong[spot][1:] + wrong[spot][:1]
    for matrix in (rows, wrong):
        yield "\n".join(" ".join(map(str, row)) for row in matrix)
        yield from _lists(matrix)
    yield right.replace(" ", "  ")
    yield right.replace(" ", "")
    yield right.replace("\n", "\r\n")
    yield " ".join(right.split())
    yield f"```\n{right}\n```"


def _binary_matrix(entry: Entry, rng: random.Random) -> Iterator[str]:
    rows: list[list[int]] = entry["metadata"]["solution"]
    yield from _grid(entry, rows, rng)
    yield str([[float(cell) for cell in row] for row in rows])
    yield str(rows).replace("0", "00", 1)
    yield str(rows).replace("1", "+1", 1)
    yield str(rows).replace("1", "-1", 1)


def honest_answers(entry: Entry, rng: random.Random) -> list[str]:
    """Distinct answers to one item, as they reach a scorer: stripped and not empty."""
    found = (*_binary_matrix(entry, rng), *MALFORMED)
    return list(dict.fromkeys(answer.strip() for answer in found if answer.strip()))


def test_the_replacement_agrees_with_the_library() -> None:
    dataset = create_dataset("binary_matrix", seed=3, size=ITEMS)
    rng = random.Random(1)
    seen: Counter[float] = Counter()
    for index in range(ITEMS):
        entry = dataset[index]
        for answer in honest_answers(entry, rng):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", SyntaxWarning)  # of the library's own eval
                theirs = dataset.score_answer(answer, entry)
            ours = safe_score("binary_matrix", answer, entry, unreachable)
            # The library's reward for arbitrary text counts as 0 here: it need not be equal.
            assert max(ours, GARBAGE_SCORE) == max(theirs, GARBAGE_SCORE), (answer, ours, entry)
            seen[ours] += 1
    # Every verdict must have occurred, or the agreement means little.
    assert set(seen) == {0.0, 0.1, 1.0}
    assert min(seen.values()) >= ITEMS / 5, seen


def test_every_replacement_is_there() -> None:
    assert set(_SCORERS) == SAFE_REPLACEMENT


def unreachable(_answer: str, _entry: object) -> float:
    raise AssertionError("reached the library")


def test_the_library_runs_what_the_replacement_does_not(tmp_path: Path) -> None:
    # The reason for the replacement; if this fails one day, it can be removed.
    canary = tmp_path / "canary"
    payload = f"__import__('pathlib').Path({str(canary)!r}).write_text('x')"
    dataset = create_dataset("binary_matrix", seed=0, size=1)
    dataset.score_answer(payload, dataset[0])
    assert canary.exists()
    canary.unlink()
    for text in (payload, f"[{payload}]", f"[[{payload}]]"):
        assert safe_score("binary_matrix", text, dataset[0], unreachable) == 0.0
    assert not canary.exists()


@pytest.mark.parametrize("text", ["[" * 5000, "(" * 5000 + ")" * 5000, "[[0]," * 900, "9" * 5000])
def test_nonsense_is_no_matrix(text: str) -> None:
    entry = {"answer": "0 1\n" * 2000}
    assert score_binary_matrix(text, entry) == 0.0


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
            # The library raises on some malformed formulas: that is no reward.
            try:
                follows = dataset.score_answer(answer, entry) >= 0.25
            except Exception:  # noqa: BLE001
                follows = False
            score = score_propositional_logic(answer, entry)
            says_nothing = answer == f"{first} ∨ ¬{first}" or not is_informative(entry["metadata"])
            if follows and not says_nothing:
                assert (score > 0) == (models(answer, names) != everything(names)), answer
            else:
                assert score == 0.0 or says_nothing, (answer, entry["metadata"])
            scores.add(score)
        assert score_propositional_logic(f"{first} ∨ ¬{first}", entry) == 0.0
        if is_informative(entry["metadata"]):
            assert score_propositional_logic(strongest_conclusion(entry["metadata"]), entry) == 1.0
        # The library reads any lower-case word as another variable, and rewards it if the premises
        # contradict each other.
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
