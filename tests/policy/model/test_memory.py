"""When memory runs out in an update."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from shoal_policy.model.loading import Policy
from shoal_policy.model.memory import halve_budget, is_out_of_memory
from shoal_policy.model.packed import TokenRow
from shoal_policy.update import grpo, rows
from shoal_policy.update.grpo import update
from shoal_policy.update.logprobs import completion_logprobs
from shoal_policy.update.rows import TrainingRow, batch_tokens, micro_batches, pack
from tests.policy import tiny_models
from tests.policy.update.update_cases import (
    Recorder,
    assert_same_gradients,
    config,
    make_groups,
    recorded,
)


def run_out_above(tokens: int, monkeypatch: pytest.MonkeyPatch, *, late: bool = False) -> list[int]:
    """Let the allocator itself refuse what no machine has, in every wider micro-batch."""
    widths = []

    def logprobs(policy: Policy, rows: Sequence[TokenRow], **options: Any) -> Any:
        padded = len(rows) * max(len(r.prompt_ids) + len(r.completion_ids) for r in rows)
        widths.append(padded)
        found = completion_logprobs(policy, rows, **options)
        if padded > tokens:
            if not late:
                torch.empty(1 << 50)
            found.logprobs.register_hook(lambda _grad: torch.empty(1 << 50))
        return found

    monkeypatch.setattr(grpo, "completion_logprobs", logprobs)
    return widths


@pytest.mark.parametrize("late", [False, True], ids=["forward", "backward"])
def test_an_update_goes_on_with_smaller_micro_batches(
    late: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    policy = tiny_models.policy()
    groups = [
        replace(one, sampling_logprobs=[[-1.0] * len(ids) for ids in one.completions])
        for one in make_groups()
    ]
    wanted, (expected,) = recorded(policy, groups, token_budget=10_000)
    widths = run_out_above(60, monkeypatch, late=late)
    with caplog.at_level(logging.WARNING):
        stats, (found,) = recorded(policy, groups, token_budget=10_000)
    assert max(widths) > 60
    assert "out of memory" in caplog.text
    assert_same_gradients(found, expected, 1e-6)
    assert stats.loss == pytest.approx(wanted.loss, abs=1e-6)
    assert stats.entropy == pytest.approx(wanted.entropy, abs=1e-5)
    assert stats.num_tokens == wanted.num_tokens
    assert wanted.sampling_logp_difference
    assert stats.sampling_logp_difference == pytest.approx(
        wanted.sampling_logp_difference, abs=1e-5
    )


def test_memory_that_does_not_hold_one_row_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    widths = run_out_above(1, monkeypatch)
    with pytest.raises(RuntimeError, match="memory"):
        recorded(tiny_models.policy())
    assert len(widths) < 12


def test_another_error_is_not_taken_for_memory(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    calls = []

    def broken(*_: Any, **__: Any) -> Any:
        calls.append(1)
        raise RuntimeError("shapes cannot be multiplied")

    monkeypatch.setattr(grpo, "completion_logprobs", broken)
    with pytest.raises(RuntimeError, match="shapes"):
        recorded(tiny_models.policy())
    assert len(calls) == 1 and "memory" not in caplog.text


def test_what_memory_errors_look_like() -> None:
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate"))
    assert is_out_of_memory(MemoryError())
    assert not is_out_of_memory(ValueError("out of memory"))
    assert not is_out_of_memory(RuntimeError("shape mismatch"))


@pytest.mark.parametrize("packed", [False, True])
def test_halving_ends_when_every_row_goes_alone(packed: bool) -> None:
    made = [
        TrainingRow(
            group=0, prompt_ids=[1] * 20, completion_ids=[2] * n, advantage=1.0, external=False
        )
        for n in (5, 30, 7, 12)
    ]
    budget, seen = 8192, []
    while True:
        batches = micro_batches(made, budget, packed=packed)
        sizes = [(len(batch), batch_tokens(batch, packed=packed)) for batch in batches]
        if (smaller := halve_budget(budget, sizes)) is None:
            break
        assert smaller <= budget // 2
        budget = smaller
        seen.append(budget)
    assert 1 < len(seen) < 6
    assert all(len(batch) == 1 for batch in batches)
    assert sorted(len(row.completion_ids) for batch in batches for row in batch) == [5, 7, 12, 30]


def test_a_large_micro_batch_does_not_take_in_rows_much_shorter() -> None:
    lengths = [128] * 10 + [60] * 10
    assert [len(batch) for batch in pack(lengths, 8192)] == [10, 10]
    assert [len(batch) for batch in pack([128, 60, 10], 8192)] == [3]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("architecture", tiny_models.ARCHITECTURES)
def test_checkpointing_keeps_less_and_has_the_same_gradients(
    architecture: str, packed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "MAX_COST_RATIO", 0.9 if packed else -1.0)
    policy, steps, kept = tiny_models.policy(architecture), [], []
    for wanted in (False, True):
        recorder, sizes = Recorder(policy), dict[int, int]()

        def keep(tensor: torch.Tensor, sizes: dict[int, int] = sizes) -> torch.Tensor:
            sizes[tensor.data_ptr()] = tensor.nbytes
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            update(policy, recorder, make_groups(), config(gradient_checkpointing=wanted))
        steps += recorder.steps
        kept.append(sum(sizes.values()))
    assert_same_gradients(steps[1], steps[0], 1e-6)
    assert kept[1] < 0.7 * kept[0]
    # Nothing of it is left: generation must not see it.
    assert not any(module.training for module in policy.model.modules())
    assert not policy.model.is_activation_checkpointing


def test_checkpointing_is_refused_where_layers_do_not_support_it() -> None:
    policy = tiny_models.policy()
    policy.model.supports_gradient_checkpointing = False
    with pytest.raises(ValueError, match="gradient_checkpointing"):
        recorded(policy, gradient_checkpointing=True)


def test_the_remaining_budget_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = tiny_models.policy()
    assert recorded(policy)[0].token_budget == 8192
    widths = run_out_above(60, monkeypatch)
    left = recorded(policy)[0].token_budget
    assert 20 <= left <= 100
    widths.clear()
    assert recorded(policy, token_budget=left)[0].token_budget == left
    assert max(widths) <= 60
