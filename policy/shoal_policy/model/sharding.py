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
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    set_model_state_dict,
)
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from transformers.modeling_layers import GradientCheckpointingLayer

from shoal_policy.model.loading import Policy
from shoal_policy.model.packed import can_pack

OptimizerState = dict[int, dict[str, torch.Tensor]]
"""State of an optimiser, by a parameter's number."""

_CALL = "shoal_call"


def shard(policy: Policy, mesh: Any, device: torch.device) -> Policy:
    """Deal a policy's weights out, in place, onto the devices of a mesh; each rank calls it.

    All ranks must hold equal weights. Frozen weights beside adapters stay whole on every rank:
    generation needs them so, and an update then gathers adapters alone.
    """
    model, frozen = policy.model, set[Any]()
    can_pack(model, policy.device, 1)  # found out now: it calls the body alone
    _open_forward(model)
    gathered_as = policy.autocast_dtype
    if policy.adapter is not None:
        frozen = {weight for weight in model.parameters() if not weight.requires_grad}
        gathered_as = None  # autocast's own casts, as on one process
    mixed = MixedPrecisionPolicy(param_dtype=gathered_as, reduce_dtype=torch.float32)
    layers = [one for one in model.modules() if isinstance(one, GradientCheckpointingLayer)]
    for module in (*layers, model):
        part = fully_shard(module, mesh=mesh, mp_policy=mixed, ignored_params=frozen)
        part.set_gradient_divide_factor(1.0)  # a sum is wanted
        part.set_force_sum_reduction_for_comms(True)
    model.set_reduce_scatter_unused_params(True)  # ranks may use other experts
    model.to(device)  # buffers and frozen weights: the parts are there already
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
    """Within, each rank holds all weights, whatever it calls; collective at the beginning.

    FSDP's hooks are off: they would cost each layer a fraction of a millisecond at every token.
    """
    parts = [module for module in model.modules() if isinstance(module, FSDPModule)]
    known: list[tuple[dict[int, Any], dict[int, Any]]] = []
    for part in parts:
        part.unshard()
        own = fully_shard.state(part)
        for hooks in (part._forward_pre_hooks, part._forward_hooks):
            known.append((hooks, dict(hooks)))
            for number in known[-1][1]:
                if getattr(hooks[number], "__self__", None) is own:
                    del hooks[number]
    try:
        yield
    finally:
        for hooks, had in known:
            hooks.clear()
            hooks.update(had)
        for part in parts:
            part.reshard()


def class_of(model: Any) -> type:
    """Return a model's class, without the one that FSDP puts before it."""
    return type(model).__mro__[2] if isinstance(model, FSDPModule) else type(model)


def release(policy: Policy) -> None:
    """Let go of what a forward pass has left for a backward pass that does not come."""
    if policy.in_root:
        policy.model.reshard()


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
    """The model's state in one piece, or its adapters' alone, on rank 0's host; collective."""
    state = {
        name: value
        for name, value in policy.model.state_dict(keep_vars=True).items()
        if policy.adapter is None or value.requires_grad
    }
    known: dict[int, torch.Tensor] = {}
    for value in state.values():
        if id(value) not in known:  # tied ones once
            known[id(value)] = _for_rank_0(value.detach())
    return {name: known[id(value)] for name, value in state.items()}


def deal_weights(policy: Policy, weights: Mapping[str, Any]) -> None:
    """Take the weights that rank 0 passes, in place; other ranks pass none. Collective."""
    trained = {n for n, weight in policy.model.named_parameters() if weight.requires_grad}
    set_model_state_dict(
        policy.model,
        {name: weight for name, weight in weights.items() if name in trained},
        options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True, strict=False),
    )


def whole_optimizer(optimizer: Any) -> dict[str, Any]:
    """An optimiser's state as one process has it, on rank 0's host; collective.

    torch's `get_optimizer_state_dict` would take a step first where there is no state yet.
    """
    document: dict[str, Any] = optimizer.state_dict()
    document["state"] = {
        index: {name: _for_rank_0(value) for name, value in values.items()}
        for index, values in sorted(document["state"].items())
    }
    return document


def _for_rank_0(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor in one piece on rank 0's host; other ranks keep nothing of it."""
    whole = whole_tensor(tensor)
    return whole.cpu() if dist.get_rank() == 0 else whole.new_empty(0)


def deal_optimizer(optimizer: Any, state: OptimizerState, tell: Callable[[Any], Any]) -> None:
    """Take the optimiser's state that rank 0 passes; other ranks pass none. Collective.

    `tell` returns rank 0's argument on every rank.
    """
    numbers = tell(
        {
            index: {name: None if value.ndim else value for name, value in values.items()}
            for index, values in sorted(state.items())
        }
    )
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    optimizer.state.clear()
    for index, values in numbers.items():
        optimizer.state[weights[index]] = {
            name: _dealt(weights[index], state.get(index, {}).get(name))
            if number is None
            else number.clone()
            for name, number in values.items()
        }


def _dealt(like: Any, value: torch.Tensor | None) -> Any:
    """Return rank 0's tensor, dealt out as another one is; other ranks pass None."""
    here = _part(like)
    whole = torch.empty(like.shape, dtype=here.dtype, device=here.device)
    if value is not None:
        whole.copy_(value)
    return distribute_tensor(whole, like.device_mesh, like.placements)


def _part(tensor: Any) -> torch.Tensor:
    found: torch.Tensor = tensor.to_local() if isinstance(tensor, DTensor) else tensor
    return found
