"""A key-value cache in the type that attention computes in.

Under autocast the residual stream is float32, so keys leave the rotary embedding in float32, and
transformers keeps them so: twice the memory that is counted on, all of it copied at each token and
cast at each use. Cast when they come they are the same numbers, for attention rounds them anyway.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import DynamicCache

from shoal_policy.model.loading import Policy


class TypedCache(DynamicCache):
    """The cache of transformers, with keys and values in one given type."""

    def __init__(self, config: Any, dtype: torch.dtype) -> None:
        super().__init__(config=config)
        self._dtype = dtype

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *given: Any, **named: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append keys and values of a layer; return all of that layer."""
        dtype = self._dtype
        return super().update(key_states.to(dtype), value_states.to(dtype), *given, **named)


def cache_of(policy: Policy) -> TypedCache | None:
    """Return an empty cache; None where the model's own has the right type, or another form."""
    usual = getattr(policy.model, "_supports_default_dynamic_cache", None)
    if policy.autocast_dtype is None or usual is None or not usual():
        return None
    return TypedCache(policy.model.config, policy.autocast_dtype)
