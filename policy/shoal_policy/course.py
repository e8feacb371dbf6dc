"""A training's course: begun anew or taken up where its newest checkpoint stands, and taken back.

settings ──▶ begin_or_resume ──▶ Course ──rounds──▶ Course ──state()──▶ checkpoint
                                   ▲                                        │
                                   └────────────── take_back ◀──────────────┘
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from shoal_policy.checkpoint.saved import CheckpointError, TrainerState, latest_checkpoint
from shoal_policy.checkpoint.saving import load_checkpoint
from shoal_policy.means import THIS_PROCESS, Means
from shoal_policy.model.from_settings import fresh_policy
from shoal_policy.model.loading import Policy
from shoal_policy.model.lora import rank_of
from shoal_policy.record.earlier_runs import set_aside
from shoal_policy.record.progress import RunCounters
from shoal_policy.update.grpo import optimizer_of
from shoal_settings.schema import Settings
from shoal_wire.types import GroupId

log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Course:
    """A policy in training, and how far it is: what a checkpoint saves. Changes in place."""

    policy: Policy
    optimizer: Any
    round: int = 0
    """Rounds completed."""
    policy_version: int = 0
    """Updates the policy has received."""
    progress: RunCounters = field(default_factory=RunCounters)
    consumed_ids: tuple[GroupId, ...] = ()
    """Ids of the external groups whose effect is in the checkpoint that training resumed from."""
    has_checkpoint: bool = False

    def state(self, consumed: Sequence[GroupId]) -> TrainerState:
        """Return what a checkpoint says beside the weights; `consumed` have their effect in it."""
        return TrainerState(
            round=self.round,
            policy_version=self.policy_version,
            consumed_ids=tuple(one.hex() for one in consumed),
            counters=self.progress.to_json(),
        )


def begin_or_resume(settings: Settings, *, seed: int) -> Course:
    """Take up the newest good checkpoint; begin anew without one, or when told to.

    Beginning anew on `--no-resume` sets aside what an earlier run left.

    Raises:
        ModelError: the model cannot be used; nothing has been touched then.
        CheckpointError: the checkpoint cannot be read, or is of another model.
    """
    found = latest_checkpoint(settings.data_dir) if settings.resume else None
    for skipped in found.skipped if found else ():
        log.warning("checkpoint %s is not used: %s", skipped.path.name, skipped.reason)
    if found is not None and found.path is not None:
        return _resumed(settings, found.path)
    policy = fresh_policy(settings, seed=seed)
    course = Course(
        policy=policy,
        optimizer=optimizer_of(settings, policy),
    )
    if not settings.resume:  # only now: a wrong model has touched nothing
        _set_earlier_run_aside(settings)
    return course


def take_back(
    course: Course, settings: Settings, *, seed: int, means: Means = THIS_PROCESS
) -> None:
    """Give a course the weights of its last checkpoint again, or of its start; rounds count on.

    They are read into the host's memory: a device need not hold two policies and optimisers.
    """
    settings = settings.model_copy(update={"device": "cpu"})
    found = latest_checkpoint(settings.data_dir) if course.has_checkpoint else None
    if found is not None and found.path is not None:
        loaded = load_checkpoint(found.path, settings)
        good, optimizer = loaded.policy, loaded.optimizer
        course.policy_version = loaded.state.policy_version
    else:
        with torch.random.fork_rng(devices=[]):
            good = fresh_policy(settings, seed=seed)
        optimizer = optimizer_of(settings, good)
        course.policy_version = 0
    means.restore(course.policy, course.optimizer, good, optimizer)


def _resumed(settings: Settings, path: Path) -> Course:
    loaded = load_checkpoint(path, settings)
    different = _difference(loaded.policy, settings)
    if different:
        raise CheckpointError(
            f"{path} is of {different}: use another --data-dir, or --no-resume to start over"
        )
    state = loaded.state
    course = Course(
        policy=loaded.policy,
        optimizer=loaded.optimizer,
        round=state.round,
        policy_version=state.policy_version,
        progress=RunCounters.from_json(state.counters),
        consumed_ids=tuple(GroupId(bytes.fromhex(one)) for one in state.consumed_ids),
        has_checkpoint=True,
    )
    log.info("resumed at round %d from %s", course.round, path.name)
    return course


def _set_earlier_run_aside(settings: Settings) -> None:
    aside = set_aside(settings.data_dir)
    if aside is not None:
        log.info("starting over: what an earlier run left is in %s", aside)


def _difference(policy: Policy, settings: Settings) -> str | None:
    """Return how a checkpoint's policy differs from the one asked for; None if it does not."""
    if policy.name != settings.model:
        return f"model {policy.name!r}, not {settings.model!r}"
    # An adapter of another scale or other layers, from an earlier version, continues as it is.
    found, wanted = rank_of(policy), settings.lora_rank
    return None if found == wanted else f"{_adapter_text(found)}, not {_adapter_text(wanted)}"


def _adapter_text(rank: int) -> str:
    return f"LoRA rank {rank}" if rank else "all weights"
