"""Groups with their rewards, and the training set of a round."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from shoal_ipc.skip_reason import SkipReason
from shoal_policy.rollouts import Question
from shoal_wire.types import GroupId, PublishedGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredGroup:
    """A group with rewards by this node's verifier."""

    question: Question
    completions: tuple[tuple[int, ...], ...]
    """Own token ids; for a game, with the environment's in between."""
    rewards: tuple[float, ...]
    external: bool
    source: PublishedGroup | None = None
    """Source of an external group."""
    sampling_logprobs: tuple[tuple[float, ...] | None, ...] | None = None
    """Log-probabilities by a server with this policy, per own completion; None where unusable."""
    start_logprobs: tuple[tuple[float, ...], ...] | None = None
    """The policy's log-probabilities of each completion before the update, if already known."""
    unscored_mask: tuple[tuple[bool, ...] | None, ...] | None = None
    """Per completion, a mask of the tokens that its verifier ignores; None if it scores all."""
    completion_positions: tuple[tuple[int, ...] | None, ...] | None = None
    """Per game, the positions of policy tokens; None if the policy generated all tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnusedGroup:
    """An external group that no round will train on."""

    source: PublishedGroup
    rewards: tuple[float, ...]
    reason: SkipReason


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalSample:
    """The outcome of SampleExternal."""

    groups: tuple[ScoredGroup, ...]
    """At most J groups, leased."""
    num_verified: int
    """Groups that were verified to find them."""
    skipped: Counter[SkipReason] = field(default_factory=Counter)
    """Number of verified groups that were skipped, by reason."""
    unused: tuple[UnusedGroup, ...] = ()
    """Groups that no round can use."""

    @property
    def ids(self) -> list[GroupId]:
        """Return the ids by which the node knows the groups."""
        return [group.source.group_id for group in self.groups if group.source is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSet:
    """SampleSelf(I) ∪ SampleExternal(J)."""

    local: tuple[ScoredGroup, ...]
    external: ExternalSample

    @property
    def groups(self) -> list[ScoredGroup]:
        """Return all groups, own ones first."""
        return [*self.local, *self.external.groups]


def mean_reward(groups: Sequence[ScoredGroup]) -> float | None:
    """Return the mean over all completions; None when there are none."""
    rewards = [reward for group in groups for reward in group.rewards]
    return sum(rewards) / len(rewards) if rewards else None
