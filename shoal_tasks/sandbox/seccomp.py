"""A seccomp filter in classic BPF: the kernel refuses system calls that scoring never needs.

Needs no privilege beyond `no_new_privs`. System calls that create sockets or processes, change
the file system, or access other processes fail with EPERM, and so does opening for writing. All
others pass, because the list of calls that CPython needs differs between its builds.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import platform
import struct
from typing import Final

_PR_SET_SECCOMP: Final = 22
_SECCOMP_MODE_FILTER: Final = 2

_RET_ALLOW: Final = 0x7FFF0000
_RET_ERRNO: Final = 0x00050000
_RET_KILL: Final = 0x80000000

_LOAD: Final = 0x20
_JUMP_EQUAL: Final = 0x15
_JUMP_ANY_BIT: Final = 0x45
_JUMP_GREATER_EQUAL: Final = 0x35
_RETURN: Final = 0x06

# Offsets into struct seccomp_data, low halves on little-endian machines.
_NUMBER: Final = 0
_ARCH: Final = 4
_ARGS: Final = 16

_WRITE_FLAGS: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

_X32_BIT: Final = 0x40000000
"""Bit of x86-64's second system-call table (x32), which is refused as a whole."""

_AUDIT_ARCH: Final = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

# fmt: off
_REFUSED: Final = {
    "x86_64": (
        41, 42, 43, 49, 50, 53, 288,      # socket connect accept bind listen socketpair accept4
        44, 46, 307,                      # sendto sendmsg sendmmsg
        56, 57, 58, 435,                  # clone fork vfork clone3
        59, 322,                          # execve execveat
        62, 200, 234, 129, 297, 424,      # kill tkill tgkill sigqueue(2) pidfd_send_signal
        101, 310, 311, 434, 438, 440,     # ptrace process_vm_* pidfd_* process_madvise
        76, 77, 82, 83, 84, 85, 86, 87, 88,    # truncate … rename mkdir rmdir creat link …
        90, 91, 92, 93, 94, 132, 133, 161, 165, 166, 155,  # chmod chown utime mknod chroot mount
        235, 258, 259, 260, 261, 263, 264, 265, 266, 268, 280, 316,  # the same, …at
        188, 189, 190, 197, 198, 199,     # setxattr removexattr
        248, 249, 250, 321, 298, 323,     # keyrings bpf perf_event_open userfaultfd
        425, 426, 427, 437, 304, 303,     # io_uring openat2 open_by_handle_at
        272, 308, 428, 429, 430, 431, 432, 433, 442,  # unshare setns new mount calls
        302, 160, 157, 319,               # prlimit64 setrlimit prctl memfd_create
        175, 176, 313, 246, 320, 169, 170, 171, 167, 168,  # modules kexec reboot names swap
        29, 30, 31, 67, 64, 65, 66, 220, 68, 69, 70, 71,  # shared memory semaphores messages
        240, 241, 242, 243, 244, 245,     # message queues
        253, 254, 294, 300, 301,          # inotify fanotify
    ),
    "aarch64": (
        198, 199, 200, 201, 202, 203, 242, 206, 211, 269,
        220, 435, 221, 281,
        129, 130, 131, 138, 240, 424,
        117, 270, 271, 434, 438, 440,
        45, 46, 33, 34, 35, 36, 37, 38, 276, 51, 39, 40, 41,
        52, 53, 54, 55, 88,
        5, 6, 7, 14, 15, 16,
        217, 218, 219, 280, 241, 282,
        425, 426, 427, 437, 264, 265,
        97, 268, 428, 429, 430, 431, 432, 433, 442,
        261, 164, 167, 279,
        105, 106, 273, 104, 294, 142, 161, 162, 224, 225,
        194, 196, 195, 197, 190, 193, 191, 192, 186, 189, 188, 187,
        180, 181, 182, 183, 184, 185,
        26, 27, 262, 263,
    ),
}
_FCNTL: Final = {"x86_64": 72, "aarch64": 25}
_FCNTL_OWNERS: Final = (8, 10, 15)
"""F_SETOWN, F_SETSIG, F_SETOWN_EX: they would let a descriptor's events signal any process."""
_OPENAT: Final = {"x86_64": 257, "aarch64": 56}
_OPEN: Final = {"x86_64": 2}
_CONNECTING: Final = {
    "x86_64": frozenset({41, 42, 44}),    # socket connect sendto
    "aarch64": frozenset({198, 203, 206}),
}
# fmt: on


def install(libc: ctypes.CDLL | None, *, connects: bool = False) -> str:
    """Install the filter; with `connects`, the calls for connecting and sending are allowed.

    Raises NotImplementedError on other machines, OSError if the kernel refuses.
    """
    machine = platform.machine()
    if libc is None or machine not in _AUDIT_ARCH or struct.calcsize("P") != 8:
        raise NotImplementedError(f"no filter for {machine}")
    code = program(machine, connects=connects)
    buffer = ctypes.create_string_buffer(code, len(code))
    header = struct.pack("@HP", len(code) // 8, ctypes.addressof(buffer))
    if libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.c_char_p(header), 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return f"{len(_REFUSED[machine])} calls refused"


@functools.cache
def program(machine: str, *, connects: bool = False) -> bytes:
    """Return the filter's instructions, eight bytes each."""
    refuse = _RET_ERRNO | errno.EPERM
    code = [
        _instruction(_LOAD, 0, 0, _ARCH),
        _instruction(_JUMP_EQUAL, 1, 0, _AUDIT_ARCH[machine]),
        _instruction(_RETURN, 0, 0, _RET_KILL),
        _instruction(_LOAD, 0, 0, _NUMBER),
        _instruction(_JUMP_GREATER_EQUAL, 0, 1, _X32_BIT),
        _instruction(_RETURN, 0, 0, refuse),
    ]
    allowed = _CONNECTING[machine] if connects else frozenset()
    for number in _REFUSED[machine]:
        if number in allowed:
            continue
        code.append(_instruction(_JUMP_EQUAL, 0, 1, number))
        code.append(_instruction(_RETURN, 0, 0, refuse))
    for table, flags_argument in ((_OPENAT, 2), (_OPEN, 1)):
        if machine in table:
            # For other calls, jump over the next four instructions; otherwise the flags decide.
            code += [
                _instruction(_JUMP_EQUAL, 0, 4, table[machine]),
                _instruction(_LOAD, 0, 0, _ARGS + 8 * flags_argument),
                _instruction(_JUMP_ANY_BIT, 0, 1, _WRITE_FLAGS),
                _instruction(_RETURN, 0, 0, refuse),
                _instruction(_RETURN, 0, 0, _RET_ALLOW),
            ]
    # For other calls, jump over the next eight instructions.
    code += [_instruction(_JUMP_EQUAL, 0, 8, _FCNTL[machine]), _instruction(_LOAD, 0, 0, _ARGS + 8)]
    for command in _FCNTL_OWNERS:
        code.append(_instruction(_JUMP_EQUAL, 0, 1, command))
        code.append(_instruction(_RETURN, 0, 0, refuse))
    code.append(_instruction(_RETURN, 0, 0, _RET_ALLOW))
    code.append(_instruction(_RETURN, 0, 0, _RET_ALLOW))
    return b"".join(code)


def _instruction(code: int, if_true: int, if_false: int, operand: int) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, operand)
