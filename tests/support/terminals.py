"""Runs `shoal` commands, one after another in one process, in a terminal or into a pipe."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping, Sequence
from pathlib import Path

from shoal.__main__ import main
from shoal_base.output import drain_output
from tests.support.hostile_text import acting_in

_OWN = re.compile(
    r"\x1b\[[0-9;]*m"  # colour
    r"|\x1b\[\?25[lh]|\r?(\x1b\[1A)?\x1b\[2K"  # a progress bar and its cursor
)
_MARK = re.compile(r"^@@ (\d+) ended (\d+)\r?\n", re.M)
PATIENCE_S = 240


def shown(
    commands: Sequence[Sequence[str]], folder: Path, *, columns: int | None
) -> list[tuple[int, str]]:
    """Return the exit code and the terminal's content for each command; None means a pipe.

    Shoal's own colours and cursor movements are removed.
    """
    command = [sys.executable, "-m", "tests.support.terminals", json.dumps(commands)]
    raw = _run(command, folder, _environment(), columns)
    text = raw.decode("utf-8").replace("\r\n", "\n")
    text = _OWN.sub("", text)
    parts = _MARK.split(text)
    assert len(parts) == 3 * len(commands) + 1, text[-3000:]
    assert parts[-1] == "", parts[-1]
    return [(int(parts[at + 2]), parts[at]) for at in range(0, 3 * len(commands), 3)]


def announced(argv: Sequence[str], folder: Path, *, last: str) -> str:
    """Run a serving command in a terminal until it has shown `last`; return its output."""
    master, process = _start([sys.executable, "-m", "shoal", *argv], folder, _environment(), 80)
    found = b""
    with process:
        try:
            while last.encode() not in found:
                found += os.read(master, 1 << 16)
        finally:
            process.terminate()
        found += read_terminal(master)
    return _OWN.sub("", found.decode("utf-8").replace("\r\n", "\n"))


def _environment() -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SHOAL_", "COLUMNS"))}
    path = os.pathsep.join(map(os.path.abspath, filter(None, sys.path)))
    return kept | {"TERM": "xterm-256color", "OMP_NUM_THREADS": "1", "PYTHONPATH": path}


def _start(
    command: Sequence[str], folder: Path, environment: Mapping[str, str], columns: int
) -> tuple[int, subprocess.Popen[bytes]]:
    """Start a command in a terminal; return the terminal's other end and the process."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=slave, stderr=slave
    )
    os.close(slave)
    return master, process


def _run(
    command: Sequence[str], folder: Path, environment: Mapping[str, str], columns: int | None
) -> bytes:
    if columns is None:
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=PATIENCE_S,
            check=False,
        )
        return done.stdout
    master, process = _start(command, folder, environment, columns)
    with process:
        return read_terminal(master)


def read_terminal(master: int) -> bytes:
    """Read a terminal's output to its end."""
    found = b""
    try:
        while data := os.read(master, 1 << 16):
            found += data
    except OSError:  # the end of a terminal
        pass
    finally:
        os.close(master)
    return found


def acting_on_screen(text: str) -> set[str]:
    """Return the control characters in a command's output."""
    return acting_in(text) - {"\n"}


def _run_all(commands: Sequence[Sequence[str]]) -> None:
    for number, argv in enumerate(commands):
        try:
            code = main(argv)
        except SystemExit as end:  # argparse exits this way
            code = end.code if isinstance(end.code, int) else 1
        # Serving commands write from threads, which would mix with the next command's output.
        drain_output()
        sys.stdout.write(f"@@ {number} ended {code}\n")
        drain_output()


if __name__ == "__main__":
    _run_all(json.loads(sys.argv[1]))
