"""Script that enters the sandbox and then tries what it must not be able to do.

Prints one JSON object: the layers, and for every attempt null if it succeeded, otherwise the error.
Arguments: ``as_root`` or ``as_user`` (changes to a user first); ``all`` layers, or ``kernel`` to
omit the audit hook and test the kernel alone; the folder; the port; and what the machine lacks:
``mounts``, ``landlock``, both or neither.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from shoal_tasks.limits import WorkerLimits
from shoal_tasks.sandbox import audit, seccomp
from shoal_tasks.sandbox import layers as sandbox
from shoal_tasks.types import Layer

LIBC = ctypes.CDLL(None, use_errno=True)
SOMEBODY = 12345


def open_for_writing(folder: str) -> None:
    Path(folder, "canary").write_text("x")


def append_to_existing(folder: str) -> None:
    os.close(os.open(Path(folder, "existing"), os.O_WRONLY | os.O_APPEND))


def make_directory(folder: str) -> None:
    Path(folder, "directory").mkdir()


def remove_file(folder: str) -> None:
    Path(folder, "existing").unlink()


def read_users_file(folder: str) -> None:
    Path(folder, "existing").read_text()


def open_socket(_folder: str) -> None:
    with socket.socket() as one:
        one.settimeout(1)
        one.connect(("127.0.0.1", int(sys.argv[4])))


def run_process(_folder: str) -> None:
    subprocess.run([sys.executable, "-c", ""], check=True, timeout=10)


def run_shell(folder: str) -> None:
    if os.system(f"echo x > {folder}/canary") != 0:
        raise OSError("the shell did not run")


def fork(_folder: str) -> None:
    if os.fork() == 0:
        os._exit(0)


def replace_process(_folder: str) -> None:
    os.execv(sys.executable, [sys.executable, "-c", "print('null')"])


def call_libc(_folder: str) -> None:
    made = b"/tmp/shoal-probe-%d" % os.getpid()  # test runs may be concurrent
    if LIBC.mkdir(made, 0o700) != 0:
        raise OSError(ctypes.get_errno(), "mkdir")
    LIBC.rmdir(made)


def _made(identifier: int, what: str) -> int:
    if identifier < 0:
        raise OSError(ctypes.get_errno(), what)
    return identifier


def share_memory(_folder: str) -> None:
    LIBC.shmctl(_made(LIBC.shmget(0, 4096, 0o1600), "shmget"), 0, None)


def make_semaphores(_folder: str) -> None:
    LIBC.semctl(_made(LIBC.semget(0, 1, 0o1600), "semget"), 0, 0)


def make_a_queue(_folder: str) -> None:
    LIBC.msgctl(_made(LIBC.msgget(0, 0o1600), "msgget"), 0, None)


def watch_files(_folder: str) -> None:
    os.close(_made(LIBC.inotify_init1(0), "inotify_init1"))


def kill_parent(_folder: str) -> None:
    os.kill(os.getppid(), 0)


def raise_limit(_folder: str) -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))


def fill_memory(_folder: str) -> None:
    bytearray(2 << 30)


ATTEMPTS: tuple[Callable[[str], None], ...] = (
    open_for_writing,
    append_to_existing,
    make_directory,
    remove_file,
    read_users_file,
    open_socket,
    run_process,
    run_shell,
    fork,
    replace_process,
    call_libc,
    share_memory,
    make_semaphores,
    make_a_queue,
    watch_files,
    kill_parent,
    raise_limit,
    fill_memory,
)


def attempt(action: Callable[[str], None], folder: str) -> str | None:
    try:
        action(folder)
    except (OSError, ValueError, MemoryError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"
    return None


def let_users_reach_python() -> None:
    """Let ordinary users enter root's home, only in this process's view: the interpreter may be
    there, and an ordinary user's own is always readable.
    """
    home = Path.home()
    if home not in Path(sys.base_prefix).parents or home.stat().st_mode & 0o001:
        return
    inner = home / Path(sys.base_prefix).relative_to(home).parts[0]
    LIBC.unshare(0x00020000)
    LIBC.mount(None, b"/", None, ctypes.c_ulong(16384 | 1 << 18), None)
    kept = os.open(inner, os.O_PATH)
    LIBC.mount(b"tmpfs", bytes(home), b"tmpfs", ctypes.c_ulong(0), b"mode=755")
    inner.mkdir()
    LIBC.mount(
        f"/proc/self/fd/{kept}".encode(), bytes(inner), None, ctypes.c_ulong(4096 | 16384), None
    )
    os.close(kept)


def lack(calls: list[int]) -> None:
    """Let system calls fail, as on a machine or in a container that does not permit them."""
    instruction = seccomp._instruction
    code = [instruction(0x20, 0, 0, 0)]
    for number in calls:
        code += [instruction(0x15, 0, 1, number), instruction(0x06, 0, 0, 0x00050000 | 1)]
    code.append(instruction(0x06, 0, 0, 0x7FFF0000))
    program = b"".join(code)
    buffer = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("@HP", len(code), ctypes.addressof(buffer))
    LIBC.prctl(38, 1, 0, 0, 0)
    assert LIBC.prctl(22, 2, ctypes.c_char_p(header), 0, 0) == 0


CALLS = {"mounts": (272, 165), "landlock": (444,)}
"""unshare and mount, landlock_create_ruleset; on x86-64."""


def imports_on_demand() -> bool:
    try:
        importlib.import_module("colorsys")
    except ImportError:
        return False
    return True


def main() -> None:
    user, layers, folder = sys.argv[1:4]
    lacking = sys.argv[5].split() if len(sys.argv) > 5 else []
    if os.geteuid() == 0 and (lacking or user == "as_user"):
        let_users_reach_python()
    if user == "as_user" and os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(SOMEBODY, SOMEBODY, SOMEBODY)
        os.setresuid(SOMEBODY, SOMEBODY, SOMEBODY)
        LIBC.prctl(4, 1, 0, 0, 0)  # as in a program started by this user
    if lacking:
        lack([call for name in lacking for call in CALLS[name]])
    if user == "outside":
        reports: tuple[Layer, ...] = ()
    else:
        if layers == "kernel":
            audit.install = lambda guard: None
        reports = sandbox.enter(WorkerLimits(), audit.AuditGuard(), parent_pid=os.getppid())
    refused = {action.__name__: attempt(action, folder) for action in ATTEMPTS}
    found = {"layers": {r.name: r.active for r in reports}, "refused": refused}
    print(json.dumps({**found, "imports": imports_on_demand()}))


if __name__ == "__main__":
    main()
