"""From the socket to the streams and back: complete frames, fairness, fragmentation, wake-ups.

Below the muxer is a pipe that accepts a given number of bytes. The handshake and the sockets with
their buffers are real where a test is about them.
"""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import example, given, settings
from hypothesis import strategies as st
from libp2p.crypto.x25519 import create_new_key_pair as create_x25519_key_pair
from libp2p.io.abc import ReadWriteCloser
from libp2p.io.exceptions import ConnectionClosedError
from libp2p.io.utils import read_exactly
from libp2p.network.connection.raw_connection import RawConnection
from libp2p.peer.id import ID
from libp2p.stream_muxer.exceptions import MuxedStreamError
from libp2p.stream_muxer.yamux.yamux import (
    FLAG_SYN,
    TYPE_DATA,
    TYPE_WINDOW_UPDATE,
    YAMUX_HEADER_FORMAT,
)

from shoal_p2p.net.access import GREETING
from shoal_p2p.net.channel import Channel, ChannelNoise
from shoal_p2p.net.frames import BYTES_PER_TURN
from shoal_p2p.net.pipes import SocketPipe
from shoal_p2p.net.private import ClearStream, PrivateStream
from shoal_p2p.net.streams import FRAMES_PER_TURN, FrameReader
from shoal_p2p.net.traffic import Traffic
from shoal_p2p.net.windows import WINDOW_BYTES, WindowedStream, WindowedYamux
from tests.support.doubles.channel import FakeChannel, yamux_frame
from tests.support.nodes import fresh_identity
from tests.support.running import running

PEER = ID(b"peer")
HEADER = struct.Struct(YAMUX_HEADER_FORMAT)


@asynccontextmanager
async def muxer(below: FakeChannel) -> AsyncIterator[WindowedYamux]:
    """A connection that runs; its pings are not what is tried."""

    class NoKeepalive(WindowedYamux):
        async def _measure_rtt_loop(self) -> None:
            await trio.sleep_forever()

    secured: Any = below
    muxed = NoKeepalive(secured, PEER)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(muxed.start)
        await muxed.event_started.wait()
        yield muxed
        nursery.cancel_scope.cancel()


def frames_in(data: bytes) -> list[bytes]:
    """Return the bodies of the data frames. Raises if one is incomplete."""
    bodies = []
    while data:
        _version, kind, _flags, _stream, length = HEADER.unpack(data[: HEADER.size])
        size = length if kind == TYPE_DATA else 0
        assert len(data) >= HEADER.size + size
        if kind == TYPE_DATA:
            bodies.append(bytes(data[HEADER.size : HEADER.size + size]))
        data = data[HEADER.size + size :]
    return bodies


# A cancelled writer

WRITERS = st.lists(
    st.tuples(
        st.integers(1, 300),  # bytes
        st.integers(0, 320),  # of its frame, accepted at once
        st.integers(0, 6),  # turns of the loop until it is cancelled
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=60)
@given(writers=WRITERS, opens_after=st.integers(0, 12))
@example(writers=[(300, 5, 2)], opens_after=6)  # abandoned with half of its frame sent
def test_a_cancelled_writer_leaves_complete_frames(
    writers: list[tuple[int, int, int]], opens_after: int
) -> None:
    trio.run(_write_and_cancel, writers, opens_after)


async def _write_and_cancel(writers: list[tuple[int, int, int]], opens_after: int) -> None:
    below = FakeChannel(takes=[taken for _, taken, _ in writers], is_initiator=True)
    written: list[int] = []
    async with muxer(below) as muxed:

        async def write(number: int, size: int, turns: int) -> None:
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(_cancel_after, scope, turns)
                    body = bytes([number]) * size
                    await muxed._write_frame(yamux_frame(TYPE_DATA, 0, 1, body=body))
                    written.append(number)
                    nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            for number, (size, _, turns) in enumerate(writers):
                nursery.start_soon(write, number, size, turns)
            await _turns(opens_after)
            below.room.set()
        with trio.fail_after(5):
            await muxed._write_frame(yamux_frame(TYPE_DATA, 0, 1, body=b"end"))
    bodies = frames_in(bytes(below.out))
    assert bodies[-1] == b"end"
    sizes = {number: size for number, (size, _, _) in enumerate(writers)}
    assert all(len(body) == sizes[body[0]] for body in bodies[:-1])
    assert set(written) <= {body[0] for body in bodies[:-1]}


async def _cancel_after(scope: trio.CancelScope, turns: int) -> None:
    await _turns(turns)
    scope.cancel()


async def _turns(count: int) -> None:
    for _ in range(count):
        await trio.lowlevel.checkpoint()


async def test_nothing_follows_a_partial_frame() -> None:
    below = FakeChannel(takes=[5], is_initiator=True)
    failed: list[Exception] = []
    async with trio.open_nursery() as nursery, muxer(below) as muxed:

        async def write() -> None:
            with pytest.raises(ConnectionClosedError) as caught:
                await muxed._write_frame(yamux_frame(TYPE_DATA, 0, 1, body=bytes(9)))
            failed.append(caught.value)

        nursery.start_soon(write)
        await trio.testing.wait_all_tasks_blocked()
        assert muxed._nursery is not None
        muxed._nursery.cancel_scope.cancel()
        await trio.testing.wait_all_tasks_blocked()
        assert failed
        with pytest.raises(ConnectionClosedError):
            await muxed._write_frame(yamux_frame(TYPE_WINDOW_UPDATE, 0, 1, 0))
    assert len(below.out) == 5


async def test_a_frame_is_written_now_or_refused() -> None:
    below = FakeChannel(takes=[30, 5], is_initiator=True)
    async with muxer(below) as muxed:
        stream = muxed._add_stream(1, is_initiator=True)
        assert stream.write_now(b"first")
        assert frames_in(bytes(below.out)) == [b"first"]
        assert stream.send_window == WINDOW_BYTES - 5
        assert stream.write_now(b"in parts")
        assert not stream.write_now(b"another"), "the rest of a frame is to go first"
        below.room.set()
        await trio.testing.wait_all_tasks_blocked()
        assert frames_in(bytes(below.out)) == [b"first", b"in parts"]
        stream.send_window = 6
        assert not stream.write_now(b"another")
        stream.send_window, stream.closed = WINDOW_BYTES, True
        assert not stream.write_now(b"another")
        stream.closed = False
        below._rest = b"of a message that stays unfinished"
        with pytest.raises(ConnectionClosedError):
            stream.write_now(b"another")
        assert not muxed._frame_lock.locked()


async def test_a_partial_send_is_completed() -> None:
    async with sockets() as (one, other):
        traffic = Traffic()
        pipe = SocketPipe(one, ClearStream(NOTHING), traffic)
        payload = random.Random(1).randbytes(3_000_000)
        assert not pipe.start_send(payload)
        with pytest.raises(ConnectionClosedError):
            pipe.start_send(b"x")
        come = bytearray()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pipe.flush)
            reader = SocketPipe(other, ClearStream(NOTHING), traffic)
            while len(come) < len(payload):
                come += await reader.receive()
        assert come == payload
        assert traffic == Traffic(bytes_in=len(payload), bytes_out=len(payload))
        assert pipe.start_send(b"x")
        assert traffic.bytes_out == len(payload) + 1


async def test_closing_the_socket_ends_its_reader_and_writer() -> None:
    async with sockets() as (one, _other):
        pipe = SocketPipe(one, ClearStream(NOTHING))
        pipe.start_send(bytes(3_000_000))
        async with trio.open_nursery() as nursery:
            for waits in (pipe.receive, pipe.flush):
                nursery.start_soon(_raises_closed, waits)
            await trio.testing.wait_all_tasks_blocked()
            one.socket.close()
        for waits in (pipe.receive, pipe.flush):
            await _raises_closed(waits)


async def _raises_closed(waits: Any) -> None:
    with pytest.raises(ConnectionClosedError):
        await waits()


NOTHING: Any = None
"""The layer below a key, which is asked nothing."""


@asynccontextmanager
async def sockets() -> AsyncIterator[tuple[trio.SocketStream, trio.SocketStream]]:
    """Two ends of TCP on loopback."""
    async with trio.open_nursery() as nursery:
        found = trio.open_memory_channel[trio.SocketStream](1)

        async def accept(stream: trio.SocketStream) -> None:
            await found[0].send(stream)
            await trio.sleep_forever()

        listeners = await nursery.start(trio.serve_tcp, accept, 0)
        port = listeners[0].socket.getsockname()[1]
        one = await trio.open_tcp_stream("127.0.0.1", port)
        one.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 * 1024)
        yield one, await found[1].receive()
        nursery.cancel_scope.cancel()


# Other tasks run


class TaskCounter:
    """Counts how often another task runs."""

    def __init__(self) -> None:
        self.turns = 0

    async def run(self, *, task_status: Any) -> None:
        task_status.started()
        while True:
            await trio.lowlevel.checkpoint()
            self.turns += 1


async def test_other_tasks_run_while_a_connection_receives_many_frames() -> None:
    count = 20_000
    below = FakeChannel(yamux_frame(TYPE_WINDOW_UPDATE, 0, 9, 0) * count, is_initiator=True)
    other = TaskCounter()
    async with running(other), muxer(below) as muxed:
        while below.incoming or muxed._received:
            await trio.lowlevel.checkpoint()
        assert other.turns >= count // FRAMES_PER_TURN // 2


@pytest.mark.parametrize("size", [1, 3000, WINDOW_BYTES // 8])
async def test_other_tasks_run_while_one_task_writes_many_frames(size: int) -> None:
    count = 400
    other = TaskCounter()
    async with running(other), muxer(FakeChannel(is_initiator=True)) as muxed:
        for _ in range(count):
            await muxed._write_frame(yamux_frame(TYPE_DATA, 0, 1, body=bytes(size)))
        assert other.turns >= count // FRAMES_PER_TURN // 2
        assert other.turns >= count * size // BYTES_PER_TURN // 2


async def test_other_tasks_run_during_immediate_writes() -> None:
    async with muxer(FakeChannel(is_initiator=True)) as muxed:
        stream = muxed._add_stream(1, is_initiator=True)
        assert [stream.write_now(b"x") for _ in range(200)].count(True) == FRAMES_PER_TURN
        await stream.write(b"x")
        assert stream.write_now(b"x"), "others have run"


async def test_other_tasks_run_while_a_stream_delivers_many_small_messages() -> None:
    count = 20_000

    class Stream:
        async def read(self, _n: int | None = None) -> bytes:
            await trio.lowlevel.checkpoint()
            return b"\1x" * count

    other = TaskCounter()
    stream: Any = Stream()
    reader = FrameReader(stream, 100)
    async with running(other):
        for _ in range(count):
            await reader.read()
        assert other.turns >= count // 64 // 2


# Noise in any fragmentation


class FragmentedStream(ReadWriteCloser):
    """One end of a stream in memory whose bytes arrive in random pieces.

    Not during the handshake, which is the library's: it fails after a hundred pieces.
    """

    def __init__(self, stream: trio.abc.Stream, rng: random.Random) -> None:
        self._stream = stream
        self._rng = rng
        self.sizes = [70_000]

    async def read(self, n: int | None = None) -> bytes:
        most = self._rng.choice(self.sizes)
        return bytes(await self._stream.receive_some(most if n is None else min(n, most)))

    async def write(self, data: bytes) -> None:
        await self._stream.send_all(data)

    async def close(self) -> None:
        await self._stream.aclose()

    def get_remote_address(self) -> None:
        return None


@pytest.mark.parametrize("key", [None, b"k" * 32])
@pytest.mark.parametrize("seed", range(2))
async def test_noise_messages_survive_any_fragmentation(seed: int, key: bytes | None) -> None:
    rng = random.Random(seed)
    sizes = [0, 1, 12, 300, 65_519, 65_520, 200_000]
    sent = [rng.randbytes(rng.choice(sizes)) for _ in range(20)]
    one, other = await channels(rng, key)
    come = bytearray()
    async with trio.open_nursery() as nursery:

        async def write() -> None:
            for message in sent:
                await one.write(message)
            await one.close()

        nursery.start_soon(write)
        with trio.fail_after(20):
            while piece := await other.receive():
                come += piece
    assert come == b"".join(sent)


async def channels(rng: random.Random, key: bytes | None) -> tuple[Channel, Channel]:
    """Two ends of a connection after a real handshake."""
    ends = [FragmentedStream(stream, rng) for stream in trio.testing.memory_stream_pair()]
    raw = [
        RawConnection(PrivateStream(end, key) if key else ClearStream(end), initiator)
        for end, initiator in zip(ends, (True, False), strict=True)
    ]
    for end in raw:  # the first bytes of any connection, by which a key is recognised
        await end.write(GREETING)
    for end in raw:
        assert await read_exactly(end, len(GREETING)) == GREETING
    keys = [fresh_identity().key_pair for _ in range(2)]
    noises = [ChannelNoise(k, noise_privkey=create_x25519_key_pair().private_key) for k in keys]
    found: dict[int, Any] = {}

    async def answer() -> None:
        found[1] = await noises[1].secure_inbound(raw[1])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(answer)
        found[0] = await noises[0].secure_outbound(raw[0], ID.from_pubkey(keys[1].public_key))
    for cut in ends:
        cut.sizes = [1, 2, 3, 17, 1000, 70_000]
    return found[0], found[1]


# A writer waits for window


async def full_stream(muxed: WindowedYamux) -> WindowedStream:
    stream = await muxed.open_stream()
    assert isinstance(stream, WindowedStream)
    await stream.write(bytes(WINDOW_BYTES))
    return stream


async def test_window_updates_wake_the_writer_at_once() -> None:
    begin = yamux_frame(TYPE_WINDOW_UPDATE, 0, 1, 5)
    below = FakeChannel(is_initiator=True)
    async with muxer(below) as muxed, trio.open_nursery() as nursery:
        stream = await full_stream(muxed)
        nursery.start_soon(stream.write, b"12345")
        await trio.testing.wait_all_tasks_blocked()
        assert b"12345" not in below.out
        muxed._received += begin
        await muxed._handle_frame()
        await trio.testing.wait_all_tasks_blocked()
        assert below.out.endswith(b"12345")


@pytest.mark.parametrize("end", ["close", "cleanup", "reset", "rst"])
async def test_closing_wakes_a_writer_that_waits_for_window(end: str) -> None:
    async with muxer(FakeChannel(is_initiator=True)) as muxed, trio.open_nursery() as nursery:
        stream = await full_stream(muxed)

        async def write() -> None:
            with pytest.raises(MuxedStreamError, match="closed"):
                await stream.write(b"x")

        nursery.start_soon(write)
        await trio.testing.wait_all_tasks_blocked()
        with trio.fail_after(2):  # less than the five-second limit for a full window
            if end == "rst":
                muxed._received += yamux_frame(TYPE_WINDOW_UPDATE, 8, 1, 0)
                await muxed._handle_frame()
            elif end == "reset":
                await stream.reset()
            else:
                await (muxed.close() if end == "close" else muxed._cleanup_on_error())


async def test_a_partially_received_frame_counts_as_unread() -> None:
    body = yamux_frame(TYPE_DATA, FLAG_SYN, 2, 100_000, bytes(70_000))
    async with muxer(FakeChannel(body, is_initiator=True)) as muxed:
        await trio.testing.wait_all_tasks_blocked()
        assert muxed.unread_bytes() == 70_000
