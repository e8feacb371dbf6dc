"""Replay buffers of others, behind one interface. A loader raises ImportError if it is absent."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Protocol

EXTEND = 32
"""Items a call of torchrl's `extend`, its faster way to insert."""


class Store(Protocol):
    """A replay buffer that can be filled and sampled."""

    def prepare(self, count: int) -> Sequence[Any]:
        """Make items; not timed."""

    def insert(self, items: Sequence[Any]) -> None:
        """Insert them."""

    def sample(self, count: int) -> None:
        """Draw a batch."""

    def close(self) -> None:
        """End whatever it started."""


def torchrl_single(*, group_bytes: int, capacity: int) -> Callable[[], Store]:
    """Load torchrl; items go in one at a time, as a node receives them."""
    return _torchrl(group_bytes, capacity, batched=False)


def torchrl_extend(*, group_bytes: int, capacity: int) -> Callable[[], Store]:
    """Load torchrl; items go in `EXTEND` at a time."""
    return _torchrl(group_bytes, capacity, batched=True)


def _torchrl(group_bytes: int, capacity: int, *, batched: bool) -> Callable[[], Store]:
    import torch
    from torchrl.data import LazyTensorStorage, ReplayBuffer

    torch.set_num_threads(1)
    logging.getLogger("torchrl").setLevel(logging.WARNING)

    class Torchrl:
        def __init__(self) -> None:
            self._buffer = ReplayBuffer(storage=LazyTensorStorage(capacity))

        def prepare(self, count: int) -> Sequence[Any]:
            items = torch.zeros((count, group_bytes), dtype=torch.uint8)
            return list(items.split(EXTEND)) if batched else list(items.unbind())

        def insert(self, items: Sequence[Any]) -> None:
            put = self._buffer.extend if batched else self._buffer.add
            for item in items:
                put(item)

        def sample(self, count: int) -> None:
            drawn = self._buffer.sample(count)
            assert drawn.shape == (count, group_bytes)

        def close(self) -> None:
            pass

    return Torchrl


def reverb(*, group_bytes: int, capacity: int) -> Callable[[], Store]:
    """Load Reverb: a server in this process, as it is meant to be used."""
    import numpy
    import reverb as library

    class Reverb:
        def __init__(self) -> None:
            table = library.Table(
                name="groups",
                sampler=library.selectors.Uniform(),
                remover=library.selectors.Fifo(),
                max_size=capacity,
                rate_limiter=library.rate_limiters.MinSize(1),
            )
            self._server = library.Server([table])
            self._client = library.Client(f"localhost:{self._server.port}")

        def prepare(self, count: int) -> Sequence[Any]:
            return [numpy.zeros(group_bytes, dtype=numpy.uint8) for _ in range(count)]

        def insert(self, items: Sequence[Any]) -> None:
            with self._client.trajectory_writer(num_keep_alive_refs=1) as writer:
                for item in items:
                    writer.append({"group": item})
                    writer.create_item("groups", 1.0, {"group": writer.history["group"][-1:]})
                    writer.flush(block_until_num_items=EXTEND)
                writer.flush()

        def sample(self, count: int) -> None:
            assert len(list(self._client.sample("groups", num_samples=count))) == count

        def close(self) -> None:
            self._server.stop()

    return Reverb


Loader = Callable[..., Callable[[], Store]]

PEERS: dict[str, Loader] = {
    "torchrl_add": torchrl_single,
    "torchrl_extend_of_32": torchrl_extend,
    "reverb": reverb,
}
