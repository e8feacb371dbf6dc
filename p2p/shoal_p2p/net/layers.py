"""The layers of a connection, from the muxer down to a socket or a circuit. No I/O of its own."""

from __future__ import annotations

import trio

from shoal_base.bounded import FEW
from shoal_p2p.net.circuit import CircuitStream
from shoal_p2p.net.inbound_gate import prefix_of

LAYERS = ("muxed_conn", "secured_conn", "conn", "read_writer", "read_write_closer", "stream")


def find_socket(connection: object) -> trio.SocketStream | None:
    """Return the TCP stream below any layer of a connection; None if it does not use TCP."""
    lowest = lowest_layer(connection)
    return lowest if isinstance(lowest, trio.SocketStream) else None


def lowest_layer(connection: object) -> object:
    """Return the lowest layer of a connection: a socket, or a circuit's stream."""
    layer = connection
    for _ in range(FEW):
        if isinstance(layer, trio.SocketStream | CircuitStream):
            return layer
        below = next((inner for n in LAYERS if (inner := getattr(layer, n, None))), None)
        if below is None:
            return layer
        layer = below
    return layer


def remote_endpoint(connection: object) -> tuple[str, int]:
    """Return host and port of the other end of the TCP stream; empty and 0 without one."""
    stream = find_socket(connection)
    try:
        host, port, *_ = stream.socket.getpeername() if stream is not None else ("", 0)
    except OSError:  # already closed
        return "", 0
    return str(host), int(port)


def source_of(connection: object, peer_id: str = "") -> str:
    """Return the quota source of a connection: its network, or the relay that it uses.

    On this machine, where all peers share an address, it is the peer, so that it stays the same
    after a reconnect. Before the handshake it is the connection itself.
    """
    lowest = lowest_layer(connection)
    if isinstance(lowest, CircuitStream):
        return lowest.address.partition("/p2p-circuit")[0]
    return prefix_of(remote_endpoint(connection)[0]) or peer_id or f"connection {id(connection)}"
