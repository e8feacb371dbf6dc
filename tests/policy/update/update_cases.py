"""An update compared with a plain implementation that keeps all logits and knows of no packing."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from shoal_policy.model.loading import Policy
from shoal_policy.update.grpo import GrpoConfig, TrainGroup, UpdateStats, update

EOS = 2
LIMIT = 24


def config(**changes: Any) -> GrpoConfig:
    """Settings that clip no gradient."""
    return GrpoConfig(**{"max_grad_norm": 0.0, "max_completion_tokens": LIMIT, **changes})


def group_of(
    prompt_ids: Sequence[int],
    completions: Sequence[Sequence[int]],
    advantages: Sequence[float] | None = None,
    **changes: Any,
) -> TrainGroup:
    """An own group; each of its completions has advantage 1 by default."""
    reported = [1.0] * len(completions) if advantages is None else advantages
    fields = {"external": False, **changes}
    return TrainGroup(prompt_ids=prompt_ids, completions=completions, advantages=reported, **fields)


def make_groups(seed: int = 0) -> list[TrainGroup]:
    """Mixed prompt and completion lengths, mixed L; some completions cut, one group silent."""
    rng = random.Random(seed)
    groups = []
    for number, size in enumerate((4, 2, 7, 3)):
        ends = [[EOS] if rng.random() < 0.6 else [] for _ in range(size)]
        completions = [[rng.randrange(5, 50) for _ in range(rng.randint(1, 20))] for _ in ends]
        silent = number == 3
        groups.append(
            group_of(
                [1, *(rng.randrange(5, 50) for _ in range(rng.randint(1, 15))), 4],
                [ids + end for ids, end in zip(completions, ends, strict=True)],
                [0.0 if silent else rng.uniform(-2, 2) for _ in range(size)],
                external=bool(number % 2),
            )
        )
    groups[0] = dataclasses.replace(groups[0], advantages=[1.5, 0.0, -0.5, -1.0])
    return groups


def plain_logprobs(
    model: Any, prompt: Sequence[int], ids: Sequence[int], temperature: float = 1.0
) -> torch.Tensor:
    """One row, no padding, no trick."""
    logits = model(input_ids=torch.tensor([[*prompt, *ids]])).logits[0] / temperature
    places = torch.arange(len(prompt) - 1, len(prompt) + len(ids) - 1)
    return torch.log_softmax(logits, -1)[places, torch.tensor(ids)]


def own_logprobs(model: Any, group: TrainGroup, temperature: float = 1.0) -> list[list[float]]:
    """The model's log-probabilities of the policy tokens of each completion."""
    found = []
    positions_of = group.completion_positions or [None] * len(group.completions)
    for ids, positions in zip(group.completions, positions_of, strict=True):
        with torch.no_grad():
            row = plain_logprobs(model, group.prompt_ids, ids, temperature).tolist()
        found.append(row if positions is None else [row[place] for place in positions])
    return found


def plain_loss(model: Any, groups: Sequence[TrainGroup], config: GrpoConfig) -> torch.Tensor:
    """GRPO's loss as the papers write it, before the first step."""
    sums, lengths = [], []
    for group in groups:
        for ids, advantage in zip(group.completions, group.advantages, strict=True):
            now = plain_logprobs(model, group.prompt_ids, ids, config.temperature)
            tokens = []
            for ratio in torch.exp(now - now.detach()):
                unclipped = ratio * advantage
                held = torch.clip(ratio, 1 - config.epsilon_low, 1 + config.epsilon_high)
                tokens.append(-torch.min(unclipped, held * advantage))
            sums.append(torch.stack(tokens).sum())
            lengths.append(len(ids))
    return sum(s / n for s, n in zip(sums, lengths, strict=True)) / len(sums)


def _gradients(model: Any) -> dict[str, torch.Tensor]:
    weights = model.named_parameters()
    return {name: weight.grad.clone() for name, weight in weights if weight.grad is not None}


def gradients_of(model: Any, loss: torch.Tensor) -> dict[str, torch.Tensor]:
    """The gradients of a loss."""
    model.zero_grad(set_to_none=True)
    loss.backward()
    return _gradients(model)


class Recorder:
    """Stands in for an optimiser: keeps the gradients of each step instead of stepping."""

    def __init__(self, policy: Policy) -> None:
        self.model = policy.model
        self.steps: list[dict[str, torch.Tensor]] = []

    def zero_grad(self, *, set_to_none: bool) -> None:
        """Forget the last step's."""
        self.model.zero_grad(set_to_none=set_to_none)

    def step(self) -> None:
        """Keep what it has come to."""
        self.steps.append(_gradients(self.model))


def recorded(
    policy: Policy,
    groups: Sequence[TrainGroup] | None = None,
    reference: Policy | None = None,
    *,
    settings: GrpoConfig | None = None,
    **changes: Any,
) -> tuple[UpdateStats, list[dict[str, torch.Tensor]]]:
    """An update's figures and the gradients of its steps; `changes` are of `config`."""
    recorder = Recorder(policy)
    made = make_groups() if groups is None else groups
    how = settings or config(**changes)
    return update(policy, recorder, made, how, reference), recorder.steps


def assert_same_gradients(
    got: dict[str, torch.Tensor], expected: dict[str, torch.Tensor], tolerance: float = 1e-5
) -> None:
    """All of them are there, and alike."""
    assert got.keys() == expected.keys()
    for name, grad in got.items():
        assert torch.allclose(grad, expected[name], rtol=1e-4, atol=tolerance), name


def assert_plain(
    policy: Policy, groups: Sequence[TrainGroup] | None = None, **changes: Any
) -> UpdateStats:
    """Update once: loss, gradients and their norm are the plain implementation's."""
    made = make_groups() if groups is None else groups
    stats, (step,) = recorded(policy, made, **changes)
    expected = plain_loss(policy.model, made, config(**changes))
    assert stats.loss == pytest.approx(float(expected.detach()), abs=1e-5)
    gradients = gradients_of(policy.model, expected)
    assert_same_gradients(step, gradients)
    norm = math.sqrt(sum(float((grad**2).sum()) for grad in gradients.values()))
    assert norm > 0.01
    assert stats.grad_norm == pytest.approx(norm, rel=1e-4)
    return stats
