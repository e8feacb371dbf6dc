"""Whatever was played, a model that earns nothing and a run of one round too: there is a report."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal_lab.experiment.reading.ceiling import ceiling
from shoal_lab.experiment.reading.ceiling import markdown as ceiling_markdown
from shoal_lab.experiment.reading.law import find
from shoal_lab.experiment.reading.law_page import markdown as law_markdown
from shoal_lab.experiment.reading.results import Run
from shoal_lab.experiment.reading.summary import pairs, summarise, to_json
from shoal_lab.experiment.reading.table import markdown, pairs_markdown, rich_table
from tests.lab.experiment.synthetic_runs import run

ARMS = (("8/0", 8, 8), ("4/0", 4, 4), ("4/4", 4, 20), ("24/0 nodes=1", 24, 24))
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
    summaries, compared = summarise(runs), pairs(runs)
    top, law = ceiling(runs), find(runs)
    json.dumps({**to_json(summaries, compared), **(top.to_json() if top else {})}, allow_nan=False)
    rich_table(summaries, "any", 80)
    texts = [markdown(summaries), pairs_markdown(compared)]
    texts += [ceiling_markdown(top)] if top else []
    texts += [law_markdown(law)] if law else []
    assert not {"nan", "inf", "-inf"} & set(" ".join(texts).replace("|", " ").split())


def test_figures_are_drawn_where_nobody_has_earned_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = pytest.importorskip("shoal_lab.experiment.reading.figures")
    monkeypatch.setitem(pytest.importorskip("shoal_lab.figures").STYLE, "figure.dpi", 30)
    runs = [run(arm, 1, 0.0, rounds=1) for arm in ("8/0", "4/4")]
    drawn = {path.stem for path in figures.draw_all(tmp_path, runs, summarise(runs), "none")}
    assert "9-oscillation" in drawn
    assert "0-totals" not in drawn  # over nothing nothing can be
