"""Removes this process's access to everything that scoring a text does not need.

Layers, in the order of application. Only those marked *required* must succeed; all are reported,
so that a status display can show which are in force:

    process_group   own session, so that a kill reaches all children
    network         own, empty network namespace; not for a worker of OpenEnv servers (below)
    filesystem      own root directory with only Python's libraries, read-only; without the
                    permission for it, nothing if Landlock is available, otherwise an empty root
    user            root becomes `nobody`, without supplementary groups
    rlimits         processor time, memory, file size, files, processes (required)
    no_new_privs    no set-uid program can raise privileges
    landlock        files can be opened only for reading, only below the libraries; no TCP
    parent_death    the kernel kills the worker when its parent dies
    seccomp         system calls that write, connect or start processes fail
    audit_hook      the same in the interpreter, on every platform (required)

A worker with families on OpenEnv servers has no other families. It keeps the network and the three
system calls for connecting, and the audit hook allows connections to these servers only.

A judge's worker has no sandbox: it runs the operator's own program on the operator's own machine.
It has limits on processor time and memory, and dies with its parent.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import resource
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from shoal_tasks.limits import WorkerLimits
from shoal_tasks.sandbox import audit, landlock, private_root, seccomp
from shoal_tasks.sandbox.library_folders import library_folders
from shoal_tasks.types import Layer, is_sandboxed

_CLONE_NEWUSER: Final = 0x10000000
_CLONE_NEWNET: Final = 0x40000000
_CLONE_NEWIPC: Final = 0x08000000
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_DUMPABLE: Final = 4
_PR_SET_NO_NEW_PRIVS: Final = 38
_NOBODY: Final = 65534
_FILES_OF_A_FORK: Final = 32
_STACK_BYTES: Final = 96 << 20
"""Stack limit: a process started under the usual limit can grow to some 128 MiB."""

_REQUIRED: Final = frozenset({"rlimits", "audit_hook"})
_OF_A_JUDGE: Final = frozenset({"process_group", "rlimits", "no_new_privs", "parent_death"})


class SandboxError(RuntimeError):
    """A required layer could not be applied."""


def enter(
    limits: WorkerLimits,
    guard: audit.AuditGuard,
    *,
    parent_pid: int | None = None,
    is_of_a_judge: bool = False,
) -> tuple[Layer, ...]:
    """Apply all layers to this process, irrevocably. Call with one thread and modules loaded.

    ``parent_pid``: exit at once if the parent is not this process. ``is_of_a_judge``: apply only
    the limits of time, memory and files, and the death with the parent.

    Raises `SandboxError` if a required layer cannot be applied.
    """
    libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
    used_bytes = _address_space_bytes()
    without = ("nproc", "fsize") if is_of_a_judge else ()
    folders = library_folders()
    # Python would try to write compiled modules, which is refused.
    sys.dont_write_bytecode = True
    layers: dict[str, Callable[[], str]] = {
        "process_group": _own_session,
        "network": lambda: _unshare_network(libc, is_needed=bool(guard.servers)),
        "filesystem": lambda: _isolate_filesystem(libc, folders),
        "user": _drop_privileges,
        "rlimits": lambda: _limit_resources(limits, used_bytes, without=without),
        "no_new_privs": lambda: _prctl(libc, _PR_SET_NO_NEW_PRIVS, 1),
        "landlock": lambda: landlock.enter(_need(libc), folders, connects=bool(guard.servers)),
        "parent_death": lambda: _set_parent_death_signal(libc, parent_pid),
        "seccomp": lambda: seccomp.install(libc, connects=bool(guard.servers)),
        "audit_hook": lambda: _install_hook(guard),
    }
    wanted = _OF_A_JUDGE if is_of_a_judge else layers
    found: list[Layer] = []
    for name, layer in layers.items():
        if name not in wanted:
            continue
        if name == "audit_hook":
            guard.is_sandboxed = is_sandboxed(found)
        found.append(_apply(name, layer))
    return tuple(found)


def enter_before_forks(parent_pid: int) -> tuple[int, tuple[Layer, ...]]:
    """Apply the layers against network and files to a process that only forks.

    Each child must still call `confine_fork`. Returns the address space in use, in bytes, and the
    state of each layer.
    """
    libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
    used_bytes = _address_space_bytes()
    folders = library_folders()
    sys.dont_write_bytecode = True
    with contextlib.suppress(KeyError):
        seccomp.program(platform.machine())  # cached for the children
    layers: dict[str, Callable[[], str]] = {
        "network": lambda: _unshare_network(libc, is_needed=False),
        "filesystem": lambda: _isolate_filesystem(libc, folders),
        "user": _drop_privileges,
        "no_new_privs": lambda: _prctl(libc, _PR_SET_NO_NEW_PRIVS, 1),
        "landlock": lambda: landlock.enter(_need(libc), folders),
        "parent_death": lambda: _set_parent_death_signal(libc, parent_pid),
    }
    return used_bytes, tuple(_apply(name, layer) for name, layer in layers.items())


def confine_fork(
    used_bytes: int, *, memory_bytes: int, cpu_seconds: int, file_bytes: int, parent_pid: int
) -> None:
    """Apply the remaining layers to a forked child: its own limits, and the seccomp filter.

    The audit hook is added only without seccomp. Raises `SandboxError`.
    """
    libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
    limits = replace(
        WorkerLimits(),
        process_cpu_seconds=cpu_seconds,
        memory_bytes=memory_bytes,
        max_open_files=_FILES_OF_A_FORK,
    )
    _apply("rlimits", lambda: _limit_resources(limits, used_bytes, file_bytes=file_bytes))
    _apply("stack", _enlarge_stack)
    _apply("parent_death", lambda: _set_parent_death_signal(libc, parent_pid))
    # Prevents other processes of this user from reading its memory.
    _apply("not_dumpable", lambda: _prctl(libc, _PR_SET_DUMPABLE, 0))
    if not _apply("seccomp", lambda: seccomp.install(libc)).active:
        _apply("audit_hook", lambda: _install_hook(audit.AuditGuard()))


def _enlarge_stack() -> str:
    # Recursion through C functions, such as a cached function's, uses this stack.
    _, hard = resource.getrlimit(resource.RLIMIT_STACK)
    wanted = _STACK_BYTES if hard == resource.RLIM_INFINITY else min(_STACK_BYTES, hard)
    resource.setrlimit(resource.RLIMIT_STACK, (wanted, hard))
    return f"{wanted >> 20} MiB"


def _apply(name: str, layer: Callable[[], str]) -> Layer:
    try:
        return Layer(name=name, active=True, detail=layer())
    except (OSError, ValueError, NotImplementedError, AttributeError) as error:
        if name in _REQUIRED:
            raise SandboxError(f"{name}: {error}") from error
        return Layer(name=name, active=False, detail=str(error))


def _own_session() -> str:
    if os.getpgrp() != os.getpid():
        os.setsid()
    return "own session"


def _unshare_network(libc: ctypes.CDLL | None, *, is_needed: bool) -> str:
    flags = _CLONE_NEWIPC if is_needed else _CLONE_NEWNET | _CLONE_NEWIPC
    user, group = os.geteuid(), os.getegid()
    if user != 0:
        # An unprivileged process needs a user namespace to unshare the others.
        flags |= _CLONE_NEWUSER
    _check(_need(libc).unshare(flags))
    if user != 0:
        _map_ids(user, group)
    if is_needed:
        raise NotImplementedError("it connects to its own server")
    return "own namespace" if user == 0 else "own user and network namespaces"


def _map_ids(user: int, group: int) -> None:
    """Map the user and group to themselves in the new namespace, which creating files needs."""
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{user} {user} 1"),
        ("gid_map", f"{group} {group} 1"),
    ):
        with contextlib.suppress(OSError):
            Path(f"/proc/self/{name}").write_text(text)


def _isolate_filesystem(libc: ctypes.CDLL | None, folders: Sequence[str]) -> str:
    try:
        _check(_need(libc).unshare(private_root.CLONE_NEWNS))
        private_root.enter(_need(libc), folders)
        return f"own root with {len(folders)} folders of libraries"
    except OSError as error:
        if landlock.version(_need(libc)) and _are_readable_to_all(folders):
            raise NotImplementedError(f"no mounts ({error}); Landlock instead") from None
    return _enter_empty_root()


def _are_readable_to_all(folders: Sequence[str]) -> bool:
    """Return whether `nobody`, the user that root becomes, can read the libraries."""
    if os.geteuid() != 0:
        return True
    inner = [Path(one) for one in folders if Path(one) in Path(os.__file__).parents]
    every = {parent for one in inner for parent in (one, *one.parents)} | {Path(os.__file__)}
    return all(one.stat().st_mode & (0o001 if one.is_dir() else 0o004) for one in every)


def _enter_empty_root() -> str:
    empty = Path(tempfile.mkdtemp(prefix="shoal-tasks-"))
    os.chdir(empty)
    # Removed first, entered second: nothing can be created in a removed directory, and nothing
    # remains when the worker is killed.
    empty.rmdir()
    os.chroot(".")
    return "empty root"


def _drop_privileges() -> str:
    if os.geteuid() != 0:
        return f"uid {os.geteuid()}, not root"
    os.setgroups([])
    os.setgid(_NOBODY)
    os.setuid(_NOBODY)
    return "nobody"


def _limit_resources(
    limits: WorkerLimits, used_bytes: int, *, without: Sequence[str] = (), file_bytes: int = 0
) -> str:
    address_space = used_bytes + limits.memory_bytes
    wanted = {
        "cpu": (resource.RLIMIT_CPU, limits.process_cpu_seconds),
        "fsize": (resource.RLIMIT_FSIZE, file_bytes),
        "nofile": (resource.RLIMIT_NOFILE, limits.max_open_files),
        "nproc": (resource.RLIMIT_NPROC, 0),
        "core": (resource.RLIMIT_CORE, 0),
        "as": (resource.RLIMIT_AS, address_space),
    }
    refused = []
    for name, (kind, value) in wanted.items():
        if name in without:
            continue
        _, hard = resource.getrlimit(kind)
        bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
        try:
            resource.setrlimit(kind, (bound, bound))
        except (OSError, ValueError):
            # macOS defines the constant for the address space, but not the limit.
            if name in ("cpu", "fsize"):
                raise
            refused.append(name)
    detail = f"{address_space >> 20} MiB, {limits.process_cpu_seconds} s"
    return f"{detail}; without {', '.join(refused)}" if refused else detail


def _set_parent_death_signal(libc: ctypes.CDLL | None, parent_pid: int | None) -> str:
    # After the change of user, which clears this setting.
    detail = _prctl(libc, _PR_SET_PDEATHSIG, signal.SIGKILL)
    if parent_pid is not None and os.getppid() != parent_pid:
        os._exit(0)
    return detail


def _install_hook(guard: audit.AuditGuard) -> str:
    audit.install(guard)
    return "on"


def _address_space_bytes() -> int:
    """Return the address space in use, in bytes. Call it before the file system is removed."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except OSError:
        return 1 << 30
    return pages * resource.getpagesize()


def _need(libc: ctypes.CDLL | None) -> ctypes.CDLL:
    if libc is None:
        raise NotImplementedError(f"not available on {sys.platform}")
    return libc


def _prctl(libc: ctypes.CDLL | None, option: int, argument: int) -> str:
    _check(_need(libc).prctl(option, argument, 0, 0, 0))
    return "on"


def _check(result: int) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
