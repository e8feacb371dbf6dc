"""Frames in arbitrary fragments, and the queue of frames to a peer."""

from __future__ import annotations

import random

import pytest
import trio
import trio.testing
from libp2p.network.stream.exceptions import StreamEOF
from libp2p.utils.varint import encode_uvarint

from shoal_p2p.gossip.codec import MAX_RPC_BYTES
from shoal_p2p.gossip.outbound import OutboundQueue, median_wait_s
from shoal_p2p.net.streams import FrameReader, MalformedFrameError


class Pieces:
    """A stream that returns its bytes in given pieces."""

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = pieces

    async def read(self, n: int | None = None) -> bytes:
        return self._pieces.pop(0) if self._pieces else b""


async def test_frames_survive_any_fragmentation() -> None:
    bodies = [b"", b"x", bytes(300), bytes(70_000)]
    whole = b"".join(encode_uvarint(len(body)) + body for body in bodies)
    generator = random.Random(1)
    for _ in range(20):
        cuts = sorted(generator.sample(range(len(whole)), 12))
        pieces = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
        reader = FrameReader(Pieces([p for p in pieces if p]), 1 << 20)
        assert [await reader.read() for _ in bodies] == bodies


async def test_a_whole_frame_is_the_one_that_the_reader_returns() -> None:
    """In 4,000 generated pieces: one frame, several, parts of one, and noise."""
    generator = random.Random(2)
    num_whole = 0
    for _ in range(4000):
        sizes = [generator.choice((0, 1, 127, 128, 300, 16_383, 16_384, 20_000))]
        sizes += [generator.randrange(300)] * generator.randrange(2)
        data = b"".join(encode_uvarint(size) + generator.randbytes(size) for size in sizes)
        data = data[generator.choice((0, 0, 0, 1)) : generator.choice((None, None, -1))]
        reader = FrameReader(Pieces([data] if data else []), 1 << 20)
        whole = reader.whole_frame(data)
        try:
            frame = await reader.read()
        except (StreamEOF, MalformedFrameError):
            assert whole is None
            continue
        num_whole += whole is not None
        assert whole is None or (whole == frame and not reader._buffer)
    assert num_whole > 500


async def test_a_frame_is_not_whole_while_the_reader_holds_a_part_of_another() -> None:
    reader = FrameReader(Pieces([b"\x02a"]), 1 << 20)
    with pytest.raises(StreamEOF):
        await reader.read()
    assert reader.whole_frame(b"\x01b") is None


@pytest.mark.parametrize(
    ("waits", "median_s"),
    [
        ([], 0.0),
        ([(0.0, 9.0), (0.0, 9.0)], 0.0),  # idle, and so is the network
        ([(0.0, 0.1), (0.0, 0.1), (6.0, 7.0), (6.0, 7.0)], 0.0),  # half of the links are cut
        ([(0.0, 0.1), (6.0, 7.0), (6.0, 7.0), (6.0, 7.0)], 0.0),  # most of them are
        ([(6.0, 7.0), (5.0, 7.0), (4.0, 7.0)], 5.0),  # all of them: no peer is reachable
        ([(3.0, 0.2), (2.0, 0.5), (4.0, 0.1)], 3.0),  # overloaded, but responsive
        ([(0.5, 0.9), (0.5, 0.9), (0.5, 0.9)], 0.5),  # too early to decide
        ([(3.0, 0.2), (3.0, 0.2), (6.0, 7.0)], 3.0),
    ],
)
def test_unresponsive_peers_do_not_count_as_lag(
    waits: list[tuple[float, float]], median_s: float
) -> None:
    assert median_wait_s(waits) == median_s


@pytest.mark.parametrize("data", [b"\x80\x80\x80\x80\x80", b"\x81\x80\x40", b"\xff\xff\xff\x7f"])
async def test_bad_lengths_are_malformed(data: bytes) -> None:
    with pytest.raises(MalformedFrameError):
        await FrameReader(Pieces([data]), 1 << 20).read()


async def test_outbound_queue_is_bounded_and_puts_control_first() -> None:
    queue = OutboundQueue(max_frames=3, max_bytes=100)
    assert [queue.push(bytes(30)) for _ in range(4)] == [True, True, True, False]
    assert not queue.push(bytes(MAX_RPC_BYTES + 5))
    assert queue.num_data_bytes == 90
    assert [queue.push(b"control", control=True) for _ in range(4)] == [True, True, True, False]
    assert await queue.pop(8) == [b"control"], "at most the bytes that may be written together"
    assert await queue.pop(60) == [b"control"] * 2 + [bytes(30)]
    assert not queue.push(bytes(60)), "over the bound in bytes"
    assert queue.push(bytes(MAX_RPC_BYTES), control=True)
    assert not queue.push(b"c", control=True), "control has its own limit"
    queue.close()
    assert await queue.pop(100) == []
    assert not queue.push(b"late")


async def test_a_small_frame_is_written_at_once_if_the_queue_is_empty() -> None:
    written: list[bytes] = []

    def write_now(frame: bytes) -> bool:
        if not can_write:
            return False
        written.append(frame)
        return True

    can_write = True
    queue = OutboundQueue(max_frames=3, max_bytes=1 << 20, write_now=write_now)
    assert queue.push(b"before the writer")
    popped: list[bytes] = []

    async def write() -> None:
        while frames := await queue.pop(100):
            popped.extend(frames)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(write)
        await trio.testing.wait_all_tasks_blocked()
        assert queue.push(b"now")
        assert queue.push(bytes(100_000))
        assert queue.push(b"behind it")
        assert (written, popped) == ([b"now"], [b"before the writer"])
        await trio.testing.wait_all_tasks_blocked()
        can_write = False
        assert queue.push(b"later")
        await trio.testing.wait_all_tasks_blocked()
        assert popped[1:] == [bytes(100_000), b"behind it", b"later"]
        can_write = True
        queue.close()
        assert not queue.push(b"too late")
    assert written == [b"now"]


@pytest.mark.parametrize("closes", [False, True])
async def test_waiting_for_capacity_ends_with_capacity_or_closing(closes: bool) -> None:
    queue = OutboundQueue(max_frames=1, max_bytes=100)
    queue.push(bytes(10))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(queue.wait_for_capacity, 10)
        await trio.testing.wait_all_tasks_blocked()
        assert nursery.child_tasks
        if closes:
            queue.close()
        else:
            await queue.pop(100)
    assert queue.has_capacity(10)
