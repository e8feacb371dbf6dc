"""`shoal tasks lint`: what it prints, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shoal.__main__ import main
from tests.support.task_files import task_file

ROWS = [{"question": f"Name number {n}.", "answer": name} for n, name in enumerate("abcdefgh")]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def rewarded(source: str, **fields: object) -> None:
    task_file(Path(), "mine", ROWS, reward="reward.py", **fields)
    Path("reward.py").write_text(f"def reward(completions, answer):\n    return {source}\n")


def test_a_sound_task(capsys: pytest.CaptureFixture[str]) -> None:
    rewarded("[float(c == f'#### {a}') for c, a in zip(completions, answer)]")
    assert main(["tasks", "lint", "mine.toml"]) == 0
    shown = capsys.readouterr().out
    assert "mine.toml: sound" in shown and "1.00  the right answer, as #### X" in shown
    assert " a score" in shown
    assert main(["tasks", "lint", "mine.toml", "--quick", "--json"]) == 0
    view = json.loads(capsys.readouterr().out)
    assert view["sound"] is True and view["form"] == "#### X" and view["floor"] is None
    assert view["wrong"]["an empty answer"] == 0 and view["seconds_per_score"] > 0


def test_a_task_that_is_not_sound(capsys: pytest.CaptureFixture[str]) -> None:
    rewarded("[float(c == f'~{a}~') for c, a in zip(completions, answer)]")
    assert main(["tasks", "lint", "mine.toml"]) == 1
    shown = capsys.readouterr().out
    assert "mine.toml: not sound" in shown
    for form in ("<answer>X</answer>", r"\boxed{X}", "#### X", "<think>…</think> X"):
        assert f"  {form}\n" in shown
    assert main(["tasks", "lint", "mine.toml", "--json"]) == 1
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert (finding["level"], finding["check"]) == ("refused", "constant")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"good": "text"}, "good has the wrong type"),
        ({"good": [1]}, "good must be a list of texts"),
        ({"goood": []}, "unknown key 'goood'"),
    ],
)
def test_what_cannot_be_read_is_usage(
    fields: dict[str, object], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    rewarded("[0]", **fields)
    assert main(["tasks", "lint", "mine.toml"]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
