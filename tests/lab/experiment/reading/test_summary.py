"""From runs to conclusions, by hand-made numbers."""

from __future__ import annotations

import json
import statistics
from dataclasses import replace
from pathlib import Path

import pytest

from shoal_lab.experiment.reading.results import moving_average
from shoal_lab.experiment.reading.summary import (
    comparable,
    heldout_at,
    oscillation,
    pairs,
    summarise,
    swing,
    to_json,
    total,
)
from shoal_lab.experiment.reading.table import COLUMNS, markdown, pairs_markdown
from shoal_lab.significance import paired
from tests.lab.experiment.synthetic_runs import run

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
    assert sharing.p == pytest.approx(paired([0.8 - 0.4, 1.0 - 0.48]))
    assert sharing.total.half == pytest.approx(12.7062 * 0.1, rel=1e-4)


def test_any_two_arms_are_compared_by_their_seeds() -> None:
    third = [run("6/2", 1, 0.15), run("6/2", 2, 0.30)]
    found = pairs([*RUNS, *third])
    names = [(one.one, one.other) for one in found if one.measure == "total"]
    assert names == [("8/0", "4/4"), ("8/0", "6/2"), ("4/4", "6/2")]
    last = found[2]
    assert last.difference.mean == pytest.approx(statistics.fmean([0.8 - 0.6, 1.0 - 1.2]))
    # Of three, the least of which counts three times.
    raw = [paired([-0.4, -0.52]), paired([-0.2, -0.72]), paired([0.2, -0.2])]
    assert found[0].p == pytest.approx(3 * min(p for p in raw if p is not None))
    assert [one.p for one in pairs(RUNS[:3])] == [None, None], "one seed"


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


def test_the_object_and_the_table_name_every_arm() -> None:
    summaries = summarise(RUNS)
    document = json.loads(json.dumps(to_json(summaries, pairs(RUNS))))
    assert [one["measure"] for one in document["pairs"]] == ["total", "heldout"]
    assert "| 8/0 | 4/4 |" in pairs_markdown(pairs(RUNS))
    assert set(document["totals"]) == set(document["heldout"]) == {"8/0", "4/4"}
    assert set(document["gain_over_8_0"]) == {"4/4"}
    assert set(document["totals"]["4/4"]) == {"mean", "sd", "ci95"}
    low, high = document["totals"]["4/4"]["ci95"]
    assert low < 0.9 < high
    table = markdown(summaries).splitlines()
    assert table[0].count("|") == table[2].count("|") == len(COLUMNS) + 1
    assert "+105%" in table[3]


def test_one_seed_deviates_by_nothing_that_is_known() -> None:
    one = markdown(summarise([run for run in RUNS if run.seed == RUNS[0].seed]))
    assert "± 0" not in one
    assert "% ± –" in one
    assert "% ± –" not in markdown(summarise(RUNS))


def test_a_moving_average_starts_with_what_there_is() -> None:
    assert moving_average([1.0, 3.0, 5.0, 7.0], 2) == [1.0, 2.0, 4.0, 6.0]
    assert moving_average([2.0], 10) == [2.0]


def test_figures_have_axes_units_and_the_papers_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = pytest.importorskip("shoal_lab.experiment.reading.figures")
    monkeypatch.setitem(pytest.importorskip("shoal_lab.figures").STYLE, "figure.dpi", 30)
    drawn = figures.draw_all(tmp_path, RUNS, summarise(RUNS), "test")
    assert len(drawn) == 10
    for path in drawn:
        assert path.read_bytes().startswith(b"\x89PNG")
        text = path.with_suffix(".svg").read_text()
        assert "Paper" in text or "paper" in text, path.name
    by_tokens = (tmp_path / "4-reward-by-tokens.svg").read_text()
    assert "tokens generated by a node, thousands" in by_tokens
    assert total(RUNS[0]) == pytest.approx(0.4)


def test_the_number_of_an_agents_panel_does_not_grow_with_the_agents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = pytest.importorskip("shoal_lab.experiment.reading.figures")
    monkeypatch.setitem(pytest.importorskip("shoal_lab.figures").STYLE, "figure.dpi", 30)
    runs = [run("8/0", 1, 0.1), run("4/4", 1, 0.1, nodes=6)]
    figures.draw_all(tmp_path, runs, summarise(runs), "test")
    text = (tmp_path / "1-agents.svg").read_text()
    assert "8/0: 0.8 an agent (paper 70)" in text  # 561.79 by 8
    assert "4/4: 0.8 an agent (paper 137)" in text
