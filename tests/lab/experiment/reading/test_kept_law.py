"""Law and lessons of the pages are those of the rounds that are kept beside them."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal_lab.experiment.folder import LAW, WHOM
from tests.lab.experiment.kept_rounds import ARCHIVES, DOCS, told_of, unpack

PAGES = {"table": "archive/when-sharing-helps.md", "law": "archive/how-many-how-late.md"}


@pytest.mark.parametrize("name", PAGES)
def test_law_and_lessons_of_the_page_are_what_the_kept_rounds_say(
    name: str, tmp_path: Path
) -> None:
    unpack(ARCHIVES / f"{name}.tar.xz", tmp_path)
    told_of(tmp_path)
    page = (DOCS / PAGES[name]).read_text()
    for made in (LAW, WHOM):
        text = (tmp_path / made).read_text().strip()
        assert text in page, f"{PAGES[name]} says otherwise than this:\n{text}"
