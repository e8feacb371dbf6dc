"""What a model is asked, as text."""

from __future__ import annotations

from pathlib import Path

from shoal_tasks.answers import extract_tagged
from shoal_tasks.prompts import TAGGED_INSTRUCTION, messages_for, plain_prompt

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "tasks.md").read_text()


def test_a_tagged_question_is_preceded_by_the_instruction() -> None:
    system, user = messages_for("2+3?", tagged=True)
    assert system == {"role": "system", "content": TAGGED_INSTRUCTION}
    assert user == {"role": "user", "content": "2+3?"}
    assert plain_prompt("2+3?", tagged=True) == f"{TAGGED_INSTRUCTION}\n\n2+3?\nAnswer:"


def test_a_plain_question_is_asked_as_it_is() -> None:
    assert messages_for("2+3?", tagged=False) == [{"role": "user", "content": "2+3?"}]
    assert plain_prompt("2+3?", tagged=False) == "2+3?\nAnswer:"


def test_the_instruction_asks_for_the_tags_that_are_looked_for() -> None:
    assert extract_tagged(TAGGED_INSTRUCTION.replace(" and ", "5")) == "5"


def test_the_documentation_quotes_the_instruction() -> None:
    assert f"\n```\n{TAGGED_INSTRUCTION}\n```\n" in PAGE
