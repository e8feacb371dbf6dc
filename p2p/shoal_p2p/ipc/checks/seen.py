"""Facts that the checks read, and the forms in which they answer. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from shoal_ipc.answers.doctor import Facts, Finding, State
from shoal_ipc.answers.node import Status

SETTLE_SECONDS: Final = 30.0
"""A node that has no peer or no mesh yet is only starting for so long: to dial, to be answered and
to be grafted takes some ten heartbeats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """Everything that a diagnosis is made of."""

    status: Status
    facts: Facts

    @property
    def settled(self) -> bool:
        """True if it had time to find peers."""
        return (self.status.uptime_s or 0.0) >= SETTLE_SECONDS


Check = Callable[[Seen], Iterator[Finding]]
"""Yields what it finds; nothing where it does not apply to this peer."""


def found(check: str, says: str, state: State = "ok", do: str = "") -> Finding:
    """Return one finding."""
    return Finding(check=check, state=state, message=says, remedy=do)


def host_of(address: str) -> str:
    """Return the host of a transport address; empty where it has none."""
    parts = address.split("/")
    return parts[2] if len(parts) > 2 else ""
