"""The router child's answer: a forwarded port, or why there is none.

It stands apart so that the child imports no Trio.
"""

from __future__ import annotations

from dataclasses import dataclass


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
    way: str
    """The protocol that the router took: NAT-PMP or UPnP."""
