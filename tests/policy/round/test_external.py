"""What is drawn again is not verified again, and no round is another for it."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from shoal_ipc import messages as m
from shoal_ipc.skip_reason import SkipReason
from shoal_policy.node.link import NodeLink
from shoal_policy.rollouts import Question
from shoal_policy.round import external
from shoal_policy.round.external import ExternalSampler
from shoal_policy.tasks import MissingReward, TaskSource
from shoal_tasks.types import Split
from shoal_tasks.wire_tasks import coordinates_of
from shoal_wire.types import Completion, GroupId, PublishedGroup, Task
from tests.policy import training_cases as case
from tests.support import factories as make

ROUNDS = 6


class BufferLink(NodeLink):
    """A node with these groups, whose leases end on request."""

    def __init__(self, groups: Sequence[PublishedGroup]) -> None:
        super().__init__(None)
        self._rng = random.Random(5)
        self._ready = {one.group_id: one for one in groups}
        self._on_lease: dict[GroupId, PublishedGroup] = {}
        self.reported: list[GroupId] = []
        self.drawn: list[GroupId] = []

    def sample(self, count: int) -> tuple[PublishedGroup, ...]:
        ids = self._rng.sample(sorted(self._ready), min(count, len(self._ready)))
        self.drawn += ids
        for one in ids:
            self._on_lease[one] = self._ready.pop(one)
        return tuple(replace(self._on_lease[one], network="n") for one in ids)

    def end_leases(
        self, *, consumed: Sequence[GroupId] = (), released: Sequence[GroupId] = ()
    ) -> None:
        for one in consumed:
            self._on_lease.pop(one, None)
        for one in released:
            self._ready[one] = self._on_lease.pop(one)

    def hold_until_checkpoint(self, ids: Sequence[GroupId]) -> None:
        self.end_leases(consumed=ids)

    def report(self, reports: Sequence[m.GroupReport]) -> None:
        self.reported += [one.group_id for one in reports]


class RecordingTasks(TaskSource):
    """Real questions and rewards; notes which tasks were asked for and scored.

    A judge of this node's own grades some groups not at all, and others later.
    """

    def __init__(self) -> None:
        super().__init__(make.real_worker(), make.SPECS)
        self.requested: list[Task] = []
        self.scored: list[Task] = []
        self.ungraded: dict[Task, MissingReward] = {}

    def for_training(self, tasks: Sequence[Task]) -> list[Question | Split]:
        self.requested += tasks
        return super().for_training(tasks)

    def verify(
        self, groups: Sequence[tuple[Task, Sequence[Completion]]]
    ) -> list[list[float] | MissingReward]:
        self.scored += [task for task, _ in groups]
        verified = super().verify(groups)
        return [
            self.ungraded.get(task, rewards)
            for (task, _), rewards in zip(groups, verified, strict=True)
        ]


def groups(count: int) -> list[PublishedGroup]:
    """Groups; every second one has signal: its first answer is right."""
    tasks = TaskSource(make.real_worker(), make.SPECS)
    drawn = tasks.draw(random.Random(3), count)
    answers = make.real_worker().items([coordinates_of(one.task) for one in drawn])
    found = []
    for number, (question, item) in enumerate(zip(drawn, answers, strict=True)):
        texts = [item.answer or "" if number % 2 else "no", "no", "7", "no"]
        group = make.group(of=question.task, texts=texts)
        found.append(case.published(group, f"peer{number % 3}"))
    return found


def played(
    offered: Sequence[PublishedGroup],
) -> tuple[BufferLink, RecordingTasks, list[torch.Tensor]]:
    """Rounds of two own groups and two of others; the node, the tasks, the weights."""
    link, tasks, policy = BufferLink(offered), RecordingTasks(), case.policy()
    rounds = case.rounds(policy, tasks, link, external=2, strategy="positive+balance")
    for number in range(1, ROUNDS + 1):
        rounds.run_round(number, number)
    return link, tasks, list(case.weights(policy).values())


def test_a_group_is_verified_once_however_often_it_is_drawn() -> None:
    link, tasks, _ = played(groups(40))
    assert len(link.drawn) > 1.5 * len(set(link.drawn))
    assert len(tasks.requested) == len(tasks.scored) == len(set(link.drawn))
    assert sorted(link.reported) == sorted(set(link.reported))
    assert set(link.drawn) <= set(link.reported)


def test_the_weights_are_to_the_bit_those_of_verifying_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    offered = groups(40)
    _, remembering, weights = played(offered)
    monkeypatch.setattr(ExternalSampler, "_cache_score", lambda *_: None)
    monkeypatch.setattr(external, "_SHORT_CHARS", -1)
    _, forgetting, others = played(offered)
    assert len(forgetting.scored) > 1.5 * len(remembering.scored)
    assert all(map(torch.equal, weights, others))


def test_groups_without_a_local_grade_wait_or_are_dropped_and_move_no_weight() -> None:
    offered = groups(40)
    link, tasks, policy = BufferLink(offered), RecordingTasks(), case.policy()
    rounds = case.rounds(policy, tasks, link, external=2, strategy="positive+balance")
    waits, fails = (offered[number::3] for number in (0, 1))
    tasks.ungraded |= {one.group.task: MissingReward.WAITS for one in waits}
    tasks.ungraded |= {one.group.task: MissingReward.FAILED for one in fails}
    outcomes = [rounds.run_round(number, number) for number in range(1, ROUNDS + 1)]
    waiting, failed = ({one.group_id for one in some} for some in (waits, fails))
    ends = [one.skip_reason for each in outcomes for one in each.outcomes if one.group_id in failed]
    assert (len(ends), set(ends)) == (len(failed & set(link.drawn)), {SkipReason.UNSCORED})
    assert len(link.drawn) > len(set(link.drawn))  # what waits is drawn again
    assert all(link.drawn.count(one) <= 1 for one in failed)
    assert not (waiting | failed) & set(link.reported)
    num_left = sum(one.record.external_unscored for one in outcomes)
    assert num_left == sum(one in waiting | failed for one in link.drawn) > 0
    for one in waits:
        del tasks.ungraded[one.group.task]
    rounds.run_round(ROUNDS + 1, ROUNDS + 1)
    assert waiting & set(link.reported)


def test_groups_of_a_task_that_has_ended_are_dropped_and_move_no_weight() -> None:
    offered = groups(40)
    changes: list[dict[str, Any]] = [{"family": "gone"}, {"config_digest": bytes(16)}]
    ended = [
        replace(one, group=replace(one.group, task=replace(one.group.task, **change)))
        for one, change in zip(offered[::2], itertools.cycle(changes), strict=False)
    ]
    link, tasks, weights = played([*offered[1::2], *ended])
    _, _, alone = played(offered[1::2])
    gone = {one.group_id for one in ended}
    assert gone & set(link.drawn) and not gone & set(link.reported)
    assert all(link.drawn.count(one) == 1 for one in gone & set(link.drawn))
    assert not any(task.family == "gone" for task in tasks.requested)
    assert len(weights) == len(alone)
