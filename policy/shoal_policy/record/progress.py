"""The trainer's account of its run: the record of a round, and counters that survive a restart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from shoal_ipc.answers.held_out import Evaluation, ExampleAnswer, evaluation
from shoal_ipc.answers.node import WINDOW


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundRecord:
    """One round, as it stands in ``metrics.jsonl``. The table of docs/metrics.md is made of these
    lines; *TRL* marks what has the meaning of TRL's GRPOTrainer."""

    round: int
    """Number of the round, from 1."""
    reward: float | None
    """Mean reward over the training set, own and external: the figure that the SAPO paper plots. It
    flatters sharing, because external groups are chosen for their signal. TRL."""
    reward_local: float | None
    """Mean reward of this node's own answers to fresh questions; `null` without any."""
    reward_external: float | None
    """Mean reward of the external groups trained on, by this node's own verifier."""
    reward_std: float | None
    """Standard deviation (unbiased) of the rewards within a group, mean over the training set.
    TRL."""
    frac_reward_zero_std: float | None
    """Share of groups of the training set whose rewards are all equal: they teach nothing. TRL."""
    groups_local: int
    """Own groups in the training set (I)."""
    groups_external: int
    """External groups in the training set (at most J)."""
    groups_with_signal: int
    """Groups of the training set whose rewards are not all equal."""
    external_sampled: int
    """External groups drawn and verified to find those trained on. If they hardly exceed
    `groups_external`, peers offer little."""
    external_no_reward: int
    """Drawn groups that were skipped because no answer earned anything."""
    external_all_same: int
    """Skipped because all answers earned the same."""
    external_untokenizable: int
    """Skipped because no right answer can be read whole as own text."""
    external_held_out: int
    """Skipped because their questions are held out."""
    external_over_quota: int
    """Skipped by their source's limit while places stayed empty."""
    external_unscored: int
    """Skipped because this node's own OpenEnv server or judge was away or too slow."""
    rewards_out_of_range: int
    """Rewards outside a task file's `reward_range`, which count as its end, since the last line."""
    local_groups: int
    """Questions that this node answered, trained on or not."""
    local_completions: int
    """Its answers to them."""
    local_frac_reward_zero_std: float | None
    """TRL's `frac_reward_zero_std` over those own groups; `null` without any."""
    loss: float
    """GRPO loss, mean over the optimiser steps of the round. TRL."""
    grad_norm: float
    """Gradient norm before clipping. TRL."""
    entropy: float
    """Entropy of the policy at the trained tokens; in nats. TRL."""
    clip_fraction: float
    """Share of tokens held by either clip bound; 0 with one update a round. TRL."""
    clip_fraction_low: float
    """Share held by the lower bound. TRL."""
    clip_fraction_high: float
    """Share held by the upper bound. TRL."""
    ratio_max: float
    """Probability of a trained token now over that at the start of the round, the largest."""
    kl: float
    """Divergence from the initial policy, a trained token (k3 estimate); 0 while `--kl-beta` is 0;
    in nats. TRL."""
    server_logp_difference: float | None
    """Mean difference between the vLLM server's log-probabilities and the policy's own, in nats,
    after the latest transfer of weights. Over 0.2 the server is not asked."""
    sampling_logp_difference: float | None
    """The same difference over the own tokens trained on, or that between sampling and training of
    a policy that computes in bfloat16; `null` in float32; in nats. TRL."""
    steps_no_signal: int
    """Optimiser steps skipped because no completion had an advantage."""
    steps_nonfinite: int
    """Optimiser steps skipped because the loss or the gradient was NaN or infinite; the log names
    their groups."""
    token_budget: int
    """Size of a micro-batch: `--token-budget`, halved each time that memory ran out."""
    num_tokens: int
    """Completion tokens of rows with an advantage."""
    tokens_seen: int
    """Prompt and completion tokens of the round's training set."""
    tokens_generated: int
    """Tokens this node generated."""
    completion_mean_length: float | None
    """Mean length of own completions in tokens, end token included; `null`, as the next three,
    without any. TRL."""
    completion_min_length: int | None
    """The shortest of them. TRL."""
    completion_max_length: int | None
    """The longest of them. TRL."""
    completion_clipped_ratio: float | None
    """Share of own completions that were cut at the token limit. TRL."""
    seconds: float
    """Wall time of the round, without the wait of `--round-seconds`. TRL."""
    seconds_generate: float
    """Seconds of it for drawing questions and generating."""
    seconds_update: float
    """Seconds of it for the update."""


def completion_metrics(lengths: Sequence[int], num_cut: int) -> dict[str, Any]:
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
    """Counters of the whole run, saved in the checkpoint."""

    groups_external_used: int = 0
    groups_local_used: int = 0
    external_sampled: int = 0
    groups_not_shared: int = 0
    batches_quarantined: int = 0
    """Steps skipped because a number in them was not finite."""
    rollbacks: int = 0
    tokens_generated: int = 0
    num_tokens: int = 0
    """Prompt and completion tokens of all training sets."""
    first_rewards: list[float] = field(default_factory=list)
    """Own reward of the first rounds, at most WINDOW."""
    last_rewards: list[float] = field(default_factory=list)
    """Own reward of the latest rounds, at most WINDOW."""
    held_out: dict[str, Any] | None = None
    """The latest held-out evaluation: `shoal_policy.evaluate.HeldOut.to_json`."""
    held_out_initial: dict[str, Any] | None = None
    """The first one of the same questions; of each family, where families came and went."""
    held_out_first: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The first evaluation of each family: its round, pass@1 and number of questions."""
    families: dict[str, str] = field(default_factory=dict)
    """The digest of each family that the run trains on, by name."""

    def add(self, record: RoundRecord) -> None:
        """Count a finished round."""
        self.groups_external_used += record.groups_external
        self.groups_local_used += record.groups_local
        self.external_sampled += record.external_sampled
        self.batches_quarantined += record.steps_nonfinite
        self.tokens_generated += record.tokens_generated
        self.num_tokens += record.tokens_seen
        if record.reward_local is None:
            return
        if len(self.first_rewards) < WINDOW:
            self.first_rewards.append(record.reward_local)
        self.last_rewards.append(record.reward_local)
        del self.last_rewards[:-WINDOW]

    def begin(self, families: Mapping[str, str]) -> bool:
        """Continue with these families, digests by name; return whether they are others.

        Rewards of another mixture of tasks are not comparable, so the mean own reward starts again.
        """
        has_others = bool(self.families) and self.families != dict(families)
        if has_others:
            self.first_rewards, self.last_rewards = [], []
            for name, digest in self.families.items():
                if families.get(name, digest) != digest and name in self.held_out_first:
                    del self.held_out_first[name]
                    self.held_out_initial = None
        self.families = dict(families)
        return has_others

    def add_held_out(self, held_out: dict[str, Any]) -> None:
        """Set the latest evaluation; the first one is kept while the questions are the same.

        With other families the first value of each counts, that of a new one from this evaluation.
        """
        before, self.held_out = self.held_out_initial, held_out
        if before is not None and before["items"] == held_out["items"]:
            return
        first: dict[str, dict[str, Any]] = {}
        for name, items in held_out["items"].items():
            known = self.held_out_first.get(name)
            now = {"round": held_out["round"], "pass@1": held_out["families"][name], "items": items}
            first[name] = now if known is None or known["items"] != items else known
        self.held_out_first = first
        passed = sum(one["pass@1"] * one["items"] for one in first.values())
        self.held_out_initial = {
            **held_out,
            "round": min(one["round"] for one in first.values()),
            "pass@1": passed / held_out["num_items"],
            "families": {name: one["pass@1"] for name, one in first.items()},
            "example": (before or held_out).get("example"),
        }

    def evaluations(self) -> tuple[Evaluation | None, Evaluation | None]:
        """Return the first and the latest held-out evaluation."""
        return _evaluation(self.held_out_initial), _evaluation(self.held_out)

    @property
    def reward_initial(self) -> float | None:
        """Return the mean own reward of the first WINDOW rounds."""
        return _mean(self.first_rewards)

    @property
    def reward_now(self) -> float | None:
        """Return the mean own reward of the latest WINDOW rounds."""
        return _mean(self.last_rewards)

    def to_json(self) -> dict[str, Any]:
        """Return the counters for a checkpoint."""
        return {name: getattr(self, name) for name in RunCounters.__dataclass_fields__}

    @classmethod
    def from_json(cls, counters: Mapping[str, Any]) -> RunCounters:
        """Restore counters; unknown ones are ignored."""
        known = {k: v for k, v in counters.items() if k in cls.__dataclass_fields__}
        return cls(**known)


def _evaluation(held_out: Mapping[str, Any] | None) -> Evaluation | None:
    if held_out is None:
        return None
    example = held_out.get("example")
    return replace(
        evaluation(held_out["round"], held_out["pass@1"], held_out["num_items"]),
        example=None if example is None else ExampleAnswer(**example),
    )


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None
