"""What is shown of a node, and nothing else: every face shows the same from here. Pure.

    debug views, metrics.jsonl ──build──▶ Shown ──▶ page · `shoal watch` · `/metrics` · `--json`

Every number was measured by the node itself. What others wrote (models, families, errors) has been
through `shoal_base.visible`: a face may print any text of it as it is.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

SCHEMA_VERSION = 1

Kind = Literal["node", "bootstrap", "judge"]
Health = Literal["ok", "warn", "bad", "down"]
Standing = Literal["fine", "doubted", "banned", "blocked", "me"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SwarmShown:
    """Which swarm it is of."""

    name: str
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingShown:
    """One thing that was looked at, in doctor's words."""

    check: str
    state: str
    says: str
    do: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseShown:
    """What the trainer does."""

    name: str
    since_s: float | None
    round: int | None
    done: int
    of: int
    """Answers done and wanted; 0 of 0 where none are counted."""
    left_s: float | None
    last_error: str | None
    """How the latest trainer that failed ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RightShown:
    """Am I all right?"""

    state: Health
    says: str
    do: str
    findings: tuple[FindingShown, ...]
    phase: PhaseShown | None
    uptime_s: float | None
    down_since_unix: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningFindingShown:
    """Something about its learning that is not as it should be."""

    check: str
    state: str
    since: int
    """Its first round."""
    says: str
    do: str
    example: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyShown:
    """Own answers to one task family."""

    name: str
    reward: float | None
    reward_start: float | None
    groups: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningShown:
    """Is it learning?"""

    state: str
    """early, ok, warn or bad; empty where no trainer has said anything."""
    says: str
    round: int
    reward_own: float | None
    reward_start: float | None
    held_out: float | None
    held_out_start: float | None
    findings: tuple[LearningFindingShown, ...]
    families: tuple[FamilyShown, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkShown:
    """What happened beside the rounds, once or several times."""

    kind: str
    """started, trainer, model, joined or left."""
    round: int
    """The latest that was played by then."""
    at_unix: float
    count: int
    says: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PublisherShown:
    """From whom? One who answers, the node itself among them."""

    peer_id: str
    short: str
    name: str
    model: str
    mine: bool
    connected: bool
    relayed: bool
    latency_ms: float | None
    verdict_state: Standing
    received: int
    """Groups of it that came into the buffer since the start; of the node itself, published."""
    drawn: int
    trained: int
    """Groups trained on with an advantage, over the run."""
    signal: float
    """Sum of |advantage| over them."""
    trained_10m: int
    reward: float | None
    """Mean of what was verified, by this node's own verifier."""
    last_s: float | None
    """Since a group of it was trained on, or came."""
    sampling_weight: float | None
    banned_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorthShown:
    """Is it worth it? What came from others in the last `window_s`, and what it costs.

    Of a node that is down: in the `window_s` before it trained last.
    """

    says: str
    others_signal_share: float | None
    groups_with_signal_others: int
    tokens_not_generated: int
    bytes_in_s: float | None
    bytes_out_s: float | None
    cpu_node: float | None
    """Of one core; 1.5 is one and a half."""
    cpu_trainer: float | None
    rss_node: int | None
    rss_trainer: int | None
    disk_bytes: int | None
    judge_score: float | None
    window_s: float
    cost_window_s: float | None
    """The time over which bytes a second and processors were measured, to its last answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SaidShown:
    """One group; its text comes from the `rollouts` view."""

    id: str
    family: str
    publisher: str
    mine: bool
    round: int
    reward: float | None
    used: bool | None
    """Trained on; None while that is not known."""
    why_unused: str
    completions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedCountShown:
    """How often for one reason, since the start."""

    reason: str
    says: str
    do: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusalShown:
    """One refusal."""

    at_unix: float
    reason: str
    says: str
    do: str
    signer: str
    forwarder: str
    family: str
    kind: str
    """reject (it counts against who sent it) or ignore."""
    times: int
    """How often it was the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedShown:
    """What was refused?"""

    counts: tuple[RefusedCountShown, ...] = ()
    ring: tuple[RefusalShown, ...] = ()
    """The newest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NowShown:
    """What now? A command to copy."""

    says: str
    command: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """One node, or another peer, at one moment: the seven questions in their order."""

    kind: Kind
    name: str
    peer_id: str
    short: str
    data_dir: str
    at_unix: float
    swarm: SwarmShown
    right: RightShown
    learning: LearningShown
    marks: tuple[MarkShown, ...]
    """What may be why the curve turns, the oldest first."""
    publishers: tuple[PublisherShown, ...]
    worth: WorthShown
    said: tuple[SaidShown, ...]
    refused: RefusedShown = field(default_factory=RefusedShown)
    now: tuple[NowShown, ...] = ()


def to_json(shown: Shown) -> dict[str, Any]:
    """Return it as JSON values; keys may come, none changes its meaning."""
    return {"schema_version": SCHEMA_VERSION, **_plain(asdict(shown))}


def _plain(value: Any) -> Any:
    """Tuples as lists, as they are when read again."""
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value
