"""The address of an OpenEnv server, as written in a task file. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from shoal_tasks.errors import FamilyError

_ENCRYPTED: Final = {"ws": False, "http": False, "wss": True, "https": True}
"""The schemes, and whether each is encrypted. OpenEnv serves HTTP and WebSocket at one port."""

PREFIXES: Final = tuple(f"{scheme}://" for scheme in _ENCRYPTED)
"""Prefixes of a server in a task file: `environment = "ws://127.0.0.1:8000"`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAddress:
    """The address at which a server listens."""

    host: str
    port: int
    is_encrypted: bool
    path: str
    """Prefix of OpenEnv's own paths, without a trailing slash; usually empty."""

    @property
    def host_header(self) -> str:
        """The value of HTTP's `Host` header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_address(text: str) -> ServerAddress:
    """Parse an address. Raises `FamilyError`, one line."""
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if (
        not host
        or parts.scheme not in _ENCRYPTED
        or not text.isascii()
        or not text.isprintable()
        or any(mark in text for mark in " ?#@")
    ):
        raise FamilyError(
            f"{text!r} is not the address of an OpenEnv server, such as ws://HOST:8000"
        )
    is_encrypted = _ENCRYPTED[parts.scheme]
    return ServerAddress(
        host=host,
        port=port or (443 if is_encrypted else 80),
        is_encrypted=is_encrypted,
        path=parts.path.rstrip("/").removesuffix("/ws"),
    )
