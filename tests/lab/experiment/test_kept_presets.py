"""The tables of the presets' pages are those of the rounds that are kept beside them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab.experiment.kept_rounds import ARCHIVES, DOCS, told_of, unpack

PAGES = {"presets": "archive/presets.md", "price": "archive/price.md"}
"""By folder of archives."""
KEPT = sorted(path for folder in PAGES for path in (ARCHIVES / folder).glob("*.tar.xz"))
SLOW = {"planted.tar.xz"}


def _told(archive: Path) -> object:
    marks = [pytest.mark.slow] if archive.name in SLOW else []
    return pytest.param(archive, id=archive.name, marks=marks)


@pytest.mark.parametrize("archive", [_told(path) for path in KEPT])
def test_a_table_is_what_its_command_prints_of_the_kept_rounds(
    archive: Path,
    tmp_path: Path,
) -> None:
    unpack(archive, tmp_path)
    _, made = told_of(tmp_path)
    page = DOCS / PAGES[archive.parent.name]
    assert made in page.read_text(), f"{page.name} has another table than {archive.name}"


def test_rounds_are_kept() -> None:
    assert {path.parent.name for path in KEPT} == set(PAGES)
