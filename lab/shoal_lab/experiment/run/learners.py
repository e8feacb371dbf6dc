"""Training methods that are compared with shoal's and are not among a node's settings.

    answers    supervised fine-tuning on the right answers of own questions, alone
    hacpo      HACPO's method (arXiv 2603.02604, 3.1 to 3.4), without claims of its senders

Each runs a node's rounds (`shoal_policy.sapo`) with one or two steps replaced.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import torch

from shoal_policy.choice.scored import ExternalSample, ScoredGroup, TrainingSet
from shoal_policy.model.prompting import prompt_ids
from shoal_policy.model.retokenized import retokenize
from shoal_policy.rollouts import OwnGroup, Question
from shoal_policy.round.config import Round
from shoal_policy.sapo import RoundRunner
from shoal_policy.update.grpo import UpdateStats
from shoal_policy.update.logprobs import completion_logprobs
from shoal_policy.update.rows import TrainGroup, TrainingRow
from shoal_policy.update.training_set import build_train_group
from shoal_tasks.prompts import answer_text
from shoal_tasks.worker.sync import SyncTaskWorker
from shoal_wire.types import Completion, FinishReason

LATELY: Final = 20
"""Groups in the average of a capability or a likelihood: HACPO's five batches of four."""
LEAST: Final = 0.05
"""Smallest capability that another is divided by. A guess."""
MOST: Final = 2.0
"""Greatest ratio of two capabilities, and the inverse of the least. A guess."""
DROPPED: Final = 1.0 - 0.8 + 0.025 / 2
"""Likelihood below which external text is dropped: 1 − δ of the paper, in the middle of its rise
over two minibatches."""
POWER: Final = 2.0
"""Power of the likelihood that weights external text: the ratio itself and the paper's α = 1."""


class AnswerKeys(RoundRunner):
    """Supervised fine-tuning: one right answer to each local question, in as many steps.

    By the same update: a group of one completion with advantage 1, which at a ratio of 1 is the
    gradient of its mean log-likelihood. Nothing is generated, shared or sampled.
    """

    def __init__(self, worker: SyncTaskWorker, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._worker = worker
        self._right: list[TrainGroup] = []

    def _generate(self, round_: Round, questions: Sequence[Question]) -> list[OwnGroup]:
        items = self._worker.items([one.coordinates for one in questions])
        answered = [
            self._group(round_, question, item.answer)
            for question, item in zip(questions, items, strict=True)
            if item.answer
        ]
        self._right = [group for group in answered if group is not None]
        return []

    def _group(self, round_: Round, question: Question, answer: str) -> TrainGroup | None:
        """Return the right answer as a group of one; None if the model cannot generate it."""
        text = answer_text(answer, tagged=question.tagged)
        right = Completion(text=text, num_tokens=1, finish_reason=FinishReason.STOP)
        max_tokens = round_.config.sampling.max_new_tokens + 1
        found = retokenize(self._policy, right, question.tagged, max_tokens)
        if found is None:
            return None
        prompt = prompt_ids(self._policy, question)
        return TrainGroup(
            prompt_ids=prompt,
            num_shared=self._policy.few_shot.num_shared(prompt),
            completions=[found.ids],
            advantages=[1.0],
            external=False,
        )

    def _sample(self, round_: Round, fresh: Sequence[ScoredGroup]) -> TrainingSet:
        return TrainingSet(local=(), external=ExternalSample(groups=(), num_verified=0))

    def _update(self, round_: Round, training: TrainingSet) -> tuple[list[TrainGroup], UpdateStats]:
        return [], self._updated(round_, self._right)

    def _updated(self, round_: Round, groups: Sequence[TrainGroup]) -> UpdateStats:
        learner = self._train_state
        return self._backend.update(
            learner.policy, learner.optimizer, groups, round_.config.grpo, learner.reference
        )


class Hacpo(RoundRunner):
    """HACPO's four parts, by family, since nodes have different questions.

    Capability P: recent mean reward in the family, of local groups and, as this node verified them,
    of each publisher's. External advantage: (reward − r × the group's mean) / spread, divided by r
    = P_own / P_publisher. Weight: s^2, and 0 below `DROPPED`, where s, at most 1, is the text's
    likelihood under this policy relative to its own answers of the family: geometric means per
    token.

    Approximated: the paper compares all agents' answers to one question, measures capability over
    all tasks and s by the log-probability that the sender claims, which does not carry over to
    another tokenizer and which an unknown peer can forge. It also trains on groups that are all
    right.
    """

    def __init__(self, _worker: SyncTaskWorker, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._likely = _recent()
        """Mean log-probability per token of local groups, by family."""
        self._capable = _recent()
        """Mean rewards of groups, by publisher (empty for this node) and family."""

    def _update(self, round_: Round, training: TrainingSet) -> tuple[list[TrainGroup], UpdateStats]:
        for group in training.local:
            self._note(group)
        config, learner = round_.config, self._train_state
        made = [
            build_train_group(
                *(learner.policy, group, config.strategy, config.advantage_scale),
                config.num_completions,
            )
            for group in training.groups
        ]
        made = [
            self._weighed(group, one, config.grpo.temperature) if group.external else one
            for group, one in zip(training.groups, made, strict=True)
        ]
        stats = self._backend.update(
            learner.policy, learner.optimizer, made, config.grpo, learner.reference
        )
        return made, stats

    def _note(self, group: ScoredGroup) -> None:
        family = group.question.task.family
        self._capable["", family].append(statistics.fmean(group.rewards))
        means = [statistics.fmean(one) for one in group.start_logprobs or () if one]
        if means:
            self._likely["", family].append(statistics.fmean(means))

    def _weighed(self, group: ScoredGroup, made: TrainGroup, temperature: float) -> TrainGroup:
        """Return an external group with its advantages and weights."""
        assert group.source is not None
        family, mean = group.question.task.family, statistics.fmean(group.rewards)
        theirs = self._capable[group.source.publisher, family]
        theirs.append(mean)
        ratio = capability_ratio(self._capable["", family], theirs)
        spread = statistics.stdev(group.rewards) + 1e-4
        advantages = [(reward - ratio * mean) / spread / ratio for reward in group.rewards]
        own = self._likely["", family]
        found = self._means_of(made, temperature) if own else []
        weights = [weight_of(one - statistics.fmean(own)) for one in found] or [1.0] * len(
            advantages
        )
        return replace(made, advantages=[a * w for a, w in zip(advantages, weights, strict=True)])

    def _means_of(self, made: TrainGroup, temperature: float) -> list[float]:
        """Return each completion's mean log-probability per token under this policy, before the
        update."""
        rows = [
            TrainingRow(
                group=0,
                prompt_ids=made.prompt_ids,
                completion_ids=ids,
                advantage=0.0,
                external=True,
            )
            for ids in made.completions
        ]
        with torch.no_grad():
            found = completion_logprobs(self._policy, rows, temperature=temperature).logprobs
        return [
            float(part.mean())
            for part in found.split([len(row.completion_positions) for row in rows])
        ]


def capability_ratio(own: Sequence[float], theirs: Sequence[float]) -> float:
    """Return P_own / P_publisher, within `MOST` and its inverse."""
    p_own, p_theirs = (max(LEAST, statistics.fmean(one)) if one else LEAST for one in (own, theirs))
    return min(MOST, max(1 / MOST, p_own / p_theirs))


def weight_of(log_likelihood: float) -> float:
    """Return a completion's weight by its likelihood relative to own answers, in nats per token."""
    likelihood = math.exp(min(0.0, log_likelihood))
    return 0.0 if likelihood < DROPPED else likelihood**POWER


def _recent() -> dict[tuple[str, str], deque[float]]:
    return defaultdict(lambda: deque(maxlen=LATELY))


Learning = Callable[..., RoundRunner]
"""Takes the task worker, then the arguments of `RoundRunner`."""
LEARNERS: Final[Mapping[str, Learning]] = {"answers": AnswerKeys, "hacpo": Hacpo}
"""Methods by name, as in `NodeSpec.learner`."""
