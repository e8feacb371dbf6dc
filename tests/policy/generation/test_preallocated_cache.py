"""Keys and values in room made once, in the type that is computed in: the same answers, cheaper."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import pytest
import torch

from shoal_policy.generation import decoding
from shoal_policy.generation.decoding import CacheDecoder, build_cache
from shoal_policy.generation.sampling_setup import row_bytes
from shoal_policy.model.loading import Policy
from shoal_policy.rollouts import Answer
from tests.policy import tiny_models
from tests.policy.model.test_packed import policy_of

PROMPTS = [[1, 20, 21, 22, 4], [1, 30, 4]]
NEVER = frozenset({-1})


def as_decoded_by_transformers(architecture: str) -> Policy:
    """One whose logits have no form that the decoder of small models knows."""
    return dataclasses.replace(policy_of(architecture), logit_form=None)


def in_bfloat16(architecture: str) -> Policy:
    """One that ends nothing early."""
    policy = tiny_models.policy(architecture)
    return dataclasses.replace(policy, autocast_dtype=torch.bfloat16, eos_ids=NEVER)


def draw(
    policy: Policy, prompts: list[list[int]], completions: int, tokens: int
) -> list[list[Answer]]:
    how = tiny_models.sampling(tokens)
    return tiny_models.draw(policy, prompts, num=completions, params=how)


@pytest.mark.parametrize("architecture", ["qwen2", "llama", "gpt2", "qwen3", "window", "softcap"])
def test_answers_are_those_of_the_model_s_own_cache(
    architecture: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prompts of every length, few rows and many, answers that end early and late."""
    policy = as_decoded_by_transformers(architecture)
    rng = random.Random(architecture)
    for _ in range(8):
        equal = rng.choice([0, 0, rng.randint(1, 20)])
        prompts = [
            [1, *rng.choices(range(5, 50), k=equal or rng.randint(1, 20))]
            for _ in range(rng.randint(1, 4))
        ]
        shape = rng.randint(1, 5), rng.randint(1, 30)
        ours = draw(policy, prompts, *shape)
        with monkeypatch.context() as patched:
            patched.setattr(decoding, "build_cache", lambda _policy, _columns: None)
            theirs = draw(policy, prompts, *shape)
        tiny_models.assert_same_answers(ours, theirs, 1e-5)


@pytest.mark.parametrize("architecture", ["qwen2", "gpt2"])
def test_answers_in_bfloat16_are_those_of_the_model_s_own_cache(
    architecture: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = in_bfloat16(architecture)
    ours = draw(policy, PROMPTS, 2, 12)
    monkeypatch.setattr(decoding, "build_cache", lambda _policy, _columns: None)
    assert draw(policy, PROMPTS, 2, 12) == ours


@pytest.mark.parametrize("architecture", ["qwen2", "gpt2"])
def test_a_token_is_appended_to_those_before_it(architecture: str) -> None:
    """Nothing that is held is copied, but where rows leave."""
    policy = as_decoded_by_transformers(architecture)
    with torch.inference_mode():
        decoder = CacheDecoder(policy, PROMPTS, 3, 8)
        token = torch.full((6,), 7)
        decoder.prefill()
        places = []
        for step in range(8):
            if step == 4:
                token = token[:4]
                decoder.keep(torch.arange(4))
            decoder.step(token, step)
            layers = decoder._cache.layers
            places.append([one.data_ptr() for la in layers for one in (la.keys, la.values)])
    assert places[0] == places[3] and places[4] == places[7]
    assert layers[0].keys.shape[-2] == len(PROMPTS[0]) + 8


def test_what_rows_hold_is_what_is_counted_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rotary embedding of Qwen2 would leave its keys in float32."""
    policy = in_bfloat16("qwen2")
    made: list[Any] = []

    def kept(of: Policy, columns: int) -> Any:
        made.append((build_cache(of, columns), columns))
        return made[-1][0]

    monkeypatch.setattr(decoding, "build_cache", kept)
    draw(policy, PROMPTS, 2, 12)
    ((cache, columns),) = made
    rooms = [room for layer in cache.layers for room in layer._buffers]
    held = sum(room.untyped_storage().nbytes() for room in rooms)
    assert columns == len(PROMPTS[0]) + 12
    assert held == 4 * (row_bytes(policy, columns) - row_bytes(policy, 0))
