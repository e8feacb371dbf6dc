"""The interpreter's last line inside the task worker: an audit hook that refuses side effects.

A hook cannot be removed once added. It is no wall against native code; it turns what scorers and
generators might do by mistake into a refused call, on every platform and for every user.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import CodeType
from typing import Final

_REFUSED_PREFIXES: Final = (
    "subprocess.",
    "socket.",
    "ctypes.",
    "pty.",
    "os.exec",
    "os.fork",
    "os.posix_spawn",
    "os.spawn",
    "os.startfile",
    "os.system",
    "os.kill",
    "os.chmod",
    "os.chown",
    "os.chflags",
    "os.link",
    "os.lockf",
    "os.mkdir",
    "os.putenv",
    "os.remove",
    "os.removexattr",
    "os.rename",
    "os.rmdir",
    "os.setxattr",
    "os.symlink",
    "os.truncate",
    "os.unsetenv",
    "os.utime",
    "resource.",
    "signal.pthread_kill",
    "shutil.",
    "tempfile.",
    "sqlite3.",
    "syslog.",
    "mmap.",
    "fcntl.",
    "cpython.run_",
    "sys.addaudithook",
    "sys._debugmallocstats",
    "code.__new__",
    "urllib.",
    "http.",
    "ftplib.",
    "smtplib.",
    "webbrowser.",
)

_WRITE_FLAGS: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class AuditGuard:
    """State of the hook. ``scoring`` is set while a scorer looks at somebody's completion."""

    def __init__(self, servers: frozenset[object] = frozenset()) -> None:
        """`servers` are the only addresses that may be connected to."""
        self.servers = servers
        self.scoring = False
        self.numbers_only = False
        """While scoring, let code through that can only make a number (math-verify's reader)."""
        self._readable = _library_roots()

    def refusal(self, event: str, args: Sequence[object]) -> str | None:
        """Why the event is refused, or None where it is allowed."""
        if event == "open":
            return self._open_refusal(args)
        if event == "import":
            filename = args[1] if len(args) > 1 else None
            if isinstance(filename, str) and not self._is_library(filename):
                return f"import of {filename}"
            return None
        if event == "exec" and self.scoring:
            allowed = self.numbers_only and len(args) == 1 and _makes_a_number(args[0])
            return None if allowed else "evaluating text while scoring"
        if self.servers and event == "socket.__new__":
            return None
        if event == "socket.connect" and args[1] in self.servers:
            return None
        if event.startswith(_REFUSED_PREFIXES):
            return event
        return None

    def _open_refusal(self, args: Sequence[object]) -> str | None:
        path, mode, flags = (*args, None, None, None)[:3]
        writes = isinstance(mode, str) and any(letter in mode for letter in "wax+")
        if writes or (isinstance(flags, int) and flags & _WRITE_FLAGS):
            return f"open for writing: {path!r}"
        if not isinstance(path, str | bytes) or not self._is_library(os.fsdecode(path)):
            return f"open: {path!r}"
        return None

    def _is_library(self, path: str) -> bool:
        return os.path.normpath(path).startswith(self._readable)


_SYMPY_STAR: Final = compile("from sympy import *", "<string>", "exec").co_code
_NUMBER_NAMES: Final = frozenset({"Integer", "Float"})


def _makes_a_number(code: object) -> bool:
    """Return whether a code object can only call `Integer` and `Float` on constants.

    Attributes and globals are names too, so code with no other name reaches nothing else. Or it is
    the star import that sympy's parser fills its namespace with.
    """
    if not isinstance(code, CodeType):
        return False
    if code.co_names == ("sympy",) or code.co_names == ("sympy", "*"):
        return code.co_code == _SYMPY_STAR
    plain = all(isinstance(value, int | float | str | None) for value in code.co_consts)
    return plain and not code.co_varnames and set(code.co_names) <= _NUMBER_NAMES


def _library_roots() -> tuple[str, ...]:
    roots = {sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix}
    roots |= {entry for entry in sys.path if Path(entry).name in ("site-packages", "dist-packages")}
    roots.add(str(Path(__file__).parent.parent))
    return tuple(f"{root.rstrip(os.sep)}{os.sep}" for root in roots if root.rstrip(os.sep))


def install(guard: AuditGuard) -> None:
    """Add the hook, for the rest of the process's life."""

    def hook(event: str, args: tuple[object, ...]) -> None:
        reason = guard.refusal(event, args)
        if reason is not None:
            raise PermissionError(f"refused in the task worker: {reason}")

    sys.addaudithook(hook)
