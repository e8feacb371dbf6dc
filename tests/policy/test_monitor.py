"""Alarms about real trainings, on the console and to the node."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from shoal_policy.monitor import TrainingMonitor
from shoal_policy.node.link import NodeLink
from shoal_policy.rollouts import OwnGroup
from shoal_policy.tasks import TaskSource
from shoal_policy.trainer import Trainer
from shoal_policy.trainer_context import TrainerContext
from shoal_settings.schema import Settings
from shoal_tasks.families import PRESETS
from shoal_tasks.worker.sync import SyncTaskWorker
from tests.policy.record.scenarios import TrainingScenario, steady
from tests.support import factories as make


class RecordingLink(NodeLink):
    """A link without a node that records status messages."""

    def __init__(self) -> None:
        super().__init__(None)
        self.states: list[dict[str, Any]] = []

    def send_status(self, json_text: str) -> None:
        self.states.append(json.loads(json_text))


def play(
    data_dir: Path, preset: str, rounds: int, *, eval_every: int = 0, max_new_tokens: int = 12
) -> tuple[list[str], dict[str, Any]]:
    """Train the embedded model alone; return the console's lines, and the node's last word."""
    alarms: list[str] = []
    link = RecordingLink()
    families = PRESETS[preset]
    with SyncTaskWorker(families) as worker:
        context = TrainerContext(
            tasks=TaskSource(worker, families),
            link=link,
            rules=make.swarm().rules,
            should_stop=lambda: False,
        )
        settings = Settings(
            data_dir=data_dir,
            rounds=rounds,
            external=0,
            device="cpu",
            eval_every=eval_every,
            max_new_tokens=max_new_tokens,
            log="none",
        )
        Trainer(settings, context, seed=1, on_alarm=alarms.append).run()
    return alarms, link.states[-1]["learning"]


@pytest.mark.slow
def test_the_embedded_model_raises_no_alarm(tmp_path: Path) -> None:
    alarms, status = play(tmp_path, "easy", 300, eval_every=25)
    assert alarms == []
    assert status["state"] == "ok"


@pytest.mark.slow
def test_tasks_that_are_too_hard_raise_an_alarm_with_an_answer(tmp_path: Path) -> None:
    alarms, status = play(tmp_path, "paper", 31)
    (line,) = alarms
    assert line.startswith(
        "learning: no own answer has earned anything, of 960 of the last 30 rounds; asked"
    )
    assert "What to do: " in line
    (finding,) = status["findings"]
    assert (status["state"], finding["since_round"]) == ("bad", 30)
    assert finding["example"] in line


NOBODY: Sequence[OwnGroup] = ()


def test_an_alarm_is_printed_once_and_when_resolved() -> None:
    alarms: list[str] = []
    made = TrainingMonitor(TaskSource(make.real_worker(), make.SPECS), on_alarm=alarms.append)
    for skill, start in ((0.0, 0), (0.6, 60)):
        for one in TrainingScenario(own=steady(skill)).run(60, start=start):
            made.after_round(one, NOBODY, ())
    assert len(alarms) == 2
    assert alarms[1] == "learning: resolved: nothing earned"
    assert made.view().state == "ok"
