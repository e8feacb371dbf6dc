"""Rollout groups to measure with: real tasks of the easy preset, completions of made text."""

from __future__ import annotations

import random
from collections.abc import Sequence

from benchmarks.texts import TextSource
from shoal_ipc import messages as m
from shoal_policy.tasks import TaskSource
from shoal_tasks.families import EASY
from shoal_tasks.worker.sync import SyncTaskWorker
from shoal_wire.types import (
    Completion,
    Digest,
    FinishReason,
    PolicyInfo,
    RolloutGroup,
    SamplingParams,
    Task,
)

NUM_COMPLETIONS = 8
"""The paper's L."""
POLICY = PolicyInfo(
    model_name="Qwen/Qwen2.5-0.5B-Instruct",
    tokenizer_digest=Digest(bytes(range(16))),
    policy_version=1234,
)
SAMPLING = SamplingParams(temperature=1.0, top_p=1.0, top_k=0, max_new_tokens=256)
_CHARS_PER_TOKEN = 4
_CUT_SHARE = 0.1


def draw_tasks(rng: random.Random, count: int) -> list[Task]:
    """Sample tasks as a trainer does: peers regenerate each from its coordinates and accept it."""
    with SyncTaskWorker(EASY) as worker:
        return [question.task for question in TaskSource(worker, EASY).draw(rng, count)]


def make_group(
    task: Task,
    source: TextSource,
    rng: random.Random,
    *,
    num_chars: int,
    num_completions: int = NUM_COMPLETIONS,
) -> RolloutGroup:
    """Return a group of completions of exactly `num_chars` characters each."""
    return RolloutGroup(
        task=task,
        completions=tuple(
            Completion(
                text=source(rng, num_chars),
                num_tokens=max(1, num_chars // _CHARS_PER_TOKEN + rng.randint(-8, 8)),
                finish_reason=(
                    FinishReason.LENGTH if rng.random() < _CUT_SHARE else FinishReason.STOP
                ),
            )
            for _ in range(num_completions)
        ),
    )


def publish_request(key: int, groups: Sequence[RolloutGroup], *, round_: int = 1) -> m.Publish:
    """Return a batch as a trainer passes it to its node, named by `key`."""
    return m.Publish(
        client_key=key.to_bytes(16, "big"),
        round=round_,
        policy=POLICY,
        sampling=SAMPLING,
        groups=tuple(groups),
    )


def raw_bytes(groups: Sequence[RolloutGroup]) -> int:
    """Return the size of the completions' text alone, in UTF-8."""
    return sum(len(c.text.encode()) for group in groups for c in group.completions)
