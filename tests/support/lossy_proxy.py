"""A TCP proxy with delay and connection loss: LISTEN and TARGET are HOST:PORT.

Each direction forwards data after `delay-s`, in order. Every connection is reset `drop-every-s`
after it opened, and new ones are refused for `away-s`.
"""

from __future__ import annotations

import argparse
import math

import trio

_CHUNK_BYTES = 65_536
_MAX_IN_FLIGHT = 256
"""Chunks in transit per direction; beyond it the sender gets back-pressure."""


def main() -> None:
    """Run until killed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("listen")
    parser.add_argument("target")
    parser.add_argument("--delay-s", type=float, default=0.0)
    parser.add_argument("--drop-every-s", type=float, default=math.inf)
    parser.add_argument("--away-s", type=float, default=0.0)
    flags = parser.parse_args()
    trio.run(_serve, flags)


async def _serve(flags: argparse.Namespace) -> None:
    host, port = flags.listen.rsplit(":", 1)
    target_host, target_port = flags.target.rsplit(":", 1)
    back_at = -math.inf

    async def carry(client: trio.SocketStream) -> None:
        nonlocal back_at
        if trio.current_time() >= back_at:
            await pass_both_ways(client)
        with trio.CancelScope(shield=True):
            await trio.aclose_forcefully(client)

    async def pass_both_ways(client: trio.SocketStream) -> None:
        nonlocal back_at
        with trio.move_on_after(flags.drop_every_s) as dropped:
            try:
                server = await trio.open_tcp_stream(target_host, int(target_port))
            except OSError:
                server = None
            if server is not None:
                async with server, trio.open_nursery() as nursery:
                    nursery.start_soon(_pass_on, client, server, flags.delay_s, nursery)
                    nursery.start_soon(_pass_on, server, client, flags.delay_s, nursery)
        if dropped.cancelled_caught:
            back_at = trio.current_time() + flags.away_s

    await trio.serve_tcp(carry, int(port), host=host)


async def _pass_on(
    source: trio.SocketStream, sink: trio.SocketStream, delay_s: float, nursery: trio.Nursery
) -> None:
    send, receive = trio.open_memory_channel[tuple[float, bytes]](_MAX_IN_FLIGHT)
    nursery.start_soon(_deliver, receive, sink, nursery)
    try:
        while data := await source.receive_some(_CHUNK_BYTES):
            await send.send((trio.current_time() + delay_s, data))
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        pass
    await send.aclose()


async def _deliver(
    receive: trio.MemoryReceiveChannel[tuple[float, bytes]],
    sink: trio.SocketStream,
    nursery: trio.Nursery,
) -> None:
    try:
        async for due, data in receive:
            await trio.sleep_until(due)
            await sink.send_all(data)
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        pass
    nursery.cancel_scope.cancel()


if __name__ == "__main__":
    main()
