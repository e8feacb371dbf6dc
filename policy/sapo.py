"""One round of SAPO (arXiv 2509.08721, Algorithm 1), legible beside the paper.

    1  questions  = SampleBatch(B)                        B = I unless asked for more
    2  own        = L completions of each question
    3  share(own)                                         before any reward is computed
    4  training   = SampleSelf(own, I) ∪ SampleExternal(J)        by `policy.choice.sampling`
    5  rewards by the own verifier; advantages; one GRPO update

Nothing waits for anybody: with no node, or an empty buffer, the round trains on what it has.
"""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import torch

from policy.choice.advantage import AdvantageScale, has_signal
from policy.choice.balance import Balance, Seen
from policy.choice.candidates import OwnRecord, candidate_of
from policy.choice.sampling import ExternalStrategy
from policy.choice.scored import ScoredGroup, num_tokens, train_group
from policy.generation.local import Sample, generate
from policy.model.loading import Policy
from policy.model.prompting import encode_completion, encode_prompt
from policy.node.link import NodeLink
from policy.record.metrics import reward_spread
from policy.record.progress import RoundRecord
from policy.record.quarantine import Quarantine, suspect
from policy.rollouts import (
    OwnGroup,
    Question,
    SharedGroup,
    public_model_name,
    publish_requests,
    shareable,
)
from policy.tasks import TaskSource
from policy.update.grpo import Blame, GrpoConfig, UpdateStats, update
from policy.update.off_policy import usable_claims
from shoal_ipc import messages as m
from shoal_wire.manifest import SwarmRules
from shoal_wire.types import (
    FinishReason,
    GroupId,
    PolicyInfo,
    SamplingParams,
)


class Interrupted(Exception):  # noqa: N818 - an order, not a fault
    """The trainer was told to stop; the round so far has had no effect on the weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundConfig:
    """Settings of a round, by SAPO's names."""

    num_local: int
    """I."""
    num_external: int
    """J."""
    num_completions: int
    """L."""
    oversample: int
    """External groups drawn for each one wanted, at most."""
    sampling: SamplingParams
    grpo: GrpoConfig
    seed: int
    advantage_scale: AdvantageScale = "group"
    share_logprobs: bool = False
    """Tell peers how likely each own token was."""
    num_questions: int = 0
    """B: questions asked; with more than I, own groups with signal come first. 0 is I."""
    strategy: ExternalStrategy = field(default_factory=ExternalStrategy)
    """How external groups are chosen."""


@dataclass(slots=True)
class _External:
    """The outcome of SampleExternal."""

    groups: list[ScoredGroup]
    used: list[GroupId]
    drawn: int


@dataclass(slots=True)
class _Drawn:
    """External groups on lease while some of them are being chosen."""

    usable: list[tuple[m.SampledGroup, Question, tuple[float, ...]]] = field(default_factory=list)
    spent: list[GroupId] = field(default_factory=list)
    """Without signal: done with."""
    count: int = 0

    def ids(self) -> list[GroupId]:
        return [item.published.group_id for item, _, _ in self.usable]


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """Who does a round's heavy work: this process, unless others are asked."""

    generate: Callable[..., list[list[Sample]]] = generate
    """Signature of `policy.generation.local.generate`."""
    update: Callable[..., UpdateStats] = update
    """Signature of `policy.update.grpo.update`."""
    answer: Callable[[Sequence[Question], Policy], list[OwnGroup]] | None = None
    """Another program that answers in the policy's place; it may answer fewer questions."""


class Rounds:
    """Plays rounds for one policy. State that outlives a round is the policy's and optimiser's."""

    def __init__(
        self,
        *,
        policy: Policy,
        optimizer: object,
        tasks: TaskSource,
        link: NodeLink,
        rules: SwarmRules,
        config: RoundConfig,
        should_stop: Callable[[], bool],
        reference: Policy | None = None,
        quarantine: Quarantine | None = None,
        means: Means | None = None,
        balance: Balance | None = None,
    ) -> None:
        """`balance` moves I and J from round to round; without one they stay."""
        self._policy = policy
        self._optimizer = optimizer
        self._tasks = tasks
        self._link = link
        self._rules = rules
        self._config = config
        self._should_stop = should_stop
        self._reference = reference
        self._quarantine = quarantine
        self._means = means or Means()
        self._own_record = OwnRecord()
        self.groups_not_shared = 0
        self.balance = balance

    def play(self, round_number: int, policy_version: int) -> tuple[RoundRecord, UpdateStats]:
        """Play one round.

        Raises:
            Interrupted: before the update; nothing has changed but what was shared.
        """
        started = time.perf_counter()
        if self.balance is not None:
            num_local, num_external = self.balance.local, self.balance.external
            self._config = replace(self._config, num_local=num_local, num_external=num_external)
        asked = max(self._config.num_questions, self._config.num_local)
        questions = self._tasks.draw(self._rng(round_number, "tasks"), asked)
        self._check()
        own = self._generate(questions, round_number)
        generated = time.perf_counter()
        self._check()
        self._draw_ahead()
        shared = self._share(own, round_number, policy_version)
        fresh = self._verify_own(own, shared)
        self._check()
        external = self._sample_external()
        local = self._sample_self(fresh)
        training = [*local, *external.groups]
        if self._should_stop():
            self._link.end_leases(released=external.used)
            raise Interrupted
        updating = time.perf_counter()
        groups = [
            train_group(self._policy, group, self._config.strategy, self._config.advantage_scale)
            for group in training
        ]
        stats = self._means.update(
            self._policy, self._optimizer, groups, self._config.grpo, self._reference
        )
        # What memory did not hold once it would not hold again.
        kept = replace(self._config.grpo, token_budget=stats.token_budget)
        self._config = replace(self._config, grpo=kept)
        spoilt = self._set_aside(round_number, training, stats)
        self._link.hold_until_checkpoint([used for used in external.used if used not in spoilt])
        self._rebalance(fresh, external)
        now = time.perf_counter()
        record = _record(round_number, own, fresh, local, external, stats, num_tokens(groups))(
            seconds=now - started,
            seconds_generate=generated - started,
            seconds_update=now - updating,
        )
        return record, stats

    def _rebalance(self, fresh: Sequence[ScoredGroup], external: _External) -> None:
        if self.balance is None:
            return
        signal = sum(has_signal(group.rewards) for group in fresh)
        wanted = self._config.num_external
        self.balance = self.balance.after(
            Seen(
                own_signal=signal / len(fresh) if fresh else None,
                filled=len(external.groups) / wanted if wanted else None,
                drawn=external.drawn / (wanted * self._config.oversample) if wanted else None,
                reward=_mean_reward(fresh),
            )
        )

    def _rng(self, round_number: int, purpose: str) -> random.Random:
        """A generator of its own for each round and purpose, so that a resumed round repeats."""
        return random.Random(_derived_seed(self._config.seed, round_number, purpose))

    def _check(self) -> None:
        if self._should_stop():
            self._link.release_ahead()
            raise Interrupted

    def _generate(self, questions: Sequence[Question], round_number: int) -> list[OwnGroup]:
        if not questions:
            return []
        if self._means.answer is not None:
            return self._means.answer(questions, self._policy)
        generator = torch.Generator()
        generator.manual_seed(_derived_seed(self._config.seed, round_number, "generate"))
        prompts = [encode_prompt(self._policy, q.text, tagged=q.tagged) for q in questions]
        samples = self._means.generate(
            self._policy,
            prompts,
            num_completions=self._config.num_completions,
            params=self._config.sampling,
            generator=generator,
        )
        return [
            OwnGroup(
                question=question,
                answers=tuple(sample.as_answer() for sample in row),
            )
            for question, row in zip(questions, samples, strict=True)
        ]

    def _share(
        self, own: Sequence[OwnGroup], round_number: int, policy_version: int
    ) -> list[SharedGroup | None]:
        """Publish own groups; return what was shared of each, None where nothing was.

        Rewards are not known yet and never leave the node.
        """
        with_logprobs = self._config.share_logprobs
        found = [shareable(group, self._rules, with_logprobs=with_logprobs) for group in own]
        shared = [one for one in found if one is not None]
        self.groups_not_shared += len(found) - len(shared)
        policy = PolicyInfo(
            model_name=public_model_name(self._policy.name),
            tokenizer_digest=self._policy.tokenizer_digest,
            policy_version=policy_version,
        )
        for batch in publish_requests(
            shared, round_number=round_number, policy=policy, sampling=self._config.sampling
        ):
            self._link.share(batch)
        return found

    def _verify_own(
        self, own: Sequence[OwnGroup], shared: Sequence[SharedGroup | None]
    ) -> list[ScoredGroup]:
        rewards = self._tasks.verify_own(own)
        self._report_own(shared, rewards)
        for group, scores in zip(own, rewards, strict=True):
            self._own_record.add(group.question.task.family, scores)
        return [
            ScoredGroup(
                question=group.question,
                completions=tuple(answer.ids for answer in group.answers),
                rewards=tuple(scores),
                external=False,
            )
            for group, scores in zip(own, rewards, strict=True)
        ]

    def _report_own(
        self, shared: Sequence[SharedGroup | None], rewards: Sequence[Sequence[float]]
    ) -> None:
        """Tell this node, and nobody else, what its own shared groups earned."""
        reports = [
            m.GroupReport(
                group_id=one.group_id,
                publisher=self._link.peer_id,
                rewards=tuple(scores[index] for index in one.answers),
            )
            for one, scores in zip(shared, rewards, strict=True)
            if one is not None
        ]
        if reports:
            self._link.report(reports)

    def _sample_self(self, fresh: Sequence[ScoredGroup]) -> list[ScoredGroup]:
        """Of more own groups than I, at most I with signal: the rest would train nothing."""
        if len(fresh) <= self._config.num_local:
            return list(fresh)
        return [group for group in fresh if has_signal(group.rewards)][: self._config.num_local]

    def _draw_ahead(self) -> None:
        """Lease what `_sample_external` asks for first, before the node is busy with own groups."""
        wanted = self._config.num_external
        self._link.lease_ahead(min(2, self._config.oversample) * wanted)

    def _sample_external(self) -> _External:
        """Lease and verify others' groups, choose J by the strategy, end the other leases."""
        wanted, strategy = self._config.num_external, self._config.strategy
        budget = wanted * self._config.oversample
        drawn = _Drawn()
        while len(drawn.usable) < strategy.enough(wanted) and drawn.count < budget:
            if self._should_stop():
                self._link.release_ahead()
                self._link.end_leases(consumed=drawn.spent, released=drawn.ids())
                raise Interrupted
            leased = self._link.sample(min(2 * wanted, budget - drawn.count))
            if not leased:
                break
            self._verify_drawn(leased, drawn)
        candidates = [candidate_of(item.published, rewards) for item, _, rewards in drawn.usable]
        chosen = strategy.choose(candidates, wanted, self._own_record)
        for index in chosen:
            self._own_record.add_trained(candidates[index])
        used = [drawn.ids()[index] for index in chosen]
        spare: list[GroupId] = []
        for index, one in enumerate(candidates):
            if index not in chosen:
                # A copy would only be drawn again.
                done = drawn.spent if strategy.is_spent(one, self._own_record) else spare
                done.append(drawn.ids()[index])
        self._link.end_leases(consumed=drawn.spent, released=spare)
        return _External(
            groups=[self._own_reading(*drawn.usable[index]) for index in chosen],
            used=used,
            drawn=drawn.count,
        )

    def _verify_drawn(self, leased: Sequence[m.SampledGroup], drawn: _Drawn) -> None:
        """Score leased groups and sort them into usable and spent; tell the node what they got."""
        groups = [(g.published.group.task, g.published.group.completions) for g in leased]
        all_rewards = self._tasks.verify(groups)
        questions = self._tasks.questions([task for task, _ in groups])
        drawn.count += len(leased)
        strategy, reports = self._config.strategy, []
        for item, question, rewards in zip(leased, questions, all_rewards, strict=True):
            published = item.published
            texts = [completion.text for completion in published.group.completions]
            if strategy.teaches(rewards, texts, tagged=question.tagged):
                drawn.usable.append((item, question, tuple(rewards)))
            else:
                drawn.spent.append(published.group_id)
            reports.append(
                m.GroupReport(
                    group_id=published.group_id,
                    publisher=published.publisher,
                    rewards=strategy.worth(rewards, texts, tagged=question.tagged),
                )
            )
        self._link.report(reports)

    def _own_reading(
        self, item: m.SampledGroup, question: Question, rewards: Sequence[float]
    ) -> ScoredGroup:
        """Re-encode others' text as if the own policy had produced it (section 3.2)."""
        source = item.published
        completions = source.group.completions
        encoded = [encode_completion(self._policy, c.text, c.finish_reason) for c in completions]
        same_tokenizer = source.policy.tokenizer_digest == self._policy.tokenizer_digest
        return ScoredGroup(
            question=question,
            completions=tuple(map(tuple, encoded)),
            rewards=tuple(rewards),
            external=True,
            source=source,
            claimed=tuple(
                usable_claims(c.logprobs, num_tokens=len(ids), same_tokenizer=same_tokenizer)
                for c, ids in zip(completions, encoded, strict=True)
            ),
        )

    def _set_aside(
        self, round_number: int, training: Sequence[ScoredGroup], stats: UpdateStats
    ) -> set[GroupId]:
        """Quarantine what spoilt a step; return the external groups that are done with for it.

        When the weights are at fault the groups stay innocent and may be trained on again.
        """
        spoilt: set[GroupId] = set()
        for step in stats.nonfinite:
            groups = [training[index] for index in step.groups]
            if self._quarantine is not None:
                self._quarantine.add(
                    round_number=round_number,
                    blame=step.blame,
                    suspects=[suspect(g.question.task, g.completions, g.source) for g in groups],
                )
            if step.blame is not Blame.WEIGHTS:
                spoilt.update(g.source.group_id for g in groups if g.source is not None)
        self._link.end_leases(consumed=sorted(spoilt))
        return spoilt


def _derived_seed(seed: int, round_number: int, purpose: str) -> int:
    text = f"{seed}/{round_number}/{purpose}".encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "big") >> 1


def _record(
    round_number: int,
    own: Sequence[OwnGroup],
    fresh: Sequence[ScoredGroup],
    local: Sequence[ScoredGroup],
    external: _External,
    stats: UpdateStats,
    tokens_seen: int,
) -> Callable[..., RoundRecord]:
    training = [*local, *external.groups]
    answers = [answer for group in own for answer in group.answers]
    lengths = [len(answer.ids) for answer in answers]
    spread = reward_spread([group.rewards for group in training])

    def finish(*, seconds: float, seconds_generate: float, seconds_update: float) -> RoundRecord:
        return RoundRecord(
            round=round_number,
            reward=_mean_reward(training),
            reward_local=_mean_reward(fresh),
            reward_external=_mean_reward(external.groups),
            reward_std=spread.std,
            frac_reward_zero_std=spread.zero_share,
            groups_local=len(local),
            groups_external=len(external.groups),
            groups_with_signal=sum(has_signal(group.rewards) for group in training),
            external_drawn=external.drawn,
            loss=stats.loss,
            grad_norm=stats.grad_norm,
            entropy=stats.entropy,
            clip_fraction=stats.clip_fraction_low + stats.clip_fraction_high,
            clip_fraction_low=stats.clip_fraction_low,
            clip_fraction_high=stats.clip_fraction_high,
            ratio_mean=stats.ratio_mean,
            ratio_max=stats.ratio_max,
            kl=stats.kl,
            external_logprob=stats.external.logprob_mean,
            external_claimed_share=stats.external.claimed_share,
            external_weight_mean=stats.external.weight_mean,
            external_truncated_share=stats.external.truncated_share,
            external_unlikely_share=stats.external.unlikely_share,
            steps_no_signal=stats.skipped_no_signal,
            steps_nonfinite=stats.skipped_nonfinite,
            token_budget=stats.token_budget,
            num_tokens=stats.num_tokens,
            tokens_seen=tokens_seen,
            tokens_generated=sum(lengths),
            completion_mean_length=sum(lengths) / len(lengths) if lengths else None,
            completion_min_length=min(lengths, default=None),
            completion_max_length=max(lengths, default=None),
            completion_clipped_ratio=(
                sum(a.finish_reason is FinishReason.LENGTH for a in answers) / len(answers)
                if answers
                else None
            ),
            seconds=seconds,
            seconds_generate=seconds_generate,
            seconds_update=seconds_update,
        )

    return finish


def _mean_reward(groups: Sequence[ScoredGroup]) -> float | None:
    rewards = [reward for group in groups for reward in group.rewards]
    return sum(rewards) / len(rewards) if rewards else None
