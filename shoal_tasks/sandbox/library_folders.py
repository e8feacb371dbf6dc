"""The folders that the sandboxed task worker may read: Python's libraries, this package's code, and
the shared libraries that extension modules load on demand.

For an editable installation these are the packages' own folders, never their parent, which holds
the user's files.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Final

import shoal_base
import shoal_tasks
import shoal_wire

_SYSTEM: Final = (
    *("/lib", "/lib32", "/lib64", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/local/lib"),
    *("/etc/ld.so.cache", "/usr/share/zoneinfo", "/nix/store", "/gnu/store"),
)
"""Shared libraries and time zones."""
_SITES: Final = ("site-packages", "dist-packages")
_OF_A_SCHEME: Final = ("stdlib", "platstdlib", "purelib", "platlib")
_OF_A_PREFIX: Final = ("lib", "lib64", "share", "nltk_data", "pyvenv.cfg")
"""Parts of an installation in which packages store shared libraries and data, such as nltk's."""


def library_folders() -> tuple[str, ...]:
    """Return the folders and single files, as the interpreter names them, without nested ones."""
    # Symbolic links are not resolved: files are opened by the link's name.
    found = {os.path.normpath(one) for one in _candidates() if _is_there(one)}
    return tuple(sorted(one for one in found if not found & set(map(str, PurePath(one).parents))))


def _is_there(path: str) -> bool:
    """Return whether this user can access the path; a parent folder may be another user's."""
    try:
        return Path(path).exists()
    except OSError:
        return False


def _candidates() -> Iterator[str]:
    yield from _SYSTEM
    bases = {"base": sys.base_prefix, "platbase": sys.base_exec_prefix}
    for paths in (sysconfig.get_paths(), sysconfig.get_paths(vars=bases)):
        yield from (paths[name] for name in _OF_A_SCHEME)
    yield from (one for one in sys.path if PurePath(one).name in _SITES or one.endswith(".zip"))
    for prefix in {sys.prefix, sys.base_prefix} - {"/"}:
        yield from (f"{prefix}{os.sep}{name}" for name in _OF_A_PREFIX)
    for package in (shoal_tasks, shoal_base, shoal_wire):
        yield from package.__path__
