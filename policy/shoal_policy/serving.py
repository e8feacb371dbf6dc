"""Completions for other programs, with OpenAI's chat and text API.

    request (JSON) ─▶ ServeRequest ─▶ token ids ─▶ generate ─▶ reply (JSON)

The formats are those of OpenAI's `/v1/chat/completions` and `/v1/completions` (platform.openai.com,
API reference), as far as evaluation tools use them: several answers, sampling, `stop`, `seed`,
log-probabilities, and `echo` with those of the prompt. `return_token_ids` is vLLM's. Unsupported
options that would change the answer are rejected.
"""

from __future__ import annotations

import itertools
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from jinja2 import TemplateError

from shoal_policy.generation.local import generate
from shoal_policy.model.loading import Policy, PromptFormat
from shoal_policy.model.prompting import encode_prompt, encode_text
from shoal_policy.rollouts import Answer
from shoal_wire.types import FinishReason, SamplingParams

MAX_ITEMS: Final = 64
"""Maximum answers, prompts and stop strings per request: more would delay other callers."""
DEFAULT_TOKENS: Final = 256
"""Default answer length: a guess that suits a chat on a laptop."""
_REFUSED: Final = {
    "stream": "streaming is not supported: omit stream",
    "tools": "tools are not supported",
    "functions": "tools are not supported",
    "logit_bias": "logit_bias is not supported",
    "suffix": "suffix is not supported",
    "presence_penalty": "penalties are not supported",
    "frequency_penalty": "penalties are not supported",
}


class BadRequestError(ValueError):
    """An invalid request. The text is one line for its author."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeRequest:
    """One parsed request."""

    num_answers: int
    max_tokens: int | None
    """Maximum answer length in tokens; None for the default."""
    temperature: float
    top_p: float
    seed: int
    stops: tuple[str, ...]
    logprobs: bool
    echo: bool
    token_ids: bool
    """True to return token ids too (vLLM's option)."""


def chat_reply(policy: Policy, body: Mapping[str, Any]) -> dict[str, Any]:
    """Answer a request to `/v1/chat/completions`. Raises BadRequestError."""
    request = _parse_request(body)
    prompt = _chat_ids(policy, body.get("messages"))
    (samples,) = _answers(policy, [prompt], request)
    choices = [
        {
            "index": index,
            "message": {"role": "assistant", "content": text},
            "finish_reason": reason,
            "logprobs": _chat_logprobs(policy, sample) if request.logprobs else None,
        }
        for index, sample in enumerate(samples)
        for text, reason in [_truncate(sample, request.stops)]
    ]
    return _reply("chat.completion", "chatcmpl", policy, [prompt], [samples], choices)


def text_reply(policy: Policy, body: Mapping[str, Any]) -> dict[str, Any]:
    """Answer a request to `/v1/completions`. Raises BadRequestError."""
    request = _parse_request(body)
    prompts = [_text_ids(policy, one) for one in _prompts(body.get("prompt"))]
    made = _answers(policy, prompts, request)
    choices: list[dict[str, Any]] = []
    for prompt, samples in zip(prompts, made, strict=True):
        for sample in samples:
            text, reason = _truncate(sample, request.stops)
            echoed = _decoded(policy, prompt) if request.echo else ""
            choice = {
                "index": len(choices),
                "text": echoed + text,
                "finish_reason": reason,
                "logprobs": _text_logprobs(policy, prompt, sample, request),
            }
            if request.token_ids:
                choice |= {"token_ids": list(sample.ids), "prompt_token_ids": list(prompt)}
            choices.append(choice)
    return _reply("text_completion", "cmpl", policy, prompts, made, choices)


def models_reply(policy: Policy) -> dict[str, Any]:
    """Answer a request to `/v1/models`."""
    return {
        "object": "list",
        "data": [{"id": policy.name, "object": "model", "created": 0, "owned_by": "shoal"}],
    }


def _parse_request(body: Mapping[str, Any]) -> ServeRequest:
    for name, why in _REFUSED.items():
        if body.get(name):
            raise BadRequestError(why)
    stops = body.get("stop") or []
    stops = [stops] if isinstance(stops, str) else stops
    if not isinstance(stops, list) or not all(isinstance(one, str) and one for one in stops):
        raise BadRequestError("stop must be a text or a list of texts")
    if len(stops) > MAX_ITEMS:
        raise BadRequestError(f"stop may have at most {MAX_ITEMS} texts")
    return ServeRequest(
        num_answers=int(_number(body, "n", 1, 1, MAX_ITEMS, whole=True)),
        max_tokens=_max_tokens(body),
        temperature=_number(body, "temperature", 1.0, 0.0, 100.0),
        top_p=_number(body, "top_p", 1.0, 1e-6, 1.0),
        seed=int(_number(body, "seed", secrets.randbits(62), 0, 2**63 - 1, whole=True)),
        stops=tuple(stops),
        logprobs=bool(body.get("logprobs")) or body.get("logprobs") == 0,
        echo=body.get("echo") is True,
        token_ids=body.get("return_token_ids") is True,
    )


def _max_tokens(body: Mapping[str, Any]) -> int | None:
    for name in ("max_completion_tokens", "max_tokens"):
        if body.get(name) is not None:
            return int(_number(body, name, 0, 0, 1 << 20, whole=True))
    return None


def _number(
    body: Mapping[str, Any],
    name: str,
    default: float,
    least: float,
    most: float,
    *,
    whole: bool = False,
) -> float:
    value = body.get(name)
    if value is None:
        return default
    right = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
    if not right or not least <= value <= most:
        kind = "a whole number" if whole else "a number"
        raise BadRequestError(f"{name} must be {kind} from {least:g} to {most:g}")
    return float(value) if not whole else value


def _chat_ids(policy: Policy, messages: object) -> list[int]:
    """Return a conversation's token ids: by the chat template, or of its only question."""
    if not isinstance(messages, list) or not messages:
        raise BadRequestError("messages must be a list of at least one message")
    turns = [_turn(one) for one in messages]
    if policy.prompt_format is PromptFormat.CHAT:
        try:
            return list(
                policy.tokenizer.apply_chat_template(
                    turns,
                    add_generation_prompt=True,
                    enable_thinking=False,
                    tokenize=True,
                    return_dict=False,
                )
            )
        except TemplateError as error:
            raise BadRequestError(f"the model's chat template rejects this: {error}") from None
    *before, last = turns
    if last["role"] != "user" or any(turn["role"] != "system" for turn in before):
        raise BadRequestError("this model has no chat template: send one user message")
    system = "\n\n".join(turn["content"] for turn in before)
    return encode_prompt(policy, last["content"], system=system)


def _turn(message: object) -> dict[str, str]:
    role = message.get("role") if isinstance(message, dict) else None
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, list):  # parts of text, as some clients send them
        parts = [one.get("text") if isinstance(one, dict) else None for one in content]
        content = "".join(map(str, parts)) if None not in parts else None
    if not isinstance(role, str) or not isinstance(content, str):
        raise BadRequestError("each message needs a role and a content of text")
    return {"role": role, "content": content}


def _prompts(prompt: object) -> list[str | list[int]]:
    """Return the prompts of a request: one text, one list of token ids, or a list of either."""
    one_alone = isinstance(prompt, str) or (
        isinstance(prompt, list) and prompt != [] and all(type(each) is int for each in prompt)
    )
    prompts: Any = [prompt] if one_alone else prompt
    if not isinstance(prompts, list) or not 0 < len(prompts) <= MAX_ITEMS:
        raise BadRequestError(f"prompt must be a text, token ids, or a list of 1 to {MAX_ITEMS}")
    for each in prompts:
        ids = isinstance(each, list) and all(type(token) is int for token in each)
        if not (isinstance(each, str) or ids):
            raise BadRequestError("each prompt must be a text or a list of token ids")
    return prompts


def _text_ids(policy: Policy, prompt: str | list[int]) -> list[int]:
    ids = encode_text(policy, prompt) if isinstance(prompt, str) else list(prompt)
    if not ids:
        raise BadRequestError("a prompt must have at least one token")
    if not all(0 <= token < len(policy.tokenizer) for token in ids):
        raise BadRequestError("a prompt has a token id outside the vocabulary")
    return ids


def _answers(
    policy: Policy, prompts: Sequence[list[int]], request: ServeRequest
) -> list[list[Answer]]:
    room = min(policy.max_positions - len(prompt) for prompt in prompts)
    max_tokens = DEFAULT_TOKENS if request.max_tokens is None else request.max_tokens
    if room < (0 if max_tokens == 0 else 1):
        raise BadRequestError(
            f"a prompt of {policy.max_positions - room} tokens leaves no positions for an answer: "
            f"the model has {policy.max_positions} positions"
        )
    if max_tokens == 0:
        return [[_EMPTY] * request.num_answers for _ in prompts]
    generator = torch.Generator()
    generator.manual_seed(request.seed)
    return generate(
        policy,
        prompts,
        num_completions=request.num_answers,
        params=SamplingParams(
            temperature=request.temperature,
            top_p=request.top_p,
            top_k=0,
            max_new_tokens=min(max_tokens, room),
        ),
        generator=generator,
    )


_EMPTY: Final = Answer(ids=(), text="", finish_reason=FinishReason.LENGTH, logprobs=())
"""The answer to a request for no tokens; tools send these for the prompt's log-probabilities."""


def _truncate(sample: Answer, stops: Sequence[str]) -> tuple[str, str]:
    """Return an answer's text up to the first stop string, and its finish reason."""
    places = [place for stop in stops if (place := sample.text.find(stop)) >= 0]
    if places:
        return sample.text[: min(places)], "stop"
    return sample.text, "stop" if sample.finish_reason is FinishReason.STOP else "length"


def _decoded(policy: Policy, ids: Sequence[int]) -> str:
    decode = policy.tokenizer.decode
    return str(decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False))


def _chat_logprobs(policy: Policy, sample: Answer) -> dict[str, Any]:
    tokens = [_decoded(policy, [token]) for token in sample.ids]
    return {
        "content": [
            {
                "token": token,
                "logprob": logprob,
                "bytes": list(token.encode()),
                "top_logprobs": [],
            }
            for token, logprob in zip(tokens, sample.logprobs, strict=True)
        ]
    }


def _text_logprobs(
    policy: Policy, prompt: list[int], sample: Answer, request: ServeRequest
) -> dict[str, Any] | None:
    """Return the log-probability of each token, and the likeliest token where it is known."""
    if not request.logprobs:
        return None
    ids, logprobs = list(sample.ids), list[float | None](sample.logprobs)
    tops: list[dict[str, float] | None] = [None] * len(ids)
    if request.echo:
        known, likeliest = _of_prompt(policy, prompt)
        ids, logprobs, tops = [*prompt, *ids], [None, *known, *logprobs], [None, *likeliest, *tops]
    tokens = [_decoded(policy, [token]) for token in ids]
    starts = itertools.accumulate((len(token) for token in tokens), initial=0)
    return {
        "tokens": tokens,
        "token_logprobs": logprobs,
        "top_logprobs": tops,
        "text_offset": list(starts)[:-1],
    }


def _of_prompt(policy: Policy, prompt: list[int]) -> tuple[list[float], list[dict[str, float]]]:
    """Return the log-probability of each prompt token but the first, and the likeliest ones."""
    ids_1T = torch.tensor([prompt], device=policy.device)
    with torch.inference_mode(), policy.gather(), policy.autocast():
        logits_TV = policy.model(input_ids=ids_1T, use_cache=False).logits[0, :-1].float()
    logprobs_TV = logits_TV.log_softmax(-1)
    own = logprobs_TV.gather(-1, ids_1T[0, 1:, None])[:, 0].tolist()
    values, tokens = logprobs_TV.max(-1)
    likeliest = [
        {_decoded(policy, [token]): value}
        for token, value in zip(tokens.tolist(), values.tolist(), strict=True)
    ]
    return own, likeliest


def _reply(
    kind: str,
    prefix: str,
    policy: Policy,
    prompts: Sequence[Sequence[int]],
    made: Sequence[Sequence[Answer]],
    choices: list[dict[str, Any]],
) -> dict[str, Any]:
    num_prompt = sum(map(len, prompts))
    answered = sum(len(sample.ids) for samples in made for sample in samples)
    return {
        "id": f"{prefix}-{secrets.token_hex(12)}",
        "object": kind,
        "created": int(time.time()),
        "model": policy.name,
        "choices": choices,
        "usage": {
            "prompt_tokens": num_prompt,
            "completion_tokens": answered,
            "total_tokens": num_prompt + answered,
        },
    }
