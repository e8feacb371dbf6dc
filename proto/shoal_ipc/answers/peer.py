"""Answers that every peer has: who it is, whom it knows, how it is reached, what it refused."""

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
    """A write was refused for lack of room, and it is not known that there is some again."""
    free_bytes: int | None = measured("shoal_disk_free_bytes", "Free bytes on its disk.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdicts:
    """Judgements on messages of others, counted since the start."""

    accept: int | None = measured(
        "shoal_accepted_messages_total", "Messages of others that were taken."
    )
    ignore: dict[str, int] = field(default_factory=dict)
    reject: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Relay:
    """The traffic that a relay carries for others."""

    reservations: int = 0
    """Peers that this one holds a place for."""
    circuits: int = 0
    bytes: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    """Requests by the cause of their refusal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerView:
    """The task worker's process."""

    running: bool = False
    pid: int | None = None
    sandbox: str = ""
    """The layers that keep it in, and those that this machine does not allow."""
    is_sandboxed: bool = False
    """True if the operating system keeps its code from the user's files and the network."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """The resources that one process uses."""

    cpu: float | None = measured(
        "shoal_process_cpu_ratio", "Processor time a second, over the last minute: 1 is one core."
    )
    rss_bytes: int | None = measured(
        "shoal_process_resident_memory_bytes", "Memory that the process has in use."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CostView:
    """The resources of the machine that a peer uses."""

    window_s: float | None = None
    """The time over which rates were measured: a minute, or since it was asked before."""
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
    """``node``, ``worker`` and ``trainer``; None where there is none."""


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
    """0 is neutral, below is bad."""
    verdicts: dict[str, int] = field(default_factory=dict)
    """Verdicts on what it signed, by reason."""
    connected_s: float = 0.0
    bytes_in: int | None = None
    bytes_out: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A peer that discovery knows."""

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
    """Connections, and the peers that discovery is trying."""

    peers: tuple[Connection, ...] = ()
    targets: tuple[Target, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """The standing of one peer with this node."""

    peer_id: Name = ""
    score: float = 0.0
    """The sum of its points: at most 0."""
    merit: float = 0.0
    """0 to 5: orders peers, pays for nothing."""
    points: dict[str, float] = field(default_factory=dict)
    """Counted by cause."""
    sampling_weight: float | None = None
    """0.01 to 1: the factor on its groups' chance of being drawn."""
    reports: float = 0.0
    """Verified groups behind that weight."""
    banned_s: float | None = None
    bans: int = 0
    blocked: bool = False
    protected: bool = False
    connected: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores(Versioned):
    """The standing of every peer with this node, the worst first."""

    scores: tuple[Score, ...] = ()
    refused: dict[str, int] = field(default_factory=dict)
    """Inbound connections refused before any protocol of ours, by reason: `key_missing` (here),
    `key_superfluous` (the other has none), `key_differs`, `not_listed`, and limits."""
    evicted: int = 0
    """Peers dropped for a newcomer when slots were full."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedCount:
    """Number of refusals for one reason."""

    reason: Name = ""
    kind: str = ""
    count: int = measured(
        "shoal_refused_messages_total",
        "Messages of others that were refused, by reason.",
        default=0,
    )
    message: str = ""
    """The finding in words."""
    remedy: str = ""
    """Advice to the node's owner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A refusal, and how often it was the same."""

    at_ms: int = 0
    reason: Name = ""
    kind: str = ""
    """``reject`` counts against who sent it, ``ignore`` does not."""
    signer: Name = ""
    """Perhaps only claimed."""
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
"""The reach of an address: everybody, its network behind a router, this machine."""
Tried = Literal["reached", "untried", "failed"]
"""The result of dialling an address, the best first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinAddress:
    """One address that leads into the swarm."""

    address: Name = ""
    """Address with its peer's id."""
    via: Whose = "self"
    """`self`, a `bootstrap` that answers, or a `relay` through which this one is reached."""
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
    """Why the file could not be used again; empty if it holds the key in use."""
