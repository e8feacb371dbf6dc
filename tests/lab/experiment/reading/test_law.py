"""The law of how fast nodes learn: runs that follow one give it back, and others their distance."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from shoal_lab.experiment.reading.law import (
    Found,
    Law,
    Reached,
    find,
    fit,
    markdown,
    reached,
    worth_of,
)
from shoal_lab.experiment.reading.results import Run
from tests.lab.experiment.synthetic_runs import run

LAW = Law(power=0.8, level=0.7, half=5.0, slope=1.8)
ROUNDS, WORTH = 60, 0.6


def lawful(arm: str, seed: int, own: int, others: int, *, more: float = 0.0) -> Run:
    """A run that follows the law, plus `more` of reward in each round."""
    rng = np.random.default_rng(seed)
    drawn = rng.integers(0, others + 1, ROUNDS) if others else np.zeros(ROUNDS)
    made = replace(
        run(arm, seed, 0.0, rounds=ROUNDS, nodes=1),
        questions=float(own),
        looked_at=tuple(own + drawn),
    )
    rewards = LAW.predict(made, WORTH) + more * rng.standard_normal(ROUNDS)
    return replace(made, fresh=(tuple(float(one) for one in rewards),))


def lawful_runs(more: float = 0.0) -> list[Run]:
    """Three silos and a swarm, three seeds each."""
    arms = (("4/0", 4, 0), ("8/0", 8, 0), ("8/0 filtered", 16, 0), ("4/4", 4, 28))
    return [lawful(*arm[:1], seed, *arm[1:], more=more) for seed in (1, 2, 3) for arm in arms]


def test_the_curve_is_of_what_was_looked_at_before() -> None:
    law = Law(power=1.0, level=1.0, half=0.0, slope=1.0)
    made = replace(run("4/4", 1, 0.0, rounds=3), questions=2.0, looked_at=(3.0, 2.0, 2.0))
    assert law.predict(made, 0.5) == pytest.approx([0.0, 2.5 / 3.5, 4.5 / 5.5])
    squared = replace(law, power=2.0, level=0.5, slope=2.0)
    assert squared.predict(made, 1.0) == pytest.approx([0.0, 0.5 * 81 / 82, 0.5 * 169 / 170])


def test_runs_that_follow_a_law_give_it_back() -> None:
    runs = lawful_runs()
    silos = [one for one in runs if one.arm != "4/4"]
    found = fit(silos)
    assert (found.power, found.level) == pytest.approx((0.8, 0.7), abs=1e-3)
    assert (found.half, found.slope) == pytest.approx((5.0, 1.8), abs=1e-2)
    sharing = [one for one in runs if one.arm == "4/4"]
    assert worth_of(sharing, found) == pytest.approx(WORTH, abs=1e-2)


def test_a_swarm_is_foretold_by_silos_and_by_other_seeds() -> None:
    found = find(lawful_runs(more=0.02))
    assert found is not None
    assert found.silos == ("4/0", "8/0", "8/0 filtered")
    assert found.power.mean == pytest.approx(0.8, abs=0.05)
    assert found.power.half is not None and 0 < found.power.half < 0.2
    (swarm,) = found.predicted
    assert swarm.worth.mean == pytest.approx(WORTH, abs=0.1)
    # Others' groups are worth less than own ones, so that silos foretell too much.
    assert swarm.by_silos.mean > 2
    assert abs(swarm.by_others.mean) < 0.5
    assert swarm.error < 0.02
    page = markdown(found)
    assert "| 8/0 filtered | 16 |" in page
    assert "fitted to 4/0, 8/0, 8/0 filtered: who looks at twice" in page


def test_no_seed_is_foretold_by_itself() -> None:
    """A seed of another nature is missed: what it says is no part of what it is held against."""
    runs = lawful_runs()
    odd = [
        replace(one, fresh=(tuple(2 * value for value in one.fresh[0]),))
        if (one.arm, one.seed) == ("4/4", 3)
        else one
        for one in runs
    ]
    found = find(odd)
    assert found is not None
    alike = find(runs)
    assert alike is not None
    assert all(abs(one) < 0.1 for one in alike.predicted[0].missed.values())
    played = sum(next(one for one in runs if (one.arm, one.seed) == ("4/4", 3)).fresh[0])
    missed = found.predicted[0].missed
    assert missed[3] == pytest.approx(-played, abs=0.1)
    assert missed[1] > 1 < missed[2], "they believe it"


def test_a_seed_that_is_not_there_yet_counts_as_later() -> None:
    def climbing(seed: int, at: int) -> Run:
        rewards = tuple(0.0 if number < at else 1.0 for number in range(1, ROUNDS + 1))
        return replace(run("8/0", seed, 0.0, rounds=ROUNDS, nodes=1), fresh=(rewards,))

    # Half of ten rounds: five after it began.
    assert reached([climbing(1, 21)], 0.5) == Reached(threshold=0.5, median=25, missing=0)
    late = [climbing(1, 21), climbing(2, 31), climbing(3, ROUNDS + 1)]
    assert reached(late, 0.5) == Reached(threshold=0.5, median=35, missing=1)
    assert reached(late[1:] + late[2:], 0.5) == Reached(threshold=0.5, median=None, missing=2)
    # The first rounds of all are no average yet.
    assert reached([climbing(1, 1)], 0.5).median == 10


def test_too_little_says_nothing() -> None:
    runs = lawful_runs()
    assert find([]) is None
    assert find([one for one in runs if one.seed < 3]) is None, "two seeds"
    assert find([one for one in runs if one.arm in ("8/0", "4/4")]) is None, "one silo"
    assert find([replace(one, looked_at=()) for one in runs]) is None
    silos_only = find([one for one in runs if one.arm != "4/4"])
    assert isinstance(silos_only, Found)
    assert silos_only.predicted == ()
    assert " X |" not in markdown(silos_only)
