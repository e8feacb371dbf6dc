"""`shoal tasks --swarm`, `add` and `remove` on running nodes, as a user types them."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.__main__ import main
from shoal_p2p.bundles import offer_exchange
from shoal_p2p.parts import Dependencies
from tests.p2p.bundles.cases import author_spec
from tests.support.doubles.worker import InstantWorker
from tests.support.processes import wait_for
from tests.support.running_node import RunningNode

pytestmark = pytest.mark.usefixtures("empty_folder")

PARTS = Dependencies(worker=lambda families, _patience_s: InstantWorker(families))


@pytest.fixture
def nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[RunningNode]]:
    """A founder, and a node that has joined it."""
    monkeypatch.setattr(offer_exchange, "_ASK_EVERY_S", 0.05)
    with RunningNode(tmp_path / "founder", parts=PARTS) as founder:
        joined = RunningNode(tmp_path / "friend", parts=PARTS, bootstrap=(founder.address,))
        with joined:
            yield [founder, joined]


def names(node: RunningNode) -> list[str]:
    return [spec.name for spec in node.node.member.added]


class Asked(io.StringIO):
    """A terminal at which these lines are typed."""

    def isatty(self) -> bool:
        return True


def command(node: RunningNode, *words: str) -> int:
    return main(["tasks", *words, "--data-dir", str(node.data_dir)])


@pytest.mark.slow
def test_a_task_is_added_asked_about_and_removed(
    nodes: list[RunningNode],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    founder, friend = nodes
    assert command(founder, "--swarm") == 0
    assert "no task is added to this swarm" in capsys.readouterr().out
    author_spec(tmp_path / "own", num_rows=9, reward="reward.py", title="Small sums")
    assert command(founder, "add", str(tmp_path / "own" / "sums.toml")) == 0
    assert "task sums is added; the node has copied its files" in capsys.readouterr().out
    assert names(founder) == ["sums"]
    wait_for(lambda: friend.view("tasks")["tasks"], 20.0, "the offer")
    assert command(friend, "--swarm") == 0
    text = capsys.readouterr().out
    assert all(words in text for words in ("sums", "Small sums", "9 questions, code", "offered"))
    assert command(friend, "--swarm", "--json") == 0
    assert json.loads(capsys.readouterr().out)["tasks"][0]["title"] == "Small sums"

    assert command(friend, "add", "sums") == 2
    assert "no terminal to ask at" in capsys.readouterr().err
    monkeypatch.setattr("sys.stdin", Asked("n\n"))
    assert command(friend, "add", "sums") == 1
    out = capsys.readouterr()
    assert "code     reward.py would run here, confined by:" in out.out
    assert "task sums is not added: you declined it" in out.err and not names(friend)
    monkeypatch.setattr("sys.stdin", Asked("y\n"))
    assert command(friend, "add", "sums") == 0
    assert "task sums is added: this node trains on it now" in capsys.readouterr().out
    assert names(friend) == ["sums"]
    assert command(friend, "add", "sums", "--accept-tasks", "1MB,sums") == 1
    assert "trains on 'sums' already" in capsys.readouterr().err

    assert command(friend, "remove", "sums") == 0
    assert "task sums is removed" in capsys.readouterr().out and not names(friend)
    assert command(friend, "remove", "sums") == 1
    assert "this node has no task 'sums'" in capsys.readouterr().err
    assert command(friend, "add", "sums", "--accept-tasks", "1MB") == 1
    assert "it holds code, and --accept-tasks does not name it" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        (("add", "nothing", "--accept-tasks", "1MB"), 1, "no task 'nothing' is on offer"),
        (("add", "nothing", "--accept-tasks", "lots"), 2, "--accept-tasks must be ask, none, or"),
        (("add", "missing.toml"), 2, "missing.toml"),
        (("remove", "nothing"), 1, "this node has no task 'nothing'"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    code: int,
    error: str,
) -> None:
    with RunningNode(tmp_path / "node", parts=PARTS) as node:
        assert command(node, *words) == code
    err = capsys.readouterr().err
    assert error in err and err.count("\n") == 1


@pytest.mark.parametrize(
    "words", [["--swarm"], ["add", "x", "--accept-tasks", "1B"], ["remove", "x"]]
)
def test_without_a_node_the_commands_end_with_three(
    capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    assert main(["tasks", *words]) == 3
    assert "no node is running" in capsys.readouterr().err
