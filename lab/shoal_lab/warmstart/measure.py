"""How often a policy is right: sampled as the trainer samples, on questions it never trained on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch

from shoal_lab.warmstart.lessons import Lesson
from shoal_policy.generation.local import generate
from shoal_policy.model.loading import Policy
from shoal_policy.model.prompting import encode_prompt
from shoal_policy.tiny.tokenizer import CLEAN
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
