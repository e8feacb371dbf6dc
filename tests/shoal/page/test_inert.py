"""No text of an answer acts or floods, whatever it is and wherever it stands."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from shoal.page.inert import LONG_TEXTS, MAX_NAME_CHARS, MAX_TEXT_CHARS, inert
from tests.support.hostile_text import ALL_OF_THEM, acting_in

TEXTS = st.text(alphabet=st.sampled_from(ALL_OF_THEM + "<>&\"' ab\n")) | st.text()
VALUES = st.recursive(
    TEXTS | st.integers() | st.floats() | st.booleans() | st.none() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(TEXTS | st.sampled_from([*LONG_TEXTS]), inner),
)


def texts_of(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [one for key, part in value.items() for one in (key, *texts_of(part))]
    if isinstance(value, list):
        return [one for part in value for one in texts_of(part)]
    return [value] if isinstance(value, str) else []


@given(VALUES)
def test_nothing_acts_in_any_answer(value: Any) -> None:
    shown = inert(value)
    assert all(acting_in(text) <= {"\n"} for text in texts_of(shown))
    json.dumps(shown, allow_nan=False).encode("ascii")
    assert inert(shown) == shown


def test_lines_stay_where_texts_have_them_and_nowhere_else() -> None:
    assert inert({"text": "a\nb\x1b", "model": "a\nb"}) == {"text": "a\nb\\x1b", "model": "a\\nb"}


def test_long_texts_are_cut_and_say_so() -> None:
    shown = inert({"text": "x" * (MAX_TEXT_CHARS + 1), "model": "y" * (MAX_NAME_CHARS + 1)})
    assert len(shown["text"]) < MAX_TEXT_CHARS + 20 and shown["text"].endswith("(cut)")
    assert len(shown["model"]) < MAX_NAME_CHARS + 20 and shown["model"].endswith("(cut)")


def test_depth_is_bounded() -> None:
    deep: Any = "bottom"
    for _ in range(5000):
        deep = [deep]
    json.dumps(inert(deep))
