"""Makes a data directory accessible to its user only, existing files included.

Other users of the machine must not read completions, peers' addresses and weights. The identity key
is not repaired here: a key that others could read may already have been read.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_MARKS = ("identity.key", "lock", "trainer.lock")
"""Every folder that a peer or trainer has used has one of these files."""
_WRITTEN = (
    *("lock", "trainer.lock", "addresses", "manifest.bin", "started-over"),
    *("*.db", "*.db-wal", "*.db-shm", "*.json", "*.json.*", "*.jsonl", "*.jsonl.*"),
    *("*.log", "*.log.*", "log.txt", "log.txt.*"),
    *("checkpoints", "tensorboard", "earlier-*"),
)
"""Names of files and folders; a folder includes everything below it."""


@contextmanager
def private(folder: Path) -> Iterator[None]:
    """Restrict a folder's permissions, and those of all files written within the context.

    In an existing folder with other contents, only files written by shoal are changed.
    """
    with suppress(OSError):
        _restrict_all(folder)
    before = os.umask(_OTHERS)
    try:
        yield
    finally:
        os.umask(before)


def _restrict_all(folder: Path) -> None:
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
    """Remove other users' permissions from a file or folder, except links and shared folders."""
    with suppress(OSError):
        mode = path.lstat().st_mode
        plain = stat.S_ISREG(mode) or (stat.S_ISDIR(mode) and not mode & stat.S_ISVTX)
        if plain and mode & _OTHERS:
            path.chmod(stat.S_IMODE(mode) & ~_OTHERS)
