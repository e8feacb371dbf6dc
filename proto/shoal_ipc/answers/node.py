"""Answers of nodes: the peer at a glance, its buffer, its fetching, the latest rollouts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

from shoal_ipc.answers.form import Lines, Name, Versioned, absent, measured
from shoal_ipc.answers.learning import Learning
from shoal_ipc.answers.peer import CostView, DiskView, Relay, SwarmView, Verdicts, WorkerView

WINDOW: Final = 20
"""Rounds in a mean of own rewards, and scores in a mean of a judge's; a guess."""
MAX_ROLLOUTS: Final = 200
"""Groups in one answer: with their texts some megabytes, which a frame holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxView:
    """Own batches on their way to others."""

    unsent: int = 0
    """Batches that wait for a peer to send them to."""
    batches_sent: int = 0
    batches_announced: int = 0
    """Sent batches that were too big to gossip whole."""
    batches_expired: int = 0
    """Batches that were too old before a peer could take them."""
    batches_postponed: int = 0
    """Times that the trainer was told to wait, since it makes more than peers take of one node, or
    the swarm is behind."""
    delivery_lag_s: float = measured(
        "shoal_gossip_delivery_lag_seconds",
        "How late batches arrive, while this node shares less because of it; else 0.",
        default=0.0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferTotals:
    """The replay buffer in numbers."""

    groups: int = measured("shoal_buffer_groups", "Groups of others in the buffer.", default=0)
    bytes: int = 0
    capacity_groups: int = 0
    capacity_bytes: int = 0
    evicted: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    """Counted by cause."""
    local_groups: int = 0
    local_bytes: int = 0
    leased: int = 0
    consumed_total: int = 0
    stored_total: int = 0
    sampled_total: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The trainer's progress in its phase."""

    round: int | None = None
    done: int = 0
    total: int = 0
    """Answers done and wanted; 0 of 0 where none are counted."""
    elapsed_s: float | None = None
    """Time in this phase so far."""
    remaining_s: float | None = None
    """Estimated time to its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerView:
    """The trainer as the node sees it, and what it reports of itself."""

    state: str = ""
    """`disabled` (`--no-trainer`), `starting`, `loading`, `training`, `waiting` (it ended and is to
    be restarted), `broken` (it ended too often) or `diverged` (its numbers stay not finite), both
    with the next try minutes away, `misconfigured`, `paused` (a full disk), `finished` or
    `stopped`."""
    pid: int | None = None
    round: int = 0
    reward_local: float | None = measured(
        "shoal_local_reward_mean", "Mean own reward of the latest 20 rounds."
    )
    reward_initial: float | None = measured(
        "shoal_local_reward_initial", "Mean own reward of the first 20 rounds."
    )
    restarts: int = 0
    connected: bool = False
    model: Name | None = None
    policy_version: int | None = None
    groups_local_used: int | None = None
    groups_external_used: int | None = None
    external_sampled: int | None = None
    groups_not_shared: int | None = None
    tokens_generated: int | None = measured(
        "shoal_generated_tokens_total", "Tokens this node generated."
    )
    held_out: dict[str, float] | None = measured(
        "shoal_held_out_pass_ratio",
        "Share of held-out questions that passed, in the latest evaluation.",
        key="pass@1",
    )
    learning: Learning | None = None
    paused: str | None = None
    """Why no round is played for now."""
    phase: str | None = None
    """`loading`, `trying prompts`, `evaluating`, `generating`, `scoring`, `sampling`, `updating`,
    `saving` or `waiting`; None between them."""
    progress: Progress | None = None
    last_exit: int | None = None
    """Exit code of the latest trainer that failed; below 0 the signal."""
    last_error: str | None = None
    """The line that names the cause."""
    next_start_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedView:
    """The answers of the judge that this node asks."""

    address: str = ""
    state: str = ""
    judged: int = 0
    """Answers that it has scored."""
    score: float | None = None
    """The latest score."""
    mean_score: float | None = measured(
        "shoal_judge_score", "Mean of the judge's latest 20 scores."
    )
    round: int | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Status(Versioned):
    """The node at a glance."""

    peer_id: Name = ""
    public_key: str = ""
    """Ed25519, in hex."""
    addresses: tuple[Name, ...] = ()
    swarm: SwarmView = field(default_factory=SwarmView)
    uptime_s: float | None = measured("shoal_uptime_seconds", "Time since the start.")
    peers: int = measured("shoal_peers", "Connected peers.", default=0)
    mesh: dict[str, int] = field(default_factory=dict)
    """Topic to the size of its mesh."""
    is_isolated: bool = False
    """Nobody is connected."""
    disk: DiskView = field(default_factory=DiskView)
    verdicts: Verdicts = field(default_factory=Verdicts)
    relays: tuple[str, ...] = ()
    """Peers that relay connections to this one."""
    relay: Relay | None = None
    worker: WorkerView = field(default_factory=WorkerView)
    cost: CostView = field(default_factory=CostView)
    role: Literal["bootstrap", "judge"] | None = absent()
    groups_relayed: int | None = absent()
    """Groups that a bootstrap passed on."""
    records: int | None = absent()
    """Records of a judge, over all its starts."""
    judged: int | None = absent()
    """Answers that a judge has scored since this start."""
    open_challenges: int | None = absent()
    """Questions of a judge that wait for an answer."""
    refused: dict[str, int] | None = absent()
    """Requests that a judge refused, by reason."""
    round: int | None = absent(metric="shoal_rounds_total", help="Rounds completed.")
    groups_published: int | None = absent(
        metric="shoal_published_groups_total", help="Own groups on disk to be shared."
    )
    groups_received: int | None = absent(
        metric="shoal_received_groups_total", help="Valid groups of others."
    )
    groups_external_used: int | None = absent(
        metric="shoal_external_trained_groups_total", help="Groups of others trained on."
    )
    outbox: OutboxView | None = absent()
    buffer: BufferTotals | None = absent()
    duplicate_identity: bool | None = absent()
    """Another node signs with this one's key, or its database was lost."""
    dominant_network: str | None = absent()
    """One network gives more of what is learnt than it should: a sentence; empty if none does."""
    intake_waiting: int | None = absent()
    """Validated batches not yet in the buffer."""
    trainer: TrainerView | None = absent()
    judge: JudgedView | None = absent()


@dataclass(frozen=True, slots=True, kw_only=True)
class PublisherRow:
    """The groups of one publisher: those in the buffer, and all that came since the start."""

    peer_id: Name = ""
    is_local: bool = False
    groups: int = 0
    bytes: int = 0
    oldest_s: float | None = None
    newest_s: float | None = None
    received: int = 0
    """Groups that came; for the node itself, groups that it published."""
    sampled: int = 0
    """Leases of its groups to the trainer."""
    reward_spread: float | None = None
    """Mean spread of its verified groups' rewards, best less worst; None before any."""
    weight: float | None = None
    """Factor on its groups' chance of being drawn."""
    connected: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffer(BufferTotals, Versioned):
    """The replay buffer by publisher: groups received, waiting and drawn."""

    publishers: tuple[PublisherRow, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetch(Versioned):
    """Batches by the way they came, gaps, and what was given to others."""

    batches: dict[str, int] = field(default_factory=dict)
    """Counted by the way they came: gossip, backfill, gap or pull."""
    groups: dict[str, int] = field(default_factory=dict)
    bytes_in: dict[str, int] = field(default_factory=dict)
    gaps_open: int = 0
    """Missing sequence numbers that are being asked for."""
    gaps_seen: int = 0
    gaps_filled: int = 0
    """Fetched from a peer."""
    gaps_abandoned: int = 0
    announced: int = 0
    """Batches too big to gossip whole that were taken up."""
    announced_abandoned: int = 0
    announced_waiting: int = 0
    announced_running: int = 0
    backfill_rounds: int = 0
    """Rounds of asking peers for recent batches."""
    requests: int = 0
    """All requests to peers."""
    failures: dict[str, int] = field(default_factory=dict)
    """Failed requests, by cause."""
    servable_batches: int = 0
    """Batches that others can have."""
    served: dict[str, int] = field(default_factory=dict)
    """Answers to peers, by kind."""
    refused: dict[str, int] = field(default_factory=dict)
    """Refused requests of peers, by cause."""
    bytes_out: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRow:
    """One message of a game."""

    role: str = ""
    """policy or environment."""
    text: Lines = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionRow:
    """One answer."""

    text: Lines | None = absent()
    """Left out where it was not asked for."""
    tokens: int = 0
    finish_reason: str = ""
    reward: float | None = None
    turns: tuple[TurnRow, ...] | None = absent()
    """The text as a dialogue, where the family is an environment. Its side was replayed by this
    node; it is missing where that was not possible in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """One group: a question and its answers."""

    number: int = 0
    group_id: Name = ""
    publisher: Name = ""
    is_local: bool = False
    round: int = 0
    received_ms: int | None = None
    age_s: float = 0.0
    model: Name = ""
    policy_version: int = 0
    family: Name = ""
    seed: int = 0
    index: int = 0
    question: Lines | None = None
    expected: Lines | None = absent()
    """The right answer by this node's own task worker, of a group that was asked for alone."""
    reward: float | None = None
    """Mean, by this node's own verifier; None until a trainer has scored it."""
    used: bool | None = None
    """The trainer learnt from it; None until it has said."""
    skip_reason: str = ""
    """Why the trainer did not learn from it."""
    completions: tuple[CompletionRow, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutsView(Versioned):
    """The latest rollouts: question, completions, verified reward."""

    rollouts: tuple[Rollout, ...] = ()
