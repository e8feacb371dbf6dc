"""One attacker over real sockets: its own host, and any bytes below and above its muxer."""

from __future__ import annotations

import random
import struct
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

import trio
from libp2p.abc import INetStream
from libp2p.custom_types import TProtocol
from libp2p.exceptions import BaseLibp2pError
from libp2p.peer.id import ID
from libp2p.stream_muxer.yamux.yamux import FLAG_SYN, TYPE_DATA, YAMUX_HEADER_FORMAT

from shoal_p2p.net.host import DialError, Libp2pHost, RequestError
from shoal_p2p.net.layers import find_socket
from shoal_p2p.net.streams import reset_stream
from shoal_p2p.peers.address_policy import AddressPolicy
from tests.support.nodes import open_test_host, until
from tests.support.victim import Victim

PATIENCE_S = 2.0
DIAL_S = 5.0


def frame(kind: int, flags: int, stream_id: int, length: int, body: bytes = b"") -> bytes:
    """Return a yamux frame with any `length` field."""
    return struct.pack(YAMUX_HEADER_FORMAT, 0, kind, flags, stream_id, length) + body


def opening(stream_id: int, body: bytes, flags: int = 0) -> bytes:
    """Return the frame that opens a stream with `body`."""
    return frame(TYPE_DATA, FLAG_SYN | flags, stream_id, len(body), body)


def hello(*protocols: str) -> bytes:
    """Return multistream-select's bytes for opening a protocol's stream without waiting."""
    lines = [f"{name}\n".encode() for name in ("/multistream/1.0.0", *protocols)]
    return b"".join(bytes([len(line)]) + line for line in lines)


class WireAttacker:
    """One attacker. `lure` is a third party's address to report to the victim, and `invited_to`
    another one for invitations; no node may dial them often."""

    def __init__(
        self, host: Libp2pHost, second: Libp2pHost, victim: Victim, lure: str, invited_to: str
    ) -> None:
        self.host, self.second = host, second
        self.victim, self.lure, self.invited_to = victim, lure, invited_to
        self.address_policy = AddressPolicy(second)
        """The remaining dials of a newcomer that reads its invitations."""
        self._next_id = 10_001

    @property
    def target(self) -> Any:
        """The victim's peer id, in the library's type."""
        return ID.from_base58(self.victim.peer_id)

    async def meet(self, *, reconnect: bool = False, host: Libp2pHost | None = None) -> None:
        """Connect; replace the connection if `reconnect`."""
        host = host or self.host
        if reconnect:
            host.abort(self.victim.peer_id)
            theirs = self.victim.node.member.host
            with trio.move_on_after(PATIENCE_S):
                await until(lambda: not host.is_connected(self.victim.peer_id))
                await until(lambda: not theirs.is_connected(host.peer_id))
        await host.dial(self.victim.address, timeout=DIAL_S)

    async def ensure_connection(self) -> None:
        """Ensure a live connection: the last one may be closed without this side knowing."""
        try:
            await self.meet()
            await self.host.ping(self.victim.peer_id, timeout=1.0)
        except (DialError, RequestError, BaseLibp2pError):
            await self.meet(reconnect=True)

    async def muxed(self) -> Any:
        """Return its end of the connection."""
        await self.meet()
        (connection, *_) = self.host.libp2p_host.get_network().get_connections(self.target)
        return connection.muxed_conn

    async def write(self, frames: Iterable[bytes]) -> None:
        """Write any frames for as long as the victim accepts them."""
        muxed = await self.muxed()
        with trio.move_on_after(PATIENCE_S):
            for one in frames:
                await muxed._write_frame(one)
                await trio.lowlevel.checkpoint()

    async def write_below(self, data: bytes) -> None:
        """Write on the socket itself, below the encryption."""
        stream = find_socket(await self.muxed())
        assert stream is not None
        with trio.move_on_after(PATIENCE_S):
            await stream.send_all(data)

    def ids(self, count: int) -> list[int]:
        """Return unused stream ids."""
        start, self._next_id = self._next_id, self._next_id + 2 * count
        return list(range(start, start + 2 * count, 2))

    def request_frames(self, count: int, body: bytes, flags: int = 0) -> list[bytes]:
        """Return frames that each open a stream with `body`."""
        return [opening(stream_id, body, flags) for stream_id in self.ids(count)]

    async def open(self, protocol: str, host: Libp2pHost | None = None) -> INetStream:
        """Open a stream as the library does. May raise anything."""
        library = cast("Any", (host or self.host).libp2p_host)
        stream: INetStream = await library.new_stream(self.target, [TProtocol(protocol)])
        return stream

    async def write_slowly(
        self, protocol: str, pieces: Iterable[bytes], rng: random.Random, host: Any = None
    ) -> None:
        """Write pieces on a stream, and leave it open, close it, or reset it."""
        with trio.move_on_after(PATIENCE_S):
            stream = await self.open(protocol, host)
            for piece in pieces:
                await stream.write(piece)
            end = rng.random()
            if end < 0.3:
                await reset_stream(stream)
            elif end < 0.6:
                await stream.close()


@asynccontextmanager
async def open_attackers(
    victim: Victim, lure: str, *invited_to: str
) -> AsyncIterator[list[WireAttacker]]:
    """Run one attacker for each address that invitations should contain."""
    if not invited_to:
        yield []
        return
    async with (
        open_test_host() as host,
        open_test_host() as second,
        open_attackers(victim, lure, *invited_to[1:]) as others,
    ):
        with suppress(Exception):
            await host.dial(victim.address)
        yield [WireAttacker(host, second, victim, lure, invited_to[0]), *others]
