"""Keys and values in the type that is computed in: the same answers, in half the memory."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from shoal_policy.generation import decoding
from shoal_policy.generation.local import SampledCompletion, generate
from shoal_policy.generation.ready import row_bytes
from shoal_policy.generation.typed_cache import TypedCache
from shoal_policy.model.loading import Policy
from shoal_wire.types import SamplingParams
from tests.policy import tiny_models

PROMPTS = [[1, 20, 21, 22, 4], [1, 30, 4]]
SAMPLING = SamplingParams(temperature=1.0, top_p=1.0, top_k=0, max_new_tokens=12)
ARCHITECTURES = ("qwen2", "gpt2")


def in_bfloat16(architecture: str) -> Policy:
    """One that ends nothing early."""
    policy = tiny_models.policy(architecture)
    never = frozenset({-1})
    return dataclasses.replace(policy, autocast_dtype=torch.bfloat16, eos_ids=never)


def draw(policy: Policy) -> list[list[SampledCompletion]]:
    generator = torch.Generator().manual_seed(3)
    return generate(policy, PROMPTS, num_completions=2, params=SAMPLING, generator=generator)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_answers_are_those_of_the_model_s_own_cache(
    architecture: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = in_bfloat16(architecture)
    ours = draw(policy)
    monkeypatch.setattr(decoding, "cache_of", lambda _policy: None)
    assert draw(policy) == ours


def test_what_rows_hold_is_what_is_counted_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rotary embedding of Qwen2 would leave its keys in float32."""
    policy = in_bfloat16("qwen2")
    made: list[TypedCache] = []

    def kept(of: Policy) -> Any:
        cache = TypedCache(of.model.config, torch.bfloat16)
        made.append(cache)
        return cache

    monkeypatch.setattr(decoding, "cache_of", kept)
    draw(policy)
    (cache,) = made
    tensors = [one for layer in cache.layers for one in (layer.keys, layer.values)]
    held = sum(one.numel() * one.element_size() for one in tensors)
    rows, positions = tensors[0].shape[0], tensors[0].shape[2]
    counted_on = row_bytes(policy, positions) - row_bytes(policy, 0)
    assert rows == 4 and held == rows * counted_on


def test_weights_that_are_computed_with_as_they_are_keep_the_model_s_own_cache() -> None:
    assert decoding.cache_of(tiny_models.policy("qwen2")) is None
