"""Prepares for drawing tokens: weights in the precision of computing, and rows by memory.

Autocast casts a matrix at every use while no gradient is kept, and a frozen one always: once a
token, though it stays the same for all of them. So it is cast once, and put back afterwards.
Adapters cost more operations a layer than the layer itself. Where memory holds one more copy of
the matrices they adapt, they are added into such copies, in float32, before it is rounded.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from typing import Any
from weakref import WeakKeyDictionary

import torch
from transformers.pytorch_utils import Conv1D

from shoal_policy.model.loading import Policy
from shoal_policy.model.memory import free_bytes

MAX_ROWS = 512
"""Rows generated at once where memory holds as many; more are done in turns."""
_SHARE = 0.8
"""Share of the free memory that rows may take: the caches of keys and values are copied, a layer
at a time, when rows leave."""
_UNASKED_BYTES = 1 << 28
"""Rows that hold less than this are not worth asking how much is free."""
_ADAPTER = "default"
"""peft's name of the one adapter that a policy has."""
_LOGIT_COPIES = 4
"""Copies of a row's logits, float32, while one token of it is drawn."""


@contextlib.contextmanager
def cast_once(policy: Policy) -> Iterator[None]:
    """Within, the matrices of a policy that computes in another type are of that type.

    Adapters are within them, where memory allows. The trained weights themselves are not touched:
    their places hold copies meanwhile.
    """
    replaced: list[tuple[Any, str, Any]] = []
    copies: dict[int, torch.nn.Parameter] = {}
    merged = _adapted(policy)
    try:
        for layer in merged:
            base = layer.get_base_layer()
            replaced.append((base, "weight", base.weight))
            base._parameters["weight"] = _with_adapter(policy, layer)
            layer.merged_adapters.append(_ADAPTER)
        if policy.autocast_dtype is not None:
            for module in policy.model.modules():
                if isinstance(module, torch.nn.Linear | Conv1D):
                    for name, weight in list(module.named_parameters(recurse=False)):
                        if weight.dtype == policy.autocast_dtype:
                            continue
                        replaced.append((module, name, weight))
                        copies.setdefault(id(weight), _cast(weight, policy.autocast_dtype))
                        # Not into the embedding that is tied to it: autocast leaves that alone.
                        module._parameters[name] = copies[id(weight)]
        yield
    finally:
        for layer in merged:
            layer.merged_adapters.clear()
        for module, name, weight in reversed(replaced):
            module._parameters[name] = weight


def _adapted(policy: Policy) -> list[Any]:
    """The layers whose adapters are added into copies; none where memory does not hold these."""
    if policy.adapter is None:
        return []
    found = [module for module in policy.model.modules() if _ADAPTER in _adapters_of(module)]
    if any(layer.merged_adapters or layer.disable_adapters for layer in found):
        return []
    weights = [layer.get_base_layer().weight for layer in found]
    # Twice, for rows want memory, too.
    needed = 2 * sum(weight.numel() * _computed_in(policy, weight).itemsize for weight in weights)
    is_small = needed <= _UNASKED_BYTES
    return found if is_small or needed <= free_bytes(str(policy.device)) else []


def _adapters_of(module: Any) -> Collection[str]:
    return getattr(module, "lora_A", ()) if hasattr(module, "get_delta_weight") else ()


def _with_adapter(policy: Policy, layer: Any) -> torch.nn.Parameter:
    """A layer's matrix with its adapter in it, in the type that is computed in."""
    weight = layer.get_base_layer().weight
    whole = weight.detach().float() + layer.get_delta_weight(_ADAPTER).detach().float()
    return _cast(whole, _computed_in(policy, weight))


def _computed_in(policy: Policy, weight: torch.Tensor) -> torch.dtype:
    return policy.autocast_dtype or weight.dtype


def _cast(weight: torch.Tensor, dtype: torch.dtype) -> torch.nn.Parameter:
    return torch.nn.Parameter(weight.detach().to(dtype), requires_grad=False)


_held: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
"""Rows that a model's memory has turned out to hold."""


def rows_at_once(policy: Policy, wanted: int, positions: int) -> int:
    """Return how many of the rows wanted, of so many positions, to begin with; never none."""
    rows = max(1, min(wanted, _held.get(policy.model, MAX_ROWS)))
    each = row_bytes(policy, positions)
    if rows * each <= _UNASKED_BYTES:
        return rows
    return max(1, min(rows, int(free_bytes(str(policy.device)) * _SHARE) // each))


def remember_rows(policy: Policy, rows: int) -> None:
    """Take no more rows of this policy at once: memory did not hold twice as many."""
    _held[policy.model] = max(1, min(rows, _held.get(policy.model, MAX_ROWS)))


def row_bytes(policy: Policy, positions: int) -> int:
    """Return what one row holds while it grows to so many positions: its cache and its logits.

    Of an architecture that does not say how large its cache is, the logits alone.
    """
    config = policy.model.config.get_text_config()
    logits = _LOGIT_COPIES * 4 * int(config.vocab_size)
    heads = getattr(config, "num_attention_heads", None)
    layers, hidden = getattr(config, "num_hidden_layers", None), getattr(config, "hidden_size", 0)
    if not heads or not layers or not hidden:
        return logits
    size = getattr(config, "head_dim", None) or hidden // heads
    key_heads = getattr(config, "num_key_value_heads", None) or heads
    dtype = policy.autocast_dtype or policy.model.dtype
    return int(logits + 2 * layers * key_heads * size * dtype.itemsize * positions)
