"""The update of games: tokens of the environment are read by the policy, never trained on.

That loss and gradients are those of masked GRPO is asked of TRL, in `test_trl_oracle.py`.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from shoal_policy.model.loading import Policy
from shoal_policy.update.grpo import GrpoConfig, TrainGroup, make_optimizer, update
from tests.policy import tiny_models
from tests.policy.update.update_cases import Recorder, group_of, own_logprobs, recorded

POLICY = tiny_models.policy()

Turn = tuple[list[int], list[int]]
"""A message of the policy and what the environment answers."""


def completion(game: list[Turn]) -> tuple[list[int], tuple[int, ...]]:
    """A game's ids and the places of the policy's; the last answer is not in it."""
    ids: list[int] = []
    positions: list[int] = []
    for number, (message, answer) in enumerate(game):
        positions += range(len(ids), len(ids) + len(message))
        ids += message + (answer if number < len(game) - 1 else [])
    return ids, tuple(positions)


def game(seed: int = 0, **changes: Any) -> TrainGroup:
    rng = random.Random(seed)
    rows = [
        completion([(tokens(rng, 3), tokens(rng, 4)), (tokens(rng, 2), tokens(rng, 1))])
        for _ in range(4)
    ]
    ids, positions = zip(*rows, strict=True)
    made = group_of([1, 7, 8, 4], ids, [1.0, -1.0, 0.5, -0.5], completion_positions=positions)
    return replace(made, **changes)


def tokens(rng: random.Random, count: int) -> list[int]:
    return [rng.randrange(5, 50) for _ in range(count)]


@pytest.mark.parametrize(
    "policy", [POLICY, replace(POLICY, logit_form=None)], ids=["packed", "padded"]
)
def test_only_policy_tokens_are_counted(policy: Policy) -> None:
    group = game()
    stats, _ = recorded(policy, [group], max_completion_tokens=60)
    assert (
        stats.num_tokens
        == sum(len(positions or ()) for positions in group.completion_positions or ())
        == 20
    )


@pytest.mark.parametrize("name", ["old_logprobs", "start_logprobs", "sampling_logprobs"])
def test_log_probabilities_belong_to_policy_tokens(name: str) -> None:
    """Several steps read them: they are the policy's own, so the result is that without them."""

    def trained(**given_too: Any) -> Any:
        policy = tiny_models.policy()
        config = GrpoConfig(max_completion_tokens=60, epochs=2, minibatches=2)
        made = [game(seed) for seed in range(2)]
        if given_too:
            reported: list[dict[str, Any]] = [
                {name: own_logprobs(policy.model, one)} for one in made
            ]
            made = [replace(one, **own) for one, own in zip(made, reported, strict=True)]
        update(policy, make_optimizer(policy, lr=1e-2), made, config)
        return policy.model.state_dict()

    plain, with_them = trained(), trained(given=True)
    for weight, value in plain.items():
        assert torch.allclose(with_them[weight], value, atol=1e-4), weight
    with pytest.raises(ValueError, match="one value per token"):
        whole: Any = [[-1.0] * len(ids) for ids in game().completions]
        update(POLICY, Recorder(POLICY), [game(**{name: whole})], GrpoConfig())


def test_the_limit_of_an_answer_is_not_that_of_a_game() -> None:
    """A message has that many tokens at most; a game is bounded by the model's positions."""

    def left_out(group: TrainGroup, limit: int) -> int:
        return recorded(POLICY, [group], max_completion_tokens=limit)[0].skipped_too_long

    assert left_out(game(completion_positions=None), 3) == 4
    assert left_out(game(), 3) == 0
    long: Sequence[Sequence[int]] = [[5] * 200] * 4
    assert left_out(game(completions=long, completion_positions=[(0, 199)] * 4), 3) == 4


def test_planted_text_is_masked_among_policy_tokens() -> None:
    """The verifier's mask has one value per policy token, too."""
    group = game(external=True)
    unscored_mask = [
        tuple(place == 0 for place in range(len(positions or ())))
        for positions in group.completion_positions or ()
    ]
    _, (masked,) = recorded(POLICY, [replace(group, unscored_mask=unscored_mask)])
    _, (plain,) = recorded(POLICY, [group])
    assert any(not torch.equal(plain[name], grad) for name, grad in masked.items())
