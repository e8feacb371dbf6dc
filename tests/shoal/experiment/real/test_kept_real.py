"""The curve of docs/train-a-real-model.md is that of the rounds that are kept beside it."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from statistics import fmean

from tests.shoal.experiment.kept_rounds import ARCHIVES, unpack

PAGE = ARCHIVES.parent / "train-a-real-model.md"
ARCHIVE = ARCHIVES / "real" / "first.tar.xz"


def test_the_curve_of_the_page_is_what_the_kept_rounds_say(tmp_path: Path) -> None:
    unpack(ARCHIVE, tmp_path)
    command = json.loads((tmp_path / "config.json").read_text())["command"]
    made = "\n".join(
        [
            "| | node 0 | node 1 | node 2 | node 3 | mean |",
            "|---|---|---|---|---|---|",
            *(row for path in sorted(tmp_path.glob("rounds/*/*.jsonl")) for row in _rows(path)),
        ]
    )
    page = PAGE.read_text()
    assert f"`{command}`" in page.replace("\n", " ")
    assert made in page, f"{PAGE.name} has another curve than this:\n{made}"


def _rows(path: Path) -> list[str]:
    held_out: dict[int, list[float]] = defaultdict(list)
    for line in map(json.loads, path.read_text().splitlines()):
        if line["event"] == "held_out":
            held_out[line["round"]].append(line["held_out/pass@1"])
    arm = path.parent.name.replace("-", "/")
    return [
        f"| {arm}, round {number} | {' | '.join(f'{one:.3f}' for one in found)} "
        f"| {fmean(found):.3f} |"
        for number, found in sorted(held_out.items())
    ]
