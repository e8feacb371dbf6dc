"""The replacement scorers against reasoning_gym's own, on answers that an honest model may give."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from reasoning_gym.factory import create_dataset

from shoal_tasks.safe_scorers import (
    parse_matrix,
    safe_score,
    score_binary_matrix,
    score_propositional_logic,
    score_spell_backward,
)

ITEMS = 300


def _literal(rows: list[list[Any]]) -> str:
    return "[" + ", ".join(str(row) for row in rows) + "]"


def _matrix_answers(entry: dict[str, Any], rng: random.Random) -> Iterator[str]:
    """Right, wrong and malformed answers of the kinds language models give."""
    rows: list[list[int]] = entry["metadata"]["solution"]
    plain: str = entry["answer"]
    wrong = [list(row) for row in rows]
    wrong[rng.randrange(len(wrong))][0] += rng.choice((1, -1))
    for matrix in (rows, wrong):
        yield "\n".join(" ".join(map(str, row)) for row in matrix)
        yield str(matrix)
        yield str(matrix).replace(" ", "")
        yield "[" + ",\n ".join(map(str, matrix)) + "]"
        yield "[" + ", ".join(f"{row}," for row in matrix) + "]"
        yield str(tuple(tuple(row) for row in matrix))
        yield str([[str(cell) for cell in row] for row in matrix])
        yield ", ".join(map(str, matrix))
        yield "\n".join(map(str, matrix))
        yield str([float(cell) for cell in matrix[0]])
    yield plain.replace(" ", "  ")
    yield plain.replace("\n", "\r\n")
    yield plain + "\n"
    yield " ".join(plain.split())
    yield str(rows)[:-1]
    yield str(rows)[1:]
    yield f"The answer is {rows}"
    yield f"```\n{plain}\n```"
    yield f"```python\n{rows}\n```"
    yield str(rows[0])
    yield str(rows).replace("0", "00", 1)
    yield str(rows).replace(",", "")
    yield from ("", " ", "[]", "[[]]", "()", "[", "[[0]", "0", "-", "None", "true", "[[0],]", "⊥")


def test_binary_matrix_agrees_with_the_library() -> None:
    dataset = create_dataset("binary_matrix", min_n=1, max_n=6, p_zero=0.3, seed=3, size=ITEMS)
    rng = random.Random(1)
    seen: dict[float, int] = {}
    for index in range(ITEMS):
        entry = dataset[index]
        for answer in _matrix_answers(entry, rng):
            expected = dataset.score_answer(answer, entry)
            assert score_binary_matrix(answer, entry) == expected, (answer, entry["answer"])
            seen[expected] = seen.get(expected, 0) + 1
    # Every verdict must have been exercised, or the agreement says little.
    assert set(seen) == {0.0, 0.1, 1.0}
    assert min(seen.values()) >= ITEMS


def test_the_library_itself_evaluates_what_it_scores(tmp_path: Path) -> None:
    # Why there is a replacement at all; if this fails one day, the replacement can go.
    canary = tmp_path / "canary"
    payload = f"__import__('pathlib').Path({str(canary)!r}).write_text('x')"
    dataset = create_dataset("binary_matrix", seed=0, size=1)
    dataset.score_answer(payload, dataset[0])
    assert canary.exists()
    canary.unlink()
    assert score_binary_matrix(payload, dataset[0]) == 0.0
    assert not canary.exists()


@pytest.mark.parametrize("text", ["[" * 5000, "(" * 5000 + ")" * 5000, "[[0]," * 900, "9" * 5000])
def test_matrix_parser_gives_up_on_nonsense(text: str) -> None:
    assert parse_matrix(text) is None


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
                expected = dataset.score_answer(answer, entry)
            except Exception:  # noqa: BLE001
                expected = 0.0
            score = score_propositional_logic(answer, entry, dataset.score_answer)
            # 0.05 is the library's score for any wrong text, which is worth nothing here.
            assert max(score, 0.05) == max(expected, 0.05), (answer, entry["metadata"])
            scores.add(score)
        # The library reads any lower-case word as one more variable, and pays for it where the
        # premises contradict each other.
        for answer in ("therefore", "True", f"{first} or {second}"):
            assert score_propositional_logic(answer, entry, dataset.score_answer) == 0.0
    assert {0.0, 0.05, 0.25, 1.0} <= scores


def test_propositional_logic_refuses_what_makes_the_library_explode() -> None:
    dataset = create_dataset("propositional_logic", seed=11, size=1)

    def unreachable(_answer: str, _entry: object) -> float:
        raise AssertionError("reached the library")

    entry = dataset[0]
    names = "abcdefghijklmnopqrstuvwxyz"
    hostile = ["∧".join(names), "P" * 400, "P∧" * 2000 + "P", "(P)(P)", "P¬P", "P Q", "(P)Q"]
    for answer in hostile:
        assert score_propositional_logic(answer, entry, unreachable) == 0.0


@pytest.mark.parametrize("generator", ["binary_matrix", "spell_backward"])
def test_replaced_scorers_are_never_reached(generator: str) -> None:
    def unreachable(_answer: str, _entry: object) -> float:
        raise AssertionError("reached the library")

    entry = create_dataset(generator, seed=4, size=1)[0]
    assert safe_score(generator, entry["answer"], entry, unreachable) == 1.0
    assert safe_score(generator, "[[eval]]", entry, unreachable) < 1.0
