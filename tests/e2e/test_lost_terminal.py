"""Losing a terminal ends the display, not the training: closed pipes, closed terminals."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from shoal_ipc.client import SOCKET_NAME
from tests.support.processes import LOOPBACK, ShoalProcess, hear_hangups, take_terminal, wait_for

SHOAL = (sys.executable, "-m", "shoal")
FLAGS = ("--listen", LOOPBACK, "--data-dir")


@contextmanager
def started(*command: str, **how: Any) -> Iterator[subprocess.Popen[bytes]]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, env=environment, **{"preexec_fn": hear_hangups, **how})
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_a_node_whose_terminal_closes_trains_on(tmp_path: Path) -> None:
    """As with a broken ssh connection or a closed tmux: SIGHUP, and every write fails with EIO."""
    data_dir = tmp_path / "node"
    data_dir.mkdir(mode=0o755)
    master, slave = pty.openpty()
    command: tuple[str, ...] = (*SHOAL, "node", "--no-http", *FLAGS, str(data_dir))
    command += ("--no-mdns", "--round-seconds", "0.05")
    with started(
        *command, stdin=slave, stdout=slave, stderr=slave, preexec_fn=lambda: take_terminal(slave)
    ) as process:
        os.close(slave)
        node = ShoalProcess("node", data_dir)
        wait_for(lambda: (data_dir / SOCKET_NAME).exists() or None, 90.0, "the node's socket")
        before = node.wait_status(lambda s: s["round"] >= 1, "training")
        os.close(master)
        after = node.wait_status(lambda s: s["round"] >= before["round"] + 60, "training on")
        assert after["trainer"]["pid"] == before["trainer"]["pid"], "the same trainer"
        log = (data_dir / "node.log").read_text()
        assert f"the terminal is gone, this process continues: the log is {data_dir}" in log
        assert "own reward" in (data_dir / "trainer.log").read_text()
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    assert list((data_dir / "checkpoints").iterdir()), "it ended in order"
    found = [data_dir, *data_dir.rglob("*")]
    open_to_others = [path for path in found if path.stat().st_mode & 0o077]
    assert not open_to_others, "all of it is its user's alone"


@pytest.mark.slow
def test_a_bootstrap_goes_on_without_who_reads_it(tmp_path: Path) -> None:
    """`shoal bootstrap | head -1`, and a hangup."""
    data_dir = tmp_path / "bootstrap"
    with started(
        *SHOAL,
        "bootstrap",
        "--no-http",
        *FLAGS,
        str(data_dir),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline().startswith(b"bootstrap peer of swarm")
        process.stdout.close()
        process.stderr.close()
        process.send_signal(signal.SIGHUP)
        log = data_dir / "bootstrap.log"
        wait_for(
            lambda: (log.exists() and "terminal is gone" in log.read_text()) or None,
            20.0,
            "the hangup noted",
        )
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


@pytest.mark.parametrize(
    "command",
    [
        "node --print-config",
        "tasks",
        pytest.param("bootstrap --help", marks=pytest.mark.slow),
        pytest.param("trainer --print-config", marks=pytest.mark.slow),
    ],
)
def test_what_only_prints_ends_quietly_with_its_reader(command: str, tmp_path: Path) -> None:
    closed = subprocess.run(
        [*SHOAL, *command.split()],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        stdout=_no_reader(),
        check=False,
    )
    assert (closed.stderr, closed.returncode) in ((b"", 0), (b"", 141))


def _no_reader() -> int:
    reading, writing = os.pipe()
    os.close(reading)
    return writing


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "checkpoint"),
    [
        ("trainer --alone --rounds 100", "checkpoints/round-000100"),
        ("swarm --no-http --nodes 2 --rounds 150", "node-1/checkpoints/round-000150"),
    ],
)
def test_what_trains_goes_on_without_who_reads_it(
    command: str, checkpoint: str, tmp_path: Path
) -> None:
    """`shoal … | head -1`, and a hangup: it plays all its rounds."""
    line = (*SHOAL, *command.split(), "--data-dir", str(tmp_path))
    with started(*line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        process.send_signal(signal.SIGHUP)
        assert process.wait(110) == 0
    assert (tmp_path / checkpoint).is_dir()
