"""Table and curve of docs/archive/real-model.md are those of the rounds that are kept."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from statistics import fmean

import pytest

from tests.lab.experiment.kept_rounds import ARCHIVES, DOCS, told_of, unpack

PAGE = DOCS / "archive" / "real-model.md"
ARCHIVE = ARCHIVES / "real" / "real.tar.xz"
ARMS = ("4-4", "8-0", "8-0-filtered", "4-0")


@pytest.mark.parametrize("name", ["real", "longer"])
def test_the_table_of_the_page_is_what_its_command_prints_of_the_kept_rounds(
    name: str, tmp_path: Path
) -> None:
    unpack(ARCHIVE.with_name(f"{name}.tar.xz"), tmp_path)
    _, made = told_of(tmp_path)
    assert made in PAGE.read_text(), f"{PAGE.name} has another table than this:\n{made}"


@pytest.mark.parametrize(("name", "arms"), [("real", ARMS), ("longer", ARMS[:2])])
def test_the_curve_of_the_page_is_what_the_kept_rounds_say(
    name: str, arms: tuple[str, ...], tmp_path: Path
) -> None:
    unpack(ARCHIVE.with_name(f"{name}.tar.xz"), tmp_path)
    jobs = sorted((tmp_path / "rounds" / arms[0]).glob("seed-*.jsonl"))
    seeds = " | ".join(path.stem.replace("-", " ") for path in jobs)
    rows = [row for arm in arms for row in _rows(tmp_path / "rounds" / arm)]
    made = "\n".join([f"| | {seeds} | mean |", "|---" * (len(jobs) + 2) + "|", *rows])
    assert made in PAGE.read_text(), f"{PAGE.name} has another curve than this:\n{made}"


def test_the_rates_of_the_page_are_what_the_kept_rounds_say(tmp_path: Path) -> None:
    unpack(ARCHIVE, tmp_path / "5e-4")
    for rate in ("2.5e-4", "1e-3"):
        unpack(ARCHIVE.with_name(f"rate-{rate}.tar.xz"), tmp_path / rate)
    rows = ["| | 2.5e-4 | 5e-4 | 1e-3 |", "|---" * 4 + "|"]
    for arm in ARMS:
        found = [
            _end(tmp_path / rate / "rounds" / arm / "seed-1.jsonl")
            for rate in ("2.5e-4", "5e-4", "1e-3")
        ]
        cells = " | ".join(f"{total:.2f}, {held_out:.3f}" for total, held_out in found)
        rows.append(f"| {_name(arm)} | {cells} |")
    made = "\n".join(rows)
    page = PAGE.read_text()
    assert made in page, f"{PAGE.name} has other rates than this:\n{made}"

    slow, fast, swarm = (
        _signal(tmp_path / rate / "rounds" / arm / "seed-1.jsonl")
        for rate, arm in (("2.5e-4", "8-0"), ("1e-3", "8-0"), ("2.5e-4", "4-4"))
    )
    page = " ".join(page.split())
    assert (
        f"{slow[0]:.1f} had signal in its first five rounds and {slow[-1]:.1f} in its last five "
        f"(at 2.5e-4; {fast[-1]:.1f} at 1e-3)"
    ) in page
    assert f"4/4 has {min(swarm):.1f} to {max(swarm):.1f} of eight all the way" in page


def test_what_was_tried_cooler_is_what_the_kept_rounds_say(tmp_path: Path) -> None:
    unpack(ARCHIVE.with_name("cooler.tar.xz"), tmp_path)
    together, alone = (_end(tmp_path / "rounds" / arm / "seed-1.jsonl") for arm in ARMS[:2])
    page = " ".join(PAGE.read_text().split())
    assert (
        f"{together[0]:.1f} and {alone[0]:.1f} of total, {together[1]:.3f} and {alone[1]:.3f} "
        "held-out"
    ) in page


def _end(path: Path) -> tuple[float, float]:
    """A node's total, and its last held-out figure: means of a job's nodes."""
    totals: dict[int, float] = defaultdict(float)
    held_out: dict[int, float] = {}
    for line in map(json.loads, path.read_text().splitlines()):
        if line["event"] == "round":
            totals[line["node"]] += line["reward_local"]
        if line["event"] == "held_out":
            held_out[line["node"]] = line["held_out/pass@1"]
    return fmean(totals.values()), fmean(held_out.values())


def _signal(path: Path) -> list[float]:
    """Groups with signal of a node's training set: means of five rounds."""
    found: dict[int, list[int]] = defaultdict(list)
    for line in map(json.loads, path.read_text().splitlines()):
        if line["event"] == "round":
            found[(line["round"] - 1) // 5].append(line["groups_with_signal"])
    return [fmean(values) for _, values in sorted(found.items())]


def _name(folder: str) -> str:
    return folder.replace("-", "/", 1).replace("-", " ")


def _rows(folder: Path) -> list[str]:
    held_out: dict[int, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for path in sorted(folder.glob("seed-*.jsonl")):
        for line in map(json.loads, path.read_text().splitlines()):
            if line["event"] == "held_out":
                held_out[line["round"]][path.name].append(line["held_out/pass@1"])
    rows = []
    for number, by_seed in sorted(held_out.items()):
        found = [fmean(nodes) for nodes in by_seed.values()]
        cells = " | ".join(f"{one:.3f}" for one in found)
        rows.append(f"| {_name(folder.name)}, round {number} | {cells} | {fmean(found):.3f} |")
    return rows
