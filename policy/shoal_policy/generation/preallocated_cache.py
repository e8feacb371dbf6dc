"""A key-value cache with room for what is to come, in the type that attention computes in.

transformers joins what is held and what is new at each token: all of it is copied, and held twice
meanwhile. Here a layer has room for every token from the first one on, and a token writes its own.

Under autocast the residual stream is float32, so keys leave the rotary embedding in float32, and
transformers keeps them so: twice the memory that is counted on, all of it cast at each use. Cast
when they come they are the same numbers, for attention rounds them anyway.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from shoal_policy.model.loading import Policy


class _RoomyLayer(DynamicLayer):
    """Keys and values of one layer, each the beginning of a longer piece of memory."""

    def __init__(self, columns: int) -> None:
        """`columns` is how many tokens there will be at most."""
        super().__init__()
        self._columns = columns
        self._room: tuple[torch.Tensor, torch.Tensor] | None = None

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_given: Any, **_named: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append keys and values; return all."""
        held = self.get_seq_length()
        if not held:
            # Prompts, once each: their rows are not there yet.
            self.lazy_initialization(key_states, value_states)
            self.keys, self.values = key_states, value_states
            return self.keys, self.values
        if self._room is None:
            self._room = self._wider(self.keys), self._wider(self.values)
        end = held + key_states.shape[-2]
        for whole, new in zip(self._room, (key_states, value_states), strict=True):
            whole[:, :, held:end] = new
        self.keys, self.values = (whole[:, :, :end] for whole in self._room)
        return self.keys, self.values

    def _wider(self, made: torch.Tensor) -> torch.Tensor:
        rows, heads, held, size = made.shape
        wide = made.new_empty(rows, heads, self._columns, size)
        wide[:, :, :held] = made
        return wide

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat each row; there is room again from the next token on."""
        super().batch_repeat_interleave(repeats)
        self._room = None

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Keep these rows alone; the same."""
        super().batch_select_indices(indices)
        self._room = None


class PreallocatedCache(DynamicCache):
    """The cache of transformers, with room in its layers of full attention."""

    def __init__(self, config: Any, columns: int, dtype: torch.dtype | None) -> None:
        """`dtype` is the type of keys and values; None leaves theirs."""
        super().__init__(config=config)
        self._dtype = dtype
        # By their very type: one with a window holds what is in it alone.
        self.layers[:] = [
            _RoomyLayer(columns) if type(one) is DynamicLayer else one for one in self.layers
        ]

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *given: Any, **named: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append keys and values of a layer; return all of that layer."""
        if self._dtype is not None:
            key_states, value_states = key_states.to(self._dtype), value_states.to(self._dtype)
        return super().update(key_states, value_states, *given, **named)


def cache_of(policy: Policy, columns: int) -> PreallocatedCache | None:
    """Return an empty cache for so many tokens a row; None where the model's own is another."""
    usual = getattr(policy.model, "_supports_default_dynamic_cache", None)
    if usual is None or not usual():
        return None
    return PreallocatedCache(policy.model.config, columns, policy.autocast_dtype)
