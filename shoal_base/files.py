"""Writes files atomically: to a temporary file in the same folder, which is then renamed.

    name.tmp-PID-random  ── fsync ──▶  rename (or link) ── fsync the folder ──▶  name

All functions block.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from shoal_base.waits import POLL_S

SMALL_FILE_BYTES: Final = 1 << 20
"""Read limit for small files, thousands of times their usual size; reading a device never ends."""


def write_atomically(path: Path, content: bytes, *, mode: int = 0o666) -> None:
    """Replace `path` entirely or not at all; durable on return. Raises OSError.

    The file has at most the permissions of `mode`.
    """
    with _temporary_file(path, content, mode=mode) as temporary:
        temporary.replace(path)
    sync(path.parent)


def create_atomically(path: Path, content: bytes, *, mode: int) -> None:
    """Create `path`, which must not exist, with at most the permissions of `mode`; durable.

    Raises:
        FileExistsError: it exists, perhaps only since now; it is not changed.
        OSError: it cannot be created.
    """
    with _temporary_file(path, content, mode=mode) as temporary:
        # A link, unlike a rename, never replaces a file that appeared meanwhile.
        os.link(temporary, path)
    sync(path.parent)


def append_whole(path: Path, data: bytes, *, mode: int = 0o600) -> None:
    """Append all of `data` to a file, or nothing: half a line would also corrupt the next one.

    Not flushed to the disk. Raises OSError.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    descriptor = os.open(path, flags, mode)
    try:
        size = os.fstat(descriptor).st_size
        try:
            written = 0
            while written < len(data):
                written += os.write(descriptor, data[written:])
        except OSError:
            os.ftruncate(descriptor, size)
            raise
    finally:
        os.close(descriptor)


def sync(path: Path) -> None:
    """Flush a file, or a folder's names, to the disk. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_at_most(path: Path, max_bytes: int) -> bytes:
    """Return a file's content. Raises OSError, and ValueError if it is over `max_bytes`."""
    with path.open("rb") as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise ValueError("the file is too long")
    return content


def expanded(text: str) -> Path:
    """A path with ``~`` expanded; unchanged if the user is unknown."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        return Path(text)


def is_full(error: BaseException) -> bool:
    """Return whether an error, or one of its causes, means that a disk or quota is full."""
    seen: BaseException | None = error
    while seen is not None:
        code = getattr(seen, "sqlite_errorcode", 0) & 0xFF
        number = getattr(seen, "errno", None)
        if code == sqlite3.SQLITE_FULL or number in (errno.ENOSPC, errno.EDQUOT):
            return True
        seen = seen.__cause__
    return False


@contextmanager
def locked(
    path: Path,
    *,
    seconds: float,
    on_wait: Callable[[], None],
    should_stop: Callable[[], bool] = lambda: False,
) -> Iterator[None]:
    """Hold a file's lock within the context; the kernel releases it if this process dies.

    If another process holds it, call `on_wait` once and wait at most `seconds`. Raises OSError, and
    TimeoutError after `seconds` or once `should_stop` returns True.
    """
    deadline = time.monotonic() + seconds
    is_waiting = False
    with path.open("a") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if should_stop() or time.monotonic() > deadline:
                    raise TimeoutError(f"another process holds {path}") from None
            if not is_waiting:
                on_wait()
                is_waiting = True
            time.sleep(POLL_S)
        yield


@contextmanager
def _temporary_file(path: Path, content: bytes, *, mode: int) -> Iterator[Path]:
    """A synced file with `content` in the folder of `path`; removed when the context ends."""
    temporary = path.with_name(f"{path.name}.tmp-{os.getpid()}-{secrets.token_hex(4)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)
