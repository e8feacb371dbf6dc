"""From runs to conclusions, by hand-made numbers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from shoal.experiment.paper import tune
from shoal.experiment.plan import Experiment, uniform_arm
from shoal.experiment.reading.results import moving_average
from shoal.experiment.reading.summary import (
    comparable,
    heldout_at,
    holm,
    oscillation,
    summarise,
    swing,
    to_json,
    total,
    welch,
)
from shoal.experiment.reading.table import COLUMNS, markdown
from tests.shoal.experiment.synthetic_runs import run

RUNS = [
    run("8/0", 1, 0.10, tokens=20),
    run("8/0", 2, 0.12, tokens=20),
    run("4/4", 1, 0.20),
    run("4/4", 2, 0.25),
]


def test_totals_gains_and_what_the_paper_found() -> None:
    silo, sharing = summarise(RUNS)
    assert silo.total.mean == pytest.approx(0.44)
    assert sharing.total.mean == pytest.approx(0.90)
    assert sharing.gain is not None
    assert sharing.gain.mean == pytest.approx(0.45 / 0.22 - 1)
    assert sharing.gain.sd == pytest.approx(abs(1.0 - (0.25 / 0.12 - 1)) / 2**0.5)
    assert sharing.training_gain == pytest.approx(sharing.gain.mean)
    assert (silo.gain, silo.p, silo.paper_gain) == (None, None, 0.0)
    assert sharing.paper_gain == 0.94
    assert sharing.p == pytest.approx(welch([0.8, 1.0], [0.4, 0.48]))


def test_held_out_at_equal_tokens_is_where_the_one_with_fewer_ends() -> None:
    _, sharing = summarise(RUNS)
    # 4/4 generated 40 tokens; 8/0 had as many after round 2 of 4, at half of its 0.10 and 0.12.
    assert sharing.heldout_at is not None
    assert sharing.silo_heldout_at is not None
    assert sharing.heldout_at.mean == pytest.approx(0.225)
    assert sharing.silo_heldout_at.mean == pytest.approx(0.055)
    assert heldout_at(RUNS[0], 10) == pytest.approx(0.0125)
    assert heldout_at(RUNS[0], 1e9) == 0.10


def test_oscillation_counts_falls_and_not_rises() -> None:
    steady = run("2/6", 1, 0.4)
    assert oscillation(steady) == 0
    shaky = replace(steady, held_out=((0.1, 0.4, 0.2, 0.3), (0.0, 0.1, 0.1, 0.0)))
    assert swing(replace(steady, training=((0.1, 0.4, 0.2, 0.3), (0.5, 0.3, 0.3, 0.6)))) == 0.2
    assert oscillation(shaky) == pytest.approx((0.2 / 3 + 0.1 / 3) / 2)


def test_only_seeds_that_all_arms_have_finished_are_compared() -> None:
    assert comparable(RUNS[:3]) == [RUNS[0], RUNS[2]]
    assert comparable([RUNS[0], RUNS[3]]) == [RUNS[0], RUNS[3]]
    (alone,) = summarise([RUNS[2]])
    assert (alone.gain, alone.p) == (None, None)


def test_holm_is_step_down_and_never_falls() -> None:
    assert holm({"a": 0.01, "b": 0.04, "c": 0.03}) == pytest.approx(
        {"a": 0.03, "c": 0.06, "b": 0.06}
    )
    assert welch([1.0], [2.0, 3.0]) is None
    assert welch([1.0, 1.0], [2.0, 2.0]) is None


def test_the_object_and_the_table_name_every_arm() -> None:
    summaries = summarise(RUNS)
    document = json.loads(json.dumps(to_json(summaries)))
    assert set(document["totals"]) == set(document["heldout"]) == {"8/0", "4/4"}
    assert set(document["gain_over_8_0"]) == {"4/4"}
    assert set(document["totals"]["4/4"]) == {"mean", "sd"}
    table = markdown(summaries).splitlines()
    assert table[0].count("|") == table[2].count("|") == len(COLUMNS) + 1
    assert "+105%" in table[3]


def test_a_moving_average_starts_with_what_there_is() -> None:
    assert moving_average([1.0, 3.0, 5.0, 7.0], 2) == [1.0, 2.0, 4.0, 6.0]
    assert moving_average([2.0], 10) == [2.0]


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


def test_figures_have_axes_units_and_the_papers_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = pytest.importorskip("shoal.experiment.reading.figures")
    monkeypatch.setitem(pytest.importorskip("shoal.figures").STYLE, "figure.dpi", 30)
    drawn = figures.draw_all(tmp_path, RUNS, summarise(RUNS), "test")
    assert len(drawn) == 10
    for path in drawn:
        assert path.read_bytes().startswith(b"\x89PNG")
        text = path.with_suffix(".svg").read_text()
        assert "Paper" in text or "paper" in text, path.name
    by_tokens = (tmp_path / "4-reward-by-tokens.svg").read_text()
    assert "tokens generated by a node, thousands" in by_tokens
    assert total(RUNS[0]) == pytest.approx(0.4)
