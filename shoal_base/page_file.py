"""The page that a peer started, as its folder has it: where it is, and who serves it.

    page ── lock, page.json, page.token ──▶ the folder ◀── the peer, as it starts again and ends

A page outlives a peer that was killed. The next peer of the folder finds it here: as long as the
lock is held, what the file says is true.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from shoal_base.files import SMALL_FILE_BYTES, read_at_most, write_atomically

PAGE_FILE: Final = "page.json"
PAGE_LOCK: Final = "page.lock"
PAGE_TOKEN: Final = "page.token"
"""Has the token alone, for programs that read theirs from a file, as Prometheus does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedPage:
    """A page that is served."""

    pid: int
    url: str
    """Its address with its token: the file is its owner's alone."""

    @property
    def token(self) -> str:
        """The token that opens it; empty where the address has none."""
        return self.url.partition("?token=")[2]


class PageHereError(Exception):
    """A page of this folder is served already."""


@contextlib.contextmanager
def own_page(folder: Path) -> Iterator[None]:
    """Be this folder's page while the context is open; the kernel lets go if this process dies.

    Raises:
        PageHereError: another is.
        OSError: the folder cannot be written.
    """
    descriptor = os.open(folder / PAGE_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PageHereError from None
        # A killed page leaves its file, whose pid may now be another process's.
        _forget(folder)
        yield
        _forget(folder)
    finally:
        os.close(descriptor)


def tell_page(folder: Path, page: ServedPage) -> None:
    """Leave where the page is, and its token. Raises OSError."""
    write_atomically(folder / PAGE_TOKEN, page.token.encode(), mode=0o600)
    write_atomically(folder / PAGE_FILE, json.dumps(asdict(page)).encode(), mode=0o600)


def served_page(folder: Path) -> ServedPage | None:
    """Return the page that is served for a folder; None where there is none."""
    try:
        descriptor = os.open(folder / PAGE_LOCK, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return None
    except BlockingIOError:
        return _read(folder / PAGE_FILE)
    finally:
        os.close(descriptor)


def _forget(folder: Path) -> None:
    for name in (PAGE_FILE, PAGE_TOKEN):
        (folder / name).unlink(missing_ok=True)


def _read(path: Path) -> ServedPage | None:
    try:
        found = json.loads(read_at_most(path, SMALL_FILE_BYTES))
        return ServedPage(pid=int(found["pid"]), url=str(found["url"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
