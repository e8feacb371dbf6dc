"""Standard streams whose reader may vanish: a closed pipe, a closed terminal, or a stopped one.

    a command that prints   its reader goes ─▶ `NoReader` ends it, quietly, with SIGPIPE's code
    a process that serves   print ─▶ bounded queue ─▶ a thread ─▶ descriptor
                            gone: dropped from then on · stopped (Ctrl-S): dropped beyond a bound

Call `end_with_the_reader` at the start of a command, or `outlive_the_terminal` in one that runs for
hours. Neither changes streams that other code has replaced.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import io
import os
import select
import signal
import stat
import sys
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TextIO

from shoal_base.bounded import PIECE_BYTES
from shoal_base.waits import AT_ONCE_S

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

EXIT_NO_READER: Final = 128 + signal.SIGPIPE
"""Exit code that shells give for a program that SIGPIPE ended."""
MAX_WAITING_BYTES: Final = 4 * PIECE_BYTES
"""Most bytes queued for a terminal or pipe that does not read; further output is dropped."""
_STANDARD = (0, 1, 2)


class NoReader(SystemExit):
    """Raised when a pipe's reader, or the terminal, has gone."""


class _Outlet(io.RawIOBase):
    """Writes to a descriptor, and drops output that cannot be written."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        self.lost = False
        """True once output no longer arrives."""

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def write(self, data: ReadableBuffer, /) -> int:
        """Write all of `data`, or drop it if there is no reader."""
        raw = bytes(data)
        if not self.lost:
            try:
                self._write_all(raw)
            except OSError as error:
                self._lose()
                self._failed(error)
        return len(raw)

    def drain(self, seconds: float) -> None:
        """Wait at most `seconds` until all output has been written."""

    def _failed(self, error: OSError) -> None:
        """Ignore the error: its reader is the one that has gone."""

    def _write_all(self, data: bytes) -> None:
        """Write to the descriptor, however long that takes. Raises OSError."""
        left = memoryview(data)
        while left:
            try:
                left = left[os.write(self._descriptor, left) :]
            except BlockingIOError:  # a process that shares it has made it non-blocking
                waiting = select.poll()
                waiting.register(self._descriptor, select.POLLOUT)
                waiting.poll()

    def _lose(self) -> None:
        """Drop further output, also that of children and C libraries."""
        self.lost = True
        with contextlib.suppress(OSError):
            null = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
            os.dup2(null, self._descriptor)
            os.close(null)


class _EndsWithReader(_Outlet):
    """Ends the process when the reader has gone."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor)
        # Checked now: once output is dropped, the descriptor is the null device, also a device.
        self._is_device = stat.S_ISCHR(os.fstat(descriptor).st_mode)

    def _failed(self, error: OSError) -> None:
        if error.errno == errno.EPIPE or (error.errno == errno.EIO and self._is_device):
            raise NoReader(EXIT_NO_READER) from None
        raise SystemExit(f"shoal: cannot write its output: {error.strerror}") from None


class _Queued(_Outlet):
    """Writes in a thread, so that a terminal that does not read blocks no caller."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor)
        self._changed = threading.Condition()
        self._waiting: deque[bytes] = deque()
        self._num_bytes = 0
        """Bytes queued or being written."""
        self._thread: threading.Thread | None = None

    def write(self, data: ReadableBuffer, /) -> int:
        raw = bytes(data)
        with self._changed:
            if not self.lost and self._num_bytes + len(raw) <= MAX_WAITING_BYTES:
                self._waiting.append(raw)
                self._num_bytes += len(raw)
                self._changed.notify_all()
                self._start()
        return len(raw)

    def drain(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self.lost or not self._num_bytes, seconds)

    def _start(self) -> None:
        """Start the thread if it is not running: a forked process has none."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._pass_on, name="output", daemon=True)
            self._thread.start()

    def _pass_on(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: bool(self._waiting))
                raw = self._waiting.popleft()
            try:
                self._write_all(raw)
            except OSError:
                self._lose()
            with self._changed:
                self._num_bytes -= len(raw)
                if self.lost:
                    self._waiting.clear()
                    self._num_bytes = 0
                self._changed.notify_all()
            if self.lost:
                return


_outlets: dict[str, _Outlet] = {}
"""This process's outlets, by the name of their stream in `sys`."""


def end_with_the_reader() -> None:
    """End the process quietly when its reader has gone, as with ``| head -1``."""
    _fill_standard_descriptors()
    _install("stdout", 1, _EndsWithReader)
    _install("stderr", 2, _Outlet)


def outlive_the_terminal(on_hangup: Callable[[], None] = lambda: None) -> None:
    """Continue without standard output and error once they are closed.

    A closed terminal (SIGHUP) no longer ends the process; instead `on_hangup` is called, in a
    thread, so that it may log. A process that already ignores hangups (nohup) continues to do so.
    """
    _fill_standard_descriptors()
    _install("stdout", 1, _Queued)
    _install("stderr", 2, _Queued)
    of_main_thread = threading.current_thread() is threading.main_thread()
    if of_main_thread and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        # A handler, and not SIG_IGN, which every program started from here would inherit.
        signal.signal(signal.SIGHUP, lambda *_: _in_thread(on_hangup))


def flush_output() -> None:
    """Flush buffered output. A command may find here that its reader has gone."""
    for name in _outlets:
        stream: TextIO | None = getattr(sys, name)
        if stream is not None:
            stream.flush()


def _in_thread(call: Callable[[], None]) -> None:
    """Run `call` outside the signal handler, which may have interrupted a holder of a log lock."""
    threading.Thread(target=call, name="hangup", daemon=True).start()


def _install(name: str, descriptor: int, kind: type[_Outlet]) -> None:
    before: TextIO | None = getattr(sys, name)
    is_ours = before is None or before is getattr(sys, f"__{name}__") or name in _outlets
    if not is_ours or type(_outlets.get(name)) is kind:
        return
    if before is not None:
        before.flush()
    if not _outlets:
        atexit.register(drain_output)
    outlet = _outlets[name] = kind(descriptor)
    stream = io.TextIOWrapper(
        outlet,  # type: ignore[type-var]
        encoding=getattr(before, "encoding", None) or "utf-8",
        errors=getattr(before, "errors", None) or "backslashreplace",
        line_buffering=name == "stderr" or outlet.isatty(),
    )
    setattr(sys, name, stream)


def drain_output() -> None:
    """Wait until all output has been written, at most a second for each stream."""
    with contextlib.suppress(OSError, ValueError, SystemExit):
        flush_output()
    for outlet in _outlets.values():
        outlet.drain(AT_ONCE_S)


def _fill_standard_descriptors() -> None:
    """Open the null device for each closed standard descriptor.

    Otherwise the next opened file would get its number, and receive printed output.
    """
    for descriptor in _STANDARD:
        try:
            os.fstat(descriptor)
        except OSError:
            with contextlib.suppress(OSError):
                null = os.open(os.devnull, os.O_RDWR)
                if null != descriptor:
                    os.dup2(null, descriptor)
                    os.close(null)
