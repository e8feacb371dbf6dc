"""`shoal ps` lists what this user runs, and `shoal stop` ends it in order and waits for that.

No test stops everything: other tests, and the user, run peers on this machine, too.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shoal import stop
from shoal.__main__ import main
from shoal.running_peers import Role, RunningPeer, _role_of, running_peers, top_level
from tests.support.processes import ShoalProcess, open_stage, wait_for
from tests.support.schemas import check

STUBBORN = """
import signal, sys, time
from pathlib import Path
from shoal_p2p.data_dir import lock_data_dir
signal.signal(signal.SIGTERM, signal.SIG_IGN)
with lock_data_dir(Path(sys.argv[1])):
    print("locked", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def bootstrap(tmp_path: Path) -> Iterator[ShoalProcess]:
    """A real bootstrap peer in a process of its own."""
    with open_stage(tmp_path) as stage:
        yield stage.bootstrap()


def peer(folder: str, pid: int, role: Role = "node", parent_pid: int = 1) -> RunningPeer:
    return RunningPeer(folder=Path(folder), pid=pid, role=role, parent_pid=parent_pid)


def listed(folder: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any] | None:
    """Return the row of a folder in `shoal ps --json`."""
    capsys.readouterr()
    assert main(["ps", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    check("ps", shown)
    return next((row for row in shown["peers"] if row["folder"] == str(folder)), None)


def test_a_peer_is_listed_until_it_is_stopped(
    bootstrap: ShoalProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "bootstrap"
    row = listed(folder, capsys)
    assert row == {
        "folder": str(folder),
        "pid": bootstrap.pid,
        "role": "bootstrap",
        "round": None,
        "state": "running",
        "parent_pid": os.getpid(),
    }
    assert main(["ps"]) == 0
    text = capsys.readouterr().out
    assert str(folder) in text
    assert str(bootstrap.pid) in text
    assert main(["stop", str(folder)]) == 0
    first, last = capsys.readouterr().out.splitlines()
    assert first == f"stopping {folder} (bootstrap, pid {bootstrap.pid})"
    assert last.startswith(f"stopped {folder} after ")
    assert bootstrap.wait() == 0
    assert listed(folder, capsys) is None
    assert main(["stop", str(folder)]) == 3
    assert capsys.readouterr().err == f"shoal stop: nothing is running in {folder}\n"


@pytest.mark.slow
def test_a_suspended_peer_is_shown_as_such_and_stopped_all_the_same(
    bootstrap: ShoalProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "bootstrap"
    os.kill(bootstrap.pid, signal.SIGSTOP)
    row = wait_for(lambda: listed(folder, capsys), 10.0, "the row")
    assert row["state"] == "suspended"
    assert main(["stop", str(folder), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    check("stop", shown)
    (row,) = shown["stopped"]
    assert (row["folder"], row["pid"], row["role"]) == (str(folder), bootstrap.pid, "bootstrap")
    assert bootstrap.wait() == 0


def test_one_that_does_not_end_is_a_failure_that_says_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    command = [sys.executable, "-c", STUBBORN, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "locked\n"
            monkeypatch.setattr(stop, "running_peers", lambda: [peer(str(tmp_path), process.pid)])
            assert main(["stop", "--timeout", "1"]) == 1
            (line,) = capsys.readouterr().err.splitlines()
            assert "still runs after 1 s" in line
            assert f"kill -9 {process.pid}" in line
        finally:
            process.kill()


def test_without_a_folder_one_peer_has_to_be_meant(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stop, "_signal", pytest.fail)
    for peers, code, message in (
        ([], 3, "nothing is running"),
        ([peer("/a", 11), peer("/b", 12)], 2, "2 are running; name one of /a, /b, or --all"),
    ):
        monkeypatch.setattr(stop, "running_peers", lambda peers=peers: peers)
        assert main(["stop"]) == code
        assert capsys.readouterr().err == f"shoal stop: {message}\n"
    assert main(["stop", "/a", "--all"]) == 2
    assert capsys.readouterr().err == "shoal stop: name folders, or --all\n"


def test_nodes_are_stopped_before_bootstrap_peers_and_by_their_swarm(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    meeting, swarm = peer("/boot", 1000, "bootstrap"), peer("/swarm", 1001, "swarm")
    inner, node = peer("/swarm/node-1", 1002, parent_pid=1001), peer("/x", 1003)
    peers = [meeting, swarm, inner, node]
    signalled: list[RunningPeer] = []
    assert top_level(peers) == [meeting, swarm, node]
    monkeypatch.setattr(stop, "running_peers", lambda: peers)
    monkeypatch.setattr(stop, "_signal", signalled.append)
    monkeypatch.setattr(stop, "owner_of", lambda _folder: None)
    assert main(["stop", "--all"]) == 0
    assert signalled == [swarm, node, meeting]
    words = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert words == ["stopping", "stopping", "stopped", "stopped", "stopping", "stopped"]


@pytest.mark.parametrize(
    ("command_line", "role"),
    [
        ("/usr/bin/python -m shoal node --rounds 3", "node"),
        ("/home/me/.venv/bin/python -P -m shoal swarm", "swarm"),
        ("/home/me/.venv/bin/python /home/me/.venv/bin/shoal join line.txt", "node"),
        ("python -m shoal judge", "judge"),
        ("python -m shoal ps", None),
        ("python -m pytest tests/shoal", None),
        ("vim shoal", None),
    ],
)
def test_a_peer_is_known_by_its_command_line(command_line: str, role: str | None) -> None:
    assert _role_of(command_line.split()) == role


def test_a_process_without_a_locked_folder_is_no_peer() -> None:
    """What this very process locks is not listed: its command line is pytest's."""
    assert os.getpid() not in {one.pid for one in running_peers()}
