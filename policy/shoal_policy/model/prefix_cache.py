"""Keys and values of shared beginnings, held for one model as long as its weights stay.

Whoever changes weights says so (`forget`), which frees the memory too. Besides, a few numbers of
each are compared: an optimiser's fused step does not count as a change to torch itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import torch

MOST_HELD = 64
"""Beginnings held for one model; the oldest goes first."""
_LOOKED_AT = 4
"""Numbers of each weight."""

Prefix = tuple[int, ...]
Cache = dict[int, tuple[torch.Tensor, torch.Tensor]]
"""Keys and values of each layer, [key heads, tokens, head size] each."""


@dataclass(slots=True)
class CachedPrefixes:
    """The beginnings that one model has computed."""

    weights: torch.Tensor
    """Some of every weight's numbers."""
    prefixes: dict[Prefix, Cache] = field(default_factory=dict)

    def add(self, prefix: Prefix, cache: Cache) -> None:
        """Hold one more; the oldest goes where there are too many."""
        self.prefixes[prefix] = cache
        if len(self.prefixes) > MOST_HELD:
            self.prefixes.pop(next(iter(self.prefixes)))


_held: WeakKeyDictionary[Any, CachedPrefixes] = WeakKeyDictionary()


def held_for(model: Any) -> CachedPrefixes:
    """The keys and values held for a model with its present weights."""
    weights = _looked_at(model)
    held = _held.get(model)
    if held is None or not torch.equal(held.weights, weights):
        held = _held[model] = CachedPrefixes(weights)
    return held


def forget(model: Any) -> None:
    """Drop what is held for a model: its weights change."""
    _held.pop(model, None)


def _looked_at(model: Any) -> torch.Tensor:
    with torch.no_grad():
        some = [
            weight.detach()
            .reshape(-1)[:: max(1, weight.numel() // _LOOKED_AT)][:_LOOKED_AT]
            .float()
            for weight in model.parameters()
        ]
        return torch.cat(some)
