"""The address of a page, as ``HOST:PORT``. Pure.

auto ─▶ 127.0.0.1:7462, or a free port if it is taken      none ─▶ no page
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

AUTO: Final = "auto"
NONE: Final = "none"
DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 7462
"""SHOA on a telephone's keys."""
_NAME = re.compile(r"(?!-)[A-Za-z0-9.-]{1,253}(?<!-)")


@dataclass(frozen=True, slots=True, kw_only=True)
class WebAddress:
    """The address to listen at."""

    host: str
    port: int
    """0 selects any free port."""
    may_move: bool
    """True if another port may be used when this one is taken."""


def parse_web_address(text: str) -> WebAddress | None:
    """Parse an address; None for `none`. Raises ValueError, with one line, if it is invalid."""
    if text == NONE:
        return None
    if text == AUTO:
        return WebAddress(host=DEFAULT_HOST, port=DEFAULT_PORT, may_move=True)
    host, colon, port = text.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if colon and _is_host(bare, bracketed=bare != host) and re.fullmatch(r"[0-9]{1,5}", port):
        number = int(port)
        if number <= 65_535:
            return WebAddress(host=bare, port=number, may_move=False)
    raise ValueError(f"{text!r} is not HOST:PORT (as 127.0.0.1:{DEFAULT_PORT}), auto or none")


@dataclass(frozen=True, slots=True, kw_only=True)
class WebName:
    """An additional name by which browsers reach the page."""

    host: str
    origin: str
    """The proxy's address as browsers write it, `https://NAME`; empty where there is none."""


def parse_web_name(text: str) -> WebName | None:
    """Parse a name, or a proxy's address; None if empty. Raises ValueError, with one line."""
    if not text:
        return None
    try:
        parts = urlsplit(text if "://" in text else f"//{text}")
        host, port = (parts.hostname or ""), parts.port
    except ValueError:
        host, port, parts = "", None, urlsplit("")
    plain = not (parts.path.strip("/") or parts.query or parts.fragment or "@" in parts.netloc)
    if parts.scheme in ("", "http", "https") and plain and _NAME.fullmatch(host):
        if not parts.scheme and port is None:
            return WebName(host=host, origin="")
        if parts.scheme:
            where = host if port is None else f"{host}:{port}"
            return WebName(host=host, origin=f"{parts.scheme}://{where}")
    raise ValueError(f"{text!r} is not a name (as box.example), nor https://NAME of a proxy")


def _is_host(host: str, *, bracketed: bool) -> bool:
    try:
        return (ipaddress.ip_address(host).version == 6) == bracketed
    except ValueError:
        return not bracketed and _NAME.fullmatch(host) is not None
