"""What discovery is told, what it asks of the host, and what it shows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from p2p.net.address import PeerAddress, parse_peer_address
from shoal_wire.peers import PeerAddresses
from shoal_wire.types import PeerId

FetchPeers = Callable[[PeerId], Awaitable[list[PeerAddresses]]]
"""Ask a connected peer whom it knows. May raise; must respect cancellation."""


class TargetKind(StrEnum):
    """How we came to know a peer; the first is kept longest."""

    BOOTSTRAP = "bootstrap"
    SAVED = "saved"
    MDNS = "mdns"
    DHT = "dht"
    EXCHANGE = "exchange"
    INBOUND = "inbound"


HEARSAY = frozenset(TargetKind) - {TargetKind.BOOTSTRAP, TargetKind.SAVED}
"""Kinds that are forgotten after some failures: somebody will name them again."""


class TargetState(StrEnum):
    """What is being done about a peer."""

    IDLE = "idle"
    DIALING = "dialing"
    CONNECTED = "connected"


class Dialer(Protocol):
    """What discovery needs of the host."""

    @property
    def peer_id(self) -> PeerId: ...
    async def dial(
        self,
        address: str,
        *,
        timeout: float = 10.0,  # noqa: ASYNC109 - the host's signature
    ) -> PeerId: ...
    def connected_peers(self) -> frozenset[PeerId]: ...
    def peer_addresses(self, peer_id: PeerId) -> tuple[str, ...]: ...
    def add_peer_callbacks(
        self,
        *,
        connected: Callable[[PeerId], None] | None = None,
        disconnected: Callable[[PeerId], None] | None = None,
    ) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoverySettings:
    """When and how often to dial."""

    target_peers: int = 8
    """Peers to stay connected to; bootstraps come on top."""
    backoff_first_s: float = 0.5
    backoff_max_s: float = 30.0
    bootstrap_backoff_max_s: float = 8.0
    dial_timeout_s: float = 8.0
    next_address_s: float = 0.5
    """A peer's next address is tried beside the last after this long."""
    max_dials: int = 8
    max_targets: int = 512
    give_up_after: int = 8
    """Failed dials after which a peer that is only hearsay is forgotten."""
    exchange_interval_s: float = 15.0
    exchange_timeout_s: float = 5.0
    save_interval_s: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetInfo:
    """One peer that discovery knows of, for the debug CLI."""

    peer_id: PeerId
    address: str
    """The address tried first."""
    kind: TargetKind
    state: TargetState
    attempts: int
    """Failed dials since it was last connected."""
    next_try_s: float | None
    """Seconds until the next dial; None if none is due."""
    last_error: str


def parse_bootstrap(addresses: tuple[str, ...]) -> tuple[PeerAddress, ...]:
    """Parse the bootstrap addresses of the settings. Raises ValueError, one line."""
    return tuple(parse_peer_address(address) for address in addresses)
