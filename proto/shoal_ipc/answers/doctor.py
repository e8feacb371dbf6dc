"""The doctor's answer: what is wrong with a peer's connection to the network, and the evidence."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

from shoal_ipc.answers.form import Name, Versioned
from shoal_ipc.answers.peer import JoinAddress, KeyFile, SwarmView

State = Literal["ok", "warn", "bad"]
GRAVITY: Final[tuple[State, ...]] = ("ok", "warn", "bad")
"""The states of a finding, the most severe last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of one check."""

    check: str = ""
    state: State = "warn"
    message: str = ""
    remedy: str = ""
    """The remedy; empty if there is nothing to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BootstrapSeen:
    """One bootstrap address of the settings."""

    address: Name = ""
    latency_ms: float | None = None
    """One round trip; None if it is not connected or did not answer."""
    error: str = ""
    remedy: str = ""
    """The remedy; empty if none is certain."""
    full_backoff_s: float | None = None
    """Seconds until this node dials it again, after it disconnected for lack of a slot; else None.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class FullSeen:
    """This peer recently had more newcomers than free slots."""

    slots: int = 0
    disconnected: int = 0
    """Peers disconnected to free a slot, since the start."""
    refused: int = 0
    """Newcomers refused for lack of a slot, since the start."""
    ago_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OutsideSeen:
    """The report of one peer on this node's reachability."""

    peer_id: Name = ""
    observed: str = ""
    """The address from which it sees this node connect."""
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
    """Port mapping, hole punching and relays, and how well they work."""

    mapping: MappingSeen | None = None
    """None if no router was asked."""
    direct_attempts: int = 0
    """Peers met through a relay to which this node tried a direct connection."""
    direct_successes: int = 0
    """Peers among these that are now connected directly."""
    relayed: int = 0
    """Open connections through a relay."""
    is_symmetric_nat: bool = False
    """True if the router uses another port for each destination (symmetric NAT)."""
    announced: tuple[str, ...] = ()
    """Addresses announced to peers in place of the machine's own: the setting `announce`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Everything that the doctor checks in addition to the status."""

    listen_addresses: tuple[str, ...] = ()
    """Transport addresses, interfaces spelled out."""
    bootstraps: tuple[BootstrapSeen, ...] = ()
    reachability: tuple[OutsideSeen, ...] = ()
    subscribers: dict[str, int] = field(default_factory=dict)
    """Topic to the peers that are subscribed to it."""
    mesh_low: int = 0
    """Mesh size below which gossip grafts."""
    clock_limit_ms: int = 0
    """Most milliseconds by which a batch may be dated ahead; other nodes refuse it beyond that."""
    uses_external_groups: bool = False
    """True if the trainer is to train on groups of other nodes."""
    trainer_error: str = ""
    """The last output of the latest trainer that failed; empty if none has."""
    files_open: int = 0
    files_limit: int = 0
    has_network: bool = True
    """True if the machine has an address other than loopback."""
    reach: ReachSeen = field(default_factory=ReachSeen)
    full: FullSeen | None = None
    """None if every newcomer recently found a free slot."""
    key: KeyFile | None = None
    """None in a public swarm."""
    addresses: tuple[JoinAddress, ...] = ()
    """Addresses at which other nodes can join this peer's swarm, the likeliest first."""
    allowed_peers: int = 0
    """Number of peers on the swarm's allow list; 0 admits every peer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Doctor(Versioned):
    """Findings about this node's connection to the network, and what to do."""

    peer_id: Name = ""
    swarm: SwarmView = field(default_factory=SwarmView)
    state: State = "ok"
    """The worst state of all findings."""
    findings: tuple[Finding, ...] = ()
    facts: Facts = field(default_factory=Facts)
