"""The tables of the pages on experiments are those of the rounds that are kept beside them."""

from __future__ import annotations

import re
import statistics
from pathlib import Path

import pytest

from shoal_lab.experiment.reading.results import load_runs, mean_over_nodes
from shoal_lab.significance import spread
from tests.lab.experiment.kept_rounds import ARCHIVES, DOCS, brief, experiment_of, told_of, unpack

PAGE = DOCS / "archive" / "experiments.md"
RESULTS = DOCS / "results.md"
OF_CHOICE = DOCS / "archive" / "tried.md"
VERSIONS = ARCHIVES / "versions.tar.xz"
KEPT = sorted({*ARCHIVES.glob("*.tar.xz")} - {VERSIONS})
BESIDE: dict[str, tuple[Path, str | None]] = {
    "results.tar.xz": (RESULTS, None),
    "ceiling-rates.tar.xz": (PAGE, "24/0 nodes=1"),
    "law.tar.xz": (DOCS / "archive" / "how-many-how-late.md", "8/0"),
    "long.tar.xz": (PAGE, "8/0"),
    "nodes.tar.xz": (DOCS / "archive" / "how-many-how-late.md", "8/0"),
    "start-21.tar.xz": (DOCS / "archive" / "other-starts.md", "8/0"),
    "start-22.tar.xz": (DOCS / "archive" / "other-starts.md", "8/0"),
}
"""Of archives whose table is short: its page, and the arm that the others are compared with."""


@pytest.mark.parametrize("archive", KEPT, ids=lambda path: path.name)
def test_a_table_is_what_its_command_prints_of_the_kept_rounds(
    archive: Path, tmp_path: Path
) -> None:
    unpack(archive, tmp_path)
    document, made = told_of(tmp_path)
    page, beside = BESIDE.get(archive.name, (PAGE, None))
    if beside is not None:
        made, of = brief(document, beside), made.splitlines()[-1]
        assert of in page.read_text(), f"{page.name} says otherwise what {archive.name} came of"
    assert made in page.read_text(), f"{page.name} has another table than {archive.name}"


def test_what_is_said_of_a_setting_that_is_gone(tmp_path: Path) -> None:
    unpack(VERSIONS, tmp_path)
    document, _ = told_of(tmp_path)
    sharing = [one for arm, one in document["totals"].items() if arm.startswith("4/4")]
    assert len(sharing) == 3
    for one in sharing:
        half = (one["ci95"][1] - one["ci95"][0]) / 2
        assert f"{one['mean']:.1f} ± {half:.1f}" in OF_CHOICE.read_text()


def test_what_is_said_of_the_last_hundred_of_400_rounds(tmp_path: Path) -> None:
    unpack(ARCHIVES / "long.tar.xz", tmp_path)
    runs = load_runs(tmp_path, experiment_of(tmp_path)[0])
    late = {
        (run.arm.split()[0], run.seed): statistics.fmean(mean_over_nodes(run.fresh)[-100:])
        for run in runs
    }
    seeds = sorted({seed for _, seed in late})
    above = spread([late["4/4", seed] - late["8/0", seed] for seed in seeds])
    means = {arm: statistics.fmean(late[arm, seed] for seed in seeds) for arm, _ in late}
    said = " ".join(_section(PAGE.read_text(), "400 rounds").split())
    assert f"8/0 {means['8/0']:.3f}, 4/4 {means['4/4']:.3f}, 24/0 {means['24/0']:.3f}" in said
    assert f"{above.mean:+.3f} ± {above.half:.3f} by seed" in said


@pytest.mark.parametrize("beside", ["8/0", "8/0 filtered"])
def test_the_three_checkpoints_of_the_page_on_results(beside: str, tmp_path: Path) -> None:
    """Held-out after 50 and 100 rounds, 4/8 minus the arm, by seed of all three archives."""
    above: dict[int, list[float]] = {50: [], 100: []}
    for archive in ("table", "start-21", "start-22"):
        folder = tmp_path / archive
        folder.mkdir()
        unpack(ARCHIVES / f"{archive}.tar.xz", folder)
        at = {
            (run.arm, run.seed, after): score
            for run in load_runs(folder, experiment_of(folder)[0])
            for after, score in zip(run.evaluated, mean_over_nodes(run.held_out), strict=True)
        }
        for (arm, seed, after), score in at.items():
            if arm == "4/8 nodes=6" and after in above:
                above[after].append(score - at[beside, seed, after])
    cells = [spread(above[after]) for after in (50, 100)]
    assert [len(found) for found in above.values()] == [13, 13]
    told = " | ".join(f"{one.mean:+.3f} ± {one.half:.3f}".replace("-", "−") for one in cells)
    assert f"| {beside} | {told} |" in RESULTS.read_text()


def test_rounds_are_kept() -> None:
    assert KEPT


@pytest.mark.parametrize(
    ("page", "section"),
    [
        ("archive/experiments.md", "The table"),
        ("archive/when-sharing-helps.md", "Join, alone"),
        ("results.md", "The main comparison"),
    ],
)
def test_what_is_said_of_the_table_stands_in_it(page: str, section: str) -> None:
    """Every figure with an interval, which the test above has proved of the table itself."""
    table = re.split(r"\nMade by ", _section(PAGE.read_text(), "The table"))[0]
    said = _section((DOCS / page).read_text(), section)
    figures = re.findall(r"\d+(?:\.\d+)? ?%? ± \d+(?:\.\d+)?", said)
    assert len(figures) > 5
    assert not [one for one in figures if one.replace(" %", "%") not in table]


def _section(text: str, title: str) -> str:
    (found,) = re.findall(rf"^## {title}.*?(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)
    assert isinstance(found, str)
    return found
