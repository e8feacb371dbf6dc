"""One round of SAPO (arXiv 2509.08721, Algorithm 1), legible beside the paper.

    1  questions  = SampleBatch(B)                        B = I unless asked for more
    2  own        = L completions of each question
    3  share(own)                                         before any reward is computed
    4  training   = SampleSelf(own, I) ∪ SampleExternal(J)        by `shoal_policy.choice.strategy`
    5  rewards by the own verifier; advantages; one GRPO update

Nothing waits for anybody: with no node, or an empty buffer, the round trains on what it has.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from shoal_ipc import messages as m
from shoal_policy.backend import LOCAL_BACKEND, Backend
from shoal_policy.choice.advantage import has_signal
from shoal_policy.choice.scored import ScoredGroup, TrainingSet
from shoal_policy.generation.generator import GenerationRequest, Generator
from shoal_policy.generation.local import generate
from shoal_policy.generation.local_generator import LocalGenerator
from shoal_policy.model.loading import Policy
from shoal_policy.record.phases import Phase
from shoal_policy.record.progress import RoundRecord
from shoal_policy.rollouts import (
    OwnGroup,
    Question,
    SharedGroup,
    public_model_name,
    publish_requests,
    shareable,
)
from shoal_policy.round.config import Round, RoundConfig
from shoal_policy.round.external import ExternalSampling
from shoal_policy.round.learnt import outcomes
from shoal_policy.round.own import own_scored
from shoal_policy.round.record import record_of
from shoal_policy.trainer_context import Interrupted, TrainerContext
from shoal_policy.update.grpo import NonFiniteCause, TrainGroup, UpdateStats
from shoal_policy.update.training_set import num_tokens, train_group
from shoal_wire.types import GroupId, PolicyInfo

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainState:
    """The policy that rounds train. Weights and optimiser change in place."""

    policy: Policy
    optimizer: Any
    reference: Policy | None = None
    """The policy that the KL term measures from; None where there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundOutcome:
    """The result of a round, beside changed weights."""

    record: RoundRecord
    stats: UpdateStats
    num_not_shared: int
    """Own groups of which too little was fit to be shared."""
    own: Sequence[OwnGroup]
    own_rewards: Sequence[Sequence[float]]
    """Rewards of the answers of `own`."""
    learnt: Sequence[m.GroupOutcome]
    """The fate of every group that the round had."""


class RoundRunner:
    """Plays rounds for one learner, and remembers from each what the next is to know."""

    def __init__(
        self,
        learner: TrainState,
        around: TrainerContext,
        config: RoundConfig,
        *,
        means: Backend = LOCAL_BACKEND,
    ) -> None:
        self._learner, self._policy, self._config = learner, learner.policy, config
        self._tasks, self._link, self._rules = around.tasks, around.link, around.rules
        self._should_stop, self._phases = around.should_stop, around.phases
        self._generator: Generator = LocalGenerator(means.generate)
        if means.generator is not None:
            self._generator = means.generator(learner.policy)
        self._means = means
        self._others = ExternalSampling(learner.policy, around)

    def play(self, number: int, policy_version: int) -> RoundOutcome:
        """Play one round.

        Raises:
            Interrupted: before the update; nothing has changed but what was shared.
        """
        started = time.perf_counter()
        this = Round(number=number, policy_version=policy_version, config=self._config)
        questions = self._draw(this)  # 1
        own = self._generate(this, questions)  # 2
        generated = time.perf_counter()
        shared = self._share(this, own)  # 3
        self._phases.enter(Phase.SCORING, round=number)
        fresh = self._verify_own(this, own, shared)
        self._phases.enter(Phase.SAMPLING, round=number)
        training = self._sample(this, fresh)  # 4
        updating = time.perf_counter()
        self._phases.enter(Phase.UPDATING, round=number)
        groups, stats = self._update(this, training)  # 5
        self._remember(this, training, stats)
        spoilt = {index for step in stats.nonfinite for index in step.groups}
        learnt = tuple(outcomes(fresh, shared, training, groups, spoilt))
        self._link.report_outcomes(number, learnt)
        now = time.perf_counter()
        record = record_of(
            number,
            training,
            own=own,
            fresh=fresh,
            stats=stats,
            server_logp_difference=self._generator.server_logp_difference,
            tokens_seen=num_tokens(groups),
            rewards_out_of_range=self._tasks.take_num_out_of_range(),
            seconds=now - started,
            seconds_generate=generated - started,
            seconds_update=now - updating,
        )
        return RoundOutcome(
            record=record,
            stats=stats,
            num_not_shared=shared.count(None),
            own=own,
            own_rewards=[group.rewards for group in fresh],
            learnt=learnt,
        )

    def _stop_if_told(self) -> None:
        if self._should_stop():
            self._link.release_ahead()
            raise Interrupted

    def _draw(self, this: Round) -> list[Question]:
        asked = max(this.config.num_questions, this.config.num_local)
        return self._tasks.draw(this.rng("tasks"), asked)

    def _generate(self, this: Round, questions: Sequence[Question]) -> list[OwnGroup]:
        self._stop_if_told()
        if not questions:
            return []
        wanted = len(questions) * this.config.num_completions
        self._phases.enter(Phase.GENERATING, round=this.number, of=wanted)
        return self._generator.answer(
            GenerationRequest(
                questions=questions,
                policy=self._policy,
                policy_version=this.policy_version,
                num_completions=this.config.num_completions,
                sampling=this.config.sampling,
                seed=this.seed("generate"),
                play=self._tasks.play,
                on_step=self._on_step,
            )
        )

    def _on_step(self, done: int, fraction: float) -> None:
        self._phases.step(done, fraction)
        # Processes that share the work go on together.
        if self._means.generate is generate and self._means.generator is None:
            self._stop_if_told()

    def _share(self, this: Round, own: Sequence[OwnGroup]) -> list[SharedGroup | None]:
        """Publish own groups; return what was shared of each, None where nothing was.

        Rewards are not known yet and never leave the node.
        """
        self._stop_if_told()
        self._others.lease_ahead(this.config)
        shared = [shareable(group, self._rules) for group in own]
        policy = PolicyInfo(
            model_name=public_model_name(self._policy.name),
            tokenizer_digest=self._policy.tokenizer_digest,
            policy_version=this.policy_version,
        )
        # One program answers a round, with one version of its weights.
        policy = next((group.author for group in own if group.author is not None), policy)
        for batch in publish_requests(
            [one for one in shared if one is not None],
            round_number=this.number,
            policy=policy,
            sampling=this.config.sampling,
        ):
            self._link.share(batch)
        return shared

    def _verify_own(
        self, this: Round, own: Sequence[OwnGroup], shared: Sequence[SharedGroup | None]
    ) -> list[ScoredGroup]:
        rewards = self._tasks.verify_own(own)
        self._report_own(shared, rewards)
        return [
            own_scored(self._policy, group, scores, this.config.sampling)
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

    def _sample(self, this: Round, fresh: Sequence[ScoredGroup]) -> TrainingSet:
        self._stop_if_told()
        external = self._others.sample(this.config)
        return TrainingSet(local=_sample_self(fresh, this.config.num_local), external=external)

    def _update(self, this: Round, training: TrainingSet) -> tuple[list[TrainGroup], UpdateStats]:
        if self._should_stop():
            self._link.end_leases(released=training.external.ids)
            raise Interrupted
        config, learner = this.config, self._learner
        groups = [
            train_group(
                learner.policy,
                group,
                config.strategy,
                config.advantage_scale,
                config.num_completions,
            )
            for group in training.groups
        ]
        stats = self._means.update(
            learner.policy, learner.optimizer, groups, config.grpo, learner.reference
        )
        return groups, stats

    def _remember(self, this: Round, training: TrainingSet, stats: UpdateStats) -> None:
        """Keep the used groups until the next checkpoint, and the token budget for the next round.

        A budget that memory did not hold once it would not hold again.
        """
        grpo = replace(this.config.grpo, token_budget=stats.token_budget)
        self._config = replace(this.config, grpo=grpo)
        spoilt = self._set_aside(this.number, training.groups, stats)
        self._link.hold_until_checkpoint([i for i in training.external.ids if i not in spoilt])

    def _set_aside(
        self, round_number: int, training: Sequence[ScoredGroup], stats: UpdateStats
    ) -> set[GroupId]:
        """Say what spoilt a step; return the external groups that are done with for it.

        When the weights are at fault the groups stay innocent and may be trained on again.
        """
        spoilt: set[GroupId] = set()
        for step in stats.nonfinite:
            groups = [training[index] for index in step.groups]
            named = [
                "this node"
                if (one := group.source) is None
                else f"{one.publisher} ({one.group_id.hex()})"
                for group in groups
            ]
            log.warning(
                "round %d: an update was not finite (blame: %s) and is left out; groups by %s",
                round_number,
                step.blame,
                ", ".join(sorted({*named})) or "nobody",
            )
            if step.blame is not NonFiniteCause.WEIGHTS:
                spoilt.update(g.source.group_id for g in groups if g.source is not None)
        self._link.end_leases(consumed=sorted(spoilt))
        return spoilt


def _sample_self(fresh: Sequence[ScoredGroup], num_local: int) -> tuple[ScoredGroup, ...]:
    """Return own groups; of more than I, at most I with signal. The rest train nothing."""
    if len(fresh) <= num_local:
        return tuple(fresh)
    return tuple(group for group in fresh if has_signal(group.rewards))[:num_local]
