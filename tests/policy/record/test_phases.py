"""What a trainer does, as those hear it who wait."""

from __future__ import annotations

from shoal_policy.record.phases import Phase, PhaseProgress, ProgressTracker
from tests.support.doubles.clock import SetClock


def heard() -> tuple[ProgressTracker, SetClock, list[PhaseProgress]]:
    clock, told = SetClock(), list[PhaseProgress]()
    phases = ProgressTracker(clock)
    phases.listen(told.append)
    return phases, clock, told


def test_a_long_phase_is_told_once_a_second_with_its_pace() -> None:
    phases, clock, told = heard()
    phases.enter(Phase.GENERATING, round=1, of=32)
    for step in range(1, 41):
        clock.now = step / 10
        phases.step(step // 2, step / 80)
    assert [one.progress.elapsed_s for one in told] == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert str(told[-1]) == "round 1: generating, 20 of 32, for 4.0 s, ~4.0 s left"


def test_a_phase_behind_a_long_one_is_told_at_once() -> None:
    phases, clock, told = heard()
    phases.enter(Phase.GENERATING, round=1, of=32)
    clock.now = 9.5
    phases.step(32, 1.0)
    clock.now = 9.6
    phases.enter(Phase.UPDATING, round=1)
    assert [one.phase for one in told] == [Phase.GENERATING, Phase.GENERATING, Phase.UPDATING]
    clock.now = 16.6
    assert str(phases.doing) == "round 1: updating, for 7.0 s"


def test_the_rounds_of_a_small_model_are_told_once_a_second() -> None:
    phases, clock, told = heard()
    for number in range(100):
        for phase in (Phase.GENERATING, Phase.SCORING, Phase.SAMPLING, Phase.UPDATING):
            clock.now += 0.01
            phases.enter(phase, round=number)
    assert len(told) <= 5


def test_it_knows_when_own_answers_are_there() -> None:
    phases, _, _ = heard()
    for phase in (Phase.EVALUATING, Phase.SCORING, Phase.GENERATING, Phase.SAVING):
        phases.enter(phase)
        assert not phases.has_answered
    phases.enter(Phase.GENERATING)
    phases.enter(Phase.SCORING)
    assert phases.has_answered
