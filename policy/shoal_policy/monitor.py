"""Monitors whether a run learns, and reports when it does not. No tensors.

round ──▶ `shoal_policy.record.learning` ──▶ begun, resolved ─▶ one line to the console
                   │             └──▶ active alarms ─▶ the node: `status` and `doctor`
                   └── own answers earn nothing: one of them with the expected answer
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from shoal_ipc.answers.learning import Learning
from shoal_policy.record.learning import Check, TrainingHistory
from shoal_policy.record.progress import RoundRecord
from shoal_policy.record.wrong_answer import ZeroRewardAnswer, pick_example
from shoal_policy.rollouts import OwnGroup
from shoal_policy.tasks import TaskSource
from shoal_tasks.errors import TaskError
from shoal_wire.types import FinishReason

log = logging.getLogger(__name__)


class TrainingMonitor:
    """The alarms of one run."""

    def __init__(
        self, tasks: TaskSource, *, on_alarm: Callable[[str], None], trains: bool = True
    ) -> None:
        """`on_alarm` receives a line when an alarm begins or is resolved."""
        self._learning = TrainingHistory(trains=trains)
        self._tasks, self._on_news = tasks, on_alarm
        self._active: set[Check] = set()

    def after_round(
        self, record: RoundRecord, own: Sequence[OwnGroup], rewards: Sequence[Sequence[float]]
    ) -> None:
        """Record a round with its own answers."""
        learning = self._learning
        learning.add(record)
        if learning.needs_example and (
            wrong := pick_example(self._zero_reward_answers(own, rewards))
        ):
            learning.set_example(wrong)
        if self._active == set(learning.active):
            return
        for check in sorted(self._active - set(learning.active)):
            self._on_news(f"learning: resolved: {check.replace('-', ' ')}")
        for one in learning.findings():
            if one.check not in self._active:
                shown = f"; {one.example}" if one.example else ""
                self._on_news(f"learning: {one.message}{shown}. What to do: {one.remedy}")
        self._active = set(learning.active)

    def view(self) -> Learning:
        """Return the report to the node."""
        return self._learning.view()

    def _zero_reward_answers(
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
            log.debug("expected answers unknown: %s", error)
            return [None] * len(own)
