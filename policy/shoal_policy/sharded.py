"""One policy on several processes, each with a part of it: FSDP2 over `shoal_policy.distributed`.

    rank 0: the trainer as ever ──────── an order ───────▶ every other rank: `follow`
            node, tasks, rewards, checkpoints, logs          a `RankShard`, nothing else
    each rank: its part of weights and optimiser; its share of prompts and rows

What rank 0 loads is dealt out once, and each rank steps its part. A checkpoint is gathered, the
very folder that one process would have written: a run may go on with any number of ranks, and
exports as ever. An order is a method of `RankShard` with its arguments. What rank 0 does alone
(evaluation, examples on trial) borrows the other ranks' parts first.
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
from shoal_policy.distributed import Ranks, together
from shoal_policy.generation.generator import Generator
from shoal_policy.generation.local import (
    Draws,
    OnStep,
    check,
    generate,
    uniforms,
)
from shoal_policy.model.from_settings import fresh_policy
from shoal_policy.model.loading import ModelError, Policy, compute_dtype, device_of
from shoal_policy.model.reference import load_reference
from shoal_policy.model.sharding import (
    OptimizerState,
    all_finite,
    deal_optimizer,
    deal_weights,
    gathered,
    shard,
    whole_optimizer,
    whole_weights,
)
from shoal_policy.rollouts import Answer
from shoal_policy.update.grpo import GrpoConfig, TrainGroup, UpdateStats, optimizer_of, update
from shoal_settings.schema import Settings
from shoal_wire.types import SamplingParams

T = TypeVar("T")

log = logging.getLogger(__name__)


class RankShard:
    """One rank's part of a policy and its optimiser. All ranks call a method at the same time."""

    def __init__(
        self, ranks: Ranks, settings: Settings, policy: Policy, state: OptimizerState
    ) -> None:
        """Deal out a policy that every rank has loaded onto its host.

        Trained weights and the optimiser's `state` are rank 0's; other ranks pass no state.
        """
        self._ranks, self._settings = ranks, settings
        for weight in policy.model.parameters():
            if weight.requires_grad:
                dist.broadcast(weight.data, src=0)
        self.policy = self._dealt(policy)
        self._optimizer = optimizer_of(settings, self.policy)
        deal_optimizer(self._optimizer, state, ranks.tell)
        self._reference: Policy | None = None

    def _dealt(self, policy: Policy) -> Policy:
        device = device_of(self._settings.device)
        # It was loaded onto the host, which computes in another type than the device.
        dtype = compute_dtype(self._settings.dtype, device) or policy.autocast_dtype
        mesh = init_device_mesh(device.type, (self._ranks.size,))
        return shard(dataclasses.replace(policy, autocast_dtype=dtype), mesh, device)

    def load_reference(self, *, seed: int) -> Policy | None:
        """Load the reference of a KL term, dealt out too, and return it."""
        found = load_reference(_on_host(self._settings), self.policy, seed=seed)
        if found is not None and found.model is not self.policy.model:
            found = self._dealt(found)
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
        """Answer this rank's share of the prompts; return everybody's answers.

        Numbers are drawn for all prompts at once: each prompt has those that it has on one process.
        Rank 0 raises what any rank raised.
        """
        share = self._ranks.part(len(prompts))
        made: list[list[Answer]] | Exception
        try:
            with gathered(self.policy.model):
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
        everybody = self._ranks.collect(made)
        for one in everybody:
            if isinstance(one, Exception) and self._ranks.rank == 0:
                raise one
        return [samples for one in everybody if not isinstance(one, Exception) for samples in one]

    def update(self, groups: Sequence[TrainGroup], config: GrpoConfig) -> UpdateStats:
        """`update.grpo.update`, rows dealt out and each rank's weights stepped by it."""
        return update(self.policy, self._optimizer, groups, config, self._reference, self._ranks)

    def lend(self) -> None:
        """Gather all weights until rank 0 has done what it does alone."""
        with gathered(self.policy.model):
            self._ranks.tell()

    def put(
        self, weights: Mapping[str, torch.Tensor] | None = None, state: OptimizerState | None = None
    ) -> None:
        """Take the trained weights and the optimiser's state that rank 0 passes."""
        deal_weights(self.policy, weights or {})
        deal_optimizer(self._optimizer, state or {}, self._ranks.tell)

    def finite(self) -> bool:
        """Return whether every weight is a finite number."""
        return all_finite(self.policy.model.parameters())

    def weights(self) -> dict[str, torch.Tensor]:
        """Return all trained weights on rank 0's host; see `Policy.weights`."""
        return whole_weights(self.policy)

    def optimizer_state(self) -> dict[str, Any]:
        """Return the optimiser's state as one process has it, on rank 0's host."""
        return whole_optimizer(self._optimizer)


class ShardedBackend(Backend):
    """Rank 0's way to work with all ranks, and to weights that are dealt out over them."""

    _part: RankShard

    def __init__(
        self,
        ranks: Ranks,
        settings: Settings,
        generator: Callable[[Policy], Generator] | None = None,
    ) -> None:
        """`settings` say which device, rate and decay; rank 0 itself loads onto the host."""
        self._ranks, self._settings, self.generator = ranks, settings, generator
        log.info("%d processes share the work and the weights", ranks.size)

    def take(self, policy: Policy, optimizer: Any) -> tuple[Policy, Any]:
        """See `Backend`."""
        self._ranks.tell(True)
        state = optimizer.state_dict()["state"]
        with together():
            self._part = RankShard(self._ranks, self._settings, policy, state)
        policy = dataclasses.replace(
            self._part.policy, whole=self._whole, weights=partial(self._all, RankShard.weights)
        )
        return policy, _GatheredOptimizer(partial(self._all, RankShard.optimizer_state))

    def _all(self, order: Callable[[RankShard], T]) -> T:
        """Have every rank carry out an order; return what comes of it here."""
        self._ranks.tell(order)
        with together():
            return order(self._part)

    def reference(self, settings: Settings, policy: Policy, *, seed: int) -> Policy | None:
        """See `Backend`."""
        return self._all(partial(RankShard.load_reference, seed=seed)) if settings.kl_beta else None

    def finite(self, policy: Policy) -> bool:
        """See `Backend`."""
        return self._all(RankShard.finite)

    def restore(self, policy: Policy, optimizer: Any, good: Policy, good_optimizer: Any) -> None:
        """See `Backend`."""
        self._ranks.tell(RankShard.put)
        with together():
            self._part.put(good.model.state_dict(), good_optimizer.state_dict()["state"])

    def generate(
        self,
        policy: Policy,
        prompts: Sequence[Sequence[int]],
        *,
        num_completions: int,
        params: SamplingParams,
        generator: Draws,
        on_step: OnStep = lambda _done, _fraction: None,
    ) -> list[list[Answer]]:
        """`generation.local.generate`, prompts dealt out; raises what any rank raised."""
        check(policy, prompts, num_completions, params)
        order = partial(
            RankShard.generate,
            prompts=[list(prompt) for prompt in prompts],
            num_completions=num_completions,
            params=params,
            uniforms_PLM=uniforms(generator, len(prompts), num_completions, params.max_new_tokens),
        )
        self._ranks.tell(order)
        # All have as much to do, near enough: what this one has done tells of the whole.
        size = self._ranks.size
        with together():
            return order(self._part, on_step=lambda done, fraction: on_step(done * size, fraction))

    def update(
        self,
        policy: Policy,
        optimizer: Any,
        groups: Sequence[TrainGroup],
        config: GrpoConfig,
        reference: Policy | None = None,
    ) -> UpdateStats:
        """`shoal_policy.update.grpo.update` of what all ranks hold."""
        return self._all(partial(RankShard.update, groups=list(groups), config=config))

    @contextlib.contextmanager
    def _whole(self) -> Iterator[None]:
        """The context of what rank 0 computes on its own."""
        self._ranks.tell(RankShard.lend)
        try:
            with together(), gathered(self._part.policy.model):
                yield
        finally:  # told to stop in the middle, too: the others wait for it
            self._ranks.tell()

    def close(self) -> None:
        """Send the others home."""
        self._ranks.tell()
        dist.destroy_process_group()


@dataclasses.dataclass(frozen=True, slots=True)
class _GatheredOptimizer:
    """Rank 0's view of an optimiser whose state is dealt out."""

    state_dict: Callable[[], dict[str, Any]]


def follow(settings: Settings, ranks: Ranks) -> None:
    """Work for rank 0 until it says to stop.

    Raises ModelError, or RankError when another rank is gone.
    """
    policy = fresh_policy(_on_host(settings), seed=settings.seed)
    if ranks.tell():
        with together():
            part = RankShard(ranks, settings, policy, {})
            del policy
            while (order := ranks.tell()) is not None:
                order(part)
    dist.destroy_process_group()


def _on_host(settings: Settings) -> Settings:
    """Return settings by which a model is loaded onto the host: no device need hold all of it."""
    return settings.model_copy(update={"device": "cpu"})
