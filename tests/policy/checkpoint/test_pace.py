"""Checkpoints by the clock, and never more than a twentieth of the time."""

from __future__ import annotations

import pytest

from shoal_policy.checkpoint.pace import CheckpointPace
from tests.support.doubles.clock import SetClock


@pytest.mark.parametrize(
    ("seconds", "cost", "wait"), [(10.0, 0.1, 10.0), (10.0, 6.0, 120.0), (0.0, 6.0, 0.0)]
)
def test_the_next_checkpoint_waits_for_the_interval_and_the_cost_of_the_last(
    seconds: float, cost: float, wait: float
) -> None:
    clock = SetClock(100.0)
    pace = CheckpointPace(seconds, clock)
    assert pace.is_due == (seconds == 0)
    clock.now += seconds
    assert pace.is_due
    pace.begin()
    clock.now += cost
    pace.end()
    clock.now += max(0.0, wait - 0.01)
    assert pace.is_due == (wait == 0)
    clock.now += 0.02
    assert pace.is_due


def test_one_that_failed_is_tried_again_by_the_clock() -> None:
    clock = SetClock(100.0)
    pace = CheckpointPace(10.0, clock)
    clock.now += 11
    pace.begin()
    clock.now += 9
    assert not pace.is_due
    clock.now += 1
    assert pace.is_due
