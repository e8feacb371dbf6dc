"""Parses requests to `/v1/chat/completions` and `/v1/completions`. Pure.

Every key of a request is honoured or refused, because a setting that silently does nothing gives
answers that mean something else. The exceptions are in `_NO_EFFECT`: they do not change answers.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

MAX_ITEMS: Final = 64
"""Maximum answers, prompts and stop strings per request: more would delay other callers."""
MAX_TOP_LOGPROBS: Final = 20
"""OpenAI's maximum."""
DEFAULT_TOKENS: Final = 256
"""Default answer length: a guess that suits a chat on a laptop."""

Kind = Literal["chat", "text"]

_NO_EFFECT: Final = frozenset(
    {
        *("metadata", "prompt_cache_key", "safety_identifier", "service_tier", "store", "user"),
    }
)
"""Keys that change accounting or caching, never an answer."""
_NEUTRAL: Final[Mapping[str, tuple[Any, ...]]] = {
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "repetition_penalty": (1,),
    "length_penalty": (1,),
    "min_p": (0,),
    "min_tokens": (0,),
    "logit_bias": ({},),
    "suffix": ("",),
    "functions": ([],),
    "best_of": (1,),
    "use_beam_search": (False,),
    "ignore_eos": (False,),
    "skip_special_tokens": (True,),
    "add_generation_prompt": (True,),
    "modalities": (["text"],),
    "parallel_tool_calls": (True,),
    "response_format": ({"type": "text"},),
    "reasoning_effort": ("none", "minimal"),
}
"""Keys that are not supported, with the values that ask for nothing."""
_COMMON: Final = frozenset(
    {
        *("model", "n", "max_tokens", "temperature", "top_p", "top_k", "seed", "stop", "logprobs"),
        *("stream", "stream_options"),
    }
)
_KEYS: Final[Mapping[Kind, frozenset[str]]] = {
    "chat": _COMMON | {"messages", "max_completion_tokens", "top_logprobs", "tools", "tool_choice"},
    "text": _COMMON | {"prompt", "echo", "return_token_ids"},
}
"""Keys that are honoured."""


class BadRequestError(ValueError):
    """An invalid request. The text is one line for its author."""

    def __init__(self, message: str, *, param: str | None = None, status: int = 400) -> None:
        super().__init__(message)
        self.param = param
        """The key that is wrong, as in OpenAI's errors."""
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeRequest:
    """The options of one request."""

    num_answers: int
    max_tokens: int
    """Maximum answer length in tokens."""
    temperature: float
    top_p: float
    top_k: int
    """0 means no limit."""
    seed: int
    stops: tuple[str, ...]
    logprobs: int | None
    """Number of likeliest tokens to report for each position; None for no log-probabilities."""
    echo: bool
    token_ids: bool
    """True to return token ids too (vLLM's option)."""
    stream: bool
    include_usage: bool
    """True to end a stream with the usage."""


def parse_request(kind: Kind, body: Mapping[str, Any], *, model: str) -> ServeRequest:
    """Return the options of a request for `model`.

    Raises:
        BadRequestError: a key is unknown, unsupported or malformed, or names another model.
    """
    _check_keys(kind, body)
    _check_model(body.get("model"), model)
    stream = _flag(body, "stream")
    request = ServeRequest(
        num_answers=_whole(body, "n", 1, 1, MAX_ITEMS),
        max_tokens=_max_tokens(body),
        temperature=_number(body, "temperature", 1.0, 0.0, 100.0),
        top_p=_number(body, "top_p", 1.0, 1e-6, 1.0),
        top_k=max(0, _whole(body, "top_k", 0, -1, 1 << 20)),
        seed=_whole(body, "seed", secrets.randbits(62), 0, 2**63 - 1),
        stops=_stops(body.get("stop")),
        logprobs=_logprobs(kind, body),
        echo=_flag(body, "echo"),
        token_ids=_flag(body, "return_token_ids"),
        stream=stream,
        include_usage=_include_usage(body, stream=stream),
    )
    if stream and request.logprobs is not None:
        raise BadRequestError("logprobs cannot be streamed: omit stream", param="logprobs")
    if stream and request.token_ids:
        raise BadRequestError("token ids cannot be streamed: omit stream", param="stream")
    return request


def _check_keys(kind: Kind, body: Mapping[str, Any]) -> None:
    for key, value in body.items():
        if value is None or key in _KEYS[kind] or key in _NO_EFFECT:
            continue
        if key not in _NEUTRAL:
            raise BadRequestError(f"unknown parameter {key[:64]!r}: omit it", param=key[:64])
        if value not in _NEUTRAL[key]:
            raise BadRequestError(f"{key} is not supported: omit it", param=key)


def _check_model(asked: object, model: str) -> None:
    if asked is None or asked == model:
        return
    if not isinstance(asked, str):
        raise BadRequestError("model must be a text", param="model")
    raise BadRequestError(
        f"there is no model {asked[:200]!r}: this server has {model!r}", param="model", status=404
    )


def _flag(body: Mapping[str, Any], name: str) -> bool:
    value = body.get(name)
    if value is None or isinstance(value, bool):
        return bool(value)
    raise BadRequestError(f"{name} must be true or false", param=name)


def _include_usage(body: Mapping[str, Any], *, stream: bool) -> bool:
    options = body.get("stream_options")
    if options is None:
        return False
    if not stream or not isinstance(options, dict) or set(options) - {"include_usage"}:
        raise BadRequestError(
            'stream_options may be {"include_usage": true}, with stream', param="stream_options"
        )
    return _flag(options, "include_usage")


def _stops(given: object) -> tuple[str, ...]:
    stops = [given] if isinstance(given, str) else given or []
    if not isinstance(stops, list) or not all(isinstance(one, str) and one for one in stops):
        raise BadRequestError("stop must be a text or a list of texts", param="stop")
    if len(stops) > MAX_ITEMS:
        raise BadRequestError(f"stop may have at most {MAX_ITEMS} texts", param="stop")
    return tuple(stops)


def _logprobs(kind: Kind, body: Mapping[str, Any]) -> int | None:
    if kind == "text":
        given = body.get("logprobs")
        if given is None or given is False:
            return None
        # vLLM's clients send true for one.
        return 1 if given is True else _whole(body, "logprobs", 0, 0, MAX_TOP_LOGPROBS)
    top = _whole(body, "top_logprobs", 0, 0, MAX_TOP_LOGPROBS)
    if _flag(body, "logprobs"):
        return top
    if top:
        raise BadRequestError("top_logprobs needs logprobs: true", param="top_logprobs")
    return None


def _max_tokens(body: Mapping[str, Any]) -> int:
    for name in ("max_completion_tokens", "max_tokens"):
        if body.get(name) is not None:
            return _whole(body, name, 0, 0, 1 << 20)
    return DEFAULT_TOKENS


def _whole(body: Mapping[str, Any], name: str, default: int, least: int, most: int) -> int:
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise BadRequestError(f"{name} must be a whole number from {least} to {most}", param=name)
    return value


def _number(body: Mapping[str, Any], name: str, default: float, least: float, most: float) -> float:
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, int | float) or isinstance(value, bool) or not least <= value <= most:
        raise BadRequestError(f"{name} must be a number from {least:g} to {most:g}", param=name)
    return float(value)


def parse_prompts(prompt: object) -> Sequence[str | list[int]]:
    """Return the prompts of a request: one text, one list of token ids, or a list of either.

    Raises:
        BadRequestError: it is none of these.
    """
    one_alone = isinstance(prompt, str) or (
        isinstance(prompt, list) and prompt != [] and all(type(each) is int for each in prompt)
    )
    prompts: Any = [prompt] if one_alone else prompt
    if not isinstance(prompts, list) or not 0 < len(prompts) <= MAX_ITEMS:
        raise BadRequestError(
            f"prompt must be a text, token ids, or a list of 1 to {MAX_ITEMS}", param="prompt"
        )
    for each in prompts:
        ids = isinstance(each, list) and all(type(token) is int for token in each)
        if not (isinstance(each, str) or ids):
            raise BadRequestError(
                "each prompt must be a text or a list of token ids", param="prompt"
            )
    return prompts
