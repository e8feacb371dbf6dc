"""Answers of any version are read, and no text of one acts or floods, wherever it stands."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal_ipc.answers.form import MAX_NAME_CHARS, MAX_TEXT_CHARS, read, to_json
from shoal_ipc.answers.node import CompletionRow, Rollout, RolloutsView, Status
from shoal_ipc.answers.views import VIEWS, help_of
from tests.support.hostile_text import ALL_OF_THEM, acting_in

TEXTS = st.text(alphabet=st.sampled_from(ALL_OF_THEM + "<>&\"' ab\n")) | st.text()
VALUES = st.recursive(
    TEXTS | st.integers() | st.floats() | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


def filled(kind: Any, value: Any) -> dict[str, Any]:
    """A JSON object that has `value` for every key of an answer, and inside those that are one."""
    made = {}
    for one in fields(kind):
        default = getattr(kind(), one.name)
        made[one.name] = filled(type(default), value) if is_dataclass(default) else value
    return made


def decode_addresses(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [one for key, part in value.items() for one in (key, *decode_addresses(part))]
    if isinstance(value, list):
        return [one for part in value for one in decode_addresses(part)]
    return [value] if isinstance(value, str) else []


@pytest.mark.parametrize("view", VIEWS)
@given(value=VALUES)
def test_nothing_acts_in_any_answer(view: str, value: Any) -> None:
    shown = to_json(read(VIEWS[view], filled(VIEWS[view], value)))
    assert all(acting_in(text) <= {"\n"} for text in decode_addresses(shown))
    json.dumps(shown, allow_nan=False).encode("ascii")


@given(VALUES)
def test_what_is_no_answer_is_one_that_says_nothing(value: Any) -> None:
    for kind in VIEWS.values():
        read(kind, value)
    assert read(Status, None) == Status()


def test_unknown_keys_are_skipped_and_missing_keys_have_defaults() -> None:
    older_and_newer = {"peers": 3, "peers_by_colour": {"red": 2}, "round": "many"}
    assert read(Status, older_and_newer) == Status(peers=3)


@pytest.mark.parametrize("kind", VIEWS.values())
def test_an_answer_comes_back_as_it_was(kind: Any) -> None:
    assert read(kind, json.loads(json.dumps(to_json(kind())))) == kind()
    assert help_of(kind)


def test_what_only_some_peers_have_is_left_out_by_the_others() -> None:
    assert not {"trainer", "role", "round"} & set(to_json(Status()))
    assert to_json(Status(round=0))["round"] == 0


def test_lines_stay_where_texts_have_them_and_nowhere_else() -> None:
    row = {"question": "a\nb\x1b", "model": "a\nb\\", "skip_reason": "a\\"}
    shown = read(Rollout, row)
    assert (shown.question, shown.model, shown.skip_reason) == ("a\nb\\x1b", "a\\nb\\x5c", "a\\")
    assert read(Rollout, row, shown=False).model == "a\nb\\"


def test_long_texts_are_cut_and_say_so() -> None:
    text = read(CompletionRow, {"text": "x" * (MAX_TEXT_CHARS + 1)}).text or ""
    model = read(Rollout, {"model": "y" * (MAX_NAME_CHARS + 1)}).model
    assert len(text) < MAX_TEXT_CHARS + 20 and text.endswith("(cut)")
    assert len(model) < MAX_NAME_CHARS + 20 and model.endswith("(cut)")


def test_rows_that_are_none_are_passed_over() -> None:
    found = read(RolloutsView, {"rollouts": [7, {"number": 3}, None, {"completions": [{}, 1]}]})
    assert found.rollouts == (Rollout(number=3), Rollout(completions=(CompletionRow(),)))
    numbers = [1, "2", 3.0, True, float("nan"), 10**400]
    assert read(_Numbers, {"rows": numbers}) == _Numbers(rows=(1, 3))


@dataclass(frozen=True)
class _Numbers:
    rows: tuple[int, ...] = ()
