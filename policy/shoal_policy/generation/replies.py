"""Parses a server's reply, as text or token ids: bytes → Answer, or BadReplyError.

Nothing in it is trusted. Ids outside the vocabulary, an end token in the middle, more or longer
answers than requested, another prompt or another model's name reject the whole reply. No tensors.
Text next to token ids is ignored: ids define what was sampled.
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
"""Mean characters per token of English text; used for servers that report no count."""
MIN_SERVER_LOGPROB = -30.0
"""Nats. No sampler picks a token of probability 1e-13: a value below this is implausible."""
MAX_SERVER_LOGPROB = 0.01
"""Nats. Above 0 only as far as half precision and other kernels round."""


class BadReplyError(Exception):
    """An invalid reply. One line."""

    def __init__(self, text: str, retry_after: float | None = None) -> None:
        """`retry_after` is the number of seconds that the server asks to wait."""
        super().__init__(text)
        self.retry_after = retry_after


def read_answer(body: bytes, *, chat: bool) -> Answer:
    """Return the first choice of a reply; raise BadReplyError without text or a known end.

    Its ids are empty: they belong to the server's tokenizer.
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


def usable_logprobs(logprobs: Sequence[float], num_tokens: int) -> tuple[float, ...] | None:
    """Return a server's log-probabilities if they are plausible for this many ids, else None.

    A single NaN, infinite or implausible number rejects all values of the completion.
    """
    # A NaN fails both comparisons.
    if len(logprobs) != num_tokens or not all(
        MIN_SERVER_LOGPROB <= c <= MAX_SERVER_LOGPROB for c in logprobs
    ):
        return None
    return tuple(logprobs)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedReply:
    """The request's properties that a reply must match."""

    model: str
    """The server's name of the weights, including their version."""
    prompt_ids: Sequence[int]
    num_completions: int
    max_tokens: int
    vocabulary: int
    eos_ids: frozenset[int]

    @property
    def max_bytes(self) -> int:
        """Return the maximum size of an honest reply: ids, text and numbers of all tokens."""
        return (1 << 20) + 512 * self.num_completions * self.max_tokens + 16 * len(self.prompt_ids)


def read_token_answers(body: bytes, expected: ExpectedReply) -> list[Answer]:
    """Return the answers of a reply, by index; raises BadReplyError.

    Their text is empty, and so are log-probabilities if the reported ones are implausible.
    """
    try:
        document = json.loads(body)
        model, choices = document["model"], document["choices"]
        found = {choice["index"]: _answer(choice, expected) for choice in choices}
        prompts = [choice.get("prompt_token_ids") for choice in choices]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise BadReplyError("reply is not a completion in token ids") from None
    if model != expected.model:
        raise BadReplyError("reply is of another model or another version of its weights")
    if any(prompt not in (None, list(expected.prompt_ids)) for prompt in prompts):
        raise BadReplyError("reply answers another prompt")
    if len(found) != len(choices) or not _are_valid_indices(found, expected.num_completions):
        raise BadReplyError("reply has answers that were not requested")
    return [found[number] for number in sorted(found)]


def _are_valid_indices(found: dict[Any, Answer], limit: int) -> bool:
    return bool(found) and all(type(number) is int and 0 <= number < limit for number in found)


def _answer(choice: dict[str, Any], expected: ExpectedReply) -> Answer:
    ids = choice["token_ids"]
    if not isinstance(ids, list) or not 0 < len(ids) <= expected.max_tokens:
        raise BadReplyError("reply has an answer that is empty or too long")
    if not all(type(one) is int and 0 <= one < expected.vocabulary for one in ids):
        raise BadReplyError("reply has invalid token ids")
    if any(one in expected.eos_ids for one in ids[:-1]):
        raise BadReplyError("reply continues after an end token")
    stopped = ids[-1] in expected.eos_ids
    if choice["finish_reason"] != ("stop" if stopped else "length"):
        raise BadReplyError("reply has an answer with a wrong finish_reason")
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
        return usable_logprobs(tuple(map(float, values)), num_tokens) or ()
    except OverflowError:  # an integer beyond any float
        return ()
