"""Whole rounds of a game of three turns: a policy learns it alone, and from another's games."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial

import pytest
import torch

from shoal_policy.evaluate import evaluate
from shoal_policy.generation.local_generator import LocalGenerator
from shoal_policy.model.loading import Policy
from shoal_policy.node.link import NodeLink
from shoal_policy.rollouts import OwnGroup, shareable
from shoal_policy.sapo import RoundOutcome
from shoal_policy.tasks import TaskSource
from shoal_tasks.turns import split_messages
from shoal_tasks.worker.sync import SyncTaskWorker
from shoal_wire.types import RolloutGroup
from tests.policy import tiny_models
from tests.policy import training_cases as case
from tests.policy.generation.vllm_cases import SAMPLING, request_of
from tests.support import factories as make
from tests.support.local_node import NodeThread
from tests.tasks.games import game_family

GAME = """
class Game:
    def reset(self, seed):
        self.left = 3
        return "say a"

    def step(self, message):
        self.left -= 1
        return f"{self.left} left", ("a" in message) / 3, self.left == 0
"""
ALONE = NodeLink(None)


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TaskSource]:
    spec = game_family(tmp_path_factory.mktemp("game"), GAME, max_turns=3)
    with SyncTaskWorker([spec]) as worker:
        yield TaskSource(worker, [spec])


def fresh_policy(seed: int = 0) -> Policy:
    """A random policy that ends its messages often enough to see a second turn."""
    policy = tiny_models.policy("llama", positions=256, seed=seed)
    with torch.no_grad():
        policy.model.get_output_embeddings().weight[policy.eos_id] *= 4
    return policy


rounds = partial(case.rounds, local=4, num_completions=8, sampling=SAMPLING, lr=4e-3)
"""Rounds of games."""


def reward_of(outcomes: list[RoundOutcome]) -> float:
    rewards = [outcome.record.reward_local or 0.0 for outcome in outcomes]
    return sum(rewards) / len(rewards)


def test_a_policy_learns_a_game_of_three_turns(tasks: TaskSource) -> None:
    policy = fresh_policy()
    playing = rounds(policy, tasks, ALONE)
    outcomes = [playing.run_round(number, number - 1) for number in range(1, 41)]
    assert sum(outcome.stats.num_steps for outcome in outcomes) > 20
    assert not any(outcome.stats.skipped_too_long for outcome in outcomes)
    before, after = reward_of(outcomes[:4]), reward_of(outcomes[-4:])
    assert before < 0.3 and after > 0.6, (before, after)
    last = [answer for group in outcomes[-1].own for answer in group.answers]
    assert max(len(split_messages(answer.text)) for answer in last) == 3
    for outcome in outcomes:
        counts = [answer.num_completion_tokens for group in outcome.own for answer in group.answers]
        assert outcome.record.tokens_generated == sum(counts), "the environment's are not generated"


def test_held_out_games_are_played_for_the_evaluation(tasks: TaskSource) -> None:
    """Greedy, one game a question, scored by replay."""
    received: list[tuple[OwnGroup, float]] = []
    found = evaluate(
        fresh_policy(),
        tasks,
        round_number=1,
        per_family=5,
        sampling=SAMPLING,
        on_answers=lambda groups, rewards: received.extend(zip(groups, rewards, strict=True)),
    )
    assert found.num_items == len(received) == 5
    assert found.reward == pytest.approx(sum(reward for _, reward in received) / 5)
    for group, reward in received:
        (answer,) = group.answers
        earned = sum("a" in message for message in split_messages(answer.text)) / 3
        assert answer.completion_positions is not None and reward == pytest.approx(earned)


def games_of(policy: Policy, tasks: TaskSource, count: int) -> list[OwnGroup]:
    requested = tasks.draw(random.Random(3), count)
    return LocalGenerator().generate(
        request_of(policy, requested, num_completions=8, play=tasks.play)
    )


def shared(groups: list[OwnGroup]) -> list[RolloutGroup]:
    found = [shareable(group, make.swarm().rules) for group in groups]
    return [one.group for one in found if one is not None]


def test_another_learns_from_games_that_it_did_not_play(
    node: NodeThread, link: NodeLink, tasks: TaskSource
) -> None:
    """It has their messages alone, and replays what they were answered and what they earned."""
    groups = shared(games_of(fresh_policy(), tasks, 6))
    assert any(len(split_messages(c.text)) > 1 for group in groups for c in group.completions)
    case.send(node, groups)
    policy = fresh_policy(seed=1)
    before = case.weights(policy)
    outcome = rounds(policy, tasks, link, local=0, external=3).run_round(1, 0)
    assert outcome.record.groups_external >= 1
    assert outcome.record.reward_external is not None and outcome.record.reward_external > 0
    assert outcome.stats.num_steps == 1
    assert not case.same_weights(before, case.weights(policy))
    texts = {c.text: c for group in groups for c in group.completions}
    assert outcome.stats.num_tokens <= sum(c.num_tokens for c in texts.values()) * 2
