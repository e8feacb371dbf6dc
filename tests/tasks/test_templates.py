"""Prompts: known columns in single braces are filled, and all other braces stay."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal_tasks.columns import has_column, iter_names
from shoal_tasks.errors import FamilyError
from shoal_tasks.templates import Template

ROW: dict[str, Any] = {
    "problem": "2 + 3?",
    "nums": [4, 6],
    "target": 24.0,
    "empty": None,
    "reward_model": {"ground_truth": "5"},
    "chat": [{"role": "system", "content": "s"}, {"role": "user", "content": "asked"}],
    "choices": ["red", 7],
    "a.b": "dotted",
}


def filled(prompt: str, row: dict[str, Any] = ROW) -> str:
    template = Template.of(prompt, lambda name: has_column(row, name), list(iter_names(row)))
    return template.fill(row)


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("{problem}", "2 + 3?"),
        ("Make {target} of {nums}.", "Make 24 of [4, 6]."),
        ("{problem} {empty}", "2 + 3?"),
        ("{ problem }", "2 + 3?"),
        ("{reward_model.ground_truth}; {nums.1}; {nums.-1}", "5; 6; 6"),
        ("{a.b}", "dotted"),
        ("{chat}", "asked"),
        ("{chat.0.content}: {chat}", "s: asked"),
        ("{problem} {{problem}}", "2 + 3? {problem}"),
        ('{{"a": {problem}}}', '{"a": 2 + 3?}'),
        ("{{{problem}}}", "{2 + 3?}"),
        ("{problem} {{ or }}", "2 + 3? { or }"),
        ("{problem} { or }", "2 + 3? { or }"),
        (r"{problem} \frac{a}{b}", r"2 + 3? \frac{a}{b}"),
        (r"{problem} \boxed{}", r"2 + 3? \boxed{}"),
        (r"{problem} \boxed{\text{your answer}}", r"2 + 3? \boxed{\text{your answer}}"),
        (r"\boxed{\sqrt{\frac{a}{b}}} {problem}", r"\boxed{\sqrt{\frac{a}{b}}} 2 + 3?"),
        (r"\frac{{a}+b}{c} {problem}", r"\frac{{a}+b}{c} 2 + 3?"),
        (r"{problem} \boxed{problems}", r"2 + 3? \boxed{problems}"),
        ('{"answer": {problem}}', '{"answer": 2 + 3?}'),
        ("{problem} {name}", "2 + 3? {name}"),
    ],
)
def test_a_prompt_is_filled_as_it_is_written(prompt: str, expected: str) -> None:
    assert filled(prompt) == expected


@pytest.mark.parametrize(
    ("prompt", "cause"),
    [
        ("{problm}", r"\{problm\} is not a column, but \{problem\} is: .* write \{\{problm\}\}"),
        ("{problem} {Target}", r"\{target\} is"),
        ("{problem} {reward_model.ground_trut}", r"\{reward_model.ground_truth\} is"),
        ("Say something.", r"prompt shows no column, .* there are \{problem\}"),
        ("{{problem}}", r"prompt shows no column.*\{problem\} is the column"),
    ],
)
def test_a_slip_in_a_prompt_is_refused(prompt: str, cause: str) -> None:
    with pytest.raises(FamilyError, match=cause) as caught:
        filled(prompt)
    assert "\n" not in str(caught.value)


def test_a_word_in_braces_that_is_no_column_is_reported() -> None:
    template = Template.of(
        r"{problem} {name} \text{x}", lambda name: name == "problem", ["problem"]
    )
    assert template.untouched == ("{name}",)


PIECES = st.lists(st.sampled_from(["{{", "}}", "{x}", "word ", r"\frac{a}{b}", "\n"]), max_size=12)


@given(PIECES)
def test_doubled_braces_are_pythons_where_they_come_in_pairs(pieces: list[str]) -> None:
    depth = 0
    for piece in pieces:
        depth += {"{{": 1, "}}": -1}.get(piece, 0)
        if depth < 0:
            return
    if depth or "{x}" not in pieces:
        return
    text = "".join(pieces)
    expected = "".join({"{{": "{", "}}": "}", "{x}": "V"}.get(piece, piece) for piece in pieces)
    assert filled(text, {"x": "V"}) == expected.strip()


@given(st.text(st.characters(exclude_characters="{}")), st.text(min_size=1))
def test_a_value_is_shown_as_it_is(before: str, value: str) -> None:
    assert filled(f"{before}{{x}}|", {"x": value}) == f"{before}{value}|".strip()
