"""Prepares sampling: weights in the compute dtype, and the number of rows that memory holds.

Autocast casts a matrix at every use while no gradient is recorded, and a frozen one always: once
per token for an unchanged matrix. Here it is cast once and restored afterwards. Adapters cost more
operations per layer than the layer itself. Where memory holds another copy of their matrices, they
are merged into such copies, in float32 before rounding.
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
"""Rows generated at once if memory holds them; more run one batch after another."""
_SHARE = 0.8
"""Share of free memory that rows may use: caches are copied, one layer at a time, when rows are
dropped."""
_SMALL_BYTES = 1 << 28
"""Below this size, free memory is not queried."""
_ADAPTER = "default"
"""peft's name for the only adapter of a policy."""
_LOGIT_COPIES = 4
"""Copies of a row's float32 logits while a token is sampled."""


@contextlib.contextmanager
def inference_weights(policy: Policy) -> Iterator[None]:
    """Within, matrices of a policy with another compute dtype have that dtype.

    Adapters are merged into them if memory allows. Trained weights are not changed: modules hold
    copies meanwhile.
    """
    replaced: list[tuple[Any, str, Any]] = []
    copies: dict[int, torch.nn.Parameter] = {}
    merged = _mergeable_layers(policy)
    try:
        for layer in merged:
            base = layer.get_base_layer()
            replaced.append((base, "weight", base.weight))
            base._parameters["weight"] = _merge_adapter(policy, layer)
            layer.merged_adapters.append(_ADAPTER)
        if policy.autocast_dtype is not None:
            for module in policy.model.modules():
                if isinstance(module, torch.nn.Linear | Conv1D):
                    for name, weight in list(module.named_parameters(recurse=False)):
                        if weight.dtype == policy.autocast_dtype:
                            continue
                        replaced.append((module, name, weight))
                        copies.setdefault(id(weight), _cast(weight, policy.autocast_dtype))
                        # The tied embedding is not replaced: autocast does not cast it.
                        module._parameters[name] = copies[id(weight)]
        yield
    finally:
        for layer in merged:
            layer.merged_adapters.clear()
        for module, name, weight in reversed(replaced):
            module._parameters[name] = weight


def _mergeable_layers(policy: Policy) -> list[Any]:
    """Return the layers whose adapters are merged into copies; none if memory is too small."""
    if policy.adapter is None:
        return []
    found = [module for module in policy.model.modules() if _ADAPTER in _adapters_of(module)]
    if any(layer.merged_adapters or layer.disable_adapters for layer in found):
        return []
    weights = [layer.get_base_layer().weight for layer in found]
    # Doubled, since rows need memory too.
    needed = 2 * sum(weight.numel() * _compute_dtype(policy, weight).itemsize for weight in weights)
    is_small = needed <= _SMALL_BYTES
    return found if is_small or needed <= free_bytes(str(policy.device)) else []


def _adapters_of(module: Any) -> Collection[str]:
    if not hasattr(module, "get_delta_weight"):
        return ()
    # Adapters of experts are around one parameter of several, which is not the layer's `weight`.
    base = module.get_base_layer()
    return getattr(module, "lora_A", ()) if hasattr(base, "weight") else ()


def _merge_adapter(policy: Policy, layer: Any) -> torch.nn.Parameter:
    """Return a layer's matrix with its adapter merged, in the compute dtype."""
    weight = layer.get_base_layer().weight
    whole = weight.detach().float() + layer.get_delta_weight(_ADAPTER).detach().float()
    return _cast(whole, _compute_dtype(policy, weight))


def _compute_dtype(policy: Policy, weight: torch.Tensor) -> torch.dtype:
    return policy.autocast_dtype or weight.dtype


def _cast(weight: torch.Tensor, dtype: torch.dtype) -> torch.nn.Parameter:
    return torch.nn.Parameter(weight.detach().to(dtype), requires_grad=False)


_row_limits: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
"""Rows that fit a model's memory, once it has run out."""


def max_batch_rows(policy: Policy, wanted: int, positions: int) -> int:
    """Return how many of the `wanted` rows of this many positions to start with; at least one."""
    rows = max(1, min(wanted, _row_limits.get(policy.model, MAX_ROWS)))
    each = row_bytes(policy, positions)
    if rows * each <= _SMALL_BYTES:
        return rows
    return max(1, min(rows, int(free_bytes(str(policy.device)) * _SHARE) // each))


def limit_rows(policy: Policy, rows: int) -> None:
    """Limit the rows of this policy: memory did not hold twice as many."""
    _row_limits[policy.model] = max(1, min(rows, _row_limits.get(policy.model, MAX_ROWS)))


def row_bytes(policy: Policy, positions: int) -> int:
    """Return the memory of one row of this many positions: its cache and its logits.

    Only the logits for an architecture that does not state its cache size.
    """
    config = policy.model.config.get_text_config()
    logits = _LOGIT_COPIES * 4 * int(config.vocab_size)
    try:
        heads, hidden = config.num_attention_heads, config.hidden_size
        size = getattr(config, "head_dim", None) or hidden // heads
        key_heads = getattr(config, "num_key_value_heads", None) or heads
        values = 2 * int(config.num_hidden_layers) * int(key_heads) * int(size)
    # A configuration may raise anything for a size that differs between its layers.
    except Exception:  # noqa: BLE001
        return logits
    dtype = policy.autocast_dtype or policy.model.dtype
    return int(logits + values * dtype.itemsize * positions)
