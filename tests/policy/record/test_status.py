"""What a trainer tells its node."""

from __future__ import annotations

import json

from shoal_ipc.answers.form import to_json
from shoal_ipc.answers.node import Progress
from shoal_policy.record.phases import Phase, PhaseProgress
from shoal_policy.record.progress import RunCounters
from shoal_policy.record.status import build_status
from tests.policy.record.test_progress import record


def status(*, current: PhaseProgress | None = None, trains: bool = True) -> dict[str, object]:
    progress = RunCounters()
    progress.add(record(1, 0.5))
    found: dict[str, object] = json.loads(
        build_status("training", progress, current=current, trains=trains, round=1, model="tiny")
    )
    return found


def test_a_node_that_only_generates_says_nothing_of_training() -> None:
    trains, generates = status(), status(trains=False)
    assert (trains["model"], trains["reward_local"]) == ("tiny", 0.5)
    assert {name for name in trains if trains[name] != generates[name]} == {
        *("groups_external_used", "groups_local_used", "external_sampled")
    }
    assert generates["external_sampled"] is None


def test_it_says_what_is_being_done() -> None:
    assert (status()["phase"], status()["progress"]) == (None, None)
    progress = Progress(round=1, done=12, total=32, elapsed_s=24.0, remaining_s=40.0)
    found = status(current=PhaseProgress(phase=Phase.GENERATING, progress=progress))
    assert found["phase"] == "generating"
    assert found["progress"] == to_json(progress)
