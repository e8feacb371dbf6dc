"""The tables and figures of docs/results*.md are those of the rounds in lab/results."""

from __future__ import annotations

import json
import re
import statistics
from collections import defaultdict
from itertools import combinations
from pathlib import Path

import pytest

from shoal_lab.experiment.report.comparison import COUNTED, area_by_cpu, compared, ends_of
from shoal_lab.experiment.report.measures import (
    area,
    by_arm,
    differences,
    final_heldout,
    heldout_area,
    over,
    paired_runs,
)
from shoal_lab.experiment.report.results import JobRun
from shoal_lab.significance import Spread, spread, welch
from tests.lab.experiment.kept_rounds import ARCHIVES, DOCS, kept_runs, read_results, unpack

RESULTS = "\n".join(page.read_text() for page in sorted(DOCS.glob("results*.md")))
SHOAL = "4/8 shoal"
"""A node's defaults."""


def section(title: str) -> str:
    (found,) = re.findall(rf"^## {title}.*?(?=^##? |\Z)", RESULTS, re.DOTALL | re.MULTILINE)
    return str(found)


def row(text: str, begin: str) -> list[str]:
    """Return the cells of the table's line that begins so."""
    (line,) = [one for one in text.splitlines() if one.startswith(f"| {begin}")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def shown(value: Spread, digits: int) -> str:
    assert value.half is not None
    mean = f"{value.mean:+.{digits}f}".replace("-", "−")
    return f"{mean} ± {value.half:.{digits}f}"


def assert_p(cell: str, p: float | None) -> None:
    """The p that a cell has, rounded or as a bound, is this one."""
    ((sign, text),) = re.findall(r"p ([=<]) ([0-9.]+)", cell)
    assert p is not None
    digits = len(text.partition(".")[2])
    assert p < float(text) if sign == "<" else f"{p:.{digits}f}" == f"{float(text):.{digits}f}"


@pytest.mark.parametrize(
    "archive",
    [
        "results",
        "results-cost",
        "results-sparse",
        "results-mixes",
        "results-unlike",
        "results-unlike-real",
    ],
)
def test_a_table_at_equal_cost(archive: str, tmp_path: Path) -> None:
    unpack(ARCHIVES / f"{archive}.tar.xz", tmp_path)
    _, made = read_results(tmp_path)
    missing = [block for block in made.split("\n\n") if block not in RESULTS]
    assert not missing, "another table than this:\n" + "\n\n".join(missing)


def test_what_a_repetition_says(tmp_path: Path) -> None:
    """Mixes and late rollouts minus the silo, and the two planned runs taken together."""
    by_round: dict[str, list[float]] = defaultdict(list)
    by_cpu: dict[str, list[float]] = defaultdict(list)
    for archive in ("results-sparse", "results-mixes"):
        runs = compared(kept_runs(archive, tmp_path / archive))
        ends, arms = ends_of(runs), by_arm(runs)
        for arm, mine in arms.items():
            for run, silo in paired_runs(mine, arms["8/0"]):
                by_round[arm].append(heldout_area(run) - heldout_area(silo))
                by_cpu[arm].append(area_by_cpu(run, ends) - area_by_cpu(silo, ends))
    text = RESULTS.replace("\n", " ")
    assert len(by_cpu[SHOAL]) == 10
    assert f"is {shown(spread(by_cpu[SHOAL]), 3)}".replace("+", "") in text
    for arm in ("2/6", "4/8 delay=20"):
        for values in (by_round[arm], by_cpu[arm]):
            assert shown(spread(values), 3).replace("+", "") in text


def test_separate_processes(tmp_path: Path) -> None:
    """A swarm counts once, and so do the three lone trainers that were run after it."""
    unpack(ARCHIVES / "results-processes.tar.xz", tmp_path)
    cost = json.loads((tmp_path / "cost.json").read_text())
    text = section("As separate processes")
    areas: list[list[float]] = []
    for begin, run, nodes in (("among six", "swarm", 6), ("alone", "alone", 1)):
        curves = [
            [_curve(path) for path in tmp_path.glob(f"{run}-{number}/*.jsonl")]
            for number in range(1, 6)
        ]
        areas.append([statistics.fmean(area(*one, 100) for one in nodes_of) for nodes_of in curves])
        last = [statistics.fmean(heights[-1] for _, heights in nodes_of) for nodes_of in curves]
        means = [shown(spread(values), 3).lstrip("+") for values in (areas[-1], last)]
        spent = [one["cpu"] / nodes for name, one in cost.items() if name.startswith(run)]
        assert row(text, begin)[1:] == [*means, f"{statistics.fmean(spent):.1f}"]
    gain = statistics.fmean(areas[0]) - statistics.fmean(areas[1])
    assert f"difference is {gain:+.3f}" in text
    assert_p(text, welch(*areas))


def _curve(path: Path) -> tuple[list[int], list[float]]:
    """Return the rounds of the evaluations of one node, and its mean over the counted families."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    heights = [statistics.fmean(line[f"held_out/{name}"] for name in COUNTED) for line in lines]
    return [line["round"] for line in lines], heights


@pytest.mark.parametrize(
    ("archive", "begin", "arms"),
    [
        ("real/real", "40 rounds", ("4/4", "8/0", "8/0 filtered", "4/0")),
        ("real/longer", "80 rounds", ("4/4", "8/0")),
    ],
)
def test_the_real_model(archive: str, begin: str, arms: tuple[str, ...], tmp_path: Path) -> None:
    runs = kept_runs(archive, tmp_path)
    cells = row(section("A real model"), begin)
    means = [over(by_arm(runs)[arm], final_heldout).mean for arm in arms]
    assert cells[1 : 1 + len(arms)] == [f"{mean:.3f}" for mean in means]
    found = differences(runs, combinations(arms, 2), final_heldout)["4/4", "8/0"]
    assert shown(found.spread, 3) in cells[-1]
    assert_p(cells[-1], found.p)


@pytest.mark.parametrize(
    ("page", "begin", "rounds"),
    [
        ("train-a-real-model.md", "one node alone", "game/rounds/8-0"),
        ("train-a-real-model.md", "four nodes that share", "game/rounds/2-2-nodes-4"),
        ("games.md", "three digits by three, with the", "tool/product/rounds/8-0"),
        ("games.md", "three digits by three, without", "tool/product-alone/rounds/8-0"),
    ],
)
def test_won_games(page: str, begin: str, rounds: str, tmp_path: Path) -> None:
    """Games won of 24, mean over nodes, by seed."""
    unpack(ARCHIVES / "real" / f"{rounds.partition('/')[0]}.tar.xz", tmp_path)
    won: dict[int, list[float]] = defaultdict(list)
    for path in sorted((tmp_path / rounds).glob("seed-*.jsonl")):
        of_seed: dict[int, list[float]] = defaultdict(list)
        for line in map(json.loads, path.read_text().splitlines()):
            if line["event"] == "held_out":
                assert line["held_out/num_items"] == 24
                of_seed[line["round"]].append(24 * line["held_out/pass@1"])
        for after, scores in of_seed.items():
            won[after].append(round(statistics.fmean(scores), 2))
    table = [", ".join(f"{score:g}" for score in won[after]) for after in (0, 4, 8)]
    assert row((DOCS / page).read_text(), begin)[1:] == table


def late(runs: list[JobRun], arm: str) -> str:
    """Return the mean of an arm's last three evaluations, over its nodes and seeds."""
    nodes = [node for run in runs if run.arm == arm for node in run.held_out]
    return f"{statistics.fmean(statistics.fmean(node[-3:]) for node in nodes):.3f}"


@pytest.mark.parametrize(
    ("archive", "before", "after"),
    [
        ("hetero", "specialists 8/0", "specialists 4/4"),
        ("poison", "clean: default", "pad 25%: default"),
        ("planted", "clean: default", "preface 25%: default"),
    ],
)
def test_unlike_nodes_and_attackers(archive: str, before: str, after: str, tmp_path: Path) -> None:
    runs = kept_runs(f"presets/{archive}", tmp_path)
    table = section("What else was measured")
    for arm in (before, after):
        assert late(runs, arm) in table, (arm, late(runs, arm))
