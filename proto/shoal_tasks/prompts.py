"""What a question looks like to a model, as text: shared by own and other generators. Pure."""

from __future__ import annotations

from typing import Final

TAGGED_INSTRUCTION: Final = (
    "Work through the problem step by step, then give the final answer between "
    "<answer> and </answer>. Put nothing but the answer between the tags, in exactly "
    "the form that the question's examples show."
)
"""Stands before the questions of tagged families; `shoal_tasks.answers` looks for what it asks."""


def messages_for(question: str, *, tagged: bool) -> list[dict[str, str]]:
    """The chat that asks a question; `tagged` asks for the answer between tags."""
    user = {"role": "user", "content": question}
    return [{"role": "system", "content": TAGGED_INSTRUCTION}, user] if tagged else [user]


def plain_prompt(question: str, *, tagged: bool) -> str:
    """The same for models without a chat template."""
    head = f"{TAGGED_INSTRUCTION}\n\n" if tagged else ""
    return f"{head}{question}\nAnswer:"
