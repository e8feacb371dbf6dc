"""Faulty networks and peers: a TCP relay that can stop forwarding, and raw pubsub streams."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import trio
from libp2p.custom_types import TProtocol
from libp2p.peer.id import ID
from libp2p.pubsub.pb import rpc_pb2

from shoal_p2p.gossip.codec import encode_frame, sign_message
from shoal_p2p.net.address import to_libp2p_id
from shoal_p2p.net.host import Libp2pHost
from shoal_p2p.net.identity import Identity
from shoal_wire.types import PeerId

MESHSUB = TProtocol("/meshsub/1.1.0")


class Relay:
    """Forwards TCP to one port, or drops everything on request, like a pulled cable."""

    def __init__(self, target_port: int) -> None:
        self.port = 0
        self._target_port = target_port
        self._flowing = trio.Event()
        self._flowing.set()
        self._streams: list[trio.SocketStream] = []
        self.carried: list[bytearray] = []
        """The bytes of each connection in each direction, from the first on."""

    def pull_cable(self) -> None:
        """Forward nothing from now on, not even the end of a stream."""
        self._flowing = trio.Event()

    async def serve(self, client: trio.SocketStream) -> None:
        server = await trio.open_tcp_stream("127.0.0.1", self._target_port)
        self._streams += [client, server]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._copy, client, server)
            nursery.start_soon(self._copy, server, client)

    async def _copy(self, source: trio.SocketStream, sink: trio.SocketStream) -> None:
        received = bytearray()
        self.carried.append(received)
        try:
            while data := await source.receive_some():
                received += data
                await self._flowing.wait()
                await sink.send_all(data)
            await self._flowing.wait()
            await sink.send_eof()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            await self._flowing.wait()
            await source.aclose()
            await sink.aclose()


@asynccontextmanager
async def open_relay(host: Libp2pHost) -> AsyncIterator[Relay]:
    """Run a relay in front of `host`."""
    relay = Relay(port_of(host))
    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        relay.port = listener.socket.getsockname()[1]
        nursery.start_soon(trio.serve_listeners, relay.serve, [listener])
        yield relay
        nursery.cancel_scope.cancel()


def port_of(host: Libp2pHost) -> int:
    """Return the TCP port of the host's first address."""
    return int(host.listen_addrs()[0].split("/")[4])


def at_port(host: Libp2pHost, port: int) -> str:
    """Return the address of `host` at another port."""
    return f"/ip4/127.0.0.1/tcp/{port}/p2p/{host.peer_id}"


class HostilePeer:
    """A connected host that writes arbitrary bytes on pubsub streams."""

    def __init__(self, host: Libp2pHost, victim: PeerId) -> None:
        self.host = host
        self._victim = victim

    async def open_stream(self) -> Any:
        """Open a pubsub stream to the victim."""
        library = cast("Any", self.host.libp2p_host)
        return await library.new_stream(ID.from_base58(self._victim), [MESHSUB])

    async def send_rpc(self, rpc: rpc_pb2.RPC) -> Any:
        """Send one RPC on a new stream; return the stream."""
        stream = await self.open_stream()
        await stream.write(encode_frame(rpc))
        return stream

    async def send_bytes(self, data: bytes) -> Any:
        """Write `data` on a new stream; return the stream."""
        stream = await self.open_stream()
        await stream.write(data)
        return stream


def signed_by(author: Identity, topic: str, data: bytes, number: int = 7) -> rpc_pb2.Message:
    """Return an authentic pubsub message."""
    return sign_message(author, to_libp2p_id(author.peer_id).to_bytes(), topic, data, number)


async def is_reset(stream: Any) -> bool:
    """Read until the other end closes `stream`; return True then."""
    try:
        while await stream.read(1 << 16):
            pass
    except Exception:  # noqa: BLE001 - any of libp2p's ways to say that the stream is gone
        return True
    return True
