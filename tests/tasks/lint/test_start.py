"""The quick lint at a start: refusals, warnings, and its cache."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from shoal.__main__ import main
from shoal_base.cache_folder import cache_folder
from shoal_tasks.errors import FamilyError
from shoal_tasks.lint.start import lint_at_start
from tests.support.task_files import task_file

SOUND = (
    "def reward(completions, answer):\n"
    "    return [float(c == a) for c, a in zip(completions, answer)]\n"
)
CONSTANT = "def reward(completions, **columns):\n    return [0.1 for _ in completions]\n"
ROWS = [{"question": f"Name number {n}.", "answer": name} for n, name in enumerate("abcdefgh")]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def rewarded(folder: Path, source: str, **fields: object) -> Path:
    path = task_file(folder, "mine", ROWS, reward="reward.py", **fields)
    (folder / "reward.py").write_text(source)
    return path


def remembered() -> list[Path]:
    return sorted(cache_folder("lint").glob("*"))


def test_a_sound_task_is_linted_once(tmp_path: Path) -> None:
    path = rewarded(tmp_path, SOUND)
    lint_at_start([str(path)])
    (verdict,) = remembered()
    before = verdict.stat().st_mtime_ns
    lint_at_start([str(path)])
    assert [one.stat().st_mtime_ns for one in remembered()] == [before]
    verdict.write_text("{}")  # a damaged one is replaced
    lint_at_start([str(path)])
    assert len(verdict.read_text()) > 2
    rewarded(tmp_path, SOUND, good=["{answer}"])
    lint_at_start([str(path)])
    assert len(remembered()) == 2


def test_a_task_that_pays_for_anything_is_refused_at_each_start(tmp_path: Path) -> None:
    path = rewarded(tmp_path, CONSTANT)
    for _ in range(2):
        with pytest.raises(FamilyError, match=r"mine\.toml is not sound: it gives 0\.10 to every"):
            lint_at_start([str(path)])
    assert remembered() == []


@pytest.mark.parametrize("command", ["node", "trainer --alone", "tasks try"])
def test_commands_refuse_it_in_one_line(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = rewarded(tmp_path, CONSTANT)
    flags = ["--tasks", str(path), "--data-dir", str(tmp_path / "node")]
    words = [*command.split(), *(flags if command != "tasks try" else [str(path)])]
    code = main([*words, "--model", "tiny"])
    error = capsys.readouterr().err
    assert code in (1, 2) and error.count("\n") == 1
    assert "is not sound: it gives 0.10 to everything" in error


def test_a_start_warns_of_a_task_without_a_known_answer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = task_file(
        tmp_path, "mine", [{"question": f"{n}?"} for n in range(9)], reward="reward.py"
    )
    (tmp_path / "reward.py").write_text(
        "def reward(completions):\n    return [min(1, len(one) / 99) for one in completions]\n"
    )
    for _ in range(2):  # the second time from the cache
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            lint_at_start([str(path)])
        assert "the rows have no right answer" in caplog.text


@pytest.mark.parametrize("content", ['name = "mine"', "no toml", 'name = "a"\nrows = "none.jsonl"'])
def test_a_file_that_cannot_be_used_is_left_to_its_own_message(
    content: str, tmp_path: Path
) -> None:
    (tmp_path / "mine.toml").write_text(content)
    lint_at_start([str(tmp_path / "mine.toml"), str(tmp_path / "missing.toml")])
