"""Counts bytes sent and received since the start, by connection or in all. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Traffic:
    """Encrypted bytes after the handshake, without the overhead of TCP and IP.

    In the sum over all connections, relayed bytes count for the relay's own socket.
    """

    bytes_in: int = 0
    bytes_out: int = 0
