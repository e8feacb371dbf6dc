"""Held-out evaluation: pass@1 on questions that training never draws (SAPO section 6, the judge).

Greedy, one answer a question, on texts that `shoal_tasks.split` keeps from training: the same
questions each time, so that two evaluations differ by the policy alone. A family with too few
questions to keep some is not evaluated on. Nothing is shared, nothing is trained on, and no random
state of the training is touched.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from shoal_policy.generation.generator import GenerationRequest
from shoal_policy.generation.local import OnStep
from shoal_policy.generation.local_generator import LocalGenerator
from shoal_policy.model.loading import Policy
from shoal_policy.rollouts import OwnGroup, Question
from shoal_policy.tasks import TaskSource
from shoal_policy.tiny import MODEL_NAMES
from shoal_settings.loader import is_small
from shoal_settings.real_models import EVAL_EVERY
from shoal_settings.schema import Settings
from shoal_tasks.errors import GenerationError
from shoal_wire.types import SamplingParams

FULL_REWARD = 1.0 - 1e-6
"""An answer passes when it earns this: some verifiers give part of the reward."""


CHEAP_EVAL_EVERY = 25
"""Rounds between evaluations of an embedded model, where nothing else is asked for."""


OnAnswers = Callable[[Sequence[OwnGroup], Sequence[float]], None]
"""Told groups of one answer each, and what each earned."""


class EvaluationStopped(Exception):  # noqa: N818 - an order, not a fault
    """The trainer was told to stop before the evaluation was complete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut:
    """The result of an evaluation."""

    round: int
    """Rounds played before it."""
    pass_at_1: float
    """Share of all questions that passed."""
    reward: float
    """Mean over all questions."""
    families: dict[str, float]
    """pass@1 by family."""
    num_items: int
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """Return it as checkpoints, the node and metrics keep it."""
        return {
            "round": self.round,
            "pass@1": self.pass_at_1,
            "reward": self.reward,
            "families": self.families,
            "num_items": self.num_items,
            "seconds": self.seconds,
        }


def evaluation_interval(settings: Settings) -> int:
    """Return the rounds between held-out evaluations; 0 is never.

    By default an embedded model, which answers in milliseconds, often; a large one seldom; one of
    the user's own making never.
    """
    if settings.eval_every >= 0:
        return settings.eval_every
    if settings.model in MODEL_NAMES:
        return CHEAP_EVAL_EVERY
    return 0 if is_small(settings.model) else EVAL_EVERY


def evaluate(
    policy: Policy,
    tasks: TaskSource,
    *,
    round_number: int,
    per_family: int,
    sampling: SamplingParams,
    should_stop: Callable[[], bool] = lambda: False,
    on_step: OnStep = lambda _done, _fraction: None,
    at_once: bool = False,
    on_answers: OnAnswers | None = None,
) -> HeldOut:
    """Answer `per_family` held-out questions of every family and score them.

    `at_once` asks all families together: faster where a call costs more than its tokens.
    A question that the model cannot hold earns nothing. Of `sampling` only ``max_new_tokens``
    counts: the temperature is 0. Blocks; looks at `should_stop` before each family, and tells
    `on_step` after it; `on_answers` hears what was answered. Raises EvaluationStopped, and what
    the task worker raises.
    """
    started = time.perf_counter()
    greedy = replace(sampling, temperature=0.0, top_p=1.0, top_k=0)
    rewards: dict[str, list[float]] = {}
    done = 0
    questions = tasks.held_out(per_family)
    if not questions:
        raise GenerationError("no family of this swarm is large enough to be evaluated on")
    for _, part in groupby(questions, key=lambda one: "" if at_once else one.task.family):
        if should_stop():
            raise EvaluationStopped
        asked = list(part)
        earned = _rewards(policy, tasks, asked, greedy, on_answers)
        for question, reward in zip(asked, earned, strict=True):
            rewards.setdefault(question.task.family, []).append(reward)
        done += len(asked)
        on_step(done, done / len(questions))
    everything = [reward for family in rewards.values() for reward in family]
    return HeldOut(
        round=round_number,
        pass_at_1=_pass_share(everything),
        reward=sum(everything) / len(everything),
        families={family: _pass_share(earned) for family, earned in rewards.items()},
        num_items=len(everything),
        seconds=time.perf_counter() - started,
    )


def _rewards(
    policy: Policy,
    tasks: TaskSource,
    questions: Sequence[Question],
    greedy: SamplingParams,
    on_answers: OnAnswers | None,
) -> list[float]:
    """Return what each question's one answer earned; nothing where it is too long to be asked."""
    groups = LocalGenerator().answer(
        GenerationRequest(
            questions=questions,
            policy=policy,
            policy_version=0,
            num_completions=1,
            sampling=greedy,
            seed=0,
            play=tasks.play,
        )
    )
    rewards = [reward for (reward,) in tasks.verify_own(groups)]
    if on_answers is not None:
        on_answers(groups, rewards)
    earned = dict(zip((id(group.question) for group in groups), rewards, strict=True))
    return [earned.get(id(question), 0.0) for question in questions]


def _pass_share(rewards: Sequence[float]) -> float:
    return sum(reward >= FULL_REWARD for reward in rewards) / len(rewards)
