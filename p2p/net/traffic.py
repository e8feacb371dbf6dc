"""Bytes that a peer has sent and received over its sockets, since its start. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Traffic:
    """Encrypted bytes of all connections, after their handshakes; what is below TCP is not seen.

    Connections through a relay go over the relay's own socket, and are counted there.
    """

    bytes_in: int = 0
    bytes_out: int = 0
