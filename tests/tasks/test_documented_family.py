"""Families exactly as the pages of docs show them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from shoal.__main__ import main

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = "".join(
    (DOCS / name).read_text()
    for name in ("task-files.md", "rewards.md", "code-tasks.md", "games.md")
)


def block(language: str, beginning: str) -> str:
    """Return the pages' code block in `language` that contains `beginning`."""
    found: str
    (found,) = (
        text for text in re.findall(rf"```{language}\n(.*?)```", PAGES, re.S) if beginning in text
    )
    return found


def shown(folder: Path, name: str, table: str, rows: str, capsys: Any) -> dict[str, Any]:
    """Write the two files and return what `shoal tasks FILE` shows."""
    (folder / f"{name}.toml").write_text(table)
    (folder / f"{name}.jsonl").write_text(rows)
    assert main(["tasks", str(folder / f"{name}.toml"), "--json"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    return dict(json.loads(line))


def test_exact_answers_from_a_file_of_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = block("json", "Lima")
    family = shown(tmp_path, "capitals", block("toml", "capitals.jsonl"), rows, capsys)
    assert family["name"] == "capitals"
    sample = family["sample"]
    assert {"question": sample["question"], "answer": sample["answer"]} in [
        json.loads(row) for row in rows.splitlines()
    ]
    assert sample["scored"][0]["reward"] == 1.0
    assert sample["scored"][-1]["reward"] == 0.0


def test_code_with_unit_tests(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = block("json", "canonical_solution")
    family = shown(tmp_path, "code", block("toml", "code.jsonl"), rows, capsys)
    rewards = [one["reward"] for one in family["sample"]["scored"]]
    assert rewards == [1.0, 0.5, 0.0, 0.0]


@pytest.mark.slow
def test_answers_as_mathematics(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("math_verify")
    table = block("toml", "fractions.jsonl")
    row = re.search(r"# (\{.*\})", table)
    assert row is not None
    family = shown(tmp_path, "fractions", table, row[1] + "\n", capsys)
    sample = family["sample"]
    assert sample["answer"] == "\\frac{3}{4}"
    assert sample["scored"][0]["reward"] == 1.0
    assert sample["scored"][-1]["reward"] == 0.0
