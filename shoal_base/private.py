"""A data directory is its user's alone: what is written into it, and what stands in it already.

Answers, peers' addresses and weights are nobody else's on this machine. The identity is not mended
here: a key that others could read may have been read.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_MARKS = ("identity.key", "lock", "trainer.lock")
"""One of these stands in every folder that a peer or trainer has used."""
_WRITTEN = (
    *("lock", "trainer.lock", "addresses", "manifest.bin", "started-over"),
    *("*.db", "*.db-wal", "*.db-shm", "*.json", "*.json.*", "*.jsonl", "*.jsonl.*"),
    *("*.log", "*.log.*", "log.txt", "log.txt.*"),
    *("checkpoints", "tensorboard", "earlier-*"),
)
"""Names of files and folders; a folder covers all that is below it."""


@contextmanager
def private(folder: Path) -> Iterator[None]:
    """Mend a folder's permissions, and write nothing that others may read while this is open.

    A folder that is there and holds other things is left as it is, but for what we wrote.
    """
    with suppress(OSError):
        _mend(folder)
    before = os.umask(_OTHERS)
    try:
        yield
    finally:
        os.umask(before)


def _mend(folder: Path) -> None:
    names = {entry.name for entry in folder.iterdir()}
    ours = names.intersection(_MARKS)
    if ours or not names:
        _close(folder)
    for path in {path for name in _WRITTEN for path in folder.glob(name)} if ours else ():
        _close(path)
        if path.is_dir() and not path.is_symlink():
            for entry in path.rglob("*"):
                _close(entry)


def _close(path: Path) -> None:
    """Take what others may do off a file or folder; links and shared folders stay."""
    with suppress(OSError):
        mode = path.lstat().st_mode
        plain = stat.S_ISREG(mode) or (stat.S_ISDIR(mode) and not mode & stat.S_ISVTX)
        if plain and mode & _OTHERS:
            path.chmod(stat.S_IMODE(mode) & ~_OTHERS)
