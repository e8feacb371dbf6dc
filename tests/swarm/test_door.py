"""A full bootstrap peer locks no newcomer out: dozens and thousands of newcomers, in virtual time.

Every newcomer has a whole node's host, discovery, reputation and gossip, but does not know its
swarm's manifest yet. Nothing is published.
"""

from __future__ import annotations

import logging
import math
import random
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import trio

from shoal_bootstrap.peer import BootstrapPeer, MeetingPoint
from shoal_lab.simulation.clock import deterministic, jumping_clock
from shoal_lab.simulation.network import SimulatedNetwork
from shoal_lab.simulation.parts import NoSocket, simulated_parts
from shoal_p2p.gossip.settings import GossipSettings, MeshSettings
from shoal_p2p.net.identity import identity_from_seed
from shoal_p2p.parts import Limits
from shoal_settings.schema import Settings
from shoal_tasks.run_memory import save_manifest
from tests.support import factories as make
from tests.support.doubles.worker import InstantWorker
from tests.support.nodes import until
from tests.support.simulated_swarm import EPOCH_MS, _unflushed, memoised

SWARM = make.swarm("door")
JOINED_S = 60.0


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Hide the log of hundreds of newcomers."""
    caplog.set_level(logging.CRITICAL, logger="shoal_p2p")


@dataclass(slots=True)
class Newcomer:
    """One newcomer, and when it was connected to another."""

    joined_at: float
    company_at: float = math.inf
    peer: MeetingPoint | None = None

    @property
    def wait_s(self) -> float:
        """Seconds until it was connected to another."""
        return self.company_at - self.joined_at


class JoinScenario:
    """A bootstrap peer with few slots, and its newcomers."""

    def __init__(self, folder: Path, seed: int, heartbeat_s: float) -> None:
        self.rng = random.Random(seed)
        self.network = SimulatedNetwork(random.Random(f"{seed}/network"))
        self.bootstrap = Newcomer(0.0)
        self.newcomers: list[Newcomer] = []
        self._folder, self._heartbeat_s = folder, heartbeat_s

    async def run(self, slots: int) -> None:
        """Run the bootstrap peer forever."""
        home = self._folder / "bootstrap"
        home.mkdir()
        save_manifest(home, SWARM)
        await self._live(self.bootstrap, 0, home, max_connections=slots)

    async def come(self, number: int, after_s: float) -> None:
        """Run a newcomer that knows only the bootstrap peer's address."""
        await trio.sleep(after_s)
        newcomer = Newcomer(trio.current_time())
        self.newcomers.append(newcomer)
        home = self._folder / f"newcomer{number}"
        home.mkdir()
        assert self.bootstrap.peer is not None
        (address,) = self.bootstrap.peer.member.host.listen_addrs()
        await self._live(newcomer, number, home, bootstrap=(address,))

    async def _live(self, joiner: Newcomer, number: int, home: Path, **changes: Any) -> None:
        settings = Settings(
            data_dir=home,
            listen=(f"/ip4/10.{number >> 8}.{number & 255}.1/tcp/4001",),
            mdns=False,
            **changes,
        )
        gossip = GossipSettings(mesh=MeshSettings(heartbeat_s=self._heartbeat_s))

        def ready(peer: MeetingPoint) -> None:
            joiner.peer = peer

        again = True
        while again:  # as in `shoal_bootstrap.__main__`, if its bootstrap is of another swarm
            again = await BootstrapPeer(
                identity=identity_from_seed(number.to_bytes(32, "big")),
                settings=settings,
                on_ready=ready,
                parts=simulated_parts(
                    self.network,
                    worker=lambda _families, _patience_s: InstantWorker(),
                    wall_ms=lambda: EPOCH_MS + int(1000 * trio.current_time()),
                    rng=random.Random(f"{self.rng.random()}/{number}"),
                ),
                tuning=replace(Limits.of(settings), gossip=gossip),
                socket=NoSocket,
            ).run()

    async def watch(self, count: int) -> None:
        """Record when each newcomer is in the right swarm with another one, until `count` are."""
        while sum(one.company_at < math.inf for one in self.newcomers) < count:
            await trio.sleep(0.5)
            for newcomer in self.newcomers:
                if newcomer.company_at == math.inf and self._has_company(newcomer):
                    newcomer.company_at = trio.current_time()

    def _has_company(self, newcomer: Newcomer) -> bool:
        peer, bootstrap = newcomer.peer, self.bootstrap.peer
        if peer is None or bootstrap is None or peer.member.manifest != SWARM:
            return False
        return bool(peer.member.host.connected_peers() - {bootstrap.member.peer_id})


def waits_of(
    count: int, over_s: float, folder: Path, *, slots: int, seed: int, heartbeat_s: float = 1.0
) -> list[float]:
    """Let `count` newcomers join at random times; return their sorted waits for a connection."""
    scenario = JoinScenario(folder, seed, heartbeat_s)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(scenario.network.run)
            nursery.start_soon(scenario.run, slots)
            await until(lambda: scenario.bootstrap.peer)
            for number in range(count):
                nursery.start_soon(scenario.come, number + 1, scenario.rng.uniform(0, over_s))
            with trio.move_on_after(over_s + JOINED_S):
                await scenario.watch(count)
            nursery.cancel_scope.cancel()

    with deterministic(seed), memoised(), _unflushed():
        trio.run(main, clock=jumping_clock())
    return sorted(joiner.wait_s for joiner in scenario.newcomers)


@pytest.mark.parametrize(("slots", "seed"), [(3, 1), (4, 2)])
def test_ten_newcomers_meet_through_a_bootstrap_of_few_slots(
    slots: int, seed: int, tmp_path: Path
) -> None:
    waits = waits_of(10, 0.1, tmp_path, slots=slots, seed=seed)
    assert len(waits) == 10
    assert waits[-1] <= JOINED_S, waits


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_thousand_newcomers_within_a_minute_all_meet(tmp_path: Path) -> None:
    waits = waits_of(1000, 60.0, tmp_path, slots=256, seed=7, heartbeat_s=5.0)
    assert len(waits) == 1000
    assert waits[-1] <= JOINED_S, waits[-20:]
