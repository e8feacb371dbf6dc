"""Builds the policy that settings ask for, in every process that holds the model."""

from __future__ import annotations

import os

from shoal_policy.model.loading import Policy, check_device, check_model, load_policy
from shoal_policy.model.lora import add_adapter
from shoal_settings.schema import Settings


def refuse_wrong_model(settings: Settings, *, parts: int = 1) -> None:
    """Raise ModelError if no run can start with the configured model.

    Takes milliseconds. For a run that resumes it checks only the device, since the checkpoint holds
    the model. Sharded weights have this many `parts`.
    """
    if settings.resume and (settings.data_dir / "checkpoints").is_dir():
        check_device(settings.device)
        return
    check_model(
        settings.model,
        device=settings.device,
        dtype=settings.dtype,
        num_trained_copies=None if settings.lora_rank else int(settings.kl_beta > 0),
        parts=parts,
        parts_here=min(parts, int(os.environ.get("LOCAL_WORLD_SIZE", parts))),
    )


def fresh_policy(settings: Settings, *, seed: int) -> Policy:
    """Load the model, with fresh adapters if configured. Raises ModelError."""
    policy = load_policy(
        settings.model,
        device=settings.device,
        dtype=settings.dtype,
        prompt=settings.prompt,
        seed=seed,
    )
    rank = settings.lora_rank
    return add_adapter(policy, rank, seed=seed) if rank else policy
