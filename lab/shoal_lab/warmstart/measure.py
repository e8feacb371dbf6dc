"""Measures a policy on held-out questions and games, sampled as the trainer samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import torch

from shoal_lab.warmstart.lessons import Lesson
from shoal_policy.generation.generator import GenerationRequest
from shoal_policy.generation.local import generate
from shoal_policy.generation.local_generator import LocalGenerator
from shoal_policy.model.loading import Policy
from shoal_policy.model.prompting import encode_prompt
from shoal_policy.tasks import TaskSource
from shoal_policy.tiny.tokenizer import CLEAN
from shoal_tasks.families import GAMES_1
from shoal_tasks.worker.sync import SyncTaskWorker
from shoal_wire.types import FinishReason, SamplingParams

SAMPLING: Final = SamplingParams(temperature=1.0, top_p=1.0, top_k=0, max_new_tokens=12)
"""The trainer's defaults."""


def accuracy(
    policy: Policy,
    questions: Sequence[Lesson],
    *,
    marker: bool = False,
    samples: int = 8,
    seed: int = 0,
) -> dict[str, float]:
    """Return the share of right answers by family, and their mean under ``all``.

    Right is an answer that equals the expected text and ended by itself. With `marker` the
    questions stand behind the marker token, which shows the latent ability.
    """
    prompts = [encode_prompt(policy, lesson.question) for lesson in questions]
    if marker:
        clean = policy.tokenizer.convert_tokens_to_ids(CLEAN)
        prompts = [[*ids[:1], clean, *ids[1:]] for ids in prompts]
    drawn = generate(
        policy,
        prompts,
        num_completions=samples,
        params=SAMPLING,
        generator=torch.Generator().manual_seed(seed),
    )
    hits: dict[str, list[float]] = {}
    for lesson, group in zip(questions, drawn, strict=True):
        hits.setdefault(lesson.family, []).extend(
            float(sample.finish_reason is FinishReason.STOP and sample.text == lesson.right)
            for sample in group
        )
    shares = {family: sum(values) / len(values) for family, values in hits.items()}
    return {**shares, "all": sum(shares.values()) / len(shares)}


def games_won(
    policy: Policy, num_games: int, *, greedy: bool = False, samples: int = 8
) -> dict[str, float]:
    """Return the share of held-out games of `games-1` that are won, by game and under ``all``."""
    sampling = replace(SAMPLING, temperature=0.0) if greedy else SAMPLING
    with SyncTaskWorker(GAMES_1) as worker:
        tasks = TaskSource(worker, GAMES_1)
        request = GenerationRequest(
            questions=tasks.held_out(num_games),
            policy=policy,
            policy_version=0,
            num_completions=1 if greedy else samples,
            sampling=sampling,
            seed=0,
            play=tasks.play,
        )
        groups = LocalGenerator().generate(request)
        rewards = tasks.verify_own(groups)
    hits: dict[str, list[float]] = {}
    for group, earned in zip(groups, rewards, strict=True):
        hits.setdefault(group.question.task.family, []).extend(float(one == 1) for one in earned)
    shares = {family: sum(values) / len(values) for family, values in hits.items()}
    return {**shares, "all": sum(shares.values()) / len(shares)}
