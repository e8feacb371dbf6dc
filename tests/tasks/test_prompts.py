"""The text that a model receives."""

from __future__ import annotations

from pathlib import Path

from shoal_tasks.answers import extract_tagged
from shoal_tasks.prompts import TAGGED_INSTRUCTION, Example, messages_for, plain_prompt

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "tasks.md").read_text()


def test_examples_are_turns_or_questions_with_their_answers() -> None:
    shown = [Example(question="1+1?", answer="2"), Example(question="1+2?", answer="3")]
    turns = [
        (one["role"], one["content"]) for one in messages_for("2+3?", tagged=True, examples=shown)
    ]
    assert turns == [
        ("system", TAGGED_INSTRUCTION),
        *[("user", "1+1?"), ("assistant", "2"), ("user", "1+2?"), ("assistant", "3")],
        ("user", "2+3?"),
    ]
    assert plain_prompt("2+3?", tagged=False, examples=shown) == (
        "1+1?\nAnswer: 2\n\n1+2?\nAnswer: 3\n\n2+3?\nAnswer:"
    )


def test_a_tagged_question_is_preceded_by_the_instruction() -> None:
    system, user = messages_for("2+3?", tagged=True)
    assert system == {"role": "system", "content": TAGGED_INSTRUCTION}
    assert user == {"role": "user", "content": "2+3?"}
    assert plain_prompt("2+3?", tagged=True) == f"{TAGGED_INSTRUCTION}\n\n2+3?\nAnswer:"


def test_a_plain_question_is_sent_unchanged() -> None:
    assert messages_for("2+3?", tagged=False) == [{"role": "user", "content": "2+3?"}]
    assert plain_prompt("2+3?", tagged=False) == "2+3?\nAnswer:"


def test_the_instruction_asks_for_the_tags_that_are_looked_for() -> None:
    assert extract_tagged(TAGGED_INSTRUCTION.replace(" and ", "5")) == "5"


def test_the_documentation_quotes_the_instruction() -> None:
    assert f"\n```\n{TAGGED_INSTRUCTION}\n```\n" in PAGE
