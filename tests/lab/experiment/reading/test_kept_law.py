"""Law and lessons of the pages are those of the rounds that are kept beside them."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from shoal_lab.experiment.arms.paper import read
from shoal_lab.experiment.flags import make_experiment, parser
from shoal_lab.experiment.folder import LAW, WHOM
from shoal_lab.experiment.reading.report import report
from tests.lab.experiment.kept_rounds import ARCHIVES, DOCS, unpack

PAGES = {"table": "when-sharing-helps.md", "law": "how-many-how-late.md"}


@pytest.mark.parametrize("name", PAGES)
def test_law_and_lessons_of_the_page_are_what_the_kept_rounds_say(
    name: str, tmp_path: Path
) -> None:
    unpack(ARCHIVES / f"{name}.tar.xz", tmp_path)
    command = json.loads((tmp_path / "config.json").read_text())["command"]
    experiment = make_experiment(parser().parse_args(shlex.split(command)[2:]))
    report(tmp_path, experiment, read, figures=False)
    page = (DOCS / PAGES[name]).read_text()
    for made in (LAW, WHOM):
        text = (tmp_path / made).read_text().strip()
        assert text in page, f"{PAGES[name]} says otherwise than this:\n{text}"
