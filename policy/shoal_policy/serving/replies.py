"""Replies to requests in OpenAI's chat and text API, whole or as a stream of chunks.

    request (JSON) ─▶ ServeRequest, token ids ─▶ Batcher ─▶ reply (JSON), or chunks as text comes

The formats are those of OpenAI's `/v1/chat/completions` and `/v1/completions` (platform.openai.com,
API reference); `return_token_ids` and `top_k` are vLLM's.
"""

from __future__ import annotations

import itertools
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from shoal_policy.model.loading import Policy
from shoal_policy.model.prompting import encode_text
from shoal_policy.serving.batcher import Batcher, Completion
from shoal_policy.serving.conversation import (
    TOOL_CALL,
    conversation_ids,
    offered_tools,
    split_calls,
)
from shoal_policy.serving.requests import (
    BadRequestError,
    Kind,
    ServeRequest,
    parse_prompts,
    parse_request,
)

_STARTED = int(time.time())

SendChunk = Callable[[dict[str, Any]], None]
"""Sends one chunk of a stream. Raises `ConnectionError` or `TimeoutError` if the client is gone."""


def models_reply(policy: Policy) -> dict[str, Any]:
    """Answer a request to `/v1/models`."""
    return {"object": "list", "data": [model_reply(policy)]}


def model_reply(policy: Policy) -> dict[str, Any]:
    """Answer a request to `/v1/models/ID`."""
    return {"id": policy.name, "object": "model", "created": _STARTED, "owned_by": "shoal"}


class ServedRequest:
    """One request that has been checked, and can be answered whole or as a stream."""

    def __init__(self, kind: Kind, batcher: Batcher, body: Mapping[str, Any]) -> None:
        """Parse a request. Raises BadRequestError."""
        self._kind, self._batcher = kind, batcher
        policy = batcher.policy
        self.options: ServeRequest = parse_request(kind, body, model=policy.name)
        self._has_tools = False
        if kind == "chat":
            tools = offered_tools(policy, body)
            self._has_tools = bool(tools)
            self._prompts = [conversation_ids(policy, body.get("messages"), tools)]
        else:
            self._prompts = [_text_ids(policy, one) for one in parse_prompts(body.get("prompt"))]
        _check_room(policy, self._prompts, self.options.max_tokens)
        # Memory is reserved for every token that may come.
        room = policy.max_positions - min(map(len, self._prompts))
        self.options = replace(self.options, max_tokens=min(self.options.max_tokens, room))
        prefix = "chatcmpl" if kind == "chat" else "cmpl"
        self._head: dict[str, Any] = {
            "id": f"{prefix}-{secrets.token_hex(12)}",
            "created": int(time.time()),
            "model": policy.name,
        }

    def reply(self) -> dict[str, Any]:
        """Return the whole reply."""
        made = self._batcher.sample(self._prompts, self.options)
        choice = self._chat_choice if self._kind == "chat" else self._text_choice
        return {
            **self._head,
            "object": "chat.completion" if self._kind == "chat" else "text_completion",
            "choices": [choice(index, one) for index, one in enumerate(made)],
            "usage": self._usage(made),
        }

    def stream(self, send: SendChunk) -> None:
        """Send the reply in chunks as its text comes.

        Raises what `send` raises.
        """
        deltas = _Deltas(self._send_choice(send), self.options.stops, has_tools=self._has_tools)
        count = len(self._prompts) * self.options.num_answers
        for index in range(count):
            if self._kind == "chat":
                self._send_choice(send)(index, {"role": "assistant", "content": ""}, None)
            elif self.options.echo:
                self._send_choice(send)(index, {"content": self._echoed(index)}, None)
        made = self._batcher.sample(self._prompts, self.options, deltas.on_text)
        if self.options.include_usage:
            send({**self._head, "object": self._chunk, "choices": [], "usage": self._usage(made)})

    @property
    def _chunk(self) -> str:
        return "chat.completion.chunk" if self._kind == "chat" else "text_completion"

    def _send_choice(self, send: SendChunk) -> _SendDelta:
        def send_choice(index: int, delta: dict[str, Any], finish_reason: str | None) -> None:
            body: dict[str, Any] = (
                {"delta": delta} if self._kind == "chat" else {"text": delta.get("content", "")}
            )
            choice = {"index": index, **body, "logprobs": None, "finish_reason": finish_reason}
            send({**self._head, "object": self._chunk, "choices": [choice]})

        return send_choice

    def _prompt_of(self, index: int) -> list[int]:
        return self._prompts[index // self.options.num_answers]

    def _echoed(self, index: int) -> str:
        return _decoded(self._batcher.policy, self._prompt_of(index))

    def _chat_choice(self, index: int, made: Completion) -> dict[str, Any]:
        text, calls = split_calls(made.text) if self._has_tools else (made.text, [])
        message: dict[str, Any] = {"role": "assistant", "content": text or None if calls else text}
        if calls:
            message["tool_calls"] = calls
        logprobs = None
        if self.options.logprobs is not None:
            logprobs = {"content": self._token_logprobs(index, made, self.options.logprobs)}
        return {
            "index": index,
            "message": message,
            "finish_reason": "tool_calls" if calls else made.finish_reason,
            "logprobs": logprobs,
        }

    def _token_logprobs(self, index: int, made: Completion, num_top: int) -> list[dict[str, Any]]:
        policy, prompt = self._batcher.policy, self._prompt_of(index)
        with self._batcher.one_at_a_time:
            own, tops = _logprobs_after(policy, prompt, made.ids, num_top)

        def entry(token: int, logprob: float) -> dict[str, Any]:
            text = _decoded(policy, [token])
            return {"token": text, "logprob": logprob, "bytes": list(text.encode())}

        return [
            {**entry(token, logprob), "top_logprobs": [entry(*each) for each in top]}
            for token, logprob, top in zip(made.ids, own, tops, strict=True)
        ]

    def _text_choice(self, index: int, made: Completion) -> dict[str, Any]:
        prompt = self._prompt_of(index)
        choice = {
            "index": index,
            "text": (self._echoed(index) if self.options.echo else "") + made.text,
            "finish_reason": made.finish_reason,
            "logprobs": self._text_logprobs(prompt, made),
        }
        if self.options.token_ids:
            choice |= {"token_ids": list(made.ids), "prompt_token_ids": list(prompt)}
        return choice

    def _text_logprobs(self, prompt: list[int], made: Completion) -> dict[str, Any] | None:
        if self.options.logprobs is None:
            return None
        policy, num_top = self._batcher.policy, max(1, self.options.logprobs)
        ids, first = list(made.ids), prompt
        if self.options.echo:
            ids, first = [*prompt[1:], *ids], prompt[:1]
        with self._batcher.one_at_a_time:
            own, likeliest = _logprobs_after(policy, first, ids, num_top)
        logprobs: list[float | None] = list(own)
        tops: list[dict[str, float] | None] = [
            {_decoded(policy, [token]): value for token, value in top} for top in likeliest
        ]
        if self.options.echo:
            ids, logprobs, tops = [*first, *ids], [None, *logprobs], [None, *tops]
        tokens = [_decoded(policy, [token]) for token in ids]
        starts = itertools.accumulate((len(token) for token in tokens), initial=0)
        return {
            "tokens": tokens,
            "token_logprobs": logprobs,
            "top_logprobs": tops,
            "text_offset": list(starts)[:-1],
        }

    def _usage(self, made: Sequence[Completion]) -> dict[str, int]:
        num_prompt = sum(map(len, self._prompts))
        answered = sum(len(one.ids) for one in made)
        return {
            "prompt_tokens": num_prompt,
            "completion_tokens": answered,
            "total_tokens": num_prompt + answered,
        }


_SendDelta = Callable[[int, dict[str, Any], str | None], None]


class _Deltas:
    """Cuts growing texts into deltas, and holds back what a later token may still change."""

    def __init__(self, send: _SendDelta, stops: Sequence[str], *, has_tools: bool) -> None:
        self._send = send
        self._stops = stops
        self._has_tools = has_tools
        self._num_sent: dict[int, int] = {}
        """Characters of each completion that have been sent."""

    def on_text(self, index: int, made: Completion) -> None:
        """Send what is new and settled of a completion."""
        is_ended = made.finish_reason is not None
        text, calls = made.text, list[dict[str, Any]]()
        if self._has_tools and is_ended:
            text, calls = split_calls(text)
        settled = text if is_ended else text[: self._settled(text)]
        sent = self._num_sent.get(index, 0)
        if len(settled) > sent:
            self._send(index, {"content": settled[sent:]}, None)
            self._num_sent[index] = len(settled)
        if calls:
            numbered = [{"index": number, **call} for number, call in enumerate(calls)]
            self._send(index, {"tool_calls": numbered}, None)
        if is_ended:
            self._send(index, {}, "tool_calls" if calls else made.finish_reason)

    def _settled(self, text: str) -> int:
        """Return how many characters no later token changes."""
        # A character of several bytes may be incomplete.
        end = len(text.rstrip("\N{REPLACEMENT CHARACTER}"))
        marks = [*self._stops, TOOL_CALL] if self._has_tools else self._stops
        for mark in marks:
            if mark is TOOL_CALL and (place := text.find(mark)) >= 0:
                end = min(end, len(text[:place].rstrip()))
                continue
            for size in range(min(len(mark) - 1, end), 0, -1):
                if text[:end].endswith(mark[:size]):
                    end -= size
                    break
        # Whitespace before a tool call is not part of the answer.
        return len(text[:end].rstrip()) if self._has_tools else end


def _text_ids(policy: Policy, prompt: str | list[int]) -> list[int]:
    ids = encode_text(policy, prompt) if isinstance(prompt, str) else list(prompt)
    if not ids:
        raise BadRequestError("a prompt must have at least one token", param="prompt")
    if not all(0 <= token < len(policy.tokenizer) for token in ids):
        raise BadRequestError("a prompt has a token id outside the vocabulary", param="prompt")
    return ids


def _check_room(policy: Policy, prompts: Sequence[Sequence[int]], max_tokens: int) -> None:
    longest = max(map(len, prompts))
    if longest + min(1, max_tokens) > policy.max_positions:
        raise BadRequestError(
            f"a prompt of {longest} tokens leaves no positions for an answer: "
            f"the model has {policy.max_positions} positions"
        )


def _decoded(policy: Policy, ids: Sequence[int]) -> str:
    decode = policy.tokenizer.decode
    return str(decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False))


def _logprobs_after(
    policy: Policy, before: Sequence[int], ids: Sequence[int], num_top: int
) -> tuple[list[float], list[list[tuple[int, float]]]]:
    """Return the log-probability of each of `ids` after `before`, and the likeliest tokens there.

    They are the model's own, before temperature, top-k and top-p.
    """
    if not ids:
        return [], []
    ids_1T = torch.tensor([[*before, *ids]], device=policy.device)
    with torch.inference_mode(), policy.gather(), policy.autocast():
        logits_1TV = policy.model(input_ids=ids_1T, use_cache=False).logits
    logprobs_TV = logits_1TV[0, len(before) - 1 : -1].float().log_softmax(-1)
    own = logprobs_TV.gather(-1, ids_1T[0, len(before) :, None])[:, 0].tolist()
    if not num_top:
        return own, [[] for _ in ids]
    values, tokens = logprobs_TV.topk(min(num_top, logprobs_TV.shape[-1]), dim=-1)
    rows = zip(tokens.tolist(), values.tolist(), strict=True)
    return own, [list(zip(*row, strict=True)) for row in rows]
