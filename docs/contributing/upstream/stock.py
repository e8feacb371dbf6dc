"""What the scripts here share: stock py-libp2p peers with gossipsub on loopback, nothing of shoal.

Each script prints `broken: …` and exits with 1 while the fault is there, `fixed: …` and 0 after.
All peers are the script's own, in its process: none takes the address of another. What ends, stalls
or shuts a peer needs `--crash`, and `--at ADDRESS` says where its own peers listen: on loopback.
"""

from __future__ import annotations

import argparse
import ipaddress
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
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

EXIT_USAGE = 2
_V4, _V6 = ipaddress.ip_network("127.0.0.0/8"), ipaddress.IPv6Address("::1")
_listen = ["/ip4/127.0.0.1/tcp/0"]


def loopback(text: str) -> str:
    """Return an address as a multiaddress's first part. Names, and addresses embedded in others,
    are refused, since they could lead anywhere.

    Raises:
        ValueError: it is not an address of this machine's loopback, as 127.0.0.1 or ::1.
    """
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise ValueError(f"{text!r} is no IP address") from None
    if address == _V6:
        return "/ip6/::1"
    if isinstance(address, ipaddress.IPv4Address) and address in _V4:
        return f"/ip4/{address}"
    raise ValueError(f"{text} is not on loopback (127.0.0.0/8 or ::1)")


def refuse(message: str) -> None:
    """Print one line and exit."""
    print(f"refused: {message}", file=sys.stderr)
    sys.exit(EXIT_USAGE)


def allow(crash: str, argv: Sequence[str]) -> None:
    """Read the flags; exit with code 2 where what a script does was not asked for."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    if crash:
        parser.add_argument("--crash", action="store_true")
        parser.add_argument("--at", default="127.0.0.1")
    try:
        given, unknown = parser.parse_known_args(argv)
    except argparse.ArgumentError as error:
        return refuse(str(error))
    if unknown:
        return refuse(f"no argument {unknown[0]!r} is taken")
    if not crash:
        return None
    if not given.crash:
        return refuse(f"this {crash} a peer of its own, on loopback; --crash does it")
    try:
        _listen[0] = f"{loopback(given.at)}/tcp/0"
    except ValueError as error:
        refuse(str(error))
    return None


@asynccontextmanager
async def peer(**gossipsub: Any) -> AsyncIterator[tuple[Any, Pubsub]]:
    """Run one peer."""
    host = new_host(key_pair=create_new_key_pair())
    settings = {"degree": 6, "degree_low": 4, "degree_high": 12, "heartbeat_interval": 1}
    router = GossipSub(protocols=[PROTOCOL_ID_V11], **(settings | gossipsub))
    pubsub = Pubsub(host, router)
    async with (
        host.run(listen_addrs=[Multiaddr(_listen[0])]),
        background_trio_service(pubsub),
        background_trio_service(router),
    ):
        await pubsub.wait_until_ready()
        yield host, pubsub


async def connect(host: Any, other: Any) -> None:
    """Connect `host` to `other`."""
    address = other.get_addrs()[0]
    loopback(str(address).split("/")[2])
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


def run(
    main: Callable[[], Awaitable[int]], *, seconds: float = 60.0, dies: str = "", crash: str = ""
) -> None:
    """Run `main` and exit. With `dies`, an exception that ends the process is the fault.

    `crash` is what the script does to a peer, a verb: it needs the flag of that name.
    """
    allow(crash or ("ends" if dies else ""), sys.argv[1:])

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
