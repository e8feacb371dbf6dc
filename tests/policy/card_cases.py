"""Prints as JSON what a pretended card counts for one kind of work, of each size that is asked for.

PyTorch asks once how many devices there are, at the first backward pass. So the card has to be
there before, and no other test may run in its process.

    python -m tests.policy.card_cases update 4 16
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

from shoal_policy.model.examples import FamilyExamples, FewShotExamples
from shoal_policy.model.loading import Policy
from shoal_policy.update.grpo import GrpoConfig, TrainGroup, make_optimizer, update
from tests.policy import tiny_models
from tests.policy.update.update_cases import group_of
from tests.support.pretended_device import Pretended

PROMPTS = [[1, 20, 21, 22, 4], [1, 30, 31, 32, 4], [1, 9, 9, 14, 4]]
NEVER = frozenset({-1})
LONG = [1, *(20 + n % 30 for n in range(60)), 4]


def _groups(count: int) -> list[TrainGroup]:
    """Return groups of two answers, every other one of another node, on one long prompt."""
    return [
        group_of(
            LONG,
            [[30, 31 + number, 2], [33, 34, 35, 36, 2]],
            [1.0, -1.0],
            external=bool(number % 2),
        )
        for number in range(count)
    ]


def _updated(policy: Policy, count: int) -> list[float]:
    stats = update(policy, make_optimizer(policy, lr=1e-3), _groups(count), GrpoConfig())
    return [stats.loss, stats.grad_norm, stats.entropy]


def _answered(
    policy: Policy, tokens: int, prompts: Sequence[Sequence[int]] = PROMPTS
) -> list[float]:
    made = tiny_models.draw(policy, prompts, num=2, params=tiny_models.sampling(tokens))
    return [float(one) for samples in made for sample in samples for one in sample.ids]


def _plain() -> Policy:
    """One that the decoder of small models leaves to transformers, and that ends nothing early."""
    policy = tiny_models.policy("qwen2")
    return dataclasses.replace(policy, logit_form=None, eos_ids=NEVER)


def _with_examples(count: int) -> Policy:
    """One whose prompts begin with the worked examples of several families, of unequal length."""
    shown = {
        str(family): FamilyExamples(count=1, examples=(), prefix=tuple(_prefix(family)))
        for family in range(count)
    }
    return dataclasses.replace(
        tiny_models.policy("qwen2"), few_shot=FewShotExamples(shown), eos_ids=NEVER
    )


def _prefix(family: int) -> list[int]:
    return [1, *(5 + (family * 7 + n) % 50 for n in range(20 + family))]


def _answered_behind_examples(policy: Policy, tokens: int) -> list[float]:
    families = range(len(policy.few_shot.families))
    prompts = [[*_prefix(family), *PROMPTS[family % 3]] for family in families]
    return _answered(policy, tokens, prompts)


KINDS: dict[str, tuple[Callable[[], Policy], Callable[[Policy, int], list[float]]]] = {
    "update": (lambda: tiny_models.policy("qwen2"), _updated),
    "answer": (_plain, _answered),
    "answer with an adapter": (lambda: tiny_models.with_adapter(_plain()), _answered),
    "answer in 1 family": (lambda: _with_examples(1), _answered_behind_examples),
    "answer in 11 families": (lambda: _with_examples(11), _answered_behind_examples),
}


def main(kind: str, size: int) -> dict[str, Any]:
    """Do the work on the card and on the host; return what was counted."""
    make, work = KINDS[kind]
    with Pretended() as card:
        policy = card.moved(make())
        card.clear()
        found = work(policy, size)
    return {
        "card": found,
        "host": work(make(), size),
        "waits": card.waits,
        "launches": card.launches,
        "from_host": card.from_host,
        "math_attention": card.math_attention,
    }


if __name__ == "__main__":
    print(json.dumps([main(sys.argv[1], int(size)) for size in sys.argv[2:]]))
