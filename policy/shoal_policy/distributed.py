"""The ranks of one policy, started by ``accelerate launch -m shoal_policy …`` or torchrun.

`Ranks` is one rank's view of the process group; `shoal_policy.sharded` defines their common work. A
step's rows are sharded, and since each row's weight in the loss is computed from all rows before,
gradients are *summed*. The result equals one process up to the order of floating-point additions
(about 1e-6, relatively).
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

_COLLECTIVE_TIMEOUT = timedelta(hours=25)
"""Longer than the longest `--round-seconds`. A rank that dies is noticed at once by its socket."""

_OTHER_SHARDING = ("ACCELERATE_USE_DEEPSPEED", "ACCELERATE_USE_MEGATRON_LM")


class RankError(Exception):
    """The ranks cannot work together. The text is one line."""


@contextlib.contextmanager
def raise_if_rank_lost() -> Iterator[None]:
    """Within a collective operation, raise RankError if another rank has ended."""
    try:
        yield
    except RuntimeError as error:
        # gloo has no own exception type. A backward pass also passes on errors of other ranks.
        if not isinstance(error, dist.DistError) and "gloo" not in str(error):
            raise
        log.debug("%s", error)
        raise RankError("another process of this run has ended") from error


class Ranks(ProcessGroup):
    """This process in its group. Every method but `local_rows` and `local_slice` is collective."""

    is_lockstep = True

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size

    def local_rows(self, rows: list[TrainingRow]) -> list[TrainingRow]:
        """Return this rank's rows: whole prompts, with nearly equal tokens on all ranks."""
        return shard_rows(rows, self.size)[self.rank]

    def local_slice(self, count: int) -> slice:
        """Return this rank's slice of `count` consecutive items."""
        return slice(count * self.rank // self.size, count * (self.rank + 1) // self.size)

    def num_passes(self, count: int) -> int:
        """Return the largest count of all ranks."""
        return int(self._over_all(count, dist.ReduceOp.MAX))

    def all_reduce(self, loss: float) -> float:
        """Return the sum of a loss. Gradients are summed by the backward pass."""
        return self._over_all(loss, dist.ReduceOp.SUM)

    def _over_all(self, number: float, operation: Any) -> float:
        device = "cuda" if torch.cuda.is_available() else "cpu"
        value = torch.tensor(number, dtype=torch.float64, device=device)
        dist.all_reduce(value, op=operation)
        return float(value)

    def all_gather(self, value: T) -> list[T]:
        """Return every rank's value, in the order of ranks."""
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value)
        return values

    def broadcast(self, value: Any = None) -> Any:
        """Return rank 0's value; other ranks pass none."""
        box: list[Any] = [value]
        with raise_if_rank_lost():
            dist.broadcast_object_list(box, src=0)
        return box[0]


def init_process_group() -> Ranks | None:
    """Initialise torch.distributed if a launcher started this process; None if started alone.

    Raises RankError if the launcher requests an unsupported kind of sharding.
    """
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        return None
    for variable in _OTHER_SHARDING:
        if os.environ.get(variable, "").lower() in ("1", "true"):
            raise RankError(
                f"{variable} is set, but shoal shards models only with FSDP: see docs/models.md"
            )
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend, timeout=_COLLECTIVE_TIMEOUT)
    return Ranks(dist.get_rank(), size)
