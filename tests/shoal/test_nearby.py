"""The node that is meant when no folder is named."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from shoal.__main__ import main
from shoal.nearby import folder_with, running_node, swarm_of
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
        assert main(["status", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["peer_id"] == node.node.member.peer_id
        assert main(["status", "--data-dir", ".shoal/node"]) == 3, "one that is named"
        assert ".shoal/node-other" in capsys.readouterr().err
        assert main(["publish", "--draw", "1"]) == 0
    assert running_node() == other, "nothing runs, and no other node has left anything"
    base.mkdir()
    assert running_node() == other, "an empty folder is no node's"


def test_of_several_nodes_the_one_used_last_is_chosen_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    folders = [Path(".shoal", name) for name in ("node", "node-chat-1", "node-mine")]
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / "node.db").touch()
    for latest in folders:
        for folder in folders:
            at = 2000.0 if folder == latest else 1000.0
            os.utime(folder / "node.db", (at, at))
        assert running_node() == latest
        assert f"3 nodes have run here; this is {latest}" in capsys.readouterr().err
    assert running_node(Path(".shoal/node")) == Path(".shoal/node"), "it was named"
    assert not capsys.readouterr().err


def test_a_file_of_the_only_node_that_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
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
    for latest, earlier in (("a", "b"), ("b", "a")):
        for name, at in ((latest, 2000.0), (earlier, 1000.0)):
            os.utime(tmp_path / ".shoal" / f"node-{name}" / "x", (at, at))
        assert folder_with("x") == Path(f".shoal/node-{latest}")
        assert f"2 folders have x; this is .shoal/node-{latest}" in capsys.readouterr().err


def test_a_local_swarm_stands_for_its_first_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    swarm = Path(".shoal/swarm-mine")
    for name in ("bootstrap", "node-1", "node-2", "node-10"):
        (swarm / name).mkdir(parents=True)
        (swarm / name / "identity.key").touch()
        if name != "bootstrap":
            (swarm / name / "node.db").touch()
    assert running_node() == Path(".shoal/node"), "any folders may lie there"
    (swarm / "started-with.json").write_text('{"command": "swarm"}')
    assert running_node() == swarm / "node-1"
    assert folder_with("node.db") == swarm / "node-1"
    assert swarm_of(swarm / "node-1") == swarm
    assert swarm_of(Path(".shoal/node")) == Path(".shoal/node")
    assert capsys.readouterr().err == "", "one was meant"
    assert running_node(swarm) == swarm / "node-1"
    assert "is the folder of a swarm; this is .shoal/swarm-mine/node-1" in capsys.readouterr().err
    assert running_node(swarm / "node-2") == swarm / "node-2", "it was named"
    (swarm / "node-1/node.db").unlink()
    assert folder_with("node.db", swarm) == swarm / "node-2"
