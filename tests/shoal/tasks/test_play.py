"""A game played in the terminal: what is typed are the messages."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from shoal.__main__ import main
from tests.tasks.games import game_file


def played(folder: Path, typed: str, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr("sys.stdin", io.StringIO(typed))
    return main(["tasks", "guess", "--task-file", str(game_file(folder)), "--play"])


def test_a_game_is_played_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert played(tmp_path, "x\n1\n2\n3\n4\n5\n6\n7\n8\n", monkeypatch) == 0
    text = capsys.readouterr().out
    assert "Guess a number from 1 to 6." in text and "> That is no number." in text
    assert "The game is over after" in text and "Reward" in text


def test_one_that_is_left_says_what_it_has_earned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert played(tmp_path, "7\n", monkeypatch) == 0
    assert "unfinished after 1 turn. Reward 0.10" in capsys.readouterr().out


def test_what_does_not_answer_back_cannot_be_played(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tasks", "gcd_easy", "--play"]) == 2
    assert "'gcd_easy' does not answer back" in capsys.readouterr().err


def test_a_game_is_shown_with_the_command_that_plays_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tasks", "guess", "--task-file", str(game_file(tmp_path))]) == 0
    assert "`shoal tasks guess --play` plays it here" in capsys.readouterr().out
