"""The doctor's answer: what is wrong with a peer's place in the network, and what says so."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

from shoal_ipc.answers.form import Name, Versioned
from shoal_ipc.answers.peer import JoinAddress, KeyFile, SwarmView

State = Literal["ok", "warn", "bad"]
GRAVITY: Final[tuple[State, ...]] = ("ok", "warn", "bad")
"""The states of a finding, the gravest last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at."""

    check: str = ""
    state: State = "warn"
    message: str = ""
    remedy: str = ""
    """The advice; empty where nothing is to be done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BootstrapSeen:
    """One bootstrap address of the settings."""

    address: Name = ""
    latency_ms: float | None = None
    """One round trip; None if it is not connected or did not answer."""
    error: str = ""
    remedy: str = ""
    """The remedy; empty where none is known for certain."""
    full_backoff_s: float | None = None
    """It was full and let this node go, which leaves it alone for so long; None if not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FullSeen:
    """This peer had no slot for all who came, lately."""

    slots: int = 0
    disconnected: int = 0
    """Peers that made room, since the start."""
    refused: int = 0
    """Newcomers that found no slot, since the start."""
    ago_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OutsideSeen:
    """The word of one peer on this node."""

    peer_id: Name = ""
    observed: str = ""
    """The address at which it sees this node."""
    dialled: bool = False
    reached: bool = False
    """It opened a connection to one of our ports. This means something only if it dialled."""
    clock_ahead_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MappingSeen:
    """The outcome of asking the router to forward a port."""

    state: str = ""
    """A `shoal_p2p.peers.port_mapping.Mapping`."""
    address: str = ""
    """Transport address that the router says leads here; empty for none."""
    error: str = ""
    """Why it forwards none; empty if it does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReachSeen:
    """The means by which routers are crossed, and their success."""

    mapping: MappingSeen | None = None
    """None where no router was asked."""
    direct_attempts: int = 0
    """Peers met through a relay to which a direct connection was tried."""
    direct_successes: int = 0
    """Peers among the tried that are reached directly since."""
    relayed: int = 0
    """Connections through a relay, now."""
    is_symmetric_nat: bool = False
    """The router uses another port for each destination (symmetric)."""
    announced: tuple[str, ...] = ()
    """Addresses that the user has told to others in place of the machine's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Everything that the doctor looks at beside the status."""

    listen_addresses: tuple[str, ...] = ()
    """Transport addresses, interfaces spelled out."""
    bootstraps: tuple[BootstrapSeen, ...] = ()
    reachability: tuple[OutsideSeen, ...] = ()
    subscribers: dict[str, int] = field(default_factory=dict)
    """Topic to the peers that are subscribed to it."""
    mesh_low: int = 0
    """Mesh size below which gossip grafts."""
    clock_limit_ms: int = 0
    """Most a batch may come from the future before others refuse it."""
    uses_external_groups: bool = False
    """The trainer is to train on groups of others."""
    trainer_error: str = ""
    """The last words of the latest trainer that failed; empty where none has."""
    files_open: int = 0
    files_limit: int = 0
    has_network: bool = True
    """The machine has an address beside loopback's."""
    reach: ReachSeen = field(default_factory=ReachSeen)
    full: FullSeen | None = None
    """None where there has been room for everybody lately."""
    key: KeyFile | None = None
    """None in a public swarm."""
    addresses: tuple[JoinAddress, ...] = ()
    """Addresses at which others find this peer and its swarm, the likeliest first."""
    allowed_peers: int = 0
    """Number of peers on the swarm's list; 0 is everybody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Doctor(Versioned):
    """Findings about this node's place in the network."""

    peer_id: Name = ""
    swarm: SwarmView = field(default_factory=SwarmView)
    state: State = "ok"
    """The worst state of all findings."""
    findings: tuple[Finding, ...] = ()
    facts: Facts = field(default_factory=Facts)
