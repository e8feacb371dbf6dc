"""A Landlock domain: this process can open files only below given folders, and only for reading.

Needs Linux 5.13 and no privilege beyond `no_new_privs`. Newer kernels also restrict TCP (6.7),
ioctl on devices (6.10), and signals and abstract sockets to other processes (6.12). Landlock does
not hide metadata such as file sizes and times. Constants as in `linux/landlock.h`.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Final

_CREATE_RULESET: Final = 444
_ADD_RULE: Final = 445
_RESTRICT_SELF: Final = 446
_VERSION: Final = 1
_PATH_BENEATH: Final = 1

_READ_FILE: Final = 1 << 2
_READ_DIR: Final = 1 << 3
_NUM_FILE_RIGHTS: Final = ((1, 13), (2, 14), (3, 15), (5, 16))
"""(ABI version, number of file rights): the rights are that many low bits."""
_SIZES: Final = ((6, 24), (4, 16), (1, 8))
"""(ABI version, bytes of `landlock_ruleset_attr`), newest first."""
_TCP: Final = 0b11
_SCOPES: Final = 0b11


def version(libc: ctypes.CDLL) -> int:
    """Return the kernel's Landlock ABI version; 0 without Landlock."""
    return max(0, int(libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION)))


def enter(libc: ctypes.CDLL, folders: Sequence[str], *, connects: bool = False) -> str:
    """Restrict this process to reading below `folders`; with `connects`, TCP stays allowed.

    Raises NotImplementedError without Landlock, OSError if the kernel refuses.
    """
    found = version(libc)
    if not found:
        raise NotImplementedError("the kernel has no Landlock")
    files = (1 << max(bits for since, bits in _NUM_FILE_RIGHTS if since <= found)) - 1
    network = 0 if connects else _TCP
    # Each ABI version accepts a prefix of this structure.
    size = next(size for since, size in _SIZES if since <= found)
    rules = struct.pack("=QQQ", files, network, _SCOPES)[:size]
    ruleset = _check(
        libc.syscall(_CREATE_RULESET, ctypes.c_char_p(rules), ctypes.c_size_t(len(rules)), 0)
    )
    try:
        for folder in folders:
            _allow(libc, ruleset, folder)
        _check(libc.syscall(_RESTRICT_SELF, ruleset, 0))
    finally:
        os.close(ruleset)
    return f"version {found}, {len(folders)} folders readable"


def _allow(libc: ctypes.CDLL, ruleset: int, folder: str) -> None:
    try:
        beneath = os.open(folder, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # it was removed, or this user cannot access it
    rights = _READ_FILE | (_READ_DIR if Path(folder).is_dir() else 0)
    rule = struct.pack("=Qi", rights, beneath)
    try:
        _check(libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.c_char_p(rule), 0))
    finally:
        os.close(beneath)


def _check(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code) if code != errno.EPERM else "not permitted")
    return result
