"""From runs to conclusions, with hand-made numbers; every experiment has a report."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal_lab.experiment.plan import OURS, SILO
from shoal_lab.experiment.report.comparison import COUNTED, Comparison, pairs_of
from shoal_lab.experiment.report.drawing import MOST_LINES, figures_of
from shoal_lab.experiment.report.measures import area, comparable, heldout_area
from shoal_lab.experiment.report.results import JobRun
from shoal_lab.figures import STYLE, save
from shoal_lab.significance import paired
from tests.lab.experiment.synthetic_runs import run

RUNS = [
    run(SILO, 1, 0.10, tokens=20),
    run(SILO, 2, 0.12, tokens=20),
    run("4/4", 1, 0.20),
    run("4/4", 2, 0.25),
]


def make_run(arm: str, seed: int, level: float, cpu: float) -> JobRun:
    found = run(arm, seed, level)
    return replace(found, cpu=tuple(cpu * number for number in range(1, found.rounds + 1)))


def test_a_nodes_defaults_are_compared_with_all_and_others_with_their_rival() -> None:
    assert pairs_of([SILO, OURS, "4/4"]) == [(OURS, SILO), (OURS, "4/4")]
    assert pairs_of([SILO, "4/4", "4/0"]) == [("4/4", SILO), ("4/0", SILO)]
    attacked = ["clean: none", "clean: default", "mark 25%: none", "mark 25%: default"]
    assert pairs_of(attacked) == [(attacked[2], attacked[0]), (attacked[3], attacked[1])]
    unlike = [SILO, "models 8/0, dense", "models 4/4, dense", "models 4/4, sparse"]
    assert pairs_of(unlike) == [(unlike[1], SILO), (unlike[2], unlike[1]), (unlike[3], SILO)]
    mixed = [f"unlike {OURS}, strong", f"unlike {OURS}, weak", "8/0, weak", "alike, strong"]
    assert pairs_of(mixed) == [(mixed[0], mixed[3]), (mixed[1], mixed[2])]
    assert pairs_of(["4/4", "4/0"]) == []


def test_pairs_are_tested_by_their_seeds_and_adjusted() -> None:
    third = [run("6/2", 1, 0.15), run("6/2", 2, 0.30)]
    pairs = Comparison([*RUNS, *third], "t").to_json()["pairs"]
    assert [(one["arm"], one["minus"], one["measure"]) for one in pairs] == [
        ("4/4", SILO, "by round"),
        ("6/2", SILO, "by round"),
    ]
    assert pairs[0]["difference"]["mean"] == pytest.approx((0.05 + 0.065) / 2)
    raw = [paired([0.05, 0.065]), paired([0.025, 0.09])]
    assert pairs[0]["p_adjusted"] == pytest.approx(2 * min(p for p in raw if p is not None))
    one_seed = Comparison(comparable(RUNS[:3]), "t").to_json()["pairs"]
    assert [one["p_adjusted"] for one in one_seed] == [None]


def test_arms_are_compared_up_to_where_the_silo_ends() -> None:
    """An arm that costs twice as much has half of its rounds counted by CPU second."""
    found = Comparison([make_run(SILO, 1, 0.4, 1.0), make_run(OURS, 1, 0.4, 2.0)], "t").to_json()
    assert found["area"][SILO]["mean"] == found["area"][OURS]["mean"] == pytest.approx(0.2)
    assert found["area_by_cpu"][SILO]["mean"] == pytest.approx(0.2)
    assert found["area_by_cpu"][OURS]["mean"] == pytest.approx(0.1)
    assert {one["measure"] for one in found["pairs"]} == {"by round", "by CPU second"}


def test_an_arm_that_generates_nothing_has_no_area_by_token() -> None:
    nothing = replace(make_run("12 answers", 1, 0.4, 1.0), tokens=(0.0,) * 4)
    found = Comparison([make_run(SILO, 1, 0.4, 1.0), nothing], "t").to_json()
    assert set(found["area_by_token"]) == {SILO}


def test_only_the_families_with_many_questions_count() -> None:
    level, small = ((0.1, 0.2, 0.3),), ((1.0, 1.0, 1.0),)
    by_family = {**dict.fromkeys(COUNTED, level), "count_bits_easy": small}
    one = replace(make_run(SILO, 1, 0.9, 1.0), by_family=by_family)
    (found,) = one.of_families(COUNTED).held_out
    assert found == pytest.approx((0.1, 0.2, 0.3))
    assert one.of_families(("another",)) is one
    (row,) = Comparison([one], "t").rows
    assert row.runs[0].held_out == (found,)


def test_roles_of_an_arm_are_rows_of_their_own() -> None:
    mixed = replace(
        run("slow and late 4/4", 1, 0.0),
        fresh=((0.1,) * 2, (0.4,) * 4),
        held_out=((0.0, 0.1, 0.1), (0.0, 0.4, 0.4)),
        roles=("slow", "steady"),
    )
    found = Comparison([run(SILO, 1, 0.2), mixed], "t").to_json()
    assert list(found["area"]) == [SILO, "slow and late 4/4, slow", "slow and late 4/4, steady"]
    last = {name: one["mean"] for name, one in found["heldout"].items()}
    assert list(last.values()) == pytest.approx([0.2, 0.1, 0.4])
    assert set(found["tokens"]) == {SILO}, "a mean over all nodes is no role's"


def test_what_is_planted_has_columns_where_there_is_any() -> None:
    clean, attacked = run("clean: none", 1, 0.4), run("mark 25%: none", 1, 0.2)
    marked = replace(attacked, planted=(0.0,) * 15 + (0.2, 0.4), planted_right=(0.5,) * 17)
    found = Comparison([clean, marked], "t")
    assert found.to_json()["planted"] == {"mark 25%: none": {"mean": 0.4, "sd": 0.0, "ci95": None}}
    lines = found.markdown().splitlines()
    assert lines[0].endswith("| planted | of right |")
    assert lines[2].endswith("| – | – |") and lines[3].endswith("| 40.0% | 50.0% |")
    assert "planted" not in Comparison([clean], "t").markdown()


def test_only_seeds_that_all_arms_have_finished_are_compared() -> None:
    assert comparable(RUNS[:3]) == [RUNS[0], RUNS[2]]
    assert comparable([RUNS[0], RUNS[3]]) == [RUNS[0], RUNS[3]]


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


levels = st.sampled_from([0.0, 0.0, 1e-9, 0.25, 1.0])


@st.composite
def played(draw: st.DrawFn) -> list[JobRun]:
    """Runs of some arms and seeds, each at a level of its own; with CPU seconds, or without."""
    rounds = draw(st.integers(1, 5))
    seeds = range(1, 1 + draw(st.integers(1, 4)))
    names = st.sampled_from([SILO, OURS, "4/4", "clean: none", "mark 25%: none"])
    has_cpu = draw(st.booleans())
    found = []
    for arm in draw(st.lists(names, unique=True)):
        nodes = draw(st.integers(1, 3))
        for seed in seeds:
            one = run(arm, seed, draw(levels), rounds=rounds, nodes=nodes)
            planted = (draw(levels),) * rounds if arm.startswith("mark") else ()
            cpu = tuple(0.1 * number for number in range(1, rounds + 1)) if has_cpu else ()
            found.append(replace(one, cpu=cpu, planted=planted))
    return found


@pytest.mark.filterwarnings("error")  # a library's words would stand in a person's terminal
@given(runs=played())
@settings(max_examples=60)
def test_tables_and_numbers_of_any_runs(runs: list[JobRun]) -> None:
    found = Comparison(runs, "t")
    json.dumps(found.to_json(), allow_nan=False)
    found.sheet.rich(found.rows, 80)
    words = found.markdown().replace("|", " ").split()
    assert not {"nan", "inf", "-inf"} & set(words)


def test_figures_have_axes_and_many_arms_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(STYLE, "figure.dpi", 30)
    few = [make_run(SILO, 1, 0.0, 1.0), make_run("4/4", 1, 0.0, 1.0)]
    drawn = save(tmp_path, figures_of(few, "test"))
    assert [path.stem for path in drawn] == ["held-out-by-cpu-second", "held-out-by-round"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in drawn)
    assert "CPU seconds of a node" in drawn[0].with_suffix(".svg").read_text()
    many = [run(f"{number}/0", 1, 0.1) for number in range(MOST_LINES + 1)]
    assert save(tmp_path, figures_of(many, "test")) == []
