"""A wrong clock is told to whom it belongs to, once, and so is that it is right again."""

from __future__ import annotations

import logging
import random

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

    def __init__(self, host: Host) -> None:
        self.host = host
        self.off_ms = 0
        self.watch = ClockWatch(host=host, rng=random.Random(0), wall_ms=self.wall_ms)

    def wall_ms(self) -> int:
        return now_ms() + self.off_ms


async def watched(world: World, *peers_off_ms: int) -> Watched:
    one = Watched(await world.host())
    for off_ms in peers_off_ms:
        peer = await world.host()
        ReachServer(host=peer, wall_ms=lambda off_ms=off_ms: now_ms() + off_ms).serve()
        await connect(one.host, peer)
    return one


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.message for r in caplog.records if r.name == "shoal_p2p.peers.clock_watch"]


@pytest.fixture(autouse=True)
def heard(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="shoal_p2p.peers.clock_watch")


async def test_an_hour_behind_is_said_and_so_is_that_it_is_mended(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with open_world(SimulatedWorld) as world, trio.open_nursery() as nursery:
        one = await watched(world, 0, 0, 0)
        one.off_ms = -HOUR_MS
        nursery.start_soon(one.watch.run)
        await trio.sleep(60)
        (said,) = warnings_of(caplog)
        assert "3,600 s behind the median of 3 peers: set it (NTP)" in said
        one.off_ms = 0
        await trio.sleep(1300)
        assert len(warnings_of(caplog)) == 2
        assert "agrees with 3 of its peers again" in warnings_of(caplog)[1]
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("peers", [(0, 0, 0), (10**12, 0, 0), (), (2_000,)])
async def test_a_right_clock_one_liar_or_nobody_to_ask_is_not_worth_a_word(
    peers: tuple[int, ...], caplog: pytest.LogCaptureFixture
) -> None:
    async with open_world(SimulatedWorld) as world, trio.open_nursery() as nursery:
        one = await watched(world, *peers)
        nursery.start_soon(one.watch.run)
        await trio.sleep(4000)
        assert warnings_of(caplog) == []
        nursery.cancel_scope.cancel()


async def test_it_is_asked_again_soon_until_somebody_is_there(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with open_world(SimulatedWorld) as world, trio.open_nursery() as nursery:
        one = await watched(world)
        one.off_ms = HOUR_MS
        nursery.start_soon(one.watch.run)
        await trio.sleep(30)
        peer = await world.host()
        ReachServer(host=peer, wall_ms=now_ms).serve()
        await connect(one.host, peer)
        await trio.sleep(100)
        (said,) = warnings_of(caplog)
        assert "3,600 s ahead of its one peer: one of them is wrong" in said
        nursery.cancel_scope.cancel()
