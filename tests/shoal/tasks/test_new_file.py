"""`shoal tasks new` and `shoal tasks try`: from data to a task file, and what a model earns."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from shoal.__main__ import main
from shoal.tasks.new_file import look_at
from shoal_base.toml_file import read_toml


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def write(name: str, rows: list[dict[str, Any]]) -> None:
    Path(name).write_text("".join(f"{json.dumps(row)}\n" for row in rows))


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (
            [{"question": f"{n}?", "answer": f"so {n}\n#### {n}"} for n in range(20)],
            {"answer_after": "####", "verifier": "math"},
        ),
        (
            [{"Problem": f"{n}?", "level": 1, "solution": n} for n in range(20)],
            {"question": "Problem", "answer": "solution", "verifier": "math"},
        ),
        (
            [{"prompt": f"{n}?", "completion": f"word {n}"} for n in range(20)],
            {"question": "prompt", "answer": "completion", "verifier": "exact"},
        ),
        (
            [{"question": f"{n}?", "answer": rf"\frac{{{n}}}{{7}}"} for n in range(20)],
            {"verifier": "math"},
        ),
    ],
)
def test_the_keys_of_a_file_are_found_by_looking(
    rows: list[dict[str, Any]], expected: dict[str, str]
) -> None:
    write("data.jsonl", rows)
    found = look_at("data.jsonl", "data").fields
    assert found == {"name": "data", "rows": "data.jsonl", **expected, "answer_format": "tagged"}


def test_a_file_is_written_and_its_answers_are_tried(capsys: pytest.CaptureFixture[str]) -> None:
    write("data.jsonl", [{"prompt": f"{n}?", "answer": rf"\frac{{{n}}}{{7}}"} for n in range(20)])
    assert main(["tasks", "new", "data.jsonl"]) == 0
    assert "20 questions, 2 of them kept for evaluation" in capsys.readouterr().out
    assert read_toml(Path("data.toml")) == dict(look_at("data.jsonl", "data").fields)


def test_without_the_verifier_of_numbers_it_says_what_text_would_cost(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write("sums.jsonl", [{"question": f"{n}?", "answer": n} for n in range(20)])
    write("words.jsonl", [{"question": f"{n}?", "answer": f"word {n}"} for n in range(20)])
    monkeypatch.setitem(sys.modules, "math_verify", None)
    for data, says in (("sums", True), ("words", False)):
        assert main(["tasks", "new", f"{data}.jsonl"]) == 0
        assert ("pip install 'shoal[math]'" in capsys.readouterr().out) is says
        assert read_toml(Path(f"{data}.toml"))["verifier"] == "exact"


@pytest.mark.parametrize(
    ("content", "output"),
    [
        (
            '{"a": "x", "b": "y"}',
            "known name for the question: it has 'a' (text: x), 'b' (text: y); "
            "give --question COLUMN",
        ),
        (
            '{"question": "x", "b": "y"}',
            "known name for the right answer: it has 'question' (text: x), 'b'",
        ),
        ("", "no rows"),
        ("{", "line 1: not JSON"),
    ],
)
def test_missing_columns_are_requested_in_one_line(
    content: str, output: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("data.jsonl").write_text(content)
    assert main(["tasks", "new", "data.jsonl"]) == 2
    error = capsys.readouterr().err
    assert output in error and error.count("\n") == 1
    assert not Path("data.toml").exists()


def test_a_file_that_is_there_is_not_written_over(capsys: pytest.CaptureFixture[str]) -> None:
    write("data.jsonl", [{"question": "1?", "answer": "one"}])
    Path("data.toml").write_text("mine")
    assert main(["tasks", "new", "data.jsonl"]) == 2
    assert "--out" in capsys.readouterr().err
    assert Path("data.toml").read_text() == "mine"
    assert main(["tasks", "new", "data.jsonl", "--name", "other"]) == 0
    assert read_toml(Path("other.toml"))["name"] == "other"


@pytest.mark.slow
def test_a_model_answers_and_every_answer_has_its_reward(
    capsys: pytest.CaptureFixture[str],
) -> None:
    write("data.jsonl", [{"question": f"Say {n}"} for n in range(10)])
    Path("reward.py").write_text(
        "def reward(completions):\n    return [min(1.0, len(completions[0]) / 4)]\n"
    )
    Path("data.toml").write_text('name = "data"\nrows = "data.jsonl"\nreward = "reward.py"\n')
    flags = ["--model", "tiny", "--rows", "3", "--completions", "2", "--max-new-tokens", "4"]
    assert main(["tasks", "try", "data.toml", *flags, "--json"]) == 0
    view = json.loads(capsys.readouterr().out)
    assert len(view["rows"]) == 3
    for row in view["rows"]:
        for answer in row["answers"]:
            share = 1.0 if answer["finish_reason"] == "stop" else 0.5
            assert answer["reward"] == pytest.approx(share * min(1.0, len(answer["text"]) / 4))
    assert main(["tasks", "try", "data.toml", *flags]) == 0
    assert "mean reward" in capsys.readouterr().out
    assert main(["tasks", "try", "nothing.toml", "--model", "tiny"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.slow
def test_what_is_not_used_is_named_and_may_be_shown(capsys: pytest.CaptureFixture[str]) -> None:
    write("data.jsonl", [{"question": f"{n}?", "hint": f"h{n}", "answer": n} for n in range(20)])
    assert main(["tasks", "new", "data.jsonl"]) == 0
    shown = capsys.readouterr().out
    assert "not shown to the model: hint (text: h0)" in shown
    assert "--prompt '{hint} {question}'" in shown
    assert "user: 0?\n" in shown and "expected: <answer>0</answer>" in shown
    flags = ["--prompt", "{hint} {question}", "--name", "hinted"]
    assert main(["tasks", "new", "data.jsonl", *flags]) == 0
    shown = capsys.readouterr().out
    assert "user: h0 0?" in shown and "not shown" not in shown


def test_a_terminal_is_prompted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write("data.jsonl", [{"a": f"{n}?", "b": f"y{n}", "c": f"z{n}"} for n in range(20)])
    answers = ["nothing", "a", "b", "y", "y"]

    monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{one}\n" for one in answers)))
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    # A name that is no column ends it: a script that answers blindly would never end.
    assert main(["tasks", "new", "data.jsonl"]) == 2
    assert main(["tasks", "new", "data.jsonl"]) == 0
    assert "user: z0" in capsys.readouterr().out
    keys = read_toml(Path("data.toml"))
    assert (keys["question"], keys["answer"]) == ("a", "b")
    assert keys["prompt"] == "{c}\n\n{a}"
    assert keys["share"] is True


@pytest.mark.parametrize("typed", [pytest.param("", marks=pytest.mark.slow), "yess"])
def test_nothing_is_shared_without_a_yes(monkeypatch: pytest.MonkeyPatch, typed: str) -> None:
    write("data.jsonl", [{"question": f"{n}?", "answer": n} for n in range(20)])
    assert main(["tasks", "new", "data.jsonl", "--out", "script.toml"]) == 0
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{typed}\n" if typed else ""))
    for stream in (sys.stdin, sys.stdout):
        monkeypatch.setattr(stream, "isatty", lambda: True)
    assert main(["tasks", "new", "data.jsonl", "--out", "terminal.toml"]) == 0
    for name in ("script", "terminal"):
        assert "share" not in read_toml(Path(f"{name}.toml"))


def test_a_file_without_names_or_in_another_encoding_is_read_by_its_flags(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = "".join(f"Was ist {n}-mal groß?,{n},{n + 1},{'AB'[n % 2]}\n" for n in range(20))
    Path("data.csv").write_bytes(rows.encode("cp1252"))
    flags = ["--encoding", "cp1252", "--columns", "question, A, B, answer"]
    choices = ["--choices", "A", "--choices", "B"]
    assert main(["tasks", "new", "data.csv", *flags, *choices, "--json"]) == 0
    view = json.loads(capsys.readouterr().out)
    assert "groß?\n\nA. 0\nB. 1" in view["messages"][-1]["content"]
    assert view["expected"] == "<answer>A</answer>"


def test_a_reward_of_ones_own(capsys: pytest.CaptureFixture[str]) -> None:
    write("data.jsonl", [{"goal": n, "numbers": [n, 0]} for n in range(20)])
    Path("score.py").write_text(
        "def reward(completions, goal):\n"
        "    return [float(c == f'{g}+0') for c, g in zip(completions, goal)]\n"
    )
    flags = ["--prompt", "Reach {goal} with {numbers}.", "--reward", "score.py"]
    Path("sub").mkdir()
    assert main(["tasks", "new", "data.jsonl", *flags, "--out", "sub/data.toml"]) == 0
    shown = capsys.readouterr().out
    assert "user: Reach 0 with [0, 0]." in shown and "next:" not in shown
    assert "not shown to be sound: the rows have no right answer" in shown


def test_a_task_that_is_not_sound_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    write("data.jsonl", [{"question": f"{n}?", "answer": n} for n in range(20)])
    Path("score.py").write_text("def reward(completions):\n    return [0.2 for _ in completions]\n")
    assert main(["tasks", "new", "data.jsonl", "--reward", "score.py"]) == 1
    output = capsys.readouterr()
    assert "it gives 0.20 to everything" in output.err and output.err.count("\n") == 1
    assert "next:" not in output.out and Path("data.toml").exists()
