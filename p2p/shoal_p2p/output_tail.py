"""The last output of a process: its latest lines, and the one that names the error. Pure."""

from __future__ import annotations

import re
from collections import deque

from shoal_base.bounded import FEW, LINE_CHARS
from shoal_base.visible import visible

_CAUSE = re.compile(
    r"shoal \w+: "  # one of our own refusals
    r"|(ERROR|CRITICAL)\b"
    r"|[A-Za-z_][\w.]*(Error|Exception|Exit|Interrupt|Killed|Fault|Failure)\b"  # a traceback's end
    r"|(Fatal Python error|Segmentation fault|MemoryError|KeyboardInterrupt)"
)
_LOGGED = re.compile(r".*\b(ERROR|CRITICAL)\b[^:]*: ")
_OURS = re.compile(r"shoal \w+: ")


class OutputTail:
    """Collects output bytes and keeps a bounded tail."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=FEW)
        self._open = b""

    def feed(self, data: bytes) -> None:
        """Append output, split at any byte."""
        *whole, rest = (self._open + data).split(b"\n")
        self._open = rest[: 4 * LINE_CHARS]
        for line in whole[-FEW:]:
            self._keep(line)

    @property
    def lines(self) -> tuple[str, ...]:
        """The latest lines, printable and cut."""
        last = _printable(self._open)
        return (*self._lines, *([last] if last else ()))

    def cause(self) -> str:
        """Return the line that names what went wrong: the last that is an error, else the last."""
        lines = self.lines
        errors = [line for line in lines if _CAUSE.match(line) or _LOGGED.match(line)]
        found = (errors or list(lines) or [""])[-1]
        return _OURS.sub("", _LOGGED.sub("", found, count=1), count=1)

    def _keep(self, line: bytes) -> None:
        if text := _printable(line):
            self._lines.append(text)


def _printable(line: bytes) -> str:
    """Return a line without terminal control characters."""
    text = line[: 4 * LINE_CHARS].decode("utf-8", "backslashreplace").rstrip()
    return visible(text)[:LINE_CHARS]
