"""A wrong local clock is logged once, and so is its correction."""

from __future__ import annotations

import logging
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from shoal_p2p.net.interface import Host
from shoal_p2p.peers.clock_watch import ClockWatch
from shoal_p2p.peers.outside import ReachServer
from tests.conformance.talkers import connect
from tests.conformance.worlds import SimulatedWorld, World, open_world

pytestmark = pytest.mark.virtual_time

HOUR_MS = 3_600_000


def now_ms() -> int:
    return int(trio.current_time() * 1000) + HOUR_MS


class Watched:
    """A host whose clock is off by `off_ms`."""

    def __init__(self, world: World, host: Host, off_ms: int) -> None:
        self.off_ms = off_ms
        self._world, self._host = world, host
        self.watch = ClockWatch(host=host, rng=random.Random(0), wall_ms=self.wall_ms)

    def wall_ms(self) -> int:
        return now_ms() + self.off_ms

    async def meet(self, off_ms: int) -> None:
        """Connect a peer whose clock is off by that much."""
        peer = await self._world.host()
        ReachServer(host=peer, wall_ms=lambda: now_ms() + off_ms).serve()
        await connect(self._host, peer)


@asynccontextmanager
async def watched(*peers_off_ms: int, off_ms: int = 0) -> AsyncIterator[Watched]:
    async with open_world(SimulatedWorld) as world, trio.open_nursery() as nursery:
        one = Watched(world, await world.host(), off_ms)
        for each in peers_off_ms:
            await one.meet(each)
        nursery.start_soon(one.watch.run)
        yield one
        nursery.cancel_scope.cancel()


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.message for r in caplog.records if r.name == "shoal_p2p.peers.clock_watch"]


@pytest.fixture(autouse=True)
def captured(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="shoal_p2p.peers.clock_watch")


async def test_a_clock_an_hour_behind_is_reported_and_so_is_its_correction(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with watched(0, 0, 0, off_ms=-HOUR_MS) as one:
        await trio.sleep(60)
        (reported,) = warnings_of(caplog)
        assert "3,600 s behind the median of 3 peers: set it (NTP)" in reported
        one.off_ms = 0
        await trio.sleep(1300)
        assert len(warnings_of(caplog)) == 2
        assert "agrees with 3 of its peers again" in warnings_of(caplog)[1]


@pytest.mark.parametrize("peers", [(0, 0, 0), (10**12, 0, 0), (), (2_000,)])
async def test_a_right_clock_one_liar_or_no_peer_gives_no_warning(
    peers: tuple[int, ...], caplog: pytest.LogCaptureFixture
) -> None:
    async with watched(*peers):
        await trio.sleep(4000)
        assert warnings_of(caplog) == []


async def test_the_check_is_repeated_soon_until_a_peer_is_there(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with watched(off_ms=HOUR_MS) as one:
        await trio.sleep(30)
        await one.meet(0)
        await trio.sleep(100)
        (reported,) = warnings_of(caplog)
        assert "3,600 s ahead of its one peer: one of them is wrong" in reported
