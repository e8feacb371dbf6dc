"""A policy whose weights are dealt out over processes (FSDP2): each holds a part of every matrix.

    shard ──▶ every layer and the whole model gather their weights around their own forward pass
    in_root   log-probabilities are computed *inside* the whole model's forward: there alone are
              embedding, layers and output matrix at hand together
    whole     around generation: weights are gathered once and not at every token

Weights stay float32 in the parts; with a type to compute in they are gathered in it. PyTorch FSDP2:
arXiv 2304.11277 and `torch.distributed.fsdp.fully_shard`.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from transformers.modeling_layers import GradientCheckpointingLayer

from shoal_policy.model.loading import Policy
from shoal_policy.model.packed import can_pack

_CALL = "shoal_call"


def shard(policy: Policy, mesh: Any, device: torch.device) -> Policy:
    """Deal a policy's weights out, in place, onto the devices of a mesh; each rank calls it.

    All ranks must hold equal weights. Adapters are dealt out with the frozen layers they are in.
    """
    model = policy.model
    can_pack(model, policy.device, 1)  # found out now: it calls the body alone
    _open_forward(model)
    mixed = MixedPrecisionPolicy(param_dtype=policy.autocast_dtype, reduce_dtype=torch.float32)
    for layer in model.modules():
        if isinstance(layer, GradientCheckpointingLayer):
            fully_shard(layer, mesh=mesh, mp_policy=mixed)
    fully_shard(model, mesh=mesh, mp_policy=mixed)
    model.to(device)  # buffers: the parts are there already
    return dataclasses.replace(policy, device=device, in_root=True)


def _open_forward(model: Any) -> None:
    """Let the model's forward pass be another call, with all weights at hand around it."""
    own = model.forward

    def forward(*args: Any, **options: Any) -> Any:
        call = options.pop(_CALL, None)
        return own(*args, **options) if call is None else call()

    model.forward = forward


def within_root(
    policy: Policy, call: Callable[[], tuple[torch.Tensor, ...]]
) -> tuple[torch.Tensor, ...]:
    """Return what `call` does with all weights at hand; collective where they are dealt out."""
    if not policy.in_root:
        return call()
    found: tuple[torch.Tensor, ...] = policy.model(**{_CALL: call})
    return found


@contextlib.contextmanager
def gathered(model: Any) -> Iterator[None]:
    """Within, each rank holds all weights, whatever it calls; collective at the beginning."""
    parts = [module for module in model.modules() if isinstance(module, FSDPModule)]
    for part in parts:
        part.set_reshard_after_forward(False, recurse=False)
        part.unshard()
    try:
        yield
    finally:
        for part in parts:
            part.reshard()
            # The whole model's own weights are wanted again at once, by the backward pass.
            part.set_reshard_after_forward(part is not model, recurse=False)


def whole_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor in one piece; collective where it is dealt out."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def all_finite(tensors: Iterable[torch.Tensor]) -> bool:
    """Return whether every number is finite; collective where tensors are dealt out."""
    known = list(tensors)
    dealt_out = any(isinstance(one, DTensor) for one in known)
    finite = all(bool(_part(one.detach()).isfinite().all()) for one in known)
    if dealt_out:
        agreed = torch.tensor(int(finite), device=_part(known[0]).device)
        dist.all_reduce(agreed, op=dist.ReduceOp.MIN)
        return bool(agreed)
    return finite


def whole_weights(policy: Policy) -> dict[str, torch.Tensor]:
    """The model's state in one piece, on the host, or its adapters' alone; collective."""
    state = {
        name: value
        for name, value in policy.model.state_dict(keep_vars=True).items()
        if policy.adapter is None or value.requires_grad
    }
    known: dict[int, torch.Tensor] = {}
    for value in state.values():
        if id(value) not in known:  # tied ones once
            known[id(value)] = whole_tensor(value.detach()).cpu()
    return {name: known[id(value)] for name, value in state.items()}


def whole_optimizer(optimizer: Any) -> dict[str, Any]:
    """An optimiser's state as one process would have it, on the host; collective."""
    document: dict[str, Any] = optimizer.state_dict()
    document["state"] = {
        index: {name: whole_tensor(value).cpu() for name, value in state.items()}
        for index, state in sorted(document["state"].items())
    }
    return document


def deal_weights(policy: Policy, weights: dict[str, torch.Tensor] | None) -> None:
    """Take the trained weights that rank 0 has, in place; other ranks pass None. Collective."""
    with torch.no_grad():
        for name, weight in policy.model.named_parameters():
            if not weight.requires_grad:
                continue
            _part(weight).copy_(_part(_dealt(weight, None if weights is None else weights[name])))


def deal_optimizer(optimizer: Any, state: dict[int, dict[str, torch.Tensor]]) -> None:
    """Take an optimiser's state by a parameter's number; collective.

    Rank 0 has the tensors; other ranks know only which there are, and pass any in their place.
    """
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    optimizer.state.clear()
    for index, values in sorted(state.items()):
        optimizer.state[weights[index]] = {
            name: value.clone() if value.ndim == 0 else _dealt(weights[index], value)
            for name, value in values.items()
        }


def _dealt(like: Any, value: torch.Tensor | None) -> Any:
    """Rank 0's tensor, dealt out as another one is."""
    here = _part(like)
    whole = torch.empty(like.shape, dtype=here.dtype, device=here.device)
    if value is not None and value.shape == like.shape:
        whole.copy_(value)
    return distribute_tensor(whole, like.device_mesh, like.placements)


def _part(tensor: Any) -> torch.Tensor:
    found: torch.Tensor = tensor.to_local() if isinstance(tensor, DTensor) else tensor
    return found
