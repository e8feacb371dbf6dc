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

from shoal_policy.backend import LOCAL_BACKEND, Backend
from shoal_policy.checkpoint.saved import CheckpointError, TrainerState, latest_checkpoint
from shoal_policy.checkpoint.saving import LoadedCheckpoint, load_checkpoint, save_checkpoint
from shoal_policy.model.from_settings import fresh_policy
from shoal_policy.model.loading import Policy
from shoal_policy.model.lora import rank_of
from shoal_policy.record.earlier_runs import drop_waiting, finish_replacing, replace_run, set_aside
from shoal_policy.record.progress import RunCounters
from shoal_policy.update.grpo import optimizer_of
from shoal_settings.schema import Settings
from shoal_tasks.run_check import other_checkpoint
from shoal_wire.types import GroupId

log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class TrainingRun:
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
    swarm: str = ""
    """Digest of the swarm, hex, that checkpoints name."""

    def state(self, consumed: Sequence[GroupId]) -> TrainerState:
        """Return what a checkpoint says beside the weights; `consumed` have their effect in it."""
        return TrainerState(
            round=self.round,
            policy_version=self.policy_version,
            consumed_ids=tuple(one.hex() for one in consumed),
            counters=self.progress.to_json(),
            swarm=self.swarm,
        )


def begin_or_resume(settings: Settings, *, seed: int, swarm: str = "") -> TrainingRun:
    """Take up the newest good checkpoint; begin anew without one, or when told to.

    Beginning anew sets aside what an earlier run left: on `--no-resume` with fresh weights, on
    `--new-run` in another `swarm` with those of the checkpoint.

    Raises:
        ModelError: the model cannot be used; nothing has been touched then.
        CheckpointError: the checkpoint cannot be read, or is of another model.
        RunMismatchError: it is of another swarm.
    """
    if settings.resume:
        finish_replacing(settings.data_dir)
    else:
        drop_waiting(settings.data_dir)
    found = latest_checkpoint(settings.data_dir) if settings.resume else None
    for skipped in found.skipped if found else ():
        log.warning("checkpoint %s is not used: %s", skipped.path.name, skipped.reason)
    if found is not None and found.path is not None:
        return _resumed(settings, found.path, swarm)
    policy = fresh_policy(settings, seed=seed)
    course = TrainingRun(
        policy=policy,
        optimizer=optimizer_of(settings, policy),
        swarm=swarm,
    )
    if not settings.resume:  # only now: a wrong model has touched nothing
        _set_earlier_run_aside(settings)
    return course


def roll_back(
    course: TrainingRun, settings: Settings, *, seed: int, means: Backend = LOCAL_BACKEND
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


def _resumed(settings: Settings, path: Path, swarm: str) -> TrainingRun:
    loaded = load_checkpoint(path, settings)
    different = _difference(loaded.policy, settings)
    if different:
        raise CheckpointError(
            f"{path} is of {different}: use another --data-dir, or --no-resume to start over"
        )
    state = loaded.state
    if swarm and state.swarm and state.swarm != swarm:
        return _begun_with(settings, loaded, swarm)
    course = TrainingRun(
        policy=loaded.policy,
        optimizer=loaded.optimizer,
        round=state.round,
        policy_version=state.policy_version,
        progress=RunCounters.from_json(state.counters),
        consumed_ids=tuple(GroupId(bytes.fromhex(one)) for one in state.consumed_ids),
        has_checkpoint=True,
        swarm=swarm or state.swarm,
    )
    log.info("resumed at round %d from %s", course.round, path.name)
    return course


def _begun_with(settings: Settings, loaded: LoadedCheckpoint, swarm: str) -> TrainingRun:
    """Begin a run of another swarm with a checkpoint's weights; its run is set aside.

    Raises RunMismatchError where nobody has allowed that.
    """
    state = loaded.state
    if not settings.new_run:
        raise other_checkpoint(settings.data_dir, state.swarm, swarm)
    course = TrainingRun(
        policy=loaded.policy,
        optimizer=optimizer_of(settings, loaded.policy),
        policy_version=state.policy_version,
        consumed_ids=tuple(GroupId(bytes.fromhex(one)) for one in state.consumed_ids),
        has_checkpoint=True,
        swarm=swarm,
    )
    begun = course.state(course.consumed_ids)
    aside = replace_run(
        settings.data_dir,
        lambda folder: save_checkpoint(folder, course.policy, course.optimizer, begun),
    )
    log.info(
        "a new run with the weights of round %d of swarm %s; what that run left is in %s",
        *(state.round, state.swarm[:12], aside),
    )
    return course


def _set_earlier_run_aside(settings: Settings) -> None:
    aside = set_aside(settings.data_dir)
    if aside is not None:
        log.info("starting over: what an earlier run left is in %s", aside)


def _difference(policy: Policy, settings: Settings) -> str | None:
    """Return how a checkpoint's policy differs from the one asked for; None if it does not."""
    if policy.name != settings.model:
        return f"model {policy.name!r}, not {settings.model!r}"
    found, wanted = rank_of(policy), settings.lora_rank
    return None if found == wanted else f"{_adapter_text(found)}, not {_adapter_text(wanted)}"


def _adapter_text(rank: int) -> str:
    return f"LoRA rank {rank}" if rank else "all weights"
