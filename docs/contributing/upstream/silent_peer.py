"""Yamux pings every 30 s and never acts on a missing answer: a peer whose cable was pulled stays
connected. (Runs for 80 s.)"""

import trio
from libp2p.peer.peerinfo import info_from_p2p_addr
from multiaddr import Multiaddr
from stock import peer, run, tell


async def main() -> int:
    flowing = trio.Event()
    flowing.set()

    async def copy(source, sink) -> None:
        async for data in source:
            if not flowing.is_set():
                await trio.sleep_forever()
            await sink.send_all(data)

    async with peer() as (one, _), peer() as (other, _), trio.open_nursery() as nursery:
        port = int(str(other.get_addrs()[0]).split("/")[4])

        async def relay(client) -> None:
            server = await trio.open_tcp_stream("127.0.0.1", port)
            nursery.start_soon(copy, client, server)
            await copy(server, client)

        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, relay, [listener])
        through = listener.socket.getsockname()[1]
        address = Multiaddr(f"/ip4/127.0.0.1/tcp/{through}/p2p/{other.get_id()}")
        await one.connect(info_from_p2p_addr(address))
        flowing = trio.Event()
        await trio.sleep(80)
        connected = other.get_id() in one.get_connected_peers()
        nursery.cancel_scope.cancel()
    return tell(connected, "80 s after the cable was pulled the peer counts as connected")


run(main, seconds=120)
