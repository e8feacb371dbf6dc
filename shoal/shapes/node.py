"""Answers of a node's views: its trainer, its buffer, what came and what was said."""

from __future__ import annotations

from typing import NotRequired

from typing_extensions import TypedDict

from shoal.shapes.peer import Free, PeerStatus, Versioned


class Outbox(TypedDict):
    """Own batches on their way to others."""

    unsent: int
    batches_sent: int
    batches_announced: int
    batches_expired: int
    batches_put_off: int


class BufferTotals(TypedDict):
    """The replay buffer in numbers."""

    groups: int
    bytes: int
    capacity_groups: int
    capacity_bytes: int
    evicted: int
    dropped: dict[str, int]
    own_groups: int
    own_bytes: int
    leased: int
    consumed_total: int
    stored_total: int
    draws_total: int


class Progress(TypedDict):
    """How far the trainer is in what it does."""

    round: int
    done: int
    of: int
    seconds: float
    left_s: float | None


class Trainer(TypedDict):
    """The trainer as the node sees it, and what it reports of itself."""

    state: str
    pid: int | None
    round: int
    reward_local: float | None
    reward_start: float | None
    restarts: int
    connected: bool
    model: str | None
    policy_version: int | None
    reward_sum: float | None
    groups_local_used: int | None
    groups_external_used: int | None
    external_drawn: int | None
    groups_not_shared: int | None
    tokens_generated: int | None
    last_round: Free | None
    held_out: Free | None
    learning: Free | None
    paused: str | None
    phase: str | None
    progress: Progress | None
    last_exit: int | None
    last_error: str | None
    next_start_s: float | None


class Judged(TypedDict):
    """What the judge that is asked has said."""

    address: str
    state: str
    judged: int
    score: float | None
    mean_score: float | None
    round: int | None
    error: str | None


class Status(PeerStatus):
    """The view `status`: what any peer has, and what a node has beside it."""

    round: NotRequired[int]
    groups_published: NotRequired[int]
    groups_received: NotRequired[int]
    groups_external_used: NotRequired[int]
    outbox: NotRequired[Outbox]
    buffer: NotRequired[BufferTotals]
    identity_shared: NotRequired[bool]
    one_network: NotRequired[str]
    intake_waiting: NotRequired[int]
    trainer: NotRequired[Trainer]
    judge: NotRequired[Judged | None]


class PublisherRow(TypedDict):
    """The buffer's groups of one publisher."""

    peer_id: str
    own: bool
    groups: int
    bytes: int
    oldest_s: float | None
    newest_s: float | None
    draws: int
    received: int


class Buffer(BufferTotals, Versioned):
    """The view `buffer`."""

    publishers: list[PublisherRow]


class OwnContribution(TypedDict):
    """What this node gave and took."""

    contributed: int
    drawn: int
    trained: int
    ratio: float | None


class Contribution(TypedDict):
    """What a peer gave, and what was taken of it."""

    peer_id: str
    contributed: int
    share: float
    drawn: int
    useful: float | None
    weight: float
    connected: bool


class Contributions(Versioned):
    """The view `contributions`."""

    own: OwnContribution
    silent: int
    peers: list[Contribution]


class Gaps(TypedDict):
    """Numbers of publishers that did not come."""

    open: int
    seen: int
    mended: int
    given_up: int


class Announced(TypedDict):
    """Batches too big to gossip whole."""

    taken_up: int
    given_up: int
    waiting: int
    running: int


class Fetch(Versioned):
    """The view `fetch`."""

    batches: dict[str, int]
    groups: dict[str, int]
    bytes_in: dict[str, int]
    gaps: Gaps
    announced: Announced
    backfill_rounds: int
    asked: int
    failures: dict[str, int]
    shelf_batches: int
    served: dict[str, int]
    refused: dict[str, int]
    bytes_out: int


class CompletionRow(TypedDict):
    """One answer."""

    text: str
    tokens: int
    finish_reason: str
    reward: float | None


class Rollout(TypedDict):
    """One group: a question and its answers."""

    number: int
    group_id: str
    publisher: str
    own: bool
    round: int
    received_ms: int
    age_s: float
    model: str
    policy_version: int
    family: str
    seed: int
    index: int
    question: str | None
    expected: NotRequired[str | None]
    reward: float | None
    used: bool | None
    why_unused: str
    completions: list[CompletionRow]


class Rollouts(Versioned):
    """The view `rollouts`."""

    rollouts: list[Rollout]
