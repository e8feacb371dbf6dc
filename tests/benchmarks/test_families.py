"""The table of a model's rewards by family, with the embedded model."""

from __future__ import annotations

import json

import pytest

from benchmarks import families


def test_it_asks_the_families_that_are_named_and_prints_a_table(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["--model", "tiny", "--tasks", "easy", "--shots", "auto", "--family", "gcd_easy"]
    arguments += ["--questions", "3", "--completions", "4"]
    assert families.main([*arguments, "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["family"] == "gcd_easy" and found["questions"] == 3
    assert 0 <= found["right"] <= 1 and found["signal"] in (0, 1 / 3, 2 / 3, 1)
    assert found["ended"] == 1 and found["tokens"] > 3
    monkeypatch.setattr(families, "ask", lambda *_: [families.FamilyResult(**found)])
    assert families.main(arguments) == 0
    made = capsys.readouterr().out.splitlines()
    assert made[2].startswith("| `gcd_easy` | ")
    assert {line.count("|") for line in made} == {6}


def test_a_model_that_is_not_there_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert families.main(["--model", "/nowhere/at/all", "--tasks", "easy"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
