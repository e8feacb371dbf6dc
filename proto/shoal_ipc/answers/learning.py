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
    since: int = 0
    """Its first round."""
    says: str = ""
    do: str = ""
    example: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Learning:
    """A trainer's judgement of its own learning."""

    state: Literal["", "early", "ok", "warn", "bad"] = ""
    """Empty where no trainer has said anything."""
    says: str = ""
    rounds: int = 0
    """Rounds that were judged."""
    drawn: int | None = None
    """Groups of others that were looked at in them."""
    findings: tuple[LearningFinding, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PublisherStats:
    """One publisher, this node included."""

    peer_id: Name = ""
    own: bool = False
    model: Name = ""
    looked_at: int = 0
    """Groups that rounds had."""
    trained: int = measured(
        "shoal_learnt_groups",
        "Groups trained on, of the publishers learnt from most.",
        default=0,
    )
    signal: float = measured(
        "shoal_learnt_signal",
        "How strongly they changed the weights: the sum of |advantage|.",
        default=0.0,
    )
    reward: float | None = None
    """Mean of those looked at, by this node's own verifier."""
    last_s: float | None = None
    """Time since a group of it was trained on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearntFamily:
    """Own answers to the questions of one task family."""

    name: Name = ""
    groups: int = 0
    """Own groups; `reward` is over the latest 40, `reward_start` over the first 40."""
    reward: float | None = measured(
        "shoal_family_reward", "Mean own reward in one task family, lately."
    )
    reward_start: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LastHour:
    """The last hour, or since the first round: what others brought beside what the node found."""

    window_s: float = 0.0
    others_signal_share: float | None = measured(
        "shoal_signal_others_ratio", "Share of the last hour's signal that came from others."
    )
    groups_own: int = 0
    groups_others: int = 0
    tokens_others: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger(Versioned):
    """Publishers that the trainer has learnt from, and how much."""

    at_ms: int = 0
    """The time of these figures; 0 if it never trained."""
    round: int = 0
    """The latest round that they include."""
    publishers: tuple[PublisherStats, ...] = labelled("publisher", "peer_id")
    """The greatest signal first."""
    families: tuple[LearntFamily, ...] = labelled("family", "name")
    lately: LastHour = field(default_factory=LastHour)
