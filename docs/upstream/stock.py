"""What the scripts here share: stock py-libp2p peers with gossipsub on loopback, nothing of shoal.

Each script prints `broken: …` and exits with 1 while the fault is there, `fixed: …` and 0 after.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import trio
from libp2p import new_host
from libp2p.crypto.ed25519 import create_new_key_pair
from libp2p.peer.peerinfo import info_from_p2p_addr
from libp2p.pubsub.gossipsub import PROTOCOL_ID_V11, GossipSub
from libp2p.pubsub.pubsub import Pubsub
from libp2p.tools.anyio_service import background_trio_service
from multiaddr import Multiaddr

LOOPBACK = Multiaddr("/ip4/127.0.0.1/tcp/0")


@asynccontextmanager
async def peer(**gossipsub: Any) -> AsyncIterator[tuple[Any, Pubsub]]:
    """Run one peer."""
    host = new_host(key_pair=create_new_key_pair())
    settings = {"degree": 6, "degree_low": 4, "degree_high": 12, "heartbeat_interval": 1}
    router = GossipSub(protocols=[PROTOCOL_ID_V11], **(settings | gossipsub))
    pubsub = Pubsub(host, router)
    async with (
        host.run(listen_addrs=[LOOPBACK]),
        background_trio_service(pubsub),
        background_trio_service(router),
    ):
        await pubsub.wait_until_ready()
        yield host, pubsub


async def connect(host: Any, other: Any) -> None:
    """Connect `host` to `other`."""
    address = other.get_addrs()[0]
    if "/p2p/" not in str(address):
        address = address.encapsulate(Multiaddr(f"/p2p/{other.get_id()}"))
    await host.connect(info_from_p2p_addr(address))


async def count(subscription: Any, seconds: float) -> int:
    """Return how many messages come until none has come for `seconds`."""
    found = 0
    while True:
        with trio.move_on_after(seconds) as scope:
            await subscription.get()
        if scope.cancelled_caught:
            return found
        found += 1


def tell(broken: bool, text: str) -> int:
    """Print the finding; return the exit code."""
    print(f"{'broken' if broken else 'fixed'}: {text}", flush=True)
    return int(broken)


def run(main: Callable[[], Awaitable[int]], *, seconds: float = 60.0, dies: str = "") -> None:
    """Run `main` and exit. With `dies`, an exception that ends the process is the fault."""

    async def bounded() -> int:
        with trio.fail_after(seconds):
            return await main()

    try:
        code = trio.run(bounded)
    except BaseException as error:
        if not dies:
            raise
        code = tell(True, f"{dies}: {root(error)!r}")
    sys.exit(code)


def root(error: BaseException) -> BaseException:
    """Return the first leaf of an exception group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
