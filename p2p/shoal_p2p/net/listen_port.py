"""The exclusive listen port, reused as the source port of dials.

    behind NAT, to a public address ─▶ from the listen port, so that peers observe the NAT mapping
                                       of that port and can dial it for hole punching
    otherwise                       ─▶ from any port

A NAT with one mapping for each port (cone NAT) can be traversed by a simultaneous dial. A dial from
any other port reveals nothing about the mapping of the listen port.
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

BindAddress = tuple[str, int]
"""Address and port to which a socket is bound before it dials."""

ADDRESS_IN_USE = (errno.EADDRINUSE, errno.EADDRNOTAVAIL)
"""The same two endpoints have a connection, or had one a minute ago; or the system refuses."""


class ListenError(Exception):
    """An address cannot be listened on. One line that names it."""


async def check_port_free(address: str) -> None:
    """Bind once without SO_REUSEPORT, which py-libp2p sets and with which a second node on the same
    port would silently share the first one's connections. Raises ListenError."""
    host, port = host_and_port(address)
    family = trio.socket.AF_INET6 if ":" in host else trio.socket.AF_INET
    with trio.socket.socket(family, trio.socket.SOCK_STREAM) as probe:
        probe.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_REUSEADDR, 1)
        try:
            await probe.bind((host, port))
        except OSError as error:
            raise ListenError(f"cannot listen on {address}: {error.strerror or error}") from error


def bind_address_for(host: str, listening: Iterable[str]) -> BindAddress | None:
    """Return the local address from which to dial a literal address, so that the peer observes a
    listen port.

    None if no listen port can be used to dial that address.
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


def is_behind_nat(host: str, listening: Iterable[str]) -> bool:
    """Return whether `host` is public and this host has only private addresses of that family."""
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


async def connect_from(host: str, port: int, source: BindAddress) -> trio.SocketStream:
    """Connect to a literal address from a listen port. Raises OSError."""
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
    """Return the local port of a TCP connection; 0 for any other."""
    stream = find_socket(connection)
    try:
        return int(stream.socket.getsockname()[1]) if stream is not None else 0
    except OSError:  # already closed
        return 0
