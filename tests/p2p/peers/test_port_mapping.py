"""A router asked for a port, and what is told of it: in virtual time, with a router on paper."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
import trio

from p2p.net.announced import Announced
from p2p.net.connections import ConnectionInfo, Direction
from p2p.peers import port_mapping, upnp
from p2p.peers.forwarded import Forwarded, RouterError
from p2p.peers.port_mapping import LEASE_S, MappingState, PortMapping
from shoal_wire.reach import ReachReply, decode_reach_request, encode_reach_reply
from shoal_wire.types import PeerId
from tests.support.nodes import fresh_identity

LAPTOP = ("/ip4/192.168.1.2/tcp/4001", "/ip4/127.0.0.1/tcp/4001")
OUTSIDE = "9.9.9.9"
ME = fresh_identity().peer_id


@dataclass
class PaperRouter:
    """Forwards what it is asked for."""

    host: str = OUTSIDE
    error: str = ""
    takes_s: float = 0.0
    asked: list[float] = field(default_factory=list)
    num_forgotten: int = 0

    async def forward(self, port: int, lease_s: float) -> Forwarded:
        await trio.sleep(self.takes_s)
        self.asked.append(trio.current_time())
        if self.error:
            raise RouterError(self.error)
        return Forwarded(host=self.host, port=port + 1, lease_s=lease_s, way="paper")

    async def forget(self) -> None:
        self.num_forgotten += 1


@dataclass
class PaperHost:
    """Has one peer, that tries the ports it is told."""

    interfaces: Sequence[str] = LAPTOP
    announced: Announced = field(default_factory=Announced)
    open: tuple[int, ...] = (4002,)
    observed: str = f"/ip4/{OUTSIDE}/tcp/50000"
    peers: tuple[PeerId, ...] = field(default_factory=lambda: (fresh_identity().peer_id,))
    say: dict[PeerId, ReachReply] = field(default_factory=dict)
    """What some of them say instead."""
    at_home: tuple[PeerId, ...] = ()
    """Those of them that are behind the same router."""

    def interface_addrs(self) -> tuple[str, ...]:
        return tuple(f"{address}/p2p/{ME}" for address in self.interfaces)

    def connections(self) -> tuple[ConnectionInfo, ...]:
        return tuple(
            ConnectionInfo(
                peer_id=peer,
                address=self._address(network, peer),
                direction=Direction.OUT,
                opened_s=1.0,
                agent="",
                latency_ms=None,
            )
            for network, peer in enumerate(self.peers)
        )

    def _address(self, network: int, peer: PeerId) -> str:
        host = f"192.168.1.{network + 3}" if peer in self.at_home else f"11.88.{network}.1"
        return f"/ip4/{host}/tcp/1"

    async def request(self, peer: PeerId, _name: str, payload: bytes, **_rest: Any) -> bytes:
        ports = decode_reach_request(payload)
        if peer in self.say:
            return encode_reach_reply(self.say[peer])
        reached = tuple(port for port in ports if port in self.open)
        return encode_reach_reply(
            ReachReply(observed=self.observed, wall_ms=1, open_ports=reached, dialled=True)
        )


@asynccontextmanager
async def mapped(host: PaperHost, router: PaperRouter, **more: Any) -> AsyncIterator[PortMapping]:
    mapping = PortMapping(host=cast("Any", host), router=cast("Any", router), **more)
    async with trio.open_nursery() as nursery:
        await nursery.start(mapping.run)
        yield mapping
        nursery.cancel_scope.cancel()


def reply(*open_ports: int, observed: str = f"/ip4/{OUTSIDE}/tcp/50000") -> ReachReply:
    return ReachReply(observed=observed, wall_ms=1, open_ports=open_ports, dialled=True)


@pytest.mark.parametrize("num_liars", [1, 2])
async def test_a_liar_has_no_port_announced_that_others_do_not_get_in_by(
    num_liars: int, autojump_clock: trio.testing.MockClock
) -> None:
    peers = tuple(fresh_identity().peer_id for _ in range(4))
    host = PaperHost(open=(), peers=peers, say=dict.fromkeys(peers[:num_liars], reply(4002)))
    async with mapped(host, PaperRouter()) as mapping:
        await trio.sleep(300)
        assert (mapping.state, host.announced.forwarded) == (MappingState.SHUT, ())


async def test_nor_does_one_keep_it_from_being_announced_nor_a_fellow_of_the_same_home(
    autojump_clock: trio.testing.MockClock,
) -> None:
    peers = tuple(fresh_identity().peer_id for _ in range(4))
    inside = reply(observed="/ip4/192.168.1.2/tcp/4001")
    say = {peers[0]: reply()}
    hosts = [
        PaperHost(peers=peers, say=say),
        PaperHost(peers=peers, say=say | {peers[1]: inside}, at_home=peers[1:2]),
    ]
    for host in hosts:
        async with mapped(host, PaperRouter()) as mapping:
            await trio.sleep(1)
            assert mapping.state is MappingState.REACHED
            assert host.announced.forwarded == (f"/ip4/{OUTSIDE}/tcp/4002",)


async def test_what_peers_get_in_by_is_told_renewed_and_taken_back(
    autojump_clock: trio.testing.MockClock,
) -> None:
    host, router, reached = PaperHost(), PaperRouter(), []
    async with mapped(host, router, on_reached=lambda: reached.append(1)) as mapping:
        await trio.sleep(1)
        assert host.announced.beside(LAPTOP)[-1] == f"/ip4/{OUTSIDE}/tcp/4002"
        assert (mapping.state, reached) == (MappingState.REACHED, [1])
        await trio.sleep(2 * LEASE_S)
        assert host.announced.forwarded
    assert max(late - early for early, late in itertools.pairwise(router.asked)) < LEASE_S / 2
    assert len(router.asked) == 13
    assert (router.num_forgotten, host.announced.forwarded) == (1, ())


@pytest.mark.parametrize(
    ("host", "state"),
    [
        (PaperHost(open=()), MappingState.SHUT),
        (PaperHost(observed="/ip4/8.8.8.8/tcp/1"), MappingState.SHUT),
        (PaperHost(observed=""), MappingState.SHUT),
        (PaperHost(peers=()), MappingState.UNTRIED),
    ],
    ids=["shut", "another router above", "not seen", "nobody there"],
)
async def test_what_nobody_gets_in_by_is_told_to_nobody(
    host: PaperHost, state: MappingState, autojump_clock: trio.testing.MockClock
) -> None:
    """Whatever a router says of itself: it may be anything on the local network."""
    async with mapped(host, PaperRouter()) as mapping:
        await trio.sleep(60)
        assert (mapping.state, host.announced.forwarded) == (state, ())


@pytest.mark.parametrize(
    ("host", "wanted"),
    [
        (PaperHost(), False),
        (PaperHost(interfaces=("/ip4/127.0.0.1/tcp/4001",)), True),
        (PaperHost(interfaces=("/ip4/9.9.9.9/tcp/4001", *LAPTOP)), True),
        (PaperHost(interfaces=("/ip6/fd00::1/tcp/4001",)), True),
        (PaperHost(announced=Announced(("/ip4/9.9.9.9/tcp/4001",))), True),
    ],
    ids=["off", "loopback", "public", "no IPv4", "announced by hand"],
)
async def test_no_router_is_asked_where_that_is_of_no_use(
    host: PaperHost, wanted: bool, autojump_clock: trio.testing.MockClock
) -> None:
    router = PaperRouter()
    async with mapped(host, router, wanted=wanted) as mapping:
        await trio.sleep(2 * LEASE_S)
    assert (router.asked, mapping.state) == ([], MappingState.NEEDLESS)


async def test_a_router_that_refuses_is_asked_again_in_a_while(
    autojump_clock: trio.testing.MockClock,
) -> None:
    host, router = PaperHost(), PaperRouter(error="no such action")
    async with mapped(host, router) as mapping:
        await trio.sleep(650)
        assert (mapping.state, len(router.asked), mapping.error) == (
            MappingState.NONE,
            2,
            "no such action",
        )
    assert router.num_forgotten == 0


async def test_a_laptop_that_moves_behind_a_router_asks_it(
    autojump_clock: trio.testing.MockClock,
) -> None:
    host, router = PaperHost(interfaces=("/ip4/9.9.9.8/tcp/4001",)), PaperRouter()
    async with mapped(host, router) as mapping:
        await trio.sleep(700)
        assert mapping.state is MappingState.NEEDLESS
        host.interfaces = LAPTOP
        await trio.sleep(600)
        assert mapping.state is MappingState.REACHED


async def test_a_router_that_never_answers_holds_nothing_up(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with mapped(PaperHost(), PaperRouter(takes_s=1e9)) as mapping:
        await trio.sleep(30)
        assert (mapping.state, mapping.error) == (MappingState.NONE, "no answer in 20 s")


class PaperLibrary:
    """What miniupnpc's object does."""

    lanaddr = "192.168.1.2"

    def __init__(self, held: dict[int, tuple[str, int]], refuses: str = "") -> None:
        self.held = held
        self.refuses = refuses

    def getspecificportmapping(self, port: int, _kind: str) -> tuple[str, int] | None:
        return self.held.get(port)

    def addportmapping(
        self, outside: int, _kind: str, host: str, port: int, _name: str, _from: str, lease: int
    ) -> bool:
        if self.refuses and lease:
            raise Exception(self.refuses)
        self.held[outside] = (host, port)
        return True

    def deleteportmapping(self, port: int, _kind: str) -> bool:
        del self.held[port]
        return True

    def externalipaddress(self) -> str:
        return OUTSIDE


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> PaperLibrary:
    found = PaperLibrary({})
    monkeypatch.setattr(upnp, "_find", lambda: found)
    return found


def test_a_port_that_leads_to_another_machine_stays_its_own(library: PaperLibrary) -> None:
    library.held[4001] = ("192.168.1.9", 22)
    found = upnp.forward(4001, 4001, 3600)
    assert found.port != 4001
    assert library.held == {4001: ("192.168.1.9", 22), found.port: ("192.168.1.2", 4001)}
    assert upnp.forward(4001, found.port, 3600) == found, "renewed where it is"
    upnp.forget(4001, found.port)
    assert library.held == {4001: ("192.168.1.9", 22)}


def test_a_router_that_knows_no_leases_forwards_for_ever(library: PaperLibrary) -> None:
    library.refuses = "OnlyPermanentLeasesSupported"
    assert upnp.forward(4001, 4001, 3600).lease_s == float("inf")


def test_what_a_router_refuses_is_one_line(library: PaperLibrary) -> None:
    library.refuses = "Not authorized\r\nto do that"
    with pytest.raises(RouterError, match=r"^Not authorized to do that$"):
        upnp.forward(4001, 4001, 3600)


async def test_without_the_extra_no_router_is_asked_and_a_line_says_so(
    autojump_clock: trio.testing.MockClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(port_mapping, "can_ask", lambda: False)
    router = PaperRouter()
    async with mapped(PaperHost(), router) as mapping:
        await trio.sleep(2 * LEASE_S)
        assert (router.asked, mapping.error) == ([], "pip install 'shoal[reach]'")
    assert caplog.text.count("shoal[reach]") == 1
