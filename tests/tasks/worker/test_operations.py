"""What may be asked of the worker, and what of its replies is believed."""

from __future__ import annotations

import pytest

from shoal_tasks.errors import UnknownFamily, WorkerProtocolError
from shoal_tasks.families import EASY, TRAIN_SEED_MIN, coordinates
from shoal_tasks.types import ScoreRequest, ScoreResult, TaskCoordinates
from shoal_tasks.worker.operations import (
    ConfiguredFamilies,
    parse_digest,
    parse_question,
    parse_score,
    score_operation,
)
from shoal_tasks.worker.plan import WorkerCall, run_plan
from shoal_tasks.worker.report import cpu_seconds
from shoal_wire.types import FinishReason


@pytest.mark.parametrize(
    "row",
    [
        None,
        {},
        {"reward": "1"},
        {"reward": True},
        {"reward": 1.01},
        {"reward": float("nan")},
        {"reward": float("inf")},
        {"reward": 10**400},
    ],
)
def test_a_worker_cannot_hand_out_rewards_outside_the_range(row: object) -> None:
    with pytest.raises(WorkerProtocolError):
        parse_score(row)


def test_a_worker_cannot_hand_out_odd_questions_or_digests() -> None:
    for row in ({}, {"question": 3}, {"question": "x" * 300_000}):
        with pytest.raises(WorkerProtocolError):
            parse_question(row)
    for digest in ({}, {"digest": "zz"}, {"digest": "00"}, {"digest": None}):
        with pytest.raises(WorkerProtocolError):
            parse_digest(digest)


def test_coordinates_are_checked_before_they_travel() -> None:
    families = ConfiguredFamilies(EASY)
    good = coordinates(EASY[0], TRAIN_SEED_MIN)
    assert families.row(good) == {"family": EASY[0].name, "seed": TRAIN_SEED_MIN, "index": 0}
    for family, digest in (("nobody", good.config_digest), (EASY[1].name, good.config_digest)):
        task = TaskCoordinates(family=family, config_digest=digest, seed=0, index=0)
        with pytest.raises(UnknownFamily):
            families.row(task)
    for seed, index in ((-1, 0), (1 << 31, 0), (0, -1), (0, 1 << 31)):
        with pytest.raises(ValueError, match="range"):
            families.row(coordinates(EASY[0], seed, index))
    with pytest.raises(ValueError, match="unique"):
        ConfiguredFamilies([EASY[0], EASY[0]])


def test_a_text_beyond_the_wires_limit_never_reaches_a_frame() -> None:
    request = ScoreRequest(
        task=coordinates(EASY[0], 1), text="9" * (1 << 22), finish_reason=FinishReason.STOP
    )
    call: WorkerCall[ScoreResult] = next(
        run_plan(score_operation(ConfiguredFamilies(EASY)), [request])
    )
    assert len(str(call.message)) < 1000


def test_any_number_of_processor_seconds_can_be_compared() -> None:
    assert cpu_seconds({"cpu_seconds": 10**400}) > 1e300
    assert cpu_seconds({"cpu_seconds": "all"}) == cpu_seconds({}) == 0.0
