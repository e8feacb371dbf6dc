"""A family's floor: constants and echoes of the question, with the test's own scores."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from shoal_tasks.floor import ECHOES, Floor, best_floor
from shoal_tasks.spec import AnswerFormat, FamilySpec

FAMILY = FamilySpec(name="f", generator="gcd", answer_format=AnswerFormat.PLAIN)


@pytest.mark.parametrize(
    ("echo", "question", "answer"),
    [
        ("the question's last line", "Which?\n\n a b \n", "a b"),
        ("the question's input, unchanged", "Turn: by 90:\n1 2\n3 4\n\n", "1 2\n3 4"),
        ("the question's input, unchanged", "In this list: ['1', '2']\nGive it.", "['1', '2']"),
        ("the question's first number", "Of -12 and 1/2?", "-12"),
        ("the question's last number", "Of -12 and 1/2?", "1/2"),
        ("the question's operands, swapped", "Solve:\n8 * 5.5 = ?", "5.5 * 8"),
        ("the first premise", "Given:\n1. ¬(P ∧ Q)\n.2. ¬Q\n.What?", "¬(P ∧ Q)"),
        ("the premises, joined", "Given:\n1. ¬(P ∧ Q)\n.2. ¬Q\n.What?", "(¬(P ∧ Q)) ∧ (¬Q)"),
    ],
)
def test_an_echo_is_a_piece_of_the_question(echo: str, question: str, answer: str) -> None:
    assert ECHOES[echo](question) == answer


@pytest.mark.parametrize("echo", ECHOES)
@pytest.mark.parametrize("question", ["", "\n", "Why?", ":"])
def test_a_question_without_such_a_piece_has_no_such_echo(echo: str, question: str) -> None:
    assert ECHOES[echo](question) in ("", question.strip())


def test_the_floor_is_the_better_of_constants_and_echoes() -> None:
    questions = ["Of 3 and 6?", "Of 4 and 8?", "Of 5 and 6?"]

    def floor(expected: Sequence[str], right: Sequence[str]) -> Floor:
        def rewards_of(texts: Sequence[str]) -> list[float]:
            return [float(text == one) for text, one in zip(texts, expected, strict=True)]

        return best_floor(FAMILY, questions, right, rewards_of)

    by_echo = floor(["3", "4", "1"], ["3", "4", "1"])
    assert (by_echo.answer, by_echo.is_echo) == ("the question's first number", True)
    assert by_echo.reward == pytest.approx(2 / 3)
    by_constant = floor(["1", "1", "5"], ["1", "1", "5"])
    assert by_constant == Floor(answer="1", is_echo=False, reward=by_echo.reward)


def test_a_tagged_family_is_answered_between_tags() -> None:
    spec = FamilySpec(name="f", generator="gcd", answer_format=AnswerFormat.TAGGED)
    seen: list[str] = []

    def rewards_of(texts: Sequence[str]) -> list[float]:
        seen.extend(texts)
        return [0.0] * len(texts)

    best_floor(spec, ["7"], ["1"], rewards_of)
    assert seen[:2] == ["<answer>1</answer>", "<answer>7</answer>"]
