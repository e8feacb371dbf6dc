"""Limits on what a connection can make this side hold: windows are enforced, and their sum is
bounded.

The attacker is a host whose frames are written by hand, beyond any window granted to it.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from libp2p.custom_types import TProtocol
from libp2p.exceptions import BaseLibp2pError
from libp2p.peer.id import ID
from libp2p.stream_muxer.yamux.yamux import (
    FLAG_ACK,
    FLAG_FIN,
    FLAG_RST,
    FLAG_SYN,
    TYPE_DATA,
    TYPE_WINDOW_UPDATE,
)

from shoal_p2p.net.host import Libp2pHost
from shoal_p2p.net.windows import MAX_UNREAD_BYTES, WINDOW_BYTES, ReceiveBufferLimit, WindowedYamux
from tests.support.doubles.channel import FakeChannel, yamux_frame
from tests.support.nodes import echo, open_test_host, until

ECHO = "/test/echo/1"
SLEEP = TProtocol("/test/sleep/1")
PIECE_BYTES = 64 * 1024


class RawConnection:
    """The attacker's end of a connection, and the victim's."""

    def __init__(self, attacker: Libp2pHost, victim: Libp2pHost) -> None:
        self.attacker, self.victim = attacker, victim
        self.mine: Any = _muxed(attacker, victim)
        self.theirs: Any = _muxed(victim, attacker)
        self.most_held = 0

    @property
    def is_cut(self) -> bool:
        """Whether the victim has ended the connection."""
        return bool(self.theirs.event_shutting_down.is_set())

    async def send(self, kind: int, flags: int, stream_id: int, length: int, body: bytes) -> bool:
        """Write one frame; False once the connection is gone."""
        try:
            with trio.move_on_after(5.0):
                await self.mine._write_frame(yamux_frame(kind, flags, stream_id, length, body))
                await trio.lowlevel.checkpoint()
        except Exception:  # noqa: BLE001 - any libp2p error for a closed connection
            return False
        self.most_held = max(self.most_held, unread_bytes_of(self.theirs))
        return not self.is_cut

    async def pour(self, stream_id: int, num_bytes: int, *, piece: int = PIECE_BYTES) -> None:
        """Write that much data on a stream, whatever its window is."""
        for start in range(0, num_bytes, piece):
            size = min(piece, num_bytes - start)
            if not await self.send(TYPE_DATA, 0, stream_id, size, bytes(size)):
                return

    async def open_streams(self, count: int) -> list[int]:
        """Open streams that no peer reads."""
        library, peer = self.attacker.libp2p_host, ID.from_base58(self.victim.peer_id)
        streams: list[Any] = [await library.new_stream(peer, [SLEEP]) for _ in range(count)]
        return [stream.muxed_stream.stream_id for stream in streams]


def unread_bytes_of(muxed: Any) -> int:
    """Return the unread bytes that a connection holds."""
    return sum(map(len, muxed.stream_buffers.values()))


def _muxed(host: Libp2pHost, peer: Libp2pHost) -> Any:
    (connection,) = host.libp2p_host.get_network().get_connections(ID.from_base58(peer.peer_id))
    return connection.muxed_conn


@asynccontextmanager
async def open_attack() -> AsyncIterator[RawConnection]:
    """Two hosts, connected; one has a protocol whose streams are not read."""

    async def sleep(_stream: object) -> None:
        await trio.sleep_forever()

    async with open_test_host() as victim, open_test_host() as attacker:
        victim.libp2p_host.set_stream_handler(SLEEP, sleep)
        await attacker.dial(victim.listen_addrs()[0])
        await until(lambda: victim.is_connected(attacker.peer_id))
        attack = RawConnection(attacker, victim)
        # The streams by which they get to know each other are not what is counted.
        await until(lambda: victim.peer_addresses(attacker.peer_id))
        await until(lambda: attacker.peer_addresses(victim.peer_id))
        await until(lambda: not attack.theirs.streams)
        yield attack


async def test_an_unread_stream_holds_at_most_one_window() -> None:
    async with open_attack() as attack:
        (stream_id,) = await attack.open_streams(1)
        await attack.pour(stream_id, 64 * WINDOW_BYTES)
        await until(lambda: attack.is_cut)
        assert attack.most_held <= WINDOW_BYTES


async def test_a_frame_over_the_window_is_not_even_read() -> None:
    async with open_attack() as attack:
        (stream_id,) = await attack.open_streams(1)
        await attack.send(TYPE_DATA, 0, stream_id, 16 << 20, bytes(PIECE_BYTES))
        await until(lambda: attack.is_cut)
        assert attack.most_held < PIECE_BYTES


async def test_many_streams_together_are_bounded() -> None:
    async with open_attack() as attack:
        for stream_id in await attack.open_streams(60):
            await attack.pour(stream_id, WINDOW_BYTES - PIECE_BYTES)
            if attack.is_cut:
                break
        await until(lambda: attack.is_cut)
        assert attack.most_held <= MAX_UNREAD_BYTES + PIECE_BYTES


async def test_unread_data_of_closed_streams_counts_until_they_are_forgotten() -> None:
    async with open_attack() as attack:
        with suppress(BaseLibp2pError):  # it is cut while the next stream is opened
            for _ in range(100):
                (stream_id,) = await attack.open_streams(1)
                await attack.pour(stream_id, WINDOW_BYTES - PIECE_BYTES)
                end = FLAG_FIN | FLAG_RST
                if not await attack.send(TYPE_WINDOW_UPDATE, end, stream_id, 0, b""):
                    break
        await until(lambda: attack.is_cut)
        assert attack.most_held <= MAX_UNREAD_BYTES + PIECE_BYTES


async def test_data_for_a_forgotten_stream_is_dropped() -> None:
    async with open_attack() as attack:
        (stream_id,) = await attack.open_streams(1)
        await attack.send(TYPE_WINDOW_UPDATE, FLAG_RST, stream_id, 0, b"")
        await attack.pour(stream_id, 16 * WINDOW_BYTES)
        assert not attack.is_cut
        assert attack.most_held < PIECE_BYTES


async def test_a_stream_that_the_peer_never_closes_is_forgotten() -> None:
    """Half-open, each would stay as long as its connection."""
    hello = b"\x13/multistream/1.0.0\n\x0f/ipfs/id/1.0.0\n"
    async with open_attack() as attack:
        for start in range(1001, 1401, 80):
            for stream_id in range(start, start + 80, 2):
                await attack.send(TYPE_DATA, FLAG_SYN, stream_id, len(hello), hello)
            await until(lambda: not attack.theirs.streams)
        assert not attack.is_cut
        assert not attack.theirs.stream_buffers
        assert not attack.theirs.stream_events


async def test_a_cancelled_close_resets_the_stream() -> None:
    """A deadline may end in the middle of it; the library's own callers reset nothing then."""
    async with open_attack() as attack:
        (stream_id,) = await attack.open_streams(1)
        stream = attack.mine.streams[stream_id]
        with trio.CancelScope() as scope:
            scope.cancel()
            await stream.close()
        assert stream_id not in attack.mine.streams
        await until(lambda: stream_id not in attack.theirs.streams)


@pytest.mark.parametrize("stream_id", [0, 2, 1 << 31])
async def test_a_peer_cannot_open_a_stream_with_an_id_of_this_side(stream_id: int) -> None:
    async with open_attack() as attack:
        await attack.send(TYPE_WINDOW_UPDATE, FLAG_SYN, stream_id, 0, b"")
        await until(lambda: attack.is_cut)
        assert stream_id not in attack.theirs.streams


async def test_reading_restores_the_window() -> None:
    """Much more than a window comes through, and neither side waits for ever."""

    payload = bytes(range(256)) * (40 * 1024)
    async with open_test_host() as one, open_test_host() as two:
        one.set_request_handler(ECHO, echo, max_request_bytes=len(payload))
        await two.dial(one.listen_addrs()[0])
        answer = await two.request(one.peer_id, ECHO, payload, max_response_bytes=len(payload))
        assert answer == payload
        await until(lambda: unread_bytes_of(_muxed(one, two)) == 0)


def test_over_the_total_limit_the_largest_network_loses_a_connection() -> None:
    cut: list[Hashable] = []
    unread = ReceiveBufferLimit(max_bytes=100, on_exceeded=cut.append)
    held = {"a": 40, "b": 30, "c": 20, "d": 15}
    for name, network in (("a", None), ("b", "net"), ("c", "net"), ("d", None)):
        unread.add(name, network=network, unread_bytes=lambda name=name: held[name])
    unread.check("a", 40)
    assert cut == []
    for name in "bcd":
        unread.check(name, held[name])
    assert cut == ["b"]


FRAMES = st.lists(
    st.tuples(
        st.sampled_from([TYPE_DATA, TYPE_DATA, TYPE_WINDOW_UPDATE]),
        st.sampled_from([0, 0, FLAG_SYN, FLAG_ACK, FLAG_FIN, FLAG_RST, FLAG_SYN | FLAG_FIN]),
        st.sampled_from([1, 3, 5, 7]),
        st.sampled_from([0, 1, 5000, WINDOW_BYTES // 2, WINDOW_BYTES, WINDOW_BYTES + 1]),
        st.integers(0, 3),
    ),
    max_size=60,
)


@settings(max_examples=150)
@given(frames=FRAMES)
def test_no_schedule_of_frames_exceeds_the_granted_windows(
    frames: list[tuple[int, int, int, int, int]],
) -> None:
    trio.run(run_script, frames)


async def run_script(frames: list[tuple[int, int, int, int, int]]) -> None:
    body = b"".join(
        yamux_frame(kind, flags, stream_id, length, bytes(length) if kind == TYPE_DATA else b"")
        for kind, flags, stream_id, length, _ in frames
    )
    pipe: Any = FakeChannel(body, ends=True)
    muxed: Any = WindowedYamux(pipe, ID(b"peer"))
    readers = iter([readers for *_, readers in frames])

    async def look() -> None:
        while not muxed.event_shutting_down.is_set():
            for stream_id, buffer in muxed.stream_buffers.items():
                stream = muxed.streams[stream_id]
                assert 0 <= len(buffer) <= WINDOW_BYTES
                assert len(buffer) + stream.recv_window <= WINDOW_BYTES
            for stream in list(muxed.streams.values())[: next(readers, 0)]:
                with suppress(BaseLibp2pError):  # the connection ends under it
                    if muxed.stream_buffers.get(stream.stream_id):
                        await stream.read(1 << 16)
            await trio.lowlevel.checkpoint()

    async def accept() -> None:
        with pytest.raises(Exception):  # noqa: B017 - until the connection ends
            while True:
                await muxed.accept_stream()

    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(look)
            nursery.start_soon(accept)
            await muxed.handle_incoming()
    assert not muxed.stream_buffers


@pytest.mark.parametrize("share", [0.5, 1.0])
async def test_data_is_consumed_while_its_reader_waits_and_left_to_it_otherwise(
    share: float,
) -> None:
    """Five windows in 130 pieces; the consumer takes that share, and nothing is lost or moved."""
    taken: list[bytes] = []
    read: list[bytes] = []
    generator = random.Random(3)

    def consume(data: bytes) -> bool:
        if generator.random() >= share:
            return False
        taken.append(data)
        order.append(data)
        return True

    order: list[bytes] = []
    async with open_attack() as attack:
        (stream_id,) = await attack.open_streams(1)
        stream: Any = attack.theirs.streams[stream_id]
        stream.consume = consume

        async def read_all() -> None:
            while True:
                data = await stream.read(1 << 20)
                read.append(data)
                order.append(data)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read_all)
            mine: Any = attack.mine.streams[stream_id]
            sent = [bytes([n % 256]) * 10_000 for n in range(130)]
            with trio.fail_after(20):
                for number, piece in enumerate(sent, 1):
                    await mine.write(piece)
                    if number % 2 == 0:
                        await until(lambda n=number: sum(map(len, order)) == 10_000 * n)
            nursery.cancel_scope.cancel()
    assert b"".join(order) == b"".join(sent)
    assert len(taken) > len(sent) // 10
    assert read
