"""SampleExternal (SAPO, Algorithm 1): the external groups that a round trains on.

    lease ──▶ verify ──▶ usable ──▶ choose J by the strategy ──▶ retokenize
                │           └─▶ not chosen: released              └─▶ cannot: choose again
                ├─▶ useless (held out, no signal): consumed, never sampled again
                └─▶ pending this node's own server or judge: released

Each group's rewards are reported to the node, which weights its publisher by them. A released group
may be sampled again in another round: its question and rewards are cached.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from shoal_base.bounded import MANY, BoundedDict
from shoal_ipc import messages as m
from shoal_ipc.skip_reason import SkipReason
from shoal_policy.choice.advantage import completion_share, group_advantages, has_signal
from shoal_policy.choice.scored import ExternalSample, ScoredGroup, UnusedGroup
from shoal_policy.choice.sources import Candidate, SourceQuota
from shoal_policy.model.loading import Policy
from shoal_policy.model.retokenized import Retokenized, retokenize, retokenize_game
from shoal_policy.rollouts import Question
from shoal_policy.round.config import RoundConfig
from shoal_policy.tasks import MissingReward
from shoal_policy.trainer_context import Interrupted, TrainerContext
from shoal_tasks.read_parts import read_games
from shoal_tasks.turns import join_messages, split_messages
from shoal_tasks.types import PlayRequest, Split
from shoal_wire.types import Completion, GroupId, PublishedGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class _VerifiedGroup:
    """A leased group that may be trained on."""

    item: PublishedGroup
    question: Question
    rewards: tuple[float, ...]
    candidate: Candidate

    @property
    def group_id(self) -> GroupId:
        return self.item.group_id


@dataclass(frozen=True, slots=True)
class _CachedScore:
    """The verification result of a group that was released."""

    question: Question
    rewards: tuple[float, ...]
    signal: float
    """Sum of |advantage| over the completions that would be trained on."""


@dataclass(slots=True)
class _SampledBatch:
    """The leased external groups that a round chooses from."""

    usable: list[_VerifiedGroup] = field(default_factory=list)
    num_counted: int = 0
    """Usable groups that count towards the wanted number."""
    consumed: list[GroupId] = field(default_factory=list)
    """Groups that no later round can use."""
    count: int = 0
    skipped: Counter[SkipReason] = field(default_factory=Counter)
    """Groups that are not usable, by reason."""
    unused: list[UnusedGroup] = field(default_factory=list)
    """The consumed ones."""
    pending: list[GroupId] = field(default_factory=list)
    """Groups that this node's own server or judge may score in another round."""

    @property
    def releasable(self) -> list[GroupId]:
        """Return the groups to release if none of them is chosen."""
        return [*(one.group_id for one in self.usable), *self.pending]

    def skip_group(
        self, item: PublishedGroup, rewards: Sequence[float], reason: SkipReason
    ) -> None:
        """Skip a group for good, with a reason."""
        self.skipped[reason] += 1
        self.consumed.append(item.group_id)
        one = UnusedGroup(source=item, rewards=tuple(rewards), reason=reason)
        self.unused.append(one)


_SHORT_CHARS: Final = 64
"""Texts up to this length are retokenized once and cached, since short answers repeat between
questions. At most 3 MB."""


class ExternalSampler:
    """Samples from the node's buffer for one policy."""

    def __init__(self, policy: Policy, context: TrainerContext) -> None:
        self._policy, self._sources = policy, SourceQuota()
        self._scores: BoundedDict[GroupId, _CachedScore] = BoundedDict()
        self._retokenized: BoundedDict[tuple[object, ...], Retokenized | None] = BoundedDict(MANY)
        self._tasks, self._link, self._should_stop = (
            context.tasks,
            context.link,
            context.should_stop,
        )

    def lease_ahead(self, config: RoundConfig) -> None:
        """Lease the first groups that `sample` needs, before own groups keep the node busy."""
        self._link.lease_ahead(min(2 * config.num_external, config.max_candidates))

    def sample(self, config: RoundConfig) -> ExternalSample:
        """Lease and verify external groups, choose J by the strategy, end the other leases.

        Raises:
            Interrupted: all leases have been ended.
        """
        self._sources = self._sources.next_round()
        batch = self._sample_batch(config)
        groups, chosen = self._choose(batch, config)
        for one in chosen:
            self._sources.add(one.candidate)
        taken = {one.group_id for one in chosen}
        unchosen = [one for one in batch.usable if one.group_id not in taken]
        self._report([one for one in batch.usable if one.group_id not in self._scores])
        for one in unchosen:
            self._cache_score(one)
        released = [group_id for group_id in batch.releasable if group_id not in taken]
        self._link.end_leases(consumed=batch.consumed, released=released)
        # With every slot filled, the unchosen groups were not refused.
        refused = len(unchosen) if len(chosen) < config.num_external else 0
        batch.skipped[SkipReason.OVER_QUOTA] = refused
        return ExternalSample(
            groups=groups,
            num_verified=batch.count,
            skipped=batch.skipped,
            unused=tuple(batch.unused),
        )

    def _choose(
        self, batch: _SampledBatch, config: RoundConfig
    ) -> tuple[tuple[ScoredGroup, ...], list[_VerifiedGroup]]:
        """Choose J groups that can be retokenized; skip those that cannot."""
        read: dict[GroupId, ScoredGroup | None] = {}
        while True:
            candidates = [one.candidate for one in batch.usable]
            indices = config.strategy.choose(candidates, config.num_external, self._sources)
            chosen = [batch.usable[index] for index in indices]
            for one in chosen:
                if one.group_id not in read:
                    read[one.group_id] = self._retokenize_group(one, config)
            groups = [group for one in chosen if (group := read[one.group_id]) is not None]
            if len(groups) == len(chosen):
                return tuple(groups), chosen
            for one in chosen:
                if read[one.group_id] is None:
                    self._skip_untokenizable(one, batch)

    def _skip_untokenizable(self, one: _VerifiedGroup, batch: _SampledBatch) -> None:
        """Skip a group whose right answers this tokenizer cannot represent; it earns nothing."""
        batch.usable.remove(one)
        batch.skip_group(one.item, one.rewards, SkipReason.UNTOKENIZABLE)
        self._report([replace(one, rewards=(0.0,) * len(one.rewards))])

    def _sample_batch(self, config: RoundConfig) -> _SampledBatch:
        """Lease and verify until there are enough candidates, or no more to sample."""
        wanted, strategy = config.num_external, config.strategy
        budget = config.max_candidates
        enough = strategy.num_candidates(wanted)
        batch = _SampledBatch()
        while batch.num_counted < enough and batch.count < budget:
            if self._should_stop():
                self._link.release_ahead()
                self._link.end_leases(consumed=batch.consumed, released=batch.releasable)
                raise Interrupted
            leased = self._link.sample(min(2 * wanted, budget - batch.count))
            if not leased:
                break
            self._verify(leased, batch, config)
        return batch

    def _cache_score(self, one: _VerifiedGroup) -> None:
        # Inline questions are not cached: held-out questions of this node may change.
        if one.item.group.task.inline is None:
            self._scores[one.group_id] = _CachedScore(
                one.question, one.rewards, one.candidate.signal
            )

    def _verify(
        self, leased: Sequence[PublishedGroup], batch: _SampledBatch, config: RoundConfig
    ) -> None:
        """Score leased groups and sort them into usable and useless ones."""
        batch.count += len(leased)
        known = self._score(leased, batch, config)
        no_signal = []
        for item in leased:
            if (cached := known.get(item.group_id)) is None:
                continue
            question, rewards = cached.question, cached.rewards
            candidate = _candidate(item, cached.signal)
            one = _VerifiedGroup(item=item, question=question, rewards=rewards, candidate=candidate)
            if has_signal(rewards):
                batch.usable.append(one)
                batch.num_counted += config.strategy.counts_towards_target(candidate, self._sources)
            else:
                reason = SkipReason.ALL_SAME if any(rewards) else SkipReason.NO_REWARD
                batch.skip_group(item, rewards, reason)
                no_signal.append(one)
        self._report(no_signal)

    def _report(self, verified: Sequence[_VerifiedGroup]) -> None:
        """Report to the node the rewards of groups; it weights their publishers by them."""
        reports = [
            m.GroupReport(
                group_id=one.group_id,
                publisher=one.item.publisher,
                rewards=one.rewards,
            )
            for one in verified
        ]
        if reports:
            self._link.report(reports)

    def _score(
        self, leased: Sequence[PublishedGroup], batch: _SampledBatch, config: RoundConfig
    ) -> Mapping[GroupId, _CachedScore]:
        """Return the score of each group that may be trained on; each group is scored once."""
        found = {
            group_id: known
            for item in leased
            if (known := self._scores.get(group_id := item.group_id)) is not None
        }
        new = [item for item in leased if item.group_id not in found]
        trainable = self._skip_held_out(self._skip_ended(new, batch), batch)
        groups = [(g.group.task, g.group.completions) for g, _ in trainable]
        rewards = self._tasks.verify(groups)
        for (item, question), scores in zip(trainable, rewards, strict=True):
            if isinstance(scores, MissingReward):
                self._skip_unscored(item, scores, batch)
                continue
            earned = tuple(scores)
            known = _CachedScore(question, earned, signal_of(earned, config))
            found[item.group_id] = known
        return found

    def _skip_unscored(
        self, item: PublishedGroup, reason: MissingReward, batch: _SampledBatch
    ) -> None:
        """Skip a group that this node's own server or judge gave no rewards.

        It does not count for its publisher, since the fault may be this node's.
        """
        if reason is MissingReward.WAITS:
            batch.skipped[SkipReason.UNSCORED] += 1
            batch.pending.append(item.group_id)
        else:
            batch.skip_group(item, (), SkipReason.UNSCORED)

    def _skip_ended(
        self, leased: Sequence[PublishedGroup], batch: _SampledBatch
    ) -> list[PublishedGroup]:
        """Return the groups of this trainer's families: a task may end while groups wait."""
        kept = []
        for item in leased:
            if self._tasks.has_family_of(item.group.task):
                kept.append(item)
            else:
                batch.skip_group(item, (), SkipReason.TASK_ENDED)
        return kept

    def _skip_held_out(
        self, leased: Sequence[PublishedGroup], batch: _SampledBatch
    ) -> list[tuple[PublishedGroup, Question]]:
        """Return the groups that may be trained on, with their questions.

        The others earn nothing, whatever their answers.
        """
        kept, reports = [], []
        tasks = [item.group.task for item in leased]
        for item, question in zip(leased, self._tasks.for_training(tasks), strict=True):
            if isinstance(question, Question):
                kept.append((item, question))
                continue
            if question is Split.UNAVAILABLE:
                self._skip_unscored(item, MissingReward.WAITS, batch)
                continue
            nothing = (0.0,) * len(item.group.completions)
            batch.skip_group(item, nothing, SkipReason.HELD_OUT)
            reports.append(
                m.GroupReport(group_id=item.group_id, publisher=item.publisher, rewards=nothing)
            )
        if reports:
            self._link.report(reports)
        return kept

    def _retokenize_group(self, one: _VerifiedGroup, config: RoundConfig) -> ScoredGroup | None:
        """Re-encode external text as if the own policy had generated it (section 3.2).

        Only completions that can be represented exactly and whole are kept, since the reward
        belongs to the whole text. None if the rest has no signal.
        """
        source = one.item
        found = self._retokenize_completions(one, config.sampling.max_new_tokens + 1)
        read = [(index, reading) for index, reading in enumerate(found) if reading is not None]
        rewards = tuple(one.rewards[index] for index, _ in read)
        if not has_signal(rewards):
            return None
        return ScoredGroup(
            question=one.question,
            completions=tuple(reading.ids for _, reading in read),
            rewards=rewards,
            external=True,
            source=source,
            unscored_mask=tuple(reading.unscored_mask for _, reading in read),
            completion_positions=tuple(reading.completion_positions for _, reading in read)
            if one.question.max_turns
            else None,
        )

    def _retokenize_completions(
        self, one: _VerifiedGroup, max_tokens: int
    ) -> list[Retokenized | None]:
        """Retokenize each completion of a group; games with this node's own replay."""
        policy, question = self._policy, one.question
        completions = one.item.group.completions
        if not question.max_turns:
            return [self._retokenize(each, question, max_tokens) for each in completions]
        requests = [
            PlayRequest(task=question.coordinates, messages=split_messages(each.text))
            for each in completions
        ]
        games = read_games(self._tasks.play, requests)
        return [
            retokenize_game(
                policy,
                replace(each, text=join_messages(game.messages)),
                game.observations,
                max_tokens,
                game.parts,
            )
            for each, game in zip(completions, games, strict=True)
        ]

    def _retokenize(
        self, one: Completion, question: Question, max_tokens: int
    ) -> Retokenized | None:
        tagged, is_code = question.tagged, question.is_code

        def read() -> Retokenized | None:
            return retokenize(self._policy, one, tagged, max_tokens, is_code=is_code)

        if len(one.text) > _SHORT_CHARS:
            return read()
        return self._retokenized.use(
            (one.text, one.finish_reason, tagged, is_code, max_tokens), read
        )


def _candidate(sampled: PublishedGroup, signal: float) -> Candidate:
    return Candidate(
        family=sampled.group.task.family,
        signal=signal,
        network=sampled.network,
    )


def signal_of(rewards: Sequence[float], config: RoundConfig) -> float:
    """Return the sum of |advantage| over the usable completions of an external group."""
    advantages = group_advantages(rewards, config.advantage_scale)
    share = completion_share(len(rewards), config.num_completions)
    return share * sum(
        abs(advantages[index]) for index in config.strategy.select_completions(advantages)
    )
