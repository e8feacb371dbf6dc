"""The tables of the pages on experiments are those of the rounds that are kept beside them."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from shoal.experiment.command import main
from shoal.experiment.flags import make_experiment, parser
from shoal.experiment.folder import is_done
from tests.shoal.experiment.kept_rounds import ARCHIVES, brief, unpack

DOCS = ARCHIVES.parent
PAGE = DOCS / "experiments.md"
OF_CHOICE = DOCS / "strategies.md"
KEPT = sorted(ARCHIVES.glob("*.tar.xz"))
BESIDE = {
    "balance.tar.xz": (OF_CHOICE, "8/0"),
    "ceiling-rates.tar.xz": (PAGE, "24/0 nodes=1"),
    "versions.tar.xz": (OF_CHOICE, "4/4"),
}
"""Of archives whose table is short: its page, and the arm that the others are compared with."""


@pytest.mark.parametrize("archive", KEPT, ids=lambda path: path.name)
def test_a_table_is_what_its_command_prints_of_the_kept_rounds(
    archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unpack(archive, tmp_path)
    command = json.loads((tmp_path / "config.json").read_text())["command"]
    typed = shlex.split(command)[2:]
    experiment = make_experiment(parser().parse_args(typed))
    assert all(is_done(tmp_path, job) for job in experiment.jobs())  # nothing is played here
    assert main([*typed, "--out", str(tmp_path), "--no-figures", "--jobs", "0", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["jobs"] == document["jobs_finished"] > 0
    made = (tmp_path / "table.md").read_text().split("\n", 2)[2].strip()
    page, beside = BESIDE.get(archive.name, (PAGE, None))
    if beside is not None:
        made, of = brief(document, beside), made.splitlines()[-1]
        assert of in page.read_text(), f"{page.name} says otherwise what {archive.name} came of"
    assert made in page.read_text(), f"{page.name} has another table than {archive.name}"


def test_rounds_are_kept() -> None:
    assert KEPT


@pytest.mark.parametrize(
    ("page", "section"),
    [("experiments.md", "The table"), ("when-sharing-helps.md", "Join, alone")],
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
