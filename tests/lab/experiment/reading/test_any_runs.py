"""Whatever was played, a model that earns nothing and a run of one round too: there is a report."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal_lab.experiment.arms.paper import read
from shoal_lab.experiment.drawing import comparison_figures
from shoal_lab.experiment.plan import Experiment, uniform_arm
from shoal_lab.experiment.reading.results import Run
from shoal_lab.figures import STYLE, save
from tests.lab.experiment.synthetic_runs import run

ARMS = (("8/0", 8, 8), ("4/0", 4, 4), ("4/4", 4, 20), ("24/0 nodes=1", 24, 24))
EXPERIMENT = Experiment(name="any", arms=(uniform_arm("8/0", 1),), seeds=(1,), rounds=5, base={})
levels = st.sampled_from([0.0, 0.0, 1e-9, 0.25, 1.0])


@st.composite
def played(draw: st.DrawFn) -> list[Run]:
    """Runs of some arms and seeds, each at a level of its own."""
    rounds = draw(st.integers(1, 5))
    seeds = range(1, 1 + draw(st.integers(1, 4)))
    arms = draw(st.lists(st.sampled_from(ARMS), min_size=1, unique=True))
    found = []
    for arm, questions, looked_at in arms:
        nodes = 1 if "nodes=1" in arm else draw(st.integers(1, 3))
        for seed in seeds:
            one = run(arm, seed, draw(levels), rounds=rounds, nodes=nodes)
            found.append(replace(one, questions=questions, looked_at=(looked_at,) * rounds))
    return found


@pytest.mark.filterwarnings("error")  # a library's words would stand in a person's terminal
@given(runs=played())
@settings(max_examples=40)
def test_tables_and_numbers_of_any_runs(runs: list[Run]) -> None:
    found = read(runs, EXPERIMENT)
    json.dumps(found.document, allow_nan=False)
    found.sheet.rich(found.rows, 80)
    texts = [found.sheet.markdown(found.rows), *found.sections, *found.pages.values()]
    assert not {"nan", "inf", "-inf"} & set(" ".join(texts).replace("|", " ").split())


def test_figures_are_drawn_where_nobody_has_earned_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(STYLE, "figure.dpi", 30)
    runs = [run(arm, 1, 0.0, rounds=1) for arm in ("8/0", "4/4")]
    names = ["8/0", "4/4"]
    drawn = {path.stem for path in save(tmp_path, comparison_figures(runs, names, "none"))}
    assert "9-oscillation" in drawn
    assert "0-totals" not in drawn  # over nothing nothing can be
