"""Reads single keys from a terminal, and restores its mode."""

from __future__ import annotations

import contextlib
import os
import select
import termios
import time
import tty
from typing import IO, Any, Self


class Keys:
    """Keys pressed on a terminal, between `with` and its end; none without a terminal."""

    def __init__(self, terminal: IO[str]) -> None:
        self._descriptor = terminal.fileno() if terminal.isatty() else None
        self._before: list[Any] = []

    def __enter__(self) -> Self:
        """Set the terminal's mode. Raises EOFError: the terminal was closed."""
        if self._descriptor is not None:
            try:
                self._before = termios.tcgetattr(self._descriptor)
                tty.setcbreak(self._descriptor, termios.TCSANOW)
            except termios.error:
                raise EOFError("the terminal is gone") from None
        return self

    def __exit__(self, *_: object) -> None:
        if self._descriptor is not None and self._before:
            with contextlib.suppress(termios.error):  # it is gone
                termios.tcsetattr(self._descriptor, termios.TCSANOW, self._before)

    def pressed(self, seconds: float) -> str:
        """Wait up to `seconds` for keys; return them.

        Raises:
            EOFError: the terminal was closed.
        """
        if self._descriptor is None:
            time.sleep(seconds)
            return ""
        if not select.select([self._descriptor], [], [], seconds)[0]:
            return ""
        try:
            data = os.read(self._descriptor, 1024)
        except OSError:
            data = b""
        if not data:
            raise EOFError("the terminal is gone")
        return data.decode("utf-8", "replace")
