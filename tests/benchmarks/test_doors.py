"""The bootstrap's slots, simulated: a small swarm joins through a bootstrap with few slots."""

from __future__ import annotations

import pytest
import trio

from benchmarks import doors
from shoal_lab.simulation.clock import deterministic, jumping_clock


@pytest.mark.slow
def test_a_hundred_come_through_twelve_slots_and_all_have_company(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(doors, "SLOTS", 12)
    with deterministic(1):
        found = trio.run(doors._play, 100, 30.0, 60.0, clock=jumping_clock())
    assert found["never"] == 0
    assert found["company_s_most"] <= 60.0
    assert found["let_go"] > 50, "else the door was not narrow"
