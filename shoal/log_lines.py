"""The logs of a data directory: read from their ends, merged by time, and followed.

node.log.1, node.log ─┐
                      ├─▶ entries, each with the lines of its traceback ─▶ in order of time
trainer.log ──────────┘
"""

from __future__ import annotations

import heapq
import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from shoal_base.log_file import LOG_BYTES
from shoal_ipc.answers.form import Versioned

LOG_FILES: Final = ("node.log", "bootstrap.log", "judge.log", "trainer.log")
"""Log files that a data directory may have."""
LEVELS: Final = ("debug", "info", "warning", "error", "critical")
_TAIL_BYTES: Final = LOG_BYTES // 4
"""Bytes of a log that are read from its end, or at once as it grows. A guess."""
_LINE: Final = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) ([A-Z]+) ([\w-]+): (.*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEntry(Versioned):
    """A line of a log."""

    time: str
    """ISO 8601 with the offset from UTC."""
    level: str
    process: str
    """The process that wrote it: node, trainer …"""
    logger: str | None
    """Module that logged it; only in JSON logs."""
    message: str
    traceback: str | None = None

    def lines(self) -> list[str]:
        """Return it as lines of text."""
        moment = datetime.fromisoformat(self.time).astimezone()
        head = f"{moment:%Y-%m-%d %H:%M:%S} {self.level.upper()} {self.process}: {self.message}"
        return [head, *(self.traceback or "").splitlines()]


def logs_in(folder: Path) -> list[Path]:
    """Return the existing logs of a data directory."""
    with suppress(OSError):
        return [folder / name for name in LOG_FILES if (folder / name).exists()]
    return []


def latest(paths: Iterable[Path], count: int, *, at_least: str = "debug") -> list[LogEntry]:
    """Return the last entries of some logs, of this severity or worse, in order of time."""
    found = (
        [one for one in parsed(tail_lines(path)) if is_at_least(one, at_least)] for path in paths
    )
    merged = list(heapq.merge(*found, key=lambda one: datetime.fromisoformat(one.time)))
    return merged[max(0, len(merged) - count) :]


def is_at_least(entry: LogEntry, level: str) -> bool:
    """Return whether an entry is of this severity or worse; an unknown one is."""
    return entry.level not in LEVELS or LEVELS.index(entry.level) >= LEVELS.index(level)


def tail_lines(path: Path) -> list[str]:
    """Return the last lines of a log and of the one before it; the first may be cut."""
    return tail(path, _TAIL_BYTES).decode(errors="backslashreplace").split("\n")


def tail(path: Path, max_bytes: int) -> bytes:
    """Return the last bytes of a file and of the one before it."""
    data = b""
    for one in (path, path.with_name(f"{path.name}.1")):
        with suppress(OSError), one.open("rb") as file:
            room = max_bytes - len(data)
            file.seek(max(0, file.seek(0, os.SEEK_END) - room))
            data = file.read(room) + data
    return data


def parsed(lines: Iterable[str]) -> Iterator[LogEntry]:
    """Yield the entries of a log's lines. Text before the first entry is skipped."""
    before: LogEntry | None = None
    for line in lines:
        entry = _entry(line)
        if entry is not None:
            if before is not None:
                yield before
            before = entry
        elif before is not None and line.strip():
            more = line if before.traceback is None else f"{before.traceback}\n{line}"
            before = replace(before, traceback=more)
    if before is not None:
        yield before


def _entry(line: str) -> LogEntry | None:
    """Return the entry that a line begins; None for one of a traceback."""
    try:
        if (match := _LINE.fullmatch(line)) is not None:
            moment = datetime.strptime(match[1], "%Y-%m-%d %H:%M:%S").astimezone()
            time, level = moment.isoformat(), match[2].lower()
            return LogEntry(time=time, level=level, process=match[3], logger=None, message=match[4])
        if line.startswith('{"time"'):
            row = json.loads(line)
            moment = datetime.strptime(row["time"], "%Y-%m-%dT%H:%M:%S%z")
            named: Any = {key: str(row[key]) for key in ("level", "process", "logger", "message")}
            return LogEntry(time=moment.isoformat(), traceback=row.get("traceback"), **named)
    except (ValueError, LookupError, TypeError, OverflowError):
        pass
    return None


class Growing:
    """Follows a log from its end, also across its rotation to `….1`."""

    def __init__(self, path: Path) -> None:
        """Begin at the end of what is there."""
        self._path = path
        self._part = b""
        self._at = 0
        self._file_id: int | None = None
        with suppress(OSError):
            seen = path.stat()
            self._at, self._file_id = seen.st_size, seen.st_ino

    def new_entries(self) -> list[LogEntry]:
        """Return the entries since the last call; never raises OSError."""
        data = b""
        with suppress(OSError):
            now = self._path.stat()
            if self._file_id not in (None, now.st_ino) or now.st_size < self._at:
                before = self._path.with_name(f"{self._path.name}.1")
                data, self._at = self._read(before), 0
            self._file_id = now.st_ino
            data += self._read(self._path)
        *whole, self._part = (self._part + data).split(b"\n")
        return list(parsed(line.decode(errors="backslashreplace") for line in whole))

    def _read(self, path: Path) -> bytes:
        """Return the bytes after the last position."""
        with suppress(OSError), path.open("rb") as file:
            file.seek(self._at)
            data = file.read(_TAIL_BYTES)
            self._at += len(data)
            return data
        return b""


def growing(folder: Path) -> Sequence[Growing]:
    """Return a follower for every log that a data directory has or may get."""
    return [Growing(folder / name) for name in LOG_FILES]
