"""Input of the doctor's checks, and the type of a check. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from shoal_ipc.answers.doctor import Facts, Finding, State
from shoal_ipc.answers.node import Status

SETTLE_SECONDS: Final = 30.0
"""A node without a peer or a mesh counts as starting for this long, in seconds: dialling, the
replies and the grafts take about ten heartbeats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """Input of the checks: the node's status and further facts."""

    status: Status
    facts: Facts

    @property
    def settled(self) -> bool:
        """True if it had time to find peers."""
        return (self.status.uptime_s or 0.0) >= SETTLE_SECONDS


Check = Callable[[Seen], Iterator[Finding]]
"""Yields its findings; none where it does not apply to this peer."""


def found(check: str, message: str, state: State = "ok", remedy: str = "") -> Finding:
    """Return one finding."""
    return Finding(check=check, state=state, message=message, remedy=remedy)


def host_of(address: str) -> str:
    """Return the host of a transport address; empty if it has none."""
    parts = address.split("/")
    return parts[2] if len(parts) > 2 else ""
