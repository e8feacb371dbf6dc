"""One round of SAPO (arXiv 2509.08721, Algorithm 1), readable next to the paper.

    1  questions  = SampleBatch(B)                        B = I by default
    2  own        = L completions of each question
    3  share(own)                                         before any reward is computed
    4  training   = SampleSelf(own, I) ∪ SampleExternal(J)        by `shoal_policy.choice.strategy`
    5  rewards by this node's verifier; advantages; one GRPO update

A round never waits for peers: without a node, or with an empty buffer, it trains on what it has.
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
from shoal_policy.round.external import ExternalSampler
from shoal_policy.round.outcomes import build_outcomes
from shoal_policy.round.own import to_scored_group
from shoal_policy.round.record import build_record
from shoal_policy.trainer_context import Interrupted, TrainerContext
from shoal_policy.update.grpo import NonFiniteCause, TrainGroup, UpdateStats
from shoal_policy.update.training_set import build_train_group, count_tokens
from shoal_wire.types import GroupId, PolicyInfo

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainState:
    """A policy in training with its optimiser. Both change in place."""

    policy: Policy
    optimizer: Any
    reference: Policy | None = None
    """The policy that the KL term measures from; None without a KL term."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundOutcome:
    """The result of a round, in addition to the changed weights."""

    record: RoundRecord
    stats: UpdateStats
    num_not_shared: int
    """Own groups with too few completions that peers accept."""
    own: Sequence[OwnGroup]
    own_rewards: Sequence[Sequence[float]]
    """Rewards of the answers of `own`."""
    outcomes: Sequence[m.GroupOutcome]
    """The outcome of every group of the round."""


class RoundRunner:
    """Runs rounds for one policy, and carries state from each to the next."""

    def __init__(
        self,
        train_state: TrainState,
        context: TrainerContext,
        config: RoundConfig,
        *,
        backend: Backend = LOCAL_BACKEND,
    ) -> None:
        self._train_state, self._policy, self._config = train_state, train_state.policy, config
        self._tasks, self._link, self._rules = context.tasks, context.link, context.rules
        self._should_stop, self._phases = context.should_stop, context.phases
        self._generator: Generator = LocalGenerator(backend.generate)
        if backend.generator is not None:
            self._generator = backend.generator(train_state.policy)
        self._backend = backend
        self._external = ExternalSampler(train_state.policy, context)

    def run_round(self, number: int, policy_version: int) -> RoundOutcome:
        """Run one round.

        Raises:
            Interrupted: before the update; nothing has changed except what was shared.
        """
        started = time.perf_counter()
        round_ = Round(number=number, policy_version=policy_version, config=self._config)
        questions = self._sample_tasks(round_)  # 1
        own = self._generate(round_, questions)  # 2
        generated = time.perf_counter()
        shared = self._share(round_, own)  # 3
        self._phases.enter(Phase.SCORING, round=number)
        fresh = self._verify_own(round_, own, shared)
        self._phases.enter(Phase.SAMPLING, round=number)
        training = self._sample(round_, fresh)  # 4
        updating = time.perf_counter()
        self._phases.enter(Phase.UPDATING, round=number)
        groups, stats = self._update(round_, training)  # 5
        self._hold_used_groups(round_, training, stats)
        nonfinite = {index for step in stats.nonfinite for index in step.groups}
        outcomes = tuple(build_outcomes(fresh, shared, training, groups, nonfinite))
        self._link.report_outcomes(number, outcomes)
        now = time.perf_counter()
        record = build_record(
            number,
            training,
            own=own,
            fresh=fresh,
            stats=stats,
            server_logp_difference=self._generator.server_logp_difference,
            tokens_seen=count_tokens(groups),
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
            outcomes=outcomes,
        )

    def _raise_if_stopped(self) -> None:
        if self._should_stop():
            self._link.release_ahead()
            raise Interrupted

    def _sample_tasks(self, round_: Round) -> list[Question]:
        count = max(round_.config.num_questions, round_.config.num_local)
        return self._tasks.draw(round_.rng("tasks"), count)

    def _generate(self, round_: Round, questions: Sequence[Question]) -> list[OwnGroup]:
        self._raise_if_stopped()
        if not questions:
            return []
        wanted = len(questions) * round_.config.num_completions
        self._phases.enter(Phase.GENERATING, round=round_.number, of=wanted)
        return self._generator.generate(
            GenerationRequest(
                questions=questions,
                policy=self._policy,
                policy_version=round_.policy_version,
                num_completions=round_.config.num_completions,
                sampling=round_.config.sampling,
                seed=round_.seed("generate"),
                play=self._tasks.play,
                on_step=self._on_step,
            )
        )

    def _on_step(self, done: int, fraction: float) -> None:
        self._phases.step(done, fraction)
        # Ranks that share the work must continue together.
        if self._backend.generate is generate and self._backend.generator is None:
            self._raise_if_stopped()

    def _share(self, round_: Round, own: Sequence[OwnGroup]) -> list[SharedGroup | None]:
        """Publish own groups; return what was shared of each, None where nothing was.

        Rewards are not known yet and never leave the node.
        """
        self._raise_if_stopped()
        self._external.lease_ahead(round_.config)
        shared = [shareable(group, self._rules) for group in own]
        policy = PolicyInfo(
            model_name=public_model_name(self._policy.name),
            tokenizer_digest=self._policy.tokenizer_digest,
            policy_version=round_.policy_version,
        )
        # All answers of a round come from one program, with one version of its weights.
        policy = next((group.author for group in own if group.author is not None), policy)
        for batch in publish_requests(
            [one for one in shared if one is not None],
            round_number=round_.number,
            policy=policy,
            sampling=round_.config.sampling,
        ):
            self._link.share(batch)
        return shared

    def _verify_own(
        self, round_: Round, own: Sequence[OwnGroup], shared: Sequence[SharedGroup | None]
    ) -> list[ScoredGroup]:
        rewards = self._tasks.verify_own(own)
        self._report_own(shared, rewards)
        return [
            to_scored_group(self._policy, group, scores, round_.config.sampling)
            for group, scores in zip(own, rewards, strict=True)
        ]

    def _report_own(
        self, shared: Sequence[SharedGroup | None], rewards: Sequence[Sequence[float]]
    ) -> None:
        """Report to this node alone the rewards of its own shared groups."""
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

    def _sample(self, round_: Round, fresh: Sequence[ScoredGroup]) -> TrainingSet:
        self._raise_if_stopped()
        external = self._external.sample(round_.config)
        return TrainingSet(local=_sample_self(fresh, round_.config.num_local), external=external)

    def _update(self, round_: Round, training: TrainingSet) -> tuple[list[TrainGroup], UpdateStats]:
        if self._should_stop():
            self._link.end_leases(released=training.external.ids)
            raise Interrupted
        config, train_state = round_.config, self._train_state
        groups = [
            build_train_group(
                train_state.policy,
                group,
                config.strategy,
                config.advantage_scale,
                config.num_completions,
            )
            for group in training.groups
        ]
        stats = self._backend.update(
            train_state.policy, train_state.optimizer, groups, config.grpo, train_state.reference
        )
        return groups, stats

    def _hold_used_groups(self, round_: Round, training: TrainingSet, stats: UpdateStats) -> None:
        """Hold the used groups until the next checkpoint, and keep the token budget.

        A budget that ran out of memory once would do so again.
        """
        grpo = replace(round_.config.grpo, token_budget=stats.token_budget)
        self._config = replace(round_.config, grpo=grpo)
        nonfinite = self._consume_nonfinite(round_.number, training.groups, stats)
        self._link.hold_until_checkpoint([i for i in training.external.ids if i not in nonfinite])

    def _consume_nonfinite(
        self, round_number: int, training: Sequence[ScoredGroup], stats: UpdateStats
    ) -> set[GroupId]:
        """Log what made steps non-finite; return the external groups to consume for it.

        If the weights are at fault, the groups are not and may be trained on again.
        """
        nonfinite: set[GroupId] = set()
        for step in stats.nonfinite:
            groups = [training[index] for index in step.groups]
            named = [
                "this node"
                if (one := group.source) is None
                else f"{one.publisher} ({one.group_id.hex()})"
                for group in groups
            ]
            log.warning(
                "round %d: skipped a non-finite update step (cause: %s); groups by %s",
                round_number,
                step.cause,
                ", ".join(sorted({*named})) or "no node",
            )
            if step.cause is not NonFiniteCause.WEIGHTS:
                nonfinite.update(g.source.group_id for g in groups if g.source is not None)
        self._link.end_leases(consumed=sorted(nonfinite))
        return nonfinite


def _sample_self(fresh: Sequence[ScoredGroup], num_local: int) -> tuple[ScoredGroup, ...]:
    """Return own groups; of more than I, at most I with signal (the rest would train nothing)."""
    if len(fresh) <= num_local:
        return tuple(fresh)
    return tuple(group for group in fresh if has_signal(group.rewards))[:num_local]
