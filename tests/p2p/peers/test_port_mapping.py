"""A port mapping and its announcement: in virtual time, with a simulated router."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
import trio

from shoal_base.waits import HOUR_S
from shoal_p2p.net.announced import AnnouncedAddresses
from shoal_p2p.peers import port_mapping, upnp
from shoal_p2p.peers.port_mapping import MappingState, PortMapping
from shoal_p2p.peers.upnp import Forwarded, RouterError
from tests.p2p.peers.witnesses import Witness, at_home, outside, seen_by
from tests.support.routed_host import RoutedHost
from tests.support.running import running

pytestmark = pytest.mark.virtual_time

LAPTOP = ("/ip4/192.168.1.2/tcp/4001", "/ip4/127.0.0.1/tcp/4001")
OUTSIDE = "9.9.9.9"


@dataclass
class PaperRouter:
    """Forwards what it is asked for."""

    host: str = OUTSIDE
    error: str = ""
    takes_s: float = 0.0
    requests: list[float] = field(default_factory=list)
    num_forgotten: int = 0

    async def forward(self, port: int, lease_s: float) -> Forwarded:
        await trio.sleep(self.takes_s)
        self.requests.append(trio.current_time())
        if self.error:
            raise RouterError(self.error)
        return Forwarded(host=self.host, port=port + 1, lease_s=lease_s)

    async def forget(self) -> None:
        self.num_forgotten += 1


def laptop(*witnesses: Witness, **more: Any) -> RoutedHost:
    return seen_by(*witnesses, **{"interfaces": LAPTOP, **more})


@asynccontextmanager
async def mapped(host: RoutedHost, router: PaperRouter, **more: Any) -> AsyncIterator[PortMapping]:
    mapping = PortMapping(host=cast("Any", host), router=cast("Any", router), **more)
    async with running(mapping):
        yield mapping


@pytest.mark.parametrize("num_liars", [1, 2])
async def test_a_liar_has_no_port_announced_that_others_do_not_get_in_by(num_liars: int) -> None:
    liars = [outside(n, 4002) for n in range(num_liars)]
    host = laptop(*liars, *(outside(n) for n in range(num_liars, 4)))
    async with mapped(host, PaperRouter()) as mapping:
        await trio.sleep(300)
        assert (mapping.state, host.announced.forwarded) == (MappingState.SHUT, ())


async def test_nor_does_one_keep_it_from_being_announced_nor_a_fellow_of_the_same_home() -> None:
    honest = [outside(1, 4002), outside(2, 4002)]
    for other in (outside(3, 4002), at_home(4)):
        host = laptop(outside(0), other, *honest)
        async with mapped(host, PaperRouter()) as mapping:
            await trio.sleep(1)
            assert mapping.state is MappingState.REACHED
            assert host.announced.forwarded == (f"/ip4/{OUTSIDE}/tcp/4002",)


async def test_a_reachable_mapping_is_announced_renewed_and_withdrawn() -> None:
    host, router, reached = laptop(outside(0, 4002)), PaperRouter(), []
    async with mapped(host, router, on_reached=lambda: reached.append(1)) as mapping:
        await trio.sleep(1)
        assert host.announced.to_announce(LAPTOP)[-1] == f"/ip4/{OUTSIDE}/tcp/4002"
        assert (mapping.state, reached) == (MappingState.REACHED, [1])
        await trio.sleep(2 * HOUR_S)
        assert host.announced.forwarded
    assert max(late - early for early, late in itertools.pairwise(router.requests)) < HOUR_S / 2
    assert len(router.requests) == 13
    assert (router.num_forgotten, host.announced.forwarded) == (1, ())


@pytest.mark.parametrize(
    ("host", "state"),
    [
        (laptop(outside(0)), MappingState.SHUT),
        (laptop(outside(0, 4002, observed="/ip4/8.8.8.8/tcp/1")), MappingState.SHUT),
        (laptop(outside(0, 4002, observed="")), MappingState.SHUT),
        (laptop(), MappingState.UNTRIED),
    ],
    ids=["shut", "another router above", "not seen", "no peer there"],
)
async def test_an_unreachable_mapping_is_not_announced(
    host: RoutedHost, state: MappingState
) -> None:
    """Whatever a router says of itself: it may be anything on the local network."""
    async with mapped(host, PaperRouter()) as mapping:
        await trio.sleep(60)
        assert (mapping.state, host.announced.forwarded) == (state, ())


@pytest.mark.parametrize(
    ("host", "wanted"),
    [
        (laptop(outside(0)), False),
        (laptop(outside(0), interfaces=("/ip4/127.0.0.1/tcp/4001",)), True),
        (laptop(outside(0), interfaces=("/ip4/9.9.9.9/tcp/4001", *LAPTOP)), True),
        (laptop(outside(0), interfaces=("/ip6/fd00::1/tcp/4001",)), True),
        (laptop(outside(0), announced=AnnouncedAddresses(("/ip4/9.9.9.9/tcp/4001",))), True),
    ],
    ids=["off", "loopback", "public", "no IPv4", "announced by hand"],
)
async def test_no_router_is_queried_without_need(host: RoutedHost, wanted: bool) -> None:
    router = PaperRouter()
    async with mapped(host, router, wanted=wanted) as mapping:
        await trio.sleep(2 * HOUR_S)
    assert (router.requests, mapping.state) == ([], MappingState.NEEDLESS)


async def test_a_router_that_refuses_is_queried_again_later() -> None:
    host, router = laptop(outside(0)), PaperRouter(error="no such action")
    async with mapped(host, router) as mapping:
        await trio.sleep(650)
        assert (mapping.state, len(router.requests), mapping.error) == (
            MappingState.NONE,
            2,
            "no such action",
        )
    assert router.num_forgotten == 0


async def test_a_laptop_that_moves_behind_a_router_asks_it() -> None:
    host, router = laptop(outside(0, 4002), interfaces=("/ip4/9.9.9.8/tcp/4001",)), PaperRouter()
    async with mapped(host, router) as mapping:
        await trio.sleep(700)
        assert mapping.state is MappingState.NEEDLESS
        host.interfaces = LAPTOP
        await trio.sleep(600)
        assert mapping.state is MappingState.REACHED  # type: ignore[comparison-overlap]


async def test_a_router_that_never_answers_holds_nothing_up() -> None:
    async with mapped(laptop(outside(0)), PaperRouter(takes_s=1e9)) as mapping:
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


async def test_without_the_extra_no_router_is_queried_and_a_line_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(port_mapping, "can_ask", lambda: False)
    router = PaperRouter()
    async with mapped(laptop(outside(0)), router) as mapping:
        await trio.sleep(2 * HOUR_S)
        assert (router.requests, mapping.error) == ([], "pip install 'shoal[reach]'")
    assert caplog.text.count("shoal[reach]") == 1
