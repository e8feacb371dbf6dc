"""A double of the channel below a muxer, without Noise and sockets.

below = FakeChannel(incoming=frames)           # read in pieces, then silence
below = FakeChannel(takes=[5])                 # accept five bytes of the first frame at once
below.room.set()                               # and now the rest
"""

from __future__ import annotations

import struct

import trio
from libp2p.io.exceptions import ConnectionClosedError
from libp2p.stream_muxer.yamux.yamux import YAMUX_HEADER_FORMAT

PIECE_BYTES = 64 * 1024


def yamux_frame(
    kind: int, flags: int, stream_id: int, length: int | None = None, body: bytes = b""
) -> bytes:
    """Return a frame that states this length, by default that of its body."""
    announced = len(body) if length is None else length
    return struct.pack(YAMUX_HEADER_FORMAT, 0, kind, flags, stream_id, announced) + body


class FakeChannel:
    """The part of `shoal_p2p.net.channel.Channel` that a muxer needs."""

    def __init__(
        self,
        incoming: bytes = b"",
        *,
        takes: list[int] | None = None,
        ends: bool = False,
        is_initiator: bool = False,
    ) -> None:
        """`takes` are the bytes accepted at once of each frame; afterwards all. After `incoming` it
        `ends`, or is silent."""
        self.is_initiator = is_initiator
        self.out = bytearray()
        self.incoming = [
            incoming[i : i + PIECE_BYTES] for i in range(0, len(incoming), PIECE_BYTES)
        ]
        self.room = trio.Event()
        self._takes = takes
        self._ends = ends
        self._rest = b""

    async def receive(self) -> bytes:
        await trio.lowlevel.checkpoint()
        if self.incoming:
            return self.incoming.pop(0)
        if not self._ends:
            await trio.sleep_forever()
        return b""

    def start_send(self, data: bytes) -> bool:
        if self._rest:
            raise ConnectionClosedError("an earlier message was sent only in part")
        size = len(data) if not self._takes else min(len(data), self._takes.pop(0))
        self.out += data[:size]
        self._rest = data[size:]
        return not self._rest

    async def flush(self) -> None:
        await self.room.wait()
        self.out += self._rest
        self._rest = b""

    async def close(self) -> None:
        await trio.lowlevel.checkpoint()

    def get_remote_address(self) -> None:
        return None
