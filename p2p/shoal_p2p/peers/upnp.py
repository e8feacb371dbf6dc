"""A router asked to forward a port, by UPnP, in a process that may fall ill in the node's place.

miniupnpc believes what the local network says: what comes of it is tried from outside before
anybody is told (`shoal_p2p.peers.port_mapping`). The question is the process's last argument, the
answer a line (`shoal_p2p.peers.upnp_client`). No seconds mean that the router is to forget. It
imports no Trio.
"""

from __future__ import annotations

import contextlib
import json
import random
import resource
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Final

from shoal_base.bounded import LINE_CHARS
from shoal_base.lines import say_json

MEMORY_BYTES: Final = 128 << 20
"""Address space of this process; 18 MiB are in use before anybody is asked."""
ANSWER_S: Final = 19
"""Seconds for the whole question, below those for which the node waits (`port_mapping`)."""
_DISCOVER_MS = 2000
"""Longest wait for a router's answer, as the UPnP Device Architecture has it (MX)."""
_ROUTERS = ("239.255.255.250", 1900)
"""Multicast address of routers (UPnP Device Architecture 2.0, section 1.3)."""
_OTHER_PORTS = (20_000, 60_000)
_MAX_TRIES = 4
"""Other ports that are tried where the first is taken."""
_TAKEN = "conflict"
_FOR_EVER_ONLY = "permanent"


class RouterError(Exception):
    """No router forwards a port here; one line that says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forwarded:
    """A port of the router that leads to this machine."""

    host: str
    """The router's address outside, as it says itself."""
    port: int
    """The router's port outside."""
    lease_s: float
    """Seconds until the router forgets it; infinite where the router knows no leases."""


def forward(port: int, outside: int, lease_s: float) -> Forwarded:
    """Forward the router's port `outside`, or another where that is taken, to `port` here.

    Raises RouterError.
    """
    found = _find()
    others = (random.randint(*_OTHER_PORTS) for _ in range(_MAX_TRIES))
    error: RouterError | None = None
    for wanted in (outside, *others):
        try:
            lasts_s = _map(found, wanted, port, lease_s)
        except RouterError as failure:
            error = failure
            if _TAKEN in str(failure).lower():
                continue
            raise
        host = str(_ask(found.externalipaddress))
        return Forwarded(host=host, port=wanted, lease_s=lasts_s)
    raise error or RouterError("no port is free")


def forget(_port: int, outside: int) -> None:
    """Take back what was forwarded. Raises RouterError."""
    found = _find()
    _ask(lambda: found.deleteportmapping(outside, "TCP"))


def _find() -> Any:
    """Return miniupnpc's object for the first router that answers. Raises RouterError."""
    try:
        # Late: of the extra `reach`.
        import miniupnpc  # type: ignore[import-not-found]
    except ImportError:
        raise RouterError("needs miniupnpc: pip install 'shoal[reach]'") from None
    _try_to_ask()
    found = miniupnpc.UPnP()
    found.discoverdelay = _DISCOVER_MS
    _ask(found.discover)
    _ask(found.selectigd)
    return found


def _map(found: Any, outside: int, port: int, lease_s: float) -> float:
    """Forward one port, and return for how many seconds."""
    held = _ask(lambda: found.getspecificportmapping(outside, "TCP"))
    if held is not None and (str(held[0]), int(held[1])) != (str(found.lanaddr), port):
        raise RouterError(f"{_TAKEN}: port {outside} leads to {held[0]}")  # never another's

    def ask(seconds: int) -> None:
        _ask(
            lambda: found.addportmapping(outside, "TCP", found.lanaddr, port, "shoal", "", seconds)
        )

    try:
        ask(int(lease_s))
    except RouterError as error:
        if _FOR_EVER_ONLY not in str(error).lower():
            raise
        ask(0)
        return float("inf")
    return lease_s


def _try_to_ask() -> None:
    """Send routers nothing, to see whether anything can be sent. Raises RouterError.

    miniupnpc would wait for answers that cannot come: without a route, past a firewall.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        try:
            sender.sendto(b"", _ROUTERS)
        except OSError as error:
            raise RouterError(f"no router can be asked: {error.strerror}") from None


def _ask(question: Callable[[], Any]) -> Any:
    try:
        return question()
    except Exception as error:  # noqa: BLE001 - as below
        # The library raises bare `Exception` with the router's own words.
        reply = " ".join(str(error).split())[:LINE_CHARS]
        raise RouterError(reply or repr(error)) from None


def answer(*, port: int, outside: int, lease_s: float) -> dict[str, Any]:
    """Answer one question. Raises RouterError."""
    if lease_s:
        return asdict(forward(port, outside, lease_s))
    forget(port, outside)
    return {}


def main() -> int:
    """Answer the question in the last argument."""
    with contextlib.suppress(ValueError):  # a system that bounds no addresses says so (macOS)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    # In C, where miniupnpc waits, no other way leads out. Its default is the end of the process.
    signal.alarm(ANSWER_S)
    try:
        reply = answer(**json.loads(sys.argv[-1]))
    except RouterError as error:
        reply = {"error": str(error)}
    say_json(reply)
    return 0


if __name__ == "__main__":
    sys.exit(main())
