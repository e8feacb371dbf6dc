"""Parses a server's reply, as text or token ids: bytes → Answer, or BadReplyError.

Nothing in it is trusted. Ids outside the vocabulary, an end token in the middle, more or longer
answers than requested, another prompt or another model's name reject the whole reply. No tensors.
Text next to token ids is ignored: ids define what was sampled.
"""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from shoal_policy.rollouts import Answer
from shoal_wire.types import FinishReason

log = logging.getLogger(__name__)

_STOPPED: Final = frozenset(
    {
        *("stop", "eos", "eos_token", "stop_sequence", "end_turn"),
        # The model ended its turn, with a call of a tool that it was not offered.
        *("tool_calls", "function_call"),
    }
)
"""Values of `finish_reason` with which a model ended its answer."""
_CUT: Final = frozenset({"length", "max_tokens", "content_filter"})
_FAILED: Final = frozenset({"error", "abort", "insufficient_system_resource"})
"""Values with which a server gave up: these are no answers of the model."""
_FILTERED = re.compile("content_?(filter|policy|management)|moderation", re.IGNORECASE)
"""Codes of errors that stand for an answer which a filter withheld."""
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
    """Return the first choice of a reply as an answer.

    All that a model did is an answer: cut, empty, filtered, refused, or a call of a tool. If only
    whole texts counted, a server's reward would be a mean over the replies that it completed.

    Its ids are empty: they belong to the server's tokenizer. Raises BadReplyError if the server
    gave no completion.
    """
    document = _read_object(body)
    if document.get("error"):
        if (filtered := read_filtered(body)) is not None:
            return filtered
        raise BadReplyError("reply is an error")
    choices = document.get("choices", "")
    # Without a choice the model has answered nothing.
    choice = choices[0] if choices and isinstance(choices, list) else {}
    if not isinstance(choices, list | None) or not isinstance(choice, dict):
        raise BadReplyError("reply is not a completion")
    text = _text_of(choice, chat=chat)
    return _served(text, _finish_reason(choice.get("finish_reason")), _num_tokens(document, text))


def read_filtered(body: bytes) -> Answer | None:
    """Return the empty answer that an error stands for if a filter withheld it, else None.

    Azure and others reply so with status 400, some with 200.
    """
    try:
        error = _read_object(body).get("error")
    except BadReplyError:
        return None
    codes = [error.get("code"), error.get("type")] if isinstance(error, dict) else []
    if not any(isinstance(code, str) and _FILTERED.search(code) for code in codes):
        return None
    return _served("", FinishReason.LENGTH, 1)


def _read_object(body: bytes) -> dict[str, Any]:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        raise BadReplyError("reply is not JSON") from None
    if not isinstance(document, dict):
        raise BadReplyError("reply is not a completion")
    return document


def _text_of(choice: dict[str, Any], *, chat: bool) -> str:
    """Return the text of a choice, empty without any; raises BadReplyError."""
    found: Any = choice.get("text")
    if chat:
        message = choice.get("message") or {}
        if not isinstance(message, dict):
            raise BadReplyError("reply is not a completion")
        found = message.get("content")
        if found is None:
            found = message.get("refusal")
    if isinstance(found, list):  # parts of several kinds, such as thinking and text
        parts = [part.get("text") for part in found if isinstance(part, dict)]
        found = "".join(part for part in parts if isinstance(part, str))
    if not isinstance(found, str | None):
        raise BadReplyError("reply has a text that is none")
    # Halves of a character become one, or a replacement character.
    return (found or "").encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _finish_reason(reason: Any) -> FinishReason:
    """Return why an answer ended; one with an unknown end counts as cut."""
    if reason in _FAILED if isinstance(reason, str) else reason is not None:
        raise BadReplyError(f"reply ended with finish_reason {str(reason)[:40]!r}")
    if reason not in _STOPPED | _CUT:
        _warn_unknown_end(None if reason is None else reason[:40])
    return FinishReason.STOP if reason in _STOPPED else FinishReason.LENGTH


@lru_cache(maxsize=16)
def _warn_unknown_end(reason: str | None) -> None:
    log.warning("the server's finish_reason %r is unknown: such answers count as cut", reason)


def _served(text: str, reason: FinishReason, counted: int) -> Answer:
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
    if len(found) < expected.num_completions:
        raise BadReplyError("reply has fewer answers than were requested")
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
