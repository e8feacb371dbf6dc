"""Hosts on a network in memory, and virtual time that advances when all tasks wait.

    async def main() -> None:
        async with memory_network(seed=1) as network:
            ann, ben = await network.hosts(2)
            await ann.dial(ben.listen_addrs()[0])
            network.net.partition(lambda peer_id: int(peer_id == ben.peer_id))

    in_virtual_time(main)

For a whole node on it, use `Node(…, parts=network.parts(), socket=NoSocket)`, with `NoSocket` of
`shoal_lab.simulation.parts`.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

import trio
import trio.testing

from shoal_lab.simulation.host import SimulatedHost
from shoal_lab.simulation.network import SimulatedNetwork
from shoal_lab.simulation.parts import simulated_parts
from shoal_p2p.parts import Dependencies, Worker
from shoal_p2p.peers.outside import wall_ms as real_wall_ms
from shoal_tasks.spec import FamilySpec
from tests.support.doubles.identities import fresh_identity
from tests.support.doubles.worker import InstantWorker

T = TypeVar("T")


class MemoryNetwork:
    """A running network, with hosts that end with it."""

    def __init__(self, nursery: trio.Nursery, rng: random.Random) -> None:
        self.net = SimulatedNetwork(rng)
        """The network itself, with its faults: `partition`, `heal`, `break_connections`."""
        self._nursery = nursery
        self._rng = rng
        self._numbers = itertools.count(1)

    async def host(self) -> SimulatedHost:
        """Run a host at its own address."""
        number = next(self._numbers)
        address = f"/ip4/10.0.{number // 250}.{number % 250 + 1}/tcp/4001"
        host = SimulatedHost(self.net, fresh_identity(), address)
        await self._nursery.start(host.run)
        return host

    async def hosts(self, count: int) -> list[SimulatedHost]:
        """Run `count` hosts, not yet connected."""
        return [await self.host() for _ in range(count)]

    def parts(
        self, *, worker: Worker | None = None, wall_ms: Callable[[], int] = real_wall_ms
    ) -> Dependencies:
        """Return the dependencies of a whole node on this network."""

        def make_worker(families: Sequence[FamilySpec], _patience_s: float) -> Worker:
            return worker or InstantWorker(families)

        return simulated_parts(self.net, worker=make_worker, wall_ms=wall_ms, rng=self._rng)


@asynccontextmanager
async def memory_network(*, seed: int = 0) -> AsyncIterator[MemoryNetwork]:
    """Run a network; equal seeds give equal runs."""
    async with trio.open_nursery() as nursery:
        network = MemoryNetwork(nursery, random.Random(seed))
        await nursery.start(network.net.run)
        yield network
        nursery.cancel_scope.cancel()


def in_virtual_time(main: Callable[[], Awaitable[T]]) -> T:
    """Run `main` to its end in virtual time, and return its result."""
    return trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
