"""Table and curve of docs/train-a-real-model.md are those of the rounds that are kept."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from statistics import fmean

import pytest

from tests.shoal.experiment.kept_rounds import ARCHIVES, told_of, unpack

PAGE = ARCHIVES.parent / "train-a-real-model.md"
ARCHIVE = ARCHIVES / "real" / "real.tar.xz"


def test_the_table_of_the_page_is_what_its_command_prints_of_the_kept_rounds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unpack(ARCHIVE, tmp_path)
    _, made = told_of(tmp_path, capsys)
    assert made in PAGE.read_text(), f"{PAGE.name} has another table than this:\n{made}"


def test_the_curve_of_the_page_is_what_the_kept_rounds_say(tmp_path: Path) -> None:
    unpack(ARCHIVE, tmp_path)
    rows = [row for arm in ("4-4", "8-0", "4-0") for row in _rows(tmp_path / "rounds" / arm)]
    made = "\n".join(
        ["| | seed 1 | seed 2 | seed 3 | mean |", "|---" * 5 + "|", *rows],
    )
    assert made in PAGE.read_text(), f"{PAGE.name} has another curve than this:\n{made}"


def _rows(folder: Path) -> list[str]:
    held_out: dict[int, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for path in sorted(folder.glob("seed-*.jsonl")):
        for line in map(json.loads, path.read_text().splitlines()):
            if line["event"] == "held_out":
                held_out[line["round"]][path.name].append(line["held_out/pass@1"])
    arm = folder.name.replace("-", "/")
    rows = []
    for number, by_seed in sorted(held_out.items()):
        found = [fmean(nodes) for nodes in by_seed.values()]
        cells = " | ".join(f"{one:.3f}" for one in found)
        rows.append(f"| {arm}, round {number} | {cells} | {fmean(found):.3f} |")
    return rows
