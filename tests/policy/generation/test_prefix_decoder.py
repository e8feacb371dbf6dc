"""Prompts that begin alike: decoded with what they share computed once, or each by itself."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch

from shoal_policy.generation import decoding
from shoal_policy.generation.prefix_decoder import PrefixDecoder
from shoal_policy.model.examples import FamilyExamples, FewShotExamples, common_prefix
from shoal_policy.model.loading import Policy
from shoal_policy.model.lora import add_adapter
from shoal_policy.model.packed import can_pack
from shoal_policy.rollouts import Answer
from shoal_policy.update.grpo import make_optimizer
from tests.policy import tiny_models
from tests.policy.tiny_models import assert_same_answers as assert_same


def ids(seed: int, size: int) -> list[int]:
    return random.Random(seed).choices(range(5, tiny_models.VOCAB), k=size)


def shots(*prefixes: list[int]) -> FewShotExamples:
    return FewShotExamples(
        {
            str(number): FamilyExamples(count=1, examples=(), prefix=tuple(prefix))
            for number, prefix in enumerate(prefixes)
        }
    )


def case(seed: int) -> tuple[FewShotExamples, list[list[int]]]:
    """Prompts of two families, with rests of every length, some equal, and some of no family."""
    rng = random.Random(seed)
    first, second = ids(seed, rng.randint(16, 40)), ids(seed + 1, 20)
    prompts = [
        [*rng.choice([first, second]), *ids(rng.random(), rng.randint(1, 12))] for _ in "123"
    ]
    prompts += [prompts[0], first, ids(seed + 2, rng.randint(1, 30))]
    rng.shuffle(prompts)
    return shots(first, second), prompts


def sampled(policy: Policy, prompts: list[list[int]], seed: int) -> list[list[Answer]]:
    return tiny_models.draw(policy, prompts, params=tiny_models.sampling(9), seed=seed)


@contextmanager
def tokens_read(model: Any) -> Iterator[list[int]]:
    """The number of tokens in each forward pass of a model's body."""
    seen: list[int] = []

    def note(_module: Any, _args: Any, options: dict[str, Any]) -> None:
        seen.append(options["input_ids"].numel())

    handle = model.base_model.register_forward_pre_hook(note, with_kwargs=True)
    try:
        yield seen
    finally:
        handle.remove()


@pytest.mark.parametrize("architecture", tiny_models.ARCHITECTURES)
def test_shared_beginnings_change_nothing_in_what_is_sampled(architecture: str) -> None:
    policy = tiny_models.policy(architecture)
    for seed in range(8):
        shown, prompts = case(seed)
        sharing = replace(policy, few_shot=shown)
        assert isinstance(decoding.make_decoder(sharing, prompts, 3, 9), PrefixDecoder)
        assert_same(sampled(sharing, prompts, seed), sampled(policy, prompts, seed))


def test_a_beginning_is_computed_once_for_all_its_prompts() -> None:
    policy = tiny_models.policy()
    first, second = ids(1, 30), ids(2, 24)
    sharing = replace(policy, few_shot=shots(first, second))
    prompts = [[*first, 7], [*second, 8, 9], [*first, 10, 11]]
    assert can_pack(policy.model, policy.device, 50)  # looks at the model once
    with tokens_read(policy.model) as seen:
        sampled(sharing, prompts, 1)
    assert seen[0] == 30 + 24 + 1 + 2 + 2


@pytest.mark.parametrize("lora", [False, True])
def test_new_weights_recompute_the_prefix(lora: bool) -> None:
    policy = tiny_models.policy()
    if lora:
        policy = add_adapter(policy, 2, seed=1)
    shown, prompts = case(3)
    sharing = replace(policy, few_shot=shown)
    sampled(sharing, prompts, 1)
    optimizer = make_optimizer(policy, lr=0.1)
    for _ in range(2):  # of an adapter, the first step moves one of two matrices
        for weight in policy.model.parameters():
            weight.grad = torch.ones_like(weight) if weight.requires_grad else None
        optimizer.step()
    assert_same(sampled(sharing, prompts, 2), sampled(policy, prompts, 2))
    other = tiny_models.model("qwen2", seed=5).state_dict()
    if not lora:
        policy.model.load_state_dict(other)
        assert_same(sampled(sharing, prompts, 3), sampled(policy, prompts, 3))


def test_a_model_without_packing_uses_the_plain_decoder() -> None:
    policy = replace(tiny_models.policy(), logit_form=None)
    shown, prompts = case(4)
    made = decoding.make_decoder(replace(policy, few_shot=shown), prompts, 2, 9)
    assert not isinstance(made, PrefixDecoder)


def test_what_prompts_have_in_common() -> None:
    assert common_prefix([[1, 2, 3], [1, 2, 4, 5], [1, 2]]) == (1, 2)
    assert common_prefix([[1, 2], [3]]) == ()
    assert common_prefix([[1, 2]]) == (1, 2)


def test_a_beginning_too_short_to_pay_is_not_shared_and_no_prompt_is_all_beginning() -> None:
    shown = shots(ids(1, 15), ids(2, 20))
    assert shown.num_shared([*ids(1, 15), 7]) == 0
    assert shown.num_shared([*ids(2, 20), 7]) == 20
    assert shown.num_shared(ids(2, 20)) == 0
