"""Parses conversations, in the forms of published data sets, into a question. Pure.

    [{"role": "system", "content": …}, {"role": "user", "content": …}]      TRL, verl, OpenAI
    {"messages": [{"role": …, "content": …}]}
    [{"from": "human", "value": …}, {"from": "gpt", "value": …}]            ShareGPT
    [{"role": "user", "content": [{"type": "text", "text": …}]}]            parts
    "[{\"role\": …}]"                                                       the same in a text

A task has one question: an optional system turn, one user turn, and perhaps the assistant's answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from shoal_tasks.columns import unpack
from shoal_tasks.errors import FamilyError
from shoal_tasks.json_values import describe
from shoal_tasks.spec import JsonValue

SYSTEM: Final = "system"
USER: Final = "user"
ASSISTANT: Final = "assistant"

_ROLES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("system", "developer"), SYSTEM),
    **dict.fromkeys(("user", "human", "prompter"), USER),
    **dict.fromkeys(("assistant", "gpt", "model", "bot", "chatbot", "chatgpt"), ASSISTANT),
}
_ROLE_KEYS: Final = ("role", "from")
_TEXT_KEYS: Final = ("content", "value", "text")
_WRAPPERS: Final = ("messages", "conversations", "conversation", "turns")


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """One exchange of a user and an assistant."""

    system: str
    """The system turn; empty without one."""
    question: str
    """The user's turn; empty if there is only an assistant's turn."""
    answer: str
    """The assistant's turn after it; empty without one."""


def is_conversation(value: JsonValue) -> bool:
    """Return whether a value is a list of turns in one of the published forms."""
    return _turns_in(value) is not None


def parse_conversation(value: JsonValue) -> Conversation | None:
    """Parse the exchange in a value; None if it is not a conversation.

    Raises `FamilyError`: it has more than one question, or a turn is not text. The message has no
    subject: the caller puts row and column before it.
    """
    turns = _turns_in(value)
    if turns is None:
        return None
    read = [_turn(turn, number) for number, turn in enumerate(turns, start=1)]
    systems = []
    while read and read[0][0] == SYSTEM:
        systems.append(read.pop(0)[1])
    roles = [role for role, _ in read]
    texts = [text for _, text in read]
    if SYSTEM in roles:
        raise FamilyError("has a system turn after other turns: only the first turn may be one")
    if roles.count(USER) > 1:
        raise FamilyError(
            f"is a conversation with {roles.count(USER)} turns of the user, but a task has one "
            "question: remove such rows, or name one turn, as in COLUMN.0.content"
        )
    if roles not in ([USER], [USER, ASSISTANT], [ASSISTANT]):
        order = ", ".join(roles) or "none"
        raise FamilyError(
            f"has the turns {order} after the system's: it needs one of the user, and then "
            "perhaps one of the assistant"
        )
    return Conversation(
        system="\n\n".join(filter(None, systems)),
        question=texts[0] if roles[0] == USER else "",
        answer=texts[-1] if roles[-1] == ASSISTANT else "",
    )


def _turns_in(value: JsonValue) -> list[dict[str, JsonValue]] | None:
    found = unpack(value)
    if isinstance(found, dict):
        inner = [found[key] for key in _WRAPPERS if key in found]
        found = unpack(inner[0]) if inner else [found] if _is_turn(found) else None
    if not isinstance(found, list) or not found:
        return None
    turns = [one for one in found if isinstance(one, dict) and _is_turn(one)]
    return turns if len(turns) == len(found) else None


def _is_turn(value: Mapping[str, JsonValue]) -> bool:
    return any(isinstance(value.get(key), str) for key in _ROLE_KEYS) and any(
        key in value for key in (*_TEXT_KEYS, "tool_calls", "function_call")
    )


def _turn(turn: Mapping[str, JsonValue], number: int) -> tuple[str, str]:
    """Return a turn's role and text. Raises `FamilyError`."""
    stated = next(str(turn[key]) for key in _ROLE_KEYS if isinstance(turn.get(key), str))
    role = _ROLES.get(stated.casefold())
    if role is None:
        raise FamilyError(
            f"has a turn of the role {stated!r} (number {number}): tasks have no tools, so only "
            "system, user and assistant are read"
        )
    content = next((turn[key] for key in _TEXT_KEYS if key in turn), None)
    return role, _text(content, number)


def _text(content: JsonValue, number: int) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise FamilyError(f"has a turn without a text (number {number}): it is {describe(content)}")
    texts = []
    for part in content:
        text = part.get("text") if isinstance(part, dict) else part
        if not isinstance(text, str):
            kind = part.get("type", "of another kind") if isinstance(part, dict) else "no text"
            raise FamilyError(
                f"has a part that is not text ({kind}) in turn {number}: shoal reads only text"
            )
        texts.append(text)
    return "\n".join(texts)
