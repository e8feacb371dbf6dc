"""A user's own task in another node by one line: fetched, accepted, trained on by both."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from shoal_tasks.bundle import accepted_task_files
from tests.p2p.bundles.cases import author_spec
from tests.support.processes import LOOPBACK, ProcessManager

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_one_line_brings_the_task(stage: ProcessManager, tmp_path: Path) -> None:
    author_spec(tmp_path / "author", num_rows=30, reward="reward.py")
    flags = ("--eval-every", "0", "--log", "none")
    author = stage.node("author", "--tasks", str(tmp_path / "author/sums.toml"), *flags)
    invite = [sys.executable, "-m", "shoal", "invite", "--data-dir", str(author.data_dir)]
    result = subprocess.run(invite, check=True, capture_output=True, text=True, timeout=60.0)
    line = result.stdout.strip()
    joining = ("--listen", LOOPBACK, "--no-mdns", *flags, line)
    friend = stage.process("join", "friend", "--accept-tasks", "1MB,sums", *joining).start()
    friend.wait_status(lambda status: status["groups_received"] > 0, "groups of the author")
    author.wait_status(lambda status: status["groups_received"] > 0, "groups of the friend")
    assert len(accepted_task_files(friend.data_dir)) == 1
    assert friend.stop() == author.stop() == 0
    again = stage.process("join", "friend", *joining).start()
    again.wait_status(lambda status: status["round"] > 0, "rounds without another question")


def test_a_friend_of_a_bootstrap_gets_the_task_from_a_member(
    stage: ProcessManager, tmp_path: Path
) -> None:
    """The bootstrap has no files: the friend's node finds the author by it, and asks the author."""
    author_spec(tmp_path / "author", num_rows=30, reward="reward.py")
    bootstrap = stage.bootstrap("bootstrap", "--tasks", str(tmp_path / "author/sums.toml"))
    flags = ("--eval-every", "0", "--log", "none", "--no-mdns", "--bootstrap", bootstrap.address)
    author = stage.node("author", "--tasks", str(tmp_path / "author/sums.toml"), *flags)
    friend = stage.node("friend", "--accept-tasks", "1MB,sums", *flags)
    friend.wait_status(lambda status: status["groups_received"] > 0, "groups of the author")
    author.wait_status(lambda status: status["groups_received"] > 0, "groups of the friend")
    assert len(accepted_task_files(friend.data_dir)) == 1
    assert not accepted_task_files(bootstrap.data_dir)
