"""A full bootstrap locks nobody out: newcomers by the dozen and by the thousand, in virtual time.

Every peer is a whole one that has yet to learn its swarm's manifest: host, discovery, standing and
gossip of a node; nothing in it is published.
"""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import trio

from shoal_bootstrap.peer import BootstrapPeer, MeetingPoint
from shoal_lab.simulation.clock import deterministic, jumping_clock
from shoal_lab.simulation.network import SimulatedNetwork
from shoal_lab.simulation.parts import NoSocket, simulated_parts
from shoal_p2p.data_dir import save_manifest
from shoal_p2p.gossip.settings import GossipSettings, MeshSettings
from shoal_p2p.net.identity import identity_from_seed
from shoal_p2p.parts import Tuning
from shoal_settings.schema import Settings
from shoal_wire.types import PeerId
from tests.support import factories as make
from tests.support.doubles.worker import InstantWorker
from tests.support.simulated_swarm import EPOCH_MS, _unflushed, memoised

SWARM = make.swarm("door")
JOINED_S = 60.0


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Hundreds of newcomers say a lot."""
    caplog.set_level(logging.CRITICAL, logger="shoal_p2p")


@dataclass(slots=True)
class Newcomer:
    """One peer that comes, and when it had company."""

    came_at: float
    met_at: float = math.inf
    peer: MeetingPoint | None = None


@dataclass(slots=True)
class Door:
    """A bootstrap of few slots, and whoever came through it."""

    folder: Path
    slots: int
    rng: random.Random
    network: SimulatedNetwork
    nursery: trio.Nursery
    heartbeat_s: float = 1.0
    address: str = ""
    bootstrap: MeetingPoint | None = None
    newcomers: list[Newcomer] = field(default_factory=list)

    async def open(self) -> None:
        """Start the bootstrap."""
        home = self.folder / "bootstrap"
        home.mkdir()
        save_manifest(home, SWARM)
        self.bootstrap = await self._start(0, home, max_connections=self.slots)
        self.address = self.bootstrap.member.host.listen_addrs()[0]

    async def come(self, number: int) -> None:
        """Start a newcomer that knows the bootstrap's address only, and nothing of the swarm."""
        newcomer = Newcomer(trio.current_time())
        self.newcomers.append(newcomer)
        home = self.folder / f"newcomer{number}"
        home.mkdir()

        def ready(peer: MeetingPoint) -> None:
            newcomer.peer = peer

        await self._start(number, home, ready, bootstrap=(self.address,))

    async def _start(
        self,
        number: int,
        home: Path,
        ready: Callable[[MeetingPoint], None] = lambda _peer: None,
        **changes: Any,
    ) -> MeetingPoint:
        settings = Settings(
            data_dir=home,
            listen=(f"/ip4/10.{number >> 8}.{number & 255}.1/tcp/4001",),
            mdns=False,
            **changes,
        )
        tuning = Tuning.of(settings)
        gossip = GossipSettings(mesh=MeshSettings(heartbeat_s=self.heartbeat_s))
        made: list[MeetingPoint] = []
        is_ready = trio.Event()

        def on_ready(peer: MeetingPoint) -> None:
            made.append(peer)
            ready(peer)
            is_ready.set()

        async def live() -> None:
            again = True
            while (
                again
            ):  # as `shoal_bootstrap.__main__`, when its bootstrap turns out to be of another swarm
                again = await BootstrapPeer(
                    identity=identity_from_seed(number.to_bytes(32, "big")),
                    settings=settings,
                    on_ready=on_ready,
                    parts=simulated_parts(
                        self.network,
                        worker=lambda _families, _patience_s: InstantWorker(),
                        wall_ms=lambda: EPOCH_MS + int(1000 * trio.current_time()),
                        rng=random.Random(f"{self.rng.random()}/{number}"),
                    ),
                    tuning=replace(tuning, gossip=gossip),
                    socket=NoSocket,
                ).run()

        self.nursery.start_soon(live)
        await is_ready.wait()
        return made[0]

    async def watch(self) -> None:
        """Note when each newcomer is in the right swarm with another newcomer, until cancelled."""
        while True:
            await trio.sleep(0.5)
            for newcomer in self.newcomers:
                if newcomer.met_at == math.inf and self._has_company(newcomer):
                    newcomer.met_at = trio.current_time()

    def _has_company(self, newcomer: Newcomer) -> bool:
        peer = newcomer.peer
        return peer is not None and peer.member.manifest == SWARM and bool(self.others_of(peer))

    def others_of(self, peer: MeetingPoint) -> frozenset[PeerId]:
        """Return a peer's peers, the bootstrap apart."""
        assert self.bootstrap is not None
        return peer.member.host.connected_peers() - {self.bootstrap.member.peer_id}

    def waits(self) -> list[float]:
        """Return how long each newcomer waited for company, in order."""
        return sorted(newcomer.met_at - newcomer.came_at for newcomer in self.newcomers)


def through_the_door(
    folder: Path, *, slots: int, seed: int, script: Any, heartbeat_s: float = 1.0
) -> Door:
    """Run ``await script(door)`` with a bootstrap that is up; return the door."""
    doors: list[Door] = []

    async def main() -> None:
        network = SimulatedNetwork(random.Random(f"{seed}/network"))
        async with trio.open_nursery() as nursery:
            await nursery.start(network.run)
            rng = random.Random(seed)
            door = Door(folder, slots, rng, network, nursery, heartbeat_s=heartbeat_s)
            doors.append(door)
            await door.open()
            nursery.start_soon(door.watch)
            await script(door)
            nursery.cancel_scope.cancel()

    with deterministic(seed), memoised(), _unflushed():
        trio.run(main, clock=jumping_clock())
    return doors[0]


def arriving(count: int, over_s: float, stay_s: float) -> Any:
    """Return a script of `count` that come at random times, and `stay_s` more to meet in."""

    async def script(door: Door) -> None:
        for number, at in enumerate(sorted(door.rng.uniform(0, over_s) for _ in range(count))):
            await trio.sleep_until(max(at, trio.current_time()))
            door.nursery.start_soon(door.come, number + 1)
        with trio.move_on_after(stay_s):
            while len(door.newcomers) < count or door.waits()[-1] == math.inf:  # noqa: ASYNC110
                await trio.sleep(0.5)

    return script


@pytest.mark.parametrize(("slots", "seed"), [(3, 1), (4, 2)])
def test_ten_newcomers_meet_through_a_bootstrap_of_few_slots(
    slots: int, seed: int, tmp_path: Path
) -> None:
    door = through_the_door(tmp_path, slots=slots, seed=seed, script=arriving(10, 0.1, JOINED_S))
    waits = door.waits()
    assert len(waits) == 10
    assert waits[-1] <= JOINED_S, waits


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_thousand_newcomers_within_a_minute_all_meet(tmp_path: Path) -> None:
    door = through_the_door(
        tmp_path, slots=256, seed=7, heartbeat_s=5.0, script=arriving(1000, 60.0, JOINED_S)
    )
    waits = door.waits()
    assert len(waits) == 1000
    assert waits[-1] <= JOINED_S, waits[-20:]
