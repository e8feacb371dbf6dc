"""Which peer is disconnected when a network holds all the slots that one network may have."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from shoal_p2p.net.connections import Direction
from shoal_p2p.net.inbound_gate import GateLimits, GateRefusal, GateTicket, InboundGate, prefix_of
from shoal_p2p.reputation.conn_manager import STAY_SECONDS, ConnManager
from shoal_wire.limits import FULL_PROTOCOL, MANIFEST_PROTOCOL, PEERS_PROTOCOL
from shoal_wire.types import PeerId
from tests.support.doubles.host import FakeHost

SLOTS = 16
OF_NETWORK = 4
CROWD, OTHER = "203.0.113", "198.51.100"


class GatedHost(FakeHost):
    """A host with a real `InboundGate`; sending FULL to a peer takes half a second."""

    def __init__(self) -> None:
        super().__init__(answers={FULL_PROTOCOL: self._on_notified})
        self.gate = InboundGate(GateLimits(prefix_connections=OF_NETWORK), trio.current_time())
        self.notified: list[PeerId] = []
        self._tickets: dict[PeerId, GateTicket] = {}

    async def _on_notified(self, peer_id: PeerId, _request: bytes) -> bytes:
        await trio.sleep(0.5)
        self.notified.append(peer_id)
        return b""

    def connects(self, name: str, host: str) -> bool:
        """Return whether a peer that dials from `host` gets in."""
        ticket = self.gate.admit(host, trio.current_time())
        if isinstance(ticket, GateRefusal):
            if ticket is GateRefusal.PREFIX_FULL:
                self._on_full(prefix_of(host) or "")
            return False
        ticket.on_handshake_done()
        self._tickets[PeerId(name)] = ticket
        self.connect(PeerId(name), address=f"/ip4/{host}/tcp/1")
        return True

    def lose(self, peer_id: PeerId) -> None:
        if (ticket := self._tickets.pop(peer_id, None)) is not None:
            ticket.on_closed()
        super().lose(peer_id)


class _Rating:
    """All connections are worth the same; some peers are protected."""

    def rank(self, _peer_id: PeerId) -> float:
        return 0.0

    def is_protected(self, peer_id: PeerId) -> bool:
        return peer_id.startswith("protected")


@asynccontextmanager
async def conn_manager_of(host: GatedHost) -> AsyncIterator[ConnManager]:
    conn_manager = ConnManager(
        host=host,
        max_peers=SLOTS,
        rating=_Rating(),
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(conn_manager.run)
        yield conn_manager
        nursery.cancel_scope.cancel()


async def test_a_newcomer_of_a_full_network_takes_the_place_of_one_that_has_stayed(
    autojump_clock: trio.testing.MockClock,
) -> None:
    host = GatedHost()
    async with conn_manager_of(host) as conn_manager:
        # None of these is a direct inbound connection: they are dialled, or relayed.
        host.connect(
            PeerId("relayed"),
            address=f"/ip4/{CROWD}.81/tcp/1/p2p/Relay/p2p-circuit",
            direction=Direction.IN,
        )
        for number in range(6):
            host.connect(
                PeerId(f"dialled{number}"),
                address=f"/ip4/{CROWD}.80/tcp/{number}",
                direction=Direction.OUT,
            )
        assert host.connects("other", f"{OTHER}.1")
        away = host.connected_peers()
        await trio.sleep(0.1)
        for number in range(OF_NETWORK):
            assert host.connects(f"crowd{number}", f"{CROWD}.{number + 1}")
        assert not host.connects("new", f"{CROWD}.99")
        await trio.sleep(2.0)
        assert not host.notified, "none of them had the time that a newcomer has"
        await trio.sleep(2 * STAY_SECONDS)  # from ten seconds on the longest here goes
        assert not host.connects("new", f"{CROWD}.99")
        await trio.sleep(0.2)
        assert not host.connects("newer", f"{CROWD}.98")
        await trio.sleep(1.0)
        assert [peer_id[:5] for peer_id in host.notified] == ["crowd"], "one for both"
        assert host.connects("new", f"{CROWD}.99")
        assert away <= host.connected_peers()
        assert (conn_manager.counters.peers_dropped, conn_manager.counters.peers_refused) == (1, 3)


async def test_who_was_answered_makes_room_at_once_and_the_protected_never(
    autojump_clock: trio.testing.MockClock,
) -> None:
    host = GatedHost()
    async with conn_manager_of(host) as conn_manager:
        for name in ("protected1", "protected2", "protected3", "answered"):
            assert host.connects(name, f"{CROWD}.1")
        for protocol_id in (MANIFEST_PROTOCOL, PEERS_PROTOCOL):
            for peer_id in host.connected_peers():
                conn_manager.record_response(peer_id, protocol_id)
        assert not host.connects("new", f"{CROWD}.99")
        await trio.sleep(1.0)
        assert host.notified == ["answered"]
        assert host.connects("new", f"{CROWD}.99")


@pytest.mark.parametrize("seed", range(2))
async def test_identities_of_one_network_exclude_no_peer_and_evict_none(
    seed: int, autojump_clock: trio.testing.MockClock
) -> None:
    """A crowd connects a dozen times a second and never leaves. Honest peers of the same and of
    other networks try every few seconds, and send two requests."""
    host, rng = GatedHost(), random.Random(seed)
    waited: dict[str, float] = {}

    async def crowd() -> None:
        for number in range(100_000):
            host.connects(f"crowd{number}", f"{CROWD}.{rng.randrange(2, 250)}")
            await trio.sleep(rng.expovariate(12.0))

    async def honest(name: str, address: str) -> None:
        started_at = trio.current_time()
        while not host.connects(name, address):  # noqa: ASYNC110 - it tries again
            await trio.sleep(rng.uniform(0, 8.0))
        await trio.sleep(1.0)
        if PeerId(name) in host.peers:
            waited[name] = trio.current_time() - started_at
        else:
            await honest(name, address)

    async with conn_manager_of(host) as conn_manager, trio.open_nursery() as nursery:
        here = {f"here{number}" for number in range(SLOTS - OF_NETWORK - 3)}
        assert all(host.connects(name, f"192.0.{name[4:]}.1") for name in here)
        nursery.start_soon(crowd)
        await trio.sleep(30.0)
        for number in range(3):
            nursery.start_soon(honest, f"near{number}", f"{CROWD}.1")
            nursery.start_soon(honest, f"far{number}", f"{OTHER}.{number}")
        await trio.sleep(120.0)
        of_crowd = [p for p in host.peers if p.startswith(("crowd", "near"))]
        assert len(of_crowd) <= OF_NETWORK
        assert all(waited[f"far{number}"] == 1.0 for number in range(3)), "others do not wait"
        assert any(name.startswith("near") for name in waited)
        assert here <= host.connected_peers(), "and no peer of another network is displaced"
        assert conn_manager.counters.peers_dropped > 10
        nursery.cancel_scope.cancel()
