"""Held-out evaluation: pass@1 on questions that training never samples (SAPO section 6, the judge).

Greedy, one answer per question, on texts that `shoal_tasks.split` excludes from training: always
the same questions, so that two evaluations differ only by the policy. Families with too few
questions are not evaluated. Nothing is shared or trained on, and no random state of the training
changes.
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
"""Minimum reward of a passed answer: some verifiers give partial rewards."""


MAX_EXAMPLE_CHARS = 2_000
"""Longest shown question or answer; a longer question is not chosen."""

CHEAP_EVAL_EVERY = 25
"""Default number of rounds between evaluations of an embedded model."""


OnAnswers = Callable[[Sequence[OwnGroup], Sequence[float]], None]
"""Receives groups of one answer each, and their rewards."""


class EvaluationStopped(Exception):  # noqa: N818 - an order, not a fault
    """The trainer was stopped before the evaluation was complete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut:
    """The result of an evaluation."""

    round: int
    """Rounds completed before it."""
    pass_at_1: float
    """Share of all questions that passed."""
    reward: float
    """Mean over all questions."""
    families: dict[str, float]
    """pass@1 by family."""
    items: dict[str, int]
    """Number of questions by family."""
    num_items: int
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """Return it in the form used by checkpoints, node and metrics."""
        return {
            "round": self.round,
            "pass@1": self.pass_at_1,
            "reward": self.reward,
            "families": self.families,
            "items": self.items,
            "num_items": self.num_items,
            "seconds": self.seconds,
        }


def evaluation_interval(settings: Settings) -> int:
    """Return the rounds between held-out evaluations; 0 means never.

    By default often for an embedded model, which answers in milliseconds; rarely for a large one;
    never for a small model of the user's own.
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

    `at_once` batches all families: faster if a call costs more than its tokens. A question that
    exceeds the model's positions earns nothing. Of `sampling` only ``max_new_tokens`` applies: the
    temperature is 0. Blocks; checks `should_stop` before each family and calls `on_step` after it;
    `on_answers` receives the answers. Raises EvaluationStopped, and what the task worker raises.
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
        batch = list(part)
        earned = _rewards(policy, tasks, batch, greedy, on_answers)
        for question, reward in zip(batch, earned, strict=True):
            rewards.setdefault(question.task.family, []).append(reward)
        done += len(batch)
        on_step(done, done / len(questions))
    everything = [reward for family in rewards.values() for reward in family]
    return HeldOut(
        round=round_number,
        pass_at_1=_pass_share(everything),
        reward=sum(everything) / len(everything),
        families={family: _pass_share(earned) for family, earned in rewards.items()},
        items={family: len(earned) for family, earned in rewards.items()},
        num_items=len(everything),
        seconds=time.perf_counter() - started,
    )


def example_of(
    answered: Sequence[tuple[OwnGroup, float]], question: str | None
) -> dict[str, Any] | None:
    """Return one answer for people: to `question`, or to the first that was not answered right.

    The first evaluation chooses the question, and later ones follow it, so that no answer is picked
    because it is good. Games have none. None if there is no such question.
    """
    plain = [(group, reward) for group, reward in answered if not group.question.max_turns]
    for group, reward in plain:
        text = group.question.text
        is_new = question is None and reward < FULL_REWARD and len(text) <= MAX_EXAMPLE_CHARS
        if text == question or is_new:
            answer = group.answers[0].text
            return {"question": text, "answer": answer[:MAX_EXAMPLE_CHARS], "reward": reward}
    return None


def _rewards(
    policy: Policy,
    tasks: TaskSource,
    questions: Sequence[Question],
    greedy: SamplingParams,
    on_answers: OnAnswers | None,
) -> list[float]:
    """Return the reward of each question's answer; 0 if the question does not fit."""
    groups = LocalGenerator().generate(
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
