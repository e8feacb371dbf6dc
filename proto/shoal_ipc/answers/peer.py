"""Answers of every peer: its identity, its peers, its addresses, and what it refused."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from shoal_ipc.answers.form import Name, Versioned, labelled, measured


@dataclass(frozen=True, slots=True, kw_only=True)
class SwarmView:
    """A swarm by its manifest."""

    name: Name = ""
    digest: Name = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskView:
    """The data directory's disk."""

    full: bool = False
    """True if the last write failed for lack of space."""
    free_bytes: int | None = measured("shoal_disk_free_bytes", "Free bytes on that disk.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdicts:
    """Verdicts on messages of other nodes, counted since the start."""

    accept: int | None = measured(
        "shoal_accepted_messages_total", "Messages of other nodes that were accepted."
    )
    ignore: dict[str, int] = field(default_factory=dict)
    reject: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Relay:
    """The traffic that a relay carries for other peers."""

    reservations: int = 0
    """Peers that have a reservation here."""
    circuits: int = 0
    bytes: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    """Refused requests, by cause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerView:
    """The task worker's process."""

    running: bool = False
    pid: int | None = None
    sandbox: str = ""
    """The sandbox layers in force, and those that this machine does not allow."""
    is_sandboxed: bool = False
    """True if the operating system denies its code the user's files and the network."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """The resources that one process uses."""

    cpu: float | None = measured(
        "shoal_process_cpu_ratio", "CPU seconds per second over the last minute: 1 is one core."
    )
    rss_bytes: int | None = measured(
        "shoal_process_resident_memory_bytes", "Resident memory of the process."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CostView:
    """The machine's resources that a peer uses."""

    window_s: float | None = None
    """The time over which rates were measured: a minute, or since the previous request."""
    bytes_in: int | None = measured(
        "shoal_network_receive_bytes_total", "Bytes over its sockets since the start."
    )
    bytes_out: int | None = measured(
        "shoal_network_transmit_bytes_total", "Bytes over its sockets since the start."
    )
    bytes_in_s: float | None = None
    bytes_out_s: float | None = None
    disk_bytes: int | None = measured("shoal_data_dir_bytes", "Bytes in its data directory.")
    processes: dict[str, Process | None] = labelled("process", default_factory=dict)
    """``node``, ``worker`` and ``trainer``; None if it is not running."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """One connection."""

    peer_id: Name = ""
    address: Name = ""
    direction: str = ""
    relayed: bool = False
    latency_ms: float | None = None
    agent: Name = ""
    topics: tuple[str, ...] = ()
    score: float = 0.0
    """0 is neutral, below 0 is bad."""
    verdicts: dict[str, int] = field(default_factory=dict)
    """Verdicts on messages that it signed, by reason."""
    connected_s: float = 0.0
    bytes_in: int | None = None
    bytes_out: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A peer known to discovery."""

    address: Name = ""
    kind: str = ""
    """The source of the address: a bootstrap, a saved peer, the local network, or a peer's list."""
    state: str = ""
    attempts: int = 0
    next_try_s: float | None = None
    last_error: str = ""
    peer_id: Name = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peers(Versioned):
    """Connections, and the peers that discovery is dialling."""

    peers: tuple[Connection, ...] = ()
    targets: tuple[Target, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """The reputation of one peer with this node."""

    peer_id: Name = ""
    score: float = 0.0
    """The sum of its points: at most 0."""
    merit: float = 0.0
    """0 to 5: ranks peers, and offsets no points."""
    points: dict[str, float] = field(default_factory=dict)
    """Counted by cause."""
    sampling_weight: float | None = None
    """0.01 to 1: the factor on the probability that its groups are sampled."""
    reports: float = 0.0
    """Verified groups behind that weight."""
    banned_s: float | None = None
    bans: int = 0
    blocked: bool = False
    protected: bool = False
    connected: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores(Versioned):
    """The reputation of every peer with this node, the worst first."""

    scores: tuple[Score, ...] = ()
    refused: dict[str, int] = field(default_factory=dict)
    """Inbound connections refused before any protocol of shoal, by reason: `key_missing` (here),
    `key_unexpected` (the other peer has none), `key_differs`, `not_listed`, and limits."""
    evicted: int = 0
    """Peers disconnected in favour of a newcomer when all slots were taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedCount:
    """Number of refusals for one reason."""

    reason: Name = ""
    kind: str = ""
    count: int = measured(
        "shoal_refused_messages_total",
        "Messages of other nodes that were refused, by reason.",
        default=0,
    )
    message: str = ""
    """The reason in words."""
    remedy: str = ""
    """The remedy, for the node's owner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A refusal, and how often it was repeated."""

    at_ms: int = 0
    reason: Name = ""
    kind: str = ""
    """``reject`` counts against the sender, ``ignore`` does not."""
    signer: Name = ""
    """The claimed signer; the claim may be false."""
    forwarder: Name = ""
    family: Name = ""
    count: int = 1
    message: str = ""
    remedy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusals(Versioned):
    """Messages of other peers that were refused, why, and what to do."""

    at_ms: int = 0
    counts: tuple[RefusedCount, ...] = labelled("reason", "reason")
    recent: tuple[Refused, ...] = ()
    """The newest first."""


Whose = Literal["self", "bootstrap", "relay"]
Scope = Literal["public", "private", "loopback"]
"""The range of an address: every peer, its private network, or this machine can dial it."""
Tried = Literal["reached", "untried", "failed"]
"""The result of dialling an address, the best first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinAddress:
    """One address by which to join the swarm."""

    address: Name = ""
    """A multiaddress that ends in /p2p/ID."""
    via: Whose = "self"
    """The peer at this address: `self`, a `bootstrap` that answers, or a `relay` of this one."""
    scope: Scope = "private"
    """`public`, `private` (the same network only) or `loopback`."""
    dial_result: Tried = "untried"
    """`reached`, `untried` or `failed`."""
    relayed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyFile:
    """The key of a private swarm."""

    file: str = ""
    problem: str = ""
    """Why the file could not be read again; empty if it holds the key in use."""
