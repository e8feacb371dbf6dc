"""Policies of one process that hold the same frozen weights once: each has adapters of its own.

    load_policy ──once──▶ weights ◀── model of node 1 + adapters 1
                             ▲────── model of node 2 + adapters 2 …

A copy has modules of its own and the very tensors of the original, so N nodes with LoRA cost the
model once and N times their adapters. All weights of a model that is trained whole are its own.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from itertools import chain
from typing import Any

import torch

from shoal_policy.model.from_settings import fresh_policy
from shoal_policy.model.loading import Policy, load_policy
from shoal_policy.model.lora import add_adapter
from shoal_settings.schema import Settings


class Bases:
    """The frozen weights of this process, by what they were loaded as."""

    def __init__(self) -> None:
        self._loaded: dict[tuple[str, ...], Policy] = {}

    def fresh_policy(self, settings: Settings, *, seed: int) -> Policy:
        """Make what `from_settings.fresh_policy` makes, with the frozen weights shared.

        Equal in every figure to a policy that was loaded apart. Raises ModelError.
        """
        if not settings.lora_rank:
            return fresh_policy(settings, seed=seed)
        key = (settings.model, settings.device, settings.dtype, settings.prompt)
        if key not in self._loaded:
            self._loaded[key] = load_policy(
                settings.model,
                device=settings.device,
                dtype=settings.dtype,
                prompt=settings.prompt,
            )
        base = self._loaded[key]
        torch.manual_seed(seed)
        policy = replace(base, model=_with_same_weights(base.model))
        return add_adapter(policy, settings.lora_rank, seed=seed)


def _with_same_weights(model: Any) -> Any:
    """Return a model with the same modules that shares its weights instead of copying them."""
    same = {id(one): one for one in chain(model.parameters(), model.buffers())}
    return copy.deepcopy(model, same)
