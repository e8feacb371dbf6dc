"""The audit hook of the task worker: refuses side effects inside the interpreter.

A hook cannot be removed once added. It does not isolate native code, but it refuses what scorers
and generators might do by mistake, on every platform and for every user.

A refusal is raised inside the code that caused it, which may catch the exception. While a user's
file runs (`AuditGuard.watching`), each refusal is therefore recorded with the line of that file, so
the caller can report it whatever the code returned.
"""

from __future__ import annotations

import _thread
import functools
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Final, TypeVar

from shoal_tasks.sandbox.library_folders import library_folders

R = TypeVar("R")

_REFUSED: Final[Mapping[str, tuple[str, ...]]] = {
    "the network": (
        *("socket.", "urllib.", "http.", "ftplib.", "smtplib.", "webbrowser.", "imaplib."),
        *("poplib.", "nntplib.", "telnetlib.", "syslog."),
    ),
    "another process": (
        *("subprocess.", "pty.", "os.exec", "os.fork", "os.posix_spawn", "os.spawn", "os.system"),
        *("os.startfile", "os.kill", "signal.pthread_kill", "os.setsid"),
    ),
    "changing files": (
        *("os.chmod", "os.chown", "os.chflags", "os.link", "os.lockf", "os.mkdir", "os.remove"),
        *("os.removexattr", "os.rename", "os.rmdir", "os.setxattr", "os.symlink", "os.truncate"),
        *("os.utime", "shutil.", "tempfile.", "fcntl."),
    ),
    "changing the process": (
        *("resource.", "sys.addaudithook", "sys._debugmallocstats", "cpython.run_", "mmap."),
        *("os.putenv", "os.unsetenv"),
    ),
    "a database": ("sqlite3.",),
    "native code": ("ctypes.", "code.__new__"),
}
"""Events by what they access. An event is refused if it begins with one of these prefixes."""
_REASONS: Final = {start: what for what, starts in _REFUSED.items() for start in starts}
_STARTS: Final = tuple(_REASONS)
_HARMLESS_IF_SANDBOXED: Final = ("ctypes.", "code.__new__", "exec", "os.putenv", "os.unsetenv")
"""Events that are harmless where the operating system itself isolates the process."""
_SOURCE_LINE_READS: Final = (("open", "r", 0), ("open", "rb", 0))
"""The interpreter opens a file to show the line of a `SyntaxError`. It works without."""
_LISTINGS: Final = ("os.listdir", "os.scandir")
_ABOUT_PATHS: Final = (
    *(__name__, "os", "os.path", "posixpath", "genericpath", "glob", "fnmatch"),
    *("pathlib", "pathlib._local", "pathlib._abc", "contextlib"),
)
_IN_MEMORY: Final = (":memory:", "")

_WRITE_FLAGS: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class AuditGuard:
    """The hook's state. ``scoring`` is set while a scorer processes a completion."""

    def __init__(self, servers: frozenset[object] = frozenset()) -> None:
        """`servers` are the only addresses that the process may connect to."""
        self.servers = servers
        self.scoring = False
        self.numbers_only = False
        """While scoring, allow code that can only create a number (math-verify's parser)."""
        self.is_sandboxed = False
        """True if the operating system isolates this process from files, network and processes. A
        user's file may then evaluate text."""
        self._readable = _library_roots()
        self._searched = frozenset(sys.path)
        self._watched: tuple[str, ...] = ()
        self._refusals: list[str] = []
        self._within_imports: dict[str, str] = {}

    @contextmanager
    def watching(self, *paths: str, is_scoring: bool = True) -> Iterator[None]:
        """Watch the users' files at `paths`: record each refusal with the line that caused it.

        `is_scoring`: apply the rules of scoring.
        """
        before = self.scoring, self._watched, self._refusals
        self.scoring, self._watched, self._refusals = is_scoring, paths, []
        self._within_imports.clear()
        try:
            yield
        finally:
            self.scoring, self._watched, self._refusals = before

    @property
    def first_refusal(self) -> str:
        """The first refusal to the watched file; empty if there is none.

        A refusal during a library's import (such as counting processors) is ignored unless the
        import fails.
        """
        failed = [why for name, why in self._within_imports.items() if name not in sys.modules]
        return next(iter((*self._refusals, *failed)), "")

    def refusal(self, event: str, args: Sequence[object]) -> str | None:
        """Return why the event is refused; None if it is allowed."""
        if event == "open":
            return self._open_refusal(args)
        if event in _LISTINGS:
            path = args[0] if args else None
            return None if self._is_searched(path) else f"listing {path!r}"
        if event == "import":
            filename = args[1] if len(args) > 1 else None
            if isinstance(filename, str) and not self._is_library(filename):
                return f"import of {filename}"
            return None
        if self.is_sandboxed and self._watched and event.startswith(_HARMLESS_IF_SANDBOXED):
            return None
        if event == "exec" and self.scoring:
            allowed = self.numbers_only and len(args) == 1 and _makes_a_number(args[0])
            return None if allowed else "evaluating text while scoring (eval, exec)"
        if self.servers and event == "socket.__new__":
            return None
        if event == "socket.connect" and args[1] in self.servers:
            return None
        if event == "sqlite3.connect" and self._watched and args[0] in _IN_MEMORY:
            return None
        if event == "sqlite3.connect/handle" and self._watched:
            return None
        if event.startswith(_STARTS):
            what = next(what for start, what in _REASONS.items() if event.startswith(start))
            return f"{what} ({event})"
        return None

    def record(self, reason: str) -> None:
        """Record a refusal with the line of the watched file that caused it."""
        if not self._watched:
            return
        where, imported = _place(sys._getframe(1), self._watched)
        line = f"{where or self._watched[0]}: the sandbox refuses {reason}"
        if imported:
            line += f" while {imported} is imported: write `import {imported}` at the file's top"
            self._within_imports.setdefault(imported, line)
        else:
            self._refusals.append(line)

    def _open_refusal(self, args: Sequence[object]) -> str | None:
        path, mode, flags = (*args, None, None, None)[:3]
        writes = isinstance(mode, str) and any(letter in mode for letter in "wax+")
        if isinstance(path, int) and not writes:
            return (
                None  # an open descriptor: `subprocess` wraps its pipes before it starts anything
            )
        if writes or (isinstance(flags, int) and flags & _WRITE_FLAGS):
            return f"open for writing: {path!r}"
        if isinstance(path, os.PathLike):
            path = os.fspath(path)
        if not isinstance(path, str | bytes) or not self._is_library(os.fsdecode(path)):
            return f"open: {path!r}"
        return None

    def _is_searched(self, path: object) -> bool:
        """Return whether imports list this folder."""
        if not isinstance(path, str | bytes):
            return False
        folder = os.fsdecode(path)
        return folder in self._searched or self._is_library(f"{folder}/x")

    def stat_refusal(self, path: object, what: str) -> str | None:
        """Return why a user's file may not check for `path`; None if it may, or if a library asks.

        Nothing outside the library folders is visible to user code.
        """
        if not self._watched or not isinstance(path, str | bytes | os.PathLike):
            return None
        text = os.fsdecode(path)
        if self._is_library(text) or text in self._watched:
            return None
        return what if _is_called_by(sys._getframe(1), self._watched) else None

    def _is_library(self, path: str) -> bool:
        return (os.path.normpath(path) + os.sep).startswith(self._readable)


def _is_called_by(frame: FrameType | None, paths: Sequence[str]) -> bool:
    """Return whether a user's file is the caller, directly or through functions about paths."""
    while frame is not None and frame.f_globals.get("__name__") in _ABOUT_PATHS:
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename in paths


def _place(frame: FrameType | None, paths: Sequence[str]) -> tuple[str, str]:
    """Return the innermost line of a user's file among the callers of `frame`, and the module that
    it is importing; both empty if none.
    """
    imported = ""
    while frame is not None:
        if frame.f_code.co_filename in paths:
            return f"{frame.f_code.co_filename}, line {frame.f_lineno}", imported
        if frame.f_code.co_name == "_find_and_load" and "importlib" in frame.f_code.co_filename:
            imported = str(frame.f_locals.get("name", ""))
        frame = frame.f_back
    return "", imported


_SYMPY_STAR: Final = compile("from sympy import *", "<string>", "exec").co_code
_NUMBER_NAMES: Final = frozenset({"Integer", "Float"})


def _makes_a_number(code: object) -> bool:
    """Return whether a code object can only call `Integer` and `Float` on constants.

    Attributes and globals are names too, so code without other names reaches nothing else. The star
    import with which sympy's parser fills its namespace is also allowed.
    """
    if not isinstance(code, CodeType):
        return False
    if code.co_names == ("sympy",) or code.co_names == ("sympy", "*"):
        return code.co_code == _SYMPY_STAR
    plain = all(isinstance(value, int | float | str | None) for value in code.co_consts)
    return plain and not code.co_varnames and set(code.co_names) <= _NUMBER_NAMES


def _library_roots() -> tuple[str, ...]:
    return tuple(f"{folder}{os.sep}" for folder in library_folders())


def install(guard: AuditGuard) -> None:
    """Add the hook, for the rest of the process."""

    def hook(event: str, args: tuple[object, ...]) -> None:
        reason = guard.refusal(event, args)
        if reason is not None:
            if (event, *args[1:]) not in _SOURCE_LINE_READS:
                guard.record(reason)
            raise PermissionError(f"refused in the task worker: {reason}")

    def no_thread(*_args: object, **_named: object) -> None:
        guard.record("another thread")
        raise PermissionError("refused in the task worker: another thread")

    def looking(function: Callable[..., R]) -> Callable[..., R]:
        @functools.wraps(function)
        def look(path: object = ".", *args: object, **named: object) -> R:
            reason = guard.stat_refusal(path, f"looking for {path!r}")
            if reason is not None:
                guard.record(reason)
                raise PermissionError(f"refused in the task worker: {reason}")
            return function(path, *args, **named)

        return look

    # These have no audit events, and a refusal by the kernel would look like a missing file.
    for name in ("stat", "lstat", "access", "readlink"):
        setattr(os, name, looking(getattr(os, name)))
    # Python 3.11 has no event for threads. The kernel refuses them too, but unrecorded.
    for name in ("_start_new_thread", "_start_joinable_thread"):
        if hasattr(threading, name):
            setattr(threading, name, no_thread)
    for name in ("start_new_thread", "start_new", "start_joinable_thread"):
        if hasattr(_thread, name):
            setattr(_thread, name, no_thread)
    sys.addaudithook(hook)
