"""Common column names of published data sets, most telling first. Pure."""

from __future__ import annotations

import re
from typing import Final

QUESTIONS: Final = (
    "question", "problem", "query", "question_stem", "question_text", "prompt", "instruction",
    "goal", "ctx", "sentence", "input", "text", "messages", "conversations", "conversation",
)  # fmt: skip
"""Columns with the question."""

ANSWERS: Final = (
    "final_answer", "expected_answer", "answer", "reward_model.ground_truth", "ground_truth",
    "answer.value", "answers.text", "answers", "solution", "target", "label", "correct_answer",
    "answers_spans.spans", "best_answer", "best answer", "gold", "expected", "reference", "output",
    "completion", "response",
)  # fmt: skip
"""Columns with a right answer."""

CHOICE_ANSWERS: Final = (
    "answerkey", "answer_key", "answer_idx", "answer_index", "answer", "label", "labels", "correct",
    "correct_option", "correct_answer", "correct answer", "cop", "gold", "target", "solution",
    "mc1_targets.labels",
)  # fmt: skip
"""The same for rows with choices: a letter, a number, or a choice's text."""

CHOICES: Final = ("choices", "options", "endings", "candidates", "mc1_targets", "alternatives")
"""Columns with all choices of a row."""

EACH_CHOICE: Final = re.compile(
    r"(?P<kind>(?:option|choice|answer|ending|sol|opt?|incorrect answer|distractor)?)[_ ]?"
    r"(?P<number>[a-j]|\d{1,2})",
    re.IGNORECASE,
)
"""Columns with one choice each: A, option_b, choice2, sol1."""

CONTEXTS: Final = (
    "context", "passage", "article", "story", "document", "paragraph", "background", "premise",
    "table",
)  # fmt: skip
"""Columns with the context of a question, which is shown before it."""

DETAILS: Final = ("input",)
"""Columns that continue an instruction."""

UNITS: Final = ("unit", "units")

PREFERENCES: Final = ("chosen", "rejected")
"""Columns of preference data: none of them is the right answer."""
