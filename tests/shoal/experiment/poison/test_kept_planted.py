"""The table of docs/presets.md on planted words is that of the rounds that are kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from shoal.experiment.presets import PRESETS
from tests.shoal.experiment.kept_rounds import ARCHIVES, told_of, unpack

PAGE = ARCHIVES.parent / "presets.md"
KEPT = ARCHIVES / "planted" / "planted.tar.xz"


@pytest.mark.slow
def test_the_table_is_what_its_command_prints_of_the_kept_rounds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing_to_make = replace(PRESETS["planted"], prepare=lambda: None)
    monkeypatch.setitem(PRESETS, "planted", nothing_to_make)  # type: ignore[misc]
    unpack(KEPT, tmp_path)
    _, made = told_of(tmp_path, capsys)
    assert made in PAGE.read_text(), f"{PAGE.name} has another table than {KEPT.name}"


def test_every_arm_of_the_table_is_an_arm_of_the_preset() -> None:
    told = PAGE.read_text()
    for arm in PRESETS["planted"].arms(6):
        attack, defence = arm.name.split(": ")
        share = "–" if attack == "clean" else "25%"
        assert f"| {attack.split()[0]} | {share} | {defence} |" in told
