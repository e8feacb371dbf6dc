"""Bytes sent and received since the start, of one connection or of all. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Traffic:
    """Encrypted bytes, after the handshake; what is below TCP is not seen.

    Of all connections together, those through a relay go over the relay's own socket, and are
    counted there.
    """

    bytes_in: int = 0
    bytes_out: int = 0
