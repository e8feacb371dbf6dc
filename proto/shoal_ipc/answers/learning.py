"""Answers about training: findings on its progress, and statistics by publisher."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from shoal_ipc.answers.form import Name, Versioned, labelled, measured


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningFinding:
    """A problem with a trainer's progress."""

    check: str = ""
    state: Literal["ok", "warn", "bad"] = "warn"
    since_round: int = 0
    """Its first round."""
    message: str = ""
    remedy: str = ""
    example: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Learning:
    """A trainer's assessment of its own progress."""

    state: Literal["", "early", "ok", "warn", "bad"] = ""
    """Empty if no trainer has reported."""
    message: str = ""
    rounds: int = 0
    """Rounds that were assessed."""
    external_sampled: int | None = None
    """External groups sampled in these rounds."""
    findings: tuple[LearningFinding, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PublisherStats:
    """One publisher, this node included."""

    peer_id: Name = ""
    is_local: bool = False
    model: Name = ""
    groups_seen: int = 0
    """Groups that rounds had, trained on or not."""
    groups_trained: int = measured(
        "shoal_trained_groups_total",
        "Groups trained on, for the publishers with the most signal.",
        default=0,
    )
    signal: float = measured(
        "shoal_abs_advantage_total",
        "Sum of |advantage| over these groups: how strongly they moved the weights.",
        default=0.0,
    )
    reward: float | None = None
    """Mean over `groups_seen`, by this node's own verifier."""
    last_trained_s: float | None = None
    """Seconds since a group of it was last trained on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyStats:
    """This node's own completions for one task family."""

    name: Name = ""
    groups: int = 0
    """Local groups; `reward` is over the latest 40, `reward_initial` over the first 40."""
    reward: float | None = measured(
        "shoal_family_reward_mean", "Mean local reward of one task family's latest 40 groups."
    )
    reward_initial: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LastHour:
    """Local and external groups trained on in the last hour, or since the first round."""

    window_s: float = 0.0
    external_signal_share: float | None = measured(
        "shoal_external_signal_ratio", "Share of the last hour's signal from other nodes."
    )
    groups_local: int = 0
    groups_external: int = 0
    tokens_external: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger(Versioned):
    """Publishers that the trainer has trained on, and how much each contributed."""

    at_ms: int = 0
    """Unix time of these figures, in milliseconds; 0 if it never trained."""
    round: int = 0
    """The latest round that the figures include."""
    publishers: tuple[PublisherStats, ...] = labelled("publisher", "peer_id")
    """The largest signal first."""
    families: tuple[FamilyStats, ...] = labelled("family", "name")
    last_hour: LastHour = field(default_factory=LastHour)
