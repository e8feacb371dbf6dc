"""Answers of nodes: the status, the replay buffer, fetching, the latest rollouts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

from shoal_ipc.answers.form import Lines, Name, Versioned, absent, measured
from shoal_ipc.answers.held_out import Evaluation
from shoal_ipc.answers.learning import Learning
from shoal_ipc.answers.peer import CostView, DiskView, Relay, SwarmView, Verdicts, WorkerView

WINDOW: Final = 20
"""Rounds in a mean of local rewards, and scores in a mean of a judge's; a guess."""
MAX_ROLLOUTS: Final = 200
"""Groups in one answer: with their texts, some megabytes, which fit one frame."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxView:
    """Own batches on their way to other nodes."""

    unsent: int = 0
    """Batches that wait for a connected peer."""
    batches_sent: int = 0
    batches_announced: int = 0
    """Sent batches that were too large to gossip whole."""
    batches_expired: int = 0
    """Batches that became too old before a peer could receive them."""
    batches_postponed: int = 0
    """Times that the trainer had to wait: it produces more than peers accept from one node, or
    delivery in the swarm lags."""
    delivery_lag_s: float = measured(
        "shoal_gossip_delivery_lag_seconds",
        "Delivery lag of batches while it makes this node publish less; otherwise 0.",
        default=0.0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferTotals:
    """The replay buffer in numbers."""

    groups: int = measured("shoal_buffer_groups", "External groups in the buffer.", default=0)
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
    """Completions finished and planned; both 0 in a phase that has none."""
    elapsed_s: float | None = None
    """Time spent in this phase."""
    remaining_s: float | None = None
    """Estimated time until its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerView:
    """The trainer as the node sees it, and what it reports of itself."""

    state: str = ""
    """`disabled` (`--role observe`), `starting`, `loading`, `training`, `waiting` (it ended and
    will be restarted), `broken` (it ended too often) or `diverged` (its loss stays non-finite),
    both retried after minutes, `misconfigured`, `paused` (a full disk), `finished` or `stopped`."""
    pid: int | None = None
    round: int = 0
    reward_local: float | None = measured(
        "shoal_local_reward_mean", "Mean local reward of the latest 20 rounds."
    )
    reward_initial: float | None = measured(
        "shoal_local_reward_initial", "Mean local reward of the first 20 rounds."
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
    held_out: Evaluation | None = measured(
        "shoal_held_out_pass_ratio",
        "Share of held-out questions that passed, in the latest evaluation.",
        key="pass_at_1",
    )
    held_out_initial: Evaluation | None = measured(
        "shoal_held_out_pass_ratio_initial",
        "Share of them that passed in the first evaluation.",
        key="pass_at_1",
    )
    learning: Learning | None = None
    paused: str | None = None
    """Why no round runs at the moment."""
    phase: str | None = None
    """`loading`, `trying prompts`, `evaluating`, `generating`, `scoring`, `sampling`, `updating`,
    `saving` or `waiting`; None between them."""
    progress: Progress | None = None
    last_exit: int | None = None
    """Exit code of the latest trainer that failed; below 0 the signal."""
    last_error: str | None = None
    """The line of its output that names the cause."""
    next_start_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedView:
    """The scores by the judge that this node asks."""

    address: str = ""
    state: str = ""
    judged: int = 0
    """Completions that it has scored."""
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
    """True if no peer is connected."""
    disk: DiskView = field(default_factory=DiskView)
    verdicts: Verdicts = field(default_factory=Verdicts)
    relays: tuple[str, ...] = ()
    """Peers through which others can connect to this one."""
    relay: Relay | None = None
    worker: WorkerView = field(default_factory=WorkerView)
    cost: CostView = field(default_factory=CostView)
    role: Literal["bootstrap", "judge"] | None = absent()
    groups_relayed: int | None = absent()
    """Groups that a bootstrap forwarded."""
    records: int | None = absent()
    """Records of a judge, over all its runs."""
    judged: int | None = absent()
    """Completions that a judge has scored since this start."""
    open_challenges: int | None = absent()
    """Questions of a judge that wait for an answer."""
    refused: dict[str, int] | None = absent()
    """Requests that a judge refused, by reason."""
    round: int | None = absent(metric="shoal_rounds_total", help="Rounds completed.")
    groups_published: int | None = absent(
        metric="shoal_published_groups_total", help="Local groups stored on disk for publishing."
    )
    groups_received: int | None = absent(
        metric="shoal_received_groups_total", help="Valid groups received from other nodes."
    )
    groups_external_used: int | None = absent(
        metric="shoal_external_trained_groups_total", help="External groups trained on."
    )
    outbox: OutboxView | None = absent()
    buffer: BufferTotals | None = absent()
    duplicate_identity: bool | None = absent()
    """True if another node signs with this one's key, or its database was lost."""
    dominant_network: str | None = absent()
    """A sentence, if one network contributes too much of the training signal; otherwise empty."""
    intake_waiting: int | None = absent()
    """Validated batches that are not in the buffer yet."""
    trainer: TrainerView | None = absent()
    judge: JudgedView | None = absent()


@dataclass(frozen=True, slots=True, kw_only=True)
class PublisherRow:
    """The groups of one publisher: those in the buffer, and all received since the start."""

    peer_id: Name = ""
    is_local: bool = False
    groups: int = 0
    bytes: int = 0
    oldest_s: float | None = None
    newest_s: float | None = None
    received: int = 0
    """Groups received; for the node itself, groups published."""
    sampled: int = 0
    """Leases of its groups to the trainer."""
    reward_spread: float | None = None
    """Mean spread (best minus worst) of its verified groups' rewards; None before the first."""
    weight: float | None = None
    """Factor on the probability that its groups are sampled."""
    connected: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffer(BufferTotals, Versioned):
    """The replay buffer by publisher: groups received, stored and sampled."""

    publishers: tuple[PublisherRow, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetch(Versioned):
    """Batches by source, gaps in sequences, and requests served to peers."""

    batches: dict[str, int] = field(default_factory=dict)
    """Counted by source: gossip, backfill, gap or pull."""
    groups: dict[str, int] = field(default_factory=dict)
    bytes_in: dict[str, int] = field(default_factory=dict)
    gaps_open: int = 0
    """Missing sequence numbers that are being requested."""
    gaps_seen: int = 0
    gaps_filled: int = 0
    """Fetched from a peer."""
    gaps_abandoned: int = 0
    announced: int = 0
    """Announced batches (too large to gossip whole) that this node decided to fetch."""
    announced_abandoned: int = 0
    announced_waiting: int = 0
    announced_running: int = 0
    backfill_rounds: int = 0
    """Rounds of requests to peers for recent batches."""
    requests: int = 0
    """All requests to peers."""
    failures: dict[str, int] = field(default_factory=dict)
    """Failed requests, by cause."""
    servable_batches: int = 0
    """Batches that peers can fetch from this node."""
    served: dict[str, int] = field(default_factory=dict)
    """Replies to peers, by kind of request."""
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
    """One completion."""

    text: Lines | None = absent()
    """Absent if the request did not ask for texts."""
    tokens: int = 0
    finish_reason: str = ""
    reward: float | None = None
    turns: tuple[TurnRow, ...] | None = absent()
    """The text as a dialogue, if the family is an environment. This node replayed the
    environment's messages; absent if that was not possible in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """One group: a question and its completions."""

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
    """The correct answer by this node's own task worker, if only this group was requested."""
    reward: float | None = None
    """Mean, by this node's own verifier; None until a trainer has scored it."""
    used: bool | None = None
    """True if the trainer trained on it; None until it has reported."""
    skip_reason: str = ""
    """Why the trainer skipped it."""
    completions: tuple[CompletionRow, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutsView(Versioned):
    """The latest rollouts: question, completions, verified reward."""

    rollouts: tuple[Rollout, ...] = ()
