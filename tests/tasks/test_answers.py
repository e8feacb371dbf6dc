"""Extracting the answer and mapping scores to rewards."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reasoning_gym.utils import extract_answer as original_extract

from shoal_tasks.answers import MAX_ANSWER_CHARS, extract_answer, extract_tagged, to_reward
from shoal_tasks.spec import AnswerFormat
from shoal_wire.types import FinishReason

PLAIN, TAGGED = AnswerFormat.PLAIN, AnswerFormat.TAGGED
STOP, LENGTH = FinishReason.STOP, FinishReason.LENGTH

PIECES = ["<answer>", "</answer>", "<answer", "answer>", " ", "\n", "7", "x", "<", "</answer"]


@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=12).map("".join))
def test_tagged_extraction_agrees_with_the_library(text: str) -> None:
    assert extract_tagged(text) == original_extract(text)


def test_tagged_extraction_is_linear_in_unclosed_tags() -> None:
    # 256 KiB: the library's expression takes some 10^10 steps, and the test would time out.
    assert extract_tagged("<answer>" * (1 << 15)) is None


@pytest.mark.parametrize(
    ("answer_format", "text", "finish_reason", "expected"),
    [
        (PLAIN, " 42\n", STOP, "42"),
        (PLAIN, "42", LENGTH, None),
        (PLAIN, "  ", STOP, None),
        (PLAIN, "9" * MAX_ANSWER_CHARS, STOP, "9" * MAX_ANSWER_CHARS),
        (PLAIN, "9" * (MAX_ANSWER_CHARS + 1), STOP, None),
        (TAGGED, "so <answer>1</answer> no: <answer> 2 </answer> done", LENGTH, "2"),
        (TAGGED, "42", STOP, None),
        (TAGGED, "<answer></answer>", STOP, None),
        (TAGGED, f"<answer>{'9' * (MAX_ANSWER_CHARS + 1)}</answer>", STOP, None),
    ],
)
def test_answer_of_a_completion(
    answer_format: AnswerFormat, text: str, finish_reason: FinishReason, expected: str | None
) -> None:
    assert extract_answer(answer_format, text, finish_reason) == expected


@pytest.mark.parametrize(
    ("score", "plain", "tagged"),
    [
        (1.0, 1.0, 1.0),
        (0.999, 1.0, 1.0),
        (0.998, 0.0, 0.998),
        (0.1, 0.0, 0.1),
        (0.05, 0.0, 0.0),
        (0.01, 0.0, 0.0),
        (0, 0.0, 0.0),
        (-1.0, 0.0, 0.0),
        (math.nan, 0.0, 0.0),
        (math.inf, 0.0, 0.0),
        (7.4, 0.0, 0.0),
        (None, 0.0, 0.0),
        ("1.0", 0.0, 0.0),
    ],
)
def test_reward_of_a_score(score: object, plain: float, tagged: float) -> None:
    assert to_reward(PLAIN, score) == plain
    assert to_reward(TAGGED, score) == tagged
    assert to_reward(TAGGED, score, LENGTH) == tagged / 2, "a cut answer is not paid in full"
