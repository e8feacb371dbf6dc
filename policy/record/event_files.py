"""TensorBoard's files of figures: written whole, bounded together, and patient with a full disk.

    events.out.tfevents.TIME.HOST.PID.0000 … ── the oldest goes when all are over the bound

The library's own writer works in a thread that a full disk ends with a traceback, keeps one file
for ever, and takes a record for each figure; here all figures of a round are one.
"""

from __future__ import annotations

import importlib
import os
import socket
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from shoal_base.files import append_whole, is_full

PREFIX = "events.out.tfevents."
_NUM_FILES = 8
"""Into which the bound is split: what goes at once is one of them."""
MAX_WAITING = 10_000
"""Records kept for a disk that is full; beyond it the oldest is dropped."""


class EventFiles:
    """The files of one run in a folder."""

    def __init__(
        self,
        folder: Path,
        *,
        max_bytes: int,
        purge_step: int | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """Open nothing yet. What an earlier run wrote from `purge_step` on is not shown any more.

        Raises ImportError: TensorBoard is not installed.
        """
        self._proto: Any = importlib.import_module("tensorboard.compat.proto.event_pb2")
        writer: Any = importlib.import_module("tensorboard.summary.writer.record_writer")
        self._framed: Callable[[Any], Any] = writer.RecordWriter
        self._folder, self._wall = folder, wall
        self._max_bytes = max_bytes
        self._num_files = 0
        self._path: Path | None = None
        self._waiting: deque[bytes] = deque(maxlen=MAX_WAITING)
        if purge_step is not None:
            start = self._proto.SessionLog(status=self._proto.SessionLog.START)
            self._add(step=purge_step, session_log=start)

    def add(self, step: int, figures: Mapping[str, float]) -> None:
        """Take the figures of a round; on disk with the next `flush`."""
        event = self._proto.Event()
        for name, value in figures.items():
            event.summary.value.add(tag=name, simple_value=value)
        self._add(step=step, summary=event.summary)

    def flush(self) -> None:
        """Write what waits, as far as there is room. Raises OSError for any other trouble."""
        if not self._waiting:
            return
        data = b"".join(self._waiting)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            if self._path is None or self._is_long(self._path, len(data)):
                self._begin_file()
            assert self._path is not None
            append_whole(self._path, data)
        except OSError as error:
            if not is_full(error):
                raise
            return
        self._waiting.clear()

    def _is_long(self, path: Path, more: int) -> bool:
        size = path.stat().st_size if path.exists() else self._max_bytes
        return size + more > self._max_bytes // _NUM_FILES

    def _begin_file(self) -> None:
        number, self._num_files = self._num_files, self._num_files + 1
        name = f"{PREFIX}{self._wall():017.6f}.{socket.gethostname()}.{os.getpid()}.{number:04d}"
        path = self._folder / name
        version = self._proto.Event(wall_time=self._wall(), file_version="brain.Event:2")
        append_whole(path, self._record(version))
        self._path = path
        self._drop_oldest()

    def _drop_oldest(self) -> None:
        """Keep room for one file more within the bound."""
        files = sorted(self._folder.glob(f"{PREFIX}*"))
        sizes = [path.stat().st_size for path in files]
        room = self._max_bytes - self._max_bytes // _NUM_FILES
        while len(files) > 1 and sum(sizes) > room:
            files.pop(0).unlink(missing_ok=True)
            sizes.pop(0)

    def _add(self, **content: Any) -> None:
        self._waiting.append(self._record(self._proto.Event(wall_time=self._wall(), **content)))

    def _record(self, event: Any) -> bytes:
        whole = _Whole()
        self._framed(whole).write(event.SerializeToString())
        return whole.content


class _Whole:
    """A file for the library's framing of records."""

    def __init__(self) -> None:
        self.content = b""

    def write(self, data: bytes) -> None:
        self.content += data
