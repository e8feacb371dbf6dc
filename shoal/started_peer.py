"""A peer that runs as a child process and ends with this program.

standard input     a pipe from this program: it closes however this program ends, and the peer stops
standard output    the event `ready`; other lines are stored, to report why the peer ended
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from shoal_base.bounded import PIECE_BYTES
from shoal_base.children import START_S, environment, python
from shoal_base.log_file import LOG_BYTES, BoundedFile
from shoal_base.waits import SHORT_DEADLINE_S
from shoal_p2p.output_tail import OutputTail

_STOP_S: Final = 30.0
"""Deadline of an orderly stop, in which a trainer writes its last checkpoint. A guess."""


class PeerEndedError(Exception):
    """A peer ended, or was not ready in time; the text is one line and says why."""


class StartedPeer:
    """A running `shoal node`, `shoal join` or `shoal bootstrap`. Its methods block."""

    def __init__(self, command: Sequence[str], *, stdin: str = "", log: Path | None = None) -> None:
        """Start it. `stdin` is written to its standard input; `log` stores its output."""
        self._process = subprocess.Popen(
            python("-m", "shoal", *command, "--supervised", "--json"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment(),
            start_new_session=True,
        )
        self._log = log
        self._output = OutputTail()
        self._is_known = threading.Event()
        """Set when the peer is ready, and when its output has ended."""
        self._ready_line: dict[str, Any] = {}
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        assert self._process.stdin is not None, "opened with a pipe"
        self._stdin = self._process.stdin
        with contextlib.suppress(OSError):  # it ended; `ready` raises with the reason
            self._stdin.write(stdin.encode())
            self._stdin.flush()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """Its exit code; None while it runs."""
        return self._process.poll()

    @property
    def why_ended(self) -> str | None:
        """Its last error line if it has failed, `""` if it has ended in order; None while it
        runs."""
        code = self.exit_code
        return None if code is None else self._why() if code else ""

    def ended_within(self, seconds: float) -> str | None:
        """Wait for its end; return `why_ended`."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
            self._reader.join(SHORT_DEADLINE_S)
        return self.why_ended

    def ready(self) -> dict[str, Any]:
        """Wait until it is ready; return its event `ready`.

        Raises:
            PeerEndedError: it ended, or was not ready in time.
        """
        self._is_known.wait(START_S)
        if not self._ready_line:
            raise PeerEndedError(f"the peer did not start: {self._why()}")
        return self._ready_line

    def stop(self) -> None:
        """Stop it in order; kill it after a deadline."""
        with contextlib.suppress(OSError):
            self._stdin.close()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(SHORT_DEADLINE_S)

    def _why(self) -> str:
        where = "" if self._log is None else f" ({self._log})"
        return f"{self._output.cause() or 'it printed nothing'}{where}"

    def _read(self) -> None:
        assert self._process.stdout is not None, "opened with a pipe"
        log = None if self._log is None else BoundedFile(self._log, LOG_BYTES)
        with self._process.stdout as output:
            while line := output.readline(PIECE_BYTES):
                event = _event(line)
                if event is None:
                    self._output.feed(line)
                    if log is not None:
                        log.append(line)
                elif event["event"] == "ready":
                    self._ready_line = event
                    self._is_known.set()
        self._is_known.set()


def _event(line: bytes) -> dict[str, Any] | None:
    """Return the event in a line of output; None for a log line."""
    with contextlib.suppress(ValueError, RecursionError):
        found = json.loads(line)
        if isinstance(found, dict) and "event" in found:
            return found
    return None
