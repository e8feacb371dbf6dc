"""Conversations in published forms are parsed as one exchange, or refused with the reason."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from shoal_tasks.conversations import parse_conversation
from shoal_tasks.errors import FamilyError

Turn = tuple[str, str]

TEXTS = ("2 + 2?", "Café\n'no'", '"quoted"', "[1, 2]", "{x}", "日本")
SHAREGPT = {"system": "system", "user": "human", "assistant": "gpt"}


def as_turns(turns: list[Turn]) -> Any:
    return [{"role": role, "content": text} for role, text in turns]


def with_more_keys(turns: list[Turn]) -> Any:
    return [{"content": text, "role": role, "name": None, "weight": 1} for role, text in turns]


def as_sharegpt(turns: list[Turn]) -> Any:
    return [{"from": SHAREGPT[role], "value": text} for role, text in turns]


def as_parts(turns: list[Turn]) -> Any:
    return [{"role": role, "content": [{"type": "text", "text": text}]} for role, text in turns]


FORMS: dict[str, Callable[[list[Turn]], Any]] = {
    "turns": as_turns,
    "more keys": with_more_keys,
    "sharegpt": as_sharegpt,
    "parts": as_parts,
    "wrapped": lambda turns: {"messages": as_turns(turns), "tools": None},
    "wrapped sharegpt": lambda turns: {"conversations": as_sharegpt(turns)},
    "json": lambda turns: json.dumps(as_turns(turns)),
    "json, wrapped": lambda turns: json.dumps({"messages": as_parts(turns)}, ensure_ascii=False),
    "python": lambda turns: repr(as_turns(turns)),
}


@pytest.mark.parametrize("form", FORMS)
def test_an_exchange_is_read_in_every_form(form: str) -> None:
    for seed in range(100):
        rng = random.Random(seed)
        system, question, answer = (rng.choice(TEXTS) for _ in range(3))
        has_system, has_answer = rng.random() < 0.5, rng.random() < 0.5
        turns = [("user", question)]
        if has_system:
            turns.insert(0, ("system", system))
        if has_answer:
            turns.append(("assistant", answer))
        found = parse_conversation(FORMS[form](turns))
        assert found is not None
        assert found.question == question
        assert found.system == (system if has_system else "")
        assert found.answer == (answer if has_answer else "")


@pytest.mark.parametrize(
    "value",
    ["a text", "[1, 2]", "[{", [], [1], {}, None, 5, [{"text": "x"}], {"style": "rule"}, "[]"],
)
def test_what_is_no_conversation_is_left_alone(value: Any) -> None:
    assert parse_conversation(value) is None


IMAGE = [{"type": "image_url", "image_url": "x"}, {"type": "text", "text": "what?"}]


@pytest.mark.parametrize(
    ("turns", "cause"),
    [
        (
            [("user", "a"), ("assistant", "b"), ("user", "c")],
            "with 2 turns of the user, but a task",
        ),
        ([("user", "a"), ("system", "b")], "a system turn after other turns"),
        ([("user", "a"), ("tool", "b")], "a turn of the role 'tool' .number 2."),
        ([("system", "a")], "the turns none after the system's"),
        ([("assistant", "a"), ("user", "b")], "the turns assistant, user after"),
        ([("user", IMAGE)], r"a part that is not text .image_url. in turn 1"),
        ([("user", None)], "a turn without a text .number 1.: it is null"),
    ],
)
def test_an_invalid_conversation_is_refused(turns: list[Any], cause: str) -> None:
    with pytest.raises(FamilyError, match=cause) as caught:
        parse_conversation(as_turns(turns))
    assert "\n" not in str(caught.value)
