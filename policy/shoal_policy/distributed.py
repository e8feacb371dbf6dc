"""One policy on several processes, started by ``accelerate launch -m shoal_policy …`` or torchrun.

    rank 0: the trainer as ever ── "generate" / "update" ──▶ every other rank: `follow`
            node, tasks, rewards, checkpoints, logs          a model, nothing else

Work is split, not state: rank 0 alone has the optimiser and takes the steps. Before each piece of
work and after each step the trained weights are sent to all, so ranks cannot drift apart. Where the
launcher asks for FSDP, state is split too (`shoal_policy.sharded`): each rank steps its part.
A round's prompts are dealt out for generation; a step's rows are dealt out, and since each row's
weight in the loss is fixed from all rows beforehand, gradients are *summed*. What comes out is what
one process computes but for the order in which floats are added (about 1e-6, relatively).
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from shoal_policy.generation.local import Draws, OnStep, SampledCompletion, generate
from shoal_policy.model.from_settings import fresh_policy
from shoal_policy.model.loading import ModelError, Policy
from shoal_policy.model.reference import load_reference
from shoal_policy.update.grpo import GrpoConfig, TrainGroup, UpdateStats, update
from shoal_policy.update.ranks import dealt
from shoal_policy.update.rows import TrainingRow
from shoal_settings.schema import Settings
from shoal_wire.types import SamplingParams

T = TypeVar("T")

log = logging.getLogger(__name__)

_PATIENCE = timedelta(hours=25)
"""Longer than the longest `--round-seconds`. A rank that dies is noticed at once, by its socket."""

_FSDP = "ACCELERATE_USE_FSDP"
_OTHER_SHARDING = ("ACCELERATE_USE_DEEPSPEED", "ACCELERATE_USE_MEGATRON_LM")


class RankError(Exception):
    """The ranks cannot work together. The text is one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateOrder:
    """Answer a share of these prompts."""

    prompts: list[list[int]]
    num_completions: int
    params: SamplingParams
    draws: torch.Tensor | list[int]
    """The state of the generator, or a seed for each prompt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateOrder:
    """Compute a share of an update."""

    groups: list[TrainGroup]
    config: GrpoConfig


@contextlib.contextmanager
def together() -> Iterator[None]:
    """Around what all ranks do at once: it fails where another has ended."""
    try:
        yield
    except (RuntimeError, dist.DistError) as error:
        log.debug("%s", error)
        raise RankError("another process of this run has ended") from error


class Ranks:
    """This process among its peers. Every method but `share` is collective: all must call it."""

    in_step = False
    shards = False
    """True where each process holds a part of the weights."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size

    def share(self, rows: list[TrainingRow]) -> list[TrainingRow]:
        """This rank's rows: those of one prompt together, nearly equal tokens on all ranks."""
        return dealt(rows, self.size)[self.rank]

    def passes(self, count: int) -> int:
        """Its own: a pass over the model needs no other rank."""
        return count

    @together()
    def add_up(self, loss: float, weights: Iterable[torch.nn.Parameter]) -> float:
        """Sum a loss, and the gradients of `weights` in place, over all ranks."""
        trained = [weight for weight in weights if weight.requires_grad]
        device = trained[0].device
        # A weight that no row needed has no gradient on any rank; one process leaves it alone.
        known = torch.tensor([w.grad is not None for w in trained], dtype=torch.int32)
        known = known.to(device)
        dist.all_reduce(known)
        for weight, has_gradient in zip(trained, known.tolist(), strict=True):
            if has_gradient:
                if weight.grad is None:
                    weight.grad = torch.zeros_like(weight)
                dist.all_reduce(weight.grad)
        total = torch.tensor(loss, dtype=torch.float64, device=device)
        dist.all_reduce(total)
        return float(total)

    @together()
    def collect(self, value: T) -> list[T]:
        """Return every rank's value, in the order of ranks."""
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value)
        return values

    @together()
    def tell(self, value: Any = None) -> Any:
        """Return rank 0's value, which it alone passes."""
        box: list[Any] = [value]
        dist.broadcast_object_list(box, src=0)
        return box[0]

    @together()
    def send_weights(self, policy: Policy) -> None:
        """Make every rank's trained weights those of rank 0. Frozen ones were loaded alike."""
        with torch.no_grad():
            for weight in policy.model.parameters():
                if weight.requires_grad:
                    dist.broadcast(weight.data, src=0)

    def part(self, count: int) -> range:
        """This rank's share of `count` things in a row."""
        return range(count * self.rank // self.size, count * (self.rank + 1) // self.size)


def join() -> Ranks | None:
    """Join the processes that a launcher started; None when this one was started alone.

    Raises RankError when the launcher asks for what is not offered.
    """
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        return None
    for variable in _OTHER_SHARDING:
        if _is_set(variable):
            raise RankError(
                f"{variable} is set, but models are sharded by FSDP alone: see docs/models.md"
            )
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend, timeout=_PATIENCE)
    kind = ShardedRanks if _is_set(_FSDP) else Ranks
    return kind(dist.get_rank(), size)


def _is_set(variable: str) -> bool:
    return os.environ.get(variable, "").lower() in ("1", "true")


class ShardedRanks(Ranks):
    """Ranks that hold a part of every weight each, and gather them in every pass together."""

    in_step = True
    shards = True

    @together()
    def passes(self, count: int) -> int:
        """Return the largest count of all ranks."""
        most = torch.tensor(count, device=_device())
        dist.all_reduce(most, op=dist.ReduceOp.MAX)
        return int(most)

    @together()
    def add_up(self, loss: float, weights: Iterable[torch.nn.Parameter]) -> float:
        """Sum a loss; gradients have been averaged by the backward pass, and a sum is wanted."""
        for weight in weights:
            if weight.grad is not None:
                weight.grad.mul_(self.size)
        total = torch.tensor(loss, dtype=torch.float64, device=_device())
        dist.all_reduce(total)
        return float(total)


def _device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Leading:
    """Rank 0's way to have prompts answered by all ranks."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks

    def generate(
        self,
        policy: Policy,
        prompts: Sequence[Sequence[int]],
        *,
        num_completions: int,
        params: SamplingParams,
        generator: Draws,
        on_step: OnStep = lambda _done, _fraction: None,
    ) -> list[list[SampledCompletion]]:
        """`generation.local.generate`, prompts dealt out; raises what any rank raised."""
        order = GenerateOrder(
            prompts=[list(prompt) for prompt in prompts],
            num_completions=num_completions,
            params=params,
            draws=generator.get_state()
            if isinstance(generator, torch.Generator)
            else list(generator),
        )
        self._ranks.tell(order)
        # All have as much to do, near enough: what this one has done tells of the whole.
        size = self._ranks.size
        with self._answering(policy):
            return generate_part(
                *(policy, order, self._ranks),
                generator if isinstance(generator, torch.Generator) else torch.Generator(),
                on_step=lambda done, fraction: on_step(done * size, fraction),
            )

    def _answering(self, policy: Policy) -> contextlib.AbstractContextManager[None]:
        """Around it: all ranks have the policy's weights of this moment."""
        raise NotImplementedError

    def close(self) -> None:
        """Send the others home."""
        self._ranks.tell(None)
        dist.destroy_process_group()


class Leader(Leading):
    """Rank 0's way to work with all ranks: `generate` and `update` by their usual signatures."""

    def __init__(self, ranks: Ranks) -> None:
        super().__init__(ranks)
        log.info("%d processes share the work", ranks.size)

    @contextlib.contextmanager
    def _answering(self, policy: Policy) -> Iterator[None]:
        self._ranks.send_weights(policy)
        yield

    def update(
        self,
        policy: Policy,
        optimizer: Any,
        groups: Sequence[TrainGroup],
        config: GrpoConfig,
        reference: Policy | None = None,
    ) -> UpdateStats:
        """`shoal_policy.update.grpo.update`, rows dealt out."""
        self._ranks.tell(UpdateOrder(groups=list(groups), config=config))
        self._ranks.send_weights(policy)
        stepping = _Steps(self._ranks, policy, optimizer)
        return update(policy, stepping, groups, config, reference, self._ranks)


def follow(settings: Settings, ranks: Ranks) -> None:
    """Work for rank 0 until it says to stop.

    Raises ModelError, or RankError when another rank is gone.
    """
    policy = fresh_policy(settings, seed=settings.seed)
    reference = load_reference(settings, policy, seed=settings.seed)
    stepping = _Steps(ranks, policy, None)
    while (order := ranks.tell()) is not None:
        ranks.send_weights(policy)
        match order:
            case GenerateOrder():
                generate_part(policy, order, ranks, torch.Generator())
            case UpdateOrder():
                update(policy, stepping, order.groups, order.config, reference, ranks)
    dist.destroy_process_group()


class _Steps:
    """An optimiser whose steps are taken by rank 0 and sent to all ranks."""

    def __init__(self, ranks: Ranks, policy: Policy, optimizer: Any) -> None:
        self._ranks, self._policy, self._optimizer = ranks, policy, optimizer

    def zero_grad(self, *, set_to_none: bool) -> None:
        self._policy.model.zero_grad(set_to_none=set_to_none)

    def step(self) -> None:
        if self._optimizer is not None:
            self._optimizer.step()
        self._ranks.send_weights(self._policy)


def generate_part(
    policy: Policy,
    order: GenerateOrder,
    ranks: Ranks,
    generator: torch.Generator,
    on_step: OnStep = lambda _done, _fraction: None,
) -> list[list[SampledCompletion]]:
    """Generate this rank's part; return everybody's. `generator` is left as after the whole."""
    part = ranks.part(len(order.prompts))
    draws: Draws = generator
    if isinstance(order.draws, torch.Tensor):
        generator.set_state(order.draws)
        # Numbers are drawn prompt by prompt: passing over those of earlier prompts gives each
        # prompt the very ones that it has on one process.
        _skip(generator, part.start, order)
    else:
        draws = order.draws[part.start : part.stop]
    made: list[list[SampledCompletion]] | ModelError | ValueError
    try:
        made = generate(
            policy,
            order.prompts[part.start : part.stop],
            num_completions=order.num_completions,
            params=order.params,
            generator=draws,
            on_step=on_step,
        )
    except (ModelError, ValueError) as error:
        made = error
    if draws is generator:
        _skip(generator, len(order.prompts) - part.stop, order)
    everybody = ranks.collect(made)
    for one in everybody:
        if isinstance(one, Exception) and ranks.rank == 0:
            raise one
    return [samples for one in everybody if not isinstance(one, Exception) for samples in one]


def _skip(generator: torch.Generator, num_prompts: int, order: GenerateOrder) -> None:
    count = num_prompts * order.num_completions * order.params.max_new_tokens
    if count:
        torch.rand(count, generator=generator)
