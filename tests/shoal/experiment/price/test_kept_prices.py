"""The tables of docs/price.md are those of the rounds that are kept beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.shoal.experiment.kept_rounds import ARCHIVES, told_of, unpack

PAGE = ARCHIVES.parent / "price.md"
KEPT = sorted((ARCHIVES / "price").glob("*.tar.xz"))


@pytest.mark.parametrize("archive", KEPT, ids=lambda path: path.name)
def test_a_table_is_what_its_command_prints_of_the_kept_rounds(
    archive: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)  # the preset makes its larger model there
    unpack(archive, tmp_path)
    _, made = told_of(tmp_path, capsys)
    assert made in PAGE.read_text(), f"{PAGE.name} has another table than {archive.name}"


def test_rounds_are_kept() -> None:
    assert KEPT
