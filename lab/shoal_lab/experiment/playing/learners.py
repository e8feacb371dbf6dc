"""Ways of learning that are compared with shoal's and are none of a node's settings.

    answers    supervised fine-tuning on the right answers of own questions, alone

Each is a node's rounds (`shoal_policy.sapo`) but for one or two steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from shoal_policy.choice.scored import External, ScoredGroup, TrainingSet
from shoal_policy.model.prompting import prompt_ids
from shoal_policy.model.reading import own_reading
from shoal_policy.rollouts import OwnGroup, Question
from shoal_policy.round.config import Round
from shoal_policy.sapo import Rounds
from shoal_policy.update.grpo import UpdateStats
from shoal_policy.update.rows import TrainGroup
from shoal_tasks.prompts import answer_text
from shoal_tasks.worker.sync import TaskWorker
from shoal_wire.types import Completion, FinishReason


class Answers(Rounds):
    """Supervised fine-tuning: one right answer to each own question, in as many steps.

    By the same update: a group of one completion with advantage 1, which at a ratio of 1 is the
    gradient of its mean log-likelihood. Nothing is generated, shared or drawn.
    """

    def __init__(self, worker: TaskWorker, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._worker = worker
        self._right: list[TrainGroup] = []

    def _generate(self, this: Round, questions: Sequence[Question]) -> list[OwnGroup]:
        items = self._worker.items([one.coordinates for one in questions])
        answered = [
            self._group(this, question, item.answer)
            for question, item in zip(questions, items, strict=True)
            if item.answer
        ]
        self._right = [group for group in answered if group is not None]
        return []

    def _group(self, this: Round, question: Question, answer: str) -> TrainGroup | None:
        """Return the right answer as a group of one; None where the model cannot say it."""
        text = answer_text(answer, tagged=question.tagged)
        right = Completion(text=text, num_tokens=1, finish_reason=FinishReason.STOP)
        room = this.config.sampling.max_new_tokens + 1
        found = own_reading(self._policy, right, question.tagged, room)
        if found is None:
            return None
        prompt = prompt_ids(self._policy, question)
        return TrainGroup(
            prompt_ids=prompt,
            num_shared=self._policy.shots.num_shared(prompt),
            completions=[found.ids],
            advantages=[1.0],
            external=False,
        )

    def _sample(self, this: Round, fresh: Sequence[ScoredGroup]) -> TrainingSet:
        return TrainingSet(local=(), external=External(groups=(), num_drawn=0))

    def _update(self, this: Round, training: TrainingSet) -> tuple[list[TrainGroup], UpdateStats]:
        return [], self._updated(this, self._right)

    def _updated(self, this: Round, groups: Sequence[TrainGroup]) -> UpdateStats:
        learner = self._learner
        return self._means.update(
            learner.policy, learner.optimizer, groups, this.config.grpo, learner.reference
        )


Learning = Callable[..., Rounds]
"""Given the task worker, and then as `Rounds`."""
LEARNERS: Final[Mapping[str, Learning]] = {"answers": Answers}
"""The names that `NodeSpec.learner` may have."""
