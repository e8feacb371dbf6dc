"""What a trainer tells its node."""

from __future__ import annotations

import json

from shoal_policy.record.phases import Doing, Phase
from shoal_policy.record.progress import RunCounters
from shoal_policy.record.status import TrainerReport
from tests.policy.record.test_progress import record


def told(**of: object) -> dict[str, object]:
    progress = RunCounters()
    progress.add(record(1, 0.5))
    known = {"state": "training", "round": 1, "policy_version": 2, "model": "tiny"}
    status = TrainerReport(**known, progress=progress, last_round=None, learning={}, **of)  # type: ignore[arg-type]
    found: dict[str, object] = json.loads(status.to_json())
    return found


def test_a_node_that_only_generates_says_nothing_of_training() -> None:
    trains, generates = told(), told(trains=False)
    assert generates.items() <= trains.items()
    assert set(trains) - set(generates) == {
        *("groups_external_used", "groups_local_used", "external_drawn", "steps_no_signal"),
        *("batches_quarantined", "rollbacks", "held_out"),
    }


def test_it_says_what_is_being_done() -> None:
    assert (told()["phase"], told()["progress"]) == (None, None)
    doing = Doing(phase=Phase.ANSWERING, round=1, done=12, of=32, seconds=24.04, left_s=40.0)
    found = told(doing=doing)
    assert found["phase"] == "answering"
    counted = {"round": 1, "done": 12, "of": 32, "seconds": 24.0, "left_s": 40.0}
    assert found["progress"] == counted
