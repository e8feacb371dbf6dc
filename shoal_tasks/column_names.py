"""The names that published data sets give to their columns, the most telling first. Pure."""

from __future__ import annotations

import re
from typing import Final

QUESTIONS: Final = (
    "question", "problem", "query", "question_stem", "question_text", "prompt", "instruction",
    "goal", "ctx", "sentence", "input", "text", "messages", "conversations", "conversation",
)  # fmt: skip
"""Columns that hold what is asked."""

ANSWERS: Final = (
    "final_answer", "expected_answer", "answer", "reward_model.ground_truth", "ground_truth",
    "answer.value", "answers.text", "answers", "solution", "target", "label", "correct_answer",
    "answers_spans.spans", "best_answer", "best answer", "gold", "expected", "reference", "output",
    "completion", "response",
)  # fmt: skip
"""Columns that hold a right answer."""

CHOICE_ANSWERS: Final = (
    "answerkey", "answer_key", "answer_idx", "answer_index", "answer", "label", "labels", "correct",
    "correct_option", "correct_answer", "correct answer", "cop", "gold", "target", "solution",
    "mc1_targets.labels",
)  # fmt: skip
"""The same where a row has choices: a letter, a number, or a choice's text."""

CHOICES: Final = ("choices", "options", "endings", "candidates", "mc1_targets", "alternatives")
"""Columns that hold all choices of a row."""

EACH_CHOICE: Final = re.compile(
    r"(?P<kind>(?:option|choice|answer|ending|sol|opt?|incorrect answer|distractor)?)[_ ]?"
    r"(?P<number>[a-j]|\d{1,2})",
    re.IGNORECASE,
)
"""Names of columns that hold one choice each: A, option_b, choice2, sol1."""

CONTEXTS: Final = (
    "context", "passage", "article", "story", "document", "paragraph", "background", "premise",
    "table",
)  # fmt: skip
"""Columns with what a question is about, which stand before it."""

DETAILS: Final = ("input",)
"""Columns that stand behind an instruction."""

UNITS: Final = ("unit", "units")

PREFERENCES: Final = ("chosen", "rejected")
"""Columns of data that compares answers: none of them is the right one."""
