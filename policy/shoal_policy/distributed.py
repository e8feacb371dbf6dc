"""The processes of one policy, started by ``accelerate launch -m shoal_policy …`` or torchrun.

`Ranks` is one of them among its peers; `shoal_policy.sharded` has what they do together. A step's
rows are dealt out, and since each row's weight in the loss is fixed from all rows beforehand,
gradients are *summed*. What comes out is what one process computes but for the order in which
floats are added (about 1e-6, relatively).
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from shoal_policy.update.ranks import ProcessGroup, shard_rows
from shoal_policy.update.rows import TrainingRow

T = TypeVar("T")

log = logging.getLogger(__name__)

_PATIENCE = timedelta(hours=25)
"""Longer than the longest `--round-seconds`. A rank that dies is noticed at once, by its socket."""

_OTHER_SHARDING = ("ACCELERATE_USE_DEEPSPEED", "ACCELERATE_USE_MEGATRON_LM")


class RankError(Exception):
    """The ranks cannot work together. The text is one line."""


@contextlib.contextmanager
def together() -> Iterator[None]:
    """Around what all ranks do at once: raises RankError where another has ended."""
    try:
        yield
    except RuntimeError as error:
        # gloo has no exception of its own. A backward pass passes others' errors through, too.
        if not isinstance(error, dist.DistError) and "gloo" not in str(error):
            raise
        log.debug("%s", error)
        raise RankError("another process of this run has ended") from error


class Ranks(ProcessGroup):
    """This process among its peers. Every method but `share` and `part` is collective."""

    in_step = True

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size

    def share(self, rows: list[TrainingRow]) -> list[TrainingRow]:
        """This rank's rows: those of one prompt together, nearly equal tokens on all ranks."""
        return shard_rows(rows, self.size)[self.rank]

    def part(self, count: int) -> slice:
        """This rank's share of `count` things in a row."""
        return slice(count * self.rank // self.size, count * (self.rank + 1) // self.size)

    def passes(self, count: int) -> int:
        """Return the largest count of all ranks."""
        return int(self._over_all(count, dist.ReduceOp.MAX))

    def add_up(self, loss: float) -> float:
        """Sum a loss. Gradients are summed by the backward pass."""
        return self._over_all(loss, dist.ReduceOp.SUM)

    def _over_all(self, number: float, operation: Any) -> float:
        device = "cuda" if torch.cuda.is_available() else "cpu"
        value = torch.tensor(number, dtype=torch.float64, device=device)
        dist.all_reduce(value, op=operation)
        return float(value)

    def collect(self, value: T) -> list[T]:
        """Return every rank's value, in the order of ranks."""
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value)
        return values

    def tell(self, value: Any = None) -> Any:
        """Return rank 0's value, which it alone passes."""
        box: list[Any] = [value]
        with together():
            dist.broadcast_object_list(box, src=0)
        return box[0]


def join() -> Ranks | None:
    """Join the processes that a launcher started; None when this one was started alone.

    Raises RankError when the launcher asks for what is not offered.
    """
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        return None
    for variable in _OTHER_SHARDING:
        if os.environ.get(variable, "").lower() in ("1", "true"):
            raise RankError(
                f"{variable} is set, but models are sharded by FSDP alone: see docs/models.md"
            )
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend, timeout=_PATIENCE)
    return Ranks(dist.get_rank(), size)
