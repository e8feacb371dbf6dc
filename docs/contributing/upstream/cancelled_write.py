"""A writer that is cancelled while the socket takes no more leaves half a frame behind: what any
other stream of the connection writes next is read as its rest, and the connection is lost."""

import trio
from libp2p.abc import INetStream
from libp2p.peer.peerinfo import info_from_p2p_addr
from multiaddr import Multiaddr
from stock import peer, run, tell

ECHO, SINK = "/echo/1", "/sink/1"


async def echo(stream: INetStream) -> None:
    while data := await stream.read(1024):
        await stream.write(data)


async def sink(stream: INetStream) -> None:
    while await stream.read(1 << 16):
        pass


async def main() -> int:
    flowing = trio.Event()
    flowing.set()

    async def copy(source: trio.SocketStream, target: trio.SocketStream) -> None:
        async for data in source:
            await flowing.wait()
            await target.send_all(data)

    async with peer() as (one, _), peer() as (other, _), trio.open_nursery() as nursery:
        port = int(str(other.get_addrs()[0]).split("/")[4])

        async def relay(client: trio.SocketStream) -> None:
            server = await trio.open_tcp_stream("127.0.0.1", port)
            nursery.start_soon(copy, client, server)
            await copy(server, client)

        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, relay, [listener])
        for protocol, handler in ((ECHO, echo), (SINK, sink)):
            other.set_stream_handler(protocol, handler)
        through = listener.socket.getsockname()[1]
        address = Multiaddr(f"/ip4/127.0.0.1/tcp/{through}/p2p/{other.get_id()}")
        await one.connect(info_from_p2p_addr(address))
        talk = await one.new_stream(other.get_id(), [ECHO])
        sinks = [await one.new_stream(other.get_id(), [SINK]) for _ in range(60)]
        flowing = trio.Event()  # the network stands still for two seconds
        with trio.move_on_after(2.0):
            for stream in sinks:
                await stream.write(bytes(200_000))
        flowing.set()
        answer = b""
        with trio.move_on_after(10.0):
            try:
                await talk.write(b"hello")
                answer = await talk.read(1024)
            except Exception as error:  # noqa: BLE001 - any way of being lost
                answer = repr(error).encode()
        nursery.cancel_scope.cancel()
    return tell(answer != b"hello", f"after a cancelled write another stream got {answer!r}")


run(main)
