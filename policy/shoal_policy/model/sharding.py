"""A policy whose weights are sharded over processes (FSDP2): each holds a part of every matrix.

    shard                  each layer and the whole model gather weights for their forward pass
    CALL                   log-probabilities are computed *inside* the whole model's forward pass:
                           only there are embedding, layers and output matrix gathered together
    gathered_weights       around generation: weights are gathered once, not at every token

Shards stay float32; with a compute dtype they are gathered in it. PyTorch FSDP2: arXiv 2304.11277
and `torch.distributed.fsdp.fully_shard`.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    set_model_state_dict,
)
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import distribute_tensor

from shoal_policy.model.loading import Policy
from shoal_policy.model.memory import layers_of
from shoal_policy.model.packed import can_pack
from shoal_policy.model.shards import CALL, full_tensor_of, local_shard

OptimizerState = dict[int, dict[str, torch.Tensor]]
"""Optimiser state by parameter index."""


def shard(policy: Policy, mesh: Any, device: torch.device) -> Policy:
    """Shard a policy's weights over the devices of a mesh, in place; called by every rank.

    All ranks must hold equal weights. Frozen weights under adapters stay whole on every rank:
    generation needs them, and an update then gathers only adapters.
    """
    model, frozen = policy.model, set[Any]()
    can_pack(model, policy.device, 1)  # tested before sharding: it calls only the body
    _open_forward(model)
    gathered_as = policy.autocast_dtype
    if policy.adapter is not None:
        frozen = {weight for weight in model.parameters() if not weight.requires_grad}
        gathered_as = None  # autocast casts, as on one process
    mixed = MixedPrecisionPolicy(param_dtype=gathered_as, reduce_dtype=torch.float32)
    for module in (*layers_of(model), model):
        part = fully_shard(module, mesh=mesh, mp_policy=mixed, ignored_params=frozen)
        part.set_gradient_divide_factor(1.0)  # gradients are summed
        part.set_force_sum_reduction_for_comms(True)
    model.set_reduce_scatter_unused_params(True)  # ranks may use different experts
    model.to(device)  # buffers and frozen weights; shards are there already
    return dataclasses.replace(policy, device=device, is_sharded=True)


def _open_forward(model: Any) -> None:
    """Let the model's forward pass run another call, with all weights gathered around it."""
    own = model.forward

    def forward(*args: Any, **options: Any) -> Any:
        call = options.pop(CALL, None)
        return own(*args, **options) if call is None else call()

    model.forward = forward


@contextlib.contextmanager
def gathered_weights(model: Any) -> Iterator[None]:
    """Within, each rank holds all weights for any call; collective at the beginning.

    FSDP's hooks are disabled: they would cost each layer a fraction of a millisecond per token.
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


def gather_weights(policy: Policy) -> dict[str, torch.Tensor]:
    """Return the state dict, or only the adapters', on rank 0's host; collective."""
    state = {
        name: value
        for name, value in policy.model.state_dict(keep_vars=True).items()
        if policy.adapter is None or value.requires_grad
    }
    known: dict[int, torch.Tensor] = {}
    for value in state.values():
        if id(value) not in known:  # tied weights once
            known[id(value)] = _gather_to_rank_0(value.detach())
    return {name: known[id(value)] for name, value in state.items()}


def scatter_weights(policy: Policy, weights: Mapping[str, Any]) -> None:
    """Load the weights that rank 0 passes, in place; other ranks pass none. Collective."""
    trained = {n for n, weight in policy.model.named_parameters() if weight.requires_grad}
    set_model_state_dict(
        policy.model,
        {name: weight for name, weight in weights.items() if name in trained},
        options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True, strict=False),
    )


def gather_optimizer(optimizer: Any) -> dict[str, Any]:
    """Return the optimiser's state as one process would have it, on rank 0's host; collective.

    torch's `get_optimizer_state_dict` would take a step first if there is no state yet.
    """
    document: dict[str, Any] = optimizer.state_dict()
    document["state"] = {
        index: {name: _gather_to_rank_0(value) for name, value in values.items()}
        for index, values in sorted(document["state"].items())
    }
    return document


def _gather_to_rank_0(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor in one piece on rank 0's host; empty on other ranks."""
    whole = full_tensor_of(tensor)
    return whole.cpu() if dist.get_rank() == 0 else whole.new_empty(0)


def scatter_optimizer(
    optimizer: Any, state: OptimizerState, broadcast: Callable[[Any], Any]
) -> None:
    """Load the optimiser's state that rank 0 passes; other ranks pass none. Collective.

    `broadcast` returns rank 0's argument on every rank.
    """
    numbers = broadcast(
        {
            index: {name: None if value.ndim else value for name, value in values.items()}
            for index, values in sorted(state.items())
        }
    )
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    optimizer.state.clear()
    for index, values in numbers.items():
        optimizer.state[weights[index]] = {
            name: _scatter(weights[index], state.get(index, {}).get(name))
            if number is None
            else number.clone()
            for name, number in values.items()
        }


def _scatter(like: Any, value: torch.Tensor | None) -> Any:
    """Return rank 0's tensor sharded like another one; other ranks pass None."""
    here = local_shard(like)
    whole = torch.empty(like.shape, dtype=here.dtype, device=here.device)
    if value is not None:
        whole.copy_(value)
    return distribute_tensor(whole, like.device_mesh, like.placements)
