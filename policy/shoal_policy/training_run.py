"""A training run: started or resumed from its newest checkpoint, and rolled back.

settings ──▶ begin_or_resume ──▶ TrainingRun ──rounds──▶ TrainingRun ──state()──▶ checkpoint
                                      ▲                                               │
                                      └───────────────── roll_back ◀──────────────────┘
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
from shoal_policy.generation.self_check import check_answers
from shoal_policy.model.from_settings import fresh_policy
from shoal_policy.model.loading import Policy
from shoal_policy.model.lora import adapter_rank
from shoal_policy.record.earlier_runs import (
    archive_run,
    discard_next_run,
    finish_replacement,
    replace_run,
)
from shoal_policy.record.progress import RunCounters
from shoal_policy.update.grpo import build_optimizer
from shoal_settings.schema import Settings
from shoal_tasks.run_check import other_checkpoint
from shoal_wire.types import GroupId

log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class TrainingRun:
    """A policy in training with its progress: what a checkpoint saves. Changes in place."""

    policy: Policy
    optimizer: Any
    round: int = 0
    """Rounds completed."""
    policy_version: int = 0
    """Updates the policy has received."""
    progress: RunCounters = field(default_factory=RunCounters)
    consumed_ids: tuple[GroupId, ...] = ()
    """Ids of external groups whose effect is in the checkpoint that the run resumed from."""
    has_checkpoint: bool = False
    swarm: str = ""
    """Hex digest of the swarm, stored in checkpoints."""

    def state(self, consumed: Sequence[GroupId]) -> TrainerState:
        """Return the state for a checkpoint, without weights; it contains groups `consumed`."""
        return TrainerState(
            round=self.round,
            policy_version=self.policy_version,
            consumed_ids=tuple(one.hex() for one in consumed),
            counters=self.progress.to_json(),
            swarm=self.swarm,
        )


def begin_or_resume(settings: Settings, *, seed: int, swarm: str = "") -> TrainingRun:
    """Resume from the newest good checkpoint; start a new run without one, or if configured.

    A new run archives the earlier one's files: with `--no-resume` it has fresh weights, with
    `--new-run` in another `swarm` those of the checkpoint.

    Raises:
        ModelError: the model cannot be used; nothing was changed.
        CheckpointError: the checkpoint cannot be read, or is of another model.
        RunMismatchError: it is of another swarm.
    """
    if settings.resume:
        finish_replacement(settings.data_dir)
    else:
        discard_next_run(settings.data_dir)
    found = latest_checkpoint(settings.data_dir) if settings.resume else None
    for skipped in found.skipped if found else ():
        log.warning("checkpoint %s is not used: %s", skipped.path.name, skipped.reason)
    if found is not None and found.path is not None:
        return _resume(settings, found.path, swarm)
    policy = fresh_policy(settings, seed=seed)
    check_answers(policy)
    run = TrainingRun(
        policy=policy,
        optimizer=build_optimizer(settings, policy),
        swarm=swarm,
    )
    if not settings.resume:  # only now, so that a wrong model changes nothing
        _archive_earlier_run(settings)
    return run


def roll_back(
    run: TrainingRun, settings: Settings, *, seed: int, backend: Backend = LOCAL_BACKEND
) -> None:
    """Restore the weights of a run's last checkpoint, or of its start; rounds count on.

    They are loaded into host memory: a device need not hold two policies and optimisers.
    """
    settings = settings.model_copy(update={"device": "cpu"})
    found = latest_checkpoint(settings.data_dir) if run.has_checkpoint else None
    if found is not None and found.path is not None:
        loaded = load_checkpoint(found.path, settings)
        good, optimizer = loaded.policy, loaded.optimizer
        run.policy_version = loaded.state.policy_version
    else:
        with torch.random.fork_rng(devices=[]):
            good = fresh_policy(settings, seed=seed)
        optimizer = build_optimizer(settings, good)
        run.policy_version = 0
    backend.restore(run.policy, run.optimizer, good, optimizer)


def _resume(settings: Settings, path: Path, swarm: str) -> TrainingRun:
    loaded = load_checkpoint(path, settings)
    different = _difference(loaded.policy, settings)
    if different:
        raise CheckpointError(
            f"{path} is of {different}: use another --data-dir, or --no-resume to start over"
        )
    state = loaded.state
    if swarm and state.swarm and state.swarm != swarm:
        return _start_run_from(settings, loaded, swarm)
    run = TrainingRun(
        policy=loaded.policy,
        optimizer=loaded.optimizer,
        round=state.round,
        policy_version=state.policy_version,
        progress=RunCounters.from_json(state.counters),
        consumed_ids=tuple(GroupId(bytes.fromhex(one)) for one in state.consumed_ids),
        has_checkpoint=True,
        swarm=swarm or state.swarm,
    )
    log.info("resumed at round %d from %s", run.round, path.name)
    return run


def _start_run_from(settings: Settings, loaded: LoadedCheckpoint, swarm: str) -> TrainingRun:
    """Start a run of another swarm with a checkpoint's weights, and archive the earlier run.

    Raises RunMismatchError if the settings do not allow that.
    """
    state = loaded.state
    if not settings.new_run:
        raise other_checkpoint(settings.data_dir, state.swarm, swarm)
    run = TrainingRun(
        policy=loaded.policy,
        optimizer=build_optimizer(settings, loaded.policy),
        policy_version=state.policy_version,
        consumed_ids=tuple(GroupId(bytes.fromhex(one)) for one in state.consumed_ids),
        has_checkpoint=True,
        swarm=swarm,
    )
    begun = run.state(run.consumed_ids)
    aside = replace_run(
        settings.data_dir,
        lambda folder: save_checkpoint(folder, run.policy, run.optimizer, begun),
    )
    log.info(
        "new run with the weights of round %d of swarm %s; the earlier run's files are in %s",
        *(state.round, state.swarm[:12], aside),
    )
    return run


def _archive_earlier_run(settings: Settings) -> None:
    aside = archive_run(settings.data_dir)
    if aside is not None:
        log.info("starting over: the earlier run's files are in %s", aside)


def _difference(policy: Policy, settings: Settings) -> str | None:
    """Return how a checkpoint's policy differs from the configured one; None if it does not."""
    if policy.name != settings.model:
        return f"model {policy.name!r}, not {settings.model!r}"
    found, wanted = adapter_rank(policy), settings.lora_rank
    return None if found == wanted else f"{_adapter_text(found)}, not {_adapter_text(wanted)}"


def _adapter_text(rank: int) -> str:
    return f"LoRA rank {rank}" if rank else "all weights"
