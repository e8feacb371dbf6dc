"""One policy sharded over several processes: FSDP2 over `shoal_policy.distributed`.

    rank 0: the trainer, as usual ────── an order ───────▶ every other rank: `run_worker`
            node, tasks, rewards, checkpoints, logs          only a `RankShard`
    each rank: its shard of weights and optimiser; its share of prompts and rows

Rank 0 loads, and the weights are scattered once; each rank steps its own shard. A checkpoint is
gathered into the same folder that one process would write, so a run may resume with any number of
ranks. An order is a method of `RankShard` with its arguments. For work that rank 0 does alone
(evaluation, few-shot trials) the weights are gathered first.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from shoal_policy.backend import Backend
from shoal_policy.distributed import Ranks, raise_if_rank_lost
from shoal_policy.generation.generator import Generator
from shoal_policy.generation.local import (
    OnStep,
    RandomSource,
    check_request,
    generate,
    uniforms,
)
from shoal_policy.model.from_settings import fresh_policy
from shoal_policy.model.loading import ModelError, Policy, compute_dtype, parse_device
from shoal_policy.model.reference import load_reference
from shoal_policy.model.sharding import (
    OptimizerState,
    gather_optimizer,
    gather_weights,
    gathered_weights,
    scatter_optimizer,
    scatter_weights,
    shard,
)
from shoal_policy.model.shards import all_finite
from shoal_policy.rollouts import Answer
from shoal_policy.update.grpo import GrpoConfig, TrainGroup, UpdateStats, build_optimizer, update
from shoal_settings.schema import Settings
from shoal_wire.types import SamplingParams

T = TypeVar("T")

log = logging.getLogger(__name__)


class RankShard:
    """One rank's shard of a policy and its optimiser. All ranks call a method at the same time."""

    def __init__(
        self, ranks: Ranks, settings: Settings, policy: Policy, state: OptimizerState
    ) -> None:
        """Shard a policy that every rank has loaded onto its host.

        Trained weights and the optimiser's `state` are rank 0's; other ranks pass no state.
        """
        self._ranks, self._settings = ranks, settings
        for weight in policy.model.parameters():
            if weight.requires_grad:
                dist.broadcast(weight.data, src=0)
        self.policy = self._shard_policy(policy)
        self._optimizer = build_optimizer(settings, self.policy)
        scatter_optimizer(self._optimizer, state, ranks.broadcast)
        self._reference: Policy | None = None

    def _shard_policy(self, policy: Policy) -> Policy:
        device = parse_device(self._settings.device)
        # Loaded onto the host, whose compute dtype may differ from the device's.
        dtype = compute_dtype(self._settings.dtype, device) or policy.autocast_dtype
        mesh = init_device_mesh(device.type, (self._ranks.size,))
        return shard(dataclasses.replace(policy, autocast_dtype=dtype), mesh, device)

    def load_reference(self, *, seed: int) -> Policy | None:
        """Load the reference of a KL term, sharded too, and return it."""
        found = load_reference(_on_host(self._settings), self.policy, seed=seed)
        if found is not None and found.model is not self.policy.model:
            found = self._shard_policy(found)
        self._reference = found
        return found

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        num_completions: int,
        params: SamplingParams,
        uniforms_PLM: torch.Tensor,
        on_step: OnStep = lambda _done, _fraction: None,
    ) -> list[list[Answer]]:
        """Generate for this rank's share of the prompts; return the answers of all ranks.

        Random numbers are drawn for all prompts, so each prompt has the same ones as on a single
        process. Rank 0 raises what any rank raised.
        """
        share = self._ranks.local_slice(len(prompts))
        made: list[list[Answer]] | Exception
        try:
            with gathered_weights(self.policy.model):
                made = generate(
                    self.policy,
                    prompts[share],
                    num_completions=num_completions,
                    params=params,
                    generator=uniforms_PLM[share],
                    on_step=on_step,
                )
        except (ModelError, ValueError) as error:
            made = error
        answers_by_rank = self._ranks.all_gather(made)
        for one in answers_by_rank:
            if isinstance(one, Exception) and self._ranks.rank == 0:
                raise one
        return [
            samples for one in answers_by_rank if not isinstance(one, Exception) for samples in one
        ]

    def update(self, groups: Sequence[TrainGroup], config: GrpoConfig) -> UpdateStats:
        """Run `update.grpo.update` with rows sharded over ranks; each rank steps its weights."""
        return update(self.policy, self._optimizer, groups, config, self._reference, self._ranks)

    def hold_gathered(self) -> None:
        """Hold all weights gathered until rank 0 has finished its own work."""
        with gathered_weights(self.policy.model):
            self._ranks.broadcast()

    def load_state(
        self, weights: Mapping[str, torch.Tensor] | None = None, state: OptimizerState | None = None
    ) -> None:
        """Load the trained weights and the optimiser's state that rank 0 passes."""
        scatter_weights(self.policy, weights or {})
        scatter_optimizer(self._optimizer, state or {}, self._ranks.broadcast)

    def is_finite(self) -> bool:
        """Return whether every weight is a finite number."""
        return all_finite(self.policy.model.parameters())

    def weights(self) -> dict[str, torch.Tensor]:
        """Return all trained weights on rank 0's host; see `Policy.weights`."""
        return gather_weights(self.policy)

    def optimizer_state(self) -> dict[str, Any]:
        """Return the optimiser's state as one process has it, on rank 0's host."""
        return gather_optimizer(self._optimizer)


class ShardedBackend(Backend):
    """Rank 0's backend over all ranks and their sharded weights."""

    _shard: RankShard

    def __init__(
        self,
        ranks: Ranks,
        settings: Settings,
        generator: Callable[[Policy], Generator] | None = None,
    ) -> None:
        """`settings` name the ranks' device and learning rate; rank 0 itself loads on the host."""
        self._ranks, self._settings, self.generator = ranks, settings, generator
        log.info("%d processes share the work and the weights", ranks.size)

    def prepare(self, policy: Policy, optimizer: Any) -> tuple[Policy, Any]:
        """See `Backend`."""
        self._ranks.broadcast(True)
        state = optimizer.state_dict()["state"]
        with raise_if_rank_lost():
            self._shard = RankShard(self._ranks, self._settings, policy, state)
        policy = dataclasses.replace(
            self._shard.policy,
            gather=self._gather,
            weights=partial(self._run_on_all, RankShard.weights),
        )
        return policy, _GatheredOptimizer(partial(self._run_on_all, RankShard.optimizer_state))

    def _run_on_all(self, order: Callable[[RankShard], T]) -> T:
        """Have every rank carry out an order; return this rank's result."""
        self._ranks.broadcast(order)
        with raise_if_rank_lost():
            return order(self._shard)

    def load_reference(self, settings: Settings, policy: Policy, *, seed: int) -> Policy | None:
        """See `Backend`."""
        return (
            self._run_on_all(partial(RankShard.load_reference, seed=seed))
            if settings.kl_beta
            else None
        )

    def is_finite(self, policy: Policy) -> bool:
        """See `Backend`."""
        return self._run_on_all(RankShard.is_finite)

    def restore(self, policy: Policy, optimizer: Any, good: Policy, good_optimizer: Any) -> None:
        """See `Backend`."""
        self._ranks.broadcast(RankShard.load_state)
        with raise_if_rank_lost():
            self._shard.load_state(good.model.state_dict(), good_optimizer.state_dict()["state"])

    def generate(
        self,
        policy: Policy,
        prompts: Sequence[Sequence[int]],
        *,
        num_completions: int,
        params: SamplingParams,
        generator: RandomSource,
        on_step: OnStep = lambda _done, _fraction: None,
    ) -> list[list[Answer]]:
        """Run `generation.local.generate` with prompts sharded; raises what any rank raised."""
        check_request(policy, prompts, num_completions, params)
        order = partial(
            RankShard.generate,
            prompts=[list(prompt) for prompt in prompts],
            num_completions=num_completions,
            params=params,
            uniforms_PLM=uniforms(generator, len(prompts), num_completions, params.max_new_tokens),
        )
        self._ranks.broadcast(order)
        # All ranks have about equal work, so this one's progress stands for the whole.
        size = self._ranks.size
        with raise_if_rank_lost():
            return order(self._shard, on_step=lambda done, fraction: on_step(done * size, fraction))

    def update(
        self,
        policy: Policy,
        optimizer: Any,
        groups: Sequence[TrainGroup],
        config: GrpoConfig,
        reference: Policy | None = None,
    ) -> UpdateStats:
        """Run `shoal_policy.update.grpo.update` on the weights of all ranks."""
        return self._run_on_all(partial(RankShard.update, groups=list(groups), config=config))

    @contextlib.contextmanager
    def _gather(self) -> Iterator[None]:
        """Return the context for work that rank 0 does alone."""
        self._ranks.broadcast(RankShard.hold_gathered)
        try:
            with raise_if_rank_lost(), gathered_weights(self._shard.policy.model):
                yield
        finally:  # also on a stop: the other ranks wait for it
            self._ranks.broadcast()

    def close(self) -> None:
        """End the other ranks."""
        self._ranks.broadcast()
        dist.destroy_process_group()


@dataclasses.dataclass(frozen=True, slots=True)
class _GatheredOptimizer:
    """Rank 0's view of an optimiser whose state is sharded."""

    state_dict: Callable[[], dict[str, Any]]


def run_worker(settings: Settings, ranks: Ranks) -> None:
    """Work for rank 0 until it sends no more orders.

    Raises ModelError, or RankError if another rank is gone.
    """
    policy = fresh_policy(_on_host(settings), seed=settings.seed)
    if ranks.broadcast():
        with raise_if_rank_lost():
            part = RankShard(ranks, settings, policy, {})
            del policy
            while (order := ranks.broadcast()) is not None:
                order(part)
    dist.destroy_process_group()


def _on_host(settings: Settings) -> Settings:
    """Return settings that load a model onto the host: no single device must hold all of it."""
    return settings.model_copy(update={"device": "cpu"})
