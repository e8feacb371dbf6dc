"""Requests by OpenAI's words: what is answered, what is refused, and nothing else ever happens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal_policy.model.loading import Policy, load_policy
from shoal_policy.model.prompting import encode_text
from shoal_policy.serving.batcher import Batcher
from shoal_policy.serving.replies import ServedRequest
from shoal_policy.serving.requests import BadRequestError

ASKED: Mapping[str, Any] = {"messages": [{"role": "user", "content": "2 + 3"}], "max_tokens": 4}

TOOL: Mapping[str, Any] = {"type": "function", "function": {"name": "add", "parameters": {}}}

STRICT = {"type": "function", "function": {"name": "add", "strict": True}}

TEXTS = st.text(max_size=12)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | TEXTS
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3)
)
KEYS = (
    *("messages", "prompt", "n", "max_tokens", "max_completion_tokens", "temperature", "top_p"),
    *("seed", "stop", "logprobs", "echo", "return_token_ids", "stream", "tools", "tool_choice"),
    *("model", "top_k", "top_logprobs", "stream_options", "response_format", "min_p", "user"),
)
MESSAGES = st.lists(
    st.fixed_dictionaries({"role": st.sampled_from(["user", "system", "assistant"]) | VALUES}
                          | {"content": TEXTS | VALUES}),
    max_size=3,
)  # fmt: skip
BODIES = st.fixed_dictionaries(
    {"max_tokens": st.integers(0, 4) | VALUES},
    optional={
        key: VALUES if key not in ("messages", "prompt") else (MESSAGES | TEXTS | VALUES)
        for key in KEYS
        if key != "max_tokens"
    },
)


def chat_reply(policy: Policy, body: Any) -> dict[str, Any]:
    return ServedRequest("chat", Batcher(policy), body).reply()


def text_reply(policy: Policy, body: Any) -> dict[str, Any]:
    return ServedRequest("text", Batcher(policy), body).reply()


@pytest.fixture(scope="module")
def tiny() -> Policy:
    return load_policy("tiny", device="cpu")


def test_the_same_seed_gives_the_same_answers_and_another_seed_others(tiny: Policy) -> None:
    def message(seed: int) -> list[str]:
        reply = chat_reply(tiny, {**ASKED, "seed": seed, "n": 8, "temperature": 2.0})
        return [choice["message"]["content"] for choice in reply["choices"]]

    assert message(1) == message(1) != message(2)


def test_answers_contain_token_ids_on_request(tiny: Policy) -> None:
    body = {"prompt": "12 + 7", "max_tokens": 3, "n": 2, "seed": 4, "logprobs": 0}
    assert "token_ids" not in text_reply(tiny, body)["choices"][0]
    for choice in text_reply(tiny, {**body, "return_token_ids": True})["choices"]:
        assert choice["prompt_token_ids"] == encode_text(tiny, "12 + 7")
        assert len(choice["token_ids"]) == len(choice["logprobs"]["token_logprobs"])
        kept = [one for one in choice["token_ids"] if one not in tiny.eos_ids]
        assert tiny.tokenizer.decode(kept) == choice["text"]


def test_log_probabilities_are_those_of_a_plain_forward_pass(tiny: Policy) -> None:
    body = {"prompt": "12 + 7", "max_tokens": 3, "logprobs": 1, "echo": True, "seed": 4}
    reply = text_reply(tiny, body)
    (choice,), requested = reply["choices"], reply["usage"]["prompt_tokens"]
    found = choice["logprobs"]
    # A special token's name stands for it in the text, and an end token adds nothing to it.
    ids = tiny.tokenizer.convert_tokens_to_ids(found["tokens"])
    with torch.inference_mode():
        logits = tiny.model(input_ids=torch.tensor([ids])).logits[0, :-1].float()
    plain = logits.log_softmax(-1).gather(-1, torch.tensor(ids[1:])[:, None])[:, 0]
    assert found["token_logprobs"][0] is None
    assert torch.allclose(torch.tensor(found["token_logprobs"][1:]), plain, atol=1e-4)
    assert requested > 2
    tops, likeliests = found["top_logprobs"][1:requested], logits.argmax(-1)[: requested - 1]
    for top, likeliest in zip(tops, likeliests, strict=True):
        assert list(top) == [tiny.tokenizer.decode([likeliest])]
    assert choice["text"].startswith("12 + 7")


def test_zero_tokens_return_the_prompts_own_logprobs(tiny: Policy) -> None:
    body = {"prompt": ["1 + 1", [5, 6, 7]], "max_tokens": 0, "logprobs": 1, "echo": True}
    choices = text_reply(tiny, body)["choices"]
    lengths = [len(choice["logprobs"]["tokens"]) for choice in choices]
    assert lengths == [len(encode_text(tiny, "1 + 1")), 3]
    assert choices[0]["text"] == "1 + 1"


def test_a_stop_text_ends_an_answer_before_it(tiny: Policy) -> None:
    body = {**ASKED, "seed": 3, "temperature": 0.0}
    (whole,) = chat_reply(tiny, body)["choices"]
    last = whole["message"]["content"][-1]
    (cut,) = chat_reply(tiny, {**body, "stop": [last]})["choices"]
    assert cut["message"]["content"] == whole["message"]["content"].split(last)[0]
    assert cut["finish_reason"] == "stop"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"messages": []}, "at least one message"),
        ({"messages": [{"role": "user"}]}, "content of text"),
        ({"messages": [{"role": "user", "content": "x" * 9999}]}, "leaves no positions"),
        ({"messages": [*ASKED["messages"], {"role": "assistant", "content": "5"}]}, "no chat"),
        ({"n": 65}, "n must be a whole number from 1 to 64"),
        ({"temperature": "hot"}, "temperature must be a number"),
        ({"temperature": float("nan")}, "temperature must be a number"),
        ({"stop": [""]}, "stop must be"),
        ({"tools": [{}]}, "tools must be a list"),
        ({"tools": [TOOL]}, "the chat template of 'tiny' has no <tool_call> tools"),
        ({"tools": [STRICT]}, "strict is not supported"),
        ({"parallel_tool_calls": False}, "parallel_tool_calls is not supported"),
        ({"tool_choice": "required"}, "tool_choice may be"),
        ({"model": "gpt-4"}, "there is no model 'gpt-4': this server has 'tiny'"),
        ({"response_format": {"type": "json_object"}}, "response_format is not supported"),
        ({"guided_json": {}}, "unknown parameter 'guided_json'"),
        ({"min_p": 0.1}, "min_p is not supported"),
        ({"top_logprobs": 3}, "needs logprobs"),
        ({"stream": "yes"}, "stream must be true or false"),
        ({"stream_options": {"include_usage": True}}, "with stream"),
        ({"stream": True, "logprobs": True}, "cannot be streamed"),
    ],
)
def test_a_request_that_would_be_answered_otherwise_is_refused(
    tiny: Policy, more: dict[str, Any], message: str
) -> None:
    with pytest.raises(BadRequestError, match=message):
        chat_reply(tiny, {**ASKED, **more})


def test_more_tokens_than_the_model_has_positions_need_no_memory(
    tiny: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def sampled(_policy: Policy, prompts: Any, *, params: Any, **_given: Any) -> Any:
        asked.append(params.max_new_tokens)
        return [[] for _ in prompts]

    monkeypatch.setattr("shoal_policy.serving.batcher.generate", sampled)
    text_reply(tiny, {"prompt": "1", "max_tokens": 1 << 20})
    assert asked == [tiny.max_positions - len(encode_text(tiny, "1"))]


@settings(max_examples=100)
@given(body=BODIES)
def test_any_body_is_answered_or_refused_in_one_line(tiny: Policy, body: dict[str, Any]) -> None:
    for reply in (chat_reply, text_reply):
        try:
            made = reply(tiny, body)
        except BadRequestError as error:
            assert str(error).count("\n") == 0
        else:
            assert made["usage"]["completion_tokens"] >= 0
