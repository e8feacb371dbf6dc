"""A policy that no single process holds: FSDP2 over the ranks of `shoal_policy.distributed`.

    rank 0: the trainer ── "gather", "update", "give me all" ──▶ every other rank: `follow_sharded`
    each rank: its part of weights and optimiser; its share of prompts and rows

What rank 0 loads is dealt out once. A checkpoint is gathered, the very folder that one process
would have written: a run may go on with any number of ranks, and exports as ever. Other ranks wait
for orders; what rank 0 does alone (evaluation, examples on trial) asks them for their parts first.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed.device_mesh import init_device_mesh

from shoal_policy.checkpoint.saving import Snapshot
from shoal_policy.distributed import (
    GenerateOrder,
    Leading,
    RankError,
    Ranks,
    UpdateOrder,
    generate_part,
    together,
)
from shoal_policy.model.from_settings import fresh_policy
from shoal_policy.model.loading import Policy, compute_dtype, device_of
from shoal_policy.model.prefix_cache import forget
from shoal_policy.model.sharding import (
    deal_optimizer,
    deal_weights,
    gathered,
    shard,
    whole_optimizer,
    whole_weights,
)
from shoal_policy.update.grpo import GrpoConfig, TrainGroup, UpdateStats, optimizer_of, update
from shoal_settings.schema import Settings

log = logging.getLogger(__name__)

State = dict[int, dict[str, torch.Tensor]]
"""An optimiser's, by a parameter's number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Take:
    """Deal out the weights of rank 0, and this state of its optimiser."""

    known: dict[int, dict[str, float | None]]
    """State of each parameter: a number, or None for a tensor that rank 0 deals out."""
    weights_too: bool


class _Gather:
    """Gather all weights, until the next order."""


class _Release:
    """Release the gathered weights."""


class _SnapshotOrder:
    """Gather weights and optimiser for rank 0."""


def refuse_unsharded(settings: Settings) -> None:
    """Raise RankError for what a policy in parts does not do."""
    if settings.generator == "vllm":
        raise RankError("--generator vllm: sharded weights are not served; start without FSDP")
    if settings.kl_beta:
        raise RankError("--kl-beta: a reference is not sharded; start without FSDP, or without it")


class ShardedPart:
    """One rank's part of a policy and its optimiser; every method is collective."""

    def __init__(self, ranks: Ranks, settings: Settings) -> None:
        self.ranks, self._settings = ranks, settings
        self.policy: Policy | None = None
        self.optimizer: Any = None

    @together()
    def take(self, policy: Policy, order: _Take, state: State) -> tuple[Policy, Any]:
        """Deal a policy out that every rank has loaded, with rank 0's weights."""
        self.ranks.send_weights(policy)
        device = device_of(self._settings.device)
        mesh = init_device_mesh(device.type, (self.ranks.size,))
        # It was loaded onto the host, which computes in another type than the device.
        dtype = compute_dtype(self._settings.dtype, device)
        self.policy = shard(dataclasses.replace(policy, autocast_dtype=dtype), mesh, device)
        self.optimizer = optimizer_of(self._settings, self.policy)
        self.put(order, state, None)
        return self.policy, self.optimizer

    @together()
    def put(self, order: _Take, state: State, weights: dict[str, torch.Tensor] | None) -> None:
        """Take weights, if the order says so, and the optimiser's state from rank 0."""
        assert self.policy is not None
        forget(self.policy.model)
        if order.weights_too:
            deal_weights(self.policy, weights)
        empty = torch.empty(0)
        dealt = {
            index: {
                name: (state[index][name] if state else empty.reshape(1, 0))
                if value is None
                else torch.tensor(value)
                for name, value in values.items()
            }
            for index, values in order.known.items()
        }
        deal_optimizer(self.optimizer, dealt)

    @together()
    def snapshot(self) -> Snapshot:
        """Return all weights and states, on the host."""
        assert self.policy is not None
        weights, optimizer = whole_weights(self.policy), whole_optimizer(self.optimizer)
        return Snapshot(weights=weights, optimizer=optimizer)


class ShardedLeader(Leading):
    """Rank 0's way to work with all ranks; also where its policy is held (`held.Held`)."""

    def __init__(self, ranks: Ranks, settings: Settings) -> None:
        """`settings` say which device, rate and decay; rank 0 itself loads onto the host."""
        super().__init__(ranks)
        self._part = ShardedPart(ranks, settings)
        self._in_concert = False
        log.info("%d processes share the work and the weights", ranks.size)

    def take(self, policy: Policy, optimizer: Any) -> tuple[Policy, Any]:
        """See `WeightAccess`."""
        state: State = optimizer.state_dict()["state"]
        order = _Take(known=_known(state), weights_too=False)
        self._ranks.tell(order)
        policy, optimizer = self._part.take(policy, order, state)
        policy = dataclasses.replace(policy, whole=self._whole)
        return policy, optimizer

    def snapshot(self, policy: Policy, optimizer: Any) -> Snapshot:
        """See `WeightAccess`."""
        self._ranks.tell(_SnapshotOrder())
        return self._part.snapshot()

    def restore(self, policy: Policy, optimizer: Any, good: Policy, good_optimizer: Any) -> None:
        """See `WeightAccess`."""
        state: State = good_optimizer.state_dict()["state"]
        order = _Take(known=_known(state), weights_too=True)
        self._ranks.tell(order)
        self._part.put(order, state, dict(good.model.named_parameters()))

    def update(
        self,
        policy: Policy,
        optimizer: Any,
        groups: Sequence[TrainGroup],
        config: GrpoConfig,
        reference: Policy | None = None,
    ) -> UpdateStats:
        """`update.grpo.update`, rows dealt out and each rank's weights stepped by it."""
        self._ranks.tell(UpdateOrder(groups=list(groups), config=config))
        return update(policy, optimizer, groups, config, reference, self._ranks)

    @contextlib.contextmanager
    def _answering(self, policy: Policy) -> Iterator[None]:
        """All ranks have been told already: their weights are gathered here, once."""
        self._in_concert = True
        try:
            with gathered(policy.model):
                yield
        finally:
            self._in_concert = False

    @contextlib.contextmanager
    def _whole(self) -> Iterator[None]:
        """The context of what rank 0 generates on its own."""
        if self._in_concert:
            yield
            return
        assert self._part.policy is not None
        self._ranks.tell(_Gather())
        try:
            with self._answering(self._part.policy):
                yield
        finally:  # told to stop in the middle, too: the others wait for it
            self._ranks.tell(_Release())


def follow_sharded(settings: Settings, ranks: Ranks) -> None:
    """Work for rank 0 until it says to stop. Raises ModelError or RankError."""
    on_host = settings.model_copy(update={"device": "cpu"})
    part = ShardedPart(ranks, settings)
    while (order := ranks.tell()) is not None:
        _obey(part, order, lambda: fresh_policy(on_host, seed=settings.seed))
    torch.distributed.destroy_process_group()


def _obey(part: ShardedPart, order: Any, load: Callable[[], Policy]) -> None:
    ranks, policy = part.ranks, part.policy
    match order:
        case _Take(weights_too=False):
            part.take(load(), order, {})
        case _Take():
            part.put(order, {}, None)
        case _SnapshotOrder():
            part.snapshot()
        case GenerateOrder() if policy is not None:
            with gathered(policy.model):
                generate_part(policy, order, ranks, torch.Generator())
        case _Gather() if policy is not None:
            with gathered(policy.model):
                ranks.tell()
        case UpdateOrder() if policy is not None:
            update(policy, part.optimizer, order.groups, order.config, None, ranks)


def _known(state: State) -> dict[int, dict[str, float | None]]:
    return {
        index: {name: float(v) if v.ndim == 0 else None for name, v in values.items()}
        for index, values in state.items()
    }
