"""Arbitrary rows give fitting keys, or one line with the columns' contents."""

from __future__ import annotations

import string
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shoal_tasks.column_names import ANSWERS, CHOICE_ANSWERS, CHOICES, CONTEXTS, QUESTIONS
from shoal_tasks.columns import find_column
from shoal_tasks.row_shapes import RowError, RowKeys, RowShaper
from shoal_tasks.suggest import NamedColumns, NoSuggestionError, suggest
from tests.tasks.published_forms import FORMS

NAMES = st.sampled_from(
    [*QUESTIONS, *ANSWERS[:8], *CHOICE_ANSWERS[:8], *CHOICES, *CONTEXTS, "A", "B", "C", "unit",
     "chosen", "rejected", "test", "test_list", "id", "{x}", "a b", "é", "input_output"]
)  # fmt: skip
SCALARS = (
    st.none() | st.booleans() | st.integers(-3, 300) | st.floats(allow_nan=False) | st.text()
    | st.sampled_from(["#### 4", r"\boxed{3}", "A", "yes", "assert f(1) == 2", "def f(): ..."])
)  # fmt: skip
TURNS = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "system"]), "content": st.text(max_size=9)}
)
VALUES = st.recursive(
    SCALARS | st.lists(TURNS, max_size=3),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["text", "label", "A", "value", "x.y"]), inner, max_size=3
        )
    ),
    max_leaves=6,
)


def test_a_column_whose_name_has_a_dot_is_named_where_it_is_unused() -> None:
    rows = [{"question": "q", "answer": "1", "answer.value": "2"}] * 2
    found = suggest(rows, NamedColumns(), has_maths=True)
    assert list(found.unused) == ["answer.value"]
    nested = [{"question": "q", "reward_model": {"ground_truth": "1", "style": "rule"}}] * 2
    found = suggest(nested, NamedColumns(), has_maths=True)
    assert found.keys["answer"] == "reward_model.ground_truth"
    assert list(found.unused) == ["reward_model.style"]


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(NAMES, min_size=1, max_size=6, unique=True), st.data())
def test_any_rows_give_keys_or_one_line(names: list[str], data: st.DataObject) -> None:
    kinds = {
        name: data.draw(st.sampled_from([VALUES, SCALARS, st.text(min_size=1)])) for name in names
    }
    rows = [
        {name: data.draw(kind) for name, kind in kinds.items()}
        for _ in range(data.draw(st.integers(1, 4)))
    ]
    try:
        found = suggest(rows, NamedColumns(), has_maths=True)
    except NoSuggestionError as error:
        assert "\n" not in str(error) and error.key in ("question", "answer")
        return
    named = {name for name in names if name in str(found.keys.values()) or name in found.unused}
    tests = found.keys.get("verifier") == "tests"
    covered = {name.partition(".")[0] for name in found.unused} | named
    question = found.keys.get("question", "question")
    answer = found.keys.get("answer", "answer")
    covered |= {question.partition(".")[0], answer.partition(".")[0]}
    assert tests or set(names) <= covered | {one.partition(".")[0] for one in covered}
    assert not any("\n" in one for one in (*found.unused.values(), *found.notes))


@pytest.mark.parametrize("name", [name for name, form in FORMS.items() if not form.refused])
@pytest.mark.parametrize("count", [1, 2, 40])
def test_the_keys_read_every_row_of_a_published_form(name: str, count: int) -> None:
    form = FORMS[name]
    rows = [form.row(number) for number in range(count)]
    flags = dict(zip(form.flags[::2], form.flags[1::2], strict=True))
    named = NamedColumns(
        question=flags.get("--question", ""),
        answer=flags.get("--answer", ""),
        # One row may not show whether numbers count from 0 or from 1.
        first_choice=form.keys.get("first_choice") if count == 1 else None,
    )
    found = suggest(rows, named, has_maths=True)
    shaper = RowShaper(RowKeys.of(dict(found.keys)), rows)
    for number, row in enumerate(rows):
        shaped = shaper.shape(row, f"row {number}")
        assert shaped.question.strip()
        if "choices" in found.keys:
            letters = shaped.question.split("\n")[-6:-1]
            assert any(line.startswith(f"{shaped.answer}. ") for line in letters)
            assert shaped.answer in string.ascii_uppercase
    assert all(find_column(rows[0], column) is not None for column in found.unused)


@pytest.mark.parametrize("numbers", [[1], [1, 2, 2], [2, 3, 1]])
@pytest.mark.parametrize("first", [0, 1])
def test_numbers_with_two_meanings_need_a_choice(numbers: list[int], first: int) -> None:
    rows = [
        {"question": f"q{n}", "choices": ["w", "x", "y", "z"], "answer": number}
        for n, number in enumerate(numbers)
    ]
    with pytest.raises(NoSuggestionError, match="--first-choice 0 or --first-choice 1"):
        suggest(rows, NamedColumns(), has_maths=True)
    keys = dict(suggest(rows, NamedColumns(first_choice=first), has_maths=True).keys)
    shaped = RowShaper(RowKeys.of(keys), rows).shape(rows[0], "row 1")
    assert shaped.answer == string.ascii_uppercase[numbers[0] - first]


@pytest.mark.parametrize(
    ("row", "answer"),
    [
        ({"question": "q", "choices": ["x", "y"], "answer": "y"}, "B"),
        ({"question": "q", "answer": [["x"]]}, None),
        ({"question": "q", "answer": None}, None),
        ({"question": "q", "answer": ["x", "y"]}, "x"),
    ],
)
def test_one_row_is_enough(row: dict[str, Any], answer: str | None) -> None:
    try:
        found = suggest([row], NamedColumns(), has_maths=False)
        shaped = RowShaper(RowKeys.of(dict(found.keys)), [row]).shape(row, "row 1")
    except (NoSuggestionError, RowError):
        assert answer is None
    else:
        assert shaped.answer == answer
