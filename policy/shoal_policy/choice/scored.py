"""Groups with their rewards: what a round has to train on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from shoal_ipc.skip_reason import SkipReason
from shoal_policy.rollouts import Question
from shoal_wire.types import GroupId, PublishedGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredGroup:
    """A group with rewards by the own verifier."""

    question: Question
    completions: tuple[tuple[int, ...], ...]
    """Own token ids; of a game, with its environment's between them."""
    rewards: tuple[float, ...]
    external: bool
    source: PublishedGroup | None = None
    """Source of an external group."""
    claimed: tuple[tuple[float, ...] | None, ...] | None = None
    """Log-probabilities that a server that follows gave each own completion, where it can be used.
    """
    started: tuple[tuple[float, ...], ...] | None = None
    """The policy's own of each completion before the round's update, where they are known."""
    unread: tuple[tuple[bool, ...] | None, ...] | None = None
    """The tokens of each completion that its verifier does not read; None where it reads all."""
    said: tuple[tuple[int, ...] | None, ...] | None = None
    """The places of the tokens that the policy said, for each game; None where it said all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnusedGroup:
    """A group of another that will not be trained on."""

    source: PublishedGroup
    rewards: tuple[float, ...]
    why: SkipReason


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalSample:
    """The outcome of SampleExternal."""

    groups: tuple[ScoredGroup, ...]
    """At most J, on lease."""
    num_drawn: int
    """Groups that were verified to find them."""
    passed_over: Counter[SkipReason] = field(default_factory=Counter)
    """Number of verified groups that were skipped, by reason."""
    unused: tuple[UnusedGroup, ...] = ()
    """Groups that no round can use."""

    @property
    def ids(self) -> list[GroupId]:
        """The ids by which the node knows the groups."""
        return [group.source.group_id for group in self.groups if group.source is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSet:
    """SampleSelf(I) ∪ SampleExternal(J)."""

    local: tuple[ScoredGroup, ...]
    external: ExternalSample

    @property
    def groups(self) -> list[ScoredGroup]:
        """All groups, own ones first."""
        return [*self.local, *self.external.groups]


def mean_reward(groups: Sequence[ScoredGroup]) -> float | None:
    """Return the mean over all completions; None when there are none."""
    rewards = [reward for group in groups for reward in group.rewards]
    return sum(rewards) / len(rewards) if rewards else None
