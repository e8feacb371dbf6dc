"""The port that one listens on: nobody else has it, and one may dial from it.

    behind a router, to a public address ─▶ from the listening port: the router's door for it is
                                            the one at which others see this host, and may knock
    else                                 ─▶ from any port

Routers that give each port one door (cone) can be crossed from both sides at once; who dials from
any port learns nothing of the door of the one it listens on.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterable

import trio

from shoal_p2p.net.address import expand_unspecified, host_and_port, is_unspecified
from shoal_p2p.net.inbound_gate import ip_of
from shoal_p2p.net.layers import find_socket
from shoal_p2p.net.private_networks import LOOPBACK, private_network_of

Source = tuple[str, int]
"""Address and port that a socket is bound to before it dials."""

TAKEN = (errno.EADDRINUSE, errno.EADDRNOTAVAIL)
"""The same two ends have a connection, or had one a minute ago; or this system allows none."""


class ListenError(Exception):
    """An address cannot be listened on; one line that names it."""


async def refuse_taken_port(address: str) -> None:
    """Bind once without SO_REUSEPORT, which py-libp2p sets: with it a second node on the same
    port would silently share the first one's connections. Raises ListenError."""
    host, port = host_and_port(address)
    family = trio.socket.AF_INET6 if ":" in host else trio.socket.AF_INET
    with trio.socket.socket(family, trio.socket.SOCK_STREAM) as probe:
        probe.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_REUSEADDR, 1)
        try:
            await probe.bind((host, port))
        except OSError as error:
            raise ListenError(f"cannot listen on {address}: {error.strerror or error}") from error


def source_for(host: str, listening: Iterable[str]) -> Source | None:
    """Return where to dial a literal address from, so that it sees a port listened on.

    None if this host listens on none from which that address can be dialled.
    """
    target = ip_of(host)
    if target is None:
        return None
    for transport in listening:
        own, port = host_and_port(transport)
        address = ip_of(own)
        if address is None or address.version != target.version:
            continue
        if is_unspecified(transport) or (private_network_of(own) == LOOPBACK) == target.is_loopback:
            return own, port
    return None


def is_seen_through_a_router(host: str, listening: Iterable[str]) -> bool:
    """Return whether a public address is dialled by a host that has only private ones itself."""
    target = ip_of(host)
    if target is None or private_network_of(host) is not None:
        return False
    own = [
        host_and_port(address)[0]
        for transport in listening
        for address in expand_unspecified(transport)
    ]
    return all(
        private_network_of(a) is not None for a in own if (":" in a) == (target.version == 6)
    )


async def open_from(host: str, port: int, source: Source) -> trio.SocketStream:
    """Connect to a literal address from a port that is listened on. Raises OSError."""
    family = trio.socket.AF_INET6 if ":" in host else trio.socket.AF_INET
    dialled = trio.socket.socket(family, socket.SOCK_STREAM)
    try:
        dialled.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        dialled.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        await dialled.bind(source)
        await dialled.connect((host, port))
    except BaseException:
        dialled.close()
        raise
    return trio.SocketStream(dialled)


def local_port(connection: object) -> int:
    """Return this end's port of a connection over TCP; 0 for any other."""
    stream = find_socket(connection)
    try:
        return int(stream.socket.getsockname()[1]) if stream is not None else 0
    except OSError:  # closed already
        return 0
