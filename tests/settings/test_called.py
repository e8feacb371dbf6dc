"""The lines that people copy start what was started, from where they stand."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from shoal_settings.called import called, join_command

BOOT = "/ip4/203.0.113.7/tcp/4001/p2p/12D3"


@pytest.fixture(autouse=True)
def no_make_and_no_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MAKELEVEL", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))


def start_as(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    monkeypatch.setattr(sys, "argv", [program, "node"])


def test_a_program_is_named_as_short_as_works_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start_as(monkeypatch, ".venv/bin/shoal")
    assert called() == ".venv/bin/shoal"
    start_as(monkeypatch, str(tmp_path / ".venv/bin/shoal"))
    assert called() == ".venv/bin/shoal"
    start_as(monkeypatch, "/opt/my tools/bin/shoal")
    assert shlex.split(called()) == ["/opt/my tools/bin/shoal"]
    on_path = tmp_path / "bin/shoal"
    on_path.parent.mkdir()
    on_path.touch(mode=0o755)
    start_as(monkeypatch, str(on_path))
    assert called() == "shoal"
    start_as(monkeypatch, "/somewhere/shoal/__main__.py")
    monkeypatch.setattr(sys, "executable", str(tmp_path / ".venv/bin/python"))
    assert called() == ".venv/bin/python -m shoal"
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/shoal").touch(mode=0o755)
    assert called() == ".venv/bin/shoal", "as its page is started by a node"
    start_as(monkeypatch, "/usr/bin/pytest")
    assert called() == "shoal"


def test_who_used_make_hands_on_make(monkeypatch: pytest.MonkeyPatch) -> None:
    start_as(monkeypatch, ".venv/bin/shoal")
    assert join_command(BOOT, "none") == f".venv/bin/shoal node --bootstrap {BOOT}"
    monkeypatch.setenv("MAKELEVEL", "1")
    assert join_command(BOOT, "none") == f"make node BOOTSTRAP={BOOT}"
    private = join_command(BOOT, "my swarm.key")
    assert shlex.split(private)[-1] == "ARGS=--swarm-key 'my swarm.key'"
    start_as(monkeypatch, "/usr/bin/shoal")
    private = join_command(BOOT, "my swarm.key")
    assert shlex.split(private)[1:] == ["node", "--bootstrap", BOOT, "--swarm-key", "my swarm.key"]
