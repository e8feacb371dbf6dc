"""Law and lessons of docs/when-sharing-helps.md are those of the rounds that are kept beside it."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

from shoal.experiment.flags import make_experiment, parser
from shoal.experiment.folder import LAW, WHOM
from shoal.experiment.reading.report import write_report
from tests.shoal.experiment.kept_rounds import ARCHIVES, unpack

PAGE = ARCHIVES.parent / "when-sharing-helps.md"
TABLE = ARCHIVES / "table.tar.xz"


def test_the_law_of_the_page_is_what_the_kept_rounds_say(tmp_path: Path) -> None:
    unpack(TABLE, tmp_path)
    command = json.loads((tmp_path / "config.json").read_text())["command"]
    experiment = make_experiment(parser().parse_args(shlex.split(command)[2:]))
    write_report(tmp_path, experiment, figures=False)
    law = (tmp_path / LAW).read_text().strip()
    assert law in PAGE.read_text(), f"{PAGE.name} has another law than this:\n{law}"
    whom = (tmp_path / WHOM).read_text().strip()
    assert whom in PAGE.read_text(), f"{PAGE.name} has other lessons than these:\n{whom}"
