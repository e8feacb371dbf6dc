"""A process's log: lines with timestamps, on standard error and in a file of bounded size.

record ─▶ standard error                lost with the terminal; the file stays
       └▶ node.log  ── half full ──▶  node.log.1, which replaces the previous one
"""

from __future__ import annotations

import contextlib
import json
import logging
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from shoal_base.files import append_whole
from shoal_base.log_pace import SUPPRESSED, LinePace
from shoal_base.visible import visible_lines

IN_FILE_ALONE = {"in_file_alone": True}
"""`extra` of a record that the console shows in another form."""
CHILD_LOG: Final = "log.txt"
"""Output of a child process, in its data directory."""
LOG_BYTES: Final = 16 << 20
"""Size limit of a process's log and the previous file together: days of a busy node. A guess."""


class BoundedFile:
    """An append-only file and its predecessor, together of at most `max_bytes`.

    Lines that a full disk refuses are lost and counted; the next line written states the count.
    """

    def __init__(self, path: Path, max_bytes: int) -> None:
        """Open nothing yet. With `max_bytes` 0 nothing is ever written."""
        self._path = path
        self._half = max_bytes // 2
        self._num_lost = 0

    def append(self, data: bytes) -> None:
        """Append lines, cut to half of `max_bytes`. Never raises OSError."""
        if not self._half:
            return
        if self._num_lost:
            data = b"(%d writes before this line failed)\n" % self._num_lost + data
        try:
            self._write(data[-self._half :])
        except OSError:
            self._num_lost += 1
        else:
            self._num_lost = 0

    def _write(self, data: bytes) -> None:
        with contextlib.suppress(FileNotFoundError):
            if self._path.stat().st_size + len(data) > self._half:
                self._path.replace(self._path.with_name(f"{self._path.name}.1"))
        append_whole(self._path, data)


class LogLines(logging.Formatter):
    """Formats a record as one line with its time, or as one JSON object."""

    def __init__(self, who: str, *, as_json: bool = False) -> None:
        super().__init__(f"%(asctime)s %(levelname)s {who}: %(message)s", "%Y-%m-%d %H:%M:%S")
        self._who = who
        self._as_json = as_json

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without a line break."""
        text = super().format(record)
        num_suppressed = getattr(record, SUPPRESSED, 0)
        if not self._as_json:
            return f"{text} ({num_suppressed} similar lines suppressed)" if num_suppressed else text
        line: dict[str, Any] = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "process": self._who,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if num_suppressed:
            line["suppressed"] = num_suppressed
        if record.exc_text:
            line["traceback"] = record.exc_text
        return json.dumps(line)


class _ToFile(logging.Handler):
    def __init__(self, file: BoundedFile) -> None:
        super().__init__()
        self._file = file

    def emit(self, record: logging.LogRecord) -> None:
        self._file.append(f"{self.format(record)}\n".encode(errors="backslashreplace"))


def log_to_console(level: str, lines: LogLines) -> None:
    """Log to standard error; standard output is for results and JSON."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(lines)
    handler.addFilter(lambda record: not hasattr(record, "in_file_alone"))
    handler.addFilter(LinePace())
    logging.basicConfig(level=level.upper(), handlers=[handler])


@contextlib.contextmanager
def log_to_file(path: Path, lines: LogLines) -> Iterator[None]:
    """Also log to a file within the context, including an exception that leaves it."""
    file = BoundedFile(path, LOG_BYTES)
    handler = _ToFile(file)
    handler.setFormatter(lines)
    handler.addFilter(LinePace())
    logging.getLogger().addHandler(handler)
    try:
        yield
    except Exception:
        trace = "".join(f"    {line}\n" for line in visible_lines(traceback.format_exc().rstrip()))
        file.append(trace.encode(errors="backslashreplace"))
        raise
    finally:
        logging.getLogger().removeHandler(handler)
