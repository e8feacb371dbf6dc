"""Nodes of one process hold frozen weights once, and learn apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from shoal_policy.model.from_settings import fresh_policy
from shoal_policy.model.shared_base import BaseModelCache
from shoal_policy.update.grpo import make_optimizer
from shoal_settings.schema import Settings
from tests.policy import tiny_models


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(model=tiny_models.save(tmp_path), device="cpu", lora_rank=2)


def logits(policy: Any) -> torch.Tensor:
    ids = torch.tensor([[1, 2, 3, 4]])
    with torch.no_grad():
        found: torch.Tensor = policy.model(input_ids=ids).logits
    return found


def frozen(policy: Any) -> dict[str, int]:
    return {k: w.data_ptr() for k, w in policy.model.named_parameters() if not w.requires_grad}


def test_frozen_weights_are_held_once_and_adapters_by_each(settings: Settings) -> None:
    bases = BaseModelCache()
    one, other = (bases.fresh_policy(settings, seed=seed) for seed in (1, 2))
    assert frozen(one) == frozen(other) and len(frozen(one)) > 10
    before = {k: w.clone() for k, w in other.model.named_parameters()}
    optimizer = make_optimizer(one, lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        one.model(input_ids=torch.tensor([[1, 2, 3]])).logits.square().mean().backward()
        optimizer.step()
    assert not torch.equal(logits(one), logits(other)), "one has learned"
    assert all(torch.equal(before[k], w) for k, w in other.model.named_parameters())
    again = bases.fresh_policy(settings, seed=2)
    assert torch.equal(logits(again), logits(other)), "a third begins where the second stands"


def test_it_is_the_policy_that_was_loaded_apart(settings: Settings) -> None:
    apart, shared = fresh_policy(settings, seed=5), BaseModelCache().fresh_policy(settings, seed=5)
    assert torch.equal(logits(apart), logits(shared))
    ours, theirs = (dict(one.model.named_parameters()) for one in (apart, shared))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_each_policy_uses_its_own_prompt_settings(tmp_path: Path) -> None:
    tokenizer = tiny_models.tokenizer(template="{{ messages[0]['content'] }}")
    model, bases = tiny_models.save(tmp_path, words=tokenizer), BaseModelCache()
    for requested in ("chat", "plain", "chat"):
        settings = Settings(model=model, device="cpu", lora_rank=2, prompt=requested)
        assert bases.fresh_policy(settings, seed=1).prompt_format == requested


def test_a_model_that_is_trained_whole_is_its_nodes_own(settings: Settings) -> None:
    whole = settings.model_copy(update={"lora_rank": 0})
    bases = BaseModelCache()
    one, other = (bases.fresh_policy(whole, seed=1) for _ in range(2))
    ours, theirs = (dict(policy.model.named_parameters()) for policy in (one, other))
    assert all(ours[name].data_ptr() != theirs[name].data_ptr() for name in ours)
