"""The trainer's account of its own course: counters that survive a restart, and their views."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

WINDOW = 20
"""Rounds in the moving averages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundRecord:
    """One round, as it stands in ``metrics.jsonl``; docs/metrics.md explains each field."""

    round: int
    reward: float | None
    """Mean over the training set, local and external (the paper's figure)."""
    reward_local: float | None
    """Mean over this node's own fresh questions; None when it asked none."""
    reward_external: float | None
    """Mean over the external groups that were trained on."""
    reward_std: float | None
    """Mean over the training set's groups of the standard deviation within the group."""
    frac_reward_zero_std: float | None
    """Share of the training set's groups whose rewards are all equal."""
    groups_local: int
    groups_external: int
    groups_with_signal: int
    """Groups of the training set whose rewards differ."""
    groups_looked_at: int
    """Own and external groups of which it is known what they earn: what can be chosen from."""
    signal_local: float
    """Sum of |advantage| over own completions that were trained on."""
    signal_external: float
    """The same sum over external completions."""
    external_drawn: int
    """External groups that were verified to find those trained on."""
    external_age_s: float | None
    """Mean seconds since the external groups trained on were made, by their publishers' clocks."""
    external_no_reward: int
    """External groups passed over because nothing in them earned anything."""
    external_all_same: int
    """External groups passed over because all in them earned the same, above nothing."""
    external_unread: int
    """External groups passed over because none of their right answers can be read whole."""
    external_reserved: int
    """External groups passed over because their questions are kept for evaluation."""
    external_refused: int
    """External groups left out by their source's ceiling while places were empty."""
    own_groups: int
    """Own questions answered, trained on or not."""
    own_answers: int
    own_frac_reward_zero_std: float | None
    """Share of own groups whose rewards are all equal; None without own groups."""
    loss: float
    grad_norm: float
    entropy: float
    clip_fraction: float
    clip_fraction_low: float
    clip_fraction_high: float
    ratio_mean: float
    ratio_max: float
    kl: float
    """To the reference policy, nats a token; 0 without one."""
    external_logprob: float | None
    """Mean own log-probability of an external token trained on, in nats."""
    external_unlikely_share: float
    server_difference: float | None
    """Mean |server − policy| a token of the probe, in nats, after weights were last given to a
    server that follows; None without one."""
    sampling_logp_difference: float | None
    """Mean |server − policy| of own tokens trained on that a server that follows sampled, in nats;
    None without any."""
    steps_no_signal: int
    steps_nonfinite: int
    token_budget: int
    """Tokens a micro-batch may hold; less than the setting after memory ran out."""
    num_tokens: int
    """Completion tokens that were trained on."""
    tokens_seen: int
    """Prompt and completion tokens of the training set, trained on or not."""
    tokens_generated: int
    completion_mean_length: float | None
    """Tokens of own completions; None, as the next three, when there were none."""
    completion_min_length: int | None
    completion_max_length: int | None
    completion_clipped_ratio: float | None
    """Share of own completions that ended at the token limit."""
    seconds: float
    seconds_generate: float
    seconds_update: float


def completion_figures(lengths: Sequence[int], num_cut: int) -> dict[str, Any]:
    """Return the fields of a `RoundRecord` about own completions, from their lengths in tokens.

    `num_cut` of them ended at the token limit.
    """
    return {
        "tokens_generated": sum(lengths),
        "completion_mean_length": sum(lengths) / len(lengths) if lengths else None,
        "completion_min_length": min(lengths, default=None),
        "completion_max_length": max(lengths, default=None),
        "completion_clipped_ratio": num_cut / len(lengths) if lengths else None,
    }


@dataclass(slots=True)
class RunCounters:
    """Counters of the whole run, kept in the checkpoint."""

    groups_external_used: int = 0
    groups_local_used: int = 0
    external_drawn: int = 0
    groups_not_shared: int = 0
    steps_no_signal: int = 0
    """Steps left out because nothing in them had an advantage."""
    batches_quarantined: int = 0
    """Steps left out because a number in them was not finite."""
    rollbacks: int = 0
    tokens_generated: int = 0
    num_tokens: int = 0
    """Prompt and completion tokens of all training sets."""
    reward_sum: float = 0.0
    """Sum over rounds of the mean own reward."""
    first_rewards: list[float] = field(default_factory=list)
    """Own reward of the first rounds, at most WINDOW."""
    last_rewards: list[float] = field(default_factory=list)
    """Own reward of the latest rounds, at most WINDOW."""
    held_out: dict[str, Any] | None = None
    """The latest held-out evaluation: `shoal_policy.evaluate.HeldOut.to_json`."""
    learning: dict[str, Any] | None = None
    """Whether it learns: `record.learning.LearningMemory.to_json`, as the checkpoint has it."""

    def add(self, record: RoundRecord) -> None:
        """Count a finished round."""
        self.groups_external_used += record.groups_external
        self.groups_local_used += record.groups_local
        self.external_drawn += record.external_drawn
        self.steps_no_signal += record.steps_no_signal
        self.batches_quarantined += record.steps_nonfinite
        self.tokens_generated += record.tokens_generated
        self.num_tokens += record.tokens_seen
        if record.reward_local is None:
            return
        self.reward_sum += record.reward_local
        if len(self.first_rewards) < WINDOW:
            self.first_rewards.append(record.reward_local)
        self.last_rewards.append(record.reward_local)
        del self.last_rewards[:-WINDOW]

    @property
    def reward_start(self) -> float | None:
        """Mean own reward of the first WINDOW rounds."""
        return _mean(self.first_rewards)

    @property
    def reward_now(self) -> float | None:
        """Mean own reward of the latest WINDOW rounds."""
        return _mean(self.last_rewards)

    def to_json(self) -> dict[str, Any]:
        """Return the counters for a checkpoint."""
        counters = {name: getattr(self, name) for name in RunCounters.__dataclass_fields__}
        # A checkpoint from before it was watched is saved again as it was.
        return {k: v for k, v in counters.items() if k != "learning" or v is not None}

    @classmethod
    def from_json(cls, counters: Mapping[str, Any]) -> RunCounters:
        """Restore counters; unknown ones of another version are left out."""
        known = {k: v for k, v in counters.items() if k in cls.__dataclass_fields__}
        return cls(**known)


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None
