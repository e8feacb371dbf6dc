"""The warm start's lessons: wrong answers are wrong, and no question is from evaluation."""

from __future__ import annotations

import pytest

from shoal_lab.warmstart.lessons import draw_lessons, held_out_questions, misconceptions
from shoal_tasks.families import EASY


def test_every_easy_family_has_lessons_whose_wrong_answers_are_wrong() -> None:
    lessons = draw_lessons(200, seed=3)
    assert {lesson.family for lesson in lessons} == {spec.name for spec in EASY}
    for lesson in lessons:
        assert 1 <= len(lesson.wrong) <= 2
        assert lesson.right not in lesson.wrong
        assert all(lesson.wrong)


def test_lessons_follow_from_their_seed() -> None:
    assert draw_lessons(5, seed=1) == draw_lessons(5, seed=1)
    assert draw_lessons(5, seed=1) != draw_lessons(5, seed=2)


@pytest.mark.parametrize(
    ("generator", "metadata", "right", "wrong"),
    [
        (
            "base_conversion",
            {"source_repr": "1011", "decimal_value": 11, "target_repr": "102"},
            "102",
            ("1011", "11"),
        ),
        (
            "base_conversion",
            {"source_repr": "1", "decimal_value": 1, "target_repr": "1"},
            "1",
            ("10",),
        ),
        ("count_bits", {"binary": "1011", "number": 11, "solution": 3}, "3", ("4", "11")),
        ("gcd", {"numbers": [4, 6]}, "2", ("10", "46")),
        ("gcd", {"numbers": [7, 7]}, "7", ("14", "77")),
        ("spell_backward", {"word": "suz"}, "zus", ("suz", "uzs")),
        ("spell_backward", {"word": "aaa"}, "aaa", ("aa",)),
        ("letter_counting", {"span": ["Anna"], "target_letter": "a"}, "2", ("4", "3")),
        ("simple_equations", {"equation": "6*e - 6 = 24"}, "5", ("24", "-24")),
        ("simple_equations", {"equation": "v = 4"}, "4", ("-4",)),
        ("simple_equations", {"equation": "2 - v = -5"}, "7", ("-5", "5")),
    ],
)
def test_misconceptions_by_hand(
    generator: str, metadata: dict[str, object], right: str, wrong: tuple[str, ...]
) -> None:
    assert misconceptions(generator, metadata, right) == wrong


def test_held_out_questions_are_no_lessons() -> None:
    held_out = held_out_questions(16)
    assert len(held_out) == 16 * len(EASY)
    texts = {lesson.question for lesson in held_out}
    assert not texts & {lesson.question for lesson in draw_lessons(300, seed=4)}
