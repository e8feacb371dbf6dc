"""Packed rows that share prompts, against each row computed alone."""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from shoal_policy.model import packed
from shoal_policy.model.loading import Policy
from shoal_policy.model.packed import can_pack, pack_rows, packed_tokens
from shoal_policy.update import grpo, logprobs, rows
from shoal_policy.update.grpo import TrainGroup
from shoal_policy.update.logprobs import completion_logprobs
from shoal_policy.update.rows import make_rows, micro_batches, should_pack
from tests.policy import tiny_models
from tests.policy.update.update_cases import (
    assert_plain,
    assert_same_gradients,
    config,
    group_of,
    make_groups,
)

CONFIGS: dict[str, dict[str, Any]] = {
    "mistral": {"sliding_window": None},
    "window": {"architecture": "mistral", "sliding_window": 6},
    "softcap": {"architecture": "gemma2"},
    "recurrent": {"architecture": "mamba"},
}


def policy_of(name: str) -> Policy:
    return tiny_models.policy(**{"architecture": name, **CONFIGS.get(name, {})})


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
    before = policy.model.config._attn_implementation
    assert_plain(policy, token_budget=120)
    assert seen and all(seen)
    assert policy.model.config._attn_implementation == before


def rows_of(policy: Policy, groups: Sequence[TrainGroup], **changes: Any) -> list[rows.TrainingRow]:
    """The rows of all groups that fit."""
    return [row for part in make_rows(policy, groups, config(**changes))[0] for row in part]


def num_trees(laid: packed.Packed) -> int:
    return sum(call.mask is not None and call.key_index is call.query_index for call in laid.calls)


def drawn_groups(seed: int) -> list[TrainGroup]:
    """Groups of every shape: prompts long and short, completions of one token and of many."""
    rng = random.Random(seed)
    return [
        group_of(
            [rng.randrange(5, 50) for _ in range(rng.choice([1, 3, 20, 60]))],
            [
                [rng.randrange(5, 50) for _ in range(rng.choice([1, 2, 5, 20]))]
                for _ in range(rng.randint(1, 6))
            ],
        )
        for _ in range(rng.randint(1, 4))
    ]


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("name", ["qwen2", "gpt2", "qwen2, grouped"])
def test_prompts_computed_first_give_the_numbers_of_rows_alone(
    name: str, at_once: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And so do all rows in one call of attention, as few of them are."""
    monkeypatch.setattr(packed, "_SINGLE_CALL_TOKENS", 1 << 20 if at_once else 0)
    monkeypatch.setattr(packed, "MIN_PREFILL_SAVING", 0)
    name, _, grouped = name.partition(",")
    if grouped:  # as on a GPU
        monkeypatch.setattr(packed, "_NO_GQA_DEVICES", ())
    policy, num_first = tiny_models.policy(name), 0
    for seed in range(30):
        made = rows_of(policy, drawn_groups(seed))
        laid = pack_rows(made, policy.device)
        num_first += sum(len(call.key_index) > len(call.query_index) for call in laid.calls)
        assert (num_trees(laid) == len(laid.calls) == 1) == at_once
        found = []
        for is_packed in (True, False):
            loss = completion_logprobs(policy, made, packed=is_packed).logprobs
            policy.model.zero_grad()
            (loss * torch.linspace(-1, 1, len(loss))).sum().backward()
            grads = {n: w.grad.clone() for n, w in policy.model.named_parameters()}
            found.append((loss.detach(), grads))
        torch.testing.assert_close(found[0][0], found[1][0], atol=1e-4, rtol=1e-4)
        assert_same_gradients(found[0][1], found[1][1], 1e-4)
    assert num_first == 0 if at_once else num_first > 20


@pytest.mark.parametrize("name", ["window", "softcap", "recurrent"])
def test_models_that_packing_would_get_wrong_are_padded(name: str) -> None:
    policy = policy_of(name)
    assert not can_pack(policy.model, policy.device, 30)
    assert can_pack(policy.model, policy.device, 6) == (name == "window")
    assert_plain(policy)


def test_attention_that_was_chosen_on_purpose_is_left_alone() -> None:
    policy = tiny_models.policy()
    policy.model.config._attn_implementation = "flex_attention"
    assert not can_pack(policy.model, policy.device, 1)


def test_packing_is_used_where_it_saves_tokens_only() -> None:
    policy = tiny_models.policy()

    def pays(prompt: int, completions: list[int], policy: Policy = policy) -> bool:
        group = group_of([5] * prompt, [[6] * size for size in completions])
        return should_pack(policy, rows_of(policy, [group]), 8192)

    assert pays(20, [10, 10, 10])
    assert pays(1, [40, 3, 3, 3])  # not shared, but not padded
    assert not pays(2, [20, 20, 20])
    assert not pays(60, [4])
    assert not pays(20, [10, 10, 10], dataclasses.replace(policy, logit_form=None))


def test_micro_batches_keep_the_rows_of_a_prompt_together() -> None:
    policy = tiny_models.policy()
    made = rows_of(policy, make_groups())
    batches = micro_batches(made, 100, packed=True)
    assert sorted(map(id, made)) == sorted(id(row) for batch in batches for row in batch)
    assert len(batches) > 1
    # One batch ends and another begins within a prompt at most once for each new batch.
    prompts = [tuple(row.prompt_ids) for batch in batches for row in batch]
    changes = sum(a != b for a, b in itertools.pairwise(prompts))
    assert changes == len(set(prompts)) - 1
    for batch in batches:
        assert len(batch) == 1 or rows.batch_tokens(batch, packed=True) <= 100
        laid = pack_rows(batch, policy.device)
        assert laid.ids.shape[1] == packed_tokens(batch)


def test_rows_of_a_prompt_that_fit_one_pass_are_never_parted() -> None:
    """Its prompt would be computed twice; two of these are too many for one pass."""
    groups = [group_of([5 + number] * 20, [[6] * (10 - number)] * 4) for number in range(3)]
    made = rows_of(tiny_models.policy(), groups)
    size = rows.batch_tokens(made[:4], packed=True)
    batches = micro_batches(made, int(1.5 * size), packed=True)
    assert [[row.group for row in batch] for batch in batches] == [[0] * 4, [1] * 4, [2] * 4]


def test_attention_has_widths_that_a_processor_s_vectors_fill() -> None:
    policy = tiny_models.policy(positions=512)
    group = group_of([5] * 8, [[6] * size for size in (150, 147, 100, 30)])
    made = rows_of(policy, [group], max_completion_tokens=None)
    calls = pack_rows(made, policy.device).calls
    assert len(calls) > 1 and all(call.mask is None for call in calls)
    assert all(len(call.query_index) // call.num_rows % 16 == 0 for call in calls)


def families(seed: int) -> list[TrainGroup]:
    """Groups of two families whose prompts begin alike, one twice, and some that share nothing."""
    rng = random.Random(seed)

    def ids(size: int) -> list[int]:
        return rng.choices(range(5, 50), k=size)

    beginnings = [ids(rng.randint(16, 40)) for _ in "12"] + [[]]
    groups = []
    for _ in range(6):
        begun = rng.choice(beginnings)
        groups.append(
            group_of(
                [*begun, *ids(rng.randint(1, 8))],
                [ids(rng.randint(1, 12)) for _ in range(rng.randint(1, 4))],
                [],
                external=bool(rng.getrandbits(1)),
                num_shared=len(begun),
            )
        )
    groups.append(dataclasses.replace(groups[0], completions=[ids(3), ids(1)]))
    return [
        dataclasses.replace(one, advantages=[rng.uniform(-2, 2) for _ in one.completions])
        for one in groups
    ]


@pytest.mark.parametrize("name", ["qwen2", "gpt2", "qwen3"])
@pytest.mark.parametrize("budget", [60, 4096])
def test_shared_beginnings_have_the_loss_and_gradients_of_rows_alone(
    name: str, budget: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed, "_is_tree", lambda family: len(family) > 1)
    policy, trees = policy_of(name), []
    real = packed.pack_rows

    def watched(*args: Any) -> Any:
        made = real(*args)
        trees.append(num_trees(made))
        return made

    monkeypatch.setattr(logprobs, "pack_rows", watched)
    for seed in range(4):
        assert_plain(policy, families(seed), token_budget=budget)
    assert any(trees)


def test_a_shared_beginning_is_computed_once_where_its_rows_fit() -> None:
    policy = tiny_models.policy(positions=512)
    begun = random.Random(1).choices(range(5, 50), k=200)
    groups = [
        group_of([*begun, number], [[7, 8], [9]], [1.0, -1.0], num_shared=200) for number in (5, 6)
    ]
    made = rows_of(policy, groups)
    assert should_pack(policy, made, 8192)
    [batch] = micro_batches(made, 300, packed=True)
    laid = pack_rows(batch, policy.device)
    assert laid.ids.shape[1] == packed_tokens(batch) == 200 + 2 * (1 + 1)
    assert num_trees(laid) == len(laid.calls) == 1
    assert rows.batch_tokens(batch, packed=True) == 204 + 204 // 4
    others = [dataclasses.replace(row, prompt_ids=[4, *row.prompt_ids[1:]]) for row in made]
    assert [len(one) for one in micro_batches([*made, *others], 300, packed=True)] == [4, 4]
