"""Recognises the pointer files that a clone without Git LFS has in place of large files."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_FIRST_LINE: Final = b"version https://git-lfs.github.com/spec/"
"""The beginning of every pointer, by the specification of Git LFS."""


def is_lfs_pointer(path: Path) -> bool:
    """Return whether a file is a Git LFS pointer; False for one that cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(len(_FIRST_LINE)) == _FIRST_LINE
    except OSError:
        return False
