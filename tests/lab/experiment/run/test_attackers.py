"""Hostile members: how other members validate and score their batches."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from shoal_lab.experiment.arms.poison import KINDS
from shoal_lab.experiment.plan import NodeSpec
from shoal_lab.experiment.run.attackers import (
    COPIED,
    MARK,
    PHRASE,
    WRITES,
    SolvedTask,
    near_miss,
)
from shoal_lab.experiment.run.in_process import Workers
from shoal_policy.tasks import TaskSource
from shoal_settings.schema import Settings
from shoal_tasks.swarm import specs_of, starting_families
from shoal_tasks.worker.sync import SyncTaskWorker
from shoal_wire.manifest import make_manifest
from tests.lab.experiment import jobs
from tests.lab.experiment.jobs import arm_of


@pytest.fixture(scope="module")
def tasks(shared: Workers) -> tuple[TaskSource, list[SolvedTask]]:
    manifest = make_manifest("experiment", starting_families("easy"))
    worker = shared.of(manifest, Settings(model="tiny"))
    source = TaskSource(worker, specs_of(manifest))
    return source, solved(source, worker, 24)


def solved(source: TaskSource, worker: SyncTaskWorker, count: int) -> list[SolvedTask]:
    questions = source.draw(random.Random(1), count)
    items = worker.items([question.coordinates for question in questions])
    return [SolvedTask(q, i.answer) for q, i in zip(questions, items, strict=True) if i.answer]


def rewards(kind: str, tasks: tuple[TaskSource, list[SolvedTask]]) -> list[list[float]]:
    source, some = tasks
    rng = random.Random(2)
    return source.verify([(t.question.task, WRITES[kind](t, 8, rng)) for t in some])


@pytest.mark.parametrize(
    ("kind", "earned"),
    [
        *(("cut", 1), ("long", 1), ("garbage", 1), ("easy", 7), ("mark", 4), ("wrong", 0)),
        *(("phrase", 0), ("preface", 0), ("behind", 0), ("decoy", 0)),
    ],
)
def test_attacks_that_carry_right_answers_have_signal_and_others_none(
    kind: str, earned: int, tasks: tuple[TaskSource, list[SolvedTask]]
) -> None:
    """A group has eight answers; a mark is white space, which verifiers of plain answers ignore."""
    assert {sum(group) for group in rewards(kind, tasks)} == {earned}
    assert near_miss("7", random.Random(3)) != "7"
    assert not MARK.strip() and PHRASE.strip() == PHRASE


def lines_of(kind: str, shared: Workers) -> list[dict[str, Any]]:
    honest = NodeSpec(settings={"local": 2, "external": 2})
    mixed = arm_of(honest, replace(honest, behaviour=kind), honest)
    return jobs.lines_of(jobs.job(mixed), shared)


@pytest.mark.parametrize("kind", sorted({*KINDS} - {"wrong", "phrase"}))
def test_an_attackers_groups_pass_the_verdicts_and_are_trained_on(
    kind: str, shared: Workers
) -> None:
    used = [line["groups_external"] for line in lines_of(kind, shared)]
    assert len(used) == 6, "attackers play no rounds of a trainer"
    assert sum(used) > 0


def test_honest_nodes_are_watched_for_what_is_planted(shared: Workers) -> None:
    assert {line["planted"] for line in lines_of("mark", shared)} == {0.0}
    assert all("planted" not in line for line in lines_of(COPIED, shared))


def test_a_planted_attack_is_found_at_its_stated_place(
    shared: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "shoal_lab.experiment.run.in_process.PLANTED", {"mark": ""}
    )  # all texts hold it
    lines = lines_of("mark", shared)
    assert {line["planted"] for line in lines} == {1.0}
    of_right = {line["planted_right"] for line in lines}
    assert 1.0 in of_right
    assert of_right <= {1.0, None}
