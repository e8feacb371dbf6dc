"""A key-value cache that is allocated once, in the compute dtype.

transformers concatenates old and new keys at each token, which copies everything and briefly needs
twice the memory. Here a layer is allocated for all tokens, and each token writes its own column.

Under autocast the residual stream is float32, so keys leave the rotary embedding in float32 and
transformers stores them so: twice the expected memory, and a cast at each use. Cast when stored
they give the same numbers, since attention rounds them anyway.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from shoal_policy.model.loading import Policy


class _PreallocatedLayer(DynamicLayer):
    """Keys and values of one layer, as views of the used part of larger buffers."""

    def __init__(self, columns: int) -> None:
        """`columns` is the maximum number of tokens."""
        super().__init__()
        self._columns = columns
        self._buffers: tuple[torch.Tensor, torch.Tensor] | None = None

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_given: Any, **_named: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append keys and values; return all."""
        held = self.get_seq_length()
        if not held:
            # The prompts, once each: they are repeated to rows later.
            self.lazy_initialization(key_states, value_states)
            self.keys, self.values = key_states, value_states
            return self.keys, self.values
        if self._buffers is None:
            self._buffers = self._allocate(self.keys), self._allocate(self.values)
        end = held + key_states.shape[-2]
        for whole, new in zip(self._buffers, (key_states, value_states), strict=True):
            whole[:, :, held:end] = new
        self.keys, self.values = (whole[:, :, :end] for whole in self._buffers)
        return self.keys, self.values

    def _allocate(self, made: torch.Tensor) -> torch.Tensor:
        rows, heads, held, size = made.shape
        wide = made.new_empty(rows, heads, self._columns, size)
        wide[:, :, :held] = made
        return wide

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        """Keep these rows, each as often as it is named; buffers are allocated at the next token.

        Of all layers of transformers, those of recurrent models have this operation alone.
        """
        super().reorder_cache(beam_idx)
        self._buffers = None


class PreallocatedCache(DynamicCache):
    """The cache of transformers with preallocated buffers in its full-attention layers."""

    def __init__(self, config: Any, columns: int, dtype: torch.dtype | None) -> None:
        """`dtype` is the type of stored keys and values; None keeps theirs."""
        super().__init__(config=config)
        self._dtype = dtype
        # By exact type: a layer with a window stores only the tokens inside it.
        self.layers[:] = [
            _PreallocatedLayer(columns) if type(one) is DynamicLayer else one for one in self.layers
        ]

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *given: Any, **named: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append keys and values of a layer; return all of that layer."""
        if self._dtype is not None:
            key_states, value_states = key_states.to(self._dtype), value_states.to(self._dtype)
        return super().update(key_states, value_states, *given, **named)


def build_cache(policy: Policy, columns: int) -> PreallocatedCache | None:
    """Return an empty cache for this many tokens per row; None if the model uses another kind."""
    usual = getattr(policy.model, "_supports_default_dynamic_cache", None)
    if usual is None or not usual():
        return None
    return PreallocatedCache(policy.model.config, columns, policy.autocast_dtype)
