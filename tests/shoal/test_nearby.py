"""The node that is meant when no folder is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shoal.__main__ import main
from shoal.nearby import folder_with, running_node
from tests.support.peers import INSTANT
from tests.support.running_node import RunningNode


def test_the_only_node_that_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    other = Path(".shoal/node-other")
    base = Path(".shoal/node")
    assert running_node() == base
    with RunningNode(tmp_path / other, parts=INSTANT) as node:
        assert running_node() == other
        assert main(["debug", "status", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["peer_id"] == node.node.member.peer_id
        assert main(["debug", "status", "--data-dir", ".shoal/node"]) == 3, "one that is named"
        assert ".shoal/node-other" in capsys.readouterr().err
        assert main(["publish", "--draw", "1"]) == 0
    assert running_node() == other, "nothing runs, and no other node has left anything"
    base.mkdir()
    assert running_node() == base


def test_a_file_of_the_only_node_that_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    base = Path(".shoal/node")
    assert folder_with("x") == base
    for name in ("node-a", "node-b"):
        (tmp_path / ".shoal" / name).mkdir(parents=True)
    (tmp_path / ".shoal" / "node-a" / "x").touch()
    assert folder_with("x") == Path(".shoal/node-a")
    assert folder_with("x", Path(".shoal/node")) == base, "it was named"
    (tmp_path / ".shoal" / "node-b" / "x").touch()
    assert folder_with("x") == base, "which of the two is not for us to say"
