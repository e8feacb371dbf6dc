"""Watches whether a training learns, and says when it does not. No tensors.

round ──▶ `shoal_policy.record.learning` ──▶ begun, over ─▶ one line to the console
                   │             └──▶ what stands ─▶ the node: `status` and `doctor`
                   └── own answers earn nothing: one of them beside the expected one
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from shoal_ipc.answers.learning import Learning
from shoal_policy.record.learning import Check, TrainingHistory
from shoal_policy.record.progress import RoundRecord
from shoal_policy.record.wrong_answer import ZeroRewardAnswer, commonest
from shoal_policy.rollouts import OwnGroup
from shoal_policy.tasks import TaskSource
from shoal_tasks.errors import TaskError
from shoal_wire.types import FinishReason

log = logging.getLogger(__name__)


class TrainingMonitor:
    """One course under watch."""

    def __init__(
        self, tasks: TaskSource, *, on_news: Callable[[str], None], trains: bool = True
    ) -> None:
        """`on_news` takes a line when a finding begins or ends."""
        self._learning = TrainingHistory(trains=trains)
        self._tasks, self._on_news = tasks, on_news
        self._said: set[Check] = set()

    def after_round(
        self, record: RoundRecord, own: Sequence[OwnGroup], rewards: Sequence[Sequence[float]]
    ) -> None:
        """Take in a round with its own answers."""
        learning = self._learning
        learning.after(record)
        if learning.wants_example and (wrong := commonest(self._unrewarded(own, rewards))):
            learning.show(wrong)
        if self._said == set(learning.standing):
            return
        for check in sorted(self._said - set(learning.standing)):
            self._on_news(f"learning: over: {check.replace('-', ' ')}")
        for one in learning.findings():
            if one.check not in self._said:
                shown = f"; {one.example}" if one.example else ""
                self._on_news(f"learning: {one.message}{shown}. What to do: {one.remedy}")
        self._said = set(learning.standing)

    def view(self) -> Learning:
        """Return the report to the node."""
        return self._learning.view()

    def _unrewarded(
        self, own: Sequence[OwnGroup], rewards: Sequence[Sequence[float]]
    ) -> list[ZeroRewardAnswer]:
        return [
            ZeroRewardAnswer(
                question=group.question.text,
                expected=expected,
                answer=answer.text,
                cut=answer.finish_reason is FinishReason.LENGTH,
                tagged=group.question.tagged,
            )
            for group, earned, expected in zip(own, rewards, self._expected(own), strict=True)
            for answer, reward in zip(group.answers, earned, strict=True)
            if not reward
        ]

    def _expected(self, own: Sequence[OwnGroup]) -> list[str | None]:
        try:
            return self._tasks.expected([group.question.task for group in own])
        except TaskError as error:
            log.debug("expected answers are not known: %s", error)
            return [None] * len(own)
