"""A run that is stopped anyhow and resumed is the run that was never stopped, to the last bit."""

from __future__ import annotations

import random
import signal
from pathlib import Path

import pytest

from tests.policy import resume_cases as case


def kill_at_random(data_dir: Path, model: str, rng: random.Random, kills: int) -> None:
    """Start a trainer without end and kill it, `kills` times; every third asks politely."""
    for number in range(kills):
        process = case.start(
            data_dir, model, rounds=0, checkpoint_seconds=rng.choice([0.0, 0.0, 0.05, 0.2])
        )
        process.join(rng.uniform(0.2, 1.2))
        assert process.exitcode is None, "it ended by itself"
        if number % 3 == 2:
            process.terminate()
            assert case.finish(process) == 0
        else:
            process.kill()
            assert case.finish(process) == -signal.SIGKILL


def assert_as_unbroken(broken: Path, whole: Path, model: str, rounds: int) -> None:
    """Play both on to `rounds` and compare: `broken` was stopped somehow, `whole` was not."""
    assert case.run(broken, model, rounds=rounds) == 0
    assert case.run(whole, model, rounds=rounds) == 0
    case.assert_same_end(broken, whole)
    played = [event["round"] for event in case.course(broken) if event["event"] == "round"]
    assert played == list(range(1, rounds + 1))


@pytest.fixture(scope="module")
def five_rounds(tmp_path_factory: pytest.TempPathFactory, model: str) -> Path:
    """A run of five rounds in one piece."""
    data_dir = tmp_path_factory.mktemp("run") / "whole"
    assert case.run(data_dir, model, rounds=5) == 0
    return data_dir


@pytest.mark.slow
def test_killed_and_stopped_it_goes_on_as_if_never_broken(tmp_path: Path, model: str) -> None:
    broken = tmp_path / "broken"
    kill_at_random(broken, model, random.Random(1), kills=3)
    assert_as_unbroken(broken, tmp_path / "whole", model, case.rounds_saved(broken) + 3)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_killed_at_ten_random_moments_it_ends_with_the_same_weights(
    tmp_path: Path, model: str, seed: int
) -> None:
    broken = tmp_path / "broken"
    kill_at_random(broken, model, random.Random(seed), kills=10)
    assert_as_unbroken(broken, tmp_path / "whole", model, case.rounds_saved(broken) + 5)


@pytest.mark.parametrize(
    "flush", [1, *(pytest.param(number, marks=pytest.mark.slow) for number in (12, 16))]
)
def test_killed_in_the_middle_of_a_checkpoint(
    tmp_path: Path, model: str, five_rounds: Path, flush: int
) -> None:
    broken = tmp_path / "broken"
    assert case.run(broken, model, rounds=2) == 0
    killed = case.run(broken, model, rounds=4, checkpoint_seconds=0.0, trap=flush)
    assert killed == -signal.SIGKILL
    assert case.rounds_saved(broken) in (2, 3, 4)
    assert_as_unbroken(broken, five_rounds, model, rounds=5)


@pytest.mark.slow
def test_evaluating_changes_nothing(tmp_path: Path, model: str) -> None:
    ends = []
    for every in (0, 1):
        assert case.run(tmp_path / str(every), model, rounds=3, eval_every=every) == 0
        ends.append((case.newest(tmp_path / str(every)) / "model/model.safetensors").read_bytes())
    assert ends[0] == ends[1]
    kinds = [(e["event"], e["round"]) for e in case.course(tmp_path / "1")]
    assert kinds == [
        ("held_out", 0),
        ("round", 1),
        ("held_out", 1),
        ("round", 2),
        ("held_out", 2),
        ("round", 3),
        ("held_out", 3),
    ]
