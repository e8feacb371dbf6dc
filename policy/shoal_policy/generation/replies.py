"""Reads a server's reply, in text or in token ids: bytes → Answer, or Fault.

Nothing in it is trusted. Ids outside the vocabulary, an end token in the middle, more or longer
answers than were asked for, another prompt or another model's name make the whole reply a Fault.
No tensors. The text beside token ids is not read: ids say what was sampled.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from shoal_policy.rollouts import Answer
from shoal_wire.types import FinishReason

_FINISH = {"stop": FinishReason.STOP, "eos": FinishReason.STOP, "length": FinishReason.LENGTH}
_CHARACTERS_A_TOKEN = 4
"""Characters a token of English text has on average; used for servers that do not count."""
LEAST_CLAIM = -30.0
"""Nats. Nobody samples a token of probability 1e-13: a claim below this is absurd."""
MOST_CLAIM = 0.01
"""Nats. Above 0 by no more than half floats and other kernels round."""


class BadReplyError(Exception):
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
        raise BadReplyError("reply is not a completion") from None
    if not isinstance(text, str) or reason is None:
        raise BadReplyError("reply has no text, or no known end")
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise BadReplyError("reply is not valid Unicode")
    counted = _num_tokens(document, text)
    return Answer(ids=(), text=text, finish_reason=reason, logprobs=(), counted=counted)


def _num_tokens(document: dict[str, Any], text: str) -> int:
    usage = document.get("usage")
    counted = usage.get("completion_tokens") if isinstance(usage, dict) else None
    if isinstance(counted, int) and not isinstance(counted, bool) and 0 < counted < 1 << 24:
        return counted
    return max(1, math.ceil(len(text) / _CHARACTERS_A_TOKEN))


def usable_claims(claimed: Sequence[float], num_tokens: int) -> tuple[float, ...] | None:
    """Return a server's log-probabilities if they can be those of so many ids, else None.

    A single NaN, infinite or absurd number spoils the completion's whole claim.
    """
    # A NaN fails both comparisons.
    if len(claimed) != num_tokens or not all(LEAST_CLAIM <= c <= MOST_CLAIM for c in claimed):
        return None
    return tuple(claimed)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedReply:
    """The request that a reply is held against."""

    model: str
    """The server's name of the weights, their version in it."""
    prompt_ids: Sequence[int]
    num_completions: int
    max_tokens: int
    vocabulary: int
    eos_ids: frozenset[int]

    @property
    def max_bytes(self) -> int:
        """Most that an honest reply can have: tokens come as ids, as text and with numbers."""
        return (1 << 20) + 512 * self.num_completions * self.max_tokens + 16 * len(self.prompt_ids)


def read_token_answers(body: bytes, wanted: ExpectedReply) -> list[Answer]:
    """Return the answers of a reply, in the order of their numbers; raises Fault.

    Their text is left empty, and so are log-probabilities where what was said cannot be.
    """
    try:
        document = json.loads(body)
        model, choices = document["model"], document["choices"]
        found = {choice["index"]: _answer(choice, wanted) for choice in choices}
        prompts = [choice.get("prompt_token_ids") for choice in choices]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise BadReplyError("reply is not a completion in token ids") from None
    if model != wanted.model:
        raise BadReplyError("reply is of another model or another version of its weights")
    if any(prompt not in (None, list(wanted.prompt_ids)) for prompt in prompts):
        raise BadReplyError("reply answers another prompt")
    if len(found) != len(choices) or not _are_numbers(found, wanted.num_completions):
        raise BadReplyError("reply has answers that were not asked for")
    return [found[number] for number in sorted(found)]


def _are_numbers(found: dict[Any, Answer], limit: int) -> bool:
    return bool(found) and all(type(number) is int and 0 <= number < limit for number in found)


def _answer(choice: dict[str, Any], wanted: ExpectedReply) -> Answer:
    ids = choice["token_ids"]
    if not isinstance(ids, list) or not 0 < len(ids) <= wanted.max_tokens:
        raise BadReplyError("reply has an answer that is empty or too long")
    if not all(type(one) is int and 0 <= one < wanted.vocabulary for one in ids):
        raise BadReplyError("reply has tokens that are none")
    if any(one in wanted.eos_ids for one in ids[:-1]):
        raise BadReplyError("reply goes on after an end token")
    stopped = ids[-1] in wanted.eos_ids
    if choice["finish_reason"] != ("stop" if stopped else "length"):
        raise BadReplyError("reply has an answer whose end is not what it is said to be")
    return Answer(
        ids=tuple(ids),
        text="",
        logprobs=_logprobs(choice.get("logprobs"), len(ids)),
        finish_reason=FinishReason.STOP if stopped else FinishReason.LENGTH,
    )


def _logprobs(offered: Any, num_tokens: int) -> tuple[float, ...]:
    values = offered.get("token_logprobs") if isinstance(offered, dict) else None
    if not isinstance(values, list) or not all(type(one) in (int, float) for one in values):
        return ()
    try:
        return usable_claims(tuple(map(float, values)), num_tokens) or ()
    except OverflowError:  # an integer beyond any float
        return ()
