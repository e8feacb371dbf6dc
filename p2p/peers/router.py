"""The router of this network, asked to forward a port. Blocks; called in a thread.

    NAT-PMP (a datagram to the gateway) ─▶ UPnP (a call to all, then HTTP) ─▶ none forwards

Who has forwarded is asked first the next time, and told to forget at the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


class RouterError(Exception):
    """No router forwards a port here; one line that says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forwarded:
    """A port of the router that leads to this machine."""

    host: str
    """The router's address outside, as it says itself."""
    port: int
    lease_s: float
    """Seconds until it is forgotten; infinite where the router knows no other."""


class Router(Protocol):
    """The router of this network."""

    def forward(self, port: int, lease_s: float) -> Forwarded:
        """Forward a port to this machine's `port`, or go on doing so. Blocks.

        Raises:
            RouterError: it does not, or there is none.
        """

    def forget(self) -> None:
        """Take back what was forwarded, if anything was. Blocks. Raises RouterError."""


class AnyRouter:
    """The first of several ways to ask that a router takes."""

    def __init__(self, ways: Mapping[str, Router]) -> None:
        """`ways` by name, the cheapest first."""
        self._ways = dict(ways)
        self._taken = ""

    def forward(self, port: int, lease_s: float) -> Forwarded:
        """Forward a port by the way taken before, or by another. Blocks. Raises RouterError."""
        errors = []
        for name in sorted(self._ways, key=lambda name: name != self._taken):
            try:
                found = self._ways[name].forward(port, lease_s)
            except RouterError as error:
                errors.append(f"{name}: {error}")
            else:
                self._taken = name
                return found
        self._taken = ""
        raise RouterError("; ".join(errors))

    def forget(self) -> None:
        """Take back what was forwarded. Blocks. Raises RouterError."""
        if self._taken:
            self._ways[self._taken].forget()
