"""Packed rows that share prompts, against each row computed alone."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import pytest
import torch
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from policy.model.loading import Policy, wrap_policy
from policy.update import grpo, rows
from policy.update.grpo import TrainGroup, update
from policy.update.logprobs import completion_logprobs
from policy.update.packed import can_pack, pack_rows, packed_tokens
from policy.update.rows import make_rows, micro_batches, packing_pays
from tests.policy import tiny_models
from tests.policy.update.test_grpo import (
    Recorder,
    assert_same_gradients,
    config,
    gradients_of,
    make_groups,
    plain_loss,
)

SMALL = {
    "vocab_size": tiny_models.VOCAB,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "intermediate_size": 48,
    "max_position_embeddings": 96,
    "eos_token_id": 2,
}


def policy_of(name: str) -> Policy:
    torch.manual_seed(0)
    match name:
        case "qwen3":
            made: Any = Qwen3ForCausalLM(Qwen3Config(**SMALL))
        case "mistral":
            made = MistralForCausalLM(MistralConfig(**SMALL, sliding_window=None))
        case "window":
            made = MistralForCausalLM(MistralConfig(**SMALL, sliding_window=6))
        case "softcap":
            made = Gemma2ForCausalLM(Gemma2Config(**SMALL))
        case "recurrent":
            made = MambaForCausalLM(
                MambaConfig(vocab_size=tiny_models.VOCAB, hidden_size=32, num_hidden_layers=2)
            )
        case _:
            return tiny_models.policy(name)
    return wrap_policy(made, tiny_models.tokenizer(), name=name)


@pytest.mark.parametrize("name", [*tiny_models.ARCHITECTURES, "qwen3", "mistral"])
def test_shared_prompts_have_the_loss_and_gradients_of_rows_alone(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy, seen = policy_of(name), []
    real = completion_logprobs

    def watched(*args: Any, **options: Any) -> Any:
        seen.append(options["packed"])
        return real(*args, **options)

    monkeypatch.setattr(grpo, "completion_logprobs", watched)
    recorder = Recorder(policy)
    before = policy.model.config._attn_implementation
    stats = update(policy, recorder, make_groups(), config(token_budget=120))
    assert seen and all(seen)
    assert policy.model.config._attn_implementation == before
    expected = plain_loss(policy.model, make_groups(), config())
    assert stats.loss == pytest.approx(float(expected.detach()), abs=1e-5)
    assert_same_gradients(recorder.steps[0], gradients_of(policy.model, expected))


@pytest.mark.parametrize("name", ["window", "softcap", "recurrent"])
def test_models_that_packing_would_get_wrong_are_padded(name: str) -> None:
    policy = policy_of(name)
    assert not can_pack(policy.model, policy.device, 30)
    assert can_pack(policy.model, policy.device, 6) == (name == "window")
    recorder = Recorder(policy)
    update(policy, recorder, make_groups(), config())
    expected = gradients_of(policy.model, plain_loss(policy.model, make_groups(), config()))
    assert_same_gradients(recorder.steps[0], expected)


def test_attention_that_was_chosen_on_purpose_is_left_alone() -> None:
    policy = tiny_models.policy()
    policy.model.config._attn_implementation = "flex_attention"
    assert not can_pack(policy.model, policy.device, 1)


def test_packing_is_used_where_it_saves_tokens_only() -> None:
    policy = tiny_models.policy()

    def rows_of(prompt: int, completions: list[int]) -> list[rows.Row]:
        group = TrainGroup(
            prompt_ids=[5] * prompt,
            completions=[[6] * size for size in completions],
            advantages=[1.0] * len(completions),
            external=False,
        )
        return make_rows(policy, [group], config())[0][0]

    assert packing_pays(policy, rows_of(20, [10, 10, 10]), 8192)
    assert packing_pays(policy, rows_of(1, [40, 3, 3, 3]), 8192)  # not shared, but not padded
    assert not packing_pays(policy, rows_of(2, [20, 20, 20]), 8192)
    assert not packing_pays(policy, rows_of(60, [4]), 8192)
    other = dataclasses.replace(policy, linear_head=False)
    assert not packing_pays(other, rows_of(20, [10, 10, 10]), 8192)


def test_micro_batches_keep_the_rows_of_a_prompt_together() -> None:
    policy = tiny_models.policy()
    made = [row for part in make_rows(policy, make_groups(), config())[0] for row in part]
    batches = micro_batches(made, 100, packed=True)
    assert sorted(map(id, made)) == sorted(id(row) for batch in batches for row in batch)
    assert len(batches) > 1
    # One batch ends and another begins within a prompt at most once for each new batch.
    prompts = [tuple(row.prompt_ids) for batch in batches for row in batch]
    changes = sum(a != b for a, b in itertools.pairwise(prompts))
    assert changes == len(set(prompts)) - 1
    for batch in batches:
        assert len(batch) == 1 or rows.batch_tokens(batch, packed=True) <= 100
        packed = pack_rows(batch, policy.device)
        assert packed.ids.shape[1] == packed_tokens(batch)
