"""A router asked to forward a port, by UPnP. Blocks, and trusts who answers.

miniupnpc believes what the local network says: what comes of it is tried from outside before
anybody is told (`p2p.peers.port_mapping`), and it runs where it can do no harm
(`p2p.peers.upnp_process`).
"""

from __future__ import annotations

import random
import socket
from collections.abc import Callable
from typing import Any

from p2p.peers.router import Forwarded, RouterError

_DISCOVER_MS = 2000
_ROUTERS = ("239.255.255.250", 1900)
"""Where routers listen (UPnP Device Architecture 2.0, section 1.3)."""
_OTHER_PORTS = (20_000, 60_000)
_MAX_TRIES = 4
_TAKEN = "conflict"
_FOR_EVER_ONLY = "permanent"
_NAME = "shoal"


class UpnpRouter:
    """The first that answers; one that has answered is asked again."""

    def __init__(self, rng: random.Random | None = None) -> None:
        self._rng = rng or random.Random()
        self._found: Any = None
        self._port: int | None = None
        """Outside."""

    def forward(self, port: int, lease_s: float) -> Forwarded:
        """Forward a port, the same number if it is free there. Blocks. Raises RouterError."""
        try:
            return self._forward(self._router(), port, lease_s)
        except RouterError:
            self._found = None
            raise

    def forget(self) -> None:
        """Take back what was forwarded. Blocks. Raises RouterError."""
        found, port = self._found, self._port
        self._port = None
        if found is not None and port is not None:
            _ask(lambda: found.deleteportmapping(port, "TCP"))

    def _router(self) -> Any:
        if self._found is not None:
            return self._found
        try:
            # Late: 1 MiB, and only where there may be a router.
            import miniupnpc  # type: ignore[import-not-found]
        except ImportError:
            raise RouterError("the package miniupnpc is not installed") from None
        _try_to_ask()
        found = miniupnpc.UPnP()
        found.discoverdelay = _DISCOVER_MS
        _ask(found.discover)
        _ask(found.selectigd)
        self._found = found
        return found

    def _forward(self, found: Any, port: int, lease_s: float) -> Forwarded:
        others = (self._rng.randint(*_OTHER_PORTS) for _ in range(_MAX_TRIES))
        error: RouterError | None = None
        for outside in (self._port or port, *others):
            try:
                lasts_s = self._map(found, outside, port, lease_s)
            except RouterError as failure:
                error = failure
                if _TAKEN in str(failure).lower():
                    continue
                raise
            self._port = outside
            host = str(_ask(found.externalipaddress))
            return Forwarded(host=host, port=outside, lease_s=lasts_s)
        raise error or RouterError("no port is free")

    def _map(self, found: Any, outside: int, port: int, lease_s: float) -> float:
        held = _ask(lambda: found.getspecificportmapping(outside, "TCP"))
        if held is not None and (str(held[0]), int(held[1])) != (str(found.lanaddr), port):
            raise RouterError(f"{_TAKEN}: port {outside} leads to {held[0]}")  # never another's

        def ask(seconds: int) -> None:
            _ask(
                lambda: found.addportmapping(
                    outside, "TCP", found.lanaddr, port, _NAME, "", seconds
                )
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

    miniupnpc would write to the user's terminal, in C, that it cannot: without a route, past a
    firewall.
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
        raise RouterError(" ".join(str(error).split())[:200] or repr(error)) from None
