"""Choices in every form, with every kind of answer: the letter is that of the right one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal_tasks.choices import LETTERS, ChoiceError, ChoiceKeys, Choices

TEXTS = st.lists(
    st.text(st.characters(categories=("L", "N")), min_size=2, max_size=12).filter(
        lambda text: not text.isdigit()
    ),
    min_size=2,
    max_size=8,
    unique_by=str.casefold,
)

FORMS = {
    "list": lambda texts: [texts],
    "texts and labels": lambda texts: [{"text": texts, "label": list(LETTERS[: len(texts)])}],
    "by letter": lambda texts: [dict(zip(LETTERS, texts, strict=False))],
    "list of objects": lambda texts: [
        [{"label": one, "text": text} for one, text in zip(LETTERS, texts, strict=False)]
    ],
    "columns": list,
    "JSON": lambda texts: [json.dumps(texts)],
    "Python": lambda texts: [repr(texts)],
    "lines": lambda texts: ["\n".join(texts)],
    "lettered": lambda texts: [
        " ".join(f"\n{one}) {text}" for one, text in zip(LETTERS, texts, strict=False))
    ],
    "lettered list": lambda texts: [
        [f"({one}) {text}" for one, text in zip(LETTERS, texts, strict=False)]
    ],
}


@pytest.mark.parametrize("form", FORMS)
@given(TEXTS, st.data())
def test_the_letter_is_the_right_choices(form: str, texts: list[str], data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(texts) - 1))
    choices = Choices.of(FORMS[form](texts))
    assert [line.partition(". ")[2] for line in choices.shown.splitlines()] == texts
    letter = LETTERS[place]
    answers: list[tuple[Any, int | None]] = [
        (place, None), (place, 0), (place + 1, 1), (float(place), None), (str(place), 0),
        (str(place + 1), 1), (letter, None), (letter.lower(), None), (f"({letter})", None),
        (f"{letter}.", None), (texts[place], None), (texts[place].upper(), None), ([place], None),
        ([int(one == place) for one in range(len(texts))], None),
    ]  # fmt: skip
    for answer, first in answers:
        if form == "columns" and isinstance(answer, str) and answer == texts[place].upper():
            continue  # ß and others change their length
        try:
            assert choices.letter_of(answer, first) == letter
        except ChoiceError:
            assert isinstance(answer, str) and answer.casefold() != texts[place].casefold()


@pytest.mark.parametrize(
    ("values", "answer", "first", "cause"),
    [
        ([["x", "y"]], 2, None, "there is no choice number 2 among 2"),
        ([["x", "y"]], 0, 1, "there is no choice number 0"),
        ([["x", "y"]], "z", None, "'z' is none of the choices"),
        ([["B", "A"]], "B", None, "may be choice A or B"),
        ([["x", "y"]], True, None, "true is not a choice"),
        ([["x", "y"]], None, None, "null is not a choice"),
        ([["x", "y"]], [1, 1], None, "names no single choice"),
        ([["x"]], 0, None, "holds 1 choices"),
        ([["x", ""]], 0, None, "has an empty choice"),
        ([7], 0, None, "is 7, not a list of choices"),
    ],
)
def test_an_unclear_answer_is_refused_with_its_cause(
    values: Any, answer: Any, first: int | None, cause: str
) -> None:
    with pytest.raises(ChoiceError, match=cause):
        Choices.of(values).letter_of(answer, first)


def test_numbers_that_are_texts_of_choices_are_the_texts() -> None:
    assert Choices.of([["1", "2"]]).letter_of("1") == "A"
    assert Choices.of([["2", "1"]]).letter_of("1", 0) == "B"
    assert Choices.of([{"text": ["x", "y"], "label": ["1", "2"]}]).letter_of("1") == "A"
    assert Choices.of([["same", "same"]]).letter_of("same") == "A"


def test_where_the_right_one_is_always_first_the_question_decides_the_order() -> None:
    keys = ChoiceKeys(columns=("right", "wrong", "worse"), answer="right")
    letters = []
    for number in range(60):
        shown, letter = keys.read(["yes", "no", "never"], "yes", f"question {number}")
        assert f"{letter}. yes" in shown.splitlines()
        assert (shown, letter) == keys.read(["yes", "no", "never"], "yes", f"question {number}")
        letters.append(letter)
    assert set(letters) == {"A", "B", "C"}
