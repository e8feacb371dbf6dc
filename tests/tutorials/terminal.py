"""A reader's terminal: a shell in a pseudo-terminal, 100 columns wide."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.support.processes import take_terminal

_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[()][A-Z0-9]|\x1b[=>]")
_COLUMNS, _ROWS = 100, 40


class Terminal:
    """One shell; what it runs is typed, and what it shows is read."""

    def __init__(
        self, folder: Path, environment: Mapping[str, str], *, through: Sequence[str] = ()
    ) -> None:
        """`through` is what every command of this terminal's host begins with."""
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, _COLUMNS, 0, 0))
        settings = termios.tcgetattr(slave)
        settings[3] &= ~termios.ECHO
        termios.tcsetattr(slave, termios.TCSANOW, settings)
        self._shell = subprocess.Popen(
            [*through, "bash", "--noprofile", "--norc"],
            cwd=folder,
            env={**environment, "TERM": "dumb", "PS1": "", "PS2": ""},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            preexec_fn=lambda: take_terminal(0),  # noqa: PLW1509 - no other thread runs
        )
        os.close(slave)
        self._shown = ""

    def type(self, command: str, patience_s: float) -> None:
        """Type a command once the one before has ended, and forget what was shown before.

        Raises AssertionError if that one does not end.
        """
        deadline = time.monotonic() + patience_s
        while os.tcgetpgrp(self._master) != self._shell.pid:
            assert time.monotonic() < deadline, f"still running, so no {command!r}"
            self._read(0.05)
        self._read(0.05)
        self._shown = ""
        os.write(self._master, f"{command}\n".encode())

    def answer(self, text: str) -> None:
        """Type an answer to the command that runs, and forget what was shown before."""
        self._shown = ""
        os.write(self._master, f"{text}\n".encode())

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        self._shown = ""
        os.write(self._master, b"\x03")

    def lines(self) -> list[str]:
        """Return what is shown since the last command."""
        return _CONTROL.sub("", self._shown).replace("\r\n", "\n").replace("\r", "\n").splitlines()

    def until(self, found: Callable[[list[str]], str | None], patience_s: float) -> str | None:
        """Read until `found` misses nothing; return what it still misses when patience ends."""
        deadline = time.monotonic() + patience_s
        missing = found(self.lines())
        while missing is not None and time.monotonic() < deadline:
            self._read(0.2)
            missing = found(self.lines())
        return missing

    def close(self) -> None:
        """End what runs here, kindly first."""
        for sign, wait_s in ((signal.SIGINT, 10.0), (signal.SIGHUP, 5.0), (signal.SIGKILL, 5.0)):
            with contextlib.suppress(OSError):
                running = os.tcgetpgrp(self._master)
                if running != self._shell.pid or sign != signal.SIGINT:
                    os.killpg(running, sign)  # a shell would forget the line that ends it
            with contextlib.suppress(OSError):
                os.write(self._master, b"exit\n")
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._shell.wait(wait_s)
                break
        os.close(self._master)

    def _read(self, wait_s: float) -> None:
        ready, _, _ = select.select([self._master], [], [], wait_s)
        while ready:
            try:
                self._shown += os.read(self._master, 1 << 16).decode("utf-8", "replace")
            except OSError:
                return
            ready, _, _ = select.select([self._master], [], [], 0)
