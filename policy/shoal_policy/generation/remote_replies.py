"""Reads a server's reply: bytes → Answer, or Fault. No tensors; nothing in it is trusted."""

from __future__ import annotations

import json
import math
from typing import Any

from shoal_policy.rollouts import Answer
from shoal_wire.types import FinishReason

_FINISH = {"stop": FinishReason.STOP, "eos": FinishReason.STOP, "length": FinishReason.LENGTH}
_CHARACTERS_A_TOKEN = 4
"""Characters a token of English text has on average; used for servers that do not count."""


class Fault(Exception):  # noqa: N818 - the other side's, and not fatal
    """A reply that is no answer. One line."""

    def __init__(self, text: str, retry_after: float | None = None) -> None:
        """`retry_after` are the seconds that the other side asks to wait."""
        super().__init__(text)
        self.retry_after = retry_after


def read_answer(body: bytes, *, chat: bool) -> Answer:
    """Return the first choice of a reply; raise Fault when that is not text with a known end.

    Its ids are empty: they are the server's own, and no other tokenizer's.
    """
    try:
        document = json.loads(body)
        choice = document["choices"][0]
        text = choice["message"]["content"] if chat else choice["text"]
        reason = _FINISH.get(choice["finish_reason"])
    except (ValueError, LookupError, TypeError, RecursionError):
        raise Fault("reply is not a completion") from None
    if not isinstance(text, str) or reason is None:
        raise Fault("reply has no text, or no known end")
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise Fault("reply is not valid Unicode")
    counted = _num_tokens(document, text)
    return Answer(ids=(), text=text, finish_reason=reason, logprobs=(), counted=counted)


def _num_tokens(document: dict[str, Any], text: str) -> int:
    usage = document.get("usage")
    counted = usage.get("completion_tokens") if isinstance(usage, dict) else None
    if isinstance(counted, int) and not isinstance(counted, bool) and 0 < counted < 1 << 24:
        return counted
    return max(1, math.ceil(len(text) / _CHARACTERS_A_TOKEN))
