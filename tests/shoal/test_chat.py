"""`shoal chat` as its user meets it."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from shoal.__main__ import main
from shoal_settings.exits import EXIT_NO_NODE, EXIT_OK, EXIT_USAGE
from tests.policy import tiny_models
from tests.support.schemas import check

TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}answer: "


def test_each_line_is_answered_until_the_input_ends(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("2 + 3\n\n4 + 4\n"))
    assert main(["chat", "--model", "tiny", "--max-new-tokens", "4", "--json"]) == EXIT_OK
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    for answer in answers:
        check("chat", answer)
    assert [answer["message"] for answer in answers] == ["2 + 3", "4 + 4"]
    assert all(1 <= answer["num_tokens"] <= 4 for answer in answers)


@pytest.mark.slow
def test_a_line_that_is_too_long_is_reported_and_the_next_is_answered() -> None:
    """In a process of its own, with a pipe for a keyboard."""
    command = [sys.executable, "-m", "shoal", "chat", "--model", "tiny", "--max-new-tokens", "4"]
    typed = f"{'9' * 5000}\n2 + 3\n"
    done = subprocess.run(command, input=typed, capture_output=True, text=True, check=False)
    assert done.returncode == EXIT_OK, done.stderr
    assert "leaves no positions for an answer" in done.stdout
    assert "Traceback" not in done.stderr


def test_a_conversation_goes_on_until_an_empty_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """When the turns fill the model's 96 positions, a line explains how to start again."""
    tiny_models.model("llama").save_pretrained(tmp_path)
    tokenizer = tiny_models.tokenizer(answer_token=False)
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(tmp_path)
    flags = ["--model", str(tmp_path), "--max-new-tokens", "4", "--json"]
    monkeypatch.setattr(sys, "stdin", io.StringIO("2 + 3\n" * 20 + "\n2 + 3\n"))
    code = main(["chat", *flags])
    output = capsys.readouterr()
    assert code == EXIT_OK, output.err
    answers = output.out.splitlines()
    refused = output.err.count("an empty line begins a new conversation")
    assert 2 <= len(answers) <= 10
    assert len(answers) + refused == 21
    assert "empty line" not in output.err.splitlines()[-1]


def test_what_cannot_be_talked_to_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for flags, code, output in (
        (["--data-dir", str(tmp_path)], EXIT_NO_NODE, "no checkpoint in"),
        (["--model", "tiny", "--checkpoint", str(tmp_path)], EXIT_USAGE, "give one of them"),
        (["--model", str(tmp_path / "none")], EXIT_USAGE, "no such folder"),
    ):
        assert main(["chat", *flags]) == code
        (line,) = capsys.readouterr().err.strip().splitlines()
        assert output in line, line
