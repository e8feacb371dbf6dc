"""The rewarded text is the one trained on, and others' groups weigh no more than own ones.

Hostile groups of every family go through the real drawing, scoring, choice and reading, into the
rows of an update.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from shoal_policy.choice.advantage import completion_share, group_advantages
from shoal_policy.choice.strategy import parse_strategy
from shoal_policy.model.loading import Policy, load_policy
from shoal_policy.model.prompting import decode_completion
from shoal_policy.node.link import NodeLink
from shoal_policy.rollouts import Question
from shoal_policy.round.config import RoundConfig, round_config
from shoal_policy.round.external import ExternalSampler
from shoal_policy.tasks import TaskSource
from shoal_policy.update.losses import LOSSES
from shoal_policy.update.rows import TrainingRow, assign_token_weights, make_rows
from shoal_policy.update.training_set import build_train_group
from shoal_settings.schema import Settings
from shoal_tasks.families import PRESETS
from shoal_tasks.prompts import answer_text
from shoal_tasks.worker.sync import SyncTaskWorker
from shoal_wire.types import Completion, FinishReason, PublishedGroup, RolloutGroup
from tests.policy import tiny_models
from tests.policy import training_cases as case
from tests.policy.update.update_cases import group_of

SPECS = tuple({spec.name: spec for preset in PRESETS.values() for spec in preset}.values())
LONGEST = 48
PREFACES = (
    "",
    " ",
    " " * 40,
    "\t\t",
    "so ",
    "buyit",
    "<answer>0</answer>",
    "<answer>",
    "é",
    "e\u0301",
)
BEHIND = ("", " ", "\t\t", " buy", "<eos>", "\n" * 50, "\u3000", "</answer>")


class OneShotNode(NodeLink):
    """A node that offers these groups, once."""

    def __init__(self, groups: Sequence[PublishedGroup]) -> None:
        super().__init__(None)
        self._groups = tuple(groups)

    def sample(self, count: int) -> tuple[PublishedGroup, ...]:
        given, self._groups = self._groups[:count], self._groups[count:]
        return given


@functools.cache
def worker() -> SyncTaskWorker:
    made = SyncTaskWorker(SPECS)
    made.start()
    return made


@functools.cache
def tasks() -> TaskSource:
    return TaskSource(worker(), SPECS)


class OneFamilyTasks(TaskSource):
    """Draws the questions of one family."""

    def __init__(self, name: str) -> None:
        super().__init__(worker(), SPECS)
        self._requested = [spec for spec in SPECS if spec.name == name]

    def draw(self, rng: random.Random, count: int) -> list[Question]:
        found: list[Question] = []
        while len(found) < count:  # a question that is held out is not drawn
            drawn = worker().draw(rng, count - len(found), families=self._requested)
            found += [self.question(at, text) for at, text in drawn]
        return found


@functools.cache
def policies() -> tuple[Policy, ...]:
    return load_policy("tiny"), tiny_models.policy("qwen2", positions=4096)


def hostile_group(rng: random.Random, name: str, number: int) -> RolloutGroup:
    """Right answers in odd clothes, near misses and noise, up to as many as a swarm allows."""
    source = tasks()
    (question,) = OneFamilyTasks(name).draw(rng, 1)
    (right,) = source.expected([question.task])
    right = right or "0"
    count = rng.choice((2, 3, 8, 16, 64))
    made = []
    for _ in range(count):
        message = right if rng.random() < 0.5 else right[:-1] + rng.choice("0123456789ab")
        text = answer_text(message, tagged=question.tagged)
        if rng.random() < 0.6:
            text = rng.choice(PREFACES) + text + rng.choice(BEHIND)
        finish = rng.choice((FinishReason.STOP, FinishReason.STOP, FinishReason.LENGTH))
        made.append(Completion(text=text, num_tokens=max(1, len(text)), finish_reason=finish))
    return RolloutGroup(task=question.task, completions=tuple(made))


def sampled(group: RolloutGroup, number: int) -> PublishedGroup:
    published = case.published(group, f"peer{number}")
    return replace(published, network=f"n{number}")


def config_of(strategy: str, loss: str) -> RoundConfig:
    return round_config(
        Settings(
            strategy=strategy,
            loss_type=loss,  # type: ignore[arg-type]
            max_new_tokens=LONGEST,
            external=8,
        ),
        seed=1,
    )


STRATEGIES = ("positive+balance", "uniform")


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_what_is_trained_on_is_the_text_that_earned_its_reward(spec: object) -> None:
    """Eight hostile groups of each family, by two models with a strategy each."""
    rng = random.Random(spec.name)  # type: ignore[attr-defined]
    groups = [
        sampled(hostile_group(rng, spec.name, number), number)  # type: ignore[attr-defined]
        for number in range(8)
    ]
    for policy, strategy in zip(policies(), STRATEGIES, strict=True):
        config = config_of(strategy, rng.choice(sorted(LOSSES)))
        context = case.surroundings(OneShotNode(groups), tasks=tasks())
        external = ExternalSampler(policy, context).sample(config)
        for scored in external.groups:
            assert scored.source is not None
            given_texts = scored.source.group.completions
            bodies = [
                (ids[:-1], FinishReason.STOP)
                if ids and ids[-1] == policy.eos_id
                else (ids, FinishReason.LENGTH)
                for ids in scored.completions
            ]
            read = [
                Completion(
                    text=decode_completion(policy, list(ids)),
                    num_tokens=max(1, len(ids)),
                    finish_reason=finish,
                )
                for ids, finish in bodies
            ]
            known = {(one.text, one.finish_reason) for one in given_texts}
            assert {(one.text, one.finish_reason) for one in read} <= known
            (earned,) = tasks().verify([(scored.question.task, read)])
            assert tuple(earned) == scored.rewards
            made = build_train_group(
                policy, scored, config.strategy, config.advantage_scale, config.num_completions
            )
            (rows,), too_long = make_rows(policy, [made], config.grpo)
            assert not too_long
            assert [row.completion_ids for row in rows] == list(made.completions)
            assert all(len(row.completion_ids) <= LONGEST + 1 for row in rows)


REWARDS = st.lists(st.sampled_from([0.0, 0.5, 1.0, 0.1]), min_size=2, max_size=64)


@hypothesis_settings(max_examples=100, deadline=None)
@given(
    theirs=REWARDS,
    own=st.integers(2, 16),
    loss=st.sampled_from(sorted(LOSSES)),
    scale=st.sampled_from(["group", "none"]),
    strategy=st.sampled_from(STRATEGIES),
    lengths=st.randoms(use_true_random=False),
)
def test_no_group_of_others_weighs_more_than_an_own_one_can(
    theirs: list[float], own: int, loss: str, scale: str, strategy: str, lengths: random.Random
) -> None:
    """A hundred groups: the sum over tokens of |advantage| × weight, and the largest own."""
    chosen = parse_strategy(strategy)
    advantages = group_advantages(theirs, scale)  # type: ignore[arg-type]
    others = group_of(
        [5],
        [[7] * lengths.randint(1, LONGEST) for _ in chosen.select_completions(advantages)],
        [advantages[index] for index in chosen.select_completions(advantages)],
        external=True,
        share=completion_share(len(theirs), own),
    )
    half = [float(index < own // 2) for index in range(own)]
    mine = group_of(
        [5],
        [[7] * LONGEST] * own,
        group_advantages(half, scale),  # type: ignore[arg-type]
    )
    config = dataclasses.replace(config_of(strategy, loss).grpo, max_completion_tokens=LONGEST)
    (their_rows, own_rows), _ = make_rows(policies()[1], [others, mine], config)
    assign_token_weights([*their_rows, *own_rows], config)
    unit = own_rows[0].weight * LONGEST
    bound = math.sqrt(own * (own - 1)) if scale == "group" else own / 2
    assert weight_of(their_rows) <= bound * unit * (1 + 1e-6)


def weight_of(rows: Sequence[TrainingRow]) -> float:
    return sum(abs(row.advantage) * row.weight * len(row.completion_ids) for row in rows)
