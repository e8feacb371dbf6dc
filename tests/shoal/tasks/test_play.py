"""A game played in the terminal: what is typed are the messages."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest

from shoal.__main__ import main
from shoal_policy.checkpoint.saved import TrainerState
from shoal_policy.checkpoint.saving import save_checkpoint
from shoal_policy.update.grpo import make_optimizer
from tests.policy import tiny_models
from tests.tasks.games import game_file


def played(folder: Path, typed: str, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr("sys.stdin", io.StringIO(typed))
    return main(["tasks", str(game_file(folder)), "--play"])


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
    assert "'gcd_easy' is not a game" in capsys.readouterr().err


def test_a_game_is_shown_with_the_command_that_plays_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tasks", str(game_file(tmp_path))]) == 0
    assert "`shoal tasks guess --play` plays it here" in capsys.readouterr().out


def test_a_model_plays_a_game(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Turn by turn, with the reward that its messages earn when they are replayed."""
    file = game_file(tmp_path, max_turns=3)
    command = ["tasks", str(file), "--play", "--model", "tiny"]
    assert main(command) == 0
    text = capsys.readouterr().out
    assert text.startswith("Guess a number from 1 to 6.\n\n> ")
    output = len(re.findall(r"^> ", text, re.MULTILINE))
    assert 1 <= output <= 3
    ended = re.search(r"The game .* after (\d) turns?\. Reward (\d\.\d\d)\n$", text)
    assert ended is not None and int(ended[1]) == output
    replied = len(re.findall(r"^(It is|That is|Right)", text, re.MULTILINE))
    assert replied in (output, output - 1), "a last message that was cut has no answer"


def test_a_checkpoint_plays_and_what_is_none_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(game_file(tmp_path))
    (tmp_path / "node" / "checkpoints").mkdir(parents=True)
    play = ["tasks", file, "--play", "--model"]
    assert main([*play, str(tmp_path / "node")]) == 2
    assert "has no checkpoint yet" in capsys.readouterr().err
    assert main([*play, "tiny", "--shots", "2"]) == 2
    assert "no worked examples" in capsys.readouterr().err
    assert main(["tasks", "gcd_easy", "--play", "--model", "tiny"]) == 2
    assert "is not a game" in capsys.readouterr().err


def test_a_nodes_folder_plays_with_its_newest_checkpoint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = tiny_models.policy()
    state = TrainerState(round=1, policy_version=1)
    save_checkpoint(tmp_path, policy, make_optimizer(policy, lr=1e-3), state)
    file = str(game_file(tmp_path, max_turns=2))
    assert main(["tasks", file, "--play", "--model", str(tmp_path)]) == 0
    assert "The game " in capsys.readouterr().out
