"""Who is served when many ask at once: seats go by network and connection, never by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from libp2p.custom_types import TProtocol
from libp2p.peer.id import ID

from shoal_bootstrap.peer import BootstrapPeer
from shoal_p2p.net.host import Libp2pHost
from shoal_p2p.net.request import RequestLimits
from shoal_p2p.net.request_slots import RequestSlots, Seat
from shoal_wire.limits import MANIFEST_PROTOCOL, PEERS_PROTOCOL
from shoal_wire.types import PeerId
from tests.support.nodes import open_test_host
from tests.support.peers import INSTANT, address_of, open_peer

ASK = "/test/ask/1"
LIMITS = RequestLimits(
    read_deadline_s=3600.0, write_deadline_s=3600.0, max_concurrent=8, max_concurrent_per_peer=2
)


@asynccontextmanager
async def open_names(address: str, count: int) -> AsyncIterator[list[Libp2pHost]]:
    """Hosts under names of their own, connected to `address`."""
    async with AsyncExitStack() as stack:
        hosts = [await stack.enter_async_context(open_test_host()) for _ in range(count)]
        for host in hosts:
            await host.dial(address)
        yield hosts


async def begin(host: Libp2pHost, peer_id: PeerId, protocol: str, count: int) -> list[Any]:
    """Open requests that say two bytes of their length and no more."""
    library: Any = host.libp2p_host
    peer, streams = ID.from_base58(peer_id), []
    for _ in range(count):
        streams.append(await library.new_stream(peer, [TProtocol(protocol)]))
        await streams[-1].write(b"\0\0")
    return streams


@pytest.mark.parametrize("protocol", [MANIFEST_PROTOCOL, PEERS_PROTOCOL])
async def test_who_has_not_sent_its_request_keeps_nobody_out(tmp_path: Path, protocol: str) -> None:
    async with (
        open_peer(BootstrapPeer, tmp_path / "meeting", parts=INSTANT) as meeting,
        open_names(address_of(meeting), 9) as (newcomer, *silent),
    ):
        peer_id = meeting.member.peer_id
        for host in silent:
            await begin(host, peer_id, protocol, 4)
        for _ in range(6):
            answer = await newcomer.request(peer_id, protocol, b"", max_response_bytes=1 << 20)
            assert answer


async def test_who_does_not_read_its_answer_keeps_nobody_out() -> None:
    """An answer longer than a stream's window, which nobody takes."""
    answer = bytes(1 << 20)

    async def handler(_peer: PeerId, _request: bytes) -> bytes:
        return answer

    async with (
        open_test_host() as host,
        open_names(host.listen_addrs()[0], 5) as (one, *deaf),
    ):
        host.set_request_handler(ASK, handler, max_request_bytes=10, limits=LIMITS)
        for other in deaf:
            for stream in await begin(other, host.peer_id, ASK, 2):
                await stream.write(b"\0\0")
        got = await one.request(host.peer_id, ASK, b"x", max_response_bytes=len(answer))
        assert got == answer


def seated(seats: RequestSlots, peer: str, source: str | None = None) -> Seat:
    """Take a seat that must be there."""
    seat = seats.take(PeerId(peer), source or peer)
    assert seat is not None
    return seat


def test_many_names_of_one_network_have_no_more_than_one_has() -> None:
    seats = RequestSlots(max_seats=8, max_of_peer=2)
    silent = [seated(seats, f"name {n}", "their network") for n in range(8)]
    honest = [seated(seats, f"honest {n}", f"network {n}") for n in range(4)]
    more = [seats.take(PeerId(f"more {n}"), "their network") for n in range(20)]
    assert all(seat in seats for seat in honest)
    assert sum(seat in seats for seat in (*silent, *more)) == 4


def test_of_one_network_the_name_with_most_gives_way_the_longest_silent_first() -> None:
    seats = RequestSlots(max_seats=4, max_of_peer=3)
    first = [seated(seats, "a", "net") for _ in range(3)]
    seated(seats, "b", "net")
    seated(seats, "c", "net")
    assert [seat in seats for seat in first] == [False, True, True]


def test_who_has_more_takes_nothing_from_who_has_less() -> None:
    seats = RequestSlots(max_seats=4, max_of_peer=9)
    for _ in range(3):
        seats.set_busy(seated(seats, "a"), is_busy=True)
    little = seated(seats, "b")
    assert seats.take(PeerId("a"), "a") is None
    assert little in seats


class Shares(RuleBasedStateMachine):
    """Any comings and goings of any names: what holds after each of them."""

    def __init__(self) -> None:
        super().__init__()
        self.seats = RequestSlots(max_seats=6, max_of_peer=3)
        self.taken: list[Seat] = []

    @rule(name=st.integers(0, 9), network=st.sampled_from(["x", "y", None]))
    def come(self, name: int, network: str | None) -> None:
        here = Counter(seat.share_key[0] for seat in self.seated())
        busy = [seat for seat in self.seated() if not seat.is_free]
        source = network or f"own {name}"
        seat = self.seats.take(PeerId(f"{name} {network}"), source)
        assert all(one in self.seats for one in busy), "work in hand is not given up"
        if seat is not None:
            self.taken.append(seat)
        elif not any(s.share_key[1] == f"{name} {network}" for s in self.seated()):
            # Refused with nothing here: then nobody silent has more than it.
            assert all(not s.is_free or here[s.share_key[0]] <= here[source] for s in self.seated())

    @rule(which=st.integers(0, 99), busy=st.booleans())
    def turn(self, which: int, busy: bool) -> None:
        if seated := self.seated():
            self.seats.set_busy(seated[which % len(seated)], is_busy=busy)

    @rule(which=st.integers(0, 99))
    def go(self, which: int) -> None:
        if self.taken:
            self.seats.leave(self.taken.pop(which % len(self.taken)))

    def seated(self) -> list[Seat]:
        return [seat for seat in self.taken if seat in self.seats]

    @invariant()
    def bounds_hold(self) -> None:
        seated = self.seated()
        assert len(seated) == len(self.seats) <= 6
        assert max(Counter(seat.share_key for seat in seated).values(), default=0) <= 3
        assert self.seats.num_busy == sum(not seat.is_free for seat in seated)


TestShares = Shares.TestCase
TestShares.settings = settings(max_examples=40, stateful_step_count=40)
