"""The update: steps, clipping, skipped rows; every architecture is in `test_packed.py`."""

from __future__ import annotations

import dataclasses
import math
from itertools import chain

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from shoal_policy.model.loading import Policy, wrap_policy
from shoal_policy.update import head
from shoal_policy.update.grpo import GrpoConfig, make_optimizer, pack, update
from tests.policy import tiny_models
from tests.policy.update.update_cases import (
    EOS,
    Recorder,
    assert_plain,
    assert_same_gradients,
    config,
    group_of,
    make_groups,
    plain_logprobs,
    recorded,
)


@pytest.mark.parametrize("token_budget", [1, 30, 64, 200, 10_000])
def test_packing_does_not_change_loss_or_gradients(token_budget: int) -> None:
    policy = tiny_models.policy()
    reference, (whole,) = recorded(policy, token_budget=10_000)
    stats, (packed,) = recorded(policy, token_budget=token_budget)
    assert stats.loss == pytest.approx(reference.loss, abs=1e-6)
    assert stats.entropy == pytest.approx(reference.entropy, abs=1e-5)
    assert stats.num_tokens == reference.num_tokens
    assert_same_gradients(packed, whole, 1e-6)


@given(st.lists(st.integers(1, 50), max_size=40), st.integers(1, 200))
def test_pack_keeps_every_row_once_and_the_budget(lengths: list[int], budget: int) -> None:
    batches = pack(lengths, budget)
    assert sorted(chain(*batches)) == list(range(len(lengths)))
    for batch in batches:
        padded = max(lengths[index] for index in batch) * len(batch)
        assert len(batch) == 1 or padded <= budget


@pytest.mark.parametrize("right", [True, False])
def test_a_foretold_gradient_saves_work_and_never_changes_the_result(right: bool) -> None:
    torch.manual_seed(0)
    hidden, weight, given = torch.randn(9, 8), torch.randn(30, 8), torch.randn(9)
    targets, requested = torch.randint(0, 30, (9,)), []

    def expected(logprobs_n: torch.Tensor, part: slice) -> torch.Tensor:
        requested.append(len(logprobs_n))
        return given[part] * (1 if right else 2)

    found = []
    for foretold in (None, expected):
        leaves = [hidden.clone().requires_grad_(), weight.clone().requires_grad_()]
        logprobs, _ = head.head_logprobs(leaves[0], leaves[1], None, targets, 0.7, foretold)
        logprobs.backward(given)
        found.append([leaf.grad for leaf in leaves])
    assert requested == [9]
    assert all(map(torch.equal, *found))


def test_the_default_update_foretells_its_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the head would be computed a second time, and nothing would say so."""
    computed = []
    real = head._Tiles.logits

    def counting(self: head._Tiles, part: slice) -> tuple[torch.Tensor, torch.Tensor]:
        computed.append(part)
        return real(self, part)

    monkeypatch.setattr(head._Tiles, "logits", counting)
    monkeypatch.setattr(head, "TILE_ELEMENTS", 59 * 10_000)
    policy = tiny_models.policy()
    for changes in ({}, {"temperature": 0.7}, {"loss_type": "dapo", "epochs": 2}):
        computed.clear()
        update(policy, sgd(policy, lr=0.1), make_groups(), config(**changes))
        assert len(computed) == changes.get("epochs", 1)


def plain_entropy(policy: Policy, temperature: float) -> float:
    values = []
    for group in make_groups():
        for ids, advantage in zip(group.completions, group.advantages, strict=True):
            if advantage:
                row = torch.tensor([[*group.prompt_ids, *ids]])
                with torch.no_grad():
                    logits = policy.model(input_ids=row).logits[0] / temperature
                part = logits[len(group.prompt_ids) - 1 : -1]
                values += torch.distributions.Categorical(logits=part).entropy().tolist()
    return sum(values) / len(values)


def test_a_head_with_a_bias() -> None:
    model = tiny_models.model("llama")
    torch.manual_seed(1)
    model.lm_head = torch.nn.Linear(32, tiny_models.VOCAB, bias=True)
    policy = wrap_policy(model, tiny_models.tokenizer(), name="biased")
    assert policy.linear_head
    assert_plain(policy)
    assert float(model.lm_head.bias.grad.abs().max()) > 1e-3


@pytest.mark.parametrize("architecture", tiny_models.ARCHITECTURES)
def test_a_head_with_more_than_a_matrix_falls_back_to_full_logits(architecture: str) -> None:
    plain = tiny_models.policy(architecture)
    policy = dataclasses.replace(plain, logit_form=None)
    stats = assert_plain(policy)
    assert stats.entropy == pytest.approx(plain_entropy(policy, 1.0), abs=1e-4)


def test_clipping_acts_from_the_second_epoch_on() -> None:
    once, twice = tiny_models.policy(), tiny_models.policy()
    first = update(once, sgd(once), make_groups(), config())
    assert first.ratio_max == 1.0
    assert first.clip_fraction_low == first.clip_fraction_high == 0.0

    second = update(twice, sgd(twice), make_groups(), config(epochs=2))
    assert second.num_steps == 2
    start, after = tiny_models.model("qwen2"), once.model
    held = {"low": 0, "high": 0}
    ratios = []
    for group in make_groups():
        for ids, advantage in zip(group.completions, group.advantages, strict=True):
            if not advantage:
                continue
            with torch.no_grad():
                was = plain_logprobs(start, group.prompt_ids, ids)
                now = plain_logprobs(after, group.prompt_ids, ids)
            row = torch.exp(now - was).tolist()
            ratios += row
            held["low"] += sum(r < 0.8 and advantage < 0 for r in row)
            held["high"] += sum(r > 1.28 and advantage > 0 for r in row)
    assert held["low"] > 0 and held["high"] > 0
    # The statistics average both epochs, and the first has ratio 1 throughout.
    assert second.clip_fraction_low == pytest.approx(held["low"] / len(ratios) / 2, abs=1e-6)
    assert second.clip_fraction_high == pytest.approx(held["high"] / len(ratios) / 2, abs=1e-6)
    assert second.ratio_max == pytest.approx(max(ratios), rel=1e-4)
    assert second.num_tokens == len(ratios)


def sgd(policy: Policy, lr: float = 3.0) -> torch.optim.Optimizer:
    return torch.optim.SGD(policy.model.parameters(), lr=lr)


def test_minibatches_take_their_ratio_against_the_policy_before_the_first_step() -> None:
    policy = tiny_models.policy()
    stats = update(policy, sgd(policy), make_groups(), config(minibatches=3))
    assert stats.num_steps == 3
    # The second and third minibatch see a policy that the first has moved.
    assert stats.ratio_max > 1.01


def test_minibatches_without_steps_between_sum_to_the_whole() -> None:
    policy = tiny_models.policy()
    _, (first, second) = recorded(policy, minibatches=2, loss_type="dr_grpo")
    _, (whole,) = recorded(policy, loss_type="dr_grpo")
    rows = [4 + 7, 2 + 3]  # groups 0 and 2, then 1 and 3
    total = {name: (first[name] * rows[0] + second[name] * rows[1]) / sum(rows) for name in whole}
    assert_same_gradients(total, whole, 1e-6)


def test_no_signal_takes_no_step_and_is_counted() -> None:
    policy = tiny_models.policy()
    before = [weight.clone() for weight in policy.model.parameters()]
    silent = [dataclasses.replace(g, advantages=[0.0] * len(g.advantages)) for g in make_groups()]
    for groups in (silent, []):
        stats = update(policy, make_optimizer(policy, lr=1.0), groups, config(epochs=2))
        assert (stats.num_steps, stats.skipped_no_signal, stats.num_tokens) == (0, 2, 0)
        assert stats.loss == stats.grad_norm == stats.entropy == 0.0
    assert all(map(torch.equal, before, policy.model.parameters()))


@pytest.mark.parametrize("poison", ["advantage", "weight", "gradient"])
def test_numbers_that_are_not_finite_skip_the_step(poison: str) -> None:
    policy, groups = tiny_models.policy(), make_groups()
    match poison:
        case "advantage":
            groups[1] = dataclasses.replace(groups[1], advantages=[math.nan, 1.0])
        case "weight":
            with torch.no_grad():
                policy.model.get_output_embeddings().weight[3, 3] = math.inf
        case "gradient":
            # The loss is finite; its gradient is not.
            policy.model.model.norm.weight.register_hook(lambda grad: grad * math.inf)
    before = [weight.clone() for weight in policy.model.parameters()]
    stats = update(policy, make_optimizer(policy, lr=1.0), groups, config())
    assert (stats.num_steps, stats.skipped_nonfinite) == (0, 1)
    assert math.isfinite(stats.loss)
    assert all(map(torch.equal, before, policy.model.parameters()))
    assert all(weight.grad is None for weight in policy.model.parameters())


def test_absurd_claims_of_old_logprobs_do_no_harm() -> None:
    policy = tiny_models.policy()
    old = [[-1e30, 0.0], [-300.0, -1.0]]
    group = group_of([1, 4], [[7, 8], [9, 2]], [1.0, -1.0], old_logprobs=old)
    stats = update(policy, make_optimizer(policy, lr=1e-3), [group], config())
    assert (stats.num_steps, stats.skipped_nonfinite) == (1, 0)
    assert all(bool(weight.isfinite().all()) for weight in policy.model.parameters())


def test_gradients_are_clipped_to_the_norm() -> None:
    stats, (step,) = recorded(tiny_models.policy(), max_grad_norm=0.25)
    assert stats.grad_norm > 0.5
    norm = math.sqrt(sum(float((grad**2).sum()) for grad in step.values()))
    assert norm == pytest.approx(0.25, rel=1e-3)


def test_completions_longer_than_allowed_are_left_out_whole() -> None:
    policy = tiny_models.policy("gpt2", positions=16)
    long = group_of([1] * 10, [[7] * 50, [8, EOS]], [1.0, -1.0], external=True)
    full = dataclasses.replace(long, prompt_ids=[1] * 16)
    optimizer = make_optimizer(policy, lr=1e-4)
    stats = update(policy, optimizer, [long, full], config())
    assert (stats.num_tokens, stats.num_sequences, stats.skipped_too_long) == (2, 1, 3)
    assert update(policy, optimizer, [long], config(max_completion_tokens=4)).num_tokens == 2


def test_empty_completions_count_as_rows_and_train_nothing() -> None:
    group = group_of([1, 4], [[], [7, EOS]], [-1.0, 1.0])
    stats, _ = recorded(tiny_models.policy(), [group])
    assert (stats.num_sequences, stats.num_tokens) == (1, 2)
    assert stats.loss == pytest.approx(-0.5)


def test_malformed_groups_and_settings_are_refused() -> None:
    policy = tiny_models.policy()
    good = make_groups()[0]
    for bad in (
        dataclasses.replace(good, advantages=[1.0]),
        dataclasses.replace(good, prompt_ids=[]),
        dataclasses.replace(good, old_logprobs=[[0.0]] * 4),
    ):
        with pytest.raises(ValueError):
            update(policy, Recorder(policy), [bad], config())
    with pytest.raises(ValueError, match="max_completion_tokens"):
        GrpoConfig(loss_type="dr_grpo")
