"""Own answers by the model that made them, with the log-probabilities for the update."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from shoal_policy.choice.scored import ScoredGroup
from shoal_policy.model.loading import Policy
from shoal_policy.rollouts import Answer, Origin, OwnGroup, Question
from shoal_policy.round.own import to_scored_group
from shoal_policy.update.grpo import TrainGroup
from shoal_wire.types import FinishReason, SamplingParams
from tests.policy import tiny_models
from tests.policy.update.update_cases import (
    assert_same_gradients,
    group_of,
    own_logprobs,
    recorded,
)
from tests.support import factories as make

SAMPLING = tiny_models.sampling(4, temperature=0.8)
IDS = ((7, 9, 2), (8, 30, 11), (12, 2))


def own_group(origin: Origin, logprob: float = -1.5) -> OwnGroup:
    task = make.task(1, question="1+1?")
    answers = tuple(
        Answer(ids=ids, text="x", finish_reason=FinishReason.STOP, logprobs=(logprob,) * len(ids))
        for ids in IDS
    )
    question = Question(task=task, text="1+1?", tagged=False)
    return OwnGroup(question=question, answers=answers, origin=origin)


def scored(
    policy: Policy, origin: Origin, sampling: SamplingParams = SAMPLING, **answer: float
) -> ScoredGroup:
    return to_scored_group(policy, own_group(origin, **answer), (1.0, 0.0, 0.0), sampling)


def test_each_origin_says_another_thing() -> None:
    policy, logprobs = tiny_models.policy(), tuple((-1.5,) * len(ids) for ids in IDS)
    by_policy = scored(policy, Origin.POLICY)
    assert (by_policy.start_logprobs, by_policy.sampling_logprobs, by_policy.external) == (
        logprobs,
        None,
        False,
    )
    follower = scored(policy, Origin.FOLLOWER)
    assert (follower.start_logprobs, follower.sampling_logprobs, follower.external) == (
        None,
        logprobs,
        False,
    )
    another = scored(policy, Origin.ANOTHER)
    assert (another.start_logprobs, another.sampling_logprobs, another.external) == (
        None,
        None,
        True,
    )


def test_what_was_drawn_otherwise_is_not_taken_for_the_start() -> None:
    policy = tiny_models.policy()
    for changes in ({"top_p": 0.9}, {"top_k": 5}, {"temperature": 0.0}):
        narrow = dataclasses.replace(SAMPLING, **changes)
        assert scored(policy, Origin.POLICY, narrow).start_logprobs is None
    half = dataclasses.replace(policy, autocast_dtype=torch.bfloat16)
    rounded = scored(half, Origin.POLICY)
    assert rounded.start_logprobs is None
    assert rounded.sampling_logprobs == tuple((-1.5,) * len(ids) for ids in IDS)
    assert scored(half, Origin.POLICY, narrow).sampling_logprobs is None
    absurd = scored(policy, Origin.FOLLOWER, logprob=-99.0)
    assert absurd.sampling_logprobs == (None, None, None)


def train_groups() -> list[TrainGroup]:
    return [group_of([1, 5 + number, 4], IDS, (1.0, -0.5, -0.5)) for number in range(3)]


def test_known_start_log_probabilities_are_not_computed_again() -> None:
    policy = tiny_models.policy()
    plain = train_groups()
    known = [
        dataclasses.replace(group, start_logprobs=own_logprobs(policy.model, group))
        for group in plain
    ]
    found = []
    for groups in (plain, known):
        one, forwards = tiny_models.policy(), list[int]()
        one.model.base_model.register_forward_hook(lambda *_, seen=forwards: seen.append(1))
        found.append((recorded(one, groups, minibatches=3)[1], len(forwards)))
    (steps, all_forwards), (known_steps, fewer) = found
    assert fewer < all_forwards
    for step, other in zip(steps, known_steps, strict=True):
        assert_same_gradients(step, other)


@pytest.mark.parametrize("minibatches", [1, 3])
@pytest.mark.parametrize("shift", [0.0, 0.5, -5.0])
def test_a_followers_text_is_weighed_by_what_it_says(minibatches: int, shift: float) -> None:
    """By exp(own − server), at most the cap: here the same for all tokens, so for the gradient."""
    policy = tiny_models.policy()
    groups = [
        dataclasses.replace(
            group,
            sampling_logprobs=[
                [value + shift for value in row] for row in own_logprobs(policy.model, group)
            ],
        )
        for group in train_groups()
    ]
    _, plain = recorded(policy, train_groups(), minibatches=minibatches)
    _, weighed = recorded(policy, groups, minibatches=minibatches)
    factor = min(2.0, torch.tensor(-shift).exp().item())
    for step, other in zip(plain, weighed, strict=True):
        assert_same_gradients({name: factor * value for name, value in step.items()}, other)
