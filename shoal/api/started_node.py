"""A node, started as a process of the real command and ended with this program.

Its standard input is a pipe of ours: however this program ends, the node hears of it and stops.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from shoal.api.groups import SwarmError
from shoal_base.children import environment, python
from shoal_settings.exits import EXIT_OK

_READY_SECONDS: Final = 90.0
"""Patience for a slow machine: a node is ready in about two seconds here."""
_STOP_SECONDS: Final = 30.0
_KEPT_LINES: Final = 20
"""Last lines of what the node said, to tell why it did not start."""
_LINE_BYTES: Final = 1 << 16


class StartedNode:
    """A running `shoal node` or `shoal join`."""

    def __init__(self, invitation: str, flags: Sequence[str], *, trains: bool = False) -> None:
        """Start the node and wait until it is ready. Without an invitation it starts a swarm.

        With `trains` it has its trainer; otherwise it has none.

        Raises:
            SwarmError: it ended, or was not ready in time.
        """
        # The invitation goes by the pipe: a process list shows arguments to every user.
        command = ["join", "-"] if invitation else ["node"]
        quiet = ["--supervised", "--json", "--no-http"]
        if not trains:
            quiet.append("--no-trainer")
        self._process = subprocess.Popen(
            python("-m", "shoal", *command, *quiet, *flags),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment(),
            start_new_session=True,
        )
        self._ready = threading.Event()
        """Set when the node is ready, and when its output has ended."""
        self._ready_line: dict[str, Any] = {}
        self._lines: deque[str] = deque(maxlen=_KEPT_LINES)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        try:
            self._tell(invitation)
            self._ready.wait(_READY_SECONDS)
            if not self._ready_line:
                raise SwarmError(f"the node did not start: {self._why()}")
        except BaseException:
            self.stop()
            raise

    @property
    def data_dir(self) -> Path:
        """The node's folder."""
        return Path(self._ready_line["data_dir"])

    @property
    def pid(self) -> int:
        """The node's process id."""
        return self._process.pid

    @property
    def why_ended(self) -> str | None:
        """The last line of a node that has ended by itself or was stopped; None while it runs."""
        return None if self._process.poll() is None else self._why()

    def stop(self) -> int:
        """End the node in order, after some time by force; return its exit code."""
        assert self._process.stdin is not None, "opened with a pipe"
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(_STOP_SECONDS)
        return self._process.returncode or EXIT_OK

    def _tell(self, invitation: str) -> None:
        if not invitation:
            return
        assert self._process.stdin is not None, "opened with a pipe"
        with contextlib.suppress(OSError):  # it ended: that is told below
            self._process.stdin.write(f"{invitation}\n".encode())
            self._process.stdin.flush()

    def _why(self) -> str:
        """Return the last line that the node said."""
        return next((line for line in reversed(self._lines) if line.strip()), "it said nothing")

    def _read(self) -> None:
        assert self._process.stdout is not None, "opened with a pipe"
        with self._process.stdout as output:
            while raw := output.readline(_LINE_BYTES):
                self._take(raw.decode(errors="replace").rstrip())
        self._ready.set()

    def _take(self, line: str) -> None:
        if not self._ready_line and line.startswith("{"):
            with contextlib.suppress(ValueError):
                event = json.loads(line)
                if event.get("event") == "ready":
                    self._ready_line = event
                    self._ready.set()
                    return
                line = str(event.get("error", line))
        self._lines.append(line)
