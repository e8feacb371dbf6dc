"""Why an own answer earned nothing, and how one is shown."""

from __future__ import annotations

import pytest

from shoal_policy.record.wrong_answer import (
    SHOWN_CHARACTERS,
    ZeroRewardAnswer,
    ZeroRewardCause,
    pick_example,
)
from shoal_tasks.answers import extract_answer, to_reward
from shoal_tasks.spec import AnswerFormat
from shoal_wire.types import FinishReason


def unrewarded(answer: str, *, cut: bool = False, tagged: bool = False) -> ZeroRewardAnswer:
    return ZeroRewardAnswer(question="2+2?", expected="4", answer=answer, cut=cut, tagged=tagged)


@pytest.mark.parametrize(
    ("answer", "cut", "tagged", "why"),
    [
        ("", False, False, ZeroRewardCause.EMPTY),
        (" \n", False, True, ZeroRewardCause.EMPTY),
        ("<answer> </answer>", False, True, ZeroRewardCause.EMPTY),
        ("4", True, False, ZeroRewardCause.CUT),
        ("Let me see. <answer>4", True, True, ZeroRewardCause.CUT),
        ("The answer is 4.", False, True, ZeroRewardCause.NO_TAGS),
        ("The answer is 4.", False, False, ZeroRewardCause.NOT_ALONE),
        ("5", False, False, ZeroRewardCause.WRONG),
        ("<answer>5</answer> and on", True, True, ZeroRewardCause.WRONG),
    ],
)
def test_the_reason_is_the_scorers(
    answer: str, cut: bool, tagged: bool, why: ZeroRewardCause
) -> None:
    assert unrewarded(answer, cut=cut, tagged=tagged).cause is why
    # An answer that the verifier can read is never reported as missing.
    form = AnswerFormat.TAGGED if tagged else AnswerFormat.PLAIN
    found = extract_answer(form, answer, FinishReason.LENGTH if cut else FinishReason.STOP)
    assert (found is None) == (
        why in (ZeroRewardCause.EMPTY, ZeroRewardCause.CUT, ZeroRewardCause.NO_TAGS)
    )
    assert to_reward(form, 0.0) == 0


def test_the_commonest_fault_is_shown_with_its_count() -> None:
    wrong = pick_example([unrewarded("5"), unrewarded("4", cut=True), unrewarded("1", cut=True)])
    assert wrong is not None
    assert wrong.text == (
        "asked “2+2?”, expected “4”, answered “4”: it was truncated at the token limit "
        "(2 of 3 like this)"
    )
    assert pick_example([]) is None


def test_an_answer_whose_expected_one_is_known_comes_first() -> None:
    unknown = ZeroRewardAnswer(question="?", expected=None, answer="x", cut=False, tagged=False)
    wrong = pick_example([unknown, unrewarded("5")])
    assert wrong is not None
    assert "expected “4”" in wrong.text
    only = pick_example([unknown])
    assert only is not None
    assert "expected any valid answer" in only.text


def test_long_text_is_cut_and_no_character_acts() -> None:
    hostile = "a\x1b[2J\r\n\u202eb\x9bc\u200b\ud800" + "x" * 10_000
    one = ZeroRewardAnswer(
        question=hostile, expected=hostile, answer=hostile, cut=False, tagged=True
    )
    wrong = pick_example([one])
    assert wrong is not None
    assert all(c.isprintable() for c in wrong.text)
    assert "\\x1b" in wrong.text
    assert len(wrong.text) < 6 * SHOWN_CHARACTERS
