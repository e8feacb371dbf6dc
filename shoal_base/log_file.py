"""A process's log: lines with their time, on standard error and in a file that stays small.

record ─▶ standard error                the terminal may go; the file stays
       └▶ node.log  ── half full ──▶  node.log.1, the one before it goes
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
from shoal_base.log_pace import LEFT_OUT, LinePace
from shoal_base.visible import visible_lines

IN_FILE_ALONE = {"in_file_alone": True}
"""`extra` of a record that the console has in another form."""
CHILD_LOG: Final = "log.txt"
"""Output of a process that we started, in its data directory."""
LOG_BYTES: Final = 16 << 20
"""Most bytes of a process's log, with the file before it: days of a busy node. A guess."""


class BoundedFile:
    """A file that is appended to, and the one before it: together at most so many bytes.

    What a full disk does not take is lost and counted; the count stands in the file afterwards.
    """

    def __init__(self, path: Path, max_bytes: int) -> None:
        """Open nothing yet; with `max_bytes` 0 nothing is ever kept."""
        self._path = path
        self._half = max_bytes // 2
        self._num_lost = 0

    def append(self, data: bytes) -> None:
        """Add lines; never raises OSError. Longer ones than half the bound are cut."""
        if not self._half:
            return
        if self._num_lost:
            data = b"(%d pieces before this could not be written)\n" % self._num_lost + data
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
    """One line a record, with its time; or one JSON object."""

    def __init__(self, who: str, *, as_json: bool = False) -> None:
        super().__init__(f"%(asctime)s %(levelname)s {who}: %(message)s", "%Y-%m-%d %H:%M:%S")
        self._who = who
        self._as_json = as_json

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without its end."""
        text = super().format(record)
        num_left_out = getattr(record, LEFT_OUT, 0)
        if not self._as_json:
            return f"{text} ({num_left_out} more like it left out)" if num_left_out else text
        line: dict[str, Any] = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "process": self._who,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if num_left_out:
            line["left_out"] = num_left_out
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
    """Log to standard error, so that standard output stays for results and JSON."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(lines)
    handler.addFilter(lambda record: not hasattr(record, "in_file_alone"))
    handler.addFilter(LinePace())
    logging.basicConfig(level=level.upper(), handlers=[handler])


@contextlib.contextmanager
def log_to_file(path: Path, lines: LogLines) -> Iterator[None]:
    """Log to a file, too, while the context is open; the traceback that ends a process as well."""
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
