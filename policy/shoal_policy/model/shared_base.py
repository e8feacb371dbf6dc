"""Policies of one process that share frozen base weights; each has its own adapters.

    load_policy ──once──▶ weights ◀── model of node 1 + adapters 1
                             ▲────── model of node 2 + adapters 2 …

A copy has its own modules and the original's tensors, so N nodes with LoRA cost the model once and
N adapters. A model that is trained as a whole shares nothing.
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


class BaseModelCache:
    """The frozen base weights of this process, by the settings they were loaded with."""

    def __init__(self) -> None:
        self._loaded: dict[tuple[str, ...], Policy] = {}

    def fresh_policy(self, settings: Settings, *, seed: int) -> Policy:
        """Return the same as `from_settings.fresh_policy`, with frozen weights shared.

        Numerically equal to a policy loaded separately. Raises ModelError.
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
        policy = replace(base, model=_share_weights(base.model))
        return add_adapter(policy, settings.lora_rank, seed=seed)


def _share_weights(model: Any) -> Any:
    """Return a copy of a model's modules that shares its weights."""
    same = {id(one): one for one in chain(model.parameters(), model.buffers())}
    return copy.deepcopy(model, same)
