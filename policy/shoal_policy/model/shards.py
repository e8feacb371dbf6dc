"""Calls on weights that may be sharded, for code that runs with one process too.

torch's sharding takes a second to import and 60 MB, so nothing here imports it: a sharded tensor or
module is recognised by its methods.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import torch
import torch.distributed as dist

from shoal_policy.model.loading import Policy

CALL: Final = "shoal_call"
"""Option of a sharded model's forward pass: what to compute with all weights."""


def run_with_all_weights(
    policy: Policy, call: Callable[[], tuple[torch.Tensor, ...]]
) -> tuple[torch.Tensor, ...]:
    """Return what `call` returns with all weights gathered; collective if sharded."""
    if not policy.is_sharded:
        return call()
    found: tuple[torch.Tensor, ...] = policy.model(**{CALL: call})
    return found


def unsharded_class(model: Any) -> type:
    """Return a model's class, without the one that FSDP puts in front."""
    return type(model).__mro__[2] if hasattr(model, "unshard") else type(model)


def free_gathered(policy: Policy) -> None:
    """Free weights that a forward pass kept gathered for a backward pass that never runs."""
    if policy.is_sharded:
        policy.model.reshard()


def full_tensor_of(tensor: Any) -> torch.Tensor:
    """Return a tensor in one piece; collective if sharded."""
    whole: torch.Tensor = tensor.full_tensor() if _is_shard(tensor) else tensor
    return whole


def all_finite(tensors: Iterable[torch.Tensor]) -> bool:
    """Return whether every number is finite; collective if tensors are sharded."""
    known = list(tensors)
    is_sharded = any(_is_shard(one) for one in known)
    finite = all(bool(local_shard(one.detach()).isfinite().all()) for one in known)
    if is_sharded:
        agreed = torch.tensor(int(finite), device=local_shard(known[0]).device)
        dist.all_reduce(agreed, op=dist.ReduceOp.MIN)
        return bool(agreed)
    return finite


def local_shard(tensor: Any) -> torch.Tensor:
    """Return this rank's part of a tensor."""
    found: torch.Tensor = tensor.to_local() if _is_shard(tensor) else tensor
    return found


def _is_shard(tensor: Any) -> bool:
    """Return whether a tensor is a `DTensor`; only these can be gathered."""
    return hasattr(tensor, "full_tensor")
