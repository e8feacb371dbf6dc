"""The tables of docs/presets.md are those of the rounds that are kept beside it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from shoal.experiment.presets import PRESETS
from tests.shoal.experiment.kept_rounds import ARCHIVES, told_of, unpack

PAGE = ARCHIVES.parent / "presets.md"
KEPT = sorted((ARCHIVES / "presets").glob("*.tar.xz"))


@pytest.mark.parametrize("archive", KEPT, ids=lambda path: path.name)
def test_a_table_is_what_its_command_prints_of_the_kept_rounds(
    archive: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = archive.name.split(".")[0]
    nothing_to_make = replace(PRESETS[name], prepare=lambda: None)
    monkeypatch.setitem(PRESETS, name, nothing_to_make)  # type: ignore[misc]
    unpack(archive, tmp_path)
    _, made = told_of(tmp_path, capsys)
    assert made in PAGE.read_text(), f"{PAGE.name} has another table than {archive.name}"


def test_rounds_are_kept() -> None:
    assert KEPT
