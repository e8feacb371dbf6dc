"""Answers on what a node's trainer has learnt, and from whom."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from shoal_ipc.answers.form import Name, Versioned, labelled, measured


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningFinding:
    """Something about a trainer's learning that is not as it should be."""

    check: str = ""
    state: Literal["ok", "warn", "bad"] = "warn"
    since_round: int = 0
    """Its first round."""
    message: str = ""
    remedy: str = ""
    example: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Learning:
    """A trainer's judgement of its own learning."""

    state: Literal["", "early", "ok", "warn", "bad"] = ""
    """Empty where no trainer has said anything."""
    message: str = ""
    rounds: int = 0
    """Rounds that were judged."""
    external_sampled: int | None = None
    """Groups of others that were looked at in them."""
    findings: tuple[LearningFinding, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PublisherStats:
    """One publisher, this node included."""

    peer_id: Name = ""
    is_local: bool = False
    model: Name = ""
    groups_seen: int = 0
    """Groups that rounds had."""
    groups_trained: int = measured(
        "shoal_trained_groups_total",
        "Groups trained on, of the publishers learnt from most.",
        default=0,
    )
    signal: float = measured(
        "shoal_abs_advantage_total",
        "How strongly they changed the weights: the sum of |advantage|.",
        default=0.0,
    )
    reward: float | None = None
    """Mean of those looked at, by this node's own verifier."""
    last_trained_s: float | None = None
    """Time since a group of it was trained on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyStats:
    """Own answers to the questions of one task family."""

    name: Name = ""
    groups: int = 0
    """Own groups; `reward` is over the latest 40, `reward_initial` over the first 40."""
    reward: float | None = measured(
        "shoal_family_reward_mean", "Mean own reward in one task family, lately."
    )
    reward_initial: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LastHour:
    """The last hour, or since the first round: what others brought beside what the node found."""

    window_s: float = 0.0
    external_signal_share: float | None = measured(
        "shoal_external_signal_ratio", "Share of the last hour's signal that came from others."
    )
    groups_local: int = 0
    groups_external: int = 0
    tokens_external: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger(Versioned):
    """Publishers that the trainer has learnt from, and how much."""

    at_ms: int = 0
    """The time of these figures; 0 if it never trained."""
    round: int = 0
    """The latest round that they include."""
    publishers: tuple[PublisherStats, ...] = labelled("publisher", "peer_id")
    """The greatest signal first."""
    families: tuple[FamilyStats, ...] = labelled("family", "name")
    last_hour: LastHour = field(default_factory=LastHour)
