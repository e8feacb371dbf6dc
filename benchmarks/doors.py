"""A thousand peers a minute join through one bootstrap of 256 slots: when does each find a peer?

Simulated in virtual time: each peer is the real discovery, the real list of peers and the real
connection limit (`reputation.conn_manager`), over a simulated host; a connection is three trips of
5 to 80 ms, a request two. Missing: streams and encryption, gossip, manifests, reputation, trainers.
So it measures the slots, and not the bootstrap's CPU load. Company is the first connection to a
peer other than the bootstrap.

    python -m benchmarks.doors                3,000 in three minutes, and two minutes more
    python -m benchmarks.doors 10000x600x300  peers x seconds of arriving x seconds after that
"""

from __future__ import annotations

import logging
import math
import random
import sys
import time
from functools import partial
from statistics import median
from typing import Any

import trio

from benchmarks.harness import Options, Report, at_most, main, note, percentile
from shoal_lab.simulation.clock import deterministic, jumping_clock
from shoal_lab.simulation.host import SimulatedHost
from shoal_lab.simulation.network import SimulatedNetwork
from shoal_p2p.events import EventSink
from shoal_p2p.net.identity import identity_from_seed
from shoal_p2p.peers import services
from shoal_p2p.peers.address_policy import AddressPolicy
from shoal_p2p.peers.discovery import Discovery
from shoal_p2p.reputation.conn_manager import ConnManager, max_peers_for
from shoal_wire.limits import MANIFEST_PROTOCOL, PEERS_PROTOCOL
from shoal_wire.types import PeerId

SLOTS = 256
CASE, QUICK = "3000x180x120", "600x36x60"
_SEED = 5
_LOOK_S = 5.0
_COMPANY_S = 60.0


class Peer:
    """One peer: it listens, discovers peers, serves its peer list, and frees slots."""

    def __init__(self, network: SimulatedNetwork, number: int, bootstrap: str, slots: int) -> None:
        address = f"/ip4/10.{number >> 16}.{number >> 8 & 255}.{number & 255}/tcp/4001"
        identity = identity_from_seed(number.to_bytes(32, "big"))
        self.host = SimulatedHost(network, identity, address, max_connections=slots)
        rng = random.Random(number)
        self.discovery = Discovery(
            host=self.host,
            address_policy=AddressPolicy(self.host),
            bootstrap=(bootstrap,) if bootstrap else (),
            fetch_peers=partial(services.fetch_peers, self.host),
            rng=rng,
            wall_ms=lambda: 0,
        )
        self.conn_manager = ConnManager(
            host=self.host,
            max_peers=max_peers_for(slots),
            rating=self,
            events=EventSink(self.discovery),
        )
        services.serve_peers(
            self.host,
            lambda: self.discovery.book,
            rng=rng,
            on_sent=lambda peer, _request: self._answered(peer),
        )
        services.serve_full(self.host, self.discovery.expect_full)
        self.joined_at = trio.current_time()
        self.company_at = math.inf
        self.host.add_peer_callbacks(connected=self._on_peer)
        self._bootstrap = bootstrap.rpartition("/")[2]

    def rank(self, _peer_id: PeerId) -> float:
        """Return 0: no connection is worth more than another."""
        return 0.0

    def is_protected(self, _peer_id: PeerId) -> bool:
        """Return False."""
        return False

    async def run(self, nursery: trio.Nursery) -> None:
        """Run until cancelled."""
        await nursery.start(self.conn_manager.run)
        await nursery.start(self.host.run)
        await nursery.start(self.discovery.run)

    def _answered(self, peer: Any) -> None:
        """A peer has requested the peer list; it received the manifest at the same moment."""
        for protocol in (PEERS_PROTOCOL, MANIFEST_PROTOCOL):
            self.conn_manager.record_response(peer, protocol)

    def _on_peer(self, peer: Any) -> None:
        if peer != self._bootstrap and self.company_at == math.inf:
            self.company_at = trio.current_time()


def measure(options: Options) -> Report:
    """Run the case."""
    arguments = [argument for argument in sys.argv[1:] if argument[0].isdigit()]
    case = arguments[0] if arguments else QUICK if options.quick else CASE
    count, arriving_s, after_s = map(int, case.split("x"))
    logging.disable(logging.CRITICAL)
    with deterministic(_SEED):
        found: dict[str, Any] = trio.run(
            _play, count, float(arriving_s), float(after_s), clock=jumping_clock()
        )
    goals = [
        at_most("longest wait for company", found["company_s_most"], _COMPANY_S, unit="s"),
        at_most("connections of the bootstrap", found["bootstrap_connections_most"], SLOTS),
    ]
    return Report(results={case: found}, goals=goals)


async def _play(count: int, arriving_s: float, after_s: float) -> dict[str, Any]:
    rng = random.Random(_SEED)
    network = SimulatedNetwork(random.Random(_SEED))
    peers: list[Peer] = []
    held: list[tuple[float, int, int]] = []
    async with trio.open_nursery() as nursery:
        await nursery.start(network.run)
        bootstrap_peer = Peer(network, 0, "", SLOTS)
        await bootstrap_peer.run(nursery)
        address = bootstrap_peer.host.listen_addrs()[0]

        async def look() -> None:
            while True:
                room = bootstrap_peer.conn_manager
                held.append(
                    (
                        trio.current_time(),
                        len(bootstrap_peer.host.connected_peers()),
                        room.counters.peers_refused,
                    )
                )
                if len(held) % 12 == 0:
                    note(f"{held[-1]}, {len(peers)} came, {time.process_time():.0f} s of CPU")
                await trio.sleep(_LOOK_S)

        nursery.start_soon(look)
        for number, at in enumerate(sorted(rng.uniform(0, arriving_s) for _ in range(count)), 1):
            await trio.sleep_until(at)
            peers.append(Peer(network, number, address, SLOTS))
            nursery.start_soon(peers[-1].run, nursery)
        await trio.sleep_until(arriving_s + after_s)
        nursery.cancel_scope.cancel()
    waits = sorted(peer.company_at - peer.joined_at for peer in peers)
    arriving = [one for at, one, _ in held if at <= arriving_s]
    later = [one for at, one, _ in held if at > arriving_s + after_s / 2]
    return {
        "company_s_median": round(median(waits), 2),
        "company_s_p99": round(percentile(waits, 0.99), 2),
        "company_s_most": round(waits[-1], 2),
        "never": sum(wait == math.inf for wait in waits),
        "bootstrap_connections_most": max(one for _, one, _ in held),
        "bootstrap_connections_arriving_median": median(arriving),
        "bootstrap_connections_later_median": median(later),
        "refused_arriving": max(number for at, _, number in held if at <= arriving_s),
        "refused": bootstrap_peer.conn_manager.counters.peers_refused,
        "let_go": bootstrap_peer.conn_manager.counters.peers_dropped,
        "cpu_s": round(time.process_time(), 1),
    }


if __name__ == "__main__":
    flags = [argument for argument in sys.argv[1:] if not argument[0].isdigit()]
    sys.exit(main("doors", __doc__ or "", measure, argv=flags))
