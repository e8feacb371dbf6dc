"""Where a page is served: ``HOST:PORT`` as people write it. Pure.

auto ─▶ 127.0.0.1:7462, or a free port beside it      none ─▶ no page
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Final

AUTO: Final = "auto"
NONE: Final = "none"
DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 7462
"""SHOA on a telephone's keys."""
_NAME = re.compile(r"(?!-)[A-Za-z0-9.-]{1,253}(?<!-)")


@dataclass(frozen=True, slots=True, kw_only=True)
class WebAddress:
    """Where to listen."""

    host: str
    port: int
    """0 is any that is free."""
    may_move: bool
    """Whether another port does as well, where this one is taken."""


def parse_web_address(text: str) -> WebAddress | None:
    """Return where to serve; None for `none`. Raises ValueError, in one line, for anything else."""
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


def _is_host(host: str, *, bracketed: bool) -> bool:
    try:
        return (ipaddress.ip_address(host).version == 6) == bracketed
    except ValueError:
        return not bracketed and _NAME.fullmatch(host) is not None
