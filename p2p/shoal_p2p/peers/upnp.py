"""Asks a router to forward a port by UPnP, in a child process that may fail without the node.

miniupnpc trusts the local network, so peers test the mapping before it is announced
(`shoal_p2p.peers.port_mapping`). The request is the process's last argument, the reply one line
(`shoal_p2p.peers.upnp_client`). A lease of 0 seconds removes the mapping. It does not import Trio.
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
"""Address space of this process; 18 MiB are in use before the first request."""
ANSWER_S: Final = 19
"""Seconds for the whole request, less than the node waits (`port_mapping`)."""
_DISCOVER_MS = 2000
"""Longest wait for a router's answer, by the UPnP Device Architecture (MX)."""
_ROUTERS = ("239.255.255.250", 1900)
"""Multicast address of routers (UPnP Device Architecture 2.0, section 1.3)."""
_OTHER_PORTS = (20_000, 60_000)
_MAX_TRIES = 4
"""Other ports that are tried if the first is taken."""
_TAKEN = "conflict"
_FOR_EVER_ONLY = "permanent"


class RouterError(Exception):
    """No router forwards a port here; one line that says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forwarded:
    """A port of the router that leads to this machine."""

    host: str
    """The router's external address, as it reports it."""
    port: int
    """The router's external port."""
    lease_s: float
    """Seconds until the router removes it; infinite if the router has no leases."""


def forward(port: int, outside: int, lease_s: float) -> Forwarded:
    """Forward the router's port `outside`, or another if that is taken, to `port` here.

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
    """Remove a mapping. Raises RouterError."""
    found = _find()
    _ask(lambda: found.deleteportmapping(outside, "TCP"))


def _find() -> Any:
    """Return miniupnpc's object for the first router that answers. Raises RouterError."""
    try:
        # Imported here: it belongs to the extra `reach`.
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
    mapping = _ask(lambda: found.getspecificportmapping(outside, "TCP"))
    if mapping is not None and (str(mapping[0]), int(mapping[1])) != (str(found.lanaddr), port):
        raise RouterError(
            f"{_TAKEN}: port {outside} leads to {mapping[0]}"
        )  # never take another host's

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
    """Send an empty datagram to check that sending works. Raises RouterError.

    Without a route, or behind a firewall, miniupnpc would wait for replies that cannot arrive.
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
        # The library raises bare `Exception` with the router's message.
        reply = " ".join(str(error).split())[:LINE_CHARS]
        raise RouterError(reply or repr(error)) from None


def answer(*, port: int, outside: int, lease_s: float) -> dict[str, Any]:
    """Carry out one request. Raises RouterError."""
    if lease_s:
        return asdict(forward(port, outside, lease_s))
    forget(port, outside)
    return {}


def main() -> int:
    """Carry out the request in the last argument."""
    with contextlib.suppress(ValueError):  # a system without this limit (macOS)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    # Nothing else interrupts miniupnpc, which waits in C. By default the alarm ends the process.
    signal.alarm(ANSWER_S)
    try:
        reply = answer(**json.loads(sys.argv[-1]))
    except RouterError as error:
        reply = {"error": str(error)}
    say_json(reply)
    return 0


if __name__ == "__main__":
    sys.exit(main())
