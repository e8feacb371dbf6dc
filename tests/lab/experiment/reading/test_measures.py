"""From runs to conclusions, by hand-made numbers."""

from __future__ import annotations

import json
import statistics
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal_lab.experiment.arms.paper import COLUMNS, read, rows_of
from shoal_lab.experiment.drawing import comparison_figures
from shoal_lab.experiment.plan import Experiment, uniform_arm
from shoal_lab.experiment.reading.measures import (
    area,
    comparable,
    heldout_area,
    heldout_at,
    oscillation,
    swing,
)
from shoal_lab.experiment.reading.report import Reading
from shoal_lab.experiment.reading.results import Run, moving_average
from shoal_lab.figures import STYLE, save
from shoal_lab.significance import Spread, paired
from tests.lab.experiment.synthetic_runs import run

RUNS = [
    run("8/0", 1, 0.10, tokens=20),
    run("8/0", 2, 0.12, tokens=20),
    run("4/4", 1, 0.20),
    run("4/4", 2, 0.25),
]


EXPERIMENT = Experiment(name="x", arms=(uniform_arm("8/0", 2),), seeds=(1, 2), rounds=4, base={})


def compared(runs: list[Run]) -> Reading:
    return read(runs, EXPERIMENT)


def figures_of(runs: list[Run], arm: str) -> dict[str, Any]:
    """What the columns say of an arm, by their keys."""
    (row,) = [row for row in rows_of(runs) if row.labels["arm"] == arm]
    return {one.key or one.head: one.of(row) for one in COLUMNS}


def test_totals_gains_and_what_the_paper_found() -> None:
    silo, sharing = figures_of(RUNS, "8/0"), figures_of(RUNS, "4/4")
    total, gain = sharing["totals"], sharing["gain_over_8_0"]
    assert isinstance(gain, Spread)
    assert (silo["totals"].mean, total.mean) == pytest.approx((0.44, 0.90))
    assert gain.mean == pytest.approx(0.45 / 0.22 - 1)
    assert gain.sd == pytest.approx(abs(1.0 - (0.25 / 0.12 - 1)) / 2**0.5)
    assert sharing["training_gain_over_8_0"] == pytest.approx(gain.mean)
    none = ("gain_over_8_0", "p_adjusted", "paper_gain_over_8_0", "training_gain_over_8_0")
    assert [silo[name] for name in none] == [None] * 4
    assert sharing["paper_gain_over_8_0"] == 0.94
    assert sharing["p_adjusted"] == pytest.approx(paired([0.8 - 0.4, 1.0 - 0.48]))
    assert total.half == pytest.approx(12.7062 * 0.1, rel=1e-4)


def test_any_two_arms_are_compared_by_their_seeds() -> None:
    third = [run("6/2", 1, 0.15), run("6/2", 2, 0.30)]
    found = [
        one for one in compared([*RUNS, *third]).document["pairs"] if one["measure"] == "total"
    ]
    names = [(one["arm"], one["minus"]) for one in found]
    assert names == [("8/0", "4/4"), ("8/0", "6/2"), ("4/4", "6/2")]
    expected = statistics.fmean([0.8 - 0.6, 1.0 - 1.2])
    assert found[2]["difference"]["mean"] == pytest.approx(expected, abs=1e-6)
    # Of three, the least of which counts three times.
    raw = [paired([-0.4, -0.52]), paired([-0.2, -0.72]), paired([0.2, -0.2])]
    assert found[0]["p_adjusted"] == pytest.approx(3 * min(p for p in raw if p is not None))
    one_seed = compared(comparable(RUNS[:3])).document["pairs"]
    assert [one["p_adjusted"] for one in one_seed] == [None, None]


def test_held_out_at_equal_tokens_is_where_the_one_with_fewer_ends() -> None:
    sharing = figures_of(RUNS, "4/4")
    # 4/4 generated 40 tokens; 8/0 had as many after round 2 of 4, at half of its 0.10 and 0.12.
    assert sharing["heldout_at_equal_tokens"].mean == pytest.approx(0.225)
    assert sharing["heldout_of_8_0_at_equal_tokens"].mean == pytest.approx(0.055)
    assert sharing["8/0, same tokens"] == "0.055"
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
    alone = figures_of([RUNS[2]], "4/4")
    assert (alone["gain_over_8_0"], alone["p_adjusted"]) == (None, None)


def test_the_object_and_the_table_name_every_arm() -> None:
    found = compared(RUNS)
    document = json.loads(json.dumps(found.document))
    assert [one["measure"] for one in document["pairs"]] == ["total", "heldout"]
    assert "| 8/0 | 4/4 |" in found.sections[0]
    assert set(document["totals"]) == set(document["heldout"]) == {"8/0", "4/4"}
    assert set(document["gain_over_8_0"]) == {"4/4"}
    low, high = document["totals"]["4/4"]["ci95"]
    assert low < 0.9 < high
    table = found.sheet.markdown(found.rows).splitlines()
    assert table[0].count("|") == table[2].count("|") == 13
    assert "+105%" in table[3]
    one = compared([run for run in RUNS if run.seed == RUNS[0].seed])
    alone = one.sheet.markdown(one.rows)
    assert "± 0" not in alone and "% ± –" in alone and "% ± –" not in "\n".join(table)


def test_a_moving_average_starts_with_what_there_is() -> None:
    assert moving_average([1.0, 3.0, 5.0, 7.0], 2) == [1.0, 2.0, 4.0, 6.0]
    assert moving_average([2.0], 10) == [2.0]


def test_figures_have_axes_units_and_the_papers_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(STYLE, "figure.dpi", 30)
    runs = [*RUNS[:3], run("4/4", 2, 0.1, nodes=6)]
    drawn = save(tmp_path, comparison_figures(runs, ["8/0", "4/4"], "test"))
    assert len(drawn) == 10
    for path in drawn:
        assert path.read_bytes().startswith(b"\x89PNG")
        text = path.with_suffix(".svg").read_text()
        assert "Paper" in text or "paper" in text, path.name
    by_tokens = (tmp_path / "4-reward-by-tokens.svg").read_text()
    assert "tokens generated by a node, thousands" in by_tokens


def test_the_number_of_an_agents_panel_does_not_grow_with_the_agents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(STYLE, "figure.dpi", 30)
    runs = [run("8/0", 1, 0.1), run("4/4", 1, 0.1, nodes=6)]
    save(tmp_path, comparison_figures(runs, ["8/0", "4/4"], "test"))
    text = (tmp_path / "1-agents.svg").read_text()
    assert "8/0: 0.8 an agent (paper 70)" in text  # 561.79 by 8
    assert "4/4: 0.8 an agent (paper 137)" in text


def test_the_area_is_the_mean_height_of_the_curve() -> None:
    assert area([0, 2, 4], [0.0, 1.0, 1.0], 4) == pytest.approx(0.75)
    assert area([0, 2, 4], [0.0, 1.0, 0.0], 1) == pytest.approx(0.25)
    assert area([0, 2], [0.5, 0.5], 10) == pytest.approx(0.5)
    assert heldout_area(run("4/4", 1, 0.8)) == pytest.approx(0.4)


@given(
    st.lists(st.tuples(st.floats(0.001, 5), st.floats(0, 1)), min_size=1, max_size=8),
    st.floats(0.01, 60),
)
def test_an_area_lies_between_the_least_and_the_greatest_height(
    steps: list[tuple[float, float]], until: float
) -> None:
    places = [0.0, *accumulate(step for step, _ in steps)]
    heights = [0.0, *(height for _, height in steps)]
    assert -1e-9 <= area(places, heights, until) <= max(heights) + 1e-9
