"""A private root directory that contains only the libraries, read-only.

It is a tmpfs in a mount namespace of the process, so nothing of it remains afterwards. Needs root,
or a user namespace whose owner may mount.
"""

from __future__ import annotations

import ctypes
import errno
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

CLONE_NEWNS: Final = 0x00020000

_MS_RDONLY: Final = 1
_MS_REMOUNT: Final = 32
_MS_BIND: Final = 4096
_MS_REC: Final = 16384
_MS_PRIVATE: Final = 1 << 18
_KEPT_FLAGS: Final = {2: 2, 4: 4, 8: 8, 1024: 1024, 2048: 2048, 4096: 1 << 21}
"""Flags that a remount must preserve (nosuid, nodev, noexec, times): `statvfs` value to `mount`
value."""
_MNT_DETACH: Final = 2
_PIVOT_ROOT: Final = {"x86_64": 155, "aarch64": 41}


def enter(libc: ctypes.CDLL, folders: Sequence[str]) -> None:
    """Replace the root directory by one with only `folders`. Call in a private mount namespace.

    Raises OSError if that is not permitted; the process then still has its old root.
    """
    # Opened first, because the mount below hides the folder for temporary files.
    sources = [
        (folder, Path(folder).is_file(), os.open(folder, os.O_PATH | os.O_CLOEXEC))
        for folder in folders
    ]
    try:
        _mount(libc, None, "/", None, _MS_REC | _MS_PRIVATE)
        # Any folder can be the mount point: only this process sees the mount.
        root = os.path.realpath(tempfile.gettempdir())
        _mount(libc, "tmpfs", root, "tmpfs", 2 | 4, "mode=755,size=1m")
        for folder, is_file, source in sources:
            _bind(libc, f"/proc/self/fd/{source}", root + folder, is_file=is_file)
    finally:
        for *_, source in sources:
            os.close(source)
    os.chdir(root)
    _pivot(libc)
    os.chdir("/")
    _mount(libc, None, "/", None, _MS_REMOUNT | _MS_BIND | _MS_RDONLY | 2 | 4)


def _bind(libc: ctypes.CDLL, source: str, target: str, *, is_file: bool) -> None:
    """Bind-mount `source` at `target`, read-only."""
    made = Path(target).parent if is_file else Path(target)
    for folder in (*reversed(made.parents), made):
        if not folder.is_dir():
            folder.mkdir()
            folder.chmod(0o755)
    if is_file:
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))
    _mount(libc, source, target, None, _MS_BIND | _MS_REC)
    flags = os.statvfs(target).f_flag
    kept = sum(mounts for found, mounts in _KEPT_FLAGS.items() if flags & found)
    _mount(libc, None, target, None, _MS_REMOUNT | _MS_BIND | _MS_RDONLY | kept)


def _pivot(libc: ctypes.CDLL) -> None:
    """Make the current folder the root, and unmount the old root."""
    number = _PIVOT_ROOT.get(os.uname().machine)
    if number is None:
        raise OSError(errno.ENOSYS, "no pivot_root")
    _check(libc.syscall(number, b".", b"."))
    _check(libc.umount2(b".", _MNT_DETACH))


def _mount(
    libc: ctypes.CDLL, source: str | None, target: str, kind: str | None, flags: int, data: str = ""
) -> None:
    given = [None if one is None else os.fsencode(one) for one in (source, target, kind)]
    _check(libc.mount(*given, ctypes.c_ulong(flags), data.encode() or None))


def _check(result: int) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
