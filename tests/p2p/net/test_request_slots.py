"""Slots under load go by network and connection, never by peer id."""

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
from shoal_p2p.net.request_slots import RequestSlots, Slot
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
async def test_an_unsent_request_does_not_block_other_peers(tmp_path: Path, protocol: str) -> None:
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


async def test_an_unread_answer_does_not_block_other_peers() -> None:
    """An answer longer than a stream's window, which the client never reads."""
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


def acquired(slots: RequestSlots, peer: str, source: str | None = None) -> Slot:
    """Acquire a slot that must be free."""
    slot = slots.acquire(PeerId(peer), source or peer)
    assert slot is not None
    return slot


def test_many_peers_of_one_network_share_the_slots_of_one() -> None:
    slots = RequestSlots(max_slots=8, max_per_peer=2)
    silent = [acquired(slots, f"name {n}", "their network") for n in range(8)]
    honest = [acquired(slots, f"honest {n}", f"network {n}") for n in range(4)]
    more = [slots.acquire(PeerId(f"more {n}"), "their network") for n in range(20)]
    assert all(slot in slots for slot in honest)
    assert sum(slot in slots for slot in (*silent, *more)) == 4


def test_within_a_network_the_peer_with_most_slots_loses_its_oldest() -> None:
    slots = RequestSlots(max_slots=4, max_per_peer=3)
    first = [acquired(slots, "a", "net") for _ in range(3)]
    acquired(slots, "b", "net")
    acquired(slots, "c", "net")
    assert [slot in slots for slot in first] == [False, True, True]


def test_a_peer_with_more_slots_takes_none_from_one_with_fewer() -> None:
    slots = RequestSlots(max_slots=4, max_per_peer=9)
    for _ in range(3):
        slots.set_busy(acquired(slots, "a"), is_busy=True)
    little = acquired(slots, "b")
    assert slots.acquire(PeerId("a"), "a") is None
    assert little in slots


class SlotModel(RuleBasedStateMachine):
    """Any sequence of arrivals and departures, with the invariants checked after each."""

    def __init__(self) -> None:
        super().__init__()
        self.slots = RequestSlots(max_slots=6, max_per_peer=3)
        self.taken: list[Slot] = []

    @rule(name=st.integers(0, 9), network=st.sampled_from(["x", "y", None]))
    def arrive(self, name: int, network: str | None) -> None:
        here = Counter(slot.share_key[0] for slot in self.acquired())
        busy = [slot for slot in self.acquired() if not slot.is_free]
        source = network or f"own {name}"
        slot = self.slots.acquire(PeerId(f"{name} {network}"), source)
        assert all(one in self.slots for one in busy), "requests in progress are completed"
        if slot is not None:
            self.taken.append(slot)
        elif not any(s.share_key[1] == f"{name} {network}" for s in self.acquired()):
            # Refused without a slot: then no idle slot belongs to a source with more.
            assert all(
                not s.is_free or here[s.share_key[0]] <= here[source] for s in self.acquired()
            )

    @rule(which=st.integers(0, 99), busy=st.booleans())
    def turn(self, which: int, busy: bool) -> None:
        if acquired := self.acquired():
            self.slots.set_busy(acquired[which % len(acquired)], is_busy=busy)

    @rule(which=st.integers(0, 99))
    def go(self, which: int) -> None:
        if self.taken:
            self.slots.release(self.taken.pop(which % len(self.taken)))

    def acquired(self) -> list[Slot]:
        return [slot for slot in self.taken if slot in self.slots]

    @invariant()
    def bounds_hold(self) -> None:
        acquired = self.acquired()
        assert len(acquired) == len(self.slots) <= 6
        assert max(Counter(slot.share_key for slot in acquired).values(), default=0) <= 3
        assert self.slots.num_busy == sum(not slot.is_free for slot in acquired)


TestShares = SlotModel.TestCase
TestShares.settings = settings(max_examples=40, stateful_step_count=40)
