"""The best learning rate of each arm, found on seeds of their own."""

from __future__ import annotations

from shoal_lab.experiment import tune
from shoal_lab.experiment.plan import Experiment, uniform_arm
from tests.lab.experiment.synthetic_runs import run


def test_each_arm_is_tuned_apart_on_seeds_that_judge_nothing() -> None:
    arms = (uniform_arm("8/0", 2), uniform_arm("4/4", 2))
    experiment = Experiment(name="x", arms=arms, seeds=(1, 2, 3), rounds=4, base={})
    rates = (1e-4, 3e-4)
    swept = tune.sweep(experiment, rates)
    assert not set(swept.seeds) & set(experiment.seeds)
    levels = {("8/0", 1e-4): 0.1, ("8/0", 3e-4): 0.2, ("4/4", 1e-4): 0.4, ("4/4", 3e-4): 0.3}
    names = [arm.name for arm in swept.arms]
    runs = [
        run(name, seed, level)
        for name, level in zip(names, levels.values(), strict=True)
        for seed in swept.seeds
    ]
    best = tune.best_rates(experiment, rates, runs)
    assert best == {"8/0": 3e-4, "4/4": 1e-4}
    chosen = tune.tuned(experiment, best)
    assert [arm.nodes[0].settings["learning_rate"] for arm in chosen.arms] == [3e-4, 1e-4]
    assert chosen.seeds == experiment.seeds
    assert "| 8/0 | 0.4 | **0.8** |" in tune.markdown(experiment, rates, runs)


def test_an_arm_that_names_its_rate_is_not_tuned() -> None:
    named = uniform_arm("4/4 learning_rate=0.1", 2, learning_rate=0.1)
    arms = (uniform_arm("8/0", 2), named)
    experiment = Experiment(name="x", arms=arms, seeds=(1,), rounds=4, base={})
    swept = tune.sweep(experiment, (1e-4,))
    assert [arm.name for arm in swept.arms] == ["8/0 rate 0.0001"]
    runs = [run(swept.arms[0].name, seed, 0.1) for seed in swept.seeds]
    chosen = tune.tuned(experiment, tune.best_rates(experiment, (1e-4,), runs))
    assert [arm.nodes[0].settings["learning_rate"] for arm in chosen.arms] == [1e-4, 0.1]
