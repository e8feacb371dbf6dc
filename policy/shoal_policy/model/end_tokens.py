"""The end tokens of a model: all of them, and the one that closes a chat's turn.

A chat model often declares several: one for a text (`<|end_of_text|>`), one for a turn
(`<|eot_id|>`). Its template shows which of them follows an answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

_ANSWER: Final = "answer-83c1e5d27b40"
"""Stands for an answer in a rendered template; nothing else in it has this text."""
_QUESTION: Final = {"role": "user", "content": "question"}
_TURN: Final = [_QUESTION, {"role": "assistant", "content": _ANSWER}]


def declared_end_tokens(model: Any, tokenizer: Any) -> list[int]:
    """Return the end tokens that tokenizer and model declare, the tokenizer's first; maybe none.

    Raises ValueError for one that is not a number.
    """
    generation = getattr(model, "generation_config", None)
    declared = getattr(generation, "eos_token_id", None)
    others = list(declared) if isinstance(declared, list | tuple) else [declared]
    vocab_size = model.config.get_text_config().vocab_size
    ids: list[int] = []
    for one in (tokenizer.eos_token_id, *others):
        if one is not None and type(one) is not int:
            raise ValueError(f"its end token {one!r} is not a number")
        # Some models name -1 or a missing token to say that no token ends an answer.
        if one is not None and 0 <= one < vocab_size:
            ids.append(one)
    return ids


def turn_end(tokenizer: Any, eos_ids: frozenset[int]) -> int | None:
    """Return the end token that closes an answer in the chat template; None if it shows none.

    Some templates close the last turn and others only a turn that another one follows.
    """
    for messages in (_TURN, [*_TURN, _QUESTION]):
        try:
            text = tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=False, enable_thinking=False
            )
            ids = tokenizer(str(text).rpartition(_ANSWER)[2], add_special_tokens=False)["input_ids"]
        except Exception:  # noqa: BLE001 - a template may fail in any way on turns that it never gets
            continue
        if (place := end_position(tokenizer, ids, eos_ids)) is not None:
            return int(ids[place])
    return None


def end_position(tokenizer: Any, ids: Sequence[int], eos_ids: frozenset[int]) -> int | None:
    """Return the position of the end token that these tokens begin with; None without one.

    White space may come before it: some templates put a blank or a line break after an answer.
    """
    for place, one in enumerate(ids):
        if one in eos_ids:
            return place
        if str(tokenizer.decode([one])).strip():
            return None
    return None
