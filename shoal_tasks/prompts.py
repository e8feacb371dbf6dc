"""The text of a question as a model sees it, in local and external generation. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

TAGGED_INSTRUCTION: Final = (
    "Work through the problem step by step, then give the final answer between "
    "<answer> and </answer>. Put nothing but the answer between the tags, in exactly "
    "the form that the question's examples show."
)
"""Shown before the questions of tagged families; `shoal_tasks.answers` extracts that answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A few-shot example: a question with its right answer, shown before the actual question."""

    question: str
    answer: str
    """The answer in the form of a completion: `answer_text`."""


def answer_text(answer: str, *, tagged: bool) -> str:
    """Return a right answer in the form that the instruction requires."""
    return f"<answer>{answer}</answer>" if tagged else answer


def instruction(*, tagged: bool, system: str = "") -> str:
    """Return the text before a family's questions; empty if there is none.

    It is the family's own system text, the rule for tagged answers, or both.
    """
    return "\n\n".join(text for text in (system, TAGGED_INSTRUCTION if tagged else "") if text)


def messages_for(
    question: str, *, tagged: bool, system: str = "", examples: Sequence[Example] = ()
) -> list[dict[str, str]]:
    """Return the chat with a question; `tagged` requires the answer between tags.

    `system` is the family's own system text, and `examples` are turns before the question.
    """
    before = instruction(tagged=tagged, system=system)
    turns = [{"role": "system", "content": before}] if before else []
    for one in examples:
        turns.append({"role": "user", "content": one.question})
        turns.append({"role": "assistant", "content": one.answer})
    return [*turns, {"role": "user", "content": question}]


def plain_prompt(
    question: str, *, tagged: bool, system: str = "", examples: Sequence[Example] = ()
) -> str:
    """Return the same for models without a chat template."""
    before = instruction(tagged=tagged, system=system)
    head = f"{before}\n\n" if before else ""
    shown = "".join(f"{one.question}\nAnswer: {one.answer}\n\n" for one in examples)
    return f"{head}{shown}{question}\nAnswer:"


def plain_turn(observation: str) -> str:
    """Return the text between two messages of a game, for models without a chat template."""
    return f"\n\n{observation}\nAnswer:"
