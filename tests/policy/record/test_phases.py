"""What a trainer does, as those hear it who wait."""

from __future__ import annotations

from shoal_policy.record.phases import Phase, PhaseProgress, ProgressTracker
from tests.support.doubles.clock import SetClock


def make_tracker() -> tuple[ProgressTracker, SetClock, list[PhaseProgress]]:
    clock, reported = SetClock(), list[PhaseProgress]()
    phases = ProgressTracker(clock)
    phases.add_listener(reported.append)
    return phases, clock, reported


def test_a_long_phase_is_reported_once_a_second_with_its_pace() -> None:
    phases, clock, reported = make_tracker()
    phases.enter(Phase.GENERATING, round=1, of=32)
    for step in range(1, 41):
        clock.now = step / 10
        phases.step(step // 2, step / 80)
    assert [one.progress.elapsed_s for one in reported] == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert str(reported[-1]) == "round 1: generating, 20 of 32, for 4.0 s, ~4.0 s left"


def test_a_phase_after_a_long_one_is_reported_at_once() -> None:
    phases, clock, reported = make_tracker()
    phases.enter(Phase.GENERATING, round=1, of=32)
    clock.now = 9.5
    phases.step(32, 1.0)
    clock.now = 9.6
    phases.enter(Phase.UPDATING, round=1)
    assert [one.phase for one in reported] == [Phase.GENERATING, Phase.GENERATING, Phase.UPDATING]
    clock.now = 16.6
    assert str(phases.current) == "round 1: updating, for 7.0 s"


def test_rounds_of_a_small_model_are_reported_once_a_second() -> None:
    phases, clock, reported = make_tracker()
    for number in range(100):
        for phase in (Phase.GENERATING, Phase.SCORING, Phase.SAMPLING, Phase.UPDATING):
            clock.now += 0.01
            phases.enter(phase, round=number)
    assert len(reported) <= 5


def test_it_knows_when_own_answers_are_there() -> None:
    phases, _, _ = make_tracker()
    for phase in (Phase.EVALUATING, Phase.SCORING, Phase.GENERATING, Phase.SAVING):
        phases.enter(phase)
        assert not phases.has_generated
    phases.enter(Phase.GENERATING)
    phases.enter(Phase.SCORING)
    assert phases.has_generated
