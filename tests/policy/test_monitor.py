"""Real trainings under watch: what is said of them to the console and to the node."""

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
from tests.policy.record.courses import Course, steady
from tests.support import factories as make


class Told(NodeLink):
    """No node, but what it would have been told."""

    def __init__(self) -> None:
        super().__init__(None)
        self.states: list[dict[str, Any]] = []

    def tell_status(self, json_text: str) -> None:
        self.states.append(json.loads(json_text))


def play(
    data_dir: Path, preset: str, rounds: int, *, eval_every: int = 0, max_new_tokens: int = 12
) -> tuple[list[str], dict[str, Any]]:
    """Train the embedded model alone; return the console's lines, and the node's last word."""
    news: list[str] = []
    link = Told()
    families = PRESETS[preset]
    with SyncTaskWorker(families) as worker:
        around = TrainerContext(
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
        Trainer(settings, around, seed=1, on_news=news.append).run()
    return news, link.states[-1]["learning"]


@pytest.mark.slow
def test_of_the_embedded_model_that_learns_nothing_is_said(tmp_path: Path) -> None:
    news, told = play(tmp_path, "easy", 300, eval_every=25)
    assert news == []
    assert told["state"] == "ok"


def test_tasks_that_are_too_hard_are_said_with_an_answer(tmp_path: Path) -> None:
    news, told = play(tmp_path, "paper", 31)
    (line,) = news
    assert line.startswith(
        "learning: no own answer has earned anything, of 960 of the last 30 rounds; asked"
    )
    assert "What to do: " in line
    (finding,) = told["findings"]
    assert (told["state"], finding["since_round"]) == ("bad", 30)
    assert finding["example"] in line


NOBODY: Sequence[OwnGroup] = ()


def test_it_is_said_once_and_again_when_it_is_over() -> None:
    news: list[str] = []
    made = TrainingMonitor(TaskSource(make.real_worker(), make.SPECS), on_news=news.append)
    for skill, start in ((0.0, 0), (0.6, 60)):
        for one in Course(own=steady(skill)).play(60, start=start):
            made.after_round(one, NOBODY, ())
    assert len(news) == 2
    assert news[1] == "learning: over: nothing earned"
    assert made.view().state == "ok"
