"""`shoal publish` and `shoal answer` at a real node: signed, on disk, scored as other groups."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import closing, redirect_stdout
from pathlib import Path

import pytest

from shoal.__main__ import main
from shoal_ipc import messages as m
from shoal_ipc.client import NodeRefused
from tests.support.running_node import RunningNode
from tests.support.schemas import check


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    with RunningNode(tmp_path_factory.mktemp("node"), inline_tasks=True) as running:
        yield running


@pytest.fixture(scope="module")
def rows(node: RunningNode) -> list[dict[str, object]]:
    """Fresh questions, as `--draw` prints them."""
    printed = io.StringIO()
    with redirect_stdout(printed):
        assert main(["publish", "--draw", "2", "--data-dir", str(node.data_dir)]) == 0
    return [json.loads(line) for line in printed.getvalue().splitlines()]


def _publish(node: RunningNode, path: Path, *flags: str) -> int:
    return main(["publish", str(path), "--data-dir", str(node.data_dir), *flags])


def test_a_file_is_published_once(
    node: RunningNode,
    rows: list[dict[str, object]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "answers.jsonl"
    filled = [{**row, "completions": ["1", {"text": "2"}]} for row in rows]
    own: dict[str, object] = {
        "question": "How many legs has a spider?",
        "answer": "8",
        "completions": ["8", "6"],
    }
    file.write_text("\n".join(json.dumps(row) for row in [*filled, own]) + "\n\n")
    assert _publish(node, file, "--json", "--author", "my script") == 0
    printed = json.loads(capsys.readouterr().out)
    check("publish", printed)
    assert printed == {"schema_version": 1, "groups": 3, "new": 3}
    shown = {str(row["question"]) for row in node.view("rollouts", limit=200)["rollouts"]}
    assert {str(row["question"]) for row in [*rows, own]} <= shown
    assert _publish(node, file, "--json") == 0
    assert json.loads(capsys.readouterr().out)["new"] == 0


def test_a_bad_row_is_named_and_nothing_is_published(
    node: RunningNode,
    rows: list[dict[str, object]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "answers.jsonl"
    good = json.dumps({**rows[0], "completions": ["unheard", "of"]})
    file.write_text(f"{good}\n{{\n")
    assert _publish(node, file) == 2
    error = capsys.readouterr().err
    assert "line 2 is not JSON; nothing was published" in error
    assert error.count("\n") == 1
    assert "unheard" not in json.dumps(node.view("rollouts", limit=200))


def test_no_node_and_no_file_are_one_line_each(
    node: RunningNode, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["publish", "x.jsonl", "--data-dir", str(tmp_path)]) == 3
    assert "no node answers" in capsys.readouterr().err
    assert _publish(node, tmp_path / "missing.jsonl") == 2
    assert "cannot be read" in capsys.readouterr().err
    assert main(["publish", "--data-dir", str(node.data_dir)]) == 2
    assert _publish(node, tmp_path / "x", "--author", "\n") == 2
    assert "--author" in capsys.readouterr().err


def test_a_publisher_may_not_do_what_a_trainer_does(node: RunningNode) -> None:
    with (
        closing(node.client(m.Role.PUBLISHER)) as client,
        pytest.raises(NodeRefused, match="role publisher may not send Sample"),
    ):
        client.call(m.Sample(num_external=1), m.Ok)


def test_a_person_answers_at_the_terminal(
    node: RunningNode, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # One question is skipped; of the other one answer is too few, two will do.
    monkeypatch.setattr("sys.stdin", io.StringIO("\nalpha\n\nbeta\n\n"))
    flags = ["--data-dir", str(node.data_dir), "--count", "2", "--json", "--family", "gcd_easy"]
    assert main(["answer", *flags]) == 0
    answer = json.loads(capsys.readouterr().out)
    check("answer", answer)
    assert answer["completions"] == ["alpha", "beta"]
    assert answer["rewards"] == [0.0, 0.0]
    assert answer["question"] in {
        row["question"] for row in node.view("rollouts", limit=200)["rollouts"]
    }


def test_the_end_of_input_ends_the_session(
    node: RunningNode, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("half an answer\n"))
    assert main(["answer", "--data-dir", str(node.data_dir)]) == 0
    assert "shared answers to 0 questions" in capsys.readouterr().out
    assert main(["answer", "--data-dir", str(node.data_dir), "--family", "chess"]) == 2
