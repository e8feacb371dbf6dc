"""One stream between two stock py-libp2p hosts over one transport; prints MB/s.

`python -m benchmarks.transport_stream /ip4/127.0.0.1/tcp/0`, run by `benchmarks.transports` in a
process of its own: stock hosts do not always close.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from typing import Any

import trio
from libp2p import new_host
from libp2p.crypto.ed25519 import create_new_key_pair
from libp2p.custom_types import TProtocol
from libp2p.peer.peerinfo import info_from_p2p_addr
from multiaddr import Multiaddr  # type: ignore[import-untyped]

BLOB = TProtocol("/bench/stream/1")
STREAM_BYTES = 8 << 20
PIECE_BYTES = 1 << 16


async def _run(listen: str) -> None:
    options: dict[str, Any] = {
        "enable_quic": "quic" in listen,
        "enable_websocket": listen.endswith("/ws"),
    }
    one = new_host(key_pair=create_new_key_pair(), **options)
    other = new_host(key_pair=create_new_key_pair(), **options)

    async def swallow(stream: Any) -> None:
        count = 0
        while count < STREAM_BYTES:
            count += len(await stream.read(PIECE_BYTES))
        await stream.write(b"!")

    one.set_stream_handler(BLOB, swallow)
    async with one.run([Multiaddr(listen)]), other.run([]):
        await other.connect(info_from_p2p_addr(one.get_addrs()[0]))
        stream = await other.new_stream(one.get_id(), [BLOB])
        piece = os.urandom(PIECE_BYTES)
        started = time.perf_counter()
        for _ in range(STREAM_BYTES // PIECE_BYTES):
            await stream.write(piece)
        await stream.read(1)
        print(STREAM_BYTES / 1e6 / (time.perf_counter() - started), flush=True)
        os._exit(0)


if __name__ == "__main__":
    logging.getLogger("libp2p").setLevel(logging.CRITICAL)
    trio.run(_run, sys.argv[1])
