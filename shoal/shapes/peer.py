"""Answers of every peer's views: who it is, whom it knows, how it is reached."""

from __future__ import annotations

from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from p2p.ipc.doctor import Facts
from p2p.ipc.finding import Finding, State
from p2p.ipc.ways_in import Way


class Versioned(TypedDict):
    """An answer with the version of its keys: of the same version none goes, some may come."""

    schema_version: Literal[1]


class Swarm(TypedDict):
    """A swarm by its manifest."""

    name: str
    digest: str


class Identity(Versioned):
    """Who a peer is."""

    peer_id: str
    addresses: list[str]
    swarm: Swarm


class Disk(TypedDict):
    """The data directory's disk."""

    full: bool
    free_bytes: int


class Verdicts(TypedDict):
    """How many messages were judged how."""

    accept: int
    ignore: dict[str, int]
    reject: dict[str, int]


class Relay(TypedDict):
    """A peer that relays."""

    reservations: int
    circuits: int
    bytes: int
    refused: dict[str, int]


class Worker(TypedDict):
    """The task worker's process."""

    running: bool
    pid: int | None


class PeerStatus(Identity):
    """What `status` has of any peer."""

    uptime_s: float
    peers: int
    mesh: dict[str, int]
    solo: bool
    disk: Disk
    verdicts: Verdicts
    relays: list[str]
    relay: Relay | None
    worker: Worker
    cost: Free
    role: NotRequired[str]
    groups_relayed: NotRequired[int]
    records: NotRequired[int]
    judged: NotRequired[int]
    open_challenges: NotRequired[int]
    refused: NotRequired[dict[str, int]]


class Id(Identity):
    """The view `id`."""

    public_key: str


class Connection(TypedDict):
    """One connection."""

    peer_id: str
    address: str
    direction: str
    relayed: bool
    latency_ms: float | None
    agent: str
    topics: list[str]
    score: float
    verdicts: dict[str, int]
    connected_s: float
    bytes_in: int
    bytes_out: int


class Target(TypedDict):
    """A peer that discovery knows."""

    peer_id: str
    address: str
    kind: str
    state: str
    attempts: int
    next_try_s: float | None
    last_error: str


class Peers(Versioned):
    """The view `peers`."""

    peers: list[Connection]
    targets: list[Target]


class Score(TypedDict):
    """What is held of one peer."""

    peer_id: str
    score: float
    merit: float
    points: dict[str, float]
    sampling_weight: float
    reports: float
    banned_s: float | None
    bans: int
    blocked: bool
    protected: bool
    connected: bool


class Scores(Versioned):
    """The view `scores`."""

    scores: list[Score]
    refused: dict[str, int]
    made_room: int


class Order(Versioned):
    """An order about a peer, and what is held of it after."""

    action: Literal["block", "unblock", "protect", "unprotect"]
    peer: Score


class MeshMember(TypedDict):
    """A member of a topic's mesh."""

    peer_id: str
    since_s: float


class Members(TypedDict):
    """Who is in a topic's mesh, and who is subscribed."""

    mesh: list[MeshMember]
    peers: list[str]


class Mesh(Versioned):
    """The view `mesh`."""

    topics: dict[str, Members]


class Topic(TypedDict):
    """A topic that is listened to, or published on."""

    topic: str
    shard: int
    subscribed: bool
    publishes: bool
    peers: int
    mesh: int
    groups_per_s: float


class Topics(Versioned):
    """The view `topics`."""

    shards: int
    subscribed: list[int]
    topics: list[Topic]


class Doctor(Versioned):
    """The view `doctor`."""

    peer_id: str
    state: State
    findings: list[Finding]
    facts: Facts


class KeyFile(TypedDict):
    """Where a private swarm's key is."""

    file: str
    problem: str


class Addresses(Versioned):
    """The view `addresses`."""

    peer_id: str
    swarm: Swarm
    addresses: list[Way]
    swarm_key: KeyFile | None
    allowed_peers: int


class Ping(Versioned):
    """The command `ping`."""

    peer: str
    peer_id: str | None
    sent: int
    answered: int
    loss: float
    min_ms: float | None
    median_ms: float | None
    max_ms: float | None
    times_ms: list[float]
    last_error: str


class Part(TypedDict):
    """One file of a bug report."""

    name: str
    bytes: int


class BugReport(Versioned):
    """Where a bug report is, and what is in it."""

    file: str
    contents: list[Part]


Free = dict[str, Any]
"""Figures whose keys docs/metrics.md has: they come and go with the metrics."""
