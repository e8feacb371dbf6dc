"""The KL term holds the policy near the one that training started from."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch

from shoal_policy.model.reference import freeze, load_reference
from shoal_policy.trainer import Trainer
from shoal_policy.update.grpo import GrpoConfig, make_optimizer, update
from shoal_wire.types import Digest
from tests.policy import tiny_models
from tests.policy import training_cases as case
from tests.policy.training_cases import trainer
from tests.policy.update.update_cases import assert_same_gradients, group_of, recorded

GROUP = group_of([1, 9, 4], [[7, 2], [8, 2], [9, 10]], [1.0, -0.5, -0.5])


def test_a_larger_weight_holds_the_policy_closer_and_the_reference_stands_still() -> None:
    ends, held = {}, freeze(tiny_models.policy())
    before = case.weights(held)
    for beta in (0.0, 0.3, 3.0):
        policy = tiny_models.policy()
        optimizer = make_optimizer(policy, lr=3e-3)
        # Measured everywhere, pulled by beta only.
        for _ in range(15):
            update(policy, optimizer, [GROUP], GrpoConfig(kl_beta=beta), held)
        ends[beta] = update(policy, optimizer, [GROUP], GrpoConfig(kl_beta=1e-12), held).kl
    assert ends[0.0] > 2 * ends[0.3] > 4 * ends[3.0] > 0
    assert case.same_weights(before, case.weights(held))


def test_completions_without_advantage_are_held_too_but_a_step_needs_some() -> None:
    policy, elder = tiny_models.policy(), tiny_models.policy(seed=1)
    silent = dataclasses.replace(GROUP, prompt_ids=[1, 5, 4], advantages=[0.0] * 3)
    config = GrpoConfig(kl_beta=0.1)
    optimizer = torch.optim.SGD(policy.model.parameters(), lr=0.0)
    stats = update(policy, optimizer, [GROUP, silent], config, freeze(elder))
    assert stats.num_sequences == 6
    alone = update(policy, optimizer, [silent], config, elder)
    assert (alone.num_steps, alone.skipped_no_signal) == (0, 1)


def test_a_reference_that_is_amiss_is_refused() -> None:
    policy = tiny_models.policy()
    optimizer = make_optimizer(policy, lr=1e-3)
    other = freeze(dataclasses.replace(tiny_models.policy(), tokenizer_digest=Digest(b"x" * 16)))
    for bad in (None, policy, tiny_models.policy(), other):
        with pytest.raises(ValueError, match="reference"):
            update(policy, optimizer, [GROUP], GrpoConfig(kl_beta=0.1), bad)
    for beta in (-1.0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="kl_beta"):
            GrpoConfig(kl_beta=beta)


def test_after_a_restart_it_still_measures_from_the_start(tmp_path: Path, model: str) -> None:
    kls: dict[str, list[float]] = {"whole": [], "parts": []}

    def run(name: str, rounds: int) -> Trainer:
        made = trainer(tmp_path / name, model, rounds=rounds, kl_beta=0.2)
        made._on_round = lambda record, _progress: kls[name].append(record.kl)
        made.run()
        return made

    whole = run("whole", 4)
    run("parts", 2)
    resumed = run("parts", 4)
    assert kls["whole"] == kls["parts"]
    assert kls["whole"][3] > 1e-5
    assert case.same_weights(
        case.weights(whole.training_run.policy), case.weights(resumed.training_run.policy)
    )


def test_no_second_model_is_held_without_a_kl_penalty(tmp_path: Path, model: str) -> None:
    policy = case.policy()
    assert load_reference(case.settings(tmp_path, model), policy, seed=1) is None
    torch.manual_seed(3)
    before = torch.get_rng_state()
    held = load_reference(case.settings(tmp_path, model, kl_beta=0.1), policy, seed=1)
    assert held is not None and held.model is not policy.model
    assert not any(weight.requires_grad for weight in held.model.parameters())
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("token_budget", [8192, 40])
def test_adapters_are_measured_from_their_own_model_without_them(
    token_budget: int, tmp_path: Path, model: str
) -> None:
    """With the numbers that a second model gives, and gradients that add up as ever."""
    policy = tiny_models.with_adapter(case.policy())
    settings = case.settings(tmp_path, model, kl_beta=0.1, lora_rank=2)
    shared = load_reference(settings, policy, seed=1)
    assert shared is not None and shared.model is policy.model
    (stats, steps), (expected, expected_steps) = (
        recorded(policy, None, reference, kl_beta=0.1, token_budget=token_budget)
        for reference in (shared, freeze(case.policy()))
    )
    assert stats.kl > 1e-2 and stats.kl == pytest.approx(expected.kl, abs=1e-6)
    for mine, theirs in zip(steps, expected_steps, strict=True):
        assert_same_gradients(mine, theirs)
    trained = [name for name, w in policy.model.named_parameters() if w.requires_grad]
    assert trained and all(".lora_" in name for name in trained)
